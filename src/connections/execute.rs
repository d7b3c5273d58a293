//! Executes the steps of [`super::conntrack`]. The rules are already in place, so a failure is only a
//! warning.

use std::collections::BTreeSet;
use std::io;
use std::thread;
use std::time::Duration;

use super::local_sockets::LocalSockets;
use super::local_sockets::local_addresses;
use super::new_queries::NewQueries;
use super::{delete_on_syn, ended};
use crate::connections::conntrack::{Changed, DnsFlows, StaleEntries, Step, TrackingState};
use crate::kernel::conntrack::{self, Change, Conntrack, ConntrackError, Entry, Filter, Tuple, Zone};
use crate::kernel::sock_diag;
use crate::model::{
    APP_TO_PROXY_ZONE, Chain, DNS_CAPTURE_PORT, DNS_PORT, Family, FamilyRules, Mark, PROXY_TO_SERVER_ZONE,
    PerFamily, Transport,
};
use crate::ordered::Ordered as _;

/// Timeout of a reply through the hooks of the kernel.
const UNDER_WAY: Duration = Duration::from_millis(20);

/// Whether connections are tracked in the namespace, in which rules of ours are or are not, before anything
/// is changed.
pub(crate) fn entries(rules_of_ours: bool) -> TrackingState {
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

/// Whether connections are tracked, where DNS is captured for the first time in a pod whose programs run
/// already: their queries are tracked from the first commit on, and captured from a later one.
pub(crate) fn entries_during_capture(
    desired: &PerFamily<FamilyRules>,
    before: &TrackingState,
) -> Option<TrackingState> {
    let captures_dns =
        |rules: &FamilyRules| rules.tables.values().any(|table| table.chains.contains_key(&Chain::OutputDns));
    let first = *before == TrackingState::None && desired.values().any(captures_dns);
    // Without a list of sockets, the safe choice.
    (first && sock_diag::is_udp_in_use().unwrap_or(true)).then(read_note)
}

/// The connection tracking table, opened by the first step that needs it.
#[derive(Debug, Default)]
pub(crate) struct Table {
    open: Option<Conntrack>,
    /// Nothing more is tried, and no second warning is logged.
    failed: bool,
}

impl Table {
    /// Carries out steps that follow each other: those that change entries share one dump.
    pub(crate) fn execute(&mut self, steps: &[&Step]) {
        // An empty table needs no request, which could load a module.
        if steps.is_empty() || self.failed || conntrack::count_in_proc() == Some(0) {
            return;
        }
        let (preparing, changes): (Vec<&Step>, Vec<&Step>) =
            steps.iter().copied().partition(|step| matches!(step, Step::Note(_) | Step::DeleteEnded(_)));
        for step in preparing {
            if let Err(error) = self.prepare(step) {
                // What a note is for meets the same error, and logs it.
                let is_note = matches!(step, Step::Note(_));
                let level = if is_note { log::Level::Debug } else { log::Level::Warn };
                log::log!(level, "{step}: {error}; {}", consequence(step));
            }
        }
        match self.change(&changes) {
            Ok(lines) => lines.iter().for_each(|line| log::info!("{line}")),
            Err(error) => {
                self.failed = true;
                let names: Vec<_> = changes.iter().map(ToString::to_string).collect();
                let consequences: BTreeSet<&str> = changes.iter().map(|step| consequence(step)).into_set();
                let consequences: Vec<_> = consequences.into_iter().collect();
                log::warn!("{}: {error}; {}", names.join("; "), consequences.join("; "));
            }
        }
    }

    fn open(&mut self) -> Result<&mut Conntrack, ConntrackError> {
        Ok(match &mut self.open {
            Some(table) => table,
            closed => closed.insert(Conntrack::open()?),
        })
    }

    /// Carries out a step that belongs before the first commit of rules.
    fn prepare(&mut self, step: &Step) -> Result<(), ConntrackError> {
        match step {
            Step::Note(stale) => self.open()?.leave_note(stale.to_bits())?,
            Step::DeleteEnded(families) => {
                let deleted = ended::delete_entries(self.open()?, families)?;
                log::debug!("{step}: {deleted}");
            }
            Step::DeleteStale(..) | Step::ClearForeignMark(..) => {}
        }
        Ok(())
    }

    /// Returns the outcome of each step.
    fn change(&mut self, steps: &[&Step]) -> Result<Vec<String>, ConntrackError> {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        let table = self.open()?;
        let marks: Vec<(Family, Mark)> = steps
            .iter()
            .filter_map(|step| match step {
                Step::ClearForeignMark(family, mark) => Some((*family, *mark)),
                Step::Note(_) | Step::DeleteStale(..) | Step::DeleteEnded(_) => None,
            })
            .collect();
        let stale = steps.iter().find_map(|step| match step {
            Step::DeleteStale(stale, dns) => Some((stale, dns)),
            Step::Note(_) | Step::ClearForeignMark(..) | Step::DeleteEnded(_) => None,
        });
        let cleared = |cleared: Vec<usize>| {
            let steps = marks.iter().map(|(family, mark)| Step::ClearForeignMark(*family, *mark));
            steps.zip(cleared).map(|(step, count)| format!("{step}: {count}")).collect::<Vec<_>>()
        };
        let Some((stale, rules)) = stale else {
            let mut marked = Vec::new();
            for mark in marks.iter().map(|(_, mark)| mark.0).into_set() {
                marked.extend(table.dump(Filter::MarkedTcp(mark))?);
            }
            return Ok(cleared(clear_foreign_marks(table, &marks, &marked)?));
        };
        let (mut marked, mut deleted, mut foreign) = (Vec::new(), 0, Vec::new());
        let mut queries = NewQueries::new(rules);
        let unfinished = delete_on_syn::change_all(table, |entry| {
            marked.extend(marks.contains(&(entry.family, Mark(entry.mark))).then_some(*entry));
            let change = change(stale, entry)
                .filter(|change| *change != Change::Delete || !queries.follow_the_path_of(entry));
            if change == Some(Change::Delete) && has_replies_in_its_zone(entry) {
                foreign.push(*entry);
                return None;
            }
            deleted += usize::from(change == Some(Change::Delete));
            change
        })?;
        if !foreign.is_empty() {
            let local = local_addresses().unwrap_or_default();
            foreign.retain(|entry| local.contains(&entry.original.source.ip()));
        }
        // All of them may be of forwarded queries.
        if !foreign.is_empty() {
            table.delete_keeping_replies(&foreign)?;
            thread::sleep(UNDER_WAY);
            table.delete_against(&foreign)?;
        }
        let mut lines = cleared(clear_foreign_marks(table, &marks, &marked)?);
        let all = unfinished.changed;
        unfinished.finish(table)?;
        table.remove_note()?;
        // An entry that had ended by itself is in the first number only.
        let deleted = deleted.min(all);
        let updated = all - deleted;
        lines.push(stale.describe(Some(Changed { deleted: deleted + foreign.len(), updated })));
        Ok(lines)
    }
}

/// The consequence of a failed step, for the log.
const fn consequence(step: &Step) -> &'static str {
    match step {
        Step::Note(_) | Step::DeleteStale(..) => {
            "until they end by themselves, a socket that sends DNS queries from one port without a pause of 2 minutes \
             keeps its previous path, and a port keeps it for 10 seconds after the server has reset its connection"
        }
        Step::DeleteEnded(_) => {
            "an open connection that uses the ports of an earlier captured one may be reset"
        }
        Step::ClearForeignMark(..) => {
            "inbound connections that an interrupted backend change stalled remain stalled until they are closed"
        }
    }
}

