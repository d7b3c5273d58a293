//! Keeps counters when rules are replaced.

use crate::ordered::Ordered as _;
use std::collections::BTreeMap;

use nfnetlink::nftables::{Expression, Rule, Set, Table};

/// Takes over the counters of live tables: those of rules with the same effect and reason, in order.
pub fn carry_counters(tables: &mut [Table], live: &[Table]) {
    for table in tables {
        let Some(before) = live.iter().find(|before| before.name == table.name) else { continue };
        let names = by_name(&before.sets);
        let known = by_name(&table.sets);
        let mut counted: BTreeMap<String, Vec<(u64, u64)>> = BTreeMap::new();
        for chain in &before.chains {
            for rule in chain.rules.iter().rev() {
                let counts = counted.entry(key(&chain.name, rule, &names)).or_default();
                counts.extend(counter(rule));
            }
        }
        for chain in &mut table.chains {
            for rule in &mut chain.rules {
                let counts = counted.get_mut(&key(&chain.name, rule, &known)).and_then(Vec::pop);
                for expression in &mut rule.expressions {
                    if let (Expression::Counter { packets, bytes }, Some(counts)) = (expression, counts) {
                        (*packets, *bytes) = counts;
                    }
                }
            }
        }
    }
}

fn counter(rule: &Rule) -> Option<(u64, u64)> {
    let counts = |expression: &Expression| {
        if let Expression::Counter { packets, bytes } = expression { Some((*packets, *bytes)) } else { None }
    };
    rule.expressions.iter().find_map(counts)
}

/// The sets by name: numbers of anonymous ones depend on other rules.
fn by_name(sets: &[Set]) -> BTreeMap<&str, &Set> {
    sets.iter().map(|set| (set.name.as_str(), set)).into_map()
}

/// A rule without its counters: its chain, its reason, and what it does. A list that has changed is the same
/// rule.
fn key(chain: &str, rule: &Rule, sets: &BTreeMap<&str, &Set>) -> String {
    let expressions: Vec<String> = rule
        .expressions
        .iter()
        .filter(|expression| !matches!(expression, Expression::Counter { .. }))
        .map(|expression| {
            if let Expression::Lookup { set, register, inverted } = expression {
                let kind = sets.get(set.as_str()).map(|set| set.key);
                format!("lookup {kind:?} {register:?} {inverted}")
            } else {
                format!("{expression:?}")
            }
        })
        .collect();
    format!("{chain} {:?} {}", rule.comment, expressions.join(" "))
}
