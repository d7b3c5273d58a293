//! Carries out the steps of [`crate::conntrack`]. The rules are in place already, so a failure is a warning.

use std::cell::Cell;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;

use super::delete_on_syn;
use crate::conntrack::{Changed, DnsFlows, StaleEntries, Step, TrackingState};
use crate::kernel::conntrack::{self, Change, Conntrack, ConntrackError, Entry, Filter, Zone};
use crate::kernel::sock_diag::{self, State};
use crate::model::{APP_TO_PROXY_ZONE, Chain, DNS_PORT, Family, FamilyRules, Mark, Transport};
use crate::plan::DesiredState;

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

/// Whether connections are tracked in the namespace, in which rules of ours are or are not, before anything is changed.
pub(super) fn entries(rules_of_ours: bool) -> TrackingState {
    match conntrack::count_in_proc() {
        Some(0) if !rules_of_ours => TrackingState::None,
        // There may be some soon. A request could load a module.
        Some(0) => TrackingState::Unknown,
        Some(_) | None => read_note(),
    }
}

fn read_note() -> TrackingState {
    match Conntrack::open().and_then(|mut table| Ok(table.note()?)) {
        Ok(None) => TrackingState::Some,
        Ok(Some(bits)) => TrackingState::Interrupted(StaleEntries::from_bits(bits)),
        Err(error) => {
            log::debug!("{error}");
            TrackingState::Unknown
        }
    }
}

/// The same, where DNS is captured for the first time in a pod whose programs run already: their queries are tracked from the
/// first commit on, and captured from a later one.
pub(super) fn entries_during_capture(
    desired: &DesiredState,
    before: &TrackingState,
) -> Option<TrackingState> {
    let captures_dns =
        |rules: &FamilyRules| rules.tables.values().any(|table| table.chains.contains_key(&Chain::OutputDns));
    let first = *before == TrackingState::None && desired.rules.values().any(captures_dns);
    // Who reads no list of sockets gets the safe answer.
    (first && sock_diag::is_udp_in_use().unwrap_or(true)).then(read_note)
}

/// The connection tracking table, opened by the first step that needs it.
#[derive(Debug, Default)]
pub(super) struct Table {
    open: Option<Conntrack>,
    /// Nothing more is tried, and no second warning is logged.
    failed: bool,
}

impl Table {
    /// Carries out one step.
    pub(super) fn execute(&mut self, step: &Step) {
        // An empty table needs no request, which could load a module.
        if self.failed || conntrack::count_in_proc() == Some(0) {
            return;
        }
        match (self.try_execute(step), step) {
            (Ok(changed), Step::DeleteStale(stale)) => log::info!("{}", stale.describe(Some(changed))),
            (Ok(Changed { deleted: _, updated }), Step::ClearForeignMark(..)) => {
                log::info!("{step}: {updated}");
            }
            (Ok(_), Step::Note(_)) => {}
            // What the note is for meets the same error, and logs it.
            (Err(error), Step::Note(_)) => log::debug!("{step}: {error}"),
            (Err(error), Step::DeleteStale(_) | Step::ClearForeignMark(..)) => {
                self.failed = true;
                log::warn!("{step}: {error}; {}", consequence(step));
            }
        }
    }

    /// How many entries were changed.
    fn try_execute(&mut self, step: &Step) -> Result<Changed, ConntrackError> {
        let table = match &mut self.open {
            Some(table) => table,
            closed => closed.insert(Conntrack::open()?),
        };
        let updated = |updated| Changed { deleted: 0, updated };
        let changed = match step {
            Step::Note(stale) => table.leave_note(stale.to_bits()).map(|()| Changed::default()),
            Step::DeleteStale(stale) => delete_stale(table, stale),
            Step::ClearForeignMark(family, mark) => clear_foreign_mark(table, *family, *mark).map(updated),
        };
        Ok(changed?)
    }
}

/// The consequence of a failed step, for the log.
const fn consequence(step: &Step) -> &'static str {
    match step {
        Step::Note(_) | Step::DeleteStale(_) => {
            "until they end by themselves, a socket that sends DNS queries from one port without a pause of 2 minutes \
             keeps its previous way, and a port keeps it for 10 seconds after the server reset its connection"
        }
        Step::ClearForeignMark(..) => {
            "inbound connections that an interrupted backend change stalled remain stalled until they are closed"
        }
    }
}

/// The kernel's answer has the number of both kinds together.
fn delete_stale(table: &mut Conntrack, stale: &StaleEntries) -> io::Result<Changed> {
    let deleted = Cell::new(0);
    let all = delete_on_syn::change_all(table, |entry| {
        let change = change(stale, entry);
        deleted.update(|count| count + usize::from(change == Some(Change::Delete)));
        change
    })?;
    table.remove_note()?;
    // An entry that had ended by itself is in the first number only.
    let deleted = deleted.get().min(all);
    Ok(Changed { deleted, updated: all - deleted })
}

fn change(StaleEntries { dns, tcp }: &StaleEntries, entry: &Entry) -> Option<Change> {
    match entry.transport {
        Transport::Tcp => tcp.contains(&entry.family).then_some(Change::DeleteOnSyn),
        Transport::Udp => {
            let stale = entry.original.destination.port() == DNS_PORT.number()
                && dns.get(&entry.family).is_some_and(|flows| is_stale_dns(*flows, entry));
            stale.then_some(Change::Delete)
        }
    }
}

fn is_stale_dns(flows: DnsFlows, entry: &Entry) -> bool {
    let captured = entry.status.destination_translated();
    let zone = match entry.zone {
        Zone::Both(APP_TO_PROXY_ZONE) => true,
        // A captured flow without zones. A direct one here is of no use to any captured query, which has its zone, and
        // may be waiting for an answer that a firewall lets in for its sake.
        Zone::Both(0) => captured,
        Zone::Both(_) | Zone::Original(_) | Zone::Reply(_) => false,
    };
    zone && flows.contains(captured)
}

/// The entries are listed before the sockets: a connection of the proxy that begins meanwhile is not among them.
fn clear_foreign_mark(table: &mut Conntrack, family: Family, mark: Mark) -> io::Result<usize> {
    let filter = Filter { family, transport: Transport::Tcp, destination_port: None };
    let mut marked: Vec<Entry> = table.dump(&filter)?;
    marked.retain(|entry| entry.mark == mark.0);
    if marked.is_empty() {
        return Ok(0);
    }
    let local: HashSet<SocketAddr> =
        sock_diag::tcp_sockets(&CONNECTION_STATES)?.into_iter().map(|socket| socket.local).collect();
    let mut cleared = 0;
    for entry in marked.iter().filter(|entry| !local.contains(&entry.original.source)) {
        cleared += usize::from(table.set_mark(entry, 0)?);
    }
    Ok(cleared)
}
