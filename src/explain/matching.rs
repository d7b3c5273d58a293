//! Whether a rule matches a packet, and if not, why.

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

use super::packet::{OPENING, Packet, Process, TcpFlags};
use crate::config::ConnectionState;
use crate::live_rules::{MarkChange, Zone};
use crate::model::{CtState, Interface, Mark, Match, Matcher, Owner, Port, Ports, Protocol, Transport};

/// Why a test of the owner fails.
pub(super) const NO_SOCKET: &str = "has no socket, so neither uid nor gid";

/// Why a test of the connection's mark fails, negated or not.
pub(super) const NO_CONNECTION: &str = "has no connection, so no connection mark";

/// Whether a walk says why rules are not for its packet. The words cost more than the test; only the report
/// on one packet has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Words {
    #[default]
    None,
    OfEachRule,
}

impl Words {
    /// The words, or no words.
    pub(super) fn of(self, words: impl FnOnce() -> String) -> String {
        match self {
            Self::None => String::new(),
            Self::OfEachRule => words(),
        }
    }
}

/// A packet at one hook.
#[derive(Clone, Debug)]
pub(super) struct PacketState {
    pub(super) process: Option<Process>,
    pub(super) transport: Transport,
    pub(super) source: SocketAddr,
    pub(super) destination: SocketAddr,
    pub(super) in_interface: Option<String>,
    pub(super) out_interface: Option<String>,
    pub(super) mark: Mark,
    pub(super) connmark: Mark,
    /// Whether both marks are known: a foreign rule may have set others.
    pub(super) has_known_marks: bool,
    pub(super) state: ConnectionState,
    pub(super) tcp_flags: TcpFlags,
    /// Whether connection tracking sees it.
    pub(super) is_tracked: bool,
    /// The zone in which that looks for its connection.
    pub(super) zone: Zone,
    /// Whether a rule has decided both: the first one that sets one of them counts, and only before
    /// connection tracking.
    pub(super) is_assigned: bool,
    /// Whether connection tracking has seen it.
    pub(super) is_seen: bool,
    /// Whether it is said why a rule is not for it.
    pub(super) words: Words,
}

impl PacketState {
    /// The state of the packet before the first hook.
    pub(super) fn of(packet: &Packet, words: Words) -> Self {
        Self {
            process: packet.process,
            transport: packet.transport,
            source: packet.source,
            destination: packet.destination,
            in_interface: packet.is_inbound.then(|| packet.interface.clone()),
            out_interface: (!packet.is_inbound).then(|| packet.interface.clone()),
            mark: packet.mark,
            connmark: packet.connmark,
            has_known_marks: true,
            state: packet.state,
            tcp_flags: packet.possible_flags(),
            is_tracked: true,
            zone: Zone::default(),
            is_assigned: false,
            is_seen: false,
            words,
        }
    }

    /// Changes the marks of the packet, or of what is known of its connection.
    pub(super) fn change_marks(&mut self, change: MarkChange) {
        if !change.needs_connection() || self.has_connection() {
            (self.mark, self.connmark) = change.apply(self.mark, self.connmark);
        }
    }

    /// Whether it has a connection, which has a mark: not before connection tracking, nor if it is not
    /// tracked or invalid.
    pub(super) fn has_connection(&self) -> bool {
        self.is_seen && self.is_tracked && self.state != ConnectionState::Invalid
    }
}

/// The first test that fails, in a sentence if words are asked for; `None` if the rule is for the packet.
pub(super) fn mismatch(matcher: &Matcher, packet: &PacketState) -> Option<String> {
    let Matcher {
        source,
        destination,
        in_interface,
        out_interface,
        protocol,
        ct_state,
        mark,
        connmark,
        owners,
    } = matcher;
    let words = packet.words;
    address("source", source.as_ref(), packet.source.ip(), words)
        .or_else(|| address("destination", destination.as_ref(), packet.destination.ip(), words))
        .or_else(|| interface("arrives on", in_interface.as_ref(), packet.in_interface.as_deref(), words))
        .or_else(|| interface("leaves by", out_interface.as_ref(), packet.out_interface.as_deref(), words))
        .or_else(|| protocol.as_ref().and_then(|test| self::protocol(test, packet)))
        .or_else(|| ct_state.and_then(|test| state(test, packet)))
        .or_else(|| mark.and_then(|test| self::mark("mark", test, packet.mark, words)))
        .or_else(|| connmark.and_then(|test| self::connmark(Match::Is(test), packet)))
        .or_else(|| owners.iter().find_map(|test| owner(*test, packet.process, words)))
}

