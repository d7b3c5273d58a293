//! The owner of the packets that the proxy sends.

use std::fmt;

use super::packet::{Process, proxy_owner};
use super::{Listener, LiveState, Pod};
use crate::model::{DNS_CAPTURE_PORT, Port, Transport};

/// The user that listens with TPROXY as Istio's injection has it, or before it becomes another one.
const ROOT: u32 = 0;

/// The problem of a listener of MPTCP on a port that REDIRECT leads to.
pub const TAKES_MPTCP: &str = "the listener there takes MPTCP, and the kernel does not tell the original destination \
                               (SO_ORIGINAL_DST) of what an MPTCP client sends: these connections fail; turn MPTCP off in the proxy \
                               (GODEBUG=multipathtcp=0 for Go, enable_mptcp for Envoy), or in the pod with net.mptcp.enabled=0";

/// Rules capture what a TPROXY proxy of this user sends to the app under the client's address: they know it
/// by its user, and take it for a call to the pod's own service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CapturedAgain(Process);

impl fmt::Display for CapturedAgain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(Process { uid, gid }) = self;
        write!(
            f,
            "the proxy's connection to the app is captured again and never reaches it: the proxy listens as uid {uid}, whose connections \
             over lo the rules take for calls to the pod's own service; with TPROXY it must run as uid 0 and gid {gid}, as Istio's \
             injection sets it"
        )
    }
}

impl CapturedAgain {
    /// What the pod's specification must say.
    pub(super) fn mend(self) -> String {
        let Self(Process { gid, .. }) = self;
        format!("`runAsUser: 0` and `runAsGroup: {gid}` for the proxy's container")
    }
}

impl Pod<'_> {
    /// The user of the socket that listens on the proxy's ports, where that is known, and the group of the
    /// options: the kernel lists sockets without their group. That of its process counts if rules do not
    /// exempt it.
    pub(super) fn proxy(&self) -> Process {
        if let Some(captured) = self.live.as_ref().and_then(|live| live.runtime.captured_proxy) {
            return captured;
        }
        let by_options = proxy_owner(self.config);
        let listening = self.live.as_ref().and_then(|live| self.listening_uid(live));
        Process { uid: listening.unwrap_or(by_options.uid), ..by_options }
    }

    /// The proxy of a TPROXY pod where it takes a client's address: with the user of its inbound listener;
    /// root, if nothing listens.
    pub(super) fn transparent_proxy(&self) -> Process {
        let inbound = self.config.traffic.ports.inbound.number();
        let is_its = |found: &&Listener| {
            (found.transport, found.address.port()) == (Transport::Tcp, inbound)
                && found.is_transparent == Some(true)
        };
        let listeners = self.live.as_ref().and_then(|live| live.runtime.listeners.as_ref());
        let listening = listeners.into_iter().flatten().find(is_its);
        Process { uid: listening.map_or(ROOT, |found| found.uid), ..proxy_owner(self.config) }
    }

    /// Whether a listening socket of the proxy is one by which captured connections may end.
    pub(super) fn has_failing_socket(&self) -> bool {
        let Some(live) = &self.live else { return false };
        live.routed_mark.is_some() && self.transparent_proxy().uid != ROOT
    }

    /// Whether rules that capture what the proxy sends to the app under the client's address do so for its
    /// user.
    pub(super) fn captured_again(&self) -> Option<CapturedAgain> {
        let proxy = self.transparent_proxy();
        (proxy.uid != ROOT).then_some(CapturedAgain(proxy))
    }

    /// The user of the outbound listener; of another one, if it is absent.
    fn listening_uid(&self, live: &LiveState) -> Option<u32> {
        let listeners = live.runtime.listeners.as_ref()?;
        let on = |port: Port| {
            let found = listeners.iter().filter(|found| found.address.port() == port.number());
            // One for every address says more than one for a single address.
            found.max_by_key(|found| found.address.ip().is_unspecified())
        };
        let ports = &self.config.traffic.ports;
        let uid = [ports.outbound, ports.inbound, DNS_CAPTURE_PORT].into_iter().find_map(on)?.uid;
        // A proxy that root starts may bind its ports before it becomes another user.
        let runs_as = |wanted: &u32| {
            let mut processes = live.runtime.processes.iter();
            processes.any(|process| process.uid == *wanted && process.is_proxy == Some(true))
        };
        let later = self.config.traffic.proxy.uids.iter().copied().find(|uid| *uid != ROOT && runs_as(uid));
        Some(later.filter(|_| uid == ROOT).unwrap_or(uid))
    }
}
