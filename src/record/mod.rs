//! The record of a run in the network namespace: its rules in the shared chains that nothing else identifies
//! as ours.
//!
//! A jump to one of our chains identifies a rule as ours. `-i eth1 -j RETURN` does not: another program may
//! have added the same rule, and some kernels do not support comments. So each run stores a digest of such
//! rules in the alias of `lo`, which every kernel keeps per network namespace and on which no packet, rule or
//! route depends.

mod block;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Family, Table, Variant};
use crate::ordered::Ordered as _;

pub use block::{Block, BlockLocation, ForeignRules, Numbering, Part, Position};
pub(crate) use block::{blocks_of, chain_digest, digest, hash, hash_of_words, runs};
pub use text::NotOurs;

/// Longest alias that the kernel keeps (`IFALIASZ` without the NUL).
const LONGEST: usize = 255;

/// What one or more runs recorded.
///
/// A table is written in one transaction: while a run is under way, each table holds what was found at its
/// beginning, or one of the sets of rules that the run writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Whose tables it covers: in those of another variant rules of ours are Istio's, or an older version's.
    variants: BTreeSet<Variant>,
    /// What the last run wrote, or, while a run is under way, what it found.
    live: BTreeSet<Block>,
    /// What the run that is under way writes, one after the other; nothing if none is.
    unfinished: Vec<BTreeSet<Block>>,
    /// The tables of iptables-nft as the run found them.
    numbering: BTreeMap<(Family, Table), Numbering>,
    /// Whether there may be rules of ours that it does not name: there was no room, an interrupted run found
    /// some that may be foreign, or the record is one of another version.
    incomplete: bool,
    /// Rules that may be ours or foreign and that finished runs left: each with the digest of its statement
    /// and the number of identical ones.
    left: BTreeSet<Block>,
    /// Ports that earlier options redirected to, and these do not: connections to them may be open.
    pub earlier_ports: BTreeSet<u16>,
    /// Whether `::6` on `lo` was added by us, for kernels that keep no protocol number of addresses (before
    /// 5.18).
    pub passthrough: bool,
}

/// The rules of ours that a run found in the shared chains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The rules.
    pub blocks: BTreeSet<Block>,
    /// The tables of iptables-nft.
    pub numbering: BTreeMap<(Family, Table), Numbering>,
    /// Whether there are others of which nothing shows whether they are ours.
    pub is_ambiguous: bool,
}

impl Record {
    /// What says that these blocks are there, in the tables of these variants.
    pub(crate) fn of_blocks(variants: BTreeSet<Variant>, blocks: BTreeSet<Block>, passthrough: bool) -> Self {
        Self { variants, live: blocks, passthrough, ..Self::default() }
    }

    /// What a run leaves that writes no rule into a table of iptables.
    pub(crate) fn without_blocks(passthrough: bool) -> Self {
        Self { passthrough, ..Self::default() }
    }

