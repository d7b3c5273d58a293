//! Which rules in the shared chains are ours.
//!
//! | rule | evidence |
//! |--|--|
//! | jump to a chain of ours | its form ([`forms::is_our_jump`]) |
//! | any other, rules of our own run | its form ([`forms::may_be_ours`]), and the record of that run: the digest of the consecutive rules it belongs to |
//! | any other, named by the record of an interrupted run as one to be deleted by handle | that handle |
//! | any other, no record | Istio's own binary wrote them: its form, and its place beside Istio's jumps ([`istio`]) |
//!
//! A comment, or a match that we never write, is not understood by [`crate::parse`]: such a rule is foreign. Where
//! identical rules leave more than one possibility, nothing is claimed, and the lines are reported.

mod forms;
mod istio;
mod search;

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Chain, Family, Hook, HookRules, Mark, Match, Rule, Statement, Table, Target, Variant};
use crate::parse::{Line, Observed, ObservedTable};
use crate::record::{Block, Part, Record, digest, hash, runs};

use super::statements;
use search::{Batch, Candidates, Found};

pub(crate) use forms::is_our_jump;

/// The places of our rules in each shared chain.
#[derive(Debug, Default)]
pub(super) struct Ours {
    certain: BTreeMap<Hook, BTreeSet<usize>>,
    /// Lines of which some are ours and some are foreign, and nothing says which.
    ambiguous: BTreeMap<Hook, BTreeSet<usize>>,
}

impl Ours {
    pub(super) fn of(&self, hook: Hook) -> BTreeSet<usize> {
        self.certain.get(&hook).cloned().unwrap_or_default()
    }

    pub(super) fn ambiguous(&self, hook: Hook) -> BTreeSet<usize> {
        let certain = self.of(hook);
        let ambiguous = self.ambiguous.get(&hook).into_iter().flatten().copied();
        ambiguous.filter(|at| !certain.contains(at)).collect()
    }

    fn claim(&mut self, hook: Hook, places: impl IntoIterator<Item = usize>) {
        self.certain.entry(hook).or_default().extend(places);
    }
}

/// Finds our rules in the shared chains of a table.
pub(super) fn ours(family: Family, table: Table, observed: &ObservedTable, record: Option<&Record>) -> Ours {
    let mut ours = Ours::default();
    if is_known(observed.hooks.values().flatten()) {
        for hook in Hook::ALL {
            let lines = observed.hook(hook).iter().enumerate();
            ours.claim(hook, lines.filter(|(_, line)| line.ours == Some(true)).map(|(at, _)| at));
        }
        return ours;
    }
    for hook in Hook::ALL {
        let lines = observed.hook(hook).iter().enumerate();
        ours.claim(hook, lines.filter(|(_, line)| is_our_jump(table, hook, line)).map(|(at, _)| at));
    }
    match record {
        Some(record) => {
            recorded(family, table, observed, record, &mut ours);
            limited_save_marks(table, observed, &mut ours);
        }
        None if observed.chains.is_empty() => {}
        None => istio::leftovers(table, observed, &mut ours),
    }
    for hook in Hook::ALL {
        let lines = observed.hook(hook).iter().enumerate();
        ours.claim(hook, lines.filter(|(_, line)| line.pending_deletion).map(|(at, _)| at));
    }
    ours
}

/// Our rules in one shared chain of a table, in their order.
pub(crate) fn our_rules(observed: &Observed, table: Table, hook: Hook) -> Vec<&Line> {
    let Some(rules) = observed.tables.get(&table) else { return Vec::new() };
    let ours = ours(observed.family, table, rules, observed.record.as_ref()).of(hook);
    rules.hook(hook).iter().enumerate().filter(|(at, _)| ours.contains(at)).map(|(_, line)| line).collect()
}

/// Whether a plan knows of each line whether it is ours.
fn is_known<'a>(lines: impl IntoIterator<Item = &'a Line>) -> bool {
    lines.into_iter().all(|line| line.ours.is_some())
}

