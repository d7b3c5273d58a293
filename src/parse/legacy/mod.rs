//! The rules of a legacy table, as the kernel holds them, in the format of the save tool.
//!
//! The tool need not run for them. Extensions are read as those of iptables-nft.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::expressions::{Extension, of_match, of_target};
use crate::kernel::legacy::{self, ChainEntries, EXTENSION_HEAD, Entry, RawTable};
use crate::model::Family;
use crate::ordered::Ordered as _;

// Bits of `invflags` in `struct ipt_ip` and `struct ip6t_ip6`.
const INV_IN: u8 = 0x01;
const INV_OUT: u8 = 0x02;
const INV_SOURCE: u8 = 0x08;
const INV_DESTINATION: u8 = 0x10;
const INV_PROTOCOL: u8 = 0x40;
/// The bits of `invflags` that are printed.
const INV_KNOWN: u8 = INV_IN | INV_OUT | INV_SOURCE | INV_DESTINATION | INV_PROTOCOL;

/// The bit of `flags` with which a chain is a goto: `IPT_F_GOTO`, `IP6T_F_GOTO`.
const fn goto_flag(family: Family) -> u8 {
    match family {
        Family::V4 => 0x02,
        Family::V6 => 0x04,
    }
}

/// The revisions of matches that differ in size. gVisor returns matches without their revision: there the
/// size alone tells it.
const SIZES: [(&str, usize, u32); 4] =
    [("multiport", 32, 0), ("multiport", 48, 1), ("owner", 24, 1), ("owner", 40, 0)];
/// The extensions of which gVisor has one revision.
const SINGLE: [&str; 4] = ["CT", "REDIRECT", "tcp", "udp"];

/// Rules in the format of the save tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SavedTables {
    /// Every table.
    pub text: String,
    /// Whether something of a rule is missing, which is marked as `[unsupported]`.
    pub lacks_words: bool,
    /// The rules of which something is missing: table, chain, place in the chain, and line of `text`.
    incomplete: Vec<(String, String, usize, usize)>,
}

/// Writes the tables of a family; `has_revisions` says whether its matches and targets have their revisions.
///
/// # Errors
/// A table is not whole.
pub fn saved_tables(family: Family, tables: &[RawTable], has_revisions: bool) -> io::Result<SavedTables> {
    let mut saved = SavedTables::default();
    for table in tables {
        saved.add(family, table, has_revisions)?;
    }
    Ok(saved)
}

/// What the rules of a family have counted, in the format of the save tool but for the rules' words.
///
/// # Errors
/// A table is not whole.
pub fn counts(family: Family, tables: &[RawTable]) -> io::Result<String> {
    let mut text = String::new();
    for table in tables {
        let _ = writeln!(text, "*{}", table.name);
        for ChainEntries { name, rules, .. } in table.chains(family)? {
            for Entry { packets, bytes, .. } in rules {
                let _ = writeln!(text, "[{packets}:{bytes}] -A {name}");
            }
        }
    }
    Ok(text)
}

impl SavedTables {
    /// The tables, with the words of the save tool for the rules of which something is missing here: the tool
    /// knows more extensions, and leaves out tests that it does not print. `None` if it has seen other rules.
    #[must_use]
    pub fn completed(&self, of_tool: &str) -> Option<String> {
        let of_tool = rules_of_chains(of_tool);
        let mut lines: Vec<&str> = self.text.lines().collect();
        let ours = rules_of_chains(&self.text);
        for (table, chain, place, line) in &self.incomplete {
            let chain = (table.as_str(), chain.as_str());
            let theirs =
                of_tool.get(&chain).filter(|rules| rules.len() == ours.get(&chain).map_or(0, Vec::len));
            *lines.get_mut(*line)? = theirs?.get(*place)?;
        }
        lines.push("");
        Some(lines.join("\n"))
    }

