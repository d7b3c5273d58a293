//! What a run records in the namespace: which of its rules in the shared chains carry no sign of ours.
//!
//! A rule that jumps to a chain of ours is known by that. `-i eth1 -j RETURN` is not: another program may have added the
//! very same one, and comments are unavailable on some kernels. So each run leaves a digest of such rules as the alias of
//! `lo`, which every kernel keeps per network namespace and which no packet, rule or route depends on.

mod text;

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Family, Hook, HookRules, Rule, Statement, Table, TableHandles, Target, Variant};
use crate::ordered::Ordered as _;

pub use text::NotOurs;

/// Longest alias that the kernel keeps (`IFALIASZ` without the NUL).
const LONGEST: usize = 255;

/// Where a run of rules was put in a shared chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Before the rules that were there.
    Head,
    /// Behind the rules that were there.
    Tail,
}

/// Consecutive rules of ours in a shared chain, none of which jumps to a chain of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Block {
    /// Whose tables they are in.
    pub variant: Variant,
    /// Their family.
    pub family: Family,
    /// Their table.
    pub table: Table,
    /// Their chain.
    pub hook: Hook,
    /// Where in the chain.
    pub part: Part,
    /// Whether a jump of ours that was put there with them comes before them.
    pub behind_jump: bool,
    /// How many rules.
    pub count: usize,
    /// Digest of the rules in order.
    pub digest: u32,
    /// Where they are, as far as it is known.
    pub at: Option<Place>,
}

/// Where recorded rules are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Where they were put, in a table without handles.
    Position(Position),
    /// Written by the run that made the record: their handles are above [`Numbering::highest`].
    New,
    /// Found with this nf_tables handle and the ones that follow it. No other rule of the table ever gets these.
    Handle(u64),
}

/// Distinguishes the rules that an nf_tables table has from rules added later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbering {
    /// Handle of the table. The kernel never reuses it, while rule handles restart in every new table.
    pub table: u64,
    /// The highest handle of a rule.
    pub highest: u64,
}

impl From<&TableHandles> for Numbering {
    fn from(handles: &TableHandles) -> Self {
        let highest = handles.rules.values().flatten().max().copied().unwrap_or_default();
        Self { table: handles.table, highest }
    }
}

/// A place in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// How many rules come before.
    pub before: usize,
    /// Digest of all rules of the chain, ours and foreign ones, in order.
    pub chain: u32,
}

/// The foreign rules of a shared chain that ours are written into.
#[derive(Clone, Copy, Debug)]
pub struct ForeignRules<'a> {
    /// Their hashes, in order.
    pub hashes: &'a [u32],
    /// How many of them come before our tail.
    pub before: usize,
}

impl ForeignRules<'_> {
    /// Digest of the chain with these rules of ours.
    fn chain(&self, rules: &HookRules) -> u32 {
        let (before, after) = self.hashes.split_at(self.before.min(self.hashes.len()));
        let ours = |rules: &[Rule]| rules.iter().map(|rule| hash(&rule.statement)).collect::<Vec<_>>();
        chain_digest([&ours(&rules.head), before, &ours(&rules.tail), after].concat())
    }
}

