//! Matches of foreign rules against a packet, as the kernel evaluates them.

use std::net::IpAddr;

use super::connection::{Connection, status};
use super::matching::{NO_CONNECTION, NO_SOCKET, PacketState};
use super::packet::{KNOWN_FLAGS, SYN};
use crate::config::ConnectionState;
use crate::live_rules::{
    self as matches, BROADCAST, DNAT, Direction, ESTABLISHED, End, Field, FieldMatch, INVALID, LOCAL, Limit,
    MULTICAST, NEW, Part, ReversePath, SNAT, UNICAST, UNTRACKED, address_number, name_number,
};
use crate::model::{Fib, FibRoute, LOCAL_TABLE, RouteKind, Transport};
use crate::routing::{Flow, Found, lookup};

/// A field of which only some values are known that it does not have: the packet stands for all that have
/// another one.
#[derive(Clone, Debug)]
pub struct Open {
    /// The field.
    pub field: Field,
    /// The values that it does not have; a packet that has one of them by now is no open one.
    pub except: Vec<u128>,
}

/// What matches look at besides the packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    /// The routes, if they are known.
    pub(super) fib: Option<&'a Fib>,
    /// The connection of the packet, if it is known.
    pub(super) connection: Option<Connection>,
    /// The fields of the packet that are open, unless it has one of the values by now.
    pub(super) open: &'a [Open],
}

/// Whether a match holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Yes,
    /// The match does not hold, and why.
    No(String),
    /// What it looks at is not known.
    Unknown,
}

/// Whether a match of a foreign rule holds for a packet.
pub(super) fn holds(test: &FieldMatch, packet: &PacketState, facts: Facts<'_>) -> Holds {
    let open = facts.open.iter().find(|open| open.field == test.field);
    let number = |value: u128| match open.filter(|open| !open.except.contains(&value)) {
        Some(open) => of_open(test, &open.except, packet),
        None => of_value(test, value, u128::MAX, packet),
    };
    let port = |port: u16| u128::from(port);
    match test.field {
        Field::Protocol => number(protocol(packet.transport)),
        Field::Source => number(address_number(packet.source.ip())),
        Field::Destination => number(address_number(packet.destination.ip())),
        Field::SourcePort => number(port(packet.source.port())),
        Field::DestinationPort => number(port(packet.destination.port())),
        Field::EitherPort if open.is_some() => Holds::Unknown,
        Field::EitherPort => {
            let ports = [packet.source.port(), packet.destination.port()];
            decided(test, ports.into_iter().any(|number| test.lists(port(number))), packet)
        }
        Field::InInterface => number(interface(packet.in_interface.as_deref())),
        Field::OutInterface => number(interface(packet.out_interface.as_deref())),
        Field::Uid => number(packet.process.map_or(matches::NO_SOCKET, |process| process.uid.into())),
        Field::Gid => number(packet.process.map_or(matches::NO_SOCKET, |process| process.gid.into())),
        Field::Socket => number(packet.process.is_some().into()),
        Field::Mark if !packet.has_known_marks => Holds::Unknown,
        Field::Mark => number(packet.mark.0.into()),
        // Without a connection it fails, negated or not.
        Field::Connmark if !packet.has_connection() => {
            Holds::No(packet.words.of(|| NO_CONNECTION.to_owned()))
        }
        Field::Connmark if !packet.has_known_marks => Holds::Unknown,
        Field::Connmark => number(packet.connmark.0.into()),
        Field::State => state(test, packet, facts),
        // The state has decided already.
        Field::Connection(_, true) if !packet.has_connection() => Holds::Yes,
        Field::Connection(..) if !packet.has_connection() => Holds::No(mismatch(test, packet)),
        Field::Connection(part, _) => of_connection(test, part, packet, facts),
        Field::TcpFlags => {
            let of = |flags: &u128| {
                let known = if flags & SYN == 0 { KNOWN_FLAGS } else { u128::MAX };
                of_value(test, *flags, known, packet)
            };
            let mut all = packet.tcp_flags.iter().map(of);
            let first = all.next().unwrap_or(Holds::Unknown);
            if all.all(|other| other == first) { first } else { Holds::Unknown }
        }
        Field::SourceType(limit) => address_type(test, packet.source.ip(), limit, packet, facts),
        Field::DestinationType(limit) => address_type(test, packet.destination.ip(), limit, packet, facts),
        Field::ReversePath(path) => match has_way_back(path, packet, facts.fib) {
            Some(has_way) => decided(test, has_way, packet),
            None => Holds::Unknown,
        },
        Field::ExtensionHeader => number(0),
    }
}