    fn add(&mut self, family: Family, table: &RawTable, has_revisions: bool) -> io::Result<()> {
        let chains = table.chains(family)?;
        // A jump goes to the first entry behind the head of a chain.
        let starts: BTreeMap<usize, &str> = chains
            .iter()
            .filter(|chain| chain.drops.is_none())
            .map(|chain| (chain.start, chain.name.as_str()))
            .into_map();
        let _ = writeln!(self.text, "*{}", table.name);
        for ChainEntries { name, drops, .. } in &chains {
            let policy = match drops {
                Some(true) => "DROP",
                Some(false) => "ACCEPT",
                None => "-",
            };
            let _ = writeln!(self.text, ":{name} {policy} [0:0]");
        }
        let mut reader = Reader {
            family,
            has_revisions,
            starts,
            words: String::new(),
            lacks_words: false,
            is_goto: false,
        };
        let mut line = self.text.lines().count();
        for ChainEntries { name, rules, .. } in &chains {
            for (place, rule) in rules.iter().enumerate() {
                reader.read(rule);
                if reader.lacks_words {
                    self.incomplete.push((table.name.clone(), name.clone(), place, line));
                    self.lacks_words = true;
                }
                let _ = writeln!(self.text, "-A {name}{}", reader.words);
                line += 1;
                reader.words.clear();
                reader.lacks_words = false;
            }
        }
        self.text += "COMMIT\n";
        Ok(())
    }
}

/// The lines of the rules of each chain, by table and chain.
fn rules_of_chains(text: &str) -> BTreeMap<(&str, &str), Vec<&str>> {
    let (mut table, mut rules) = ("", BTreeMap::<_, Vec<_>>::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let chain = rule.split(' ').next().unwrap_or_default();
            rules.entry((table, chain)).or_default().push(line);
        }
    }
    rules
}

struct Reader<'a> {
    family: Family,
    has_revisions: bool,
    /// The chains by the places of their first rules.
    starts: BTreeMap<usize, &'a str>,
    /// The words of the rule behind `-A CHAIN`, with a space before each.
    words: String,
    /// Whether this rule lacks words.
    lacks_words: bool,
    /// Whether its chain is a goto.
    is_goto: bool,
}

impl Reader<'_> {
    fn read(&mut self, rule: &Entry<'_>) {
        match conditions(self.family, rule.conditions) {
            Some(conditions) => {
                self.words += &conditions.words;
                self.is_goto = conditions.is_goto;
                if !conditions.is_whole {
                    self.unread();
                }
            }
            None => self.unread(),
        }
        let mut rest = rule.matches;
        while !rest.is_empty() {
            let length = rest.first_chunk().map_or(0, |bytes| usize::from(u16::from_ne_bytes(*bytes)));
            let Some((one, later)) =
                rest.split_at_checked(length).filter(|(one, _)| one.len() >= EXTENSION_HEAD)
            else {
                self.unread();
                break;
            };
            self.extension("-m", one, of_match);
            rest = later;
        }
        self.target(rule);
    }

    fn unread(&mut self) {
        self.words += " [unsupported]";
        self.lacks_words = true;
    }

    /// A match or a target.
    fn extension(&mut self, option: &str, bytes: &[u8], words: fn(&str, Extension<'_>) -> Option<String>) {
        let name = legacy::extension_name(bytes).unwrap_or_default();
        let info = bytes.get(EXTENSION_HEAD..).unwrap_or_default();
        let read = self
            .revision(&name, bytes, info.len())
            .and_then(|revision| words(&name, Extension { family: self.family, revision, info }));
        match read {
            Some(read) => {
                self.words.push(' ');
                self.words += read.trim_end();
            }
            None => {
                let _ = write!(self.words, " {option} {name}");
                self.unread();
            }
        }
    }

    fn revision(&self, name: &str, bytes: &[u8], size: usize) -> Option<u32> {
        let by_size = SIZES.iter().find(|(known, length, _)| (*known, *length) == (name, size));
        if let Some((.., revision)) = by_size {
            Some(*revision)
        } else if self.has_revisions {
            bytes.get(EXTENSION_HEAD - 1).copied().map(u32::from)
        } else {
            SINGLE.contains(&name).then_some(0)
        }
    }

    fn target(&mut self, rule: &Entry<'_>) {
        if legacy::extension_name(rule.target).is_some_and(|name| !name.is_empty()) {
            return self.extension("-j", rule.target, of_target);
        }
        let verdict = rule.verdict().unwrap_or_default();
        let chain = || self.starts.get(&usize::try_from(verdict).ok()?).copied();
        let to = match verdict {
            -1 => Some("DROP"),
            -2 => Some("ACCEPT"),
            -5 => Some("RETURN"),
            // Nothing: the next entry follows.
            verdict if usize::try_from(verdict) == Ok(rule.offset + rule.length) => return,
            _ => chain(),
        };
        self.words += if self.is_goto { " -g" } else { " -j" };
        match to {
            Some(to) => {
                self.words.push(' ');
                self.words += to;
            }
            None => self.unread(),
        }
    }
}

