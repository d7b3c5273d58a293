//! The owner of the packets that the proxy sends.

use super::packet::Process;
use super::runtime::proxy_ports;
use super::{LiveState, Pod};
use crate::config::CaptureConfig;

/// The user that may listen with TPROXY, or before it becomes another one.
const ROOT: u32 = 0;

/// The first user and group of the options.
pub(super) fn owner(config: &CaptureConfig) -> Process {
    let first = |ids: &[u32]| ids.first().copied().unwrap_or_default();
    Process { uid: first(&config.traffic.proxy.uids), gid: first(&config.traffic.proxy.gids) }
}

impl Pod<'_> {
    /// The user of the socket that listens on the proxy's ports, where that is known, and the group of the options: the kernel lists sockets
    /// without their group.
    pub(super) fn proxy(&self) -> Process {
        let by_options = owner(self.config);
        let listening = self.live.as_ref().and_then(|live| self.listening_uid(live));
        Process { uid: listening.unwrap_or(by_options.uid), ..by_options }
    }

    /// The proxy of a TPROXY pod where it takes a client's address: only root may.
    pub(super) fn transparent_proxy(&self) -> Process {
        Process { uid: ROOT, ..owner(self.config) }
    }

    /// The user of the outbound listener; of another one, if it is absent.
    fn listening_uid(&self, live: &LiveState) -> Option<u32> {
        let ports = proxy_ports(live, self.config);
        let is_outbound = |port| port == self.config.traffic.ports.outbound;
        let listening = ports.iter().filter_map(|found| Some((found.port, found.listener?.uid)));
        let (_, uid) = listening.min_by_key(|(port, _)| !is_outbound(*port))?;
        // A proxy that root starts may bind its ports before it becomes another user.
        let runs_as = |wanted: &u32| {
            let mut processes = live.runtime.processes.iter();
            processes.any(|process| process.uid == *wanted && process.is_proxy == Some(true))
        };
        let later = self.config.traffic.proxy.uids.iter().copied().find(|uid| *uid != ROOT && runs_as(uid));
        Some(later.filter(|_| uid == ROOT).unwrap_or(uid))
    }
}
