//! Compares desired and observed statements, in order, and returns the changes. A second run is idempotent:
//! it has none.

mod chains;
mod change;
mod limit;
mod ownership;
mod projection;
mod written;

pub use chains::{ChainDifference, RuleDifference, distance, of_iptables, of_native};
pub use change::{Ambiguous, Change, Deleted, Deletion, HookChange, RuleByHandle, TableChange};
pub(crate) use limit::limited_save_mark;
pub use ownership::{found, is_ambiguous};
pub(crate) use ownership::{is_our_jump, marks_in_use, our_rules};

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::model::{Chain, Family, FamilyRules, Hook, HookRules, Rule, Statement, Table, TableRules, Target};
use crate::ordered::Ordered as _;
use crate::parse::{Line, Observed, ObservedTable};
use crate::record::{self, Record};

impl Change {
    /// Everything, for a namespace that holds nothing of ours.
    #[must_use]
    pub fn fresh(rules: &FamilyRules) -> Self {
        Self::between(rules, &Observed::empty(rules.family), false)
    }

    /// The change from `observed` to `desired`. With `rewrite`, rules that are already correct are written
    /// again.
    #[must_use]
    pub fn between(desired: &FamilyRules, observed: &Observed, rewrite: bool) -> Self {
        let none = TableRules::default();
        let nothing = ObservedTable::default();
        let (family, record) = (desired.family, observed.record.as_ref());
        let changes = commit_order(desired).into_iter().map(|table| {
            let desired = desired.tables.get(&table).unwrap_or(&none);
            let observed = observed.tables.get(&table).unwrap_or(&nothing);
            table_change((family, table), desired, observed, record, rewrite)
        });
        let (writing, idle): (Vec<_>, Vec<_>) = changes.partition(|change| !change.writes_nothing());
        let ambiguous = writing.iter().chain(&idle).flat_map(|change| change.ambiguous.iter().cloned());
        Self { family, ambiguous: ambiguous.collect(), tables: writing }
    }
}

/// Tables commit one after the other, and packets pass in between. What captures from now on has to be live
/// before what captured until now goes: nat takes over from TPROXY before mangle lets go, and the other way
/// round.
///
/// nat commits before raw, with DNS capture on or off, unless the entries created in between are deleted
/// (`conntrack::commit_raw_first`). A query meets the nat rules only as the first packet of its entry, and
/// raw chooses the entry: were the zones there before the redirection, or gone after it, then a socket that
/// keeps its source port would get an entry of the other way in between, and keep it.
pub fn commit_order(desired: &FamilyRules) -> [Table; 3] {
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
    (family, table): (Family, Table),
    desired: &TableRules,
    observed: &ObservedTable,
    record: Option<&Record>,
    rewrite: bool,
) -> TableChange {
    let differs = |chain: &Chain, rules: &[Rule]| {
        observed.chains.get(chain).is_none_or(|lines| !same(rules.iter(), lines))
    };
    let declare: BTreeMap<_, _> = desired
        .chains
        .iter()
        .filter(|(chain, rules)| rewrite || differs(chain, rules))
        .map(|(chain, rules)| (*chain, rules.clone()))
        .into_map();
    let unwanted = observed.chains.iter().filter(|(chain, _)| !desired.chains.contains_key(chain));
    let (held, free): (Vec<_>, Vec<_>) =
        unwanted.partition(|(chain, _)| holder(table, observed, **chain).is_some());
    let mut change = TableChange {
        declare,
        remove: free.into_iter().map(|(chain, _)| *chain).collect(),
        empty: held.into_iter().filter(|(_, lines)| !lines.is_empty()).map(|(chain, _)| *chain).collect(),
        ..TableChange::of(table)
    };
    let ours = ownership::ours(family, table, observed, record);
    for hook in Hook::ALL {
        let known = SharedChain {
            lines: observed.hook(hook),
            ours: ours.of(hook),
            ambiguous: ours.ambiguous(hook),
            unwanted: ours.unwanted(hook, desired.hooks.get(&hook).unwrap_or(&HookRules::default())),
            chains: !observed.chains.is_empty(),
            unlisted: observed.unlisted.contains(&hook),
        };
        hook_change(&mut change, (family, table, hook), desired, &known, record, rewrite);
    }
    if !change.hooks.is_empty() {
        // Their rules come last in the transaction: what else it adds is numbered right before them, which
        // distinguishes it from whatever another program adds later.
        change.declare.extend(desired.chains.iter().map(|(chain, rules)| (*chain, rules.clone())));
    }
    change
}

