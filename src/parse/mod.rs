//! Parses `iptables-save` output into the model.
//!
//! Our rules are parsed in full; foreign ones are kept as text. `iptables-save` rewrites marks, option order,
//! TPROXY and CONNMARK, so text cannot be compared, but statements can.

mod counters;
mod expressions;
mod kernel;
mod legacy;
mod live_rule;
pub mod matches;
mod native_rule;
mod native_tables;
mod refused;
mod statement;
mod words;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use ipnetwork::IpNetwork;

use crate::live_rules::LiveRule;
use crate::model::{Chain, Family, Hook, Match, Statement, Table, TableHandles};
use crate::record::Record;

pub use counters::{Counters, Counts, counters, native_counters};
pub use expressions::{RuleContext, foreign_rules, has_packets_of, words_of_rule};
pub use kernel::{
    KernelTable, ToolWords, chains_to_be_listed, is_listed_right, kernel_counters, kernel_tables, tool_words,
};
pub use legacy::{counts as legacy_counts, saved_tables};
pub use live_rule::live_rule;
pub use native_tables::{NativeLine, NativeRules, first_part, leaving_owner, native, why_of};
pub use refused::refused;
pub use statement::{protocol_number, statement};

/// One rule as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The words of the rule behind `-A CHAIN`, as printed; `None`: those of the statement. Bytes that are
    /// not UTF-8 are replaced: only rules that are understood are ever written back, and those have none.
    pub words: Option<String>,
    /// What it says, if the model has words for all of it: not with a comment, which no rule of ours carries.
    pub statement: Option<Statement>,
    /// The chain of ours that it jumps to, understood or not.
    pub jump: Option<Chain>,
    /// The nf_tables handle of the rule, where that is known: unique in its table, and higher the later a
    /// rule was added.
    pub handle: Option<u64>,
    /// Whether it is ours, where a plan knows that: in what will be live after some of its steps.
    pub ours: Option<bool>,
    /// Whether iptables has no words for it, and so cannot delete it.
    pub of_nftables: bool,
}

impl Line {
    /// A rule that the model has terms for.
    pub(crate) const fn modelled(words: Option<String>, statement: Statement) -> Self {
        let jump = statement.target.jump();
        Self { words, statement: Some(statement), jump, handle: None, ours: None, of_nftables: false }
    }

    /// A rule by its words.
    fn of_words(text: String, words: &[String], statement: Option<Statement>) -> Self {
        let jump = words::target(words).and_then(Chain::from_name);
        Self { words: Some(text), statement, jump, handle: None, ours: None, of_nftables: false }
    }

    /// The words of the rule behind `-A CHAIN`.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        match (&self.words, &self.statement) {
            (Some(words), _) => Cow::Borrowed(words),
            (None, statement) => statement.as_ref().map(ToString::to_string).unwrap_or_default().into(),
        }
    }

    /// The rule with its tests and its effect.
    #[must_use]
    pub fn live(&self, family: Family) -> LiveRule {
        match (&self.statement, &self.words) {
            (Some(statement), Some(words)) => LiveRule::modelled(statement.clone(), words.clone()),
            (Some(statement), None) => statement.clone().into(),
            (None, _) => live_rule(family, self.text().into_owned()).of_nftables(self.of_nftables),
        }
    }

    /// The words of the rule but for its comments.
    #[must_use]
    pub(crate) fn words_without_comments(&self) -> String {
        words::without_comments(&self.text())
    }
}

/// The live rules of one table that concern us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedTable {
    /// Our own chains.
    pub chains: BTreeMap<Chain, Vec<Line>>,
    /// All rules of the shared chains that we hang ours into.
    pub hooks: BTreeMap<Hook, Vec<Line>>,
    /// Chains of ours that a foreign chain jumps to, with its name: they cannot be deleted.
    pub held: BTreeMap<Chain, String>,
    /// The shared chains with the policy DROP.
    pub drops: BTreeSet<Hook>,
    /// The chains with the policy DROP, of those that packets meet behind ours: `INPUT` and `POSTROUTING`.
    /// Their rules are those of foreign chains.
    pub drops_behind: BTreeSet<&'static str>,
    /// The rules of foreign chains, by the name of the chain.
    pub foreign: BTreeMap<String, Vec<LiveRule>>,
    /// The shared chains that the tool cannot list: it can add rules there, but delete none.
    pub unlisted: BTreeSet<Hook>,
    /// The handles of the table, in nf_tables.
    pub handles: Option<TableHandles>,
}

