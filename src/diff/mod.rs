//! Desired against observed, in order, as statements: what has to change.

mod limit;
mod ownership;
mod projection;

pub(crate) use ownership::{marks_in_use, our_rules};

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use crate::model::{Chain, Family, FamilyRules, Hook, HookRules, Rule, Statement, Table, TableRules, Target};
use crate::parse::{Line, Observed, ObservedTable};

/// A rule to take out of a shared chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The chain that holds it.
    pub hook: Hook,
    /// How it is named.
    pub what: Deleted,
}

/// How a rule to be deleted is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// By its rule number, counted from 1, where an identical foreign rule comes before it.
    Number(usize),
    /// By its rule specification: deletes no other rule, even if the chain changes meanwhile.
    Specification(String),
}

impl fmt::Display for Deleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Specification(words) => f.write_str(words),
        }
    }
}

/// The changes of one table, in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChange {
    /// The table.
    pub table: Table,
    /// Chains that are made or refilled.
    pub declare: BTreeMap<Chain, Vec<Rule>>,
    /// Rules that leave the shared chains.
    pub deletions: Vec<Deletion>,
    /// Rules that are put into the shared chains.
    pub hooks: BTreeMap<Hook, HookChange>,
    /// Chains that are emptied and deleted.
    pub remove: Vec<Chain>,
    /// Chains that are only emptied, since a foreign chain jumps to them.
    pub empty: Vec<Chain>,
    /// Deletions recognised as ours by their shape only and not added again: `CHAIN specification`.
    pub matched_by_shape: Vec<String>,
}

/// The changes of a shared chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookChange {
    /// The rules.
    pub rules: HookRules,
    /// Behind how many of the remaining rules those of the tail are inserted, where ours were before; `None` for all of
    /// them. Foreign rules added behind ours stay behind ours: an ACCEPT there did no harm before.
    pub behind: Option<usize>,
}

/// The changes of one family: its tables in the order in which they are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose tables.
    pub family: Family,
    /// One transaction each.
    pub tables: Vec<TableChange>,
}

impl Change {
    /// Everything, for a namespace that holds nothing of ours.
    #[must_use]
    pub fn fresh(rules: &FamilyRules) -> Self {
        Self::between(rules, &Observed::nothing(rules.family), false)
    }

    /// The change from `observed` to `desired`. With `rewrite`, rules that are already correct are written again.
    #[must_use]
    pub fn between(desired: &FamilyRules, observed: &Observed, rewrite: bool) -> Self {
        let none = TableRules::default();
        let nothing = ObservedTable::default();
        let tables = commit_order(desired)
            .into_iter()
            .filter_map(|table| {
                let desired = desired.tables.get(&table).unwrap_or(&none);
                let observed = observed.tables.get(&table).unwrap_or(&nothing);
                table_change(table, desired, observed, rewrite)
            })
            .collect();
        Self { family: desired.family, tables }
    }

    /// No change.
    #[must_use]
    pub const fn nothing(family: Family) -> Self {
        Self { family, tables: Vec::new() }
    }

    /// Whether a table is written to.
    #[must_use]
    pub fn writes(&self, table: Table) -> bool {
        self.tables.iter().any(|change| change.table == table)
    }

    /// Has this table committed before the others.
    pub fn commit_first(&mut self, first: Table) {
        self.tables.sort_by_key(|change| change.table != first);
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }
}

/// Tables commit one after the other, and packets pass in between. What captures from now on has to be live before
/// what captured until now goes: nat takes over from TPROXY before mangle lets go, and the other way round.
///
/// nat commits before raw, with DNS capture on or off, unless the entries that are born in between are deleted
/// ([`crate::conntrack::zones_first`]). A query meets the nat rules only as the first packet of its
/// entry, and raw chooses the entry: were the zones there before the redirection, or gone after it, then a socket that
/// keeps its source port would get an entry of the other way in between, and keep it.
fn commit_order(desired: &FamilyRules) -> [Table; 3] {
    let captures =
        |rules: &TableRules| rules.rules().any(|rule| matches!(rule.statement.target, Target::Tproxy { .. }));
    let mangle = desired.tables.get(&Table::Mangle);
    if mangle.is_some_and(captures) {
        [Table::Mangle, Table::Nat, Table::Raw]
    } else {
        [Table::Nat, Table::Mangle, Table::Raw]
    }
}