/// Whether a route leads back to the source, as `xt_rpfilter` and `fib saddr oif` of nftables ask; `None` if
/// that is not known.
fn has_way_back(path: ReversePath, packet: &PacketState, fib: Option<&Fib>) -> Option<bool> {
    let (way, fib) = (packet.in_interface.as_deref()?, fib?);
    if way == "lo" {
        return Some(true);
    }
    let is_open = path.has_mark && !packet.has_known_marks;
    let flow = Flow {
        source: packet.destination.ip(),
        destination: packet.source.ip(),
        mark: (!is_open).then_some(if path.has_mark { packet.mark.0 } else { 0 }),
        uid: Some(0),
        in_interface: "lo",
        protocol: 0,
        ports: None,
    };
    let found = lookup(fib, &flow);
    if !found.uncertain.is_empty() {
        return None;
    }
    let Some(Found::Route(route)) = found.decisive.map(|tried| tried.found) else {
        return Some(false);
    };
    if route.kind != RouteKind::Unicast {
        return Some(false);
    }
    if path.is_loose || route.interface.as_deref() == Some(way) {
        return Some(true);
    }
    // Of IPv6 routes to the same network the one by this interface counts, of several ways of a route each.
    let is_alike = |other: &FibRoute| {
        (other.table, other.destination) == (route.table, route.destination)
            && other.interface.as_deref().is_none_or(|name| name == way)
    };
    (!fib.routes.iter().any(is_alike)).then_some(false)
}

fn of_value(test: &FieldMatch, value: u128, known: u128, packet: &PacketState) -> Holds {
    match test.holds(value, known) {
        Some(true) => Holds::Yes,
        Some(false) => Holds::No(mismatch(test, packet)),
        None => Holds::Unknown,
    }
}

/// Whether it holds for a field that has none of these values.
fn of_open(test: &FieldMatch, except: &[u128], packet: &PacketState) -> Holds {
    let is_excepted = |(first, last): &(u128, u128)| first == last && except.contains(first);
    if test.values.iter().all(is_excepted) { decided(test, false, packet) } else { Holds::Unknown }
}

/// Whether it holds, where it is known whether the packet has one of the values.
fn decided(test: &FieldMatch, is_listed: bool, packet: &PacketState) -> Holds {
    if is_listed == test.is_negated { Holds::No(mismatch(test, packet)) } else { Holds::Yes }
}

/// Whether a test of the connection holds, as far as that is known.
fn of_connection(test: &FieldMatch, part: Part, packet: &PacketState, facts: Facts<'_>) -> Holds {
    let value = match (part, facts.connection) {
        (Part::Protocol, _) => Some(protocol(packet.transport)),
        (Part::Status, connection) => {
            let (set, unknown) = status(packet, connection);
            return match (set & test.mask, unknown & test.mask) {
                (0, 0) => decided(test, false, packet),
                (0, _) => Holds::Unknown,
                _ => decided(test, true, packet),
            };
        }
        (_, None) => None,
        (Part::Direction, Some(connection)) => Some(connection.is_reply.into()),
        (Part::End(direction, end), Some(Connection { original, reply, .. })) => {
            let (source, destination) = match direction {
                Direction::Original => (Some(original.0), Some(original.1)),
                Direction::Reply => (Some(reply.0), reply.1),
            };
            match end {
                End::Source => source.map(|end| address_number(end.ip())),
                End::Destination => destination.map(|end| address_number(end.ip())),
                End::SourcePort => source.map(|end| end.port().into()),
                End::DestinationPort => destination.map(|end| end.port().into()),
            }
        }
    };
    value.map_or(Holds::Unknown, |value| of_value(test, value, u128::MAX, packet))
}