fn recorded(family: Family, table: Table, observed: &ObservedTable, record: &Record, ours: &mut Ours) {
    let search = |blocks: &[Block]| {
        let of = |hook: Hook| {
            let blocks = blocks.iter().filter(|block| block.hook == hook);
            let lines = observed.hook(hook);
            search::in_order(blocks.map(|block| (*block, search::all(table, hook, lines, block))).collect())
        };
        Hook::ALL.map(of)
    };
    let (blocks, earlier) = record.of_table(family, table);
    // Our rules in nat come with chains, in one transaction: without any, what was recorded is not written yet.
    if table == Table::Nat && observed.chains.is_empty() {
        return;
    }
    let mut now = search(&blocks);
    if record.is_removing() {
        only_pending(observed, &mut now);
    }
    let Some(mut earlier) = earlier.map(|earlier| search(&earlier)) else {
        // Without chains an interrupted clean-up may have written the table: a rule like ours may be a foreign one.
        let needs_proof = record.is_removing() && observed.chains.is_empty();
        return claim(table, observed, &now, needs_proof, ours);
    };
    only_pending(observed, &mut earlier);
    // A run was killed, or is still busy. The table holds the rules before it or those behind it: if only the one or
    // the other can be found, that is clear, else each line needs proof.
    let whole = |found: &[Vec<Candidates>; 2]| found.iter().flatten().all(|(_, places)| !places.is_empty());
    let same = |one: &[Vec<Candidates>; 2], other: &[Vec<Candidates>; 2]| {
        one.iter().flatten().map(|(_, places)| places).eq(other.iter().flatten().map(|(_, places)| places))
    };
    let in_place = |found: &[Vec<Candidates>; 2]| {
        Hook::ALL.into_iter().zip(found).all(|(hook, blocks)| {
            blocks.iter().all(|(block, places)| search::is_where_it_was(observed.hook(hook), block, places))
        })
    };
    let known = |found: &[Vec<Candidates>; 2]| found.iter().flatten().next().is_some();
    match (whole(&now), whole(&earlier)) {
        (true, true) if known(&now) && in_place(&now) && !in_place(&earlier) => {
            claim(table, observed, &now, false, ours);
        }
        (true, true) if known(&earlier) && in_place(&earlier) && !(known(&now) && in_place(&now)) => {
            claim(table, observed, &earlier, false, ours);
        }
        // Perhaps neither is written yet.
        (true, true) if same(&now, &earlier) => claim(table, observed, &now, true, ours),
        (true, false) if known(&now) => claim(table, observed, &now, false, ours),
        (false, true) => claim(table, observed, &earlier, false, ours),
        (true | false, _) => {
            claim(table, observed, &now, true, ours);
            claim(table, observed, &earlier, true, ours);
        }
    }
}

/// Where the record names a rule that is to be deleted by its handle, an identical one elsewhere is foreign.
fn only_pending(observed: &ObservedTable, found: &mut [Vec<Candidates>; 2]) {
    for (hook, blocks) in Hook::ALL.into_iter().zip(found) {
        let lines = observed.hook(hook);
        let is_pending = |at: &usize| lines.get(*at).is_some_and(|line| line.pending_deletion);
        for (_, places) in blocks.iter_mut().filter(|(_, places)| places.iter().flatten().any(is_pending)) {
            places.retain(|places| places.iter().any(is_pending));
        }
    }
}

/// The transitional form of the rule that saves marks, with the mark of the live chains: no other program writes it, and
/// the record of a run that was killed may have had no room for it.
fn limited_save_marks(table: Table, observed: &ObservedTable, ours: &mut Ours) {
    if table != Table::Mangle {
        return;
    }
    let marks = marks_in_use(observed);
    let limited = |statement: &Statement| {
        statement.target == Target::SaveMark
            && statement.matcher.in_interface.is_some()
            && forms::carries_mark(Hook::Prerouting, statement, Some(&marks))
    };
    let lines = statements(observed.hook(Hook::Prerouting));
    let places: Vec<usize> = lines.filter(|(_, statement)| limited(statement)).map(|(at, _)| at).collect();
    ours.claim(Hook::Prerouting, places);
}

/// Claims what was found, where that is one place, or proved.
fn claim(
    table: Table,
    observed: &ObservedTable,
    found: &[Vec<Candidates>; 2],
    needs_proof: bool,
    ours: &mut Ours,
) {
    let batch = batch_handles(table, observed);
    for (hook, blocks) in Hook::ALL.into_iter().zip(found) {
        // The tail first: the handles after it are those of chains of ours.
        for (block, places) in blocks.iter().rev() {
            let chain = search::SharedChain { lines: observed.hook(hook), batch: &batch };
            let certain = ours.of(hook);
            let free = |places: &&Vec<usize>| !places.iter().any(|at| certain.contains(at));
            let left: Vec<_> = places.iter().filter(free).cloned().collect();
            if left.is_empty() {
                // Another run of rules has some of these places: the others may be ours, or foreign.
                ours.ambiguous.entry(hook).or_default().extend(places.iter().flatten());
            }
            // What only remains because others are claimed is no better than one of several.
            let needs_proof = needs_proof || left.len() < places.len();
            let Found { certain, ambiguous } = chain.choose(&left, block, needs_proof);
            ours.claim(hook, certain);
            ours.ambiguous.entry(hook).or_default().extend(ambiguous);
        }
    }
}

