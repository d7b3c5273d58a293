//! The order of chains with one priority at a hook: the kernel takes the one that was created last first, and
//! does not list when that was.

use super::super::entry::Entry;
use super::super::rules::BaseChain;
use super::branches::outcome;
use super::{Match, Sent, Step, Walk};
use crate::model::{NAT_PRIORITY, Table};
use crate::ordered::Ordered as _;

/// In which order a walk takes chains with one priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::explain) enum Order {
    /// Chains of other programs before ours.
    ForeignFirst,
    /// Chains of other programs behind ours.
    ForeignLast,
    /// Foreign rules have no effect.
    OnlyOurs,
    /// Rules of ours have no effect.
    OnlyForeign,
    /// As [`Self::ForeignFirst`], where no foreign rule changes a mark but the chosen one, and packets are
    /// routed as the options have it.
    OneMark,
    /// As [`Self::OneMark`], with chains of other programs behind ours.
    OneMarkLast,
}

impl Order {
    /// Whether foreign rules are tried one by one for the mark that they set.
    pub(super) const fn is_of_one_mark(self) -> bool {
        matches!(self, Self::OneMark | Self::OneMarkLast)
    }

    /// The chains in this order; `all` are in that of their priorities.
    pub(super) fn of(self, all: &[BaseChain]) -> Vec<&BaseChain> {
        match self {
            Self::ForeignLast | Self::OneMarkLast => all.iter().rev().into_sorted_by_key(|base| base.place()),
            Self::ForeignFirst | Self::OnlyOurs | Self::OnlyForeign | Self::OneMark => all.iter().collect(),
        }
    }

    /// Whether a rule has no effect, or none but to lead to a chain of ours.
    pub(super) fn skips(self, rule: &Entry) -> bool {
        match self {
            Self::OnlyOurs => rule.is_foreign(),
            Self::OnlyForeign => !rule.is_foreign(),
            Self::ForeignFirst | Self::ForeignLast => false,
            Self::OneMark | Self::OneMarkLast => rule.is_leftover || rule.changes_mark(),
        }
    }

    /// Whether a chain that does not translate is met behind the table with the priority `last`, and before
    /// that with `next`.
    pub(super) fn is_between(self, priority: i32, last: i32, next: i32) -> bool {
        match self {
            Self::ForeignLast | Self::OneMarkLast => {
                (last..next).contains(&priority) && (last < NAT_PRIORITY || priority == NAT_PRIORITY)
            }
            Self::ForeignFirst | Self::OnlyOurs | Self::OnlyForeign | Self::OneMark => {
                last < priority && priority <= next && last < NAT_PRIORITY
            }
        }
    }
}

impl<'a> Sent<'a, '_> {
    /// Names the chains with one priority whose order decides.
    pub(super) fn try_other_order(self, first: &mut Walk<'a>) {
        let equal = self.with_one_priority();
        if equal.is_empty() {
            return;
        }
        let other = self.walk_by(&[], Order::ForeignLast);
        let reads_connmark = self.rules.reads_connmark();
        if outcome(&other, reads_connmark) == outcome(first, reads_connmark) {
            return;
        }
        let is_met = |step: &&Step<'_>| {
            step.matches == Match::Matches
                && equal
                    .iter()
                    .any(|base| (base.stage.chain(), base.table.as_str()) == (step.hook, step.table))
        };
        let met = first.steps.iter().chain(&other.steps).filter(is_met);
        let names = met.map(|step| step.words()).into_set();
        let names: Vec<String> = names.into_iter().collect();
        first.order = Some(format!(
            "the order of chains with the same priority decides (the one created last is first): {}",
            names.join("; ")
        ));
    }

    /// The foreign chains beside another one with their priority. Those of nat are compared where they are
    /// met.
    fn with_one_priority(self) -> Vec<&'a BaseChain> {
        let rules = self.rules;
        let has_rules = |base: &BaseChain| {
            let table = Table::ALL.into_iter().find(|table| table.priority() == base.priority);
            let chains = table.and_then(|table| rules.tables.get(&table));
            let ours = chains.zip(base.stage.hook()).and_then(|(chains, hook)| chains.hooks.get(&hook));
            ours.is_some_and(|ours| !ours.is_empty())
        };
        let is_equal = |list: &[BaseChain], base: &BaseChain| {
            list.iter().filter(|other| (other.stage, other.place()) == (base.stage, base.place())).count() > 1
        };
        let before = rules.before.iter().filter(|base| !base.is_nat);
        let before = before.filter(|base| has_rules(base) || is_equal(&rules.before, base));
        before.chain(rules.later.iter().filter(|base| is_equal(&rules.later, base))).collect()
    }
}
