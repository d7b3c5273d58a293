//! Deletes conntrack entries of connections that have ended, before a first capture.
//!
//! Connection tracking may have stopped when earlier rules went. Entries of that time do not change any more,
//! whatever happens to their connections, and a new connection on the same ports has none of its own. Once
//! rules track again, its packets would follow the old entry: to the proxy, or, with sequence numbers that do
//! not fit, as invalid ones.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;

use super::local_sockets::CONNECTION_STATES;
use super::original_direction::OriginalDirection;
use crate::kernel::conntrack::{Change, Conntrack, Entry, Filter, TcpState};
use crate::kernel::sock_diag::{SocketLookup, State, tcp_sockets};
use crate::model::{Family, Transport};

/// Deletes the entries of TCP connections that have ended, in these families. Returns how many.
pub(super) fn delete_entries(table: &mut Conntrack, families: &BTreeSet<Family>) -> io::Result<usize> {
    let direction = OriginalDirection::read()?;
    let mut unsure = Vec::new();
    let deleted = table.change_if(Filter::All, |entry| {
        if entry.transport != Transport::Tcp || !families.contains(&entry.family) {
            return None;
        }
        match progress(entry, &direction) {
            Progress::Ended => return Some(Change::Delete),
            Progress::Unsure => unsure.push(*entry),
            Progress::Open => {}
        }
        None
    })?;
    if unsure.is_empty() {
        return Ok(deleted);
    }
    // After the entries: a socket gets a packet after connection tracking has seen it.
    let sockets = Sockets::list()?;
    let mut lookup = SocketLookup::open()?;
    let mut ended = 0;
    for entry in unsure {
        if !sockets.agree_with(&entry, &direction, &mut lookup)? {
            ended += usize::from(table.delete(&entry)?);
        }
    }
    Ok(deleted + ended)
}

/// What an entry alone tells of its connection.
enum Progress {
    Open,
    Ended,
    /// The state of the connection depends on the sockets.
    Unsure,
}

/// A translated connection between other hosts is not ours to end.
fn progress(entry: &Entry, direction: &OriginalDirection) -> Progress {
    let is_translated = entry.status.is_translated();
    if is_translated && !is_redirected(entry, direction) {
        return Progress::Open;
    }
    match entry.tcp_state {
        Some(TcpState::TimeWait | TcpState::Close) => Progress::Ended,
        Some(TcpState::FinWait | TcpState::CloseWait | TcpState::LastAck) => Progress::Unsure,
        _ if is_translated => Progress::Unsure,
        _ => Progress::Open,
    }
}

/// Whether the connection was sent to another port or address of the pod.
fn is_redirected(entry: &Entry, direction: &OriginalDirection) -> bool {
    entry.status.destination_translated() && direction.is_local(entry.reply.source)
}

/// The connected sockets, by their ends.
struct Sockets(HashMap<(SocketAddr, SocketAddr), State>);

impl Sockets {
    fn list() -> io::Result<Self> {
        let states: Vec<State> =
            CONNECTION_STATES.into_iter().filter(|state| *state != State::TimeWait).collect();
        let sockets = tcp_sockets(&states)?;
        Ok(Self(sockets.iter().map(|socket| ((socket.local, socket.remote), socket.state)).collect()))
    }

    /// Whether the socket of an entry's connection is there: for one that was redirected that of its server,
    /// which has no other. Where the entry saw one side close, a socket that has not is that of a later
    /// connection.
    fn agree_with(
        &self,
        entry: &Entry,
        direction: &OriginalDirection,
        lookup: &mut SocketLookup,
    ) -> io::Result<bool> {
        let server = (entry.reply.source, entry.reply.destination);
        let client = (entry.original.source, entry.original.destination);
        let is_redirected = is_redirected(entry, direction);
        for ends in [Some(server), (!is_redirected).then_some(client)].into_iter().flatten() {
            match self.0.get(&ends) {
                Some(State::Established | State::SynSent | State::SynReceived | State::NewSynReceived)
                    if !is_redirected => {}
                Some(_) => return Ok(true),
                None if lookup.is_connected(ends.0, ends.1)? => return Ok(true),
                None => {}
            }
        }
        Ok(false)
    }
}
