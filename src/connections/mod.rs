//! TCP connections that are open while the rules change.
//!
//! The kernel applies the nat table to the first packet that connection tracking sees. For a connection that
//! is older than the first rule, that is a packet in the middle, and the connection would be captured and
//! reset. So a first capture exempts TCP until each open connection has a conntrack entry, and segments
//! within connections, and TCP from `--drop-invalid`, until each entry has the right direction. When the last
//! nat rule of a family is deleted, the kernel stops all translation: a chain that nothing refers to keeps it
//! active for the connections that need it.

pub mod conntrack;
mod delete_on_syn;
mod ended;
pub(crate) mod execute;
pub(crate) mod local_sockets;
pub(crate) mod new_entries;
mod new_queries;
mod original_direction;
pub mod transition;

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{
    Chain, CtState, Family, FamilyRules, Match, Matcher, PerFamily, Protocol, Rule, Statement, Syn, Table,
    TableRules, Target, Transport, Why,
};
use crate::ordered::Ordered as _;
use crate::parse::{Line, Observed};
use crate::text::count as counted;

/// The open connections that a run has to care for, per family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Families whose first capture meets TCP sockets, or was interrupted while it did.
    pub untracked: BTreeSet<Family>,
    /// Connections that live rules of ours have translated, in the families whose rules go.
    pub translated: PerFamily<Translated>,
    /// Families whose rules go, and in which a connection may begin before they are gone: capture ends first,
    /// and what is translated then is kept or counted. Where connections are kept, those that have some
    /// already need no second look.
    pub may_begin: BTreeSet<Family>,
    /// Sockets of the proxy and the application that use `::6`, where the address goes with the IPv6 rules.
    pub from_passthrough: usize,
    /// Connections whose replies are routed by a mark that the desired state does not have: in TPROXY mode
    /// the proxy's own to the application, under the client's address.
    pub marked: PerFamily<usize>,
    /// Connections between other hosts that live TPROXY rules hand to the proxy, and the desired ones do not.
    pub intercepted: PerFamily<usize>,
}

/// How many connections depend on the translation of destinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translated {
    /// So many.
    Count(usize),
    /// The kernel does not report it, or a clean-up counts them once none can begin any more.
    Unknown,
}

impl Translated {
    /// Whether there may be one.
    #[must_use]
    pub fn any(self) -> bool {
        self != Self::Count(0)
    }

    /// `1 proxied IPv4 connection`, `2 proxied IPv4 connections`.
    fn proxied(self, family: Family) -> String {
        match self {
            Self::Count(number) => counted(number, &format!("proxied {family} connection")),
            Self::Unknown => format!("an unknown number of proxied {family} connections"),
        }
    }

    /// The verb behind it.
    fn are(self) -> &'static str {
        are(if let Self::Count(number) = self { number } else { 0 })
    }
}

/// The treatment of open connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Open connections live on.
    Keep,
    /// Nothing of ours stays, so they are reset.
    Reset,
}

impl Connections {
    /// The connections that are cut off in any case.
    #[must_use]
    pub fn losing_marks(&self) -> Vec<String> {
        let marked = self.marked.iter().map(|(family, count)| {
            format!(
                "{} from the proxy to the app, with the client's address, {} reset: the TPROXY rules that route their \
                 replies are removed",
                counted(*count, &format!("{family} connection")),
                are(*count)
            )
        });
        let intercepted = self.intercepted.iter().map(|(family, count)| {
            format!(
                "{} through the pod {} reset: the TPROXY rules that hand packets to the proxy are removed",
                counted(*count, &format!("{family} connection")),
                are(*count)
            )
        });
        marked.chain(intercepted).collect()
    }

    /// The sockets that are cut off by this policy.
    #[must_use]
    pub fn losing_passthrough(&self, policy: Policy) -> Option<String> {
        (policy == Policy::Reset && self.from_passthrough > 0).then(|| {
            let sockets = counted(self.from_passthrough, "socket");
            format!(
                "{sockets} with the address ::6 {} cut off: the address is removed",
                are(self.from_passthrough)
            )
        })
    }

    /// The outcome for connections that need translation: before the run if `done` is false, else after it.
    #[must_use]
    pub fn outcome(&self, policy: Policy, done: bool) -> Vec<String> {
        self.outcomes(policy, done, |_| true)
    }

