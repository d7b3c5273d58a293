//! Base chains that packets meet behind our rules: `INPUT`, `filter` and `security` of iptables, and those of nftables.

use nfnetlink::nftables::{
    ChainKind, Family as NftFamily, Hook as NftHook, Rule, Table as NftTable, Verdict,
};

use super::rules::{Chains, Entry, INPUT, Later, Rules};
use crate::model::{Family, Hook, Table};
use crate::ordered::Ordered as _;
use crate::parse::{self, Observed, ObservedTable};

/// Our last rules have the priority of nat.
const NAT_PRIORITY: i32 = -100;

impl Rules {
    /// Adds the chains behind ours of one variant of iptables.
    pub fn add_behind(&mut self, observed: &Observed) {
        let none = ObservedTable::default();
        let mangle = observed.tables.get(&Table::Mangle).unwrap_or(&none);
        for (table, priority, live) in
            [("mangle", -150, mangle), ("filter", 0, &observed.filter), ("security", 50, &observed.security)]
        {
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
                    self.later.push(Later { hook, priority, table, chain, rules, drops, chains });
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

    /// Adds the base chains behind ours in tables of nftables that other programs wrote.
    pub fn add_base_chains(&mut self, family: Family, tables: &[NftTable]) {
        for table in tables.iter().filter(|table| is_met(table, family)) {
            let entries = |rules: &[Rule]| -> Vec<Entry> {
                let words = rules.iter().filter_map(|rule| parse::words_of_foreign_rule(family, rule));
                words.map(|text| Entry::foreign(family, &text, true)).collect()
            };
            let named = || table.chains.iter().filter(|chain| chain.base.is_none());
            let named =
                named().map(|chain| (parse::chain_name(&chain.name), entries(&chain.rules))).into_map();
            let chains = Chains { named, ..Chains::default() };
            for chain in &table.chains {
                let Some(base) = &chain.base else { continue };
                let hook = match base.hook {
                    NftHook::Input => INPUT,
                    NftHook::Output if base.priority > NAT_PRIORITY => Hook::Output.name(),
                    NftHook::Prerouting
                    | NftHook::Output
                    | NftHook::Forward
                    | NftHook::Postrouting
                    | NftHook::Foreign(_) => continue,
                };
                let is_read = self.later.iter().any(|known| {
                    known.chain == chain.name && table.name.name == known.table && is_of_iptables(table)
                });
                if base.kind == ChainKind::Nat || is_read {
                    continue;
                }
                self.later.push(Later {
                    hook,
                    priority: base.priority,
                    table: table.name.to_string(),
                    chain: chain.name.clone(),
                    rules: entries(&chain.rules),
                    drops: base.policy == Verdict::Drop,
                    chains: chains.clone(),
                });
            }
        }
        self.later.sort_by_key(|base| base.priority);
    }
}

fn is_met(table: &NftTable, family: Family) -> bool {
    match table.name.family {
        NftFamily::Inet => true,
        NftFamily::Ip => family == Family::V4,
        NftFamily::Ip6 => family == Family::V6,
    }
}

/// Whether iptables may have written the table: then its text has been read.
fn is_of_iptables(table: &NftTable) -> bool {
    table.name.family != NftFamily::Inet
}
