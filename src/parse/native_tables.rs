//! Tables of native nftables as the packets of one family meet them, in the words of iptables: one line for
//! each element of a set that a rule looks up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use nfnetlink::nftables::{
    Chain as NftChain, Elements, Expression, Hook as NftHook, KeyType, Operator, Register, Rule, Set,
    Table as NftTable, Verdict,
};

use super::expressions::words_of_native_rule;
use super::live_rule::live_rule;
use super::words::chain_name;
use crate::live_rules::{LiveRule, NftPlace};
use crate::model::{Chain, Family, Hook, Match, Table, Why};
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
        let mut rules = rules_of(tables.clone().find(|live| table_of(live) == Some(table))?, family);
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

fn rules_of(table: &NftTable, family: Family) -> NativeRules {
    let sets = table.sets.iter().map(|set| (set.name.as_str(), set)).into_map();
    let mut rules = NativeRules::default();
    for chain in &table.chains {
        let lines = chain.rules.iter().enumerate().flat_map(|(number, rule)| {
            let lines = lines_of(family, rule, number, &sets).into_iter();
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

fn lines_of(family: Family, rule: &Rule, number: usize, sets: &BTreeMap<&str, &Set>) -> Vec<NativeLine> {
    let why = why_of(rule);
    let live = of_addresses(family, &rule.expressions, sets);
    if let Some(rules) = live {
        return rules.into_iter().map(|live| NativeLine { live, why, rule: number }).collect();
    }
    let mut pending = vec![rule.expressions.clone()];
    let mut lines = Vec::new();
    while let Some(expressions) = pending.pop() {
        if let Some(expanded) = without_first_set(&expressions, sets) {
            // The last one is taken first.
            pending.extend(expanded.into_iter().rev());
        } else if let Some(text) = words_of_native_rule(family, &expressions) {
            lines.push(NativeLine { live: live_rule(family, text), why, rule: number });
        }
    }
    lines
}

/// The equivalent rules of a rule whose last set is one of destinations, such as that of excluded ranges:
/// only the first is read, the others differ by the destination. `None` for any other rule.
fn of_addresses(
    family: Family,
    expressions: &[Expression],
    sets: &BTreeMap<&str, &Set>,
) -> Option<Vec<LiveRule>> {
    let (at, set, register, inverted) = first_set(expressions, sets)?;
    let (before, rest) = expressions.split_at(at);
    let behind = rest.get(1..).filter(|behind| !inverted && first_set(behind, sets).is_none())?;
    let Elements::Ranges(ranges) = &set.elements else { return None };
    let mut networks = ranges.iter().flat_map(|(first, last)| networks(first, last));
    let (address, mask) = networks.next().filter(|_| is_of_addresses(set))?;
    let first = network(&address, &mask)?;
    let test = is_in_network(register, address, mask);
    // Which family a rule is for does not depend on the element.
    let Some(words) = words_of_native_rule(family, &[before, &test, behind].concat()) else {
        return Some(Vec::new());
    };
    let live = live_rule(family, words);
    let statement = live.statement()?.clone();
    if statement.matcher.destination != Some(Match::Is(first)) || live.words() != statement.to_string() {
        return None;
    }
    let with = |(address, mask): (Vec<u8>, Vec<u8>)| {
        let mut statement = statement.clone();
        statement.matcher.destination = Some(Match::Is(network(&address, &mask)?));
        Some(LiveRule::from(statement))
    };
    std::iter::once(Some(live)).chain(networks.map(with)).collect()
}

fn network(address: &[u8], mask: &[u8]) -> Option<IpNetwork> {
    let bits = u8::try_from(number(mask).count_ones()).ok()?;
    let address: IpAddr = match address.len() {
        4 => <[u8; 4]>::try_from(address).ok()?.into(),
        16 => <[u8; 16]>::try_from(address).ok()?.into(),
        _ => return None,
    };
    IpNetwork::new(address, bits).ok()
}

const fn is_of_addresses(set: &Set) -> bool {
    matches!(set.key, KeyType::Ipv4Address | KeyType::Ipv6Address)
}

/// The test that what a register holds is an address of a network.
fn is_in_network(register: Register, address: Vec<u8>, mask: Vec<u8>) -> [Expression; 2] {
    let xor = vec![0; mask.len()];
    let mask = Expression::Bitwise { source: register, destination: register, mask, xor };
    [mask, Expression::Compare { register, operator: Operator::Equal, value: address }]
}

/// The first lookup of expressions in a set that can be listed: its place, the set, what is looked up,
/// whether it is negated.
fn first_set<'a>(
    expressions: &[Expression],
    sets: &BTreeMap<&str, &'a Set>,
) -> Option<(usize, &'a Set, Register, bool)> {
    expressions.iter().enumerate().find_map(|(at, expression)| {
        let Expression::Lookup { set, register, inverted } = expression else { return None };
        let set = sets.get(set.as_str()).filter(|set| !matches!(set.elements, Elements::Foreign(_)))?;
        Some((at, *set, *register, *inverted))
    })
}

/// The equivalent rules of a rule with a set, one for each element; `None` without a set, or if it cannot be
/// listed.
fn without_first_set(
    expressions: &[Expression],
    sets: &BTreeMap<&str, &Set>,
) -> Option<Vec<Vec<Expression>>> {
    let (at, set, register, inverted) = first_set(expressions, sets)?;
    let (before, rest) = expressions.split_at(at);
    let behind = rest.get(1..)?;
    let operator = if inverted { Operator::NotEqual } else { Operator::Equal };
    let tests = tests_of(set, register, operator);
    if !inverted {
        return Some(tests.into_iter().map(|test| [before, &test, behind].concat()).collect());
    }
    // It is none of them: all of these tests hold, and each is of what is loaded right before.
    let load = before.last().into_iter().cloned();
    let none_of = tests.into_iter().flat_map(|test| load.clone().chain(test));
    let before = before.split_last().map_or(&[][..], |(_, before)| before);
    Some(vec![before.iter().cloned().chain(none_of).chain(behind.iter().cloned()).collect()])
}

/// For each element of a set the test of it.
fn tests_of(set: &Set, register: Register, operator: Operator) -> Vec<Vec<Expression>> {
    let compare = |value: &[u8]| Expression::Compare { register, operator, value: value.to_vec() };
    match &set.elements {
        Elements::Values(values) => values.iter().map(|value| vec![compare(value)]).collect(),
        Elements::Ranges(ranges) if is_of_addresses(set) => {
            let networks = ranges.iter().flat_map(|(first, last)| networks(first, last));
            let test = |(address, mask): (Vec<u8>, Vec<u8>)| {
                let xor = vec![0; mask.len()];
                let mask = Expression::Bitwise { source: register, destination: register, mask, xor };
                vec![mask, compare(&address)]
            };
            networks.map(test).collect()
        }
        Elements::Ranges(ranges) => {
            let inverted = operator == Operator::NotEqual;
            let range = |(from, to): &(Vec<u8>, Vec<u8>)| {
                vec![Expression::Range { register, inverted, from: from.clone(), to: to.clone() }]
            };
            ranges.iter().map(range).collect()
        }
        Elements::Foreign(_) => Vec::new(),
    }
}

/// The networks, as address and mask, that a range of addresses consists of.
fn networks(first: &[u8], last: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bits = u32::try_from(first.len() * 8).unwrap_or(128).min(128);
    let bytes =
        |number: u128| number.to_be_bytes().into_iter().skip(16 - first.len().min(16)).collect::<Vec<u8>>();
    let (mut next, last) = (number(first), number(last));
    let mut networks = Vec::new();
    while next <= last {
        // The largest network that begins here and does not end behind the range.
        let mut hosts = next.trailing_zeros().min(bits);
        while hosts > 0 && ends(next, hosts) > last {
            hosts -= 1;
        }
        networks.push((bytes(next), bytes(u128::MAX.checked_shl(hosts).unwrap_or(0))));
        let Some(behind) = ends(next, hosts).checked_add(1) else { break };
        next = behind;
    }
    networks
}

/// The last address of a network with so many host bits.
const fn ends(first: u128, hosts: u32) -> u128 {
    match 1_u128.checked_shl(hosts) {
        Some(size) => first | (size - 1),
        None => u128::MAX,
    }
}

/// A number in network byte order.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().take(16).fold(0, |number, byte| (number << 8) | u128::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_taken_apart_into_networks() {
        let of = |first: [u8; 4], last: [u8; 4]| -> Vec<String> {
            let text = |bytes: &[u8]| bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(".");
            networks(&first, &last)
                .iter()
                .map(|(address, mask)| format!("{}/{}", text(address), number(mask).count_ones()))
                .collect()
        };
        assert_eq!(of([10, 0, 0, 0], [10, 255, 255, 255]), ["10.0.0.0/8"]);
        assert_eq!(of([10, 0, 0, 1], [10, 0, 0, 4]), ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/32"]);
        assert_eq!(of([0, 0, 0, 0], [255, 255, 255, 255]), ["0.0.0.0/0"]);
        assert_eq!(of([255, 255, 255, 255], [255, 255, 255, 255]), ["255.255.255.255/32"]);
        assert_eq!(networks(&[0; 16], &[255; 16]), [(vec![0; 16], vec![0; 16])]);
    }
}