    /// The effect on open connections that need translation; empty if there are none.
    #[must_use]
    pub fn announcement(&self, policy: Policy) -> Vec<String> {
        self.outcomes(policy, false, Translated::any)
    }

    fn outcomes(&self, policy: Policy, done: bool, included: fn(Translated) -> bool) -> Vec<String> {
        let of = |(family, translated): (&Family, &Translated)| match (policy, translated) {
            (Policy::Keep, Translated::Count(0)) if self.may_begin.contains(family) => format!(
                "no proxied {family} connection is open: the chain {} is removed again at the end, unless one begins before \
                 the rules are gone",
                Chain::Established.name()
            ),
            (Policy::Keep, Translated::Count(0)) => format!("no proxied {family} connection is open"),
            (Policy::Reset, Translated::Count(0)) if done || !self.may_begin.contains(family) => {
                format!("no proxied {family} connection is open")
            }
            (Policy::Keep, translated) => format!(
                "{} {} open: until the last one ends, the chain {} stays in the table nat, and captures nothing; the next run \
                 after that removes it",
                translated.proxied(*family),
                translated.are(),
                Chain::Established.name()
            ),
            (Policy::Reset, translated) if done => {
                let (connections, are) = (translated.proxied(*family), translated.are());
                format!("{connections} {are} reset by the next packet")
            }
            (Policy::Reset, translated) if self.may_begin.contains(family) => format!(
                "clean-up resets {}, and those that begin before the rules are gone; --keep-connections leaves them open",
                translated.proxied(*family)
            ),
            (Policy::Reset, translated) => format!(
                "clean-up resets {}; --keep-connections leaves them open",
                translated.proxied(*family)
            ),
        };
        self.translated.iter().filter(|(_, translated)| included(**translated)).map(of).collect()
    }
}

const fn are(number: usize) -> &'static str {
    if number == 1 { "is" } else { "are" }
}

/// Whether rules of ours decide about new connections of a family: something jumps from a shared chain of
/// nat.
#[must_use]
pub fn captures(observed: &Observed) -> bool {
    let nat = observed.tables.get(&Table::Nat);
    nat.is_some_and(|nat| nat.hooks.values().flatten().any(|line| line.jump.is_some()))
}

/// TCP leaves the chain, and is not captured: neither segments within connections nor a SYN, which an entry
/// of the wrong direction would hand to the proxy with the client's address as the original destination.
const ALL_TCP: Protocol = Protocol::TCP;
/// Segments within TCP connections leave the chain; a SYN does not.
const SEGMENTS: Protocol =
    Protocol { transport: Transport::Tcp, source: None, destination: None, syn: Some(Match::Not(Syn)) };

fn exempt(protocol: Protocol) -> Statement {
    let matcher = Matcher { protocol: Some(protocol), ..Matcher::default() };
    Statement { matcher, target: Target::Return }
}

/// What TCP is exempt from while a first capture is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exemption {
    /// Nothing.
    #[default]
    None,
    /// Until the last change of entries. A connection whose entry is replaced has none for a moment: its
    /// segments are not captured. Where an entry was made in the wrong direction, the next SYN on its ports
    /// is invalid: `--drop-invalid` drops no TCP.
    Correction,
    /// All TCP: open connections have no entry yet.
    Capture,
}

impl Exemption {
    /// The reasons of the rules for it.
    pub const REASONS: [(Self, Why); 3] = [
        (Self::Correction, Why::InvalidDuringCapture),
        (Self::Correction, Why::SegmentDuringCapture),
        (Self::Capture, Why::OpenConnection),
    ];

    /// What is exempt from a rule with this target, and why.
    fn from(self, target: Target) -> Option<(Protocol, Why)> {
        match (target, self) {
            (Target::Redirect(_) | Target::Tproxy { .. }, Self::Capture) => {
                Some((ALL_TCP, Why::OpenConnection))
            }
            (Target::Redirect(_) | Target::Tproxy { .. }, Self::Correction) => {
                Some((SEGMENTS, Why::SegmentDuringCapture))
            }
            (Target::Drop, Self::Correction | Self::Capture) => Some((ALL_TCP, Why::InvalidDuringCapture)),
            (Target::Redirect(_) | Target::Tproxy { .. } | Target::Drop, Self::None)
            | (
                Target::Accept
                | Target::ConntrackZone(_)
                | Target::Jump(_)
                | Target::RestoreMark
                | Target::Return
                | Target::SaveMark
                | Target::SetMark(_),
                _,
            ) => None,
        }
    }