const fn not(is_inverted: bool) -> &'static str {
    if is_inverted { " !" } else { "" }
}

/// What a rule says outside of its extensions.
struct Conditions {
    /// Addresses, interfaces and protocol, with a space before each word.
    words: String,
    /// Whether these are all.
    is_whole: bool,
    is_goto: bool,
}

/// The conditions of a rule; `None` if bytes are missing.
fn conditions(family: Family, bytes: &[u8]) -> Option<Conditions> {
    let size = match family {
        Family::V4 => 4,
        Family::V6 => 16,
    };
    let address = |index: usize| bytes.get(index * size..(index + 1) * size);
    let links = bytes.get(4 * size..)?;
    let link = |index: usize| links.get(index * 16..(index + 1) * 16);
    let rest = links.get(4 * 16..)?;
    let protocol = u16::from_ne_bytes(*rest.first_chunk()?);
    // In IPv6 the type of service is before the flags.
    let (flags, inverted) = match family {
        Family::V4 => (*rest.get(2)?, *rest.get(3)?),
        Family::V6 => (*rest.get(3)?, *rest.get(4)?),
    };
    let (mut words, mut has_name) = (String::new(), true);
    for (option, at, flag) in [("-s", 0, INV_SOURCE), ("-d", 1, INV_DESTINATION)] {
        let (value, mask) = (ip(address(at)?)?, address(at + 2)?);
        let bits = mask.iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte)) << (128 - 8 * size);
        let is_inverted = inverted & flag != 0;
        // Without a mask every address matches, and none if that is inverted.
        if bits != 0 || is_inverted {
            let is_prefix = bits.leading_ones() == bits.count_ones();
            let mask = if is_prefix { bits.leading_ones().to_string() } else { ip(mask)?.to_string() };
            let _ = write!(words, "{} {option} {}/{mask}", not(is_inverted), shown(value));
        }
    }
    for (option, at, flag) in [("-i", 0, INV_IN), ("-o", 1, INV_OUT)] {
        let (name, mask) = (legacy::text(link(at)?), link(at + 2)?);
        let is_inverted = inverted & flag != 0;
        if is_inverted && mask.iter().all(|byte| *byte == 0) {
            // The tool leaves it out.
            let _ = write!(words, " ! {option} +");
        } else if mask.iter().any(|byte| *byte != 0) {
            // A whole name is compared with its NUL. Otherwise it has the sign that the tool put there.
            let is_whole = mask.get(name.len()).is_none_or(|byte| *byte != 0);
            let beginning = name.strip_suffix('+').filter(|_| !is_whole).unwrap_or(&name);
            let sign = if is_whole { "" } else { "+" };
            let _ = write!(words, "{} {option} {beginning}{sign}", not(is_inverted));
        }
    }
    let is_inverted = inverted & INV_PROTOCOL != 0;
    let protocol_name = match protocol {
        0 => None,
        1 => Some("icmp"),
        6 => Some("tcp"),
        17 => Some("udp"),
        58 => Some("ipv6-icmp"),
        number => {
            // The tool knows more names, and a rule has to have the same words wherever it is read.
            has_name = false;
            let _ = write!(words, "{} -p {number}", not(is_inverted));
            None
        }
    };
    if let Some(name) = protocol_name {
        let _ = write!(words, "{} -p {name}", not(is_inverted));
    }
    // `IP6T_F_PROTO`: an IPv6 rule tests the protocol, which it does by naming one.
    let known_flags = goto_flag(family) | if family == Family::V6 { 1 } else { 0 };
    let is_whole = has_name && inverted & !INV_KNOWN == 0 && flags & !known_flags == 0;
    Some(Conditions { words, is_whole, is_goto: flags & goto_flag(family) != 0 })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(|bytes| Ipv4Addr::from(bytes).into())
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into()))
        .ok()
}

/// As the tool prints it: the last part of an IPv6 address without others like one of IPv4.
fn shown(address: IpAddr) -> String {
    match address {
        IpAddr::V6(v6) if v6.to_bits() >> 32 == 0 && v6.to_bits() >> 16 != 0 => {
            format!("::{}", Ipv4Addr::from_bits(u32::try_from(v6.to_bits()).unwrap_or_default()))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => address.to_string(),
    }
}

#[cfg(test)]
mod tests;
