//! The tables of iptables-nft, from what the kernel holds.
//!
//! What the save tool prints is not used: it leaves out tests that a later version wrote, and sets and ranges
//! of any version, without a word.

use std::collections::BTreeMap;

use nfnetlink::nftables::{
    Chain, Expression, Members, MetaKey, Operator, PayloadBase, Rule, TableName, Verdict,
};

use super::counters::{Counters, counted};
use super::expressions::{ReadRule, RuleContext, foreign_rules, read_rule};
use super::statement::{self, statement};
use super::{Line, Observed, ObservedTable, live_rule, native_rule, words};
use crate::model::{Family, Hook, Statement, Table};

/// A table of iptables-nft: its name, its chains, and what its sets and maps hold.
pub type KernelTable = (TableName, Vec<Chain>, Vec<Members>);

/// The words of the save tool for the rules of each chain, by table and chain.
pub type ToolWords = BTreeMap<(String, String), Vec<String>>;

/// Reads the words of each rule out of what the save tool printed.
#[must_use]
pub fn tool_words(saved: &str) -> ToolWords {
    let (mut found, mut table) = (ToolWords::new(), String::new());
    for line in words::records(saved) {
        if let Some(name) = line.strip_prefix('*') {
            name.trim().clone_into(&mut table);
        } else if let Some((chain, text)) = super::chain_and_words(line) {
            found.entry((table.clone(), chain.to_owned())).or_default().push(text.to_owned());
        }
    }
    found
}

/// Reads the tables of a family. Options of extensions that only the tool has words for come from `said`;
/// whether one is missing.
#[must_use]
pub fn kernel_tables(family: Family, tables: &[KernelTable], said: &ToolWords) -> (Observed, bool) {
    let (mut observed, mut lacks_options) = (Observed::empty(family), false);
    for (name, chains, sets) in tables {
        let Some(found) = observed.table_mut(&name.name) else { continue };
        for chain in chains.iter().filter(|chain| is_of_iptables(chain)) {
            found.declare(&chain.name, chain.base.as_ref().is_some_and(|base| base.policy == Verdict::Drop));
            let words = said.get(&(name.name.clone(), chain.name.clone()));
            let words = words.filter(|words| words.len() == chain.rules.len());
            for (at, rule) in chain.rules.iter().enumerate() {
                if let Some(statement) = plain_statement(family, rule) {
                    found.add(family, &chain.name, Line::modelled(None, statement));
                    continue;
                }
                lacks_options |=
                    add(found, family, &chain.name, rule, sets, words.and_then(|words| words.get(at)));
            }
        }
    }
    (observed, lacks_options)
}

/// A rule in terms of the model, if each version of iptables writes and reads it in one form without
/// extensions, as that of an excluded range.
fn plain_statement(family: Family, rule: &Rule) -> Option<Statement> {
    let is_plain = rule.comment.is_none() && !has_extension(rule) && every_version_reads(rule);
    let rules = is_plain.then(|| native_rule::rules_of(family, &rule.expressions, &[]))??;
    rules.first()?.statement().cloned()
}

/// Whether iptables has the chain: a base chain of another name is another program's.
fn is_of_iptables(chain: &Chain) -> bool {
    const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
    chain.base.is_none() || BUILT_IN.contains(&chain.name.as_str())
}

fn has_extension(rule: &Rule) -> bool {
    let is_extension = |expression: &Expression| matches!(expression, Expression::Foreign { name, .. } if name == "match" || name == "target");
    rule.expressions.iter().any(is_extension)
}

/// Adds a rule; whether an option of an extension is missing.
fn add(
    table: &mut ObservedTable,
    family: Family,
    chain: &str,
    rule: &Rule,
    sets: &[Members],
    said: Option<&String>,
) -> bool {
    let ReadRule { text, is_complete, lacks_options } = read_rule(family, rule);
    let of_nft = if is_complete { None } else { in_other_words(family, rule, sets) };
    // A rule of ours is never one that iptables has no words for.
    let is_ours = of_nft.is_none();
    let text = of_nft.unwrap_or(text);
    let lacks_options = lacks_options && has_extension(rule);
    let said = said.filter(|said| lacks_options && has_tests_of(family, said, &text));
    let text = said.cloned().unwrap_or(text);
    let words = words::split(&text).unwrap_or_default();
    let statement = if is_ours { statement::read(family, &words) } else { None };
    // The tool deletes what it reads, which is another rule or none.
    let of_nftables = !is_complete && !has_extension(rule);
    table.add(family, chain, Line { of_nftables, ..Line::of_words(text, &words, statement) });
    lacks_options
}

