//! Values of matches as numbers.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::super::statement::number;
use super::super::{port_ranges, protocol_number};
use crate::live_rules::{
    BROADCAST, DNAT, Direction, ESTABLISHED, End, Field, INVALID, LOCAL, Limit, MULTICAST, NEW, Part,
    RELATED, Range, SNAT, STATUS, UNICAST, UNTRACKED, address_number, interface_prefix, name_number,
};

/// Every bit.
const ALL: u128 = u128::MAX;
/// The flags of TCP by their bits.
const FLAGS: [&str; 6] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG"];

/// What an option of an extension looks at, the bits that it compares and the values with which it holds;
/// `None` if it is not understood.
pub(super) fn read(module: &str, option: &[&str]) -> Option<(Field, u128, Vec<Range>)> {
    let (name, value) = match *option {
        ["--syn"] => return Some((Field::TcpFlags, 0x17, vec![(2, 2)])),
        ["--tcp-flags", mask, set] => return Some((Field::TcpFlags, flags(mask)?, vec![one(flags(set)?)])),
        ["--socket-exists"] => return (module == "owner").then(|| (Field::Socket, ALL, vec![one(1)])),
        [name, value] => (name, value),
        _ => return None,
    };
    if let ("-s" | "-d", Some((mask, value))) = (name, masked_address(value)) {
        let field = if name == "-s" { Field::Source } else { Field::Destination };
        return Some((field, mask, vec![one(value)]));
    }
    let (field, values) = match (name, module) {
        ("-p", _) => (Field::Protocol, list(value, |name| Some(one(protocol_number(name)?.into())))?),
        ("-s", _) | ("--src-range", "iprange") => (Field::Source, list(value, addresses)?),
        ("-d", _) | ("--dst-range", "iprange") => (Field::Destination, list(value, addresses)?),
        ("-i", _) => (Field::InInterface, list(value, interface)?),
        ("-o", _) => (Field::OutInterface, list(value, interface)?),
        ("--dport", "tcp" | "udp" | "") | ("--dports", "multiport") => {
            (Field::DestinationPort, ports(value)?)
        }
        ("--sport", "tcp" | "udp" | "") | ("--sports", "multiport") => (Field::SourcePort, ports(value)?),
        ("--ports", "multiport") => (Field::EitherPort, ports(value)?),
        ("--uid-owner", "owner") => (Field::Uid, list(value, ids)?),
        ("--gid-owner", "owner") => (Field::Gid, list(value, ids)?),
        ("--mark", "mark") => return marks(Field::Mark, value),
        ("--mark", "connmark") => return marks(Field::Connmark, value),
        ("--ctstatus", "conntrack") => {
            return Some((Field::Connection(Part::Status, false), status(value)?, vec![(1, ALL)]));
        }
        ("--ctstate", "conntrack") | ("--state", "state") => (Field::State, list(value, state)?),
        (name, "conntrack") => {
            let (part, values) = of_connection(name, value)?;
            (Field::Connection(part, false), values)
        }
        ("--src-type", "addrtype") => (Field::SourceType(Limit::None), list(value, address_type)?),
        ("--dst-type", "addrtype") => (Field::DestinationType(Limit::None), list(value, address_type)?),
        _ => return None,
    };
    Some((field, ALL, values))
}

const fn one(number: u128) -> Range {
    (number, number)
}

fn list(text: &str, read: fn(&str) -> Option<Range>) -> Option<Vec<Range>> {
    text.split(',').map(read).collect()
}

fn ports(text: &str) -> Option<Vec<Range>> {
    let ranges = port_ranges(text)?;
    Some(ranges.iter().map(|range| ((*range.start()).into(), (*range.end()).into())).collect())
}

/// The bits that are compared, and their values, where these are not a prefix: `10.0.0.5/255.0.0.255`.
fn masked_address(text: &str) -> Option<(u128, u128)> {
    if text.parse::<IpNetwork>().is_ok() {
        return None;
    }
    let (value, mask) = text.split_once('/')?;
    let (value, mask): (IpAddr, IpAddr) = (value.parse().ok()?, mask.parse().ok()?);
    (value.is_ipv4() == mask.is_ipv4())
        .then(|| (address_number(mask), address_number(value) & address_number(mask)))
}

