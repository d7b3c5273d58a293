//! BPF programs that may decide over packets: what they do cannot be read.

use super::packet::Packet;
use super::walk::{Verdict, Walk};
use crate::model::{Family, Transport};

/// A BPF program, or those of one cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BpfProgram {
    /// The family of its packets, if it sees one only.
    pub family: Option<Family>,
    /// The packets that the program sees.
    pub packets: Seen,
    /// What it may do, in a sentence.
    pub words: String,
}

/// Which packets a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// All of the pod.
    All,
    /// Packets for which the kernel looks for a socket here.
    Received,
    /// Packets that a process sends, before all rules.
    Sent,
}

impl BpfProgram {
    /// Whether it may make another verdict of this one.
    pub(super) fn may_decide(&self, packet: &Packet, walk: &Walk<'_>) -> bool {
        let goes_on = !matches!(walk.verdict, Verdict::Dropped | Verdict::NoRoute | Verdict::Misrouted);
        let is_captured = matches!(walk.verdict, Verdict::Captured(_) | Verdict::ToProxySocket);
        self.family.is_none_or(|family| family == packet.family())
            && match self.packets {
                Seen::All => goes_on,
                // Replies over UDP are looked up, too, if their socket is not connected.
                Seen::Received => {
                    let is_udp = packet.transport == Transport::Udp;
                    goes_on && (is_captured || packet.is_inbound || packet.is_local || is_udp)
                }
                Seen::Sent => packet.process.is_some(),
            }
    }
}
