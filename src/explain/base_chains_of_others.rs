//! Base chains that packets meet beside our rules: after them `INPUT`, `POSTROUTING`, `filter` and `security`
//! of iptables; before or after them those of the other variant of iptables and of other programs' tables of
//! nftables.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nfnetlink::nftables::{
    Chain as NftChain, ChainKind, Family as NftFamily, Members, Table as NftTable, TableName, Verdict,
};

use super::entry::Entry;
use super::rules::{BaseChain, Chains, Holder, Rules, SOURCE_NAT_PRIORITY};
use super::stage::Stage;
use crate::live_rules::{LiveRule, NftPlace};
use crate::model::{Family, Hook, Link, NAT_PRIORITY, Table, Variant};
use crate::ordered::Ordered as _;
use crate::parse::{self, Observed, ObservedTable};
use crate::reconcile::{is_our_jump, owned};

impl Rules {
    /// Adds what packets meet after our rules in the tables of iptables that these share; of another
    /// variant all tables, which are named with it.
    pub fn add_iptables(&mut self, observed: &Observed, variant: Variant, is_shared: bool) {
        let earlier = observed.tables.iter().map(|(table, live)| (Some(*table), live));
        let earlier = earlier.map(|(table, live)| {
            (table, table.map_or(("", 0), |table| (table.name(), table.priority())), live)
        });
        let later = observed.later_tables().map(|(name, priority, live)| (None, (name, priority), live));
        for (table, (name, priority), live) in earlier.chain(later) {
            let label = if is_shared { name.to_owned() } else { format!("{variant} {name}") };
            // Most tables have no rule and no policy in these chains.
            let chains = LazyCell::new(|| {
                Arc::new(Chains { named: named(observed.family, live), ..Chains::default() })
            });
            let of_foreign =
                |stage: Stage| entries(live.foreign.get(stage.chain()).into_iter().flatten().cloned());
            let translates_sources = |stage: Stage| table == Some(Table::Nat) && stage.translates_sources();
            let base = |stage: Stage, rules: Vec<Entry>, drops| {
                let decides = drops || !rules.is_empty();
                decides.then(|| BaseChain {
                    holder: Holder::Iptables(variant, name),
                    stage,
                    priority: if translates_sources(stage) { SOURCE_NAT_PRIORITY } else { priority },
                    table: label.clone(),
                    chain: stage.chain().to_owned(),
                    rules,
                    is_nat: table == Some(Table::Nat),
                    reroutes: table == Some(Table::Mangle) && stage == Stage::Output,
                    drops,
                    chains: Arc::clone(&chains),
                })
            };
            let of_hook = |hook: Hook| {
                let ours = table
                    .map(|table| owned(observed.family, table, hook, live, observed.record.as_ref()))
                    .unwrap_or_default();
                let lines = live.hook(hook).iter().enumerate();
                let rules = lines.map(|(at, line)| {
                    let is_ours =
                        ours.contains(&at) || table.is_some_and(|table| is_our_jump(table, hook, line));
                    Entry::read(observed.family, (at, line), None).leftover(is_ours)
                });
                base(hook.into(), rules.collect(), live.drops.contains(&hook))
            };
            self.forward.extend(base(Stage::Forward, of_foreign(Stage::Forward), false));
            match table {
                Some(_) if !is_shared => self.before.extend(Hook::ALL.into_iter().filter_map(of_hook)),
                Some(_) => {}
                None => self.later.extend(of_hook(Hook::Output)),
            }
            let behind: &[Stage] = match table {
                None => &[Stage::Input],
                Some(Table::Mangle | Table::Nat) => &[Stage::Input, Stage::Postrouting],
                Some(Table::Raw) => &[],
            };
            for &stage in behind {
                let drops = live.drops_behind.contains(stage.chain());
                self.later.extend(base(stage, of_foreign(stage), drops));
            }
        }
        self.sort();
    }

