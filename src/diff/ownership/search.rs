//! Finds a recorded run of rules in a shared chain.

use std::collections::BTreeSet;

use super::forms;
use crate::model::{Hook, Table};
use crate::parse::Line;
use crate::record::{Block, Part, digest, hash};

/// Most possibilities that are compared. With more, the chain has too many identical rules to decide which are ours.
pub(super) const MOST: usize = 64;
/// Most lines of our forms among which a run is searched that foreign rules have broken up.
const MOST_SCATTERED: usize = 14;

/// Where a run is. Both are empty if it is not in the chain.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Surely in these places.
    pub(super) certain: Vec<usize>,
    /// Besides in some of these: identical lines leave more than one possibility.
    pub(super) ambiguous: BTreeSet<usize>,
}

impl Found {
    fn at(places: &[usize]) -> Self {
        Self { certain: places.to_vec(), ambiguous: BTreeSet::new() }
    }
}

/// Whether a run is surely in these places.
type Proof<'a> = &'a dyn Fn(&[usize]) -> bool;

/// A shared chain, and what is known of it already.
pub(super) struct SharedChain<'a> {
    /// Its rules.
    pub(super) lines: &'a [Line],
    /// The handles of rules of the same table.
    pub(super) batch: &'a Batch,
}

impl SharedChain<'_> {
    /// Chooses among the places in which the run may be. Where it may not have been written, even a single one needs
    /// proof.
    pub(super) fn choose(&self, found: &[Vec<usize>], block: &Block, needs_proof: bool) -> Found {
        let Self { lines, batch } = self;
        match found {
            [] => return Found::default(),
            // A single line that carries our mark is the one of ours that the record says may be there.
            [one] if !needs_proof || !one.iter().any(|at| self.is_plain_return(*at)) => {
                return Found::at(one);
            }
            _ => {}
        }
        let by_handle = lines.iter().all(|line| line.handle.is_some());
        let proofs: &[Proof<'_>] = if by_handle {
            &[&|places| from_batch(lines, places, block, batch, 1), &|places| {
                from_batch(lines, places, block, batch, u64::MAX)
            }]
        } else {
            &[&|places| is_contiguous(places) && is_where_it_was(lines, block, &[places.to_vec()])]
        };
        for proof in proofs {
            let mut proved = found.iter().filter(|places| proof(places));
            if let (Some(one), None) = (proved.next(), proved.next()) {
                return Found::at(one);
            }
        }
        let mut ambiguous: BTreeSet<usize> = found.iter().flatten().copied().collect();
        if needs_proof || found.len() >= MOST {
            return Found { certain: Vec::new(), ambiguous };
        }
        // It was written, and these are all the places: what they have in common is part of it.
        let certain: Vec<usize> =
            ambiguous.iter().copied().filter(|at| found.iter().all(|places| places.contains(at))).collect();
        ambiguous.retain(|at| !certain.contains(at));
        Found { certain, ambiguous }
    }

    fn is_plain_return(&self, at: usize) -> bool {
        let statement = self.lines.get(at).and_then(|line| line.statement.as_ref());
        statement.is_some_and(forms::is_plain_return)
    }
}

/// A recorded run with the places in which it may be.
pub(super) type Candidates = (Block, Vec<Vec<usize>>);

/// Leaves only what fits: rules of the head come before those of the tail. Nothing changes if that does not work out:
/// while a change is under way the record has runs that are not written.
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

/// Whether the run may be exactly where it was written, in a chain as long as then.
pub(super) fn is_where_it_was(lines: &[Line], block: &Block, places: &[Vec<usize>]) -> bool {
    let starts = |at: usize| places.iter().any(|places| places.first() == Some(&at));
    let jump = |at: usize| lines.get(at).is_some_and(|line| line.jump.is_some());
    let behind = |at: usize| !block.behind_jump || at.checked_sub(1).is_some_and(jump);
    block.at.is_some_and(|at| at.of == lines.len() && starts(at.before) && behind(at.before))
}

/// nf_tables handles of the rules of a table.
pub(super) struct Batch {
    /// Of rules that are surely ours, but for those at the head of a shared chain.
    pub(super) ours: BTreeSet<u64>,
    /// Of jumps at the head of a shared chain.
    pub(super) head: BTreeSet<u64>,
    /// Of rules in shared chains that have a form of ours.
    pub(super) similar: BTreeSet<u64>,
}

/// Whether the lines were added one after the other, and at most `distance` rules of our forms before one that is
/// surely ours.
fn from_batch(lines: &[Line], places: &[usize], block: &Block, batch: &Batch, distance: u64) -> bool {
    let handles: Vec<u64> = places.iter().filter_map(|at| lines.get(*at)?.handle).collect();
    let follows = |pair: &[u64]| matches!(pair, [a, b] if a.abs_diff(*b) == 1);
    let highest = handles.iter().max().copied().unwrap_or_default();
    let next = (highest.saturating_add(1)..=highest.saturating_add(distance))
        .find(|handle| !batch.similar.contains(handle));
    // The head is written from its end: what comes before in the chain is numbered behind.
    let own = match (block.part, block.behind_jump) {
        (Part::Head, true) => &batch.head,
        (Part::Head, false) | (Part::Tail, _) => &batch.ours,
    };
    handles.windows(2).all(follows) && next.is_some_and(|next| own.contains(&next))
}

/// Every place in which the run may be: consecutive lines, or, where foreign rules were put in between, any lines of
/// our forms that are in its order. At most [`MOST`].
pub(super) fn all(table: Table, hook: Hook, lines: &[Line], block: &Block) -> Vec<Vec<usize>> {
    let candidates: Vec<(usize, u32)> = lines
        .iter()
        .enumerate()
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
