//! Which side of the connection of a conntrack entry is a socket of the pod.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::kernel::conntrack::{Entry, Tuple};
use crate::kernel::rtnetlink::Rtnetlink;
use crate::kernel::sock_diag::{SocketLookup, State, tcp_sockets};
use crate::ordered::Ordered as _;

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
pub(crate) struct LocalSockets {
    ends: HashSet<SocketAddr>,
    lookup: SocketLookup,
}

impl LocalSockets {
    pub(crate) fn list() -> io::Result<Self> {
        let listed = tcp_sockets(&CONNECTION_STATES)?;
        let ends = listed.into_iter().map(|socket| socket.local).collect();
        Ok(Self { ends, lookup: SocketLookup::open()? })
    }

    /// Whether one of them began the connection of this entry. A list can lack one that is open.
    pub(crate) fn began(&mut self, entry: &Entry) -> io::Result<bool> {
        let Tuple { source, destination } = entry.original;
        Ok(self.ends.contains(&source) || self.lookup.is_connected(source, destination)?)
    }
}

/// The addresses of this namespace; `None` if they cannot be listed.
pub(crate) fn local_addresses() -> Option<BTreeSet<IpAddr>> {
    let listed = Rtnetlink::open().and_then(|mut socket| socket.addresses());
    let listed = listed.inspect_err(|error| log::debug!("addresses cannot be listed: {error}")).ok()?;
    Some(listed.into_iter().map(|listed| listed.address).into_set())
}