    /// Adds the base chains in tables of nftables that other programs wrote, with what is in their sets.
    /// `is_read`: whether a chain is one of those that iptables shares, which have been read as text;
    /// `leftovers`: the handles of the rules in a table that an earlier run of ours wrote.
    pub fn add_base_chains(
        &mut self,
        family: Family,
        tables: &[NftTable],
        (sets, links): (&[(TableName, Vec<Members>)], &[Link]),
        is_read: impl Fn(&NftTable, &NftChain) -> bool,
        leftovers: impl Fn(&NftTable) -> BTreeSet<u64>,
    ) {
        for table in tables.iter().filter(|table| parse::has_packets_of(&table.name, family)) {
            let sets = sets
                .iter()
                .find(|(name, _)| *name == table.name)
                .map_or(&[][..], |(_, sets)| sets.as_slice());
            let leftovers = leftovers(table);
            let entries = |chain: &NftChain| -> Vec<Entry> {
                let entries = chain.rules.iter().enumerate().flat_map(|(number, rule)| {
                    let place = NftPlace::of((table, chain), rule);
                    let is_leftover = rule.handle.is_some_and(|handle| leftovers.contains(&handle));
                    let rules = parse::foreign_rules(family, rule, parse::RuleContext { sets, links });
                    let entry = move |live| Entry::of_nftables(live, (number, rule.handle));
                    let rules = rules.into_iter().map(move |live| live.at(place.clone()));
                    rules.map(move |live| entry(live).leftover(is_leftover))
                });
                entries.collect()
            };
            let named = || table.chains.iter().filter(|chain| chain.base.is_none());
            let named = named().map(|chain| (chain.name.clone(), entries(chain))).into_map();
            let chains = Arc::new(Chains { named, ..Chains::default() });
            for chain in table.chains.iter().filter(|chain| !is_read(table, chain)) {
                let Some(base) = &chain.base else { continue };
                let Some(stage) = Stage::of(base.hook) else { continue };
                let is_read = self.later.iter().chain(&self.forward).any(|known| {
                    let is_table = matches!(known.holder, Holder::Iptables(Variant::Nft, name) if name == table.name.name);
                    known.chain == chain.name && is_table && is_of_iptables(table)
                });
                let is_nat = base.kind == ChainKind::Nat;
                if is_read {
                    continue;
                }
                let is_early = is_nat || base.priority <= NAT_PRIORITY;
                let list = match stage {
                    Stage::Forward => &mut self.forward,
                    Stage::Input | Stage::Postrouting => &mut self.later,
                    Stage::Output | Stage::Prerouting if is_early => &mut self.before,
                    Stage::Output | Stage::Prerouting => &mut self.later,
                };
                list.push(BaseChain {
                    holder: Holder::Nftables(shared_table(table)),
                    stage,
                    priority: base.priority,
                    table: table.name.to_string(),
                    chain: chain.name.clone(),
                    rules: entries(chain),
                    is_nat,
                    reroutes: base.kind == ChainKind::Route,
                    drops: base.policy == Verdict::Drop,
                    chains: Arc::clone(&chains),
                });
            }
        }
        self.sort();
    }

    /// In the order in which packets meet them.
    fn sort(&mut self) {
        self.before = std::mem::take(&mut self.before).into_iter().into_sorted_by_key(|base| base.priority);
        self.later = std::mem::take(&mut self.later).into_iter().into_sorted_by_key(BaseChain::place);
    }
}

fn entries(rules: impl Iterator<Item = LiveRule>) -> Vec<Entry> {
    rules.enumerate().map(Entry::foreign).collect()
}

/// The chains of a table of iptables that rules jump to.
fn named(family: Family, live: &ObservedTable) -> BTreeMap<String, Vec<Entry>> {
    let foreign = live.foreign.iter().map(|(name, rules)| (name.clone(), entries(rules.iter().cloned())));
    let own = live
        .chains
        .iter()
        .map(|(chain, lines)| (chain.name().to_owned(), entries(lines.iter().map(|line| line.live(family)))));
    foreign.chain(own).into_map()
}

/// The table that iptables-nft writes to, of those that hold rules of ours.
pub(crate) fn shared_table(table: &NftTable) -> Option<Table> {
    let known = Table::ALL.into_iter().find(|known| known.name() == table.name.name);
    known.filter(|_| is_of_iptables(table))
}

/// Whether iptables may have written the table: then its text has been read.
fn is_of_iptables(table: &NftTable) -> bool {
    table.name.family != NftFamily::Inet
}
