//! Which side opened a connection, and conntrack entries with the wrong direction.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use crate::kernel::conntrack::{Change, Conntrack, Entry, NewEntry, TcpState, Tuple};
use crate::kernel::rtnetlink::Rtnetlink;
use crate::kernel::sock_diag::{InetSocket, SocketLookup, State, tcp_connections, tcp_sockets};

/// How long entries of the wrong direction are looked for: connections that are open meanwhile can make
/// others.
const LIMIT: Duration = Duration::from_secs(1);
/// How many times at least, on a machine that is busy.
const ATTEMPTS: usize = 20;
/// Interval between two queries for them.
const INTERVAL: Duration = Duration::from_millis(5);

/// The kernel's own timeout of an established connection (`nf_conntrack_tcp_timeout_established`). Each
/// packet starts it again; a connection that ends leaves by the timeout of its last state.
const ESTABLISHED: Duration = Duration::from_secs(432_000);
/// For connections that the pod has closed: their socket may end without a packet.
const CLOSED_HERE: Duration = Duration::from_secs(600);
/// For connections that miss the last acknowledgement only.
const LAST_ACK: Duration = Duration::from_secs(120);

/// The kernel's own timeout of a handshake (`nf_conntrack_tcp_timeout_syn_recv`).
const HANDSHAKE: Duration = Duration::from_secs(60);

/// What determines the direction of a connection.
#[derive(Debug)]
pub(super) struct OriginalDirection {
    /// Local ports that accept connections.
    listening: HashSet<u16>,
    /// Addresses of the pod.
    local: HashSet<IpAddr>,
}

impl OriginalDirection {
    pub(super) fn read() -> io::Result<Self> {
        let listeners = tcp_sockets(&[State::Listen])?;
        let addresses = Rtnetlink::open()?.addresses()?;
        Ok(Self {
            listening: listeners.iter().map(|listener| listener.local.port()).collect(),
            local: addresses.into_iter().map(|listed| listed.address).collect(),
        })
    }

    /// Whether this is an address of the pod.
    pub(super) fn is_local(&self, end: SocketAddr) -> bool {
        self.local.contains(&end.ip())
    }

    /// From the side that began. Where the socket does not tell, that is the peer if the local port has a
    /// listener.
    pub(super) fn original(&self, socket: &InetSocket) -> Tuple {
        let outgoing = Tuple { source: socket.local, destination: socket.remote };
        let began = socket.began.unwrap_or_else(|| !self.listening.contains(&socket.local.port()));
        if began { outgoing } else { outgoing.reversed() }
    }

    /// The entry of an open connection, or of one that the pod has replied to.
    pub(super) fn entry(&self, socket: &InetSocket) -> Option<NewEntry> {
        let (state, timeout) = match socket.state {
            State::Established => (TcpState::Established, ESTABLISHED),
            // One side has closed it unseen: see `Change::Resume`.
            State::CloseWait => (TcpState::TimeWait, ESTABLISHED),
            State::FinWait1 | State::FinWait2 => (TcpState::TimeWait, CLOSED_HERE),
            State::Closing | State::LastAck => (TcpState::LastAck, LAST_ACK),
            // The client may be connected: it has not sent yet what a deferred accept waits for, or its
            // acknowledgement is under way.
            State::SynReceived | State::NewSynReceived => (TcpState::SynReceived, HANDSHAKE),
            State::SynSent | State::TimeWait | State::Close | State::Listen => return None,
        };
        Some(NewEntry { original: self.original(socket), state, timeout })
    }

    /// Whether the replying side can be the source of this entry, and no packet depends on that: it is
    /// neither forwarded nor within the pod.
    fn may_be_reversed(&self, entry: &Entry) -> bool {
        let Tuple { source, destination } = entry.original;
        self.is_local(source) != self.is_local(destination) && may_be_reversed(entry)
    }

    /// Whether the replying side is the source, by the listeners.
    fn has_listener_at_source(&self, entry: &Entry) -> bool {
        let Tuple { source, destination } = entry.original;
        if self.is_local(source) {
            self.listening.contains(&source.port())
        } else {
            !self.listening.contains(&destination.port())
        }
    }

