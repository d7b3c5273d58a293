//! Matches.

use super::conntrack;
use super::{Extension, names, not, range};
use crate::parse::expressions::decode::quoted;
use crate::parse::expressions::values::flags_of;

/// The types of addresses by their bits.
const TYPES: [(u32, &str); 12] = [
    (1, "UNSPEC"),
    (2, "UNICAST"),
    (4, "LOCAL"),
    (8, "BROADCAST"),
    (16, "ANYCAST"),
    (32, "MULTICAST"),
    (64, "BLACKHOLE"),
    (128, "UNREACHABLE"),
    (256, "PROHIBIT"),
    (512, "THROW"),
    (1024, "NAT"),
    (2048, "XRESOLVE"),
];

pub(in crate::parse) fn of_match(name: &str, extension: Extension<'_>) -> Option<String> {
    let words = match (name, extension.revision) {
        ("comment", 0) => comment(extension),
        ("mark" | "connmark", 1) => mark(extension),
        ("owner", 0) => old_owner(extension),
        ("owner", 1) => owner(extension),
        ("conntrack", 1..=3) => return conntrack::words(extension),
        ("addrtype", 1) => address_type(extension),
        ("multiport", 0..=1) => ports(extension),
        ("iprange", 1) => address_range(extension),
        ("rpfilter", 0) => reverse_path(extension),
        ("tcp", 0) => tcp(extension),
        ("udp", 0) => udp(extension),
        _ => None,
    }?;
    Some(format!("-m {name} {words}"))
}

fn comment(extension: Extension<'_>) -> Option<String> {
    let text = extension.info.split(|byte| *byte == 0).next()?;
    Some(format!("--comment {} ", quoted(&String::from_utf8_lossy(text))))
}

fn mark(extension: Extension<'_>) -> Option<String> {
    let (mark, mask) = (extension.number(0)?, extension.number(4)?);
    let mask = if mask == u32::MAX { String::new() } else { format!("/{mask:#x}") };
    Some(format!("{}--mark {mark:#x}{mask} ", not(extension.byte(8)? != 0)))
}

fn owner(extension: Extension<'_>) -> Option<String> {
    const SOCKET: u8 = 4;
    const SUPPLEMENTARY: u8 = 8;
    let (tested, inverted) = (extension.byte(16)?, extension.byte(17)?);
    let mut words = String::new();
    if tested & SOCKET != 0 {
        words += &format!("{}--socket-exists ", not(inverted & SOCKET != 0));
    }
    for (bit, option, at) in [(1, "uid", 0), (2, "gid", 8)] {
        if tested & bit != 0 {
            let ids = range(extension.number(at)?, extension.number(at + 4)?, '-');
            words += &format!("{}--{option}-owner {ids} ", not(inverted & bit != 0));
        }
    }
    if tested & SUPPLEMENTARY != 0 {
        words += "--suppl-groups ";
    }
    Some(words)
}

/// `struct ipt_owner_info`: one user and one group, and what kernels of today do not test.
fn old_owner(extension: Extension<'_>) -> Option<String> {
    let (tested, inverted) = (extension.byte(32)?, extension.byte(33)?);
    (tested & !3 == 0).then_some(())?;
    let mut words = String::new();
    for (bit, option, at) in [(1, "uid", 0), (2, "gid", 4)] {
        if tested & bit != 0 {
            words += &format!("{}--{option}-owner {} ", not(inverted & bit != 0), extension.number(at)?);
        }
    }
    Some(words)
}

fn address_type(extension: Extension<'_>) -> Option<String> {
    let flags = extension.number(4)?;
    let mut words = String::new();
    for (at, inverted, option) in [(0, 1, "--src-type"), (2, 2, "--dst-type")] {
        let types = extension.half(at)?;
        if types != 0 {
            words += &format!("{}{option} {} ", not(flags & inverted != 0), names(types.into(), &TYPES)?);
        }
    }
    for (flag, option) in [(4, "--limit-iface-in "), (8, "--limit-iface-out ")] {
        words += if flags & flag == 0 { "" } else { option };
    }
    Some(words)
}

fn reverse_path(extension: Extension<'_>) -> Option<String> {
    const OPTIONS: [(u8, &str); 4] =
        [(1, "--loose "), (2, "--validmark "), (4, "--accept-local "), (8, "--invert ")];
    let flags = extension.byte(0)?;
    Some(OPTIONS.into_iter().filter(|(bit, _)| flags & bit != 0).map(|(_, option)| option).collect())
}

fn ports(extension: Extension<'_>) -> Option<String> {
    const FIRST: usize = 2;
    const BEGINS_RANGE: usize = 32;
    const IS_NEGATED: usize = 47;
    let option = *["--sports", "--dports", "--ports"].get(usize::from(extension.byte(0)?))?;
    // The first revision has neither ranges nor a negation.
    let later = |at: usize| if extension.revision == 0 { Some(0) } else { extension.byte(at) };
    let mut list = String::new();
    for at in 0..usize::from(extension.byte(1)?) {
        let to = if later(BEGINS_RANGE + at)? == 0 { ',' } else { ':' };
        list += &format!("{}{to}", extension.half(FIRST + 2 * at)?);
    }
    Some(format!("{}{option} {} ", not(later(IS_NEGATED)? != 0), list.trim_end_matches(',')))
}

fn address_range(extension: Extension<'_>) -> Option<String> {
    let flags = extension.byte(64)?;
    let mut words = String::new();
    for (bit, inverted, option, at) in [(1, 16, "--src-range", 0), (2, 32, "--dst-range", 32)] {
        if flags & bit != 0 {
            let (first, last) = (extension.address(at)?, extension.address(at + 16)?);
            words += &format!("{}{option} {first}-{last} ", not(flags & inverted != 0));
        }
    }
    Some(words)
}

/// Source and destination ports, as TCP and UDP have them first.
fn transport(extension: Extension<'_>, inverted: u8) -> Option<String> {
    let mut words = String::new();
    for (bit, option, at) in [(1, "--sport", 0), (2, "--dport", 4)] {
        let (first, last) = (extension.half(at)?, extension.half(at + 2)?);
        if (first, last) != (0, u16::MAX) || inverted & bit != 0 {
            words += &format!("{}{option} {} ", not(inverted & bit != 0), range(first, last, ':'));
        }
    }
    Some(words)
}

fn tcp(extension: Extension<'_>) -> Option<String> {
    const FLAGS: u8 = 4;
    let inverted = extension.byte(11)?;
    (extension.byte(8)? == 0).then_some(())?;
    let mut words = transport(extension, inverted)?;
    let (mask, set) = (extension.byte(9)?, extension.byte(10)?);
    if mask != 0 || inverted & FLAGS != 0 {
        words +=
            &format!("{}--tcp-flags {} {} ", not(inverted & FLAGS != 0), flags_of(mask)?, flags_of(set)?);
    }
    Some(words)
}

fn udp(extension: Extension<'_>) -> Option<String> {
    transport(extension, extension.byte(8)?)
}
