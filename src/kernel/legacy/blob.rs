//! The kernel's image of a legacy table: a row of entries, in which chains are not named but marked.
//!
//! A built-in chain begins where `hook_entry` points and ends with its policy, where `underflow` points. A
//! user chain begins with an entry whose target is `ERROR` and names it, and ends with an implicit `RETURN`.
//! The last entry of all is an `ERROR` too.

use std::io;

use super::{LegacyTable, NAME_LENGTH};
use crate::model::Family;

/// Number of netfilter hooks, and of the fields of that kind in `struct ipt_getinfo`.
const HOOKS: usize = 5;
/// The built-in chains in the order of the hooks.
const BUILT_IN: [&str; HOOKS] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Offset of the entries in `struct ipt_get_entries`: the name, a size, and padding up to the
/// alignment of an entry, which is that of its 64-bit counters.
pub(super) const ENTRIES_HEAD: usize = (NAME_LENGTH + 4).next_multiple_of(align_of::<u64>());

/// The verdict `NF_DROP`, as a standard target has it: `-NF_DROP - 1`.
const DROP: i32 = -1;

/// Where the fields of an entry are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Offset of `target_offset`; `next_offset` follows.
    offsets: usize,
    /// Length of the entry without matches.
    length: usize,
}

impl Layout {
    /// The layout of `struct ipt_entry` or `struct ip6t_entry`.
    pub(super) const fn of(family: Family) -> Self {
        // Addresses and masks, two names of links with their masks, the protocol and flags; then `nfcache`.
        let conditions: usize = match family {
            Family::V4 => 4 * 4 + 4 * 16 + 4,
            Family::V6 => 4 * 16 + 4 * 16 + 5,
        };
        let offsets = conditions.next_multiple_of(4) + 4;
        // The two offsets, `comefrom`, then two 64-bit counters.
        Self { offsets, length: (offsets + 2 * 2 + 4).next_multiple_of(align_of::<u64>()) + 16 }
    }
}

/// `struct ipt_getinfo`, the same for both families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Info {
    valid_hooks: u32,
    hook_entry: [u32; HOOKS],
    underflow: [u32; HOOKS],
    pub(super) size: u32,
}

impl Info {
    pub(super) const LENGTH: usize = NAME_LENGTH + 4 + 4 * HOOKS + 4 * HOOKS + 4 + 4;

    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |index: usize| {
            bytes.get(NAME_LENGTH + 4 * index..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
        };
        let five = |from: usize| {
            Some([word(from)?, word(from + 1)?, word(from + 2)?, word(from + 3)?, word(from + 4)?])
        };
        Some(Self {
            valid_hooks: word(0)?,
            hook_entry: five(1)?,
            underflow: five(1 + HOOKS)?,
            size: word(2 + 2 * HOOKS)?,
        })
    }

    /// The built-in chain that begins at `offset`, with the offset of its policy.
    fn built_in_at(&self, offset: usize) -> Option<(&'static str, usize)> {
        let hooks = self.hook_entry.iter().zip(&self.underflow).zip(BUILT_IN).enumerate();
        hooks
            .filter(|(number, _)| self.valid_hooks & (1 << number) != 0)
            .find(|(_, ((entry, _), _))| usize::try_from(**entry) == Ok(offset))
            .and_then(|(_, ((_, underflow), name))| Some((name, usize::try_from(*underflow).ok()?)))
    }
}

/// A chain with its entries.
#[derive(Debug)]
pub struct ChainEntries<'a> {
    /// The name of the chain.
    pub name: String,
    /// Of a built-in chain: whether its policy is DROP.
    pub drops: Option<bool>,
    /// The offset of the first of them.
    pub start: usize,
    /// The rules of the chain.
    pub rules: Vec<Entry<'a>>,
}

