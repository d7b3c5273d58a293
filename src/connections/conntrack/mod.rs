//! Deletes conntrack entries that would keep a connection on its previous path after the rules have changed.
//!
//! Only the first packet of a connection meets the nat rules; all others follow its entry.

mod dns;
mod dns_decisions;
mod dns_flows;
mod dns_verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

pub use dns::native_flows;
pub use dns_flows::DnsFlows;
pub use dns_verdict::{DnsRules, Query};

use crate::model::{Family, FamilyRules, Mark, PerFamily, Variant};
use crate::parse::Observed;

/// Whether connections were tracked in the namespace before a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrackingState {
    /// No connection: nothing has to be deleted.
    None,
    /// Perhaps, but the table cannot be read.
    Unknown,
    /// Some.
    Some,
    /// Some, of which an interrupted run left these.
    Interrupted(StaleEntries),
}

/// A change of the connection tracking table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Leaves a note of what is going to be deleted, before the first commit of rules: a run that is killed
    /// in between leaves complete rules, from which the next run could not see that entries are stale.
    Note(StaleEntries),
    /// Deletes entries that the previous rules made, after the last commit of rules, and then the note. An
    /// entry of a query that the new rules treat as before stays: a pending response needs it.
    DeleteStale(StaleEntries, PerFamily<DnsRules>),
    /// Deletes the TCP entries of connections that have ended, before a first capture: connection tracking
    /// may have stopped with earlier rules, and a connection that began since on the same ports would follow
    /// the entry once it is tracked.
    DeleteEnded(BTreeSet<Family>),
    /// Clears this mark from TCP entries whose original source is not a local socket. Such an entry got the
    /// mark while two rule sets were live: every reply on it is routed back into the pod. The proxy's own
    /// connections keep it.
    ClearForeignMark(Family, Mark),
}

/// Entries that keep a connection on its old way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaleEntries {
    /// UDP entries with original destination port 53. A socket that keeps its source port follows its entry
    /// as long as its queries come faster than the entry's timeout (30 to 120 s).
    pub dns: PerFamily<DnsFlows>,
    /// TCP entries. For 10 s after the server's reset, before or after the change of rules, a SYN on the same
    /// ports would follow the entry instead of the rules. They are not deleted: live connections depend on
    /// them, and so does a SYN that is on its way along a closed one.
    pub tcp: BTreeSet<Family>,
}

impl StaleEntries {
    /// Whether no entry is stale.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.dns.is_empty() && self.tcp.is_empty()
    }

    fn merge(&mut self, other: &Self) {
        for (family, flows) in &other.dns {
            let known = self.dns.get(family).copied();
            self.dns.insert(*family, known.map_or(*flows, |known| known.or(*flows)));
        }
        self.tcp.extend(&other.tcp);
    }

    /// All of it in one number, as a note keeps it.
    #[must_use]
    pub fn to_bits(&self) -> u32 {
        let of = |family: &Family| {
            let flows = self.dns.get(family).map_or(0, |flows| flows.to_bits());
            flows | if self.tcp.contains(family) { 4 } else { 0 }
        };
        Family::ALL.iter().rev().fold(0, |bits, family| bits << 8 | of(family))
    }

    /// Reads a note. An empty one, from a kernel without marks, means all entries.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        let bits = if bits == 0 { u32::MAX } else { bits };
        let mut stale = Self::default();
        for (family, bits) in Family::ALL.into_iter().zip([bits, bits >> 8]) {
            stale.dns.extend(DnsFlows::from_bits(bits).map(|flows| (family, flows)));
            stale.tcp.extend((bits & 4 != 0).then_some(family));
        }
        stale
    }
}

/// The number of entries that a step has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// UDP entries that were deleted.
    pub deleted: usize,
    /// TCP entries whose flags or mark were changed.
    pub updated: usize,
}

