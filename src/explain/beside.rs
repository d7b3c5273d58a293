//! Base chains that packets meet beside our rules: behind them `INPUT`, `filter` and `security` of iptables; before or behind
//! them those of other programs' tables of nftables.

use nfnetlink::nftables::{
    Chain as NftChain, ChainKind, Family as NftFamily, Hook as NftHook, Members, Rule, Table as NftTable,
    TableName, Verdict,
};

use super::rules::{BaseChain, Chains, Entry, INPUT, Rules};
use crate::model::{Family, Hook, Link, NAT_PRIORITY, Table};
use crate::ordered::Ordered as _;
use crate::parse::{self, Observed};

impl Rules {
    /// Adds the chains behind ours of one variant of iptables.
    pub fn add_behind(&mut self, observed: &Observed) {
        let mangle = observed.tables.get(&Table::Mangle);
        let mangle = mangle.map(|live| (Table::Mangle.name(), Table::Mangle.priority(), live));
        for (table, priority, live) in mangle.into_iter().chain(observed.later_tables()) {
            let rules = |texts: &mut dyn Iterator<Item = &String>| -> Vec<Entry> {
                texts.map(|text| Entry::foreign(observed.family, text, false)).collect()
            };
            let named = live.foreign.iter().map(|(name, texts)| (name.clone(), rules(&mut texts.iter())));
            let own = live.chains.iter().map(|(chain, lines)| {
                (chain.name().to_owned(), rules(&mut lines.iter().map(|line| &line.text)))
            });
            let chains = Chains { named: named.chain(own).into_map(), ..Chains::default() };
            let mut add = |hook, rules: Vec<Entry>, drops| {
                if drops || !rules.is_empty() {
                    let (table, chain, chains) = (table.to_owned(), String::from(hook), chains.clone());
                    let (is_nat, reroutes) = (false, false);
                    self.later.push(BaseChain {
                        hook,
                        priority,
                        table,
                        chain,
                        rules,
                        is_nat,
                        reroutes,
                        drops,
                        chains,
                    });
                }
            };
            add(INPUT, chains.named.get(INPUT).cloned().unwrap_or_default(), live.input_drops);
            if table != Table::Mangle.name() {
                let output = live.hook(Hook::Output).iter().map(|line| &line.text);
                add(Hook::Output.name(), rules(&mut { output }), live.drops.contains(&Hook::Output));
            }
        }
        self.later.sort_by_key(|base| base.priority);
    }

    /// Adds the base chains in tables of nftables that other programs wrote, with what is in their sets. `is_read`: whether a chain
    /// is one of those that iptables shares, which have been read as text.
    pub fn add_base_chains(
        &mut self,
        family: Family,
        tables: &[NftTable],
        (sets, links): (&[(TableName, Vec<Members>)], &[Link]),
        is_read: impl Fn(&NftTable, &NftChain) -> bool,
    ) {
        for table in tables.iter().filter(|table| parse::has_packets_of(&table.name, family)) {
            let sets = sets
                .iter()
                .find(|(name, _)| *name == table.name)
                .map_or(&[][..], |(_, sets)| sets.as_slice());
            let entries = |rules: &[Rule]| -> Vec<Entry> {
                let words = rules.iter().flat_map(|rule| {
                    parse::words_of_foreign_rule(family, rule, parse::Beside { sets, links })
                });
                words.map(|text| Entry::foreign(family, &text, true)).collect()
            };
            let named = || table.chains.iter().filter(|chain| chain.base.is_none());
            let named = named().map(|chain| (chain.name.clone(), entries(&chain.rules))).into_map();
            let chains = Chains { named, ..Chains::default() };
            for chain in table.chains.iter().filter(|chain| !is_read(table, chain)) {
                let Some(base) = &chain.base else { continue };
                let (hook, is_before) = match base.hook {
                    NftHook::Input => (INPUT, false),
                    NftHook::Output => (Hook::Output.name(), base.priority <= NAT_PRIORITY),
                    NftHook::Prerouting => (Hook::Prerouting.name(), base.priority <= NAT_PRIORITY),
                    NftHook::Forward | NftHook::Postrouting | NftHook::Foreign(_) => continue,
                };
                let is_read = self.later.iter().any(|known| {
                    known.chain == chain.name && table.name.name == known.table && is_of_iptables(table)
                });
                let is_nat = base.kind == ChainKind::Nat;
                if is_read {
                    continue;
                }
                let list = if is_before || is_nat { &mut self.before } else { &mut self.later };
                list.push(BaseChain {
                    hook,
                    priority: base.priority,
                    table: table.name.to_string(),
                    chain: chain.name.clone(),
                    rules: entries(&chain.rules),
                    is_nat,
                    reroutes: base.kind == ChainKind::Route,
                    drops: base.policy == Verdict::Drop,
                    chains: chains.clone(),
                });
            }
        }
        self.before.sort_by_key(|base| base.priority);
        self.later.sort_by_key(|base| base.priority);
    }
}

/// Whether iptables may have written the table: then its text has been read.
fn is_of_iptables(table: &NftTable) -> bool {
    table.name.family != NftFamily::Inet
}