/// The chains of a table, in the order of its entries.
pub(super) fn chains<'a>(
    layout: Layout,
    info: &Info,
    entries: &'a [u8],
) -> io::Result<Vec<ChainEntries<'a>>> {
    let mut chains: Vec<ChainEntries<'a>> = Vec::new();
    // The offset of the policy of the built-in chain that is read; `None` in a user chain.
    let mut policy = None;
    // Whether an entry belongs to the last chain.
    let mut is_within = false;
    let mut offset = 0;
    while offset < entries.len() {
        let entry = Entry::at(layout, entries, offset).ok_or_else(|| garbled(offset))?;
        let next = offset + entry.length;
        if let Some((name, underflow)) = info.built_in_at(offset) {
            chains.push(ChainEntries {
                name: name.to_owned(),
                drops: Some(false),
                start: offset,
                rules: Vec::new(),
            });
            (policy, is_within) = (Some(underflow), true);
        }
        if let Some(name) = entry.begins_chain() {
            close(&mut chains, policy, is_within);
            (policy, is_within) = (None, next < entries.len());
            if is_within {
                chains.push(ChainEntries { name, drops: None, start: next, rules: Vec::new() });
            }
        } else if let Some(chain) = chains.last_mut().filter(|_| is_within) {
            if policy == Some(offset) {
                chain.drops = Some(entry.verdict() == Some(DROP));
                is_within = false;
            } else {
                chain.rules.push(entry);
            }
        }
        offset = next;
    }
    Ok(chains)
}

/// Takes back the `RETURN` at the end of a user chain.
fn close(chains: &mut [ChainEntries<'_>], policy: Option<usize>, is_within: bool) {
    if let Some(chain) = chains.last_mut().filter(|_| is_within && policy.is_none()) {
        chain.rules.pop();
    }
}

/// Counts the rules of each chain.
pub(super) fn read(layout: Layout, info: &Info, entries: &[u8]) -> io::Result<LegacyTable> {
    let mut table = LegacyTable::default();
    for ChainEntries { name, drops, start: _, rules } in chains(layout, info, entries)? {
        if drops == Some(true) {
            table.drops.insert(name.clone());
        }
        let kind = if drops.is_some() { &mut table.built_in } else { &mut table.user };
        kind.insert(name, rules.len());
    }
    Ok(table)
}

fn garbled(offset: usize) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the entry at byte {offset} of a legacy table is not whole"),
    )
}

/// One entry: a rule, a policy, or the head of a chain.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The place of the entry, in bytes from the first entry.
    pub offset: usize,
    /// In bytes.
    pub length: usize,
    /// Addresses, links and protocol: `struct ipt_ip` or `struct ip6t_ip6`.
    pub conditions: &'a [u8],
    /// The matches of the entry, each a `struct xt_entry_match`.
    pub matches: &'a [u8],
    /// `struct xt_entry_target` and what belongs to it.
    pub target: &'a [u8],
    /// How many packets it has matched.
    pub packets: u64,
    /// How many bytes these packets had.
    pub bytes: u64,
}

/// Length of the head of a match or target: a 16-bit length, a name of 29 bytes and a revision.
pub const EXTENSION_HEAD: usize = 32;

impl<'a> Entry<'a> {
    fn at(layout: Layout, entries: &'a [u8], offset: usize) -> Option<Self> {
        let bytes = entries.get(offset..)?;
        let [t0, t1, n0, n1] = *bytes.get(layout.offsets..)?.first_chunk()?;
        let target = usize::from(u16::from_ne_bytes([t0, t1]));
        let length = usize::from(u16::from_ne_bytes([n0, n1]));
        if target < layout.length {
            return None;
        }
        let (conditions, matches) = (bytes.get(..layout.offsets)?, bytes.get(layout.length..target)?);
        let count = |before_end: usize| {
            let bytes = bytes.get(layout.length - before_end..)?.first_chunk()?;
            Some(u64::from_ne_bytes(*bytes))
        };
        let (packets, counted) = (count(16)?, count(8)?);
        let target = bytes.get(target..length)?;
        Some(Self { offset, length, conditions, matches, target, packets, bytes: counted })
    }