/// The handles of rules that are surely ours, and of those that have a form of ours. One transaction numbers its rules
/// one after the other, and no other transaction gets a number in between.
fn batch_handles(table: Table, observed: &ObservedTable) -> Batch {
    let ours = observed.chains.values().flatten().filter_map(|line| line.handle).collect();
    let mut batch = Batch { ours, head: BTreeSet::new(), similar: BTreeSet::new() };
    for hook in Hook::ALL {
        for line in observed.hook(hook) {
            let similar = |statement: &Statement| forms::may_be_ours(table, hook, statement);
            if is_our_jump(table, hook, line) {
                let list = if is_in_tail(line) { &mut batch.ours } else { &mut batch.head };
                list.extend(line.handle);
            } else if line.statement.as_ref().is_some_and(similar) {
                batch.similar.extend(line.handle);
            }
        }
    }
    batch
}

/// Whether one of our rules was put behind what was in the chain: everything but what virtual interfaces need, and
/// plain RETURNs, which may be either.
pub(super) fn is_in_tail(line: &Line) -> bool {
    let rerouted = |statement: &Statement| {
        statement.matcher.in_interface.is_some() && statement.target == Target::Jump(Chain::Redirect)
    };
    line.statement.as_ref().is_none_or(|statement| !rerouted(statement) && !forms::is_plain_return(statement))
}

/// Whether the record, if there is one, divides these rules as they are to be written now. If it does not, the same lines
/// have another meaning, and are written again so that their places are known.
pub(super) fn is_recorded(
    (family, table, hook): (Family, Table, Hook),
    wanted: &HookRules,
    lines: &[Line],
    record: Option<&Record>,
) -> bool {
    let Some(record) = record.filter(|_| lines.iter().all(|line| line.ours.is_none())) else { return true };
    [(Part::Head, &wanted.head), (Part::Tail, &wanted.tail)].into_iter().all(|(part, rules)| {
        runs(rules).all(|(_, run)| {
            let digest = digest(run.iter().map(|rule| hash(&rule.statement)));
            let (count, behind_jump, at) = (run.len(), false, None);
            let of = |variant| Block { variant, family, table, hook, part, behind_jump, count, digest, at };
            Variant::ALL.into_iter().any(|variant| record.has(&of(variant)))
        })
    })
}

/// `certain`, with lines that the options ask for and that may be ours: enough to see that nothing is missing, not
/// enough to delete anything. With a record only what it says was written can be meant; without one there must be chains
/// of Istio's.
pub(super) fn possibly_ours(
    place: (Family, Table, Hook),
    wanted: &HookRules,
    lines: &[Line],
    certain: &BTreeSet<usize>,
    record: Option<&Record>,
    istio: bool,
) -> Vec<BTreeSet<usize>> {
    let (family, table, hook) = place;
    let mut choices = vec![certain.clone()];
    if is_known(lines) {
        return choices;
    }
    for (part, rules) in [(Part::Head, &wanted.head), (Part::Tail, &wanted.tail)] {
        for (_, run) in runs(rules) {
            let digest = digest(run.iter().map(|rule: &Rule| hash(&rule.statement)));
            // The record is that of one variant only.
            let (count, behind_jump) = (run.len(), false);
            let of =
                |variant| Block { variant, family, table, hook, part, behind_jump, count, digest, at: None };
            let block = of(Variant::Nft);
            let written = |record: &Record| {
                !record.is_changing() && Variant::ALL.into_iter().any(|variant| record.has(&of(variant)))
            };
            if !record.map_or(istio, written) {
                continue;
            }
            choices = choices
                .iter()
                .flat_map(|so_far| {
                    let more = search::all(table, hook, lines, &block);
                    let more = more.into_iter().map(|places| so_far.iter().copied().chain(places).collect());
                    std::iter::once(so_far.clone()).chain(more)
                })
                .take(search::MOST)
                .collect();
        }
    }
    choices
}

/// The marks that our chains in mangle inspect for or set.
pub(crate) fn marks_in_use(observed: &ObservedTable) -> BTreeSet<Mark> {
    let of = |statement: &Statement| match (statement.matcher.mark, statement.target) {
        (_, Target::Tproxy { mark, .. } | Target::SetMark(mark))
        | (Some(Match::Is(mark)), Target::Return) => Some(mark),
        _ => None,
    };
    observed
        .chains
        .values()
        .flat_map(|lines| statements(lines))
        .filter_map(|(_, statement)| of(statement))
        .collect()
}
