//! Rules of iptables that captured packets meet on their way to the proxy: in INPUT, and in `filter` OUTPUT.

use std::collections::{BTreeMap, BTreeSet};

use super::concern::Captured;
use super::{DEEPEST, DecidesFirst, Examined, Placement, TOO_DEEP, shown};
use crate::model::{Backend, Hook, Table, Variant};
use crate::ordered::Ordered as _;
use crate::parse::{self, INPUT, Observed, ObservedTable};

/// `TCP to the ports 15001, 15006`, for a hint.
pub(super) fn ports_of_proxy(captured: &[Captured]) -> String {
    let ports: BTreeSet<u16> = captured.iter().flat_map(Captured::ports).into_set();
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    if ports.is_empty() { "the captured ports".to_owned() } else { format!("the ports {}", ports.join(", ")) }
}

/// The targets that keep a packet from the proxy.
fn drops(target: &str) -> bool {
    ["DROP", "REJECT", "QUEUE", "NFQUEUE"].contains(&target)
}

impl Examined<'_> {
    /// The rules and policies there that may decide. The tables `filter` and `security` of iptables-nft are examined with the other base
    /// chains.
    pub(super) fn later(&self, observed: &Observed, backend: Backend) -> Vec<DecidesFirst> {
        let captured = Captured::of(self.desired);
        let none = ObservedTable::default();
        let mangle = observed.tables.get(&Table::Mangle).unwrap_or(&none);
        let input = |table: &ObservedTable| table.foreign.get(INPUT).cloned().unwrap_or_default();
        let texts = |table: &ObservedTable| -> Vec<String> {
            table.hook(Hook::Output).iter().map(|line| line.text.clone()).collect()
        };
        let filter = &observed.filter;
        let of_nft = self.variant == Variant::Nft && backend != Backend::Native;
        let mut chains = vec![("mangle", INPUT, mangle, input(mangle), mangle.input_drops)];
        if !of_nft {
            let drops = filter.drops.contains(&Hook::Output);
            let security = &observed.security;
            let has_policy = security.drops.contains(&Hook::Output);
            chains.push(("filter", INPUT, filter, input(filter), filter.input_drops));
            chains.push(("filter", Hook::Output.name(), filter, texts(filter), drops));
            chains.push(("security", INPUT, security, input(security), security.input_drops));
            chains.push(("security", Hook::Output.name(), security, texts(security), has_policy));
        }
        let mut found = Vec::new();
        for (name, chain, table, rules, has_drop_policy) in chains {
            let is_output = chain != INPUT;
            let mut search =
                Search { captured: &captured, is_output, chains: &table.foreign, seen: BTreeSet::new() };
            let is_met = |rule: &&String| !is_accept(rule);
            let met: Vec<&String> = rules.iter().take_while(is_met).collect();
            for text in &met {
                if let Some(target) = search.drops(text, 0) {
                    found.push((name, shown(chain, text), target));
                }
            }
            if has_drop_policy && met.len() == rules.len() {
                found.push((name, format!("-P {chain} DROP"), "DROP".to_owned()));
            }
        }
        let place = || Placement::Later(ports_of_proxy(std::slice::from_ref(&captured)));
        let Self { family, variant, of_other_variant, desired: _ } = *self;
        found
            .into_iter()
            .map(|(table, text, target)| DecidesFirst {
                family,
                variant,
                table,
                text,
                target,
                of_other_variant,
                place: place(),
                translates_dns: false,
                is_by_tproxy: false,
            })
            .collect()
    }
}

/// Whether a rule accepts every packet.
fn is_accept(text: &str) -> bool {
    text == "-j ACCEPT"
}

struct Search<'a> {
    captured: &'a Captured,
    is_output: bool,
    chains: &'a BTreeMap<String, Vec<String>>,
    seen: BTreeSet<String>,
}

impl Search<'_> {
    /// The target that keeps a captured packet from the proxy, if the rule has such a target, or jumps to a chain with one.
    fn drops(&mut self, text: &str, depth: usize) -> Option<String> {
        let words = parse::words_of(text)?;
        if !self.captured.may_match_taken(&words, self.is_output) {
            return None;
        }
        let name = parse::target_words(text)?.get(1)?.clone();
        if drops(&name) {
            return Some(name);
        }
        let chains = self.chains;
        let rules = chains.get(&name).filter(|_| self.seen.insert(name.clone()))?;
        if depth == DEEPEST {
            return Some(format!("{name} ({TOO_DEEP})"));
        }
        let inner = rules.iter().find_map(|rule| self.drops(rule, depth + 1))?;
        Some(format!("{name} ({inner})"))
    }
}