impl ObservedTable {
    /// The rules of a shared chain.
    #[must_use]
    pub fn hook(&self, hook: Hook) -> &[Line] {
        self.hooks.get(&hook).map_or(&[], Vec::as_slice)
    }
}

/// The live rules of one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Whose rules these are.
    pub family: Family,
    /// The tables we write to, as far as they exist.
    pub tables: BTreeMap<Table, ObservedTable>,
    /// The table `filter`, in which we never write. Captured packets come through it after our rules.
    pub filter: ObservedTable,
    /// The table `security`, which packets meet behind it.
    pub security: ObservedTable,
    /// What the last run recorded in the namespace; `None` if our rules are not there, or another program's.
    pub record: Option<Record>,
}

impl Observed {
    /// A namespace without rules of ours.
    #[must_use]
    pub fn empty(family: Family) -> Self {
        let (filter, security) = Default::default();
        Self { family, tables: BTreeMap::new(), filter, security, record: None }
    }

    /// The tables that packets meet behind those that we write to: name, priority, rules.
    #[must_use]
    pub const fn later_tables(&self) -> [(&'static str, i32, &ObservedTable); 2] {
        [("filter", 0, &self.filter), ("security", 50, &self.security)]
    }

    /// The rules in the format of the save tool, for the log.
    #[must_use]
    pub fn listed(&self) -> String {
        let tables = self.tables.iter().map(|(table, rules)| (table.name(), rules));
        let tables = tables.chain([(FILTER, &self.filter), (SECURITY, &self.security)]);
        let mut text = String::new();
        for (name, table) in tables {
            let own = table.chains.iter().map(|(chain, lines)| (chain.name(), lines));
            let hooks = table.hooks.iter().map(|(hook, lines)| (hook.name(), lines));
            let lines = own
                .chain(hooks)
                .flat_map(|(chain, lines)| lines.iter().map(move |line| (chain, line.text())));
            let foreign = table.foreign.iter();
            let foreign = foreign
                .flat_map(|(chain, rules)| rules.iter().map(move |rule| (chain.as_str(), rule.words())));
            for (chain, words) in lines.chain(foreign) {
                text += &format!("-t {name} -A {chain} {words}\n");
            }
        }
        text.trim_end().to_owned()
    }

    /// A table, which is added if it is not there; `None` if it does not concern us.
    fn table_mut(&mut self, name: &str) -> Option<&mut ObservedTable> {
        match name {
            FILTER => Some(&mut self.filter),
            SECURITY => Some(&mut self.security),
            name => {
                let table = Table::ALL.into_iter().find(|table| table.name() == name)?;
                Some(self.tables.entry(table).or_default())
            }
        }
    }

    /// Removes a table.
    pub fn remove(&mut self, table: &str) {
        self.tables.retain(|found, _| found.name() != table);
        match table {
            FILTER => self.filter = ObservedTable::default(),
            SECURITY => self.security = ObservedTable::default(),
            _ => {}
        }
    }

    /// Adds the handles of one table.
    pub fn number(&mut self, table: Table, handles: &TableHandles) {
        let Some(observed) = self.tables.get_mut(&table) else { return };
        let own = observed.chains.iter_mut().map(|(chain, lines)| (chain.name(), lines));
        for (name, lines) in own.chain(observed.hooks.iter_mut().map(|(hook, lines)| (hook.name(), lines))) {
            let rules = handles.rules.get(name).map_or(&[][..], Vec::as_slice);
            if rules.len() == lines.len() {
                for (line, handle) in lines.iter_mut().zip(rules) {
                    line.handle = Some(*handle);
                }
            }
        }
        observed.handles = Some(handles.clone());
    }

    /// Whether any chain of ours, or a jump to one, is there.
    #[must_use]
    pub fn has_ours(&self) -> bool {
        let jumps = |table: &ObservedTable| table.hooks.values().flatten().any(|line| line.jump.is_some());
        self.tables.values().any(|table| !table.chains.is_empty() || jumps(table))
    }
}

/// Placeholder target of a foreign rule that iptables cannot list.
pub const UNREADABLE: &str = "rules that iptables cannot read";

/// Placeholder target of a rule that writes an address or a port into the header of a packet.
pub const REWRITES: &str = "header field set";

/// The table that decides which packets are let through.
pub const FILTER: &str = "filter";
/// The table for mandatory access control.
pub const SECURITY: &str = "security";
/// The chain of packets for this machine.
pub const INPUT: &str = "INPUT";
/// The chain that only forwarded packets meet.
pub const FORWARD: &str = "FORWARD";
/// The chain of packets that leave, also over `lo`.
pub const POSTROUTING: &str = "POSTROUTING";

/// Reads the output of `iptables-save` or `ip6tables-save`.
#[must_use]
pub fn iptables_save(family: Family, text: &str) -> Observed {
    let mut observed = Observed::empty(family);
    let (mut current, mut earlier) = (None, None);
    for line in words::records(text) {
        if let Some(name) = line.strip_prefix('*') {
            let name = name.trim();
            // The legacy tool prints a table twice if another table is created while it reads the list of
            // tables.
            observed.remove(name);
            (current, earlier) = (Some(name), None);
        } else if let Some(table) = current.and_then(|name| observed.table_mut(name)) {
            read_line(family, line, table, &mut earlier);
        }
    }
    observed
}

/// The first table of a saved rule set that has no end, as its name is printed: the text is cut off there.
#[must_use]
pub fn cut_off(text: &str) -> Option<&str> {
    let mut open = None;
    for line in words::records(text) {
        if line.starts_with('*') {
            if open.is_some() {
                break;
            }
            open = Some(line);
        } else if line == "COMMIT" {
            open = None;
        }
    }
    open
}

/// A rule for a range of destinations, as of a long list of excluded ranges: most rules behind it differ in
/// the range only.
struct DestinationLine<'a> {
    chain: &'a str,
    /// The words of the rule behind the range.
    rest: &'a str,
    statement: Statement,
}

