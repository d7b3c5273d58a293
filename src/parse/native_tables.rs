//! Tables of native nftables as the packets of one family meet them, in the words of iptables: one line for
//! each element of a set that a rule looks up.

use std::collections::{BTreeMap, BTreeSet};

use nfnetlink::nftables::{
    Chain as NftChain, Expression, Hook as NftHook, Rule, Set, Table as NftTable, Verdict,
};

use super::expressions::{RuleContext, foreign_rules};
use super::native_rule::rules_of;
use super::words::chain_name;
use crate::live_rules::{LiveRule, NftPlace};
use crate::model::{Chain, Family, Hook, Table, Why};
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
