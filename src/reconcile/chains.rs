//! The chains in which our live rules differ from the desired ones, rule by rule and in order.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, ownership};
use crate::model::{Chain, Family, FamilyRules, Hook, HookRules, Rule, Table, TableRules};
use crate::nft;
use crate::parse::{self, Line, NativeLine, NativeRules, Observed, ObservedTable};

/// Above this product of lengths every rule that both ends do not share counts as different.
const MOST_COMPARED: usize = 4_000_000;

/// A chain of one family that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainDifference {
    /// The family of the chain.
    pub family: Family,
    /// The table of the chain.
    pub table: Table,
    /// The name of the chain.
    pub chain: String,
    /// What differs, in the order of the rules.
    pub rules: Vec<RuleDifference>,
}

/// A rule that only one side has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDifference {
    /// Whether it is desired and not live, or the other way round.
    pub is_missing: bool,
    /// The place of the rule among the rules of ours in the chain, on its side; counted from 1.
    pub place: usize,
    /// The words of the rule behind `-A CHAIN`.
    pub rule: String,
}

/// The differences of one family in the tables of iptables. `observed` is `None` where nothing of ours can
/// be.
#[must_use]
pub fn of_iptables(desired: &FamilyRules, observed: &Observed) -> Vec<ChainDifference> {
    let (none, nothing) = (TableRules::default(), ObservedTable::default());
    let (family, record) = (desired.family, observed.record.as_ref());
    let mut found = Vec::new();
    for change in Change::between(desired, observed, false).tables {
        let table = change.table;
        let wanted = desired.tables.get(&table).unwrap_or(&none);
        let live = observed.tables.get(&table).unwrap_or(&nothing);
        let mut add = |chain: &str, live: Option<&[String]>, wanted: Option<&[String]>| {
            let mut rules = ordered(live.unwrap_or_default(), wanted.unwrap_or_default());
            // Chains without rules differ by being there.
            if rules.is_empty() && live.is_some() != wanted.is_some() {
                let rule = "(the chain itself, empty)".to_owned();
                rules.push(RuleDifference { is_missing: live.is_none(), place: 1, rule });
            }
            if !rules.is_empty() {
                found.push(ChainDifference { family, table, chain: chain.to_owned(), rules });
            }
        };
        let ours = ownership::ours(family, table, live, record);
        for hook in Hook::ALL.into_iter().filter(|hook| is_changed(&change, *hook)) {
            let ours = ours.of(hook);
            let lines = live.hook(hook).iter().enumerate().filter(|(at, _)| ours.contains(at));
            let lines: Vec<String> = lines.map(|(_, line)| words_of_line(line)).collect();
            let wanted = wanted.hooks.get(&hook).into_iter().flat_map(HookRules::iter).map(words);
            add(hook.name(), Some(&lines), Some(&wanted.collect::<Vec<_>>()));
        }
        let removed = change.remove.iter().chain(&change.empty);
        for chain in change.declare.keys().chain(removed) {
            let live =
                live.chains.get(chain).map(|lines| lines.iter().map(words_of_line).collect::<Vec<_>>());
            let wanted = wanted.chains.get(chain).map(|rules| rules.iter().map(words).collect::<Vec<_>>());
            add(chain.name(), live.as_deref(), wanted.as_deref());
        }
    }
    found
}

/// The number of rules that only one side has.
#[must_use]
pub fn distance(one: &FamilyRules, other: &FamilyRules) -> usize {
    let (mut differing, none) = (0, TableRules::default());
    for table in Table::ALL {
        let tables = [one, other].map(|side| side.tables.get(&table).unwrap_or(&none));
        let mut add = |[one, other]: [Vec<&Rule>; 2]| {
            // Words are needed only where rules differ.
            let is_same = |(one, other): (&&Rule, &&Rule)| one.statement == other.statement;
            if one.len() != other.len() || !one.iter().zip(&other).all(is_same) {
                let words = |rules: Vec<&Rule>| rules.into_iter().map(words).collect::<Vec<_>>();
                differing += ordered(&words(one), &words(other)).len();
            }
        };
        for hook in Hook::ALL {
            add(tables.map(|rules| rules.hooks.get(&hook).into_iter().flat_map(HookRules::iter).collect()));
        }
        for chain in Chain::ALL {
            add(tables.map(|rules| rules.chains.get(&chain).into_iter().flatten().collect()));
        }
    }
    differing
}

fn is_changed(change: &super::TableChange, hook: Hook) -> bool {
    change.hooks.contains_key(&hook)
        || change.deletions.iter().any(|deletion| deletion.hook == hook)
        || change.by_handle.iter().any(|rule| rule.hook == hook)
}

fn words(rule: &Rule) -> String {
    rule.statement.to_string()
}

/// The words of the model, which do not depend on the tool's version.
fn words_of_line(line: &Line) -> String {
    line.statement.as_ref().map_or_else(|| line.text().into_owned(), ToString::to_string)
}