const fn protocol(transport: Transport) -> u128 {
    match transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
    }
}

/// A connection whose addresses are translated has two states, any of which counts.
fn state(test: &FieldMatch, packet: &PacketState, facts: Facts<'_>) -> Holds {
    let first = match packet.state {
        _ if !packet.is_tracked => UNTRACKED,
        ConnectionState::New => NEW,
        ConnectionState::Established => ESTABLISHED,
        ConnectionState::Invalid => INVALID,
    };
    if !packet.is_seen && packet.is_tracked {
        let later = || Holds::No(packet.words.of(|| "connection tracking comes later".to_owned()));
        return if test.lists(INVALID) == test.is_negated { later() } else { Holds::Yes };
    }
    let has_connection = [NEW, ESTABLISHED].contains(&first);
    let (set, unknown) = if has_connection { status(packet, facts.connection) } else { (0, 0) };
    let has = |bits: u128| {
        let listed = |state, bit| test.lists(state) && bits & bit != 0;
        listed(DNAT, matches::STATUS_DNAT) || listed(SNAT, matches::STATUS_SNAT)
    };
    if test.lists(first) || has(set) {
        return decided(test, true, packet);
    }
    if has(unknown) { Holds::Unknown } else { decided(test, false, packet) }
}

/// `xt_addrtype`: of IPv4 an address has one type, one of a list; of IPv6 it has to have all types of a list.
fn address_type(
    test: &FieldMatch,
    address: IpAddr,
    limit: Limit,
    packet: &PacketState,
    facts: Facts<'_>,
) -> Holds {
    let device = match limit {
        Limit::None => None,
        Limit::In => packet.in_interface.as_deref(),
        Limit::Out => packet.out_interface.as_deref(),
    };
    let listed = |kind: u128| test.lists(kind);
    match address {
        IpAddr::V4(v4) => {
            let kind = if v4.octets()[0] == 0 || v4.is_broadcast() {
                Some(BROADCAST)
            } else if v4.is_multicast() {
                Some(MULTICAST)
            } else {
                facts.fib.map(|fib| match own_route(fib, address, device).map(|route| route.kind) {
                    Some(RouteKind::Local) => LOCAL,
                    Some(RouteKind::Other) => BROADCAST,
                    _ => UNICAST,
                })
            };
            kind.map_or(Holds::Unknown, |kind| decided(test, listed(kind), packet))
        }
        IpAddr::V6(v6) => {
            let is_unicast = !v6.is_multicast() && !v6.is_unspecified() && v6.to_ipv4_mapped().is_none();
            if listed(BROADCAST) || listed(MULTICAST) && !v6.is_multicast() || listed(UNICAST) && !is_unicast
            {
                return decided(test, false, packet);
            }
            if !listed(LOCAL) {
                return decided(test, true, packet);
            }
            let is_local = |fib| {
                own_route(fib, address, device).is_some_and(|route: &FibRoute| route.kind == RouteKind::Local)
            };
            facts.fib.map_or(Holds::Unknown, |fib| decided(test, is_local(fib), packet))
        }
    }
}

/// The route of the table with the machine's own addresses, if its interface is this one.
fn own_route<'a>(fib: &'a Fib, address: IpAddr, device: Option<&str>) -> Option<&'a FibRoute> {
    let is_for = |route: &&FibRoute| {
        route.table == LOCAL_TABLE && route.destination.is_some_and(|range| range.contains(address))
    };
    let best = fib.routes.iter().filter(is_for).max_by_key(|route| route.prefix());
    best.filter(|route| device.is_none() || route.interface.as_deref() == device)
}

