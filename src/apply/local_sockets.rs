//! Which side of the connection of a conntrack entry is a socket of the pod.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;

use crate::kernel::conntrack::{Entry, Tuple};
use crate::kernel::sock_diag::{SocketLookup, State, tcp_sockets};

/// The states of a socket that has begun, or got, a connection.
pub(super) const CONNECTION_STATES: [State; 10] = [
    State::Established,
    State::SynSent,
    State::SynReceived,
    State::FinWait1,
    State::FinWait2,
    State::TimeWait,
    State::CloseWait,
    State::LastAck,
    State::Closing,
    State::NewSynReceived,
];

/// The sockets that may have begun the connections of entries that were listed before.
pub(super) struct LocalSockets {
    ends: HashSet<SocketAddr>,
    lookup: SocketLookup,
}

impl LocalSockets {
    pub(super) fn list() -> io::Result<Self> {
        let listed = tcp_sockets(&CONNECTION_STATES)?;
        let ends = listed.into_iter().map(|socket| socket.local).collect();
        Ok(Self { ends, lookup: SocketLookup::open()? })
    }

    /// Whether one of them began the connection of this entry. A list can lack one that is open.
    pub(super) fn began(&mut self, entry: &Entry) -> io::Result<bool> {
        let Tuple { source, destination } = entry.original;
        Ok(self.ends.contains(&source) || self.lookup.is_connected(source, destination)?)
    }
}
