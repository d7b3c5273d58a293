//! The record as text: the alias of `lo`.
//!
//! `istio-iptables:3`, then a word of letters and a digit: `l` and `n` for the variants, `a` for the address,
//! `?` if the record is incomplete, and the number of rule sets that the current run writes. Then words with
//! blocks, each after a digit whose bits say which rule sets contain it: the lowest bit for the rules that
//! were found. A word with `!` has rules that may be ours or foreign, a word with `.` identifies the tables
//! of iptables-nft, a word with `=` has ports of earlier options. Numbers are written in digits of 6 bits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::str::FromStr;

use super::{Block, BlockLocation, Numbering, Part, Position, Record};
use crate::model::{Family, Hook, Table, Variant};

/// What every version of the record begins with.
const NAME: &str = "istio-iptables:";
/// What a record of this version begins with.
const PREFIX: &str = "istio-iptables:3";

/// Whether this is a record, of whatever version.
pub(super) fn is_ours(alias: &str) -> bool {
    alias.starts_with(NAME)
}

/// Whose tables a block is in.
const TABLES_OF: [(Variant, &[Family]); 6] = [
    (Variant::Legacy, &[Family::V4]),
    (Variant::Legacy, &[Family::V6]),
    (Variant::Legacy, &Family::ALL),
    (Variant::Nft, &[Family::V4]),
    (Variant::Nft, &[Family::V6]),
    (Variant::Nft, &Family::ALL),
];
/// The shared chains.
const CHAINS: [(Table, Hook); 6] = [
    (Table::Raw, Hook::Prerouting),
    (Table::Raw, Hook::Output),
    (Table::Mangle, Hook::Prerouting),
    (Table::Mangle, Hook::Output),
    (Table::Nat, Hook::Prerouting),
    (Table::Nat, Hook::Output),
];
/// The part of the chain, and whether a jump of ours comes before.
const PARTS: [(Part, bool); 4] =
    [(Part::Head, false), (Part::Head, true), (Part::Tail, false), (Part::Tail, true)];
/// Unknown, [`BlockLocation::Position`], [`BlockLocation::New`], [`BlockLocation::Handle`].
const PLACES: u64 = 4;
/// Numbers of rules that have no digit of their own: this many and more.
const MANY: u64 = 7;

/// 6 bits each.
const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
/// How many of them a digest has.
const DIGEST_LENGTH: u32 = 5;
/// How many of them the digest of a whole chain has.
const CHAIN_LENGTH: u32 = 4;

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX} ")?;
        for variant in &self.variants {
            f.write_str(match variant {
                Variant::Legacy => "l",
                Variant::Nft => "n",
            })?;
        }
        let flags = [(self.passthrough, "a"), (self.incomplete, "?")];
        flags.into_iter().filter(|(set, _)| *set).try_for_each(|(_, flag)| f.write_str(flag))?;
        write!(f, "{}", self.unfinished.len())?;
        for (sets, blocks) in self.by_sets() {
            f.write_str(" ")?;
            digits(f, sets, 1)?;
            let mut chain = None;
            blocks.iter().try_for_each(|block| write_block(f, block, &blocks, &mut chain))?;
        }
        f.write_str(if self.left.is_empty() { "" } else { " !" })?;
        self.left.iter().try_for_each(|block| write_block(f, block, &self.left, &mut None))?;
        f.write_str(if self.numbering.is_empty() { "" } else { " ." })?;
        for ((family, table), Numbering { table: handle, highest }) in &self.numbering {
            digits(f, index(&Family::ALL, family) * 3 + index(&Table::ALL, table), 1)?;
            number(f, *handle)?;
            number(f, *highest)?;
        }
        f.write_str(if self.earlier_ports.is_empty() { "" } else { " =" })?;
        self.earlier_ports.iter().try_for_each(|port| number(f, u64::from(*port)))
    }
}