/// Whether the tool's words have each test that was read from the kernel: an older tool leaves some out.
fn has_tests_of(family: Family, said: &str, read: &str) -> bool {
    let (said, read) = (live_rule(family, said.to_owned()), live_rule(family, read.to_owned()));
    let has = said.tests();
    read.tests().iter().all(|test| {
        has.iter().any(|said| {
            (said.field, said.mask, said.is_negated, &said.values)
                == (test.field, test.mask, test.is_negated, &test.values)
        })
    })
}

/// A rule that another program wrote with nftables, if it is one rule in words of iptables.
fn in_other_words(family: Family, rule: &Rule, sets: &[Members]) -> Option<String> {
    match foreign_rules(family, rule, RuleContext { sets, links: &[] }).as_slice() {
        [only] => Some(only.words().into_owned()),
        _ => None,
    }
}

/// What each rule has counted, by chain and in order.
#[must_use]
pub fn kernel_counters(tables: &[KernelTable]) -> Counters {
    let mut counters = Counters::new();
    for (name, chains, _) in tables {
        let Some(table) = Table::ALL.into_iter().find(|table| table.name() == name.name) else { continue };
        for chain in chains {
            counters.insert((table, chain.name.clone()), chain.rules.iter().map(counted).collect());
        }
    }
    counters
}

/// The shared chains with a rule that some version of the tool reads without a part of it, or not at all:
/// there the tool may fail to find a rule of ours that is to be deleted.
#[must_use]
pub fn chains_to_be_listed(tables: &[KernelTable]) -> Vec<(Table, Hook)> {
    let mut found = Vec::new();
    for (name, chains, _) in tables {
        let Some(table) = Table::ALL.into_iter().find(|table| table.name() == name.name) else { continue };
        let doubtful = chains.iter().filter(|chain| !chain.rules.iter().all(every_version_reads));
        let hook = |chain: &Chain| Hook::ALL.into_iter().find(|hook| hook.name() == chain.name);
        found.extend(doubtful.filter_map(hook).map(|hook| (table, hook)));
    }
    found
}

/// Whether each version of iptables-nft reads all of a rule. iptables 1.8.9 and later write ports, marks and
/// flags in a form that earlier ones do not read.
fn every_version_reads(rule: &Rule) -> bool {
    rule.expressions.iter().all(|expression| match expression {
        Expression::Counter { .. } | Expression::Bitwise { .. } | Expression::Verdict(_) => true,
        Expression::Payload { base, .. } => *base == PayloadBase::Network,
        Expression::Compare { operator, .. } => matches!(operator, Operator::Equal | Operator::NotEqual),
        Expression::Foreign { name, .. } => name == "match" || name == "target",
        Expression::Meta { key, .. } => {
            matches!(key, MetaKey::InInterface | MetaKey::OutInterface | MetaKey::TransportProtocol)
        }
        Expression::Range { .. }
        | Expression::Redirect { .. }
        | Expression::Tproxy { .. }
        | Expression::Ct { .. }
        | Expression::SetMeta { .. }
        | Expression::SetCt { .. }
        | Expression::Lookup { .. }
        | Expression::Immediate { .. }
        | Expression::Socket { .. } => false,
    })
}

/// Whether the tool lists a shared chain as the kernel holds it, so that it finds each rule of ours there.
#[must_use]
pub fn is_listed_right(family: Family, lines: &[Line], listed: &str) -> bool {
    let listed = words::records(listed).filter_map(super::chain_and_words);
    let said = listed.map(|(_, text)| statement(family, text));
    said.eq(lines.iter().map(|line| line.statement.clone()))
}

#[cfg(test)]
mod tests {
    use nfnetlink::nftables::{Family as NftFamily, Register};

    use super::*;
    use crate::model::{Chain as OurChain, Port};

    const REGISTER: Register = Register::ONE;

    fn test(load: Expression, value: &[u8]) -> [Expression; 2] {
        let compare =
            Expression::Compare { register: REGISTER, operator: Operator::Equal, value: value.to_vec() };
        [load, compare]
    }

    fn tcp() -> [Expression; 2] {
        test(Expression::Meta { key: MetaKey::TransportProtocol, register: REGISTER }, &[6])
    }

