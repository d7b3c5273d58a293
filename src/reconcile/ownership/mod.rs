//! Which rules in the shared chains are ours.
//!
//! | rule | evidence |
//! |--|--|
//! | jump to a chain of ours | its form ([`forms::is_our_jump`]) |
//! | any other, rules of our own run | the record of that run: its handle, or its form ([`forms::may_be_ours`]) and the digest of the consecutive rules it belongs to ([`recorded`]) |
//! | any other, no record | Istio's own binary wrote them: its form, and its place beside Istio's jumps ([`istio`]) |
//!
//! [`crate::parse`] does not parse comments and matches that we never write: a rule with one is foreign. If
//! identical rules leave more than one possibility, none is treated as ours, and the lines are reported.

mod forms;
mod istio;
mod recorded;
mod search;

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Chain, Family, Hook, HookRules, Mark, Match, Rule, Statement, Table, Target, Variant};
use crate::ordered::Ordered as _;
use crate::parse::{Line, Observed, ObservedTable};
use crate::record::{
    Block, BlockLocation, Found, Numbering, Part, Position, Record, chain_digest, digest, hash, runs,
};

use search::Candidates;

use super::{Ambiguous, line_hash, statements};

pub(crate) use forms::is_our_jump;

/// The places of our rules in each shared chain.
#[derive(Debug, Default)]
pub(super) struct Ours {
    certain: BTreeMap<Hook, BTreeSet<usize>>,
    /// Lines of which some are ours and some are foreign, and nothing says which.
    ambiguous: BTreeMap<Hook, BTreeSet<usize>>,
    /// The recorded rules that were found, with their places.
    blocks: Vec<(Block, Vec<usize>)>,
    /// The recorded rules of which nothing shows in which of these places they are.
    unplaced: Vec<Candidates>,
}

impl Ours {
    pub(super) fn of(&self, hook: Hook) -> BTreeSet<usize> {
        self.certain.get(&hook).cloned().unwrap_or_default()
    }

    pub(super) fn ambiguous(&self, hook: Hook) -> BTreeSet<usize> {
        let certain = self.of(hook);
        let ambiguous = self.ambiguous.get(&hook).into_iter().flatten().copied();
        ambiguous.filter(|at| !certain.contains(at)).into_set()
    }

    /// The places of recorded rules that these options no longer have, as far as it is unknown which place it
    /// is.
    pub(super) fn unwanted(&self, hook: Hook, wanted: &HookRules) -> BTreeSet<usize> {
        let parts = [(Part::Head, &wanted.head), (Part::Tail, &wanted.tail)];
        let is_wanted = |block: &Block| {
            let mut runs =
                parts.iter().filter(|(part, _)| *part == block.part).flat_map(|(_, rules)| runs(rules));
            runs.any(|(_, run)| digest(run.iter().map(|rule| hash(&rule.statement))) == block.digest)
        };
        let unwanted = self.unplaced.iter().filter(|(block, _)| block.hook == hook && !is_wanted(block));
        unwanted.flat_map(|(_, places)| places.iter().flatten().copied()).into_set()
    }

    /// The part of the chain that each recorded rule belongs to, by its place.
    fn parts(&self, hook: Hook) -> BTreeMap<usize, Part> {
        let mut parts = BTreeMap::new();
        for (block, places) in self.blocks.iter().filter(|(block, _)| block.hook == hook) {
            for at in places {
                parts.entry(*at).or_insert(block.part);
            }
        }
        parts
    }

    fn claim(&mut self, hook: Hook, places: impl IntoIterator<Item = usize>) {
        self.certain.entry(hook).or_default().extend(places);
    }

    /// The recorded rules are in one of these places, or foreign rules are.
    fn leave_open(&mut self, (block, places): &Candidates) {
        self.ambiguous.entry(block.hook).or_default().extend(places.iter().flatten());
        self.unplaced.push((*block, places.clone()));
    }

    fn claim_block(&mut self, block: &Block, places: Vec<usize>) {
        self.claim(block.hook, places.iter().copied());
        self.blocks.push((*block, places));
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
            recorded::rules((family, table), observed, record, &mut ours);
            left(family, table, observed, record, &mut ours);
        }
        None if observed.chains.is_empty() => {}
        None => istio::leftovers(table, observed, &mut ours),
    }
    ours
}

/// Rules that earlier runs left, unless one of several identical ones is gone since: the program or person
/// that deleted it knew which to keep.
fn left(family: Family, table: Table, observed: &ObservedTable, record: &Record, ours: &mut Ours) {
    for block in record.left().filter(|block| (block.family, block.table) == (family, table)) {
        let certain = ours.of(block.hook);
        let lines = observed.hook(block.hook).iter().enumerate().filter(|(at, _)| !certain.contains(at));
        let alike: Vec<usize> = lines.filter(|(_, line)| is_like(line, block)).map(|(at, _)| at).collect();
        if alike.len() >= block.count {
            ours.ambiguous.entry(block.hook).or_default().extend(alike);
        }
    }
}

fn is_like(line: &Line, block: &Block) -> bool {
    line.statement.as_ref().is_some_and(|statement| digest([hash(statement)]) == block.digest)
}

/// What the record says of rules like this one that earlier runs left.
pub(super) fn left_like<'a>(
    line: &Line,
    (family, table, hook): (Family, Table, Hook),
    record: &'a Record,
) -> Option<&'a Block> {
    let here = |block: &&Block| (block.family, block.table, block.hook) == (family, table, hook);
    record.left().filter(here).find(|block| is_like(line, block))
}