/// The foreign chain, or shared chain, with a foreign rule that jumps to a chain of ours.
pub(crate) fn holder(table: Table, observed: &ObservedTable, chain: Chain) -> Option<&str> {
    let in_hook = |hook: &Hook| {
        let foreign = |line: &&Line| line.jump == Some(chain) && !is_our_jump(table, *hook, line);
        observed.hook(*hook).iter().any(|line| foreign(&line))
    };
    let hook = || Hook::ALL.into_iter().find(in_hook).map(Hook::name);
    observed.held.get(&chain).map(String::as_str).or_else(hook)
}

/// The places of the rules in a shared chain that are surely ours.
pub(crate) fn owned(
    family: Family,
    table: Table,
    hook: Hook,
    observed: &ObservedTable,
    record: Option<&Record>,
) -> BTreeSet<usize> {
    ownership::ours(family, table, observed, record).of(hook)
}

/// A shared chain, with what is known of its rules.
struct SharedChain<'a> {
    lines: &'a [Line],
    ours: BTreeSet<usize>,
    ambiguous: BTreeSet<usize>,
    /// The places of rules of which an earlier run wrote one that is not asked for.
    unwanted: BTreeSet<usize>,
    /// Whether there are chains of ours, or of Istio's, in the table.
    chains: bool,
    /// Whether the tool can delete no rule in it.
    unlisted: bool,
}

/// Our rules in a shared chain are right, or all of them are rewritten: in the right order, in the same
/// transaction.
fn hook_change(
    change: &mut TableChange,
    place: (Family, Table, Hook),
    desired: &TableRules,
    known: &SharedChain<'_>,
    record: Option<&Record>,
    rewrite: bool,
) {
    let (none, (family, table, hook)) = (HookRules::default(), place);
    let SharedChain { lines, ours, ambiguous, unwanted, chains: _, unlisted } = known;
    let wanted = desired.hooks.get(&hook).unwrap_or(&none);
    let right = |ours: &&BTreeSet<usize>| {
        let live = lines.iter().enumerate().filter(|(at, _)| ours.contains(at)).map(|(_, line)| line);
        same(wanted.iter(), live)
    };
    let named = |at: &usize| ownership::named(*at, lines, ours, (table, hook));
    let recorded = ownership::is_recorded(place, wanted, lines, record);
    let perhaps = || ownership::possibly_ours(place, wanted, lines, ours, record, known.chains);
    let chosen =
        || Some(ours).filter(right).cloned().or_else(|| perhaps().into_iter().find(|ours| right(&ours)));
    if let Some(chosen) = (!rewrite && recorded).then(chosen).flatten() {
        let asked_for = |at: &usize| {
            let statement = lines.get(*at).and_then(|line| line.statement.as_ref());
            wanted.iter().any(|rule| Some(&rule.statement) == statement)
        };
        // A rule like one of ours is foreign, unless an earlier run wrote more of them, or a killed one had
        // to leave some.
        let may_be_left = |at: &usize| {
            let left = |record: &Record| {
                record.is_incomplete()
                    || lines.get(*at).is_some_and(|line| {
                        ownership::left_like(line, (family, table, hook), record).is_some()
                    })
            };
            unwanted.contains(at) || record.is_some_and(left)
        };
        let is_stray = |at: &&usize| !chosen.contains(at) && (may_be_left(at) || !asked_for(at));
        change.ambiguous.extend(ambiguous.iter().filter(is_stray).filter_map(named));
        return;
    }
    change.ambiguous.extend(ambiguous.iter().filter_map(named));
    if !rewrite && let Some((wrong, written)) = differing_end(wanted, lines, ours) {
        delete(change, hook, lines, &wrong, *unlisted);
        change.hooks.insert(hook, written);
        return;
    }
    delete(change, hook, lines, ours, *unlisted);
    if wanted.iter().next().is_some() {
        let behind = tail_position(lines, ours);
        let foreign = hashes_without(lines, ours);
        let leaving = change.by_handle.iter().filter(|rule| rule.hook == hook);
        let first = tail(lines, ours).and_then(|first| lines.get(first)?.handle);
        let leaving = leaving.take_while(|rule| Some(rule.handle) != first).count();
        change.hooks.insert(hook, HookChange { rules: wanted.clone(), behind, foreign, leaving });
    }
}