/// A network, or a range.
fn addresses(text: &str) -> Option<Range> {
    match text.split_once('-') {
        Some((first, last)) => {
            Some((address_number(first.parse().ok()?), address_number(last.parse().ok()?)))
        }
        None => {
            let network: IpNetwork = text.parse().ok()?;
            Some((address_number(network.network()), address_number(network.broadcast())))
        }
    }
}

fn ids(text: &str) -> Option<Range> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse::<u32>().ok()?.into(), last.parse::<u32>().ok()?.into()))
}

/// Marks with the same mask, if they have one.
fn marks(field: Field, text: &str) -> Option<(Field, u128, Vec<Range>)> {
    let mut masks = Vec::new();
    let mut values = Vec::new();
    for mark in text.split(',') {
        let (value, mask) = mark.split_once('/').unwrap_or((mark, "0xffffffff"));
        masks.push(number(mask)?);
        values.push(one(number(value)?.into()));
    }
    let mask = *masks.first()?;
    masks.iter().all(|other| *other == mask).then(|| (field, mask.into(), values))
}

/// The fields of `conntrack` options other than state and status.
fn of_connection(name: &str, value: &str) -> Option<(Part, Vec<Range>)> {
    let (direction, end) = match name {
        "--ctproto" => return Some((Part::Protocol, vec![one(protocol_number(value)?.into())])),
        "--ctdir" => {
            let number = ["ORIGINAL", "REPLY"].iter().position(|known| *known == value)?;
            return Some((Part::Direction, vec![one(u128::try_from(number).ok()?)]));
        }
        name => match (name.strip_prefix("--ctorig"), name.strip_prefix("--ctrepl")) {
            (Some(end), _) => (Direction::Original, end),
            (_, Some(end)) => (Direction::Reply, end),
            (None, None) => return None,
        },
    };
    let (end, values) = match end {
        "src" => (End::Source, list(value, addresses)?),
        "dst" => (End::Destination, list(value, addresses)?),
        "srcport" => (End::SourcePort, ports(value)?),
        "dstport" => (End::DestinationPort, ports(value)?),
        _ => return None,
    };
    Some((Part::End(direction, end), values))
}

/// The bits of a connection's status; none for `NONE`.
fn status(names: &str) -> Option<u128> {
    names.split(',').filter(|name| *name != "NONE").try_fold(0, |bits, name| {
        let (_, bit) = STATUS.iter().find(|(known, _)| *known == name)?;
        Some(bits | bit)
    })
}

fn state(name: &str) -> Option<Range> {
    Some(one(match name {
        "NEW" => NEW,
        "ESTABLISHED" => ESTABLISHED,
        "INVALID" => INVALID,
        "UNTRACKED" => UNTRACKED,
        "RELATED" => RELATED,
        "DNAT" => DNAT,
        "SNAT" => SNAT,
        _ => return None,
    }))
}

fn address_type(name: &str) -> Option<Range> {
    Some(one(match name {
        "UNICAST" => UNICAST,
        "LOCAL" => LOCAL,
        "BROADCAST" => BROADCAST,
        "MULTICAST" => MULTICAST,
        _ => return None,
    }))
}

fn flags(text: &str) -> Option<u128> {
    match text {
        "ALL" => Some(0x3f),
        "NONE" => Some(0),
        names => names.split(',').try_fold(0, |bits, name| {
            let bit = FLAGS.iter().position(|known| *known == name)?;
            Some(bits | 1 << bit)
        }),
    }
}

/// A foreign rule may have a name that no option takes: `+` for all.
fn interface(name: &str) -> Option<Range> {
    let is_possible = name.len() <= 16;
    let range = match name.strip_suffix('+') {
        Some(prefix) => interface_prefix(prefix.as_bytes()),
        None => one(name_number(name.as_bytes())),
    };
    is_possible.then_some(range)
}