/// The range that a rule tests first, and its words behind that.
fn destination_of(text: &str) -> Option<(IpNetwork, &str)> {
    let (range, rest) = text.strip_prefix("-d ")?.split_once(' ')?;
    let network: IpNetwork = range.parse().ok().filter(|_| range.contains('/'))?;
    // A range of all addresses is no test.
    (network.prefix() > 0 && network.network() == network.ip()).then_some((network, rest))
}

fn read_line<'a>(
    family: Family,
    line: &'a str,
    table: &mut ObservedTable,
    earlier: &mut Option<DestinationLine<'a>>,
) {
    if let Some(declaration) = line.strip_prefix(':') {
        let mut words = declaration.split(' ');
        let name = words.next().unwrap_or_default();
        table.declare(name, words.next() == Some("DROP"));
        return;
    }
    let Some((name, text)) = chain_and_words(line) else { return };
    let destination = destination_of(text);
    if let (Some(known), Some((network, rest))) = (&earlier, destination)
        && (known.chain, known.rest) == (name, rest)
        && network.is_ipv4() == (family == Family::V4)
    {
        let mut statement = known.statement.clone();
        statement.matcher.destination = Some(Match::Is(network));
        table.add(family, name, Line::modelled(Some(text.to_owned()), statement));
        return;
    }
    let words = words::split(text).unwrap_or_default();
    let statement = statement::read(family, &words);
    let of_range = |(network, rest)| {
        let statement = statement.clone().filter(|it| it.matcher.destination == Some(Match::Is(network)))?;
        Some(DestinationLine { chain: name, rest, statement })
    };
    *earlier = destination.and_then(of_range);
    table.add(family, name, Line::of_words(text.to_owned(), &words, statement));
}

impl ObservedTable {
    /// Notes a chain, and whether its policy is DROP.
    fn declare(&mut self, name: &str, drops: bool) {
        if let Some(chain) = Chain::from_name(name) {
            self.chains.entry(chain).or_default();
        }
        self.drops_behind
            .extend([INPUT, POSTROUTING].into_iter().find(|behind| *behind == name).filter(|_| drops));
        self.drops.extend(Hook::ALL.into_iter().find(|hook| hook.name() == name).filter(|_| drops));
    }

    /// The rules of a chain of ours, or of a shared one.
    fn lines_mut(&mut self, name: &str) -> Option<&mut Vec<Line>> {
        if let Some(chain) = Chain::from_name(name) {
            return Some(self.chains.entry(chain).or_default());
        }
        let hook = Hook::ALL.into_iter().find(|hook| hook.name() == name)?;
        Some(self.hooks.entry(hook).or_default())
    }

