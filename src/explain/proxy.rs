//! The owner of the packets that the proxy sends.

use super::packet::{Process, proxy_owner};
use super::{LiveState, Pod};
use crate::model::{DNS_CAPTURE_PORT, Port};

/// The user that may listen with TPROXY, or before it becomes another one.
const ROOT: u32 = 0;

impl Pod<'_> {
    /// The user of the socket that listens on the proxy's ports, where that is known, and the group of the options: the kernel lists sockets
    /// without their group.
    pub(super) fn proxy(&self) -> Process {
        let by_options = proxy_owner(self.config);
        let listening = self.live.as_ref().and_then(|live| self.listening_uid(live));
        Process { uid: listening.unwrap_or(by_options.uid), ..by_options }
    }

    /// The proxy of a TPROXY pod where it takes a client's address: only root may.
    pub(super) fn transparent_proxy(&self) -> Process {
        Process { uid: ROOT, ..proxy_owner(self.config) }
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
