//! What a run records in the namespace: which of its rules in the shared chains carry no sign of ours.
//!
//! A rule that jumps to a chain of ours is known by that. `-i eth1 -j RETURN` is not: another program may have added the
//! very same one, and comments are unavailable on some kernels. So each run leaves a digest of such rules as the alias of
//! `lo`, which every kernel keeps per network namespace and which no packet, rule or route depends on.

mod pending;
mod text;

use std::collections::BTreeSet;

use crate::model::{Family, Hook, HookRules, Rule, Statement, Table, Target, Variant};

pub use pending::PendingDeletion;
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
    /// Where they were when they were written, if the chain was known then.
    pub at: Option<Position>,
}

/// A place in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// How many rules come before.
    pub before: usize,
    /// How many rules the chain has.
    pub of: usize,
}

/// What one or more runs recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Whose tables it speaks of: in those of another variant rules of ours are Istio's, or an older version's.
    variants: BTreeSet<Variant>,
    blocks: BTreeSet<Block>,
    /// While a change is under way: what was there before. A table is written in one transaction, so each table holds
    /// the one or the other.
    earlier: Option<BTreeSet<Block>>,
    /// Whether a clean-up is under way: a table without chains of ours has been written by it.
    removing: bool,
    /// Rules of iptables-nft that are deleted by handle after the rest of their table has been written.
    pending: BTreeSet<PendingDeletion>,
    /// Whether `::6` on `lo` was added by us, for kernels that keep no protocol number of addresses (before 5.18).
    pub passthrough: bool,
}

impl Record {
    /// What says that these blocks are there, in the tables of `variant`.
    pub(crate) fn of_blocks(variant: Variant, blocks: BTreeSet<Block>, passthrough: bool) -> Self {
        Self { variants: [variant].into(), blocks, passthrough, ..Self::default() }
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
            blocks: self.blocks.union(&other.blocks).copied().collect(),
            earlier: self.earlier.clone().or_else(|| other.earlier.clone()),
            removing: self.removing || other.removing,
            pending: &self.pending | &other.pending,
            passthrough: self.passthrough || other.passthrough,
        }
    }

    /// The record in the alias of `lo`, if there is one.
    #[must_use]
    pub fn read(alias: Option<&str>) -> Option<Self> {
        alias.and_then(|alias| alias.parse().ok())
    }

    /// Whether a run wrote rules into this variant's tables.
    #[must_use]
    pub fn names(&self, variant: Variant) -> bool {
        self.variants.contains(&variant)
    }

    /// What it says of one variant's tables; `None` if it does not speak of them.
    #[must_use]
    pub fn of_variant(&self, variant: Variant) -> Option<Self> {
        let here = |blocks: &BTreeSet<Block>| -> BTreeSet<Block> {
            blocks.iter().filter(|block| block.variant == variant).copied().collect()
        };
        self.variants.contains(&variant).then(|| Self {
            variants: [variant].into(),
            blocks: here(&self.blocks),
            earlier: self.earlier.as_ref().map(here),
            ..self.clone()
        })
    }

    /// The same while it takes over from another one.
    #[must_use]
    pub fn taking_over(&self, live: &Self) -> Self {
        let before = live.earlier.iter().flatten().chain(&live.blocks);
        Self {
            variants: &self.variants | &live.variants,
            blocks: self.blocks.clone(),
            earlier: Some(before.copied().collect()),
            removing: false,
            pending: &self.pending | &live.pending,
            passthrough: self.passthrough || live.passthrough,
        }
    }

    /// The same while a clean-up is under way.
    #[must_use]
    pub fn removing(self) -> Self {
        Self { removing: true, ..self }
    }

    /// Whether it names rules that only it tells from foreign ones.
    #[must_use]
    pub fn names_rules(&self) -> bool {
        !self.blocks.is_empty() || self.earlier.as_ref().is_some_and(|earlier| !earlier.is_empty())
    }

    /// Whether a clean-up is under way, or was interrupted.
    #[must_use]
    pub const fn is_removing(&self) -> bool {
        self.removing
    }

    /// The same, with rules that are about to be deleted by handle.
    #[must_use]
    pub fn deleting(mut self, pending: impl IntoIterator<Item = PendingDeletion>) -> Self {
        self.pending.extend(pending);
        self
    }

    /// Rules of iptables-nft that a run was about to delete by handle.
    #[must_use]
    pub const fn pending(&self) -> &BTreeSet<PendingDeletion> {
        &self.pending
    }

    /// The blocks of one table: of the rules that were meant to be there in the end, and, while a change is under way,
    /// of those before it.
    #[must_use]
    pub fn of_table(&self, family: Family, table: Table) -> (Vec<Block>, Option<Vec<Block>>) {
        let here = |blocks: &BTreeSet<Block>| -> Vec<Block> {
            blocks.iter().filter(|block| (block.family, block.table) == (family, table)).copied().collect()
        };
        (here(&self.blocks), self.earlier.as_ref().map(here))
    }

    /// Whether a change is under way, or was interrupted.
    #[must_use]
    pub const fn is_changing(&self) -> bool {
        self.earlier.is_some() || self.removing
    }

    /// Whether rules like these were written, or were to be written, wherever that was.
    #[must_use]
    pub fn has(&self, block: &Block) -> bool {
        let same = |known: &Block| Block { at: block.at, behind_jump: block.behind_jump, ..*known } == *block;
        self.earlier.iter().flatten().chain(&self.blocks).any(same)
    }

    /// The same, with the places that `earlier` knows of blocks that were not written again.
    #[must_use]
    pub fn with_places_of(mut self, earlier: &Self) -> Self {
        let known = |block: Block| {
            let same = |other: &&Block| Block { at: None, ..**other } == block;
            earlier.blocks.iter().find(same).map_or(block, |same| *same)
        };
        self.blocks = self.blocks.into_iter().map(known).collect();
        self
    }

    /// Whether it says all that `other` says, wherever the rules were.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        !self.is_changing()
            && self.pending.is_empty()
            && self.variants == other.variants
            && self.passthrough >= other.passthrough
            && other.blocks.iter().all(|block| self.has(block))
    }

    /// The alias that says this, without places if it is too long with them; `None` if it is longer than the kernel
    /// takes even so.
    #[must_use]
    pub fn alias(&self) -> Option<String> {
        let anywhere = |blocks: &BTreeSet<Block>| -> BTreeSet<Block> {
            blocks.iter().map(|block| Block { at: None, ..*block }).collect()
        };
        let short = || Self {
            blocks: anywhere(&self.blocks),
            earlier: self.earlier.as_ref().map(anywhere),
            ..self.clone()
        };
        let fits = |alias: &String| alias.len() <= LONGEST;
        Some(self.to_string()).filter(fits).or_else(|| Some(short().to_string()).filter(fits))
    }
}

/// The blocks of rules that go into a shared chain which has, or is to have, `foreign` rules besides.
pub(crate) fn blocks_of(
    variant: Variant,
    family: Family,
    (table, hook): (Table, Hook),
    rules: &HookRules,
    foreign: Option<Position>,
) -> Vec<Block> {
    let length = foreign.map(|foreign| foreign.of + rules.iter().count());
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
                at: length.map(|of| Position { before: begin + offset, of }),
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

/// FNV-1a of the hashes of several statements.
pub(crate) fn digest(hashes: impl IntoIterator<Item = u32>) -> u32 {
    // As much as the record has room for.
    fnv(hashes.into_iter().flat_map(u32::to_be_bytes)) & 0x3fff_ffff
}

fn fnv(bytes: impl Iterator<Item = u8>) -> u32 {
    bytes.fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