    /// Adds a rule behind those of its chain.
    fn add(&mut self, family: Family, name: &str, line: Line) {
        if let Some(lines) = self.lines_mut(name) {
            lines.push(line);
            return;
        }
        self.held.extend(line.jump.map(|chain| (chain, name.to_owned())));
        self.foreign.entry(name.to_owned()).or_default().push(line.live(family));
    }
}

/// `53`, `1024:65535` or `53,5353:5360`; `None` if it is none of these.
#[must_use]
pub fn port_ranges(text: &str) -> Option<Vec<RangeInclusive<u16>>> {
    let range = |text: &str| -> Option<RangeInclusive<u16>> {
        let (first, last) = text.split_once(':').unwrap_or((text, text));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    text.split(',').map(range).collect()
}

/// `-A CHAIN words`, possibly with counters before it, as chain and words.
fn chain_and_words(line: &str) -> Option<(&str, &str)> {
    let line = match line.strip_prefix('[') {
        Some(counted) => counted.split_once("] ")?.1,
        None => line,
    };
    let rest = line.strip_prefix("-A ")?;
    Some(rest.split_once(' ').unwrap_or((rest, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_without_its_end_is_found() {
        let whole = "# Generated\n*raw\n-A OUTPUT -j NOTRACK -m comment --comment \"\n*x\n\"\nCOMMIT\n# Completed\n*nat\nCOMMIT\n";
        assert_eq!(cut_off(whole), None);
        assert_eq!(cut_off(""), None);
        for (text, table) in [
            (whole.strip_suffix("COMMIT\n").unwrap_or_default(), "*nat"),
            (whole.strip_suffix("MIT\n").unwrap_or_default(), "*nat"),
            (&whole.replacen("COMMIT\n", "", 1), "*raw"),
        ] {
            assert_eq!(cut_off(text), Some(table), "{text}");
        }
    }

    /// Each is read as if it were alone, whatever was before it.
    #[test]
    fn rules_for_ranges_are_read_like_single_ones() {
        let rules = [
            "-d 10.0.0.0/17 -j RETURN",
            "-d 10.1.0.0/16 -j RETURN",
            "-d 10.1.0.1 -j RETURN",
            "-d 10.1.0.1/16 -j RETURN",
            "-d 0.0.0.0/0 -j RETURN",
            "-d fd00::/8 -j RETURN",
            "-d 10.2.0.0/16 -p tcp -j RETURN",
            "-d 10.3.0.0/16 -p tcp -j RETURN",
            "-d 10.4.0.0/16 -m comment --comment \"a b\" -j RETURN",
            "-d 10.5.0.0/16 -m comment --comment \"a b\" -j RETURN",
            "-d 10.6.0.0/16 -j ISTIO_REDIRECT",
            "-d 10.7.0.0/16 -j ISTIO_REDIRECT",
            "! -d 10.8.0.0/16 -j RETURN",
            "-d 10.9.0.0/16 -j RETURN",
        ];
        let read = |rules: &[&str]| {
            let mut text = String::from("*nat\n:OUTPUT ACCEPT [0:0]\n:ISTIO_OUTPUT - [0:0]\n");
            for rule in rules {
                text += &format!("-A ISTIO_OUTPUT {rule}\n");
            }
            let mut observed = iptables_save(Family::V4, &(text + "COMMIT\n"));
            let mut nat = observed.tables.remove(&Table::Nat).expect("the table");
            nat.chains.remove(&Chain::Output).expect("the chain")
        };
        let alone: Vec<Line> = rules.iter().flat_map(|rule| read(&[rule])).collect();
        assert_eq!(read(&rules), alone);
    }

    #[test]
    fn table_that_is_printed_twice_counts_once() {
        let raw = "*raw\n:PREROUTING ACCEPT [0:0]\n:ISTIO_INBOUND - [0:0]\n-A PREROUTING -j ISTIO_INBOUND\nCOMMIT\n";
        let nat = "*nat\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -i eth1 -j RETURN\nCOMMIT\n";
        let once = iptables_save(Family::V6, &format!("{nat}{raw}"));
        let twice = iptables_save(Family::V6, &format!("{nat}{raw}{raw}"));
        for observed in [once, twice] {
            let hooks: usize = observed.tables.values().map(|table| table.hook(Hook::Prerouting).len()).sum();
            assert_eq!((hooks, observed.tables.len()), (2, 2));
        }
    }
}