    /// The rules with the exemption first in each chain that captures or drops. Only chains of ours change,
    /// so that no foreign rule is ever skipped or mistaken for the exemption.
    #[must_use]
    pub fn form(self, rules: &FamilyRules) -> FamilyRules {
        let mut rules = rules.clone();
        for chain in rules.tables.values_mut().flat_map(|table| table.chains.values_mut()) {
            let first = chain.iter().find_map(|rule| self.from(rule.statement.target));
            if let Some((protocol, why)) = first {
                chain.insert(0, Rule { statement: exempt(protocol), only: None, why });
            }
        }
        rules
    }

    /// What an interrupted first capture has left.
    #[must_use]
    pub fn left(observed: &Observed) -> Self {
        let [all, segments] = [ALL_TCP, SEGMENTS].map(exempt);
        let of = |(chain, lines): (&Chain, &Vec<Line>)| {
            let has = |exempt| lines.iter().any(|line| line.statement.as_ref() == Some(exempt));
            match (has(&all), has(&segments)) {
                (true, _) if *chain != Chain::Drop => Self::Capture,
                (false, false) => Self::None,
                _ => Self::Correction,
            }
        };
        observed.tables.values().flat_map(|table| &table.chains).map(of).max().unwrap_or_default()
    }
}

/// The rules that keep the translation of a family active without any effect on packets: one rule that needs
/// connection tracking, in a chain that nothing refers to. The nat table keeps its hooks.
#[must_use]
pub fn keep_translation(family: Family) -> FamilyRules {
    let matcher = Matcher { ct_state: Some(CtState::RelatedOrEstablished), ..Matcher::default() };
    let statement = Statement { matcher, target: Target::Return };
    let rule = Rule { statement, only: None, why: Why::KeepsTranslation };
    let chains = BTreeMap::from([(Chain::Established, vec![rule])]);
    let nat = TableRules { chains, ..TableRules::default() };
    FamilyRules { family, tables: BTreeMap::from([(Table::Nat, nat)]) }
}

/// Whether the rule that keeps translation is live.
#[must_use]
pub fn keeps_translation(observed: &Observed) -> bool {
    observed.tables.get(&Table::Nat).is_some_and(|nat| nat.chains.contains_key(&Chain::Established))
}

/// Whether these rules are the rule that keeps translation and nothing else.
#[must_use]
pub fn only_keeps_translation(rules: &FamilyRules) -> bool {
    *rules == keep_translation(rules.family)
}

/// The ports that live rules of ours redirect to; none if only the rule that keeps translation is left.
#[must_use]
pub fn redirect_ports(observed: &Observed) -> BTreeSet<u16> {
    let nat = observed.tables.get(&Table::Nat);
    let lines = nat.into_iter().flat_map(|nat| nat.chains.values().flatten());
    ports_of(lines.filter_map(|line| line.statement.as_ref()))
}

/// The ports that desired rules redirect to.
#[must_use]
pub fn desired_ports<'a>(rules: impl IntoIterator<Item = &'a FamilyRules>) -> BTreeSet<u16> {
    let nat = rules.into_iter().filter_map(|rules| rules.tables.get(&Table::Nat));
    ports_of(nat.flat_map(TableRules::rules).map(|rule| &rule.statement))
}

fn ports_of<'a>(statements: impl Iterator<Item = &'a Statement>) -> BTreeSet<u16> {
    statements.filter_map(|statement| Some(statement.target.redirect()?.number())).into_set()
}

#[cfg(test)]
mod incomplete_lists;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_in_singular_and_plural() {
        let outcome = |number| {
            let translated = PerFamily::from([(Family::V4, number)]);
            Connections { translated, ..Connections::default() }.outcome(Policy::Reset, true).join("\n")
        };
        let rest = "reset by the next packet";
        assert_eq!(outcome(Translated::Count(1)), format!("1 proxied IPv4 connection is {rest}"));
        assert_eq!(outcome(Translated::Count(2)), format!("2 proxied IPv4 connections are {rest}"));
        let unknown = format!("an unknown number of proxied IPv4 connections are {rest}");
        assert_eq!(outcome(Translated::Unknown), unknown);
    }
}
