//! The record as text: the alias of `lo`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::{Block, Part, PendingDeletion, Position, Record};
use crate::model::{Family, Hook, Table, Variant};

/// What the record begins with, with the version of its form.
const PREFIX: &str = "istio-iptables:1";

impl fmt::Display for Record {
    /// `istio-iptables:1`, ` l` and ` n` for the variants, ` a` for the address, and the blocks; while a change is under way, behind
    /// ` ~` those before it, and behind ` =` those before and after it; ` -` while a clean-up is under way, and ` !` with the
    /// rules that are deleted by handle.
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
        if self.removing {
            f.write_str(" -")?;
        }
        for pending in &self.pending {
            write_pending(f, pending)?;
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
        let same_block = |family: &Family| blocks.contains(&Block { family: *family, ..*block });
        let both = Family::ALL.iter().all(same_block);
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
        write_digest(f, block.digest)?;
        write!(f, "{}", block.count)?;
        if let Some(Position { before, of }) = block.at {
            write!(f, "@{before}/{of}")?;
        }
    }
    Ok(())
}

fn write_digest(f: &mut fmt::Formatter<'_>, digest: u32) -> fmt::Result {
    for number in 0..DIGEST_LENGTH {
        let digit = (digest >> (6 * number)) & 63;
        let digit = usize::try_from(digit).ok().and_then(|digit| DIGITS.get(digit));
        write!(f, "{}", char::from(digit.copied().unwrap_or(b'0')))?;
    }
    Ok(())
}

/// The letters for table and chain, the digest, the number of rules and the first handle, as in ` !xN0a1B22:17`.
fn write_pending(f: &mut fmt::Formatter<'_>, pending: &PendingDeletion) -> fmt::Result {
    let PendingDeletion { family, table, hook, first, count, digest } = pending;
    let of = |(_, variant, families): &&(char, Variant, &[Family])| {
        *variant == Variant::Nft && **families == [*family]
    };
    let letters = TABLES_OF.iter().find(of).map(|(letter, ..)| letter);
    let chain = CHAINS.iter().find(|(_, known, on)| (known, on) == (table, hook)).map(|(letter, ..)| letter);
    f.write_str(" !")?;
    for letter in [letters, chain].into_iter().flatten() {
        write!(f, "{letter}")?;
    }
    write_digest(f, *digest)?;
    write!(f, "{count}:{first}")
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
                "-" => record.removing = true,
                block => {
                    if let Some(word) = block.strip_prefix('!') {
                        record.pending.insert(pending(word).ok_or(NotOurs)?);
                        continue;
                    }
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
    let digest = read_digest(&mut letters)?;
    let rest = letters.as_str();
    let (count, at) = match rest.split_once('@') {
        Some((count, place)) => {
            let (before, of) = place.split_once('/')?;
            (count, Some(Position { before: before.parse().ok()?, of: of.parse().ok()? }))
        }
        None => (rest, None),
    };
    let count = count.parse().ok()?;
    let of = |family| Block { variant, family, table, hook, part, behind_jump, count, digest, at };
    (count > 0).then(|| families.iter().copied().map(of).collect())
}

fn read_digest(letters: &mut std::str::Chars<'_>) -> Option<u32> {
    let mut digest = 0;
    for number in 0..DIGEST_LENGTH {
        let digit = letters.next()?;
        let digit = DIGITS.iter().position(|known| char::from(*known) == digit)?;
        digest |= u32::try_from(digit).ok()? << (6 * number);
    }
    Some(digest)
}

fn pending(word: &str) -> Option<PendingDeletion> {
    let mut letters = word.chars();
    let (tables, chain) = (letters.next()?, letters.next()?);
    let (_, variant, families) = *TABLES_OF.iter().find(|(letter, ..)| *letter == tables)?;
    let (_, table, hook) = *CHAINS.iter().find(|(letter, ..)| *letter == chain)?;
    let ([family], Variant::Nft) = (families, variant) else { return None };
    let digest = read_digest(&mut letters)?;
    let (count, first) = letters.as_str().split_once(':')?;
    let (count, first) = (count.parse().ok()?, first.parse().ok()?);
    (count > 0).then_some(PendingDeletion { family: *family, table, hook, first, count, digest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_reads_back_as_written() {
        for text in [
            "istio-iptables:1",
            "istio-iptables:1 a",
            "istio-iptables:1 - !xN0a1B22:17 !ym_____1:18446744073709551615",
            "istio-iptables:1 n - znt0a1B-2",
            "istio-iptables:1 l n a znt0a1B-2@3/5 xMT000014 ~ bMt_____4@70000/70001 = amt000021",
        ] {
            let record: Record = text.parse().unwrap();
            assert_eq!(record.to_string().split(' ').count(), text.split(' ').count());
            assert_eq!(record.to_string().parse(), Ok(record));
        }
    }

    #[test]
    fn another_alias_is_no_record() {
        for text in [
            "",
            "uplink",
            "istio-iptables:2",
            "istio-iptables:1 x",
            "istio-iptables:1 xnt000000",
            "istio-iptables:1 !zN000001:2",
        ] {
            assert_eq!(text.parse::<Record>(), Err(NotOurs), "{text}");
        }
    }
}