fn table_change(
    table: Table,
    desired: &TableRules,
    observed: &ObservedTable,
    rewrite: bool,
) -> Option<TableChange> {
    let differs = |chain: &Chain, rules: &[Rule]| {
        observed.chains.get(chain).is_none_or(|lines| !same(rules.iter(), lines))
    };
    let declare: BTreeMap<_, _> = desired
        .chains
        .iter()
        .filter(|(chain, rules)| rewrite || differs(chain, rules))
        .map(|(chain, rules)| (*chain, rules.clone()))
        .collect();
    let unwanted = observed.chains.iter().filter(|(chain, _)| !desired.chains.contains_key(chain));
    let (held, free): (Vec<_>, Vec<_>) = unwanted.partition(|(chain, _)| observed.held.contains_key(chain));
    let mut change = TableChange {
        table,
        declare,
        deletions: Vec::new(),
        hooks: BTreeMap::new(),
        remove: free.into_iter().map(|(chain, _)| *chain).collect(),
        empty: held.into_iter().filter(|(_, lines)| !lines.is_empty()).map(|(chain, _)| *chain).collect(),
        matched_by_shape: Vec::new(),
    };
    let ours = ownership::ours(table, observed);
    for hook in Hook::ALL {
        hook_change(&mut change, hook, desired, observed.hook(hook), &ours.of(hook), rewrite);
    }
    let TableChange { table: _, declare, deletions, hooks, remove, empty, matched_by_shape: _ } = &change;
    let nothing = declare.is_empty()
        && deletions.is_empty()
        && hooks.is_empty()
        && remove.is_empty()
        && empty.is_empty();
    (!nothing).then_some(change)
}

/// Our rules in a shared chain are right, or all of them are put anew: in the right order, in the same transaction.
fn hook_change(
    change: &mut TableChange,
    hook: Hook,
    desired: &TableRules,
    lines: &[Line],
    ours: &BTreeSet<usize>,
    rewrite: bool,
) {
    let none = HookRules::default();
    let wanted = desired.hooks.get(&hook).unwrap_or(&none);
    let is_live = |ours: &BTreeSet<usize>| {
        let live = lines.iter().enumerate().filter(|(at, _)| ours.contains(at)).map(|(_, line)| line);
        same(wanted.iter(), live)
    };
    if !rewrite && (is_live(ours) || is_live(&ownership::possibly_ours(wanted, lines, ours))) {
        return;
    }
    let stay: HashSet<&Statement> = wanted.iter().map(|rule| &rule.statement).collect();
    let matched_by_shape = lines.iter().enumerate().filter(|(at, line)| {
        let plain = line.statement.as_ref().filter(|statement| ownership::is_plain_return(statement));
        ours.contains(at) && plain.is_some_and(|plain| !stay.contains(plain))
    });
    change
        .matched_by_shape
        .extend(matched_by_shape.map(|(_, line)| format!("{} {}", hook.name(), line.text)));
    change.deletions.extend(deletions(lines, ours).into_iter().map(|what| Deletion { hook, what }));
    if wanted.iter().next().is_some() {
        let behind = tail_position(lines, ours);
        change.hooks.insert(hook, HookChange { rules: wanted.clone(), behind });
    }
}

/// The number of foreign rules before the first of ours that is certainly in the tail, unless no foreign one comes
/// behind it: then the end of the chain is the place, which cannot shift.
fn tail_position(lines: &[Line], ours: &BTreeSet<usize>) -> Option<usize> {
    let first =
        lines.iter().enumerate().find(|(at, line)| ours.contains(at) && ownership::is_in_tail(line))?.0;
    let before = (0..first).filter(|at| !ours.contains(at)).count();
    let all = lines.len() - ours.len();
    (before < all).then_some(before)
}

/// Deletions by number come first, from the last to the first, so that none shifts the next.
fn deletions(lines: &[Line], ours: &BTreeSet<usize>) -> Vec<Deleted> {
    // A projected line has our notation, a line that was read has that of the tool: the parsed statements are compared too.
    let (mut words, mut statements) = (HashMap::new(), HashMap::new());
    for (at, line) in lines.iter().enumerate().filter(|(at, _)| !ours.contains(at)) {
        words.entry(line.text.as_str()).or_insert(at);
        line.statement.as_ref().map(|statement| statements.entry(statement).or_insert(at));
    }
    let foreign_twin = |at: usize, ours_line: &Line| {
        let by_words = words.get(ours_line.text.as_str());
        let by_statement = ours_line.statement.as_ref().and_then(|statement| statements.get(statement));
        by_words.into_iter().chain(by_statement).any(|earlier| *earlier < at)
    };
    let ours = || lines.iter().enumerate().filter(|(at, _)| ours.contains(at));
    let numbers =
        ours().rev().filter(|(at, line)| foreign_twin(*at, line)).map(|(at, _)| Deleted::Number(at + 1));
    let words = ours()
        .filter(|(at, line)| !foreign_twin(*at, line))
        .map(|(_, line)| Deleted::Specification(line.text.clone()));
    numbers.chain(words).collect()
}

/// Whether the lines equal the rules, in the same order.
fn same<'a>(rules: impl Iterator<Item = &'a Rule>, lines: impl IntoIterator<Item = &'a Line>) -> bool {
    let wanted = rules.map(|rule| Some(&rule.statement));
    let live = lines.into_iter().map(|line| line.statement.as_ref());
    wanted.eq(live)
}

/// The statements of lines that are understood.
fn statements(lines: &[Line]) -> impl Iterator<Item = (usize, &Statement)> {
    lines.iter().enumerate().filter_map(|(at, line)| Some((at, line.statement.as_ref()?)))
}