fn address(what: &str, test: Option<&Match<IpNetwork>>, address: IpAddr, words: Words) -> Option<String> {
    match test? {
        Match::Is(range) if range.contains(address) => None,
        Match::Is(range) => Some(words.of(|| format!("{what} {address} is not in {range}"))),
        Match::Not(range) if range.contains(address) => {
            Some(words.of(|| format!("{what} {address} is in {range}")))
        }
        Match::Not(_) => None,
    }
}

fn interface(what: &str, test: Option<&Interface>, name: Option<&str>, words: Words) -> Option<String> {
    let test = test?;
    match name {
        Some(name) if test.covers(name) => None,
        Some(name) => Some(words.of(|| format!("{what} {name}, not {test}"))),
        None => Some(words.of(|| format!("{what} no interface"))),
    }
}

fn protocol(test: &Protocol, packet: &PacketState) -> Option<String> {
    let Protocol { transport, source, destination, syn } = test;
    let words = packet.words;
    if *transport != packet.transport {
        return Some(words.of(|| format!("not {}", transport.name().to_uppercase())));
    }
    let source = source.map(|port| Match::Is(Ports::One(port)));
    let opens = packet.tcp_flags == OPENING;
    ports("source port", source.as_ref(), packet.source.port(), words)
        .or_else(|| ports("port", destination.as_ref(), packet.destination.port(), words))
        .or_else(|| match syn {
            Some(Match::Is(_)) if !opens => Some(words.of(|| "does not open a connection".to_owned())),
            Some(Match::Not(_)) if opens => Some(words.of(|| "opens a connection".to_owned())),
            Some(_) | None => None,
        })
}

fn ports(what: &str, test: Option<&Match<Ports>>, number: u16, words: Words) -> Option<String> {
    let test = test?;
    let listed = match test.value() {
        Ports::One(port) => port.number() == number,
        Ports::Any(ports) => ports.iter().any(|port| port.number() == number),
    };
    let list = || match test.value() {
        Ports::One(port) => port.to_string(),
        Ports::Any(ports) => ports.iter().map(Port::to_string).collect::<Vec<_>>().join(","),
    };
    match test {
        Match::Is(_) if !listed => Some(words.of(|| format!("{what} {number} is not {}", list()))),
        Match::Not(_) if listed => Some(words.of(|| format!("{what} is {number}"))),
        Match::Is(_) | Match::Not(_) => None,
    }
}

fn state(test: CtState, PacketState { state, is_tracked, words, .. }: &PacketState) -> Option<String> {
    let (meant, expected) = match test {
        CtState::Invalid => (ConnectionState::Invalid, "INVALID"),
        CtState::RelatedOrEstablished => (ConnectionState::Established, "RELATED or ESTABLISHED"),
    };
    let found = if *is_tracked { state.conntrack_name() } else { "UNTRACKED" };
    (*state != meant || !is_tracked).then(|| words.of(|| format!("connection is {found}, not {expected}")))
}

fn mark(what: &str, test: Match<Mark>, mark: Mark, words: Words) -> Option<String> {
    match test {
        Match::Is(expected) if mark != expected => {
            Some(words.of(|| format!("{what} {mark} is not {expected}")))
        }
        Match::Not(refused) if mark == refused => Some(words.of(|| format!("{what} is {mark}"))),
        Match::Is(_) | Match::Not(_) => None,
    }
}

fn connmark(test: Match<Mark>, packet: &PacketState) -> Option<String> {
    if !packet.has_connection() {
        return Some(packet.words.of(|| NO_CONNECTION.to_owned()));
    }
    mark("connection mark", test, packet.connmark, packet.words)
}

/// As the kernel does (`owner_mt` in `xt_owner.c`): without a socket, a negated test holds and any other
/// fails.
fn owner(test: Match<Owner>, process: Option<Process>, words: Words) -> Option<String> {
    let Some(Process { uid, gid }) = process else {
        return matches!(test, Match::Is(_)).then(|| words.of(|| NO_SOCKET.to_owned()));
    };
    let (what, expected, found) = match *test.value() {
        Owner::Uid(expected) => ("uid", expected, uid),
        Owner::Gid(expected) => ("gid", expected, gid),
    };
    match test {
        Match::Is(_) if found != expected => Some(words.of(|| format!("{what} {found} is not {expected}"))),
        Match::Not(_) if found == expected => Some(words.of(|| format!("{what} is {found}"))),
        Match::Is(_) | Match::Not(_) => None,
    }
}
