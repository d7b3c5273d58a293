//! Creates conntrack entries for the open connections of a pod that is captured for the first time.
//!
//! The rules are already in place, with TCP exempt, so a failure is only a warning: connections without an
//! entry are captured in the middle, and reset.

use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::delete_on_syn;
use super::local_sockets::CONNECTION_STATES;
use super::original_direction::OriginalDirection;
use crate::kernel::conntrack::{Change, Conntrack, ConntrackError, Entry, NewEntry, TcpState, Tuple};
use crate::kernel::netlink::Outcome;
use crate::kernel::sock_diag::{InetSocket, SocketLookup, State, tcp_connections};
use crate::model::{Family, Transport};

/// How long a run waits for open handshakes: the reply to a SYN that no rule has seen may still come. A SYN
/// that is sent again is looked up in the rules.
const HANDSHAKE: Duration = Duration::from_secs(1);
/// Interval between two queries for them.
const INTERVAL: Duration = Duration::from_millis(5);

/// Makes the entries. What fails is logged.
pub(crate) fn create(families: &BTreeSet<Family>) {
    match Tracking::new(families).and_then(Tracking::complete) {
        Ok(Outcome { done, expected, error: None }) => {
            log::info!("conntrack entries for open TCP connections: created: {done}, existing: {expected}");
        }
        Ok(Outcome { done, expected, error: Some(error) }) => {
            log::warn!(
                "cannot create conntrack entries for some open TCP connections: {error}; created: {done}, \
                 existing: {expected}; the other connections are reset when they next send; \
                 raise net.netfilter.nf_conntrack_max on the node if its table is full"
            );
        }
        Err((error, open)) => log::warn!(
            "the open TCP connections cannot be tracked: {error}; {open} connections are reset when they next send, \
             unless connection tracking knows them already"
        ),
    }
}

/// Failure, and the number of open connections if it is known.
type Failed = (ConntrackError, usize);

struct Tracking<'a> {
    families: &'a BTreeSet<Family>,
    direction: OriginalDirection,
    table: Conntrack,
    made: Outcome,
}

impl<'a> Tracking<'a> {
    fn new(families: &'a BTreeSet<Family>) -> Result<Self, Failed> {
        let direction = OriginalDirection::read().map_err(|error| (error.into(), 0))?;
        let open = || sockets(families, &State::CONNECTED).map_or(0, |open| open.len());
        let table = Conntrack::open().map_err(|error| (error, open()))?;
        Ok(Self { families, direction, table, made: Outcome::default() })
    }

    fn complete(mut self) -> Result<Outcome, Failed> {
        let states = [State::CONNECTED.as_slice(), &State::HALF_OPEN].concat();
        let failed = |error: std::io::Error, open: usize| (ConntrackError::from(error), open);
        let all = sockets(self.families, &states).map_err(|error| failed(error, 0))?;
        let (mut waiting, open): (Vec<_>, Vec<_>) = all.into_iter().partition(is_half_open);
        let count = open.len();
        let mut tracked = open.clone();
        self.make(&open).map_err(|error| failed(error, count))?;
        let deadline = Instant::now() + HANDSHAKE;
        while !waiting.is_empty() && Instant::now() < deadline {
            thread::sleep(INTERVAL);
            let now = sockets(self.families, &states).map_err(|error| failed(error, 0))?;
            let known: HashSet<_> = waiting.iter().map(ends).collect();
            let (still, open): (Vec<_>, Vec<_>) =
                now.into_iter().filter(|one| known.contains(&ends(one))).partition(is_half_open);
            self.make(&open).map_err(|error| failed(error, open.len()))?;
            tracked.extend(open);
            waiting = still;
        }
        // Those that the pod has replied to; there is no entry for the others.
        self.make(&waiting).map_err(|error| failed(error, waiting.len()))?;
        self.settle(&tracked).map_err(|error| failed(error, 0))?;
        Ok(self.made)
    }

    /// Deletes the entries of connections that have ended, and flags all others, those too that connection
    /// tracking made by itself meanwhile. One dump serves all of it.
    fn settle(&mut self, tracked: &[InetSocket]) -> std::io::Result<()> {
        let now = sockets(self.families, &State::CONNECTED)?;
        let ended = self.ended(tracked, &now)?;
        let is_half_closed = |socket: &&InetSocket| socket.state != State::Established;
        let half_closed: HashSet<_> = now.iter().filter(is_half_closed).map(ends).collect();
        let connected: HashSet<_> = now.iter().map(ends).collect();
        let mut unfinished = Vec::new();
        let Self { families, direction, table, made: _ } = self;
        let flagged = delete_on_syn::change_all(table, |entry| {
            if entry.transport != Transport::Tcp || !families.contains(&entry.family) {
                return None;
            }
            let is_established = entry.tcp_state == Some(TcpState::Established);
            if is_established && !entry.status.destination_translated() && ended.contains(&entry.original) {
                return Some(Change::Delete);
            }
            if !is_unfinished(entry) {
                return Some(Change::Resume { closing: false, seen_reply: false });
            }
            unfinished.extend((!local_ends(direction, entry).is_empty()).then_some(*entry));
            // What is translated was tracked all the time, or is cut off.
            let is_translated = entry.status.destination_translated();
            let closing = !is_translated && both_ends(entry).iter().any(|ends| half_closed.contains(ends));
            let seen_reply = both_ends(entry).iter().any(|ends| connected.contains(ends));
            Some(Change::Resume { closing, seen_reply })
        })?;
        self.finish_ended_unseen(&unfinished)?;
        flagged.finish(&mut self.table)
    }