fn change(StaleEntries { dns, tcp }: &StaleEntries, entry: &Entry) -> Option<Change> {
    match entry.transport {
        Transport::Tcp => tcp.contains(&entry.family).then_some(Change::DeleteOnSyn),
        Transport::Udp => {
            dns.get(&entry.family).filter(|flows| is_stale_dns(**flows, entry)).map(|_| Change::Delete)
        }
    }
}

/// Whether an entry of a query has to go, in whatever zone rules before ours have put it.
fn is_stale_dns(flows: DnsFlows, entry: &Entry) -> bool {
    let Tuple { source, destination } = entry.original;
    // What an earlier run has left for replies.
    if source.port() == DNS_PORT.number() && entry.reply.destination.port() == 0 {
        return flows.contains(true);
    }
    let is_translated = entry.status.destination_translated();
    let is_stale = if is_translated {
        entry.reply.source.port() == DNS_CAPTURE_PORT.number()
    } else {
        // Without a zone, or in that of the proxy's queries, it is of no use to any captured query, and may
        // be waiting for an reply that a firewall lets in for its sake.
        !matches!(entry.zone, Zone::Both(0 | PROXY_TO_SERVER_ZONE))
    };
    destination.port() == DNS_PORT.number() && is_stale && flows.contains(is_translated)
}

/// Whether the replies to queries that are not captured are tracked in the same zone: not where it is ours.
fn has_replies_in_its_zone(entry: &Entry) -> bool {
    entry.zone != Zone::Both(APP_TO_PROXY_ZONE)
        && entry.original.destination.port() == DNS_PORT.number()
        && !entry.status.destination_translated()
}

/// Clears each mark of its family from the listed entries, except those of the proxy's own connections.
/// Returns how many had each.
fn clear_foreign_marks(
    table: &mut Conntrack,
    marks: &[(Family, Mark)],
    listed: &[Entry],
) -> io::Result<Vec<usize>> {
    let mut cleared = vec![0; marks.len()];
    let of = |entry: &Entry| marks.iter().position(|mark| *mark == (entry.family, Mark(entry.mark)));
    let marked: Vec<(usize, &Entry)> = listed
        .iter()
        .filter(|entry| entry.transport == Transport::Tcp)
        .filter_map(|entry| Some((of(entry)?, entry)))
        .collect();
    if marked.is_empty() {
        return Ok(cleared);
    }
    let mut sockets = LocalSockets::list()?;
    for (mark, entry) in marked {
        if sockets.began(entry)? {
            continue;
        }
        let is_cleared = table.set_mark(entry, 0)?;
        if let Some(count) = cleared.get_mut(mark) {
            *count += usize::from(is_cleared);
        }
    }
    Ok(cleared)
}
