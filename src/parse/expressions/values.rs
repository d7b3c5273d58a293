//! The values that a register is compared with, in words.

use std::net::IpAddr;

use super::decode::{address, interface, number, port, protocol, states_of};
use super::{Loaded, Reader};
use crate::live_rules::STATUS;
use crate::model::Family;

/// INVALID, ESTABLISHED, RELATED, NEW and UNTRACKED.
const EVERY_STATE: u32 = 1 | 2 | 4 | 8 | 64;

/// The first and the last of some values.
pub(super) type Values<'a> = (&'a [u8], &'a [u8]);

impl Reader {
    /// A test of what is loaded: it is, or is not, among these values.
    pub(super) fn tested(&mut self, is_negated: bool, values: &[Values<'_>]) -> Option<()> {
        let not = if is_negated { "! " } else { "" };
        let single = |read: &dyn Fn(&[u8]) -> Option<String>| {
            listed(values, |first, last| if first == last { read(first) } else { None })
        };
        match self.loaded? {
            Loaded::Interface(option, false) => {
                // No interface has a slash in its name: iptables-nft writes `! -i +` as `INVAL/D`.
                self.interface += &match (is_negated, values) {
                    (false, [(name, _)]) if name.contains(&b'/') => format!("! {option} + "),
                    _ => format!("{not}{option} {} ", single(&interface)?),
                };
            }
            Loaded::Protocol => {
                let test = format!("{not}-p {} ", single(&protocol)?);
                if self.protocol != test {
                    self.protocol += &test;
                }
            }
            Loaded::Port(option) => {
                let ports = listed(values, |first, last| Some(ranged(port(first)?, port(last)?, ':')))?;
                if values.len() == 1 {
                    self.ports += &format!("{not}{option} {ports} ");
                } else {
                    self.tests += &format!("-m multiport {not}{option}s {ports} ");
                }
            }
            Loaded::Address(option, bits) => self.address_tested(not, option, bits, values)?,
            Loaded::MaskedAddress(option, mask) => {
                let masked = |value: &[u8]| Some(format!("{}/{mask}", address(self.family, value)?));
                self.address += &format!("{not}{option} {} ", single(&masked)?);
            }
            Loaded::Mark(module, mask, 0) => {
                let marks = single(&|value| Some(masked(self.number(value)?, mask)))?;
                self.tests += &format!("-m {module} {not}--mark {marks} ");
            }
            Loaded::Owner(option) => {
                let owners =
                    listed(values, |first, last| Some(ranged(self.number(first)?, self.number(last)?, '-')))?;
                self.tests += &format!("-m owner {not}{option} {owners} ");
            }
            Loaded::State(bits) => self.tests += &states(bits, is_negated, values)?,
            Loaded::Flags(mask) => {
                let [([set], [last])] = values else { return None };
                let set = flags_of((set == last).then_some(*set)?)?;
                self.ports += &format!("{not}--tcp-flags {} {set} ", flags_of(mask)?);
            }
            Loaded::AddressType(option, limit) => {
                let types = single(&|value: &[u8]| type_of(number(value, 0)?))?;
                // Of IPv6 the extension of iptables tests something else than the type, for some of them.
                let is_alike = self.family == Family::V4 || ["LOCAL", "MULTICAST"].contains(&types.as_str());
                self.tests += &is_alike.then(|| format!("-m addrtype {not}{option} {types} {limit}"))?;
            }
            Loaded::ReversePath(options) => self.tests += &reverse_path(options, is_negated, values)?,
            Loaded::Status(_) | Loaded::Direction | Loaded::EndAddress(..) | Loaded::EndPort(_) => {
                self.tests += &self.connection_tested(is_negated, values)?;
            }
            Loaded::Random(..) => self.unread("statistic")?,
            Loaded::Family => self.family_tested(is_negated, values)?,
            Loaded::Interface(_, true) | Loaded::Mark(..) => return None,
        }
        self.fields.clear();
        Some(())
    }

    /// A test of the network protocol: rules are read for one family.
    pub(super) fn family_tested(&mut self, is_negated: bool, values: &[Values<'_>]) -> Option<()> {
        let own = match self.family {
            Family::V4 => libc::NFPROTO_IPV4,
            Family::V6 => libc::NFPROTO_IPV6,
        };
        let own = &[u8::try_from(own).ok()?][..];
        let is_listed = values.iter().any(|(first, last)| *first <= own && own <= *last);
        self.is_other_family |= is_listed == is_negated;
        Some(())
    }

    fn address_tested(&mut self, not: &str, option: &str, bits: u8, values: &[Values<'_>]) -> Option<()> {
        let (module, test) = addresses(not, option, bits, &self.ranges(values)?);
        if module.is_empty() {
            self.address += &test;
        } else {
            self.tests += &format!("{module}{test}");
        }
        Some(())
    }

    /// A test of the connection.
    fn connection_tested(&self, is_negated: bool, values: &[Values<'_>]) -> Option<String> {
        let not = if is_negated { "! " } else { "" };
        Some(match self.loaded? {
            Loaded::Status(mask) => status(mask, is_negated, values)?,
            Loaded::Direction => {
                let direction = listed(values, |first, last| {
                    direction(first).filter(|_| first == last).map(str::to_owned)
                })?;
                format!("-m conntrack {not}--ctdir {direction} ")
            }
            Loaded::EndAddress(option, bits) => {
                // A prefix of whole bytes is compared by these bytes alone.
                let compared = values.iter().map(|(first, _)| first.len()).min()?;
                let bits = bits.min(u8::try_from(8 * compared).unwrap_or(u8::MAX));
                let ranges = self.ranges(values)?;
                let listed = ranges.iter().map(|range| network_or_range(range, bits)).collect::<Vec<_>>();
                format!("-m conntrack {not}{option} {} ", listed.join(","))
            }
            Loaded::EndPort(option) => {
                let ports = listed(values, |first, last| Some(ranged(port(first)?, port(last)?, ':')))?;
                format!("-m conntrack {not}{option} {ports} ")
            }
            Loaded::Interface(..)
            | Loaded::Protocol
            | Loaded::Mark(..)
            | Loaded::Flags(_)
            | Loaded::Family
            | Loaded::Owner(_)
            | Loaded::Port(_)
            | Loaded::State(_)
            | Loaded::Address(..)
            | Loaded::MaskedAddress(..)
            | Loaded::AddressType(..)
            | Loaded::ReversePath(_)
            | Loaded::Random(..) => return None,
        })
    }

    /// Ranges of addresses.
    fn ranges(&self, values: &[Values<'_>]) -> Option<Vec<(IpAddr, IpAddr)>> {
        let range =
            |(first, last): &Values<'_>| Some((address(self.family, first)?, address(self.family, last)?));
        values.iter().map(range).collect()
    }

    /// A number, in the byte order in which it is loaded.
    fn number(&self, value: &[u8]) -> Option<u32> {
        let number = number(value, 0).filter(|_| value.len() == 4)?;
        Some(if self.is_swapped { u32::from_be(number) } else { number })
    }
}

fn listed(values: &[Values<'_>], read: impl Fn(&[u8], &[u8]) -> Option<String>) -> Option<String> {
    let values: Option<Vec<String>> = values.iter().map(|(first, last)| read(first, last)).collect();
    Some(values?.join(",")).filter(|list| !list.is_empty())
}

fn ranged<T: Copy + PartialEq + std::fmt::Display>(first: T, last: T, to: char) -> String {
    if first == last { first.to_string() } else { format!("{first}{to}{last}") }
}

fn masked(mark: u32, mask: u32) -> String {
    if mask == u32::MAX { format!("{mark:#x}") } else { format!("{mark:#x}/{mask:#x}") }
}

/// A test of the state of the connection: of these bits of it, or with 0 as a whole.
fn states(bits: u32, is_negated: bool, values: &[Values<'_>]) -> Option<String> {
    // A packet has one state: it never equals several, which nft compares it with for
    // `!= established,related`.
    let listed = values.iter().try_fold(0, |listed, (first, last)| {
        let state = number(first, 0).filter(|_| first == last)?;
        Some(if state.is_power_of_two() { listed | state } else { listed })
    })?;
    let (bits, is_negated) = match (bits, listed, values) {
        (0, 0, _) => (EVERY_STATE, !is_negated),
        (0, listed, _) => (listed, is_negated),
        // Not none of them is one of them.
        (bits, 0, [(first, _)]) if number(first, 0) == Some(0) => (bits, !is_negated),
        _ => return None,
    };
    let not = if is_negated { "! " } else { "" };
    Some(format!("-m conntrack {not}--ctstate {} ", states_of(bits)?))
}

/// A test of a connection's status: whether one of these bits is set.
fn status(mask: u32, is_negated: bool, values: &[Values<'_>]) -> Option<String> {
    let [(value, last)] = values else { return None };
    let value = number(value, 0).filter(|_| value == last)?;
    let is_any = match value {
        0 => is_negated,
        value if value == mask && mask.is_power_of_two() => !is_negated,
        _ => return None,
    };
    let names: Vec<&str> =
        STATUS.iter().filter(|(_, bit)| u128::from(mask) & bit != 0).map(|(name, _)| *name).collect();
    let known: u128 = STATUS.iter().map(|(_, bit)| bit).sum();
    (u128::from(mask) & !known == 0 && !names.is_empty()).then(|| {
        let not = if is_any { "" } else { "! " };
        format!("-m conntrack {not}--ctstatus {} ", names.join(","))
    })
}

/// `IP_CT_DIR_ORIGINAL` or `IP_CT_DIR_REPLY`.
fn direction(value: &[u8]) -> Option<&'static str> {
    match value {
        [0] => Some("ORIGINAL"),
        [1] => Some("REPLY"),
        _ => None,
    }
}

/// Addresses, of which so many bits count: networks, or ranges that are none; and the extension for a range.
fn addresses(not: &str, option: &str, bits: u8, ranges: &[(IpAddr, IpAddr)]) -> (&'static str, String) {
    let of = |range| network_or_range(range, bits);
    match ranges {
        [range @ (first, last)] if first != last && network(*first, *last).is_none() => {
            let option = if option == "-s" { "--src-range" } else { "--dst-range" };
            ("-m iprange ", format!("{not}{option} {} ", of(range)))
        }
        ranges => ("", format!("{not}{option} {} ", ranges.iter().map(of).collect::<Vec<_>>().join(","))),
    }
}

fn network_or_range((first, last): &(IpAddr, IpAddr), bits: u8) -> String {
    if first == last {
        return format!("{first}/{bits}");
    }
    network(*first, *last).unwrap_or_else(|| format!("{first}-{last}"))
}

/// The network that a range is, if it is one.
fn network(first: IpAddr, last: IpAddr) -> Option<String> {
    let (first_bits, last_bits, all) = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (u32::from(first).into(), u32::from(last).into(), 32),
        (IpAddr::V6(first), IpAddr::V6(last)) => (u128::from(first), u128::from(last), 128),
        _ => return None,
    };
    let hosts = first_bits ^ last_bits;
    let is_network = hosts & hosts.wrapping_add(1) == 0 && first_bits & hosts == 0;
    is_network.then(|| format!("{first}/{}", all - hosts.count_ones()))
}

/// Length of the prefix that a mask selects, if it is one.
pub(in crate::parse) fn prefix(mask: &[u8]) -> Option<u8> {
    let ones: u32 = mask.iter().take_while(|byte| **byte == 0xff).map(|byte| byte.leading_ones()).sum();
    let rest = mask.get(usize::try_from(ones / 8).ok()?..)?;
    let partial = rest.first().map_or(0, |byte| byte.leading_ones());
    let is_prefix = rest.first().is_none_or(|byte| byte.count_ones() == partial)
        && rest.iter().skip(1).all(|byte| *byte == 0);
    u8::try_from(ones + partial).ok().filter(|_| is_prefix)
}

/// The names of TCP's flags by their bits.
pub(super) fn flags_of(bits: u8) -> Option<String> {
    const FLAGS: [&str; 6] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];
    const NAMED: u8 = 0x3f;
    if bits == u8::MAX {
        return Some("ALL".to_owned());
    }
    let names = FLAGS.iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0).map(|(_, name)| *name);
    let names: Vec<_> = names.collect();
    let none = || "NONE".to_owned();
    (bits & !NAMED == 0).then(|| if names.is_empty() { none() } else { names.join(",") })
}

/// The name of an address' type by its number in linux/rtnetlink.h.
fn type_of(number: u32) -> Option<String> {
    const TYPES: [(u32, &str); 4] = [(1, "UNICAST"), (2, "LOCAL"), (3, "BROADCAST"), (5, "MULTICAST")];
    TYPES.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned())
}

/// A test of the interface of the route back, by its number or by whether there is one: 0 without a route.
fn reverse_path(options: &str, is_negated: bool, values: &[Values<'_>]) -> Option<String> {
    let [(value, last)] = values else { return None };
    let value = number(value, 0).filter(|number| *number <= 1 && value == last)?;
    let not = if (value == 0) == is_negated { "" } else { "--invert " };
    Some(format!("-m rpfilter {options}{not}"))
}
