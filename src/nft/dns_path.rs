//! The path of DNS queries in the nat table.

use nfnetlink::nftables::{
    Chain as NftChain, Elements, Expression, MetaKey, Operator, PayloadBase, Rule, Set, Table, Verdict,
};

use super::rule_family::{NAT, families, family_of, is_tcp};
use super::types::{ChainName, NativeTable};
use crate::model::{Chain, DNS_PORT, Family, Hook};
use crate::ordered::Ordered as _;

/// A rule that a DNS query meets: its expressions, and the contents of the sets in which it looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsRule {
    expressions: Vec<Expression>,
    sets: Vec<Set>,
    /// Owners that it does not apply to, each as what is loaded and what it is compared with.
    pub exceptions: Vec<[Expression; 2]>,
}

impl DnsRule {
    /// Whether it hands a query to the proxy.
    #[must_use]
    pub fn redirects(&self) -> bool {
        self.expressions.iter().any(|expression| matches!(expression, Expression::Redirect { .. }))
    }

    /// Whether it looks for another destination port than that of queries.
    fn is_for_another_port(&self) -> bool {
        let looks_for = |pair: &[Expression]| match pair {
            [
                Expression::Payload { base: PayloadBase::Transport, offset: 2, length: 2, .. },
                Expression::Compare { operator: Operator::Equal, value, .. },
            ] => *value != DNS_PORT.number().to_be_bytes(),
            _ => false,
        };
        self.expressions.windows(2).any(looks_for)
    }

    /// The rule without its test of the destination.
    #[must_use]
    pub fn of_any_server(&self) -> Self {
        Self { expressions: without(self.expressions.clone(), loads_destination), ..self.clone() }
    }

    /// Whether it lets a query pass.
    #[must_use]
    pub fn excludes(&self) -> bool {
        matches!(self.expressions.last(), Some(Expression::Verdict(Verdict::Return | Verdict::Accept)))
    }
}

/// The rules that a DNS query meets, of tables that are to be written.
#[must_use]
pub fn dns_path_of(desired: &[NativeTable], family: Family) -> Vec<DnsRule> {
    let nat = desired.iter().find(|table| table.name() == NAT);
    nat.map(|nat| dns_path(&super::encode(nat).normalized(), family)).unwrap_or_default()
}

pub(super) fn dns_path(nat: &Table, family: Family) -> Vec<DnsRule> {
    let dns = ChainName::Own(Chain::OutputDns).to_string();
    let parts = [ChainName::Hook(Hook::Output), ChainName::Own(Chain::Output)].map(|name| name.to_string());
    let of_part = |part: &String| {
        let begins =
            |chain: &&NftChain| chain.name == *part || chain.name.starts_with(&format!("{part}-rest"));
        // A rest with a higher number goes on where the one before it ends.
        nat.chains.iter().filter(begins).into_sorted_by_key(|chain| (chain.name.len(), chain.name.clone()))
    };
    let jumps = |rule: &&Rule| matches!(rule.expressions.last(), Some(Expression::Verdict(Verdict::Jump(name))) if *name == dns);
    let before: Vec<&Rule> = parts.iter().flat_map(of_part).flat_map(|chain| &chain.rules).collect();
    let Some(last) = before.iter().rposition(jumps) else { return Vec::new() };
    if !families(nat).contains(&family) {
        return Vec::new();
    }
    let own = nat.chains.iter().filter(|chain| chain.name == dns).flat_map(|chain| &chain.rules);
    let all = before.into_iter().take(last + 1).chain(own);
    let relevant = all.filter(|rule| family_of(rule).is_none_or(|only| only == family) && !is_tcp(rule));
    let with_sets = |rule: &Rule| {
        let sets = nat.sets.iter().filter(|set| rule.refers_to(&set.name));
        // Numbers of anonymous sets depend on other rules.
        let sets = sets.map(|set| Set { name: String::new(), ..set.clone() }).collect();
        // Only a rule with an address names the family, which all of these have.
        let mut expressions = without(rule.expressions.clone(), loads_family);
        for expression in &mut expressions {
            if let Expression::Lookup { set, .. } = expression {
                set.clear();
            }
        }
        DnsRule { expressions, sets, exceptions: Vec::new() }
    };
    let single = without_gotos(relevant.map(with_sets)).into_iter().flat_map(per_element);
    single.filter(|rule| !rule.is_for_another_port()).collect()
}

