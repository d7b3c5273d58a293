//! Values of expressions, from their bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::Family;

/// A number in the byte order of the machine.
pub(in crate::parse) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The names of states by their bits.
pub(super) fn states_of(bits: u32) -> Option<String> {
    const STATES: [(u32, &str); 5] =
        [(1, "INVALID"), (8, "NEW"), (4, "RELATED"), (2, "ESTABLISHED"), (64, "UNTRACKED")];
    let known: u32 = STATES.iter().map(|(bit, _)| bit).sum();
    let names: Vec<_> = STATES.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect();
    (bits != 0 && bits & !known == 0).then(|| names.join(","))
}

/// A port in network byte order.
pub(in crate::parse) fn port(value: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(value.try_into().ok()?))
}

pub(in crate::parse) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// A name with its NUL; without one, a prefix of names.
pub(in crate::parse) fn interface(value: &[u8]) -> Option<String> {
    let end = value.iter().position(|byte| *byte == 0);
    let name = std::str::from_utf8(value.get(..end.unwrap_or(value.len()))?).ok()?;
    Some(quoted(&if end.is_some() { name.to_owned() } else { format!("{name}+") }))
}

pub(super) fn protocol(value: &[u8]) -> Option<String> {
    let [number] = value else { return None };
    Some(match i32::from(*number) {
        libc::IPPROTO_TCP => "tcp".to_owned(),
        libc::IPPROTO_UDP => "udp".to_owned(),
        other => other.to_string(),
    })
}

/// An address whose last bytes may be left out.
pub(in crate::parse) fn address(family: Family, value: &[u8]) -> Option<IpAddr> {
    Some(match family {
        Family::V4 => {
            let mut bytes = [0; 4];
            bytes.get_mut(..value.len())?.copy_from_slice(value);
            Ipv4Addr::from(bytes).into()
        }
        Family::V6 => {
            let mut bytes = [0; 16];
            bytes.get_mut(..value.len())?.copy_from_slice(value);
            Ipv6Addr::from(bytes).into()
        }
    })
}

/// One word for the reader of `iptables-save`.
pub(in crate::parse) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:+@%/".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    let escaped: String = word
        .chars()
        .flat_map(|c| ['\\'].into_iter().filter(move |_| "\"'\\".contains(c)).chain([c]))
        .collect();
    format!("\"{}\"", escaped.replace(['\n', '\0'], " "))
}