/// The differences of one family in native nftables: rules as packets of each family meet them.
#[must_use]
pub fn of_native(
    desired: &[nfnetlink::nftables::Table],
    live: &nft::LiveTables,
    family: Family,
) -> Vec<ChainDifference> {
    let none = NativeRules::default();
    let (desired, live) =
        (parse::native(&desired.iter(), family), parse::native(&live.active_tables(), family));
    let mut found = Vec::new();
    for table in Table::ALL {
        let sides = [&live, &desired].map(|side| chains(side.get(&table).unwrap_or(&none)));
        let [live, desired] = &sides;
        let mut names: BTreeSet<&String> = BTreeSet::new();
        names.extend(live.keys().chain(desired.keys()));
        for name in names {
            let of = |side: &BTreeMap<String, Vec<String>>| side.get(name).cloned().unwrap_or_default();
            let rules = ordered(&of(live), &of(desired));
            if !rules.is_empty() {
                found.push(ChainDifference { family, table, chain: name.clone(), rules });
            }
        }
    }
    found
}

fn chains(rules: &NativeRules) -> BTreeMap<String, Vec<String>> {
    let texts =
        |lines: &[NativeLine]| lines.iter().map(|line| line.live.words().into_owned()).collect::<Vec<_>>();
    let mut chains = BTreeMap::new();
    chains.extend(rules.hooks.iter().map(|(hook, lines)| (hook.name().to_owned(), texts(lines))));
    chains.extend(rules.chains.iter().map(|(name, lines)| (name.clone(), texts(lines))));
    chains
}

/// What only one of two lists has, by a longest common subsequence.
fn ordered(live: &[String], desired: &[String]) -> Vec<RuleDifference> {
    let start = live.iter().zip(desired).take_while(|(a, b)| a == b).count();
    let (live_rest, desired_rest) = (live.get(start..).unwrap_or(&[]), desired.get(start..).unwrap_or(&[]));
    let end = live_rest.iter().rev().zip(desired_rest.iter().rev()).take_while(|(a, b)| a == b).count();
    let live = live_rest.get(..live_rest.len() - end).unwrap_or(&[]);
    let desired = desired_rest.get(..desired_rest.len() - end).unwrap_or(&[]);
    let lengths = common(live, desired);
    let length = |a: usize, b: usize| lengths.get(a).and_then(|row| row.get(b)).copied().unwrap_or(0);
    let (mut a, mut b, mut found) = (0, 0, Vec::new());
    loop {
        let (is_missing, place, rule) = match (live.get(a), desired.get(b)) {
            (Some(one), Some(other)) if one == other => {
                (a, b) = (a + 1, b + 1);
                continue;
            }
            (None, None) => return found,
            (Some(one), other) if other.is_none() || length(a + 1, b) >= length(a, b + 1) => {
                a += 1;
                (false, start + a, one)
            }
            (Some(_), None) => return found,
            (_, Some(other)) => {
                b += 1;
                (true, start + b, other)
            }
        };
        found.push(RuleDifference { is_missing, place, rule: rule.clone() });
    }
}

/// The length of the longest common subsequence from each pair of places on; empty for very long lists.
fn common(live: &[String], desired: &[String]) -> Vec<Vec<u32>> {
    if live.len().saturating_mul(desired.len()) > MOST_COMPARED {
        return Vec::new();
    }
    let mut below = vec![0; desired.len() + 1];
    let mut rows = vec![below.clone()];
    for one in live.iter().rev() {
        let mut row = vec![0; desired.len() + 1];
        for (at, other) in desired.iter().enumerate().rev() {
            let value = |row: &[u32], at: usize| row.get(at).copied().unwrap_or(0);
            let length = if one == other {
                value(&below, at + 1) + 1
            } else {
                value(&below, at).max(value(&row, at + 1))
            };
            if let Some(slot) = row.get_mut(at) {
                *slot = length;
            }
        }
        below.clone_from(&row);
        rows.push(row);
    }
    rows.reverse();
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_ordered_and_minimal() {
        let list = |text: &str| text.chars().map(String::from).collect::<Vec<_>>();
        let differences = |live: &str, desired: &str| {
            let all = ordered(&list(live), &list(desired));
            let text = |one: &RuleDifference| {
                format!("{}{}@{}", if one.is_missing { '+' } else { '-' }, one.rule, one.place)
            };
            all.iter().map(text).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(differences("abc", "abc"), "");
        assert_eq!(differences("abc", "ac"), "-b@2");
        assert_eq!(differences("ac", "abc"), "+b@2");
        assert_eq!(differences("axc", "abc"), "-x@2 +b@2");
        assert_eq!(differences("", "ab"), "+a@1 +b@2");
        assert_eq!(differences("abcd", "bcda"), "-a@1 +a@4");
    }
}