/// A line, as it is named to be deleted.
pub(super) fn named(
    at: usize,
    lines: &[Line],
    certain: &BTreeSet<usize>,
    (table, hook): (Table, Hook),
) -> Option<Ambiguous> {
    let line = lines.get(at)?;
    let statement = line.statement.as_ref()?;
    let open = lines.iter().enumerate().filter(|(at, _)| !certain.contains(at));
    let identical = open.filter(|(_, other)| other.statement.as_ref() == Some(statement)).count();
    Some(Ambiguous {
        table,
        hook,
        text: line.text().into_owned(),
        digest: digest([hash(statement)]),
        identical,
    })
}

/// Our rules in one shared chain of a table, in their order.
pub(crate) fn our_rules(observed: &Observed, table: Table, hook: Hook) -> Vec<&Line> {
    let Some(rules) = observed.tables.get(&table) else { return Vec::new() };
    let ours = ours(observed.family, table, rules, observed.record.as_ref()).of(hook);
    rules.hook(hook).iter().enumerate().filter(|(at, _)| ours.contains(at)).map(|(_, line)| line).collect()
}

/// Whether there are rules of which nothing shows whether they are ours.
#[must_use]
pub fn is_ambiguous(observed: &Observed) -> bool {
    observed.tables.iter().any(|(table, rules)| {
        let ours = ours(observed.family, *table, rules, observed.record.as_ref());
        Hook::ALL.into_iter().any(|hook| !ours.ambiguous(hook).is_empty())
    })
}

/// What is recorded of our rules while the run is under way that found these.
#[must_use]
pub fn found(variant: Variant, observed: &Observed) -> Found {
    let mut found = Found::default();
    for (table, rules) in &observed.tables {
        let ours = ours(observed.family, *table, rules, observed.record.as_ref());
        for hook in Hook::ALL {
            let place = (variant, observed.family, *table, hook);
            found.blocks.extend(blocks(place, rules.hook(hook), &ours));
            let (lines, place) = (rules.hook(hook), (observed.family, *table, hook));
            let is_recorded = |line: &Line| {
                observed.record.as_ref().is_some_and(|record| left_like(line, place, record).is_some())
            };
            let mut ambiguous = ours.ambiguous(hook).into_iter().filter_map(|at| lines.get(at));
            found.is_ambiguous |= ambiguous.any(|line| !is_recorded(line));
        }
        let numbering = rules.handles.as_ref().map(Numbering::from);
        found.numbering.extend(numbering.map(|numbering| ((observed.family, *table), numbering)));
    }
    found
}

/// The rules of ours that jump to no chain of ours: each run of lines that were written one after the other.
fn blocks(
    (variant, family, table, hook): (Variant, Family, Table, Hook),
    lines: &[Line],
    ours: &Ours,
) -> Vec<Block> {
    let (certain, parts) = (ours.of(hook), ours.parts(hook));
    let part = |at: usize| parts.get(&at).copied().unwrap_or(Part::Tail);
    let saves = |line: &Line| line.statement.as_ref().is_some_and(|found| found.target == Target::SaveMark);
    let certain: Vec<(usize, &Line)> =
        lines.iter().enumerate().filter(|(at, line)| line.jump.is_none() && certain.contains(at)).collect();
    let follows = |(one, first): &(usize, &Line), (next, second): &(usize, &Line)| {
        let follows = match (first.handle, second.handle) {
            (Some(first), Some(second)) => first.abs_diff(second) == 1,
            (None, None) => one + 1 == *next,
            (Some(_), None) | (None, Some(_)) => false,
        };
        follows && part(*one) == part(*next) && !saves(first) && !saves(second)
    };
    let chain = chain_digest(lines.iter().map(line_hash));
    let block = |run: &[(usize, &Line)]| {
        let (before, _) = *run.first()?;
        let handle = run.iter().filter_map(|(_, line)| line.handle).min();
        let position = BlockLocation::Position(Position { before, chain });
        let jumps = |at: usize| lines.get(at).is_some_and(|line| line.jump.is_some());
        Some(Block {
            variant,
            family,
            table,
            hook,
            part: part(before),
            behind_jump: before.checked_sub(1).is_some_and(jumps),
            count: run.len(),
            digest: digest(run.iter().filter_map(|(_, line)| line.statement.as_ref()).map(hash)),
            at: Some(handle.map_or(position, BlockLocation::Handle)),
        })
    };
    certain.chunk_by(follows).filter_map(block).collect()
}

/// Whether a plan knows of each line whether it is ours.
fn is_known<'a>(lines: impl IntoIterator<Item = &'a Line>) -> bool {
    lines.into_iter().all(|line| line.ours.is_some())
}

/// Whether one of our rules was put behind what was in the chain: everything but what virtual interfaces
/// need, and plain RETURNs, which may be either.
pub(super) fn is_in_tail(line: &Line) -> bool {
    let rerouted = |statement: &Statement| {
        statement.matcher.in_interface.is_some() && statement.target == Target::Jump(Chain::Redirect)
    };
    line.statement.as_ref().is_none_or(|statement| !rerouted(statement) && !forms::is_plain_return(statement))
}

/// Whether the record, if there is one, divides these rules as they are to be written now. If it does not,
/// the same lines have another meaning, and are written again so that their places are known.
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

/// `certain`, with lines that the options ask for and that may be ours: enough to see that nothing is
/// missing, not enough to delete anything. With a record only what it says was written can be meant; without
/// one there must be chains of Istio's.
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
                    let more = search::all(table, hook, lines, &block, 0);
                    let more = more.into_iter().map(|places| so_far.iter().copied().chain(places).into_set());
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
        .into_set()
}