impl Record {
    /// The blocks by the sets that they are in.
    fn by_sets(&self) -> BTreeMap<u64, BTreeSet<Block>> {
        let mut sets: BTreeMap<Block, u64> = BTreeMap::new();
        for (number, blocks) in [&self.live].into_iter().chain(&self.unfinished).enumerate() {
            blocks.iter().for_each(|block| *sets.entry(*block).or_default() |= 1 << number);
        }
        let mut blocks: BTreeMap<u64, BTreeSet<Block>> = BTreeMap::new();
        for (block, sets) in sets {
            blocks.entry(sets).or_default().insert(block);
        }
        blocks
    }
}

/// The place in a list; what is not in it would be read as the first.
fn index<T: PartialEq>(list: &[T], item: &T) -> u64 {
    list.iter().position(|other| other == item).and_then(|at| u64::try_from(at).ok()).unwrap_or_default()
}

fn length<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}

/// The lowest `count` digits of a number, the lowest one first.
fn digits(f: &mut fmt::Formatter<'_>, number: u64, count: u32) -> fmt::Result {
    for digit in 0..count {
        let digit = usize::try_from((number >> (6 * digit)) & 63).ok().and_then(|digit| DIGITS.get(digit));
        f.write_char(char::from(digit.copied().unwrap_or(b'0')))?;
    }
    Ok(())
}

/// A number of any size: 5 bits for each digit, whose highest bit says that more follow.
fn number(f: &mut fmt::Formatter<'_>, mut number: u64) -> fmt::Result {
    while number > 31 {
        digits(f, number & 31 | 32, 1)?;
        number >>= 5;
    }
    digits(f, number, 1)
}

/// Two digits for tables, chain, part, kind of place and number of rules; the digest; the place. `last` is
/// the digest of a chain that was written last: the next blocks are mostly in the same chain.
fn write_block(
    f: &mut fmt::Formatter<'_>,
    block: &Block,
    blocks: &BTreeSet<Block>,
    last: &mut Option<u32>,
) -> fmt::Result {
    let Block { variant, family, table, hook, part, behind_jump, count, digest, at } = block;
    let same_block = |family: &Family| blocks.contains(&Block { family: *family, ..*block });
    let both = Family::ALL.iter().all(same_block);
    if both && *family == Family::V6 {
        return Ok(());
    }
    let families = if both { &Family::ALL[..] } else { std::slice::from_ref(family) };
    let count = u64::try_from(*count).unwrap_or(u64::MAX);
    let place = match at {
        None => 0,
        Some(BlockLocation::Position(_)) => 1,
        Some(BlockLocation::New) => 2,
        Some(BlockLocation::Handle(_)) => 3,
    };
    let tables =
        index(&TABLES_OF, &(*variant, families)) * length(&CHAINS) + index(&CHAINS, &(*table, *hook));
    let chain = tables * length(&PARTS) + index(&PARTS, &(*part, *behind_jump));
    digits(f, (chain * PLACES + place) * MANY + count.min(MANY).saturating_sub(1), 2)?;
    if count >= MANY {
        number(f, count)?;
    }
    digits(f, u64::from(*digest), DIGEST_LENGTH)?;
    match at {
        None | Some(BlockLocation::New) => Ok(()),
        Some(BlockLocation::Handle(handle)) => number(f, *handle),
        Some(BlockLocation::Position(Position { before, chain })) => {
            let is_other = last.replace(*chain) != Some(*chain);
            let before = u64::try_from(*before).unwrap_or(u64::MAX);
            number(f, before.saturating_mul(2) | u64::from(is_other))?;
            if is_other { digits(f, u64::from(*chain), CHAIN_LENGTH) } else { Ok(()) }
        }
    }
}

/// Not a record of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotOurs;

impl FromStr for Record {
    type Err = NotOurs;

    fn from_str(alias: &str) -> Result<Self, NotOurs> {
        read(alias).ok_or(NotOurs)
    }
}

