//! The conntrack entry of a packet as far as it is known: tuples and status.

use std::net::SocketAddr;

use super::matching::PacketState;
use crate::config::ConnectionState;
use crate::live_rules::{ASSURED, CONFIRMED, DYING, EXPECTED, SEEN_REPLY, STATUS_DNAT, STATUS_SNAT};

/// A connection, of which the first packet's way is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Connection {
    /// Source and destination of the first packet.
    pub(super) original: (SocketAddr, SocketAddr),
    /// Source and destination of replies; the second one is not known where the first packet has passed
    /// `POSTROUTING`.
    pub(super) reply: (SocketAddr, Option<SocketAddr>),
    /// Whether the packet is a reply.
    pub(super) is_reply: bool,
}

impl Connection {
    /// Of a packet that begins one, with the destination that it has by now.
    pub(super) fn begun((source, destination): (SocketAddr, SocketAddr), at: &PacketState) -> Self {
        let reply = (at.destination, Some(source).filter(|_| !is_behind_postrouting(at)));
        Self { original: (source, destination), reply, is_reply: false }
    }

    fn is_redirected(&self) -> bool {
        self.original.1 != self.reply.0
    }
}

/// The source of a packet is translated in `POSTROUTING`, which is not followed, before it arrives on `lo`.
fn is_behind_postrouting(at: &PacketState) -> bool {
    at.in_interface.as_deref() == Some("lo")
}

/// The status bits (`IPS_*`) that are set, and those that are unknown.
pub(super) fn status(at: &PacketState, connection: Option<Connection>) -> (u128, u128) {
    const KNOWN: u128 = EXPECTED | SEEN_REPLY | ASSURED | CONFIRMED | STATUS_SNAT | STATUS_DNAT | DYING;
    let dnat = connection.map_or((0, STATUS_DNAT), |connection| {
        if connection.is_redirected() { (STATUS_DNAT, 0) } else { (0, 0) }
    });
    let (set, unknown) = match at.state {
        ConnectionState::New if is_behind_postrouting(at) => (CONFIRMED, STATUS_SNAT),
        ConnectionState::New | ConnectionState::Invalid => (0, 0),
        ConnectionState::Established => (SEEN_REPLY | CONFIRMED, EXPECTED | ASSURED | STATUS_SNAT),
    };
    (set | dnat.0, unknown | dnat.1 | !KNOWN)
}
