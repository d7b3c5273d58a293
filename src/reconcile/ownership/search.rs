//! Finds a recorded run of rules in a shared chain.

use std::collections::BTreeSet;

use super::{forms, line_hash};
use crate::model::{Hook, Table};
use crate::parse::Line;
use crate::record::{Block, BlockLocation, Part, chain_digest, digest, hash};

/// Most possibilities that are compared. With more, the chain has too many identical rules to decide which
/// are ours.
pub(super) const MOST: usize = 64;
/// Most lines of our forms among which a run is searched that foreign rules have broken up.
const MOST_SCATTERED: usize = 14;

/// Whether a run is surely in these places.
type Proof<'a> = &'a dyn Fn(&[usize]) -> bool;

/// The places, one of `found`, in which the run surely is.
pub(super) fn proved<'a>(
    lines: &[Line],
    found: &[&'a Vec<usize>],
    block: &Block,
    batch: &Batch,
) -> Option<&'a Vec<usize>> {
    let by_handle = lines.iter().all(|line| line.handle.is_some());
    let proof: Proof<'_> = if by_handle {
        &|places| from_batch(lines, places, block, batch)
    } else {
        &|places| is_contiguous(places) && is_where_it_was(lines, block, &[places.to_vec()])
    };
    let mut proved = found.iter().filter(|places| proof(places));
    proved.next().filter(|_| proved.next().is_none()).copied()
}

/// What these places have in common. If the run was written, and these are all the places, that is part of
/// it.
pub(super) fn common(found: &[&Vec<usize>]) -> Vec<usize> {
    let [first, others @ ..] = found else { return Vec::new() };
    let is_common = |at: &&usize| found.len() < MOST && others.iter().all(|places| places.contains(at));
    first.iter().filter(is_common).copied().collect()
}

/// A recorded run with the places in which it may be.
pub(super) type Candidates = (Block, Vec<Vec<usize>>);

/// Leaves only what fits: rules of the head come before those of the tail. Nothing changes if that does not
/// work out: while a change is under way the record has runs that are not written.
pub(super) fn in_order(blocks: Vec<Candidates>) -> Vec<Candidates> {
    let before = |head: &[usize], tail: &[usize]| head.last() < tail.first();
    let fits = |part: Part, places: &[usize]| {
        let others = blocks.iter().filter(|(other, found)| other.part != part && !found.is_empty());
        let beside = |found: &[Vec<usize>]| match part {
            Part::Head => found.iter().any(|tail| before(places, tail)),
            Part::Tail => found.iter().any(|head| before(head, places)),
        };
        others.into_iter().all(|(_, found)| beside(found))
    };
    let ordered: Vec<Candidates> = blocks
        .iter()
        .map(|(block, found)| {
            (*block, found.iter().filter(|places| fits(block.part, places)).cloned().collect())
        })
        .collect();
    let lost = blocks.iter().zip(&ordered).any(|((_, all), (_, left))| !all.is_empty() && left.is_empty());
    if lost { blocks } else { ordered }
}

fn is_contiguous(places: &[usize]) -> bool {
    places.windows(2).all(|pair| matches!(pair, [one, next] if one + 1 == *next))
}

/// Whether the run may be exactly where it was written, in a chain with the same rules as then.
pub(super) fn is_where_it_was(lines: &[Line], block: &Block, places: &[Vec<usize>]) -> bool {
    let starts = |at: usize| places.iter().any(|places| places.first() == Some(&at));
    let jump = |at: usize| lines.get(at).is_some_and(|line| line.jump.is_some());
    let behind = |at: usize| !block.behind_jump || at.checked_sub(1).is_some_and(jump);
    let Some(BlockLocation::Position(at)) = block.at else { return false };
    // The whole chain is hashed only for the place that was recorded.
    starts(at.before) && behind(at.before) && at.chain == chain_digest(lines.iter().map(line_hash))
}

/// nf_tables handles in a table.
#[derive(Default)]
pub(super) struct Batch {
    /// Of rules that are surely ours.
    pub(super) ours: BTreeSet<u64>,
    /// Of those of them in shared chains that jump to a chain of ours.
    pub(super) jumps: BTreeSet<u64>,
    /// Of chains, which are numbered with the rules.
    pub(super) chains: BTreeSet<u64>,
}

/// Whether the lines were added one after the other, right before or after a rule that is surely ours.
fn from_batch(lines: &[Line], places: &[usize], block: &Block, batch: &Batch) -> bool {
    let handles: Vec<u64> = places.iter().filter_map(|at| lines.get(*at)?.handle).collect();
    let (Some(lowest), Some(highest)) = (handles.iter().min(), handles.iter().max()) else { return false };
    let follows = |pair: &[u64]| matches!(pair, [a, b] if a.abs_diff(*b) == 1);
    let next = (highest.saturating_add(1)..).find(|handle| !batch.chains.contains(handle));
    let before = lowest.checked_sub(1).filter(|_| block.part == Part::Tail && block.behind_jump);
    handles.windows(2).all(follows)
        && (next.is_some_and(|next| batch.ours.contains(&next))
            || before.is_some_and(|before| batch.jumps.contains(&before)))
}

/// Every place in which the run may be: consecutive lines, or, where foreign rules were put in between, any
/// lines of our forms that are in its order; with handles, only those above `floor`. At most [`MOST`].
pub(super) fn all(table: Table, hook: Hook, lines: &[Line], block: &Block, floor: u64) -> Vec<Vec<usize>> {
    let candidates: Vec<(usize, u32)> = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.handle.is_none_or(|handle| handle > floor))
        .filter_map(|(at, line)| Some((at, line.statement.as_ref()?)))
        .filter(|(_, statement)| forms::may_be_ours(table, hook, statement))
        .map(|(at, statement)| (at, hash(statement)))
        .collect();
    if candidates.len() <= MOST_SCATTERED {
        let mut found = Vec::new();
        scattered(&candidates, block, &mut Vec::new(), &mut found);
        return found;
    }
    let places = |window: &&[(usize, u32)]| digest(window.iter().map(|(_, hash)| *hash)) == block.digest;
    candidates
        .windows(block.count)
        .filter(|window| {
            let [(first, _), .., (last, _)] = window else { return window.len() == 1 };
            last - first + 1 == window.len()
        })
        .filter(places)
        .take(MOST)
        .map(|window| window.iter().map(|(at, _)| *at).collect())
        .collect()
}

fn scattered(
    candidates: &[(usize, u32)],
    block: &Block,
    chosen: &mut Vec<(usize, u32)>,
    found: &mut Vec<Vec<usize>>,
) {
    if chosen.len() == block.count {
        if digest(chosen.iter().map(|(_, hash)| *hash)) == block.digest {
            found.push(chosen.iter().map(|(at, _)| *at).collect());
        }
        return;
    }
    let missing = block.count - chosen.len();
    for (number, candidate) in candidates.iter().enumerate() {
        let rest = candidates.get(number + 1..).unwrap_or_default();
        if rest.len() + 1 < missing || found.len() == MOST {
            return;
        }
        chosen.push(*candidate);
        scattered(rest, block, chosen, found);
        chosen.pop();
    }
}