    fn lines(rules: Vec<Rule>) -> Vec<Line> {
        let chain = Chain { name: "ISTIO_OUTPUT".to_owned(), base: None, rules };
        let table = (TableName::new(NftFamily::Ip, "nat"), vec![chain], Vec::new());
        let mut observed = kernel_tables(Family::V4, &[table], &ToolWords::new()).0;
        let mut nat = observed.tables.remove(&Table::Nat).expect("the table");
        nat.chains.remove(&OurChain::Output).expect("the chain")
    }

    /// As iptables 1.8.9 and later write a port, which 1.8.7 does not list.
    #[test]
    fn native_tests_of_ports_are_read() {
        let load =
            Expression::Payload { base: PayloadBase::Transport, offset: 2, length: 2, register: REGISTER };
        let port = test(load, &8080_u16.to_be_bytes());
        let rule = Rule::new([&tcp()[..], &port, &[Expression::Verdict(Verdict::Return)]].concat());
        assert!(!every_version_reads(&rule));
        let [line] = lines(vec![rule]).try_into().expect("one line");
        assert_eq!(line.text(), "-p tcp -m tcp --dport 8080 -j RETURN");
        let statement = line.statement.expect("a rule of ours");
        let ports = statement.matcher.protocol.and_then(|protocol| protocol.destination);
        assert_eq!(
            ports.map(|ports| format!("{ports:?}")),
            Some(format!("Is(One({:?}))", Port::new(8080).expect("a port")))
        );
    }

    /// Each is read as if it were alone, whatever was before it.
    #[test]
    fn rules_for_ranges_are_read_like_single_ones() {
        let load =
            Expression::Payload { base: PayloadBase::Network, offset: 16, length: 4, register: REGISTER };
        let to = |address: [u8; 4], mask: [u8; 4], rest: &[Expression]| {
            let (mask, xor) = (mask.to_vec(), vec![0; 4]);
            let masked = Expression::Bitwise { source: REGISTER, destination: REGISTER, mask, xor };
            let value = address.to_vec();
            let compare = Expression::Compare { register: REGISTER, operator: Operator::Equal, value };
            Rule::new([&[load.clone(), masked, compare], rest].concat())
        };
        let leaves = [Expression::Verdict(Verdict::Return)];
        let drops = [Expression::Verdict(Verdict::Drop)];
        let of_tcp = [&tcp()[..], &leaves].concat();
        let rules = vec![
            to([10, 0, 0, 0], [255, 255, 128, 0], &leaves),
            to([10, 1, 128, 0], [255, 255, 128, 0], &leaves),
            to([10, 2, 2, 4], [255, 255, 255, 252], &leaves),
            to([10, 3, 0, 0], [255, 255, 128, 0], &drops),
            to([10, 4, 0, 0], [255, 255, 128, 0], &drops),
            to([10, 5, 0, 0], [255, 255, 128, 0], &of_tcp),
            to([10, 6, 0, 1], [255, 255, 128, 0], &of_tcp),
            to([10, 7, 0, 0], [255, 0, 128, 0], &of_tcp),
            to([10, 8, 0, 0], [255, 255, 128, 0], &leaves),
        ];
        let alone: Vec<Line> = rules.iter().flat_map(|rule| lines(vec![rule.clone()])).collect();
        assert_eq!(lines(rules), alone);
        let texts: Vec<_> = alone.iter().map(|line| line.text()).collect();
        assert_eq!(
            texts[..3],
            ["-d 10.0.0.0/17 -j RETURN", "-d 10.1.128.0/17 -j RETURN", "-d 10.2.2.4/30 -j RETURN"]
        );
    }

    #[test]
    fn rule_with_an_unknown_set_is_never_ours() {
        let load =
            Expression::Payload { base: PayloadBase::Network, offset: 16, length: 4, register: REGISTER };
        let lookup = Expression::Lookup { set: "hosts".to_owned(), register: REGISTER, inverted: false };
        let rule = Rule::new([&tcp()[..], &[load, lookup, Expression::Verdict(Verdict::Return)]].concat());
        assert!(!every_version_reads(&rule));
        let plain = Rule::new([&tcp()[..], &[Expression::Verdict(Verdict::Return)]].concat());
        assert!(every_version_reads(&plain));
        let [of_set, plain] = lines(vec![rule, plain]).try_into().expect("two lines");
        assert_eq!(of_set.statement, None);
        assert!(of_set.text().starts_with("-p tcp -m unknown"), "{}", of_set.text());
        assert_eq!(plain.text(), "-p tcp -j RETURN");
    }
}
