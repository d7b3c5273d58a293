//! The rules of a legacy table in the format of the save tool.
//!
//! gVisor returns matches without their revision. The tool takes the missing number for revision 0 and prints a match of another one
//! as `[unsupported revision]`, or not at all. Each revision has another size, which is enough to know it.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::blob::{self, ChainEntries, EXTENSION_HEAD, Entry, Info, Layout};
use crate::model::Family;

// Bits of `invflags` in `struct ipt_ip` and `struct ip6t_ip6`.
const INV_IN: u8 = 0x01;
const INV_OUT: u8 = 0x02;
const INV_SOURCE: u8 = 0x08;
const INV_DESTINATION: u8 = 0x10;
const INV_PROTOCOL: u8 = 0x40;
/// Those that are printed.
const INV_KNOWN: u8 = INV_IN | INV_OUT | INV_SOURCE | INV_DESTINATION | INV_PROTOCOL;

/// One table.
pub(super) fn text(family: Family, name: &str, info: &Info, entries: &[u8]) -> io::Result<String> {
    let chains = blob::chains(Layout::of(family), info, entries)?;
    // A jump goes to the first entry behind the head of a chain.
    let starts: BTreeMap<usize, &str> = chains
        .iter()
        .filter(|chain| chain.drops.is_none())
        .map(|chain| (chain.start, chain.name.as_str()))
        .collect();
    let mut text = format!("*{name}\n");
    for ChainEntries { name, drops, .. } in &chains {
        let policy = match drops {
            Some(true) => "DROP",
            Some(false) => "ACCEPT",
            None => "-",
        };
        let _ = writeln!(text, ":{name} {policy} [0:0]");
    }
    for ChainEntries { name, rules, .. } in &chains {
        for rule in rules {
            let _ = writeln!(text, "-A {name}{}", words(family, rule, &starts));
        }
    }
    text += "COMMIT\n";
    Ok(text)
}

/// The words behind `-A CHAIN`, with a space before each.
fn words(family: Family, rule: &Entry<'_>, starts: &BTreeMap<usize, &str>) -> String {
    let mut words = conditions(family, rule.conditions).unwrap_or_else(|| " [incomplete]".to_owned());
    let mut rest = rule.matches;
    while !rest.is_empty() {
        let length = rest.first_chunk().map_or(0, |bytes| usize::from(u16::from_ne_bytes(*bytes)));
        let Some((one, later)) = rest.split_at_checked(length).filter(|(one, _)| one.len() >= EXTENSION_HEAD)
        else {
            words += " [incomplete]";
            break;
        };
        let name = blob::extension_name(one).unwrap_or_default();
        let data = one.get(EXTENSION_HEAD..).unwrap_or_default();
        let options = match name.as_str() {
            "tcp" => tcp(data),
            "udp" => udp(data),
            "owner" => owner(data),
            "multiport" => multiport(data),
            _ => None,
        };
        let _ = write!(words, " -m {name}{}", options.as_deref().unwrap_or(" [unsupported]"));
        rest = later;
    }
    words + &target(family, rule, starts)
}

fn not(is_inverted: bool) -> &'static str {
    if is_inverted { " !" } else { "" }
}

