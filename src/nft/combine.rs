//! The rules of both families in one list, in which each family's rules keep their order.

use std::collections::{BTreeSet, HashMap};

use super::types::ChainName;
use crate::model::{
    Chain, Family, FamilyRules, Hook, HookRules, PerFamily, Rule, Statement, Table, TableRules,
};
use crate::ordered::Ordered as _;

/// A rule, and the only family it is for, if packets of the other one can come by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FamilyRule {
    pub(super) only: Option<Family>,
    pub(super) rule: Rule,
}

/// A table with the rules of both families.
pub(super) struct Combined {
    pub(super) table: Table,
    pub(super) chains: Vec<(ChainName, Vec<FamilyRule>)>,
}

pub(super) fn tables(rules: &PerFamily<FamilyRules>) -> Vec<Combined> {
    let none = TableRules::default();
    let of = |family: Family, table: Table| {
        rules.get(&family).and_then(|rules| rules.tables.get(&table)).unwrap_or(&none)
    };
    let combined = Table::ALL
        .into_iter()
        .map(|table| Combined { table, chains: chains(of(Family::V4, table), of(Family::V6, table)) });
    combined.filter(|combined| !combined.chains.is_empty()).collect()
}

fn chains(v4: &TableRules, v6: &TableRules) -> Vec<(ChainName, Vec<FamilyRule>)> {
    let hooks: BTreeSet<_> = v4.hooks.keys().chain(v6.hooks.keys()).copied().into_set();
    // A base chain keeps the kernel's translation up, as the tables of iptables do: it is what the rule there
    // is for.
    let keeps = [v4, v6].iter().any(|table| table.chains.contains_key(&Chain::Established));
    let hooks: BTreeSet<_> = hooks.into_iter().chain(keeps.then_some(Hook::Output)).into_set();
    let own: BTreeSet<_> = v4.chains.keys().chain(v6.chains.keys()).copied().into_set();
    let hooks = hooks.into_iter().map(|hook| {
        let (in_v4, in_v6) = (v4.hooks.get(&hook), v6.hooks.get(&hook));
        let [v4, v6] =
            [in_v4, in_v6].map(|rules| rules.into_iter().flat_map(HookRules::iter).collect::<Vec<_>>());
        (ChainName::Hook(hook), merge(&v4, &v6, [true, true]))
    });
    let own = own.into_iter().map(|chain| {
        let (in_v4, in_v6) = (v4.chains.get(&chain), v6.chains.get(&chain));
        let [v4, v6] = [in_v4, in_v6].map(|rules| rules.into_iter().flatten().collect::<Vec<_>>());
        (ChainName::Own(chain), merge(&v4, &v6, [in_v4.is_some(), in_v6.is_some()]))
    });
    hooks.chain(own).collect()
}

/// Merges two lists. A rule that both have at about the same place is taken once. `reached`: whether packets
/// of IPv4 and of IPv6 can get to the chain.
fn merge(v4: &[&Rule], v6: &[&Rule], reached: [bool; 2]) -> Vec<FamilyRule> {
    let (mut v4, mut v6) = (Side::of(v4), Side::of(v6));
    let [by_v4, by_v6] = reached;
    let guarded = |rule: &Rule, only: Option<Family>| {
        let other_comes_by = match only {
            None => false,
            Some(Family::V4) => by_v6,
            Some(Family::V6) => by_v4,
        };
        FamilyRule { only: only.filter(|_| other_comes_by), rule: rule.clone() }
    };
    let mut merged = Vec::new();
    loop {
        let (a, b) = (v4.rules.first().copied(), v6.rules.first().copied());
        let (rule, only) = match (a, b) {
            (None, None) => return merged,
            (Some(a), Some(b)) if a.statement == b.statement && a.why == b.why => (a, None),
            // The other family has this rule further on: its own ones come first.
            (Some(a), Some(b)) if v6.holds(a) && !v4.holds(b) => (b, Some(Family::V6)),
            (Some(a), _) => (a, Some(Family::V4)),
            (None, Some(b)) => (b, Some(Family::V6)),
        };
        merged.push(guarded(rule, only));
        if only != Some(Family::V6) {
            v4.advance();
        }
        if only != Some(Family::V4) {
            v6.advance();
        }
    }
}

/// The rules of one family that are still to come.
struct Side<'a> {
    rules: &'a [&'a Rule],
    /// How often each statement comes that the other family may have too; counted when it first matters.
    counts: Option<HashMap<&'a Statement, usize>>,
}

impl<'a> Side<'a> {
    const fn of(rules: &'a [&'a Rule]) -> Self {
        Self { rules, counts: None }
    }

    /// Whether there is a rule that does the same as this one of the other family.
    fn holds(&mut self, rule: &Rule) -> bool {
        if names_address(&rule.statement) {
            return false;
        }
        let counts = self.counts.get_or_insert_with(|| {
            let mut counts = HashMap::new();
            let statements = self.rules.iter().map(|rule| &rule.statement);
            for statement in statements.filter(|statement| !names_address(statement)) {
                *counts.entry(statement).or_insert(0) += 1;
            }
            counts
        });
        counts.get(&rule.statement).is_some_and(|count| *count > 0)
    }

    fn advance(&mut self) {
        let Some((first, rest)) = self.rules.split_first() else { return };
        self.rules = rest;
        if let Some(count) = self.counts.as_mut().and_then(|counts| counts.get_mut(&first.statement)) {
            *count -= 1;
        }
    }
}

/// Whether a rule is for an address, which one family has only.
const fn names_address(statement: &Statement) -> bool {
    statement.matcher.source.is_some() || statement.matcher.destination.is_some()
}
