//! Identifies our rules by the record of our runs.
//!
//! A table is written in one transaction, so it has one of the rule sets in the record. In nf_tables, the
//! rules that a run found at its start are known by handle, and the rules written since have higher handles,
//! adjacent to those of other rules of ours. In iptables-legacy only the position in the chain identifies the
//! rule set.

use std::collections::BTreeSet;

use super::{Ours, forms, search};
use crate::model::{Family, Hook, Table};
use crate::ordered::Ordered as _;
use crate::parse::ObservedTable;
use crate::reconcile::statements;
use crate::record::{Block, BlockLocation, Numbering, Record};
use search::{Batch, Candidates};

/// The sets of rules that a table may hold, found in its shared chains.
type Generation = Vec<Candidates>;

pub(super) fn rules(
    (family, table): (Family, Table),
    observed: &ObservedTable,
    record: &Record,
    ours: &mut Ours,
) {
    let live = observed.handles.as_ref().map(Numbering::from);
    let known =
        record.numbering(family, table).filter(|known| live.is_some_and(|live| live.table == known.table));
    let mut generations = record.generations(family, table);
    let is_in_every_set = generations.iter().all(|blocks| !blocks.is_empty());
    let mut is_replaced = false;
    if known.is_some() {
        by_handle(observed, &generations, ours);
        let is_gone =
            |block: &Block| !ours.blocks.iter().any(|(other, places)| other == block && !places.is_empty());
        is_replaced = generations.first().is_some_and(|found| found.iter().any(is_gone));
        let has_handle = |block: &Block| matches!(block.at, Some(BlockLocation::Handle(_)));
        generations.iter_mut().for_each(|blocks| blocks.retain(|block| !has_handle(block)));
    }
    // Every table with rules of ours has chains of ours, which come and go in the same transaction.
    let is_filled = if record.is_changing() {
        observed.chains.values().any(|lines| !lines.is_empty())
    } else {
        !observed.chains.is_empty()
    };
    let possible = |blocks: &&Vec<Block>| blocks.is_empty() || is_filled;
    let floor = known.map_or(0, |known| known.highest);
    let found: Vec<Generation> =
        generations.iter().filter(possible).map(|blocks| find(table, observed, blocks, floor)).collect();
    // Where each set has rules in the table, each has chains there: without them, another program has deleted
    // those. It cannot have left our rules in a table that it made again.
    let is_same_table = known.is_some() || live.is_none() || record.numbering(family, table).is_none();
    if is_in_every_set && is_same_table {
        for blocks in generations.iter().filter(|blocks| !possible(blocks)) {
            find(table, observed, blocks, floor).iter().for_each(|candidates| ours.leave_open(candidates));
        }
    }
    if !record.is_changing() {
        found.iter().for_each(|found| claim(table, observed, found, false, ours));
    } else if live.is_some() {
        by_transaction(table, observed, &found, is_replaced, ours);
    } else {
        by_place(table, observed, &found, ours);
    }
    if record.is_incomplete() {
        for hook in Hook::ALL {
            let unnamed = statements(observed.hook(hook))
                .filter(|(_, statement)| forms::may_be_ours(table, hook, statement))
                .map(|(at, _)| at);
            ours.ambiguous.entry(hook).or_default().extend(unnamed);
        }
    }
}

/// Claims what was found with a handle.
fn by_handle(observed: &ObservedTable, generations: &[Vec<Block>], ours: &mut Ours) {
    for block in generations.iter().flatten() {
        let Some(BlockLocation::Handle(first)) = block.at else { continue };
        let past = first.saturating_add(u64::try_from(block.count).unwrap_or(u64::MAX));
        let lines = observed.hook(block.hook).iter().enumerate();
        let here =
            lines.filter(|(_, line)| line.handle.is_some_and(|handle| (first..past).contains(&handle)));
        let places: Vec<usize> = here.map(|(at, _)| at).collect();
        ours.claim_block(block, places);
    }
}

/// Every place in which the rules of a set may be. What was written since the table had `floor` as its
/// highest handle is above it.
fn find(table: Table, observed: &ObservedTable, blocks: &[Block], floor: u64) -> Generation {
    let of = |hook: Hook| {
        let here = blocks.iter().filter(move |block| block.hook == hook);
        let found = here.map(move |block| {
            let floor = if block.at == Some(BlockLocation::New) { floor } else { 0 };
            (*block, search::all(table, hook, observed.hook(hook), block, floor))
        });
        search::in_order(found.collect())
    };
    Hook::ALL.into_iter().flat_map(of).collect()
}

/// Claims the only set that can be there, if rules that were found are gone, which it has replaced, or if it
/// is conclusive; else the set next to other rules of ours. A second transaction of the same run may have
/// rewritten those rules: then no rule of ours is next to what the first transaction wrote.
fn by_transaction(
    table: Table,
    observed: &ObservedTable,
    found: &[Generation],
    is_replaced: bool,
    ours: &mut Ours,
) {
    let is_whole = |generation: &&Generation| {
        !generation.is_empty() && generation.iter().all(|(_, places)| !places.is_empty())
    };
    let whole: Vec<&Generation> = found.iter().filter(is_whole).collect();
    if let Some(generation) = whole.first()
        && (is_replaced || is_conclusive(generation))
        && whole.iter().all(|other| other == generation)
    {
        return claim(table, observed, generation, false, ours);
    }
    let all: Generation = found.iter().flatten().cloned().into_set().into_iter().collect();
    claim(table, observed, &all, true, ours);
}

