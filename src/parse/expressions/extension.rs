//! Matches and targets of iptables, as nf_tables holds them.

use super::{half, number};

/// `NFTA_MATCH_NAME`, `NFTA_TARGET_NAME`.
pub(super) const XT_NAME: u16 = 1;
/// `NFTA_MATCH_REV`, `NFTA_TARGET_REV`.
const XT_REVISION: u16 = 2;
/// `NFTA_MATCH_INFO`, `NFTA_TARGET_INFO`: the structure of linux/netfilter/xt_*.h.
const XT_INFO: u16 = 3;

/// An extension of iptables, by its name, revision and parameters.
pub(super) fn extension(data: &[u8], words: fn(&str, u32, &[u8]) -> Option<String>) -> Option<String> {
    let attributes = nfnetlink::Attributes::new(data);
    let (name, revision) = (attributes.of(XT_NAME)?.text(), attributes.of(XT_REVISION)?.be32()?);
    words(&name, revision, attributes.of(XT_INFO)?.payload)
}

pub(super) fn of_match(name: &str, revision: u32, info: &[u8]) -> Option<String> {
    let not = |at: usize| info.get(at).map(|byte| if *byte == 0 { "" } else { "! " });
    let all = |at: usize| number(info, at).filter(|mask| *mask == u32::MAX);
    match (name, revision) {
        ("mark", 1) => {
            all(4)?;
            Some(format!("-m mark {}--mark {:#x} ", not(8)?, number(info, 0)?))
        }
        ("connmark", 1) => {
            all(4)?;
            Some(format!("-m connmark {}--mark {:#x} ", not(8)?, number(info, 0)?))
        }
        ("owner", 1) => {
            const UID: u8 = 1;
            const GID: u8 = 2;
            let (what, invert) = (*info.get(16)?, *info.get(17)?);
            let (kind, first) = match what {
                UID => ("uid", 0),
                GID => ("gid", 8),
                _ => return None,
            };
            let (from, to) = (number(info, first)?, number(info, first + 4)?);
            let not = if invert == what { "! " } else { "" };
            (from == to && [0, what].contains(&invert))
                .then(|| format!("-m owner {not}--{kind}-owner {from} "))
        }
        ("conntrack", 3) => {
            const STATE: u16 = 1;
            const INVALID: u16 = 1;
            let [flags, inverted, states] = [146, 148, 150].map(|at| half(info, at));
            ((flags?, inverted?, states?) == (STATE, 0, INVALID))
                .then(|| "-m conntrack --ctstate INVALID ".to_owned())
        }
        _ => None,
    }
}

pub(super) fn of_target(name: &str, revision: u32, info: &[u8]) -> Option<String> {
    const SET: u8 = 0;
    const SAVE: u8 = 1;
    const RESTORE: u8 = 2;
    match (name, revision) {
        ("MARK", 2) => Some(format!("-j MARK --set-xmark {:#x}/{:#x}", number(info, 0)?, number(info, 4)?)),
        ("CONNMARK", 1 | 2) => {
            // The later revision can shift the mark: by the byte before its mode.
            let mode = if revision == 1 { 12 } else { 14 };
            let is_shifted = revision == 2 && *info.get(13)? != 0;
            let [mark, connection, packet] = [0, 4, 8].map(|at| number(info, at));
            let (connection, packet) = (connection?, packet?);
            let option = match *info.get(mode)? {
                _ if is_shifted => return None,
                SET => return Some(format!("-j CONNMARK --set-xmark {:#x}/{connection:#x}", mark?)),
                SAVE => "--save-mark",
                RESTORE => "--restore-mark",
                _ => return None,
            };
            let masks = if (packet, connection) == (u32::MAX, u32::MAX) {
                String::new()
            } else {
                format!(" --nfmask {packet:#x} --ctmask {connection:#x}")
            };
            Some(format!("-j CONNMARK {option}{masks}"))
        }
        ("NOTRACK", _) => Some("-j NOTRACK".to_owned()),
        ("CT", _) => zone(half(info, 0)?, half(info, 2)?),
        _ => None,
    }
}

/// The target `CT`, by its flags: what it says of the zone, or that nothing is tracked.
fn zone(flags: u16, zone: u16) -> Option<String> {
    const NOTRACK: u16 = 1 | 2;
    const OF_ORIGINAL: u16 = 4;
    const OF_REPLY: u16 = 8;
    const OF_MARK: u16 = 16;
    let option = match flags {
        flags if flags & NOTRACK != 0 => return Some("-j CT --notrack".to_owned()),
        flags if flags & OF_MARK != 0 => return Some("-j CT --zone mark".to_owned()),
        flags if flags & OF_ORIGINAL != 0 => "--zone-orig",
        flags if flags & OF_REPLY != 0 => "--zone-reply",
        _ => "--zone",
    };
    Some(format!("-j CT {option} {zone}"))
}