    /// The union of this record and another.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            variants: &self.variants | &other.variants,
            live: &self.live | &other.live,
            passthrough: self.passthrough || other.passthrough,
            ..self.clone()
        }
    }

    /// The record in the alias of `lo`, if there is one. One of another version says that rules of ours may
    /// be there.
    #[must_use]
    pub fn read(alias: Option<&str>) -> Option<Self> {
        let alias = alias?;
        let unknown = || Self { incomplete: true, ..Self::default() };
        alias.parse().ok().or_else(|| text::is_ours(alias).then(unknown))
    }

    /// Whether a run wrote rules into this variant's tables.
    #[must_use]
    pub fn names(&self, variant: Variant) -> bool {
        self.variants.contains(&variant)
    }

    /// The part about one variant's tables; `None` if it does not cover them.
    #[must_use]
    pub fn of_variant(&self, variant: Variant) -> Option<Self> {
        let here = |blocks: &BTreeSet<Block>| -> BTreeSet<Block> {
            blocks.iter().filter(|block| block.variant == variant).copied().into_set()
        };
        let covers = self.incomplete || self.variants.contains(&variant) || !here(&self.left).is_empty();
        covers.then(|| Self {
            variants: [variant].into(),
            live: here(&self.live),
            unfinished: self.unfinished.iter().map(here).collect(),
            left: here(&self.left),
            ..self.clone()
        })
    }

    /// The record while the run that leaves it is under way, from what it found. `live` is the record of the
    /// run before.
    #[must_use]
    pub fn taking_over(&self, live: &Self, found: &Found, transitional: Option<&Self>) -> Self {
        let unfinished = transitional.into_iter().chain([self]);
        Self {
            variants: unfinished.clone().fold(live.variants.clone(), |all, more| &all | &more.variants),
            unfinished: unfinished.map(|record| record.live.clone()).collect(),
            earlier_ports: self.earlier_ports.iter().chain(&live.earlier_ports).copied().into_set(),
            passthrough: self.passthrough || live.passthrough,
            ..live.found(found)
        }
    }

    /// The record while a clean-up is under way, from what that found.
    #[must_use]
    pub fn removing(&self, found: &Found) -> Self {
        Self { unfinished: vec![BTreeSet::new()], ..self.found(found) }
    }

    fn found(&self, found: &Found) -> Self {
        let Found { blocks, numbering, is_ambiguous: incomplete } = found.clone();
        Self { live: blocks, numbering, unfinished: Vec::new(), incomplete, ..self.clone() }
    }

    /// Keeps the mark of an incomplete record (`?`) from an earlier run: rules that it had no room for still
    /// exist, and no other data names them.
    #[must_use]
    pub(crate) fn with_gap_of(self, earlier: &Self) -> Self {
        let names_rules = !(earlier.variants.is_empty() && earlier.left.is_empty());
        let has_gap = earlier.incomplete && !earlier.is_changing() && names_rules;
        Self { incomplete: self.incomplete || has_gap, ..self }
    }

    /// The record with rules that may be ours or foreign and stay.
    #[must_use]
    pub(crate) fn leaving(self, left: BTreeSet<Block>) -> Self {
        Self { left, ..self }
    }

    /// The record with ports that earlier options redirected to.
    #[must_use]
    pub(crate) fn after(self, earlier_ports: BTreeSet<u16>) -> Self {
        Self { earlier_ports, ..self }
    }

    /// Rules that may be ours or foreign and that finished runs left. Each block is one statement, however
    /// often it was there.
    pub(crate) fn left(&self) -> impl Iterator<Item = &Block> {
        self.left.iter()
    }

    /// Whether it names rules that nothing else distinguishes from foreign ones, or says that there may be
    /// others.
    #[must_use]
    pub fn tells_of_rules(&self) -> bool {
        self.incomplete || !self.left.is_empty() || self.blocks().next().is_some()
    }

    /// Whether it tells of rules, tables or the address beyond what this one names: what a run that is killed
    /// leaves would not be recognised by the other one.
    #[must_use]
    pub fn names_more_than(&self, other: &Self) -> bool {
        self.tells_of_rules() || self.variants != other.variants || (self.passthrough && !other.passthrough)
    }

    /// Whether rules of ours may be in these tables without a chain of ours: a run was interrupted, or
    /// another program has deleted the chains.
    #[must_use]
    pub fn may_have_left(&self, variant: Variant, family: Family) -> bool {
        let here = |block: &Block| (block.variant, block.family) == (variant, family);
        let unnamed = || self.incomplete && self.variants.contains(&variant);
        (self.is_changing() && unnamed()) || self.blocks().chain(&self.left).any(here)
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.unfinished.iter().chain([&self.live]).flatten()
    }

    /// The sets of rules of which one is in a table: what was there first, then what was to be written, in
    /// order.
    #[must_use]
    pub fn generations(&self, family: Family, table: Table) -> Vec<Vec<Block>> {
        let here = |blocks: &BTreeSet<Block>| -> Vec<Block> {
            blocks.iter().filter(|block| (block.family, block.table) == (family, table)).copied().collect()
        };
        [&self.live].into_iter().chain(&self.unfinished).map(here).collect()
    }

    /// The numbers of a table of iptables-nft when the run began that made the record.
    #[must_use]
    pub fn numbering(&self, family: Family, table: Table) -> Option<Numbering> {
        self.numbering.get(&(family, table)).copied()
    }

    /// Whether a change is under way, or was interrupted.
    #[must_use]
    pub const fn is_changing(&self) -> bool {
        !self.unfinished.is_empty()
    }

    /// Whether there may be rules of ours that it does not name.
    #[must_use]
    pub const fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Whether rules like these were written, or were to be written, wherever that was.
    #[must_use]
    pub fn has(&self, block: &Block) -> bool {
        self.blocks().any(|known| Block { at: block.at, behind_jump: block.behind_jump, ..*known } == *block)
    }

    /// The record with the places of blocks that were found and are not written again.
    #[must_use]
    pub fn with_places_of(mut self, found: &Found) -> Self {
        let known = |block: Block| {
            let same =
                |other: &&Block| Block { at: None, behind_jump: block.behind_jump, ..**other } == block;
            found.blocks.iter().find(same).map_or(block, |same| Block { at: same.at, ..block })
        };
        let numbered = |block: Block| {
            let table =
                block.variant == Variant::Nft && found.numbering.contains_key(&(block.family, block.table));
            let is_new = table && matches!(block.at, Some(BlockLocation::Position(_)));
            Block { at: if is_new { Some(BlockLocation::New) } else { block.at }, ..block }
        };
        self.live = self.live.into_iter().map(known).map(numbered).into_set();
        self.numbering.clone_from(&found.numbering);
        self
    }

    /// Whether it says all that `other` says, wherever the rules were.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        !self.is_changing()
            && self.incomplete == other.incomplete
            && self.variants == other.variants
            && self.passthrough >= other.passthrough
            && self.left == other.left
            && self.earlier_ports == other.earlier_ports
            && other.live.iter().all(|block| self.has(block))
    }

    /// The alias that says this. Where the kernel has no room for all of it, what matters least is left out
    /// first; that a run was under way never is.
    #[must_use]
    pub fn alias(&self) -> String {
        let mut record = self.clone();
        loop {
            let alias = record.to_string();
            if alias.len() <= LONGEST || !record.shorten() {
                return alias;
            }
        }
    }

    /// Leaves something out: earlier ports, rules that may be foreign, transitional rules, then what was to
    /// be written, then what was found; `false` if nothing is left.
    fn shorten(&mut self) -> bool {
        if !std::mem::take(&mut self.earlier_ports).is_empty() {
            return true;
        }
        self.incomplete = true;
        if self.left.pop_last().is_some() {
            return true;
        }
        if self.unfinished.len() > 1 {
            self.unfinished.remove(0);
            return true;
        }
        if let Some(last) = self.unfinished.iter_mut().find(|last| !last.is_empty()) {
            last.clear();
            return true;
        }
        self.live.pop_last().is_some() || !std::mem::take(&mut self.numbering).is_empty()
    }
}
