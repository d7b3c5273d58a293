//! The match `conntrack`, which `-m state` is, too.

use super::{Extension, names, not, range};
use crate::live_rules::STATUS;

const STATE: u16 = 1;
const PROTOCOL: u16 = 1 << 1;
const STATUS_FLAG: u16 = 1 << 6;
const EXPIRES: u16 = 1 << 7;
const DIRECTION: u16 = 1 << 12;
const IS_STATE_ALIAS: u16 = 1 << 13;

/// Options for addresses, in the order of their flags and of their places.
const ADDRESSES: [&str; 4] = ["--ctorigsrc", "--ctorigdst", "--ctreplsrc", "--ctrepldst"];
/// `XT_CONNTRACK_ORIGSRC`; the others follow.
const FIRST_ADDRESS: u32 = 2;
/// `XT_CONNTRACK_ORIGSRC_PORT`, likewise.
const FIRST_PORT: u32 = 8;

/// `XT_CONNTRACK_STATE_*`, in the order in which iptables prints them.
const STATES: [(u32, &str); 7] = [
    (1, "INVALID"),
    (8, "NEW"),
    (4, "RELATED"),
    (2, "ESTABLISHED"),
    (256, "UNTRACKED"),
    (64, "SNAT"),
    (128, "DNAT"),
];

/// The words of `struct xt_conntrack_mtinfo1` to `3`.
pub(super) fn words(extension: Extension<'_>) -> Option<String> {
    let (flags, inverted) = (extension.half(146)?, extension.half(148)?);
    let has = |flag: u16| flags & flag != 0;
    let not = |flag: u16| not(inverted & flag != 0);
    (!has(EXPIRES)).then_some(())?;
    let (state, status) = match extension.revision {
        1 => (extension.byte(150)?.into(), extension.byte(151)?.into()),
        _ => (extension.half(150)?, extension.half(152)?),
    };
    if has(IS_STATE_ALIAS) {
        return Some(format!("-m state {}--state {} ", not(STATE), names(state.into(), &STATES)?));
    }
    let mut words = "-m conntrack ".to_owned();
    if has(STATE) {
        words += &format!("{}--ctstate {} ", not(STATE), names(state.into(), &STATES)?);
    }
    if has(PROTOCOL) {
        words += &format!("{}--ctproto {} ", not(PROTOCOL), extension.half(136)?);
    }
    for (option, (at, bit)) in ADDRESSES.iter().zip((0..).step_by(32).zip(FIRST_ADDRESS..)) {
        if has(1 << bit) {
            words += &format!("{}{option} {} ", not(1 << bit), network(extension, at)?);
        }
    }
    for (option, (at, bit)) in ADDRESSES.iter().zip((138..).step_by(2).zip(FIRST_PORT..)) {
        if has(1 << bit) {
            words += &format!("{}{option}port {} ", not(1 << bit), port(extension, at)?);
        }
    }
    if has(STATUS_FLAG) {
        let known = STATUS.map(|(name, bit)| (u32::try_from(bit).unwrap_or_default(), name));
        let status = if status == 0 { "NONE".to_owned() } else { names(status.into(), &known)? };
        words += &format!("{}--ctstatus {status} ", not(STATUS_FLAG));
    }
    if has(DIRECTION) {
        words += if inverted & DIRECTION == 0 { "--ctdir ORIGINAL " } else { "--ctdir REPLY " };
    }
    Some(words)
}

/// An address and its mask, if that is a prefix.
fn network(extension: Extension<'_>, at: usize) -> Option<String> {
    let (address, mask) = (extension.address(at)?, extension.address(at + 16)?);
    let network = ipnetwork::IpNetwork::with_netmask(address, mask).ok()?;
    let is_host = network.prefix() == if address.is_ipv4() { 32 } else { 128 };
    Some(if is_host { address.to_string() } else { network.to_string() })
}

/// The last revision has ranges, in the byte order of the machine.
fn port(extension: Extension<'_>, at: usize) -> Option<String> {
    match extension.revision {
        3 => Some(range(extension.half(at)?, extension.half(at + 16)?, ':')),
        _ => extension.be_half(at).map(|port| port.to_string()),
    }
}
