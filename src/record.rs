//! What a run records in the namespace: which of its rules in the shared chains carry no sign of ours.
//!
//! A rule that jumps to a chain of ours is known by that. `-i eth1 -j RETURN` is not: another program may have added the
//! very same one, and comments are unavailable on some kernels. So each run leaves a digest of such rules as the alias of
//! `lo`, which every kernel keeps per network namespace and which no packet, rule or route depends on.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::model::{Family, Hook, HookRules, Rule, Statement, Table, Target, Variant};

/// What the record begins with, with the version of its form.
const PREFIX: &str = "istio-iptables:1";
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
    pub at: Option<Place>,
}

/// A place in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
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
    /// Whether `::6` on `lo` was added by us, for kernels that keep no protocol number of addresses (before 5.18).
    pub passthrough: bool,
}

impl Record {
    /// What says that these blocks are there, in the tables of `variant`.
    pub(crate) fn of_blocks(variant: Variant, blocks: BTreeSet<Block>, passthrough: bool) -> Self {
        Self { variants: [variant].into(), blocks, earlier: None, passthrough }
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
            passthrough: self.passthrough,
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
            passthrough: self.passthrough || live.passthrough,
        }
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
        self.earlier.is_some()
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
        self.earlier.is_none()
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
            variants: self.variants.clone(),
            blocks: anywhere(&self.blocks),
            earlier: self.earlier.as_ref().map(anywhere),
            passthrough: self.passthrough,
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
    foreign: Option<Place>,
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
                at: length.map(|of| Place { before: begin + offset, of }),
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

impl fmt::Display for Record {
    /// `istio-iptables:1`, ` l` and ` n` for the variants, ` a` for the address, and the blocks; while a change is under way, behind
    /// ` ~` those before it, and behind ` =` those before and after it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        for variant in &self.variants {
            f.write_str(match variant {
                Variant::Legacy => " l",
                Variant::Nft => " n",
            })?;
        }
        if self.passthrough {
            f.write_str(" a")?;
        }
        let Some(earlier) = &self.earlier else { return write_blocks(f, &self.blocks) };
        write_blocks(f, &(&self.blocks - earlier))?;
        f.write_str(" ~")?;
        write_blocks(f, &(earlier - &self.blocks))?;
        f.write_str(" =")?;
        write_blocks(f, &(&self.blocks & earlier))
    }
}

/// The letter for a variant and a family, or both.
const TABLES_OF: [(char, Variant, &[Family]); 6] = [
    ('a', Variant::Legacy, &[Family::V4]),
    ('b', Variant::Legacy, &[Family::V6]),
    ('c', Variant::Legacy, &Family::ALL),
    ('x', Variant::Nft, &[Family::V4]),
    ('y', Variant::Nft, &[Family::V6]),
    ('z', Variant::Nft, &Family::ALL),
];

/// The letter for a shared chain.
const CHAINS: [(char, Table, Hook); 6] = [
    ('r', Table::Raw, Hook::Prerouting),
    ('R', Table::Raw, Hook::Output),
    ('m', Table::Mangle, Hook::Prerouting),
    ('M', Table::Mangle, Hook::Output),
    ('n', Table::Nat, Hook::Prerouting),
    ('N', Table::Nat, Hook::Output),
];

/// The letter for a part of the chain, and for whether a jump of ours comes before.
const PARTS: [(char, Part, bool); 4] =
    [('h', Part::Head, false), ('H', Part::Head, true), ('t', Part::Tail, false), ('T', Part::Tail, true)];

/// The digits of a digest: 6 bits each.
const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
/// How many of them a digest has.
const DIGEST_LENGTH: usize = 5;

