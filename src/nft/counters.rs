//! Keeps counters when rules are replaced.

use crate::ordered::Ordered as _;
use std::collections::BTreeMap;

use nfnetlink::nftables::{Expression, KeyType, Register, Rule, Set, Table};

type Sets<'a> = BTreeMap<&'a str, &'a Set>;

/// Takes over the counters of live tables: those of rules with the same effect and reason, in order.
pub fn carry_counters(tables: &mut [Table], live: &[Table]) {
    for table in tables {
        let Some(before) = live.iter().find(|before| before.name == table.name) else { continue };
        let (names, known) = (by_name(&before.sets), by_name(&table.sets));
        for chain in &mut table.chains {
            let same = before.chains.iter().find(|other| other.name == chain.name);
            let mut left: Vec<&Rule> = same.into_iter().flat_map(|chain| &chain.rules).collect();
            for rule in &mut chain.rules {
                let of_rule = left.iter().position(|other| is_same((other, &names), (rule, &known)));
                let Some(counts) = of_rule.and_then(|index| counter(left.remove(index))) else { continue };
                for expression in &mut rule.expressions {
                    if let Expression::Counter { packets, bytes } = expression {
                        (*packets, *bytes) = counts;
                    }
                }
            }
        }
    }
}

pub(super) fn counter(rule: &Rule) -> Option<(u64, u64)> {
    let counts = |expression: &Expression| {
        if let Expression::Counter { packets, bytes } = expression { Some((*packets, *bytes)) } else { None }
    };
    rule.expressions.iter().find_map(counts)
}

/// The sets by name: numbers of anonymous ones depend on other rules.
fn by_name(sets: &[Set]) -> Sets<'_> {
    sets.iter().map(|set| (set.name.as_str(), set)).into_map()
}

/// Whether rules have the same reason and do the same. A list that has changed is the same rule.
fn is_same((one, of_one): (&Rule, &Sets<'_>), (other, of_other): (&Rule, &Sets<'_>)) -> bool {
    one.comment == other.comment && parts(one, of_one).eq(parts(other, of_other))
}

/// What a rule does, without its counters.
fn parts<'a>(rule: &'a Rule, sets: &Sets<'_>) -> impl Iterator<Item = Part<'a>> {
    let expressions = rule.expressions.iter();
    let others = expressions.filter(|expression| !matches!(expression, Expression::Counter { .. }));
    others.map(|expression| {
        if let Expression::Lookup { set, register, inverted } = expression {
            Part::Lookup(sets.get(set.as_str()).map(|set| set.key), *register, *inverted)
        } else {
            Part::Other(expression)
        }
    })
}

/// An expression, without the name of a set.
#[derive(PartialEq, Eq)]
enum Part<'a> {
    Lookup(Option<KeyType>, Register, bool),
    Other(&'a Expression),
}