/// Addresses, interfaces and protocol.
fn conditions(family: Family, bytes: &[u8]) -> Option<String> {
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
    let mut words = String::new();
    for (option, at, flag) in [("-s", 0, INV_SOURCE), ("-d", 1, INV_DESTINATION)] {
        let (value, mask) = (ip(address(at)?)?, address(at + 2)?);
        let prefix: u32 = mask.iter().map(|byte| byte.leading_ones()).sum();
        if mask.iter().any(|byte| *byte != 0) {
            let is_prefix = mask.iter().map(|byte| byte.count_ones()).sum::<u32>() == prefix;
            let mask = if is_prefix { prefix.to_string() } else { ip(mask)?.to_string() };
            let _ = write!(words, "{} {option} {value}/{mask}", not(inverted & flag != 0));
        }
    }
    for (option, at, flag) in [("-i", 0, INV_IN), ("-o", 1, INV_OUT)] {
        let (name, mask) = (blob::text(link(at)?), link(at + 2)?);
        if mask.iter().any(|byte| *byte != 0) {
            // A whole name is compared with its NUL. Otherwise it has the sign that the tool put there.
            let is_whole = mask.get(name.len()).is_none_or(|byte| *byte != 0);
            let beginning = name.strip_suffix('+').filter(|_| !is_whole).unwrap_or(&name);
            let sign = if is_whole { "" } else { "+" };
            let _ = write!(words, "{} {option} {beginning}{sign}", not(inverted & flag != 0));
        }
    }
    if protocol != 0 {
        let protocol = match protocol {
            1 => "icmp".to_owned(),
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            58 => "ipv6-icmp".to_owned(),
            number => number.to_string(),
        };
        let _ = write!(words, "{} -p {protocol}", not(inverted & INV_PROTOCOL != 0));
    }
    // Flags say that an IPv6 rule tests the protocol, which it does by naming one.
    let is_known = inverted & !INV_KNOWN == 0 && (family == Family::V6 || flags == 0);
    Some(if is_known { words } else { words + " [unsupported]" })
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes)
        .map(|bytes| Ipv4Addr::from(bytes).into())
        .or_else(|_| <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).into()))
        .ok()
}

fn word16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn range<T: Copy + Display + PartialEq>(first: T, last: T, between: char) -> String {
    if first == last { first.to_string() } else { format!("{first}{between}{last}") }
}

/// `spts` and `dpts`, with which `struct xt_tcp` and `struct xt_udp` begin.
fn ports(data: &[u8], inverted: u8) -> Option<String> {
    let mut words = String::new();
    for (option, at, flag) in [("--sport", 0, 1), ("--dport", 4, 2)] {
        let (first, last) = (word16(data, at)?, word16(data, at + 2)?);
        let is_inverted = inverted & flag != 0;
        if (first, last) != (0, u16::MAX) || is_inverted {
            let _ = write!(words, "{} {option} {}", not(is_inverted), range(first, last, ':'));
        }
    }
    Some(words)
}

/// `struct xt_tcp`.
fn tcp(data: &[u8]) -> Option<String> {
    const INV_FLAGS: u8 = 4;
    const INV_OPTION: u8 = 8;
    const NAMES: [&str; 6] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];
    let [option, mask, flags, inverted] = *data.get(8..)?.first_chunk()?;
    if option != 0 || inverted & INV_OPTION != 0 {
        return None;
    }
    let mut words = ports(data, inverted)?;
    if mask != 0 || inverted & INV_FLAGS != 0 {
        let named = |bits: u8| {
            let names = NAMES.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0);
            let names: Vec<&str> = names.map(|(_, name)| *name).collect();
            if names.is_empty() { "NONE".to_owned() } else { names.join(",") }
        };
        let is_inverted = inverted & INV_FLAGS != 0;
        let _ = write!(words, "{} --tcp-flags {} {}", not(is_inverted), named(mask), named(flags));
    }
    Some(words)
}

/// `struct xt_udp`.
fn udp(data: &[u8]) -> Option<String> {
    ports(data, *data.get(8)?)
}

