//! Rules of iptables that captured packets meet on their way to the proxy: in INPUT, `filter` OUTPUT
//! and `mangle` and `nat` POSTROUTING.

use std::collections::{BTreeMap, BTreeSet};

use super::concern::{Captured, Taken};
use super::{DEEPEST, DecidesFirst, Examined, Found, Placement, Targets};
use crate::live_rules::{Effect, LiveRule};
use crate::model::{Backend, Family, Hook, Table, Target, Variant};
use crate::ordered::Ordered as _;
use crate::parse::{INPUT, Observed, ObservedTable, POSTROUTING};

/// `TCP to the ports 15001, 15006`, for a hint.
pub(super) fn ports_of_proxy(captured: &[Captured]) -> String {
    let ports: BTreeSet<u16> = captured.iter().flat_map(Captured::ports).into_set();
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    if ports.is_empty() { "the captured ports".to_owned() } else { format!("the ports {}", ports.join(", ")) }
}

/// The targets that keep a packet from the proxy.
const fn drops(effect: &Effect) -> bool {
    matches!(effect, Effect::Known(Target::Drop) | Effect::Rejects | Effect::Queues { .. })
}

impl Examined<'_> {
    /// The rules and policies there that may decide. The tables `filter` and `security` of iptables-nft are examined with the other base
    /// chains.
    pub(super) fn later(&self, observed: &Observed, backend: Backend) -> Vec<DecidesFirst> {
        let captured = Captured::of(self.desired);
        let none = ObservedTable::default();
        let table = |table| observed.tables.get(&table).unwrap_or(&none);
        let (filter, security) = (&observed.filter, &observed.security);
        let of_nft = self.variant == Variant::Nft && backend != Backend::Native;
        let of_hooks = |name, table| [INPUT, POSTROUTING].map(|chain| behind(name, chain, table));
        let mut chains: Vec<_> = of_hooks("mangle", table(Table::Mangle))
            .into_iter()
            .chain(of_hooks("nat", table(Table::Nat)))
            .collect();
        if !of_nft {
            chains.extend([behind("filter", INPUT, filter), output(observed.family, "filter", filter)]);
            chains
                .extend([behind("security", INPUT, security), output(observed.family, "security", security)]);
        }
        let mut found = Vec::new();
        for (name, chain, table, rules, has_drop_policy) in chains {
            let is_output = chain != INPUT;
            let mut search =
                Search { captured: &captured, is_output, chains: &table.foreign, seen: BTreeSet::new() };
            let mut left: Vec<Taken> = captured.taken(is_output).collect();
            let mut some_get_to_the_policy = false;
            for rule in &rules {
                if left.is_empty() {
                    break;
                }
                if let Some(target) = search.drops(rule, 0) {
                    found.push((name, Found::rule(chain, rule), target));
                }
                some_get_to_the_policy |= search.leads_to_the_end(rule, 0);
                left.retain(|taken| !search.accepts(rule, *taken, 0));
            }
            if has_drop_policy && (some_get_to_the_policy || !left.is_empty()) {
                found.push((name, Found::Policy(chain), Targets::of("DROP")));
            }
        }
        let place = || Placement::Later(ports_of_proxy(std::slice::from_ref(&captured)));
        let Self { family, variant, of_other_variant, desired: _ } = *self;
        found
            .into_iter()
            .map(|(table, found, targets)| DecidesFirst {
                family,
                variant,
                table,
                found,
                targets,
                of_other_variant,
                place: place(),
                translates_dns: false,
                drops_sources: false,
                is_by_tproxy: false,
            })
            .collect()
    }
}

/// A chain that packets meet behind ours: name of the table and the chain, table, rules, whether its policy is to drop.
type Behind<'a> = (&'static str, &'static str, &'a ObservedTable, Vec<LiveRule>, bool);

fn behind<'a>(name: &'static str, chain: &'static str, table: &'a ObservedTable) -> Behind<'a> {
    let rules = table.foreign.get(chain).cloned().unwrap_or_default();
    (name, chain, table, rules, table.drops_behind.contains(chain))
}

fn output<'a>(family: Family, name: &'static str, table: &'a ObservedTable) -> Behind<'a> {
    let rules = table.hook(Hook::Output).iter().map(|line| line.live(family)).collect();
    (name, Hook::Output.name(), table, rules, table.drops.contains(&Hook::Output))
}

struct Search<'a> {
    captured: &'a Captured,
    is_output: bool,
    chains: &'a BTreeMap<String, Vec<LiveRule>>,
    seen: BTreeSet<String>,
}

impl Search<'_> {
    /// Whether a rule accepts all packets of a kind, itself or by the chain that it jumps to.
    fn accepts(&self, rule: &LiveRule, taken: Taken, depth: usize) -> bool {
        let accepts_here = || match rule.chain() {
            Some((name, _)) => {
                let rules = self.chains.get(name).filter(|_| depth < DEEPEST);
                rules.is_some_and(|rules| self.chain_accepts(rules, taken, depth + 1))
            }
            None => *rule.effect() == Effect::Known(Target::Accept),
        };
        self.captured.matches_all(rule, taken) && accepts_here()
    }

    /// Whether the rules of a chain accept all packets of a kind, and no earlier one has led some to its end: in a shared chain, to its policy.
    fn chain_accepts(&self, rules: &[LiveRule], taken: Taken, depth: usize) -> bool {
        let at = rules.iter().position(|rule| self.accepts(rule, taken, depth));
        let before = at.and_then(|at| rules.get(..at));
        before.is_some_and(|before| !before.iter().any(|rule| self.leads_to_the_end(rule, depth)))
    }

    fn leads_to_the_end(&self, rule: &LiveRule, depth: usize) -> bool {
        let leads = match rule.chain() {
            Some((name, true)) => {
                let rules = self.chains.get(name).filter(|_| depth < DEEPEST);
                let accepts = |rules: &Vec<LiveRule>, taken| self.chain_accepts(rules, taken, depth + 1);
                let mut kinds = self.captured.taken(self.is_output);
                rules.is_none_or(|rules| !kinds.all(|taken| accepts(rules, taken)))
            }
            Some(_) => false,
            None => *rule.effect() == Effect::Known(Target::Return),
        };
        leads && self.captured.may_match_taken(rule, self.is_output)
    }

    /// The target that keeps a captured packet from the proxy, if the rule has such a target, or jumps to a chain with one.
    fn drops(&mut self, rule: &LiveRule, depth: usize) -> Option<Targets> {
        if !self.captured.may_match_taken(rule, self.is_output) {
            return None;
        }
        if drops(&rule.effect()) {
            return Some(Targets::of(rule.target()));
        }
        let (name, _) = rule.chain()?;
        let chains = self.chains;
        let rules = chains.get(name).filter(|_| self.seen.insert(name.to_owned()))?;
        if depth == DEEPEST {
            return Some(Targets::TooDeep(name.to_owned()));
        }
        let inner = rules.iter().find_map(|rule| self.drops(rule, depth + 1))?;
        Some(Targets::Chain(name.to_owned(), vec![inner]))
    }
}
