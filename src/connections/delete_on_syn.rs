//! Changes of conntrack entries that live connections depend on.
//!
//! An entry is not deleted while its connection may be alive. It gets a flag instead: once the connection has
//! ended, the next SYN on the same ports deletes the entry.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::original_direction::{OriginalDirection, may_be_reversed};
use crate::kernel::conntrack::{Change, Conntrack, Entry, Filter, NewEntry, TcpState, Tuple};
use crate::kernel::sock_diag::{State, tcp_connections, tcp_sockets};

/// How long a run waits for the reply to a SYN. A client sends a SYN again after 1 s, and that one finds the
/// flag.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two queries for the sockets.
const INTERVAL: Duration = Duration::from_millis(5);

/// What is left to do after a dump in which entries were changed.
#[derive(Debug)]
#[must_use]
pub(super) struct Unfinished {
    /// The number of changed entries.
    pub(super) changed: usize,
    closing: Vec<Entry>,
    unreplied: Vec<Entry>,
    reversed: Vec<Entry>,
}

/// Changes entries of both families and protocols, in one dump.
pub(super) fn change_all(
    table: &mut Conntrack,
    mut change: impl FnMut(&Entry) -> Option<Change>,
) -> io::Result<Unfinished> {
    let (mut closing, mut unreplied, mut reversed) = (Vec::new(), Vec::new(), Vec::new());
    let changed = table.change_if(Filter::All, |entry| {
        let change = change(entry);
        if change.is_some_and(|change| change != Change::Delete) {
            closing.extend(is_closing(entry).then_some(*entry));
            let begun = [TcpState::SynSent, TcpState::SynReceived];
            unreplied.extend(entry.tcp_state.is_some_and(|state| begun.contains(&state)).then_some(*entry));
            reversed.extend(may_be_reversed(entry).then_some(*entry));
        }
        change
    })?;
    Ok(Unfinished { changed, closing, unreplied, reversed })
}

impl Unfinished {
    /// Takes care of the entries for which the flag is not enough. This may wait for handshakes.
    pub(super) fn finish(self, table: &mut Conntrack) -> io::Result<()> {
        let Self { changed: _, mut closing, unreplied, reversed } = self;
        if !reversed.is_empty() || !unreplied.is_empty() {
            let direction = OriginalDirection::read()?;
            // A connection that began along one of these has cleared its flag.
            closing.extend(replace_unreplied(table, &direction, unreplied)?);
            closing.extend(direction.reverse(table, reversed)?);
        }
        flag_again(table, closing)
    }
}

/// The states in which the kernel lets a SYN pass along an entry without the flag.
const fn is_closing(entry: &Entry) -> bool {
    matches!(
        entry.tcp_state,
        Some(TcpState::FinWait | TcpState::CloseWait | TcpState::LastAck | TcpState::Close)
    )
}