/// Per block the letters for its tables, chain and part, the digest, the number of rules, and the place, as in
/// ` znt0a1B21@3/6`.
fn write_blocks(f: &mut fmt::Formatter<'_>, blocks: &BTreeSet<Block>) -> fmt::Result {
    for block in blocks {
        let twin = |family: &Family| blocks.contains(&Block { family: *family, ..*block });
        let both = Family::ALL.iter().all(twin);
        if both && block.family == Family::V6 {
            continue;
        }
        let of = |(_, variant, families): &&(char, Variant, &[Family])| {
            *variant == block.variant && if both { families.len() == 2 } else { **families == [block.family] }
        };
        let tables = TABLES_OF.iter().find(of).map(|(letter, ..)| letter);
        let chain = CHAINS.iter().find(|(_, table, hook)| (*table, *hook) == (block.table, block.hook));
        let part = PARTS.iter().find(|(_, part, jump)| (*part, *jump) == (block.part, block.behind_jump));
        f.write_str(" ")?;
        for letter in
            [tables, chain.map(|(letter, ..)| letter), part.map(|(letter, ..)| letter)].into_iter().flatten()
        {
            write!(f, "{letter}")?;
        }
        for number in 0..DIGEST_LENGTH {
            let digit = (block.digest >> (6 * number)) & 63;
            let digit = usize::try_from(digit).ok().and_then(|digit| DIGITS.get(digit));
            write!(f, "{}", char::from(digit.copied().unwrap_or(b'0')))?;
        }
        write!(f, "{}", block.count)?;
        if let Some(Place { before, of }) = block.at {
            write!(f, "@{before}/{of}")?;
        }
    }
    Ok(())
}

/// Not a record of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurs;

impl FromStr for Record {
    type Err = NotOurs;

    fn from_str(alias: &str) -> Result<Self, NotOurs> {
        let mut words = alias.split(' ');
        if words.next() != Some(PREFIX) {
            return Err(NotOurs);
        }
        let mut record = Self::default();
        let mut both = false;
        for word in words {
            match word {
                "=" => both = true,
                "l" => drop(record.variants.insert(Variant::Legacy)),
                "n" => drop(record.variants.insert(Variant::Nft)),
                "~" => record.earlier = Some(BTreeSet::new()),
                "a" => record.passthrough = true,
                block => {
                    let blocks = blocks(block).ok_or(NotOurs)?;
                    if both || record.earlier.is_none() {
                        record.blocks.extend(blocks.iter().copied());
                    }
                    record.earlier.iter_mut().for_each(|earlier| earlier.extend(blocks.iter().copied()));
                }
            }
        }
        Ok(record)
    }
}

fn blocks(word: &str) -> Option<Vec<Block>> {
    let mut letters = word.chars();
    let (tables, chain, part) = (letters.next()?, letters.next()?, letters.next()?);
    let (_, variant, families) = *TABLES_OF.iter().find(|(letter, ..)| *letter == tables)?;
    let (_, table, hook) = *CHAINS.iter().find(|(letter, ..)| *letter == chain)?;
    let (_, part, behind_jump) = *PARTS.iter().find(|(letter, ..)| *letter == part)?;
    let mut digest = 0;
    for number in 0..DIGEST_LENGTH {
        let digit = letters.next()?;
        let digit = DIGITS.iter().position(|known| char::from(*known) == digit)?;
        digest |= u32::try_from(digit).ok()? << (6 * number);
    }
    let rest = letters.as_str();
    let (count, at) = match rest.split_once('@') {
        Some((count, place)) => {
            let (before, of) = place.split_once('/')?;
            (count, Some(Place { before: before.parse().ok()?, of: of.parse().ok()? }))
        }
        None => (rest, None),
    };
    let count = count.parse().ok()?;
    let of = |family| Block { variant, family, table, hook, part, behind_jump, count, digest, at };
    (count > 0).then(|| families.iter().copied().map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_reads_back_as_written() {
        for text in [
            "istio-iptables:1",
            "istio-iptables:1 a",
            "istio-iptables:1 l n a znt0a1B-2@3/5 xMT000014 ~ bMt_____4@70000/70001 = amt000021",
        ] {
            let record: Record = text.parse().unwrap();
            assert_eq!(record.to_string().split(' ').count(), text.split(' ').count());
            assert_eq!(record.to_string().parse(), Ok(record));
        }
    }

    #[test]
    fn another_alias_is_no_record() {
        for text in ["", "uplink", "istio-iptables:2", "istio-iptables:1 x", "istio-iptables:1 xnt000000"] {
            assert_eq!(text.parse::<Record>(), Err(NotOurs), "{text}");
        }
    }
}