    /// Whether the pod has a socket for this connection.
    fn is_connected(&self, lookup: &mut SocketLookup, connection: Tuple) -> io::Result<bool> {
        let Tuple { source, destination } = connection;
        let (local, remote) =
            if self.is_local(source) { (source, destination) } else { (destination, source) };
        lookup.is_connected(local, remote)
    }

    /// Replaces entries, and returns those made. A socket that has ended since it was listed sends nothing
    /// that would end its entry: that becomes TIME_WAIT, in which the next SYN on the ports replaces it. It
    /// is not deleted: a connection may have begun along it.
    pub(super) fn replace(
        &self,
        table: &mut Conntrack,
        replaced: &[(Entry, Option<NewEntry>)],
    ) -> io::Result<Vec<Entry>> {
        table.replace(replaced)?;
        if replaced.iter().all(|(_, new)| new.is_none()) {
            return Ok(Vec::new());
        }
        let mut lookup = SocketLookup::open()?;
        let (mut made, mut ended) = (Vec::new(), Vec::new());
        for (old, new) in replaced {
            let Some(new) = new else { continue };
            let found = table.find(&Entry { original: new.original, ..*old })?;
            let Some(found) = found.filter(|found| found.original == new.original) else { continue };
            let is_unchanged = found.tcp_state == Some(new.state);
            if is_unchanged && !self.is_connected(&mut lookup, new.original)? {
                ended.push(found);
            }
            made.push(found);
        }
        table.change(&ended, Change::Resume { closing: true, seen_reply: false })?;
        Ok(made)
    }

    /// Turns entries around, or deletes those without a connection. Where the first packet that the tracker
    /// saw was an reply, the next SYN on the same ports is invalid: it bypasses the proxy, or reports the
    /// client as its destination, or `--drop-invalid` drops it. A packet that comes between deletion and
    /// creation makes another entry, in either direction, so each is looked at again; and so are the sockets
    /// where an entry was deleted, since a connection may have begun along it that has none now. Returns the
    /// entries made.
    pub(super) fn reverse(&self, table: &mut Conntrack, mut entries: Vec<Entry>) -> io::Result<Vec<Entry>> {
        let deadline = Instant::now() + LIMIT;
        entries.retain(|entry| self.may_be_reversed(entry));
        let mut lookup = SocketLookup::open()?;
        let (mut deleted, mut made) = (HashSet::new(), Vec::new());
        for attempt in 0.. {
            if entries.is_empty() || (attempt >= ATTEMPTS && Instant::now() >= deadline) {
                break;
            }
            let sockets = tcp_connections(&[State::CONNECTED.as_slice(), &State::HALF_OPEN].concat())?;
            let open: HashMap<Tuple, Option<NewEntry>> =
                sockets.iter().map(|socket| (self.original(socket), self.entry(socket))).collect();
            entries.retain(|entry| {
                let is_reversed =
                    open.contains_key(&entry.original.reversed()) || self.has_listener_at_source(entry);
                is_reversed && !open.contains_key(&entry.original)
            });
            let (mut replaced, mut absent) = (Vec::new(), std::mem::take(&mut deleted));
            for entry in &entries {
                match open.get(&entry.original.reversed()) {
                    // No reply yet: its next packet would be a new connection.
                    Some(None) => {}
                    Some(new @ Some(_)) => replaced.push((*entry, *new)),
                    None if self.is_connected(&mut lookup, entry.original)? => {}
                    None if absent.remove(&entry.original) => {}
                    None => {
                        deleted.insert(entry.original);
                        replaced.push((*entry, None));
                    }
                }
            }
            if entries.is_empty() {
                break;
            }
            made.extend(self.replace(table, &replaced)?);
            thread::sleep(INTERVAL);
            let mut left = Vec::new();
            for entry in &entries {
                match table.find(entry)? {
                    Some(found) => {
                        deleted.remove(&entry.original);
                        left.extend(self.may_be_reversed(&found).then_some(found));
                    }
                    None => left.extend(deleted.contains(&entry.original).then_some(*entry)),
                }
            }
            entries = left;
        }
        Ok(made)
    }
}

/// A SYN against the direction of a closed entry is invalid, whichever side began it; one in its direction
/// takes it into use again, so others are not deleted.
pub(super) fn may_be_reversed(entry: &Entry) -> bool {
    let is_free = entry.picked_up || entry.tcp_state == Some(TcpState::Close);
    is_free && !entry.status.is_translated()
}