/// `struct ipt_owner_info` of revision 0, which newer kernels lack; `struct xt_owner_match_info` of revision 1.
fn owner(data: &[u8]) -> Option<String> {
    const UID: u8 = 1;
    const GID: u8 = 2;
    const SOCKET: u8 = 4;
    let (uids, gids, flags) = match data.len() {
        24 => ([0, 4], [8, 12], 16),
        40 => ([0, 0], [4, 4], 32),
        _ => return None,
    };
    let (tested, inverted) = (*data.get(flags)?, *data.get(flags + 1)?);
    if tested & !(UID | GID | SOCKET) != 0 {
        return None;
    }
    let mut words = String::new();
    for (option, [first, last], flag) in [("--uid-owner", uids, UID), ("--gid-owner", gids, GID)] {
        if tested & flag != 0 {
            let ids = range(word32(data, first)?, word32(data, last)?, '-');
            let _ = write!(words, "{} {option} {ids}", not(inverted & flag != 0));
        }
    }
    if tested & SOCKET != 0 {
        let _ = write!(words, "{} --socket-exists", not(inverted & SOCKET != 0));
    }
    Some(words)
}

/// `struct xt_multiport` of revision 0, `struct xt_multiport_v1` of revision 1.
fn multiport(data: &[u8]) -> Option<String> {
    const MOST: usize = 15;
    /// Behind the ports.
    const RANGES: usize = 2 + 2 * MOST;
    let is_first = match data.len() {
        32 => true,
        48 => false,
        _ => return None,
    };
    let (flags, count) = (*data.first()?, usize::from(*data.get(1)?));
    let option = ["--sports", "--dports", "--ports"].get(usize::from(flags))?;
    let mut list = String::new();
    for at in 0..count.min(MOST) {
        let is_end = !is_first && at > 0 && *data.get(RANGES + at - 1)? != 0;
        let between = if is_end {
            ":"
        } else if at > 0 {
            ","
        } else {
            ""
        };
        let _ = write!(list, "{between}{}", word16(data, 2 + 2 * at)?);
    }
    let is_inverted = !is_first && *data.get(RANGES + MOST)? != 0;
    Some(format!("{} {option} {list}", not(is_inverted)))
}

fn target(family: Family, rule: &Entry<'_>, starts: &BTreeMap<usize, &str>) -> String {
    let name = blob::extension_name(rule.target).unwrap_or_default();
    let data = rule.target.get(EXTENSION_HEAD..).unwrap_or_default();
    let options = match name.as_str() {
        "" => return standard(rule, starts),
        "REDIRECT" => redirect(family, data),
        "CT" => zone(data),
        _ => None,
    };
    format!(" -j {name}{}", options.as_deref().unwrap_or(" [unsupported]"))
}

/// A verdict, a chain, or, where the next entry follows, nothing.
fn standard(rule: &Entry<'_>, starts: &BTreeMap<usize, &str>) -> String {
    let verdict = rule.verdict().unwrap_or_default();
    let chain = || starts.get(&usize::try_from(verdict).ok()?).copied();
    match verdict {
        -1 => " -j DROP".to_owned(),
        -2 => " -j ACCEPT".to_owned(),
        -5 => " -j RETURN".to_owned(),
        verdict if usize::try_from(verdict) == Ok(rule.offset + rule.length) => String::new(),
        _ => format!(" -j {}", chain().unwrap_or("[unsupported]")),
    }
}

/// `struct nf_nat_ipv4_multi_range_compat`, `struct nf_nat_range`.
fn redirect(family: Family, data: &[u8]) -> Option<String> {
    const PORTS: u32 = 2;
    let (flags, ports) = match family {
        Family::V4 => (word32(data, 4)?, 16),
        Family::V6 => (word32(data, 0)?, 36),
    };
    let [first, last] =
        [ports, ports + 2].map(|at| data.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes)));
    match flags & !1 {
        0 => Some(String::new()),
        PORTS => Some(format!(" --to-ports {}", range(first?, last?, '-'))),
        _ => None,
    }
}

/// The head of `struct xt_ct_target_info`, of whichever revision.
fn zone(data: &[u8]) -> Option<String> {
    let (flags, zone) = (word16(data, 0)?, word16(data, 2)?);
    match (flags, zone) {
        (0, zone) => Some(format!(" --zone {zone}")),
        (1, _) => Some(" --notrack".to_owned()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