/// How many rules a set has at least that cannot all be foreign by chance: those of TPROXY mode in mangle.
/// Two interfaces that are excluded have four, which another program may have too.
const CONCLUSIVE: usize = 5;

/// Whether the table holds this set, although the other possibility is that a killed run had not written any:
/// it is long, and each of its rules is in one place only.
fn is_conclusive(generation: &Generation) -> bool {
    let rules: usize = generation.iter().map(|(block, _)| block.count).sum();
    rules >= CONCLUSIVE && generation.iter().all(|(_, places)| places.len() == 1)
}

/// Claims the set of rules that is where it was written, or the only one that can be there; else what each
/// place proves.
fn by_place(table: Table, observed: &ObservedTable, found: &[Generation], ours: &mut Ours) {
    let named = || found.iter().filter(|generation| !generation.is_empty());
    let in_place =
        |(block, places): &Candidates| search::is_where_it_was(observed.hook(block.hook), block, places);
    let placed: Vec<&Generation> = named().filter(|generation| generation.iter().all(in_place)).collect();
    let lines = |generation: &Generation| {
        generation.iter().map(|(block, _)| (block.hook, block.at, block.count)).collect::<Vec<_>>()
    };
    if let Some(generation) = placed.first()
        && placed.iter().all(|other| lines(other) == lines(generation))
    {
        return claim(table, observed, generation, false, ours);
    }
    let whole: Vec<&Generation> =
        named().filter(|generation| generation.iter().all(|(_, places)| !places.is_empty())).collect();
    let places =
        |generation: &Generation| generation.iter().map(|(_, places)| places.clone()).collect::<Vec<_>>();
    let same = whole.windows(2).all(|pair| matches!(pair, [one, other] if places(one) == places(other)));
    match whole.first() {
        Some(generation)
            if same
                && (found.iter().all(|generation| !generation.is_empty()) || is_conclusive(generation)) =>
        {
            claim(table, observed, generation, false, ours);
        }
        _ => {
            // A set is written in one transaction: what one of its runs is missing of was not written, or was
            // changed since.
            let (possible, broken): (Vec<_>, Vec<_>) =
                named().partition(|generation| generation.iter().all(|(_, places)| !places.is_empty()));
            possible.into_iter().for_each(|generation| claim(table, observed, generation, true, ours));
            broken.into_iter().flatten().for_each(|candidates| ours.leave_open(candidates));
        }
    }
}

/// Claims what was found, where that is one place, or proved. What is proved proves others: until nothing is
/// added. Then what all places of a run have in common.
fn claim(table: Table, observed: &ObservedTable, found: &[Candidates], needs_proof: bool, ours: &mut Ours) {
    let mut batch: Option<Batch> = None;
    let mut open: Vec<&Candidates> = found.iter().collect();
    loop {
        let (before, mut unproved) = (open.len(), Vec::new());
        // The last first: the handles after it are those of chains of ours.
        for candidates in open.into_iter().rev() {
            let (block, places) = candidates;
            let lines = observed.hook(block.hook);
            let (left, needs_proof) = free(places, needs_proof, &ours.of(block.hook));
            let certain = match left.as_slice() {
                [] => None,
                [one] if !needs_proof => Some(*one),
                left => {
                    let batch = batch.get_or_insert_with(|| batch_of(table, observed, ours));
                    search::proved(lines, left, block, batch)
                }
            };
            let Some(places) = certain else {
                unproved.push(candidates);
                continue;
            };
            if let Some(batch) = &mut batch {
                batch.ours.extend(places.iter().filter_map(|at| lines.get(*at)?.handle));
            }
            ours.claim_block(block, places.clone());
        }
        unproved.reverse();
        open = unproved;
        if open.len() == before {
            break;
        }
    }
    for candidates in open {
        let (block, places) = candidates;
        let (left, needs_proof) = free(places, needs_proof, &ours.of(block.hook));
        let common = if needs_proof { Vec::new() } else { search::common(&left) };
        // Where another run of rules has some of these places, the others may be ours, or foreign.
        ours.leave_open(candidates);
        if !common.is_empty() {
            ours.claim_block(block, common);
        }
    }
}

/// The places that nothing else has, and whether one of them needs proof: what only remains because others
/// are claimed is no better than one of several.
fn free<'a>(
    places: &'a [Vec<usize>],
    needs_proof: bool,
    certain: &BTreeSet<usize>,
) -> (Vec<&'a Vec<usize>>, bool) {
    let left: Vec<_> = places.iter().filter(|places| !places.iter().any(|at| certain.contains(at))).collect();
    let needs_proof = needs_proof || left.len() < places.len();
    (left, needs_proof)
}

/// The handles that show which rules were written in one transaction with others of ours.
fn batch_of(table: Table, observed: &ObservedTable, ours: &Ours) -> Batch {
    let chains = observed.handles.as_ref().map(|handles| handles.chains.clone()).unwrap_or_default();
    let mut batch = Batch { chains, ..Batch::default() };
    batch.ours.extend(observed.chains.values().flatten().filter_map(|line| line.handle));
    for hook in Hook::ALL {
        let certain = ours.of(hook);
        for (_, line) in observed.hook(hook).iter().enumerate().filter(|(at, _)| certain.contains(at)) {
            batch.ours.extend(line.handle);
            batch.jumps.extend(line.handle.filter(|_| forms::is_our_jump(table, hook, line)));
        }
    }
    batch
}
