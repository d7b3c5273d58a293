//! Tables of native nftables as the packets of one family meet them, in the words of iptables: one line for
//! each element of a set that a rule looks up.

use std::collections::{BTreeMap, BTreeSet};

use nfnetlink::nftables::{
    Chain as NftChain, Expression, Hook as NftHook, Rule, Set, Table as NftTable, Verdict,
};

use super::expressions::{RuleContext, foreign_rules};
use super::native_rule::rules_of;
use super::words::chain_name;
use crate::live_rules::{Field, LiveRule, NftPlace};
use crate::model::{Chain, Family, Hook, Match, Owner, Statement, Table, Why};
use crate::nft::NativeTable;
use crate::ordered::Ordered as _;

/// A rule of a native table, or the part of it that is for one element of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeLine {
    /// The tests and the effect of the rule.
    pub live: LiveRule,
    /// Why it exists, by its comment; `None` if another program wrote it.
    pub why: Option<Why>,
    /// The number of the rule in its chain.
    pub rule: usize,
}

/// The rules of one table for packets of one family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NativeRules {
    /// The rules of the base chains.
    pub hooks: BTreeMap<Hook, Vec<NativeLine>>,
    /// The rules of the other chains, by their names in iptables.
    pub chains: BTreeMap<String, Vec<NativeLine>>,
    /// The hooks with the policy drop.
    pub drops: BTreeSet<Hook>,
}

/// Behind the name of a chain with rules that follow a negated owner.
const REST: &str = "_REST";

/// The name of the chain that a chain goes on with, or its own name.
#[must_use]
pub fn first_part(name: &str) -> &str {
    name.split_once(REST).map_or(name, |(name, _)| name)
}

/// The owner whose packets leave before a rule for all others.
#[must_use]
pub fn leaving_owner(rule: &LiveRule) -> Option<Owner> {
    let (chain, true) = rule.chain()? else { return None };
    let tests = rule.tests();
    let mut owners = tests.iter().filter(|test| matches!(test.field, Field::Uid | Field::Gid));
    let (Some(test), None) = (owners.next(), owners.next()) else { return None };
    let [(id, last)] = test.values.as_slice() else { return None };
    let is_one = id == last && !test.is_negated && chain.contains(REST);
    let id = u32::try_from(*id).ok().filter(|_| is_one)?;
    Some(if test.field == Field::Uid { Owner::Uid(id) } else { Owner::Gid(id) })
}

impl NativeRules {
    /// What the model has terms for of the rules of a shared chain, in order.
    #[must_use]
    pub fn of_hook(&self, hook: Hook) -> Vec<Option<Statement>> {
        self.statements(self.hooks.get(&hook), hook.name())
    }

    /// What the model has terms for of the rules of a chain of ours, in order.
    #[must_use]
    pub fn of_chain(&self, chain: Chain) -> Vec<Option<Statement>> {
        self.statements(self.chains.get(chain.name()), chain.name())
    }

    fn statements(&self, first: Option<&Vec<NativeLine>>, name: &str) -> Vec<Option<Statement>> {
        let is_rest = |(found, _): &(&String, _)| *found != name && first_part(found) == name;
        // One with a higher number goes on where the one before it ends.
        let rest = self.chains.iter().filter(is_rest).into_sorted_by_key(|(name, _)| (name.len(), *name));
        let rest = rest.into_iter().map(|(_, lines)| lines);
        let (mut found, mut leaving) = (Vec::new(), Vec::new());
        for NativeLine { live, .. } in first.into_iter().chain(rest).flatten() {
            if let Some(owner) = leaving_owner(live) {
                leaving.push(Match::Not(owner));
            } else if !matches!(live.chain(), Some((_, true))) {
                let mut statement = live.statement().cloned();
                let owners = std::mem::take(&mut leaving);
                statement
                    .iter_mut()
                    .for_each(|statement| statement.matcher.owners.extend(owners.iter().copied()));
                found.push(statement);
            }
        }
        found
    }
}

/// The rules of these tables, without tables in which packets of the family meet none.
#[must_use]
pub fn native<'a>(
    tables: &(impl Iterator<Item = &'a NftTable> + Clone),
    family: Family,
) -> BTreeMap<Table, NativeRules> {
    let of = |table: Table| {
        let mut rules = chains_of(tables.clone().find(|live| table_of(live) == Some(table))?, family);
        let is_met = !rules.drops.is_empty() || rules.hooks.values().any(|rules| !rules.is_empty());
        if !is_met {
            // The chain that keeps translation does so without a packet.
            rules.chains.retain(|name, _| name == Chain::Established.name());
        }
        (is_met || !rules.chains.is_empty()).then_some((table, rules))
    };
    Table::ALL.into_iter().filter_map(of).into_map()
}

/// The counterpart of a native table in iptables.
pub(super) fn table_of(live: &NftTable) -> Option<Table> {
    let name = |table| NativeTable { table, sets: Vec::new(), chains: Vec::new() }.name();
    Table::ALL.into_iter().find(|table| name(*table) == live.name.name)
}

fn chains_of(table: &NftTable, family: Family) -> NativeRules {
    let mut rules = NativeRules::default();
    for chain in &table.chains {
        let lines = chain.rules.iter().enumerate().flat_map(|(number, rule)| {
            let lines = lines_of(family, rule, number, &table.sets).into_iter();
            let place = NftPlace::of((table, chain), rule);
            lines.map(move |line| NativeLine { live: line.live.at(place.clone()), ..line })
        });
        match hook_of(chain) {
            Some(hook) => {
                rules.hooks.entry(hook).or_default().extend(lines);
                rules
                    .drops
                    .extend(chain.base.as_ref().filter(|base| base.policy == Verdict::Drop).map(|_| hook));
            }
            None => drop(rules.chains.insert(chain_name(&chain.name), lines.collect())),
        }
    }
    rules
}

pub(super) fn hook_of(chain: &NftChain) -> Option<Hook> {
    match chain.base.as_ref()?.hook {
        NftHook::Prerouting => Some(Hook::Prerouting),
        NftHook::Output => Some(Hook::Output),
        NftHook::Input | NftHook::Forward | NftHook::Postrouting | NftHook::Foreign(_) => None,
    }
}

/// Why a rule exists, by its comment.
#[must_use]
pub fn why_of(rule: &Rule) -> Option<Why> {
    let (slug, _) = rule.comment.as_ref()?.as_str().split_once(": ")?;
    Why::ALL.iter().copied().find(|why| why.slug() == slug)
}

fn lines_of(family: Family, rule: &Rule, number: usize, sets: &[Set]) -> Vec<NativeLine> {
    let why = why_of(rule);
    let rules = rules_of(family, &rule.expressions, sets).unwrap_or_else(|| of_others(family, rule, sets));
    rules.into_iter().map(|live| NativeLine { live, why, rule: number }).collect()
}

/// The equivalent rules of one that another program wrote. Its chains have their names in iptables, as ours.
fn of_others(family: Family, rule: &Rule, sets: &[Set]) -> Vec<LiveRule> {
    let mut rule = Rule { comment: None, ..rule.clone() };
    for expression in &mut rule.expressions {
        if let Expression::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) = expression {
            *chain = chain_name(chain);
        }
    }
    let sets: Vec<_> = sets.iter().filter_map(Set::members).collect();
    foreign_rules(family, &rule, RuleContext { sets: &sets, links: &[] })
}