/// What one or more runs recorded.
///
/// A table is written in one transaction: while a run is under way, each table holds what was found at its beginning, or one
/// of the sets of rules that the run writes.
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
    /// Whether there may be rules of ours that it does not name: there was no room, an interrupted run found some that may be
    /// foreign, or the record is one of another version.
    incomplete: bool,
    /// Whether `::6` on `lo` was added by us, for kernels that keep no protocol number of addresses (before 5.18).
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

    /// Both at once.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            variants: &self.variants | &other.variants,
            live: &self.live | &other.live,
            passthrough: self.passthrough || other.passthrough,
            ..self.clone()
        }
    }

    /// The record in the alias of `lo`, if there is one. One of another version says that rules of ours may be there.
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
        (self.incomplete || self.variants.contains(&variant)).then(|| Self {
            variants: [variant].into(),
            live: here(&self.live),
            unfinished: self.unfinished.iter().map(here).collect(),
            ..self.clone()
        })
    }

    /// The same while the run that leaves it is under way, from what it found. `live` is the record of the run before.
    #[must_use]
    pub fn taking_over(&self, live: &Self, found: &Found, transitional: Option<&Self>) -> Self {
        let unfinished = transitional.into_iter().chain([self]);
        Self {
            variants: unfinished.clone().fold(live.variants.clone(), |all, more| &all | &more.variants),
            unfinished: unfinished.map(|record| record.live.clone()).collect(),
            passthrough: self.passthrough || live.passthrough,
            ..live.found(found)
        }
    }

    /// The same while a clean-up is under way, from what that found.
    #[must_use]
    pub fn removing(&self, found: &Found) -> Self {
        Self { unfinished: vec![BTreeSet::new()], ..self.found(found) }
    }

    fn found(&self, found: &Found) -> Self {
        let Found { blocks, numbering, is_ambiguous: incomplete } = found.clone();
        Self { live: blocks, numbering, unfinished: Vec::new(), incomplete, ..self.clone() }
    }

    /// Whether it names rules that nothing else distinguishes from foreign ones, or says that there may be others.
    #[must_use]
    pub fn tells_of_rules(&self) -> bool {
        self.incomplete || self.blocks().next().is_some()
    }

    /// Whether it tells of rules, tables or the address beyond what this one names: what a run that is killed leaves would not be
    /// recognised by the other one.
    #[must_use]
    pub fn names_more_than(&self, other: &Self) -> bool {
        self.tells_of_rules() || self.variants != other.variants || (self.passthrough && !other.passthrough)
    }

    /// Whether a run was interrupted that may have left rules of ours in these tables without a chain of ours.
    #[must_use]
    pub fn may_have_left(&self, variant: Variant, family: Family) -> bool {
        let here = |block: &Block| (block.variant, block.family) == (variant, family);
        let unnamed = || self.incomplete && self.variants.contains(&variant);
        self.is_changing() && (unnamed() || self.blocks().any(here))
    }

    fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.unfinished.iter().chain([&self.live]).flatten()
    }

    /// The sets of rules of which one is in a table: what was there first, then what was to be written, in order.
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

    /// The same, with the places of blocks that were found and are not written again.
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
            let is_new = table && matches!(block.at, Some(Place::Position(_)));
            Block { at: if is_new { Some(Place::New) } else { block.at }, ..block }
        };
        self.live = self.live.into_iter().map(known).map(numbered).into_set();
        self.numbering.clone_from(&found.numbering);
        self
    }

    /// Whether it says all that `other` says, wherever the rules were.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        !self.is_changing()
            && !self.incomplete
            && self.variants == other.variants
            && self.passthrough >= other.passthrough
            && other.live.iter().all(|block| self.has(block))
    }

    /// The alias that says this. Where the kernel has no room for all of it, what matters least is left out first; that a run
    /// was under way never is.
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

    /// Leaves something out: transitional rules, then what was to be written, then what was found; `false` if nothing is left.
    fn shorten(&mut self) -> bool {
        self.incomplete = true;
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

/// The blocks of rules that go into a shared chain with these foreign rules.
pub(crate) fn blocks_of(
    variant: Variant,
    family: Family,
    (table, hook): (Table, Hook),
    rules: &HookRules,
    foreign: Option<ForeignRules<'_>>,
) -> Vec<Block> {
    let chain = foreign.map(|foreign| foreign.chain(rules));
    let tail = foreign.map_or(0, |foreign| foreign.before) + rules.head.len();
    let of = |part, rules: &[Rule], begin: usize| -> Vec<Block> {
        let jumps = |rule: &Rule| rule.statement.target.jump().is_some();
        runs(rules)
            .map(move |(offset, run)| Block {
                variant,
                family,
                table,
                hook,
                part,
                behind_jump: offset.checked_sub(1).and_then(|before| rules.get(before)).is_some_and(jumps),
                count: run.len(),
                digest: digest(run.iter().map(|rule| hash(&rule.statement))),
                at: chain.map(|chain| Place::Position(Position { before: begin + offset, chain })),
            })
            .collect()
    };
    [of(Part::Head, &rules.head, 0), of(Part::Tail, &rules.tail, tail)].concat()
}

/// The runs of rules that jump to no chain of ours, with the place of the first one. A rule that saves marks is a run of
/// its own: it has another form while a run moves from one backend to another.
pub(crate) fn runs(rules: &[Rule]) -> impl Iterator<Item = (usize, &[Rule])> {
    let jumps = |rule: &Rule| rule.statement.target.jump().is_some();
    let saves = |rule: &Rule| rule.statement.target == Target::SaveMark;
    let mut offset = 0;
    rules
        .chunk_by(move |one, next| !jumps(one) && !jumps(next) && !saves(one) && !saves(next))
        .map(move |run| {
            let place = offset;
            offset += run.len();
            (place, run)
        })
        .filter(move |(_, run)| !run.iter().any(jumps))
}

/// FNV-1a of a statement's words.
pub(crate) fn hash(statement: &Statement) -> u32 {
    fnv(statement.to_string().bytes())
}

/// FNV-1a of a foreign rule's words that are not understood.
pub(crate) fn hash_of_words(words: &str) -> u32 {
    fnv(words.bytes())
}

/// FNV-1a of the hashes of all rules of a chain.
pub(crate) fn chain_digest(hashes: impl IntoIterator<Item = u32>) -> u32 {
    // As much as the record has room for.
    digest(hashes) & 0xff_ffff
}

/// FNV-1a of the hashes of several statements.
pub(crate) fn digest(hashes: impl IntoIterator<Item = u32>) -> u32 {
    // As much as the record has room for.
    fnv(hashes.into_iter().flat_map(u32::to_be_bytes)) & 0x3fff_ffff
}

fn fnv(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
