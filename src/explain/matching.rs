//! A packet at one hook, as the tests of rules see it.

use std::net::SocketAddr;

use super::packet::{Packet, Process, TcpFlags};
use crate::config::ConnectionState;
use crate::live_rules::{MarkChange, Zone};
use crate::model::{Mark, Transport};

/// Why a test of the owner fails.
pub(super) const NO_SOCKET: &str = "has no socket, so neither uid nor gid";

/// Why a test of the connection's mark fails, negated or not.
pub(super) const NO_CONNECTION: &str = "has no connection, so no connection mark";

/// Whether a walk says why rules are not for its packet. The words cost more than the test; only the report
/// on one packet has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Words {
    #[default]
    None,
    OfEachRule,
}

impl Words {
    /// The words, or no words.
    pub(super) fn of(self, words: impl FnOnce() -> String) -> String {
        match self {
            Self::None => String::new(),
            Self::OfEachRule => words(),
        }
    }
}

/// A packet at one hook.
#[derive(Clone, Debug)]
pub(super) struct PacketState {
    pub(super) process: Option<Process>,
    pub(super) transport: Transport,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) in_interface: Option<String>,
    pub(super) out_interface: Option<String>,
    pub(super) mark: Mark,
    pub(super) connmark: Mark,
    /// Whether both marks are known: a foreign rule may have set others.
    pub(super) has_known_marks: bool,
    pub(super) state: ConnectionState,
    pub(super) tcp_flags: TcpFlags,
    /// Whether connection tracking sees it.
    pub(super) is_tracked: bool,
    /// The zone in which that looks for its connection.
    pub(super) zone: Zone,
    /// Whether a rule has decided both: the first one that sets one of them counts, and only before
    /// connection tracking.
    pub(super) is_assigned: bool,
    /// Whether connection tracking has seen it.
    pub(super) is_seen: bool,
    /// Whether it is said why a rule is not for it.
    pub(super) words: Words,
}

impl PacketState {
    /// The state of the packet before the first hook.
    pub(super) fn of(packet: &Packet, words: Words) -> Self {
        Self {
            process: packet.process,
            transport: packet.transport,
            source: packet.source,
            destination: packet.destination,
            in_interface: packet.is_inbound.then(|| packet.interface.clone()),
            out_interface: (!packet.is_inbound).then(|| packet.interface.clone()),
            mark: packet.mark,
            connmark: packet.connmark,
            has_known_marks: true,
            state: packet.state,
            tcp_flags: packet.possible_flags(),
            is_tracked: true,
            zone: Zone::default(),
            is_assigned: false,
            is_seen: false,
            words,
        }
    }

    /// Changes the marks of the packet, or of what is known of its connection.
    pub(super) fn change_marks(&mut self, change: MarkChange) {
        if !change.needs_connection() || self.has_connection() {
            (self.mark, self.connmark) = change.apply(self.mark, self.connmark);
        }
    }

    /// Whether it has a connection, which has a mark: not before connection tracking, nor if it is not
    /// tracked or invalid.
    pub(super) fn has_connection(&self) -> bool {
        self.is_seen && self.is_tracked && self.state != ConnectionState::Invalid
    }
}