fn read(alias: &str) -> Option<Record> {
    let mut words = alias.split(' ');
    let mut record = Record::default();
    let flags = words.next().filter(|prefix| *prefix == PREFIX).and_then(|_| words.next())?;
    for flag in flags.chars() {
        match flag {
            'l' => drop(record.variants.insert(Variant::Legacy)),
            'n' => drop(record.variants.insert(Variant::Nft)),
            'a' => record.passthrough = true,
            '?' => record.incomplete = true,
            _ => record.unfinished = vec![BTreeSet::new(); usize::try_from(flag.to_digit(6)?).ok()?],
        }
    }
    for word in words {
        let mut reader = Reader(word.as_bytes());
        if let Some(tables) = word.strip_prefix('.') {
            reader = Reader(tables.as_bytes());
            while !reader.0.is_empty() {
                let at = reader.digits(1)?;
                let (family, table) = (*get(&Family::ALL, at / 3)?, *get(&Table::ALL, at % 3)?);
                let numbering = Numbering { table: reader.number()?, highest: reader.number()? };
                record.numbering.insert((family, table), numbering);
            }
            continue;
        }
        if let Some(ports) = word.strip_prefix('=') {
            reader = Reader(ports.as_bytes());
            while !reader.0.is_empty() {
                record.earlier_ports.insert(u16::try_from(reader.number()?).ok()?);
            }
            continue;
        }
        if let Some(left) = word.strip_prefix('!') {
            reader = Reader(left.as_bytes());
            while !reader.0.is_empty() {
                record.left.extend(reader.blocks(&mut None)?);
            }
            continue;
        }
        let sets = reader.digits(1)?;
        let mut chain = None;
        while !reader.0.is_empty() {
            let blocks = reader.blocks(&mut chain)?;
            let all = [&mut record.live].into_iter().chain(&mut record.unfinished).enumerate();
            all.filter(|(number, _)| sets >> number & 1 == 1)
                .for_each(|(_, set)| set.extend(blocks.iter().copied()));
        }
    }
    Some(record)
}

fn get<T>(list: &[T], at: u64) -> Option<&T> {
    usize::try_from(at).ok().and_then(|at| list.get(at))
}

/// The rest of a word.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn digits(&mut self, count: u32) -> Option<u64> {
        let mut number = 0;
        for digit in 0..count {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            let value = DIGITS.iter().position(|known| known == first)?;
            number |= u64::try_from(value).ok()? << (6 * digit);
        }
        Some(number)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for digit in 0..13 {
            let value = self.digits(1)?;
            number |= (value & 31).checked_shl(5 * digit)?;
            if value < 32 {
                return Some(number);
            }
        }
        None
    }

    fn count(&mut self) -> Option<usize> {
        self.number().and_then(|count| usize::try_from(count).ok())
    }

    fn position(&mut self, last: &mut Option<u32>) -> Option<Position> {
        let code = self.number()?;
        if code & 1 == 1 {
            *last = Some(u32::try_from(self.digits(CHAIN_LENGTH)?).ok()?);
        }
        Some(Position { before: usize::try_from(code >> 1).ok()?, chain: (*last)? })
    }

    fn blocks(&mut self, last: &mut Option<u32>) -> Option<Vec<Block>> {
        let code = self.digits(2)?;
        let (code, count) = (code / MANY, code % MANY + 1);
        let (code, place) = (code / PLACES, code % PLACES);
        let (code, part) = (code / length(&PARTS), code % length(&PARTS));
        let (variant, families) = *get(&TABLES_OF, code / length(&CHAINS))?;
        let (table, hook) = *get(&CHAINS, code % length(&CHAINS))?;
        let (part, behind_jump) = *get(&PARTS, part)?;
        let count = if count == MANY { self.count()? } else { usize::try_from(count).ok()? };
        let digest = u32::try_from(self.digits(DIGEST_LENGTH)?).ok()?;
        let at = match place {
            0 => None,
            1 => Some(BlockLocation::Position(self.position(last)?)),
            2 => Some(BlockLocation::New),
            _ => Some(BlockLocation::Handle(self.number()?)),
        };
        let of = |family| Block { variant, family, table, hook, part, behind_jump, count, digest, at };
        (count > 0).then(|| families.iter().copied().map(of).collect())
    }
}

#[cfg(test)]
mod tests;