/// A SYN that the kernel has let pass along a closing entry may be without its reply. With the reply, the
/// kernel takes the entry into use again and clears its flags, so the entry gets the flag once more then.
fn flag_again(table: &mut Conntrack, mut closing: Vec<Entry>) -> io::Result<()> {
    let deadline = Instant::now() + REPLY_TIMEOUT;
    let mut logged = false;
    while !closing.is_empty() {
        delete_reversed(table, &closing)?;
        let before = half_open();
        table.change(&closing, Change::DeleteOnSyn)?;
        let after = half_open();
        closing.retain(|entry| is_waiting(entry, &before) || is_waiting(entry, &after));
        // A SYN that was sent again has deleted the entry.
        let mut same = Vec::new();
        for entry in closing {
            let found = table.find(&entry)?;
            same.extend(found.is_some_and(|found| found.id == entry.id).then_some(entry));
        }
        closing = same;
        if closing.is_empty() || Instant::now() >= deadline {
            break;
        }
        if !logged {
            log::info!("waiting for {} TCP handshakes that began before the rules changed", closing.len());
            logged = true;
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// Connection tracking takes a SYN on the ports of an unreplied one for a retransmission, and does not look
/// it up in the rules again. If no socket of the pod waits for the reply, the attempt was given up: its entry
/// becomes TIME_WAIT, which the next SYN replaces and in which a late reply still passes. The same applies to
/// a client that never completed its handshake. If the reply arrived while connections were not tracked, the
/// entry is replaced by one of an established connection, because the packets of that would be invalid.
fn replace_unreplied(
    table: &mut Conntrack,
    direction: &OriginalDirection,
    mut unreplied: Vec<Entry>,
) -> io::Result<Vec<Entry>> {
    let half_open = half_open();
    let sockets = tcp_connections(&State::CONNECTED)?;
    let open: HashMap<Tuple, NewEntry> = sockets
        .iter()
        .filter_map(|socket| Some((direction.original(socket), direction.entry(socket)?)))
        .collect();
    unreplied.retain(|entry| {
        let Tuple { source, destination } = entry.original;
        let ends_here = direction.is_local(source) || direction.is_local(destination);
        ends_here && !is_waiting(entry, &half_open)
    });
    let mut half_open_entries = Vec::new();
    for entry in unreplied.extract_if(.., |entry| entry.tcp_state == Some(TcpState::SynReceived)) {
        // One that was completed since it was listed has another state.
        let is_same = |found: Entry| found.id == entry.id && found.tcp_state == entry.tcp_state;
        let is_given_up = !open.contains_key(&entry.original) && table.find(&entry)?.is_some_and(is_same);
        half_open_entries.extend(is_given_up.then_some(entry));
    }
    let connected = |entry: &Entry| open.get(&entry.original).filter(|_| !entry.status.is_translated());
    let (replied, given_up): (Vec<_>, Vec<_>) = unreplied
        .into_iter()
        .map(|entry| (entry, connected(&entry).copied()))
        .partition(|(_, new)| new.is_some());
    let made = direction.replace(table, &replied)?;
    let given_up: Vec<Entry> =
        given_up.into_iter().map(|(entry, _)| entry).chain(half_open_entries).collect();
    table.change(&given_up, Change::Resume { closing: true, seen_reply: false })?;
    Ok(made)
}

/// A SYN against the direction of a closed entry is invalid: `--drop-invalid` drops its reply until the
/// entry's timeout of 10 s. The entry of a connection that has ended is needed no more; the next SYN makes
/// another one.
fn delete_reversed(table: &mut Conntrack, closing: &[Entry]) -> io::Result<()> {
    let begun = ends_of(&[State::SynSent]);
    let in_the_way = |entry: &&Entry| {
        entry.tcp_state == Some(TcpState::Close)
            && begun.contains(&(entry.original.destination, entry.original.source))
    };
    for entry in closing.iter().filter(in_the_way) {
        table.delete(entry)?;
    }
    Ok(())
}

/// Local and remote ends of the sockets whose handshake is under way.
fn half_open() -> HashSet<(SocketAddr, SocketAddr)> {
    ends_of(&State::HALF_OPEN)
}

/// Local and remote ends of the sockets in one of `states`; none where the kernel does not list sockets.
fn ends_of(states: &[State]) -> HashSet<(SocketAddr, SocketAddr)> {
    match tcp_sockets(states) {
        Ok(sockets) => sockets.iter().map(|socket| (socket.local, socket.remote)).collect(),
        Err(error) => {
            log::debug!("the TCP sockets of this namespace cannot be listed: {error}");
            HashSet::new()
        }
    }
}

/// Whether a socket of the pod, at either end, waits for the end of a handshake over this entry.
fn is_waiting(entry: &Entry, half_open: &HashSet<(SocketAddr, SocketAddr)>) -> bool {
    let ends = [entry.original, entry.reply].map(|tuple| (tuple.source, tuple.destination));
    ends.iter().any(|ends| half_open.contains(ends))
}
