//! Rules as a run is going to leave them, and rules without one of another program's.

use super::entry::Entry;
use super::rules::Rules;
use crate::model::{Backend, Chain, Family, FamilyRules, PerFamily};
use crate::nft;
use crate::parse::Observed;

/// A rule of another program in a table that iptables shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignRule {
    /// The table, as reports name it.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The words of the rule.
    pub words: String,
}

impl Rules {
    /// Our rules in the form that a backend gives them.
    #[must_use]
    pub fn in_form_of(backend: Backend, rules: &PerFamily<FamilyRules>) -> PerFamily<Self> {
        match backend {
            Backend::Native => {
                let tables = nft::tables(rules).iter().map(nft::encode).collect();
                let live = nft::LiveTables::new(tables, Vec::new());
                Family::ALL.into_iter().map(|family| (family, Self::native(&live, family))).collect()
            }
            Backend::Iptables(_) => {
                rules.iter().map(|(family, rules)| (*family, Self::from(rules))).collect()
            }
        }
    }

    /// Adds the foreign rules of the tables that iptables shares, where a run puts `own` among them: these
    /// are the desired rules that `self` was made of.
    pub fn add_shared(&mut self, own: &FamilyRules, observed: &Observed) {
        for (table, live) in Self::live(observed).tables {
            let planned = self.tables.entry(table).or_default();
            planned.drops = live.drops;
            for (hook, entries) in live.hooks {
                let rules = planned.hooks.entry(hook).or_default();
                let heads = own.tables.get(&table).and_then(|rules| rules.hooks.get(&hook));
                let tail = rules.split_off(heads.map_or(0, |rules| rules.head.len()).min(rules.len()));
                // What is there stays, ours come behind what they do not follow yet.
                let jump = || entries.iter().position(Entry::is_jump_of_ours);
                let first = jump().or_else(|| entries.iter().position(|entry| !entry.is_foreign()));
                let first = first.unwrap_or(entries.len());
                let (before, behind) = entries.split_at(first);
                let foreign =
                    |entries: &[Entry]| entries.iter().filter(|entry| entry.is_foreign()).cloned().collect();
                let (before, behind): (Vec<Entry>, Vec<Entry>) = (foreign(before), foreign(behind));
                rules.extend(before.into_iter().chain(tail).chain(behind));
            }
            let foreign = live.named.into_iter().filter(|(name, _)| Chain::from_name(name).is_none());
            planned.named.extend(foreign);
        }
    }

    /// The rules without `rule` and others with its words in the chain, and what they do; `None` if it is not
    /// among them.
    #[must_use]
    pub fn without(&self, rule: &ForeignRule) -> Option<(Self, Entry)> {
        let ForeignRule { table, chain, words } = rule;
        let mut rules = self.clone();
        let mut found = None;
        let tables = rules.tables.iter_mut().filter(|(of, _)| of.name() == table);
        let hooks = tables.flat_map(|(_, chains)| &mut chains.hooks);
        for (_, entries) in hooks.filter(|(hook, _)| hook.name() == chain) {
            entries.retain(|entry| {
                let is_it = entry.is_foreign() && entry.rule.words() == words.as_str();
                if is_it {
                    found = Some(entry.clone());
                }
                !is_it
            });
        }
        Some((rules, found?))
    }
}