    /// The original tuples of the sockets that ended before their entry was made: they send nothing that ends
    /// the entry. A later connection with the same ports would follow it and bypass the proxy.
    fn ended(&self, tracked: &[InetSocket], now: &[InetSocket]) -> std::io::Result<HashSet<Tuple>> {
        let alive: HashSet<_> = now.iter().map(ends).collect();
        let missing: Vec<_> = tracked.iter().filter(|one| !alive.contains(&ends(one))).collect();
        let mut ended = HashSet::new();
        let Some(mut lookup) = (!missing.is_empty()).then(SocketLookup::open).transpose()? else {
            return Ok(ended);
        };
        for socket in missing {
            if !lookup.is_connected(socket.local, socket.remote)? {
                ended.insert(self.direction.original(socket));
            }
        }
        Ok(ended)
    }

    /// While nothing needs connection tracking, the entries of earlier rules stay, and the ends of their
    /// connections are not seen. The kernel lets a SYN pass along an established entry: past the proxy, or to
    /// it, if the entry is of a captured connection and the port is used by the proxy now. Where the end of
    /// one side was seen, the last packet of the connection may be on its way, and its entry is not deleted.
    fn finish_ended_unseen(&mut self, entries: &[Entry]) -> std::io::Result<()> {
        // After the entries: a connection that begins meanwhile has a socket. One in TIME_WAIT has ended: an
        // entry that does not have that state even so did not see it, and never will.
        let states = CONNECTION_STATES.into_iter().filter(|state| *state != State::TimeWait);
        let states: Vec<State> = states.collect();
        let alive: HashSet<_> = sockets(self.families, &states)?.iter().map(ends).collect();
        let is_missing =
            |entry: &&Entry| !local_ends(&self.direction, entry).iter().any(|ends| alive.contains(ends));
        let missing: Vec<&Entry> = entries.iter().filter(is_missing).collect();
        let Some(mut lookup) = (!missing.is_empty()).then(SocketLookup::open).transpose()? else {
            return Ok(());
        };
        for entry in missing {
            if is_connected(&mut lookup, &local_ends(&self.direction, entry))? {
                continue;
            }
            // Its connection may have ended since, seen, and another one begun.
            let Some(now) = self.table.find(entry)?.filter(|now| now.id == entry.id) else { continue };
            if now.tcp_state == Some(TcpState::Established) {
                self.table.delete(entry)?;
            } else if is_unfinished(&now) {
                self.table.change(&[now], Change::Resume { closing: true, seen_reply: false })?;
            }
        }
        Ok(())
    }

    fn make(&mut self, open: &[InetSocket]) -> std::io::Result<()> {
        let entries: Vec<NewEntry> = open.iter().filter_map(|socket| self.direction.entry(socket)).collect();
        let Outcome { done, expected, error } = self.table.create(&entries)?;
        self.made.done += done;
        self.made.expected += expected;
        self.made.error = self.made.error.take().or(error);
        Ok(())
    }
}

/// Whether an entry waits for a packet that ends its connection, and lets a SYN on the same ports pass along
/// until then.
const fn is_unfinished(entry: &Entry) -> bool {
    matches!(entry.tcp_state, Some(TcpState::Established | TcpState::FinWait | TcpState::CloseWait))
}

/// The local ends of a connection, with the remote end of each. The side that began is the source of the
/// original tuple, the other one of the reply, whatever is translated. What is forwarded has neither here.
fn local_ends(direction: &OriginalDirection, entry: &Entry) -> Vec<(SocketAddr, SocketAddr)> {
    both_ends(entry).into_iter().filter(|(local, _)| direction.is_local(*local)).collect()
}

fn both_ends(entry: &Entry) -> [(SocketAddr, SocketAddr); 2] {
    [entry.original, entry.reply].map(|Tuple { source, destination }| (source, destination))
}

/// Whether one of these sockets is open.
fn is_connected(lookup: &mut SocketLookup, ends: &[(SocketAddr, SocketAddr)]) -> std::io::Result<bool> {
    for (local, remote) in ends {
        if lookup.is_connected(*local, *remote)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn ends(socket: &InetSocket) -> (SocketAddr, SocketAddr) {
    (socket.local, socket.remote)
}

fn is_half_open(socket: &InetSocket) -> bool {
    State::HALF_OPEN.contains(&socket.state)
}

/// The sockets of these families in one of `states`.
fn sockets(families: &BTreeSet<Family>, states: &[State]) -> std::io::Result<Vec<InetSocket>> {
    let mut sockets = tcp_connections(states)?;
    sockets.retain(|socket| socket.families().iter().any(|family| families.contains(family)));
    Ok(sockets)
}