impl StaleEntries {
    /// What happens to which entries, or, with their numbers, what has happened.
    #[must_use]
    pub fn describe(&self, changed: Option<Changed>) -> String {
        let Self { dns, tcp } = self;
        let dns: Vec<_> = dns.iter().map(|(family, flows)| format!("{family}, {flows}")).collect();
        let tcp: Vec<_> = tcp.iter().map(Family::to_string).collect();
        let udp = (!dns.is_empty()).then(|| {
            let entries = format!("conntrack entries of UDP to port 53 ({})", dns.join("; "));
            changed.map_or_else(
                || format!("delete {entries}"),
                |changed| format!("{} deleted: {entries}", changed.deleted),
            )
        });
        let tcp = (!tcp.is_empty()).then(|| {
            let entries = format!("conntrack entries of TCP ({})", tcp.join(", "));
            const WHEN: &str = "at the next SYN after the connection has ended";
            changed.map_or_else(
                || format!("replace {WHEN}: {entries}"),
                |changed| format!("{} to be replaced {WHEN}: {entries}", changed.updated),
            )
        });
        udp.into_iter().chain(tcp).collect::<Vec<_>>().join("; ")
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Note(stale) => write!(f, "list the conntrack entries to change: {}", stale.describe(None)),
            Self::DeleteStale(stale, _) => f.write_str(&stale.describe(None)),
            Self::DeleteEnded(families) => {
                let families: Vec<_> = families.iter().map(Family::to_string).collect();
                write!(
                    f,
                    "delete conntrack entries of TCP connections that have ended ({})",
                    families.join(", ")
                )
            }
            Self::ClearForeignMark(family, mark) => {
                write!(f, "clear mark {mark} of conntrack entries: {family} TCP that no local socket began")
            }
        }
    }
}

/// The live tables of a native backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Native {
    /// There are none.
    Absent,
    /// Istio's: which queries they captured is not known.
    Unread,
    /// Our tables, which are replaced or go: the families whose DNS flows go another way.
    Replaced(PerFamily<DnsFlows>),
}

/// The live state on which depends which entries are stale.
#[derive(Clone, Debug)]
pub struct ObservedState<'a> {
    /// The live rules of each variant and family that has chains of ours.
    pub rules: &'a BTreeMap<(Variant, Family), Observed>,
    /// Tables of a native backend.
    pub native: Native,
    /// Connections that are tracked.
    pub entries: &'a TrackingState,
}

/// Whether the zones of DNS are to be there before the redirection: where more queries are captured than
/// before, and the entries created in between can be deleted. Each of these queries gets its reply. With the
/// redirection first, a query is tracked in one zone and its reply in another one; without a deletion that is
/// the lesser evil.
#[must_use]
pub fn commit_raw_first(desired: &FamilyRules, live: &ObservedState<'_>) -> bool {
    matches!(live.entries, TrackingState::Some | TrackingState::Interrupted(_))
        && dns::changed_flows(desired, live) == Some(DnsFlows::Direct)
}

/// The rules that DNS queries meet from now on.
pub fn dns_rules<'a>(desired: impl IntoIterator<Item = &'a FamilyRules>) -> PerFamily<DnsRules> {
    desired.into_iter().map(|rules| (rules.family, DnsRules::of(rules))).collect()
}

/// The entries that become stale when rules change; `changed` are the families whose nat or mangle rules do.
pub fn plan<'a>(
    desired: impl IntoIterator<Item = &'a FamilyRules>,
    live: &ObservedState<'_>,
    changed: BTreeSet<Family>,
) -> StaleEntries {
    if *live.entries == TrackingState::None {
        return StaleEntries::default();
    }
    let flows = |rules: &FamilyRules| Some((rules.family, dns::changed_flows(rules, live)?));
    let mut stale = StaleEntries { dns: desired.into_iter().filter_map(flows).collect(), tcp: changed };
    if let TrackingState::Interrupted(left) = live.entries {
        stale.merge(left);
    }
    stale
}

#[cfg(test)]
mod tests;