/// The last of our rules, where only these differ, and what replaces them: in what a plan has written before.
/// All others stay, so that none is deleted whose handle only the kernel knows.
fn differing_end(
    wanted: &HookRules,
    lines: &[Line],
    ours: &BTreeSet<usize>,
) -> Option<(BTreeSet<usize>, HookChange)> {
    if lines.iter().any(|line| line.ours.is_none()) {
        return None;
    }
    let live = || ours.iter().filter_map(|at| lines.get(*at));
    let equal = wanted
        .iter()
        .zip(live())
        .take_while(|(rule, line)| Some(&rule.statement) == line.statement.as_ref())
        .count();
    let wrong: BTreeSet<usize> = ours.iter().copied().skip(equal).into_set();
    let kept_of_tail = equal.checked_sub(wanted.head.len())?;
    let first = wrong.first().copied().filter(|_| wanted.iter().count() == ours.len())?;
    let tail = wanted.tail.get(kept_of_tail..)?.to_vec();
    let foreign = hashes_without(lines, &wrong);
    let behind = (first < foreign.len()).then_some(first);
    let rules = HookRules { head: Vec::new(), tail };
    Some((wrong, HookChange { rules, behind, foreign, leaving: 0 }))
}

/// The number of foreign rules before the first of ours that is certainly in the tail, unless no foreign one
/// comes behind it: then the end of the chain is the place, which cannot shift.
fn tail_position(lines: &[Line], ours: &BTreeSet<usize>) -> Option<usize> {
    let first = tail(lines, ours)?;
    let before = (0..first).filter(|at| !ours.contains(at)).count();
    let all = lines.len() - ours.len();
    (before < all).then_some(before)
}

/// The first of our rules that is certainly in the tail.
fn tail(lines: &[Line], ours: &BTreeSet<usize>) -> Option<usize> {
    ours.iter().copied().find(|at| lines.get(*at).is_some_and(ownership::is_in_tail))
}

/// By words wherever that hits ours and the tool can list the chain; else by handle, or by number: these
/// first, from the last to the first, so that none shifts the next.
fn delete(change: &mut TableChange, hook: Hook, lines: &[Line], ours: &BTreeSet<usize>, unlisted: bool) {
    change.unlisted |= unlisted && !ours.is_empty();
    // A projected line has our words, a line that was read has those of the tool: what they say is compared.
    let mut foreign = HashSet::new();
    let (mut numbers, mut words) = (Vec::new(), Vec::new());
    for (at, line) in lines.iter().enumerate() {
        let (text, says) = (line.text(), line.statement.as_ref());
        match (ours.contains(&at), line.handle.zip(says)) {
            (false, _) => foreign.extend(says),
            (true, Some((handle, says))) if unlisted || foreign.contains(says) => {
                change.by_handle.push(RuleByHandle { hook, handle, text: text.into_owned() });
            }
            (true, None) if unlisted || says.is_some_and(|says| foreign.contains(says)) => {
                numbers.push((Deleted::Number(at + 1), line.jump.is_some()));
            }
            (true, _) => words.push((Deleted::Specification(text.into_owned()), line.jump.is_some())),
        }
    }
    let all = numbers.into_iter().rev().chain(words);
    change.deletions.extend(all.map(|(what, jumps)| Deletion { hook, what, jumps }));
}

/// Whether the lines equal the rules, in the same order.
fn same<'a>(rules: impl Iterator<Item = &'a Rule>, lines: impl IntoIterator<Item = &'a Line>) -> bool {
    let wanted = rules.map(|rule| Some(&rule.statement));
    let live = lines.into_iter().map(|line| line.statement.as_ref());
    wanted.eq(live)
}

/// The hashes of the lines of a chain without these.
fn hashes_without(lines: &[Line], left_out: &BTreeSet<usize>) -> Vec<u32> {
    let staying = lines.iter().enumerate().filter(|(at, _)| !left_out.contains(at));
    staying.map(|(_, line)| line_hash(line)).collect()
}

/// The hash of any line, for the digest of its chain. Another comment makes no other chain.
fn line_hash(line: &Line) -> u32 {
    let of_words = || record::hash_of_words(&line.words_without_comments());
    line.statement.as_ref().map_or_else(of_words, record::hash)
}

/// The statements of lines that are understood.
fn statements(lines: &[Line]) -> impl Iterator<Item = (usize, &Statement)> {
    lines.iter().enumerate().filter_map(|(at, line)| Some((at, line.statement.as_ref()?)))
}