fn interface(name: Option<&str>) -> u128 {
    name.map_or(0, |name| name_number(name.as_bytes()))
}

/// Why the match does not hold, in a sentence if words are asked for.
fn mismatch(test: &FieldMatch, packet: &PacketState) -> String {
    packet.words.of(|| mismatch_words(test, packet))
}

fn mismatch_words(test: &FieldMatch, packet: &PacketState) -> String {
    let (not, listed) = (if test.is_negated { "" } else { "not " }, test.listed());
    let number = |what: &str, value: &dyn std::fmt::Display| format!("{what} {value} is {not}{listed}");
    let arrives = |how: &str, name: &Option<String>| match name {
        _ if test.is_negated => format!("interface is {listed}"),
        Some(name) => format!("{how} {name}, not {listed}"),
        None => format!("{how} no interface"),
    };
    match test.field {
        Field::Protocol => format!("{}{}", if test.is_negated { "is " } else { not }, listed.to_uppercase()),
        Field::Source => format!("source {} is {not}in {listed}", packet.source.ip()),
        Field::Destination => format!("destination {} is {not}in {listed}", packet.destination.ip()),
        Field::SourcePort => number("source port", &packet.source.port()),
        Field::DestinationPort => number("port", &packet.destination.port()),
        Field::EitherPort => {
            format!("ports {} and {}: {not}{listed}", packet.source.port(), packet.destination.port())
        }
        Field::InInterface => arrives("arrives on", &packet.in_interface),
        Field::OutInterface => arrives("leaves by", &packet.out_interface),
        Field::Uid | Field::Gid => match packet.process {
            None => NO_SOCKET.to_owned(),
            Some(process) if test.field == Field::Uid => number("uid", &process.uid),
            Some(process) => number("gid", &process.gid),
        },
        Field::Socket if test.is_negated => "has a socket".to_owned(),
        Field::Socket => NO_SOCKET.to_owned(),
        Field::Mark => number("mark", &packet.mark),
        Field::Connmark => number("connection mark", &packet.connmark),
        Field::State => {
            let found = if packet.is_tracked { packet.state.conntrack_name() } else { "UNTRACKED" };
            format!("connection is {found}, {not}{listed}")
        }
        Field::Connection(..) if !packet.has_connection() => "has no connection".to_owned(),
        Field::Connection(part, _) => format!("{} of its connection is {not}{listed}", part_name(part)),
        Field::TcpFlags if listed.is_empty() && test.is_negated => "opens a connection".to_owned(),
        Field::TcpFlags if listed.is_empty() => "does not open a connection".to_owned(),
        Field::TcpFlags => format!("its TCP flags are {not}{listed}"),
        Field::SourceType(_) => format!("source {} is {not}of type {listed}", packet.source.ip()),
        Field::DestinationType(_) => {
            format!("destination {} is {not}of type {listed}", packet.destination.ip())
        }
        Field::ReversePath(_) => {
            let no = if test.is_negated { "a" } else { "no" };
            format!("{no} route leads back to {}", packet.source.ip())
        }
        Field::ExtensionHeader => "has no extension header".to_owned(),
    }
}

const fn part_name(part: Part) -> &'static str {
    match part {
        Part::Status => "the status",
        Part::Direction => "the direction",
        Part::Protocol => "the protocol",
        Part::End(Direction::Original, End::Source | End::SourcePort) => "the source",
        Part::End(Direction::Original, End::Destination | End::DestinationPort) => "the destination",
        Part::End(Direction::Reply, End::Source | End::SourcePort) => "the source of replies",
        Part::End(Direction::Reply, End::Destination | End::DestinationPort) => "the destination of replies",
    }
}