fn loads_family(expression: &Expression) -> bool {
    matches!(expression, Expression::Meta { key: MetaKey::NetworkProtocol, .. })
}

/// Whether it loads the destination address of the IPv4 or IPv6 header.
fn loads_destination(expression: &Expression) -> bool {
    matches!(
        expression,
        Expression::Payload { base: PayloadBase::Network, offset: 16, length: 4, .. }
            | Expression::Payload { base: PayloadBase::Network, offset: 24, length: 16, .. }
    )
}

/// The expressions without the comparisons for equality with what `loads` loads.
fn without(mut expressions: Vec<Expression>, loads: fn(&Expression) -> bool) -> Vec<Expression> {
    let is_test = |pair: &[Expression]| match pair {
        [load, Expression::Compare { operator: Operator::Equal, .. }] => loads(load),
        _ => false,
    };
    while let Some(at) = expressions.windows(2).position(is_test) {
        expressions.drain(at..at + 2);
    }
    expressions
}

/// Expands a rule that looks up a set into one rule per element: a comparison of two versions of the rule
/// then shows which elements were added or removed.
fn per_element(rule: DnsRule) -> Vec<DnsRule> {
    let looks_up = |expression: &Expression| matches!(expression, Expression::Lookup { .. });
    let lookups: Vec<usize> =
        (0..rule.expressions.len()).filter(|at| rule.expressions.get(*at).is_some_and(looks_up)).collect();
    let [at] = lookups.as_slice() else { return vec![rule] };
    let Some(values) = rule.expressions.get(*at).and_then(|lookup| elements(lookup, &rule.sets)) else {
        return vec![rule];
    };
    let of = |equal: Expression| {
        let expressions = rule.expressions.iter().enumerate();
        let expressions = expressions.map(|(other, old)| if other == *at { &equal } else { old });
        DnsRule { expressions: expressions.cloned().collect(), sets: Vec::new(), ..rule.clone() }
    };
    values.into_iter().map(of).collect()
}

/// The comparisons that a lookup replaces, one per element of the set.
fn elements(lookup: &Expression, sets: &[Set]) -> Option<Vec<Expression>> {
    let (
        Expression::Lookup { register, inverted: false, .. },
        [Set { elements: Elements::Values(values), .. }],
    ) = (lookup, sets)
    else {
        return None;
    };
    let equal = |value: &Vec<u8>| Expression::Compare {
        register: *register,
        operator: Operator::Equal,
        value: value.clone(),
    };
    Some(values.iter().map(equal).collect())
}

/// Joins what a negated owner is written as: "these owners go on behind the rule" and "all others leave" are
/// one rule with exceptions.
fn without_gotos(rules: impl Iterator<Item = DnsRule>) -> Vec<DnsRule> {
    let mut joined: Vec<DnsRule> = Vec::new();
    let mut open: Option<DnsRule> = None;
    for rule in rules {
        let is_goto = matches!(rule.expressions.last(), Some(Expression::Verdict(Verdict::Goto(_))));
        let is_for_all = matches!(rule.expressions.as_slice(), [Expression::Counter { .. }, _]);
        if is_goto && is_for_all {
            continue;
        }
        let rule = if is_goto { of_all_others(rule) } else { rule };
        let rule = match open.take() {
            Some(mut before) => {
                before.expressions.extend(rule.expressions);
                before.sets.extend(rule.sets);
                before.exceptions.extend(rule.exceptions);
                before
            }
            None => rule,
        };
        if is_goto {
            open = Some(rule);
        } else {
            joined.push(rule);
        }
    }
    joined.extend(open);
    joined
}

/// The rule with the owners of its `goto` as exceptions, if it is only about owners.
fn of_all_others(rule: DnsRule) -> DnsRule {
    let [load @ Expression::Meta { .. }, test, Expression::Counter { .. }, goto] =
        rule.expressions.as_slice()
    else {
        return rule;
    };
    let is_one = matches!(test, Expression::Compare { operator: Operator::Equal, .. });
    let tests = if is_one { Some(vec![test.clone()]) } else { elements(test, &rule.sets) };
    let Some(tests) = tests else { return rule };
    let exceptions = tests.into_iter().map(|test| [load.clone(), test]).collect();
    DnsRule { expressions: vec![goto.clone()], sets: Vec::new(), exceptions }
}