    /// The verdict of a standard target.
    #[must_use]
    pub fn verdict(&self) -> Option<i32> {
        self.target.get(EXTENSION_HEAD..)?.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
    }

    /// The name in an `ERROR` target.
    fn begins_chain(&self) -> Option<String> {
        let name = || text(self.target.get(EXTENSION_HEAD..).unwrap_or_default());
        (extension_name(self.target)? == "ERROR").then(name)
    }
}

/// The name of a match or target.
#[must_use]
pub fn extension_name(bytes: &[u8]) -> Option<String> {
    bytes.get(2..31).map(text)
}

/// The text up to a NUL.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_layouts_are_those_of_the_kernel_s_headers() {
        let (v4, v6) = (Layout::of(Family::V4), Layout::of(Family::V6));
        assert_eq!((v4.offsets, v6.offsets, Info::LENGTH), (88, 140, 84));
        if align_of::<u64>() == 8 {
            assert_eq!((v4.length, v6.length, ENTRIES_HEAD), (112, 168, 40));
        }
    }

    /// An entry with a target of this name that holds `text`.
    fn entry(target: &str, payload: &str) -> Vec<u8> {
        let layout = Layout::of(Family::V4);
        let mut bytes = vec![0; layout.length + 64];
        let length = u16::try_from(bytes.len()).unwrap();
        bytes[88..90].copy_from_slice(&u16::try_from(layout.length).unwrap().to_ne_bytes());
        bytes[90..92].copy_from_slice(&length.to_ne_bytes());
        bytes[layout.length + 2..][..target.len()].copy_from_slice(target.as_bytes());
        bytes[layout.length + 32..][..payload.len()].copy_from_slice(payload.as_bytes());
        bytes
    }

    fn only_output(policy: u32, size: usize) -> Info {
        Info {
            valid_hooks: 1 << 3,
            hook_entry: [0; HOOKS],
            underflow: [0, 0, 0, policy, 0],
            size: u32::try_from(size).unwrap(),
        }
    }

    #[test]
    fn policies_and_implicit_returns_are_no_rules() {
        let one = u32::try_from(entry("", "").len()).unwrap();
        let row = [
            entry("", "rule"),
            entry("", "policy"),
            entry("ERROR", "MINE"),
            entry("", "rule"),
            entry("REDIRECT", ""),
            entry("", "return"),
            entry("ERROR", "EMPTY"),
            entry("", "return"),
            entry("ERROR", "ERROR"),
        ]
        .concat();
        let table = read(Layout::of(Family::V4), &only_output(one, row.len()), &row).unwrap();
        assert_eq!(table.built_in, [("OUTPUT".to_owned(), 1)].into());
        assert_eq!(table.user, [("EMPTY".to_owned(), 0), ("MINE".to_owned(), 2)].into());
    }

    #[test]
    fn an_entry_without_length_is_an_error_not_a_loop() {
        let row = vec![0; 400];
        assert!(read(Layout::of(Family::V4), &only_output(0, 400), &row).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_make_reading_panic(
            row in proptest::collection::vec(any::<u8>(), 0..2000),
            lengths in proptest::collection::vec((112_u16..200, 0_u16..400), 0..8),
            policy in any::<u32>(),
        ) {
            let mut row = row;
            let mut offset = 0;
            // Plausible lengths lead further into the garbage.
            for (target, next) in lengths {
                if let Some(field) = row.get_mut(offset + 88..offset + 92) {
                    field[..2].copy_from_slice(&target.to_ne_bytes());
                    field[2..].copy_from_slice(&next.to_ne_bytes());
                }
                offset += usize::from(next);
            }
            for family in Family::ALL {
                let _ = read(Layout::of(family), &only_output(policy, row.len()), &row);
            }
            let _ = Info::parse(&row);
        }
    }
}
