//! Packets for each foreign rule and policy rule: to the address and the port that it names, from whom it
//! names; and those by which the proxy hands on what is captured from or for these.

use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;

use super::defaults::{default_port, default_server};
use super::example_addresses::{first_host, server_in};
use super::overview::{passthrough_query, pod_address, query};
use super::packet::Packet;
use super::row::is_captured_by_ours;
use super::rules::{INPUT, Rules};
use super::{LiveState, Pod};
use crate::config::{InboundPorts, OutboundRanges, PacketQuery, Sender};
use crate::live_rules::{Direction, End, Field, FieldMatch, Part, address_number, address_of};
use crate::model::{DNS_PORT, Family, Hook, PolicyRule, Port, ROUTE_PROTOCOL, Transport};

/// Most packets of a family, of those that are captured, and of those of the proxy.
const MOST: usize = 64;

/// For each family that has rules of ours: packets for each foreign rule and policy rule that are captured
/// without these, or that the proxy hands on then, with the name of the kind of traffic.
pub(super) fn packets(live: &LiveState, pod: &Pod<'_>) -> Vec<(String, Packet)> {
    let mut packets: Vec<(String, Packet)> = Vec::new();
    for (family, rules) in live.rules.iter().filter(|(_, rules)| rules.has_ours()) {
        for kinds in [&CAPTURED[..], &PROXY] {
            // What a question asks of a rule that names nothing.
            let plain: Vec<Question> =
                kinds.iter().map(|kind| Question::about(*kind, *family, pod)).collect();
            let of_rules = rules.foreign().into_iter().flat_map(|(hook, entry)| {
                let meets = plain.iter().filter(move |plain| plain.kind.meets(hook, live));
                meets.filter_map(|plain| plain.with(&entry.rule.tests(), pod))
            });
            let policy_rules = live.fib.get(family).into_iter().flat_map(|fib| &fib.rules);
            let of_policy_rules = policy_rules.filter(|rule| is_asked_about(rule)).flat_map(|rule| {
                let meets = plain.iter().filter(|plain| plain.kind.meets(None, live));
                meets.filter_map(|plain| plain.with_policy(rule, pod))
            });
            let mut questions: Vec<Question> = Vec::new();
            for found in of_rules.chain(of_policy_rules) {
                let is_asked = found.is_named || kinds.contains(&Kind::App);
                if is_asked && !questions.contains(&found) {
                    questions.push(found);
                }
                if questions.len() == MOST {
                    break;
                }
            }
            let asked = questions.iter().filter(|question| question.concerns(rules, live, pod));
            packets.extend(asked.map(|question| question.packet(pod)));
        }
    }
    packets
}

/// Whose packets, and whether a rule tests them or their replies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    App,
    Client,
    /// Replies of the app.
    ToClient,
    /// The proxy to a server, in the app's place.
    ToServer,
    FromServer,
    /// The proxy to the app, in a client's place.
    ToApp,
    FromApp,
}

const CAPTURED: [Kind; 2] = [Kind::App, Kind::Client];
const PROXY: [Kind; 5] = [Kind::ToServer, Kind::FromServer, Kind::ToApp, Kind::FromApp, Kind::ToClient];

impl Kind {
    /// Whether packets of this kind meet a hook where they have the addresses that a rule for them names.
    /// `None`: it is not known which.
    fn meets(self, hook: Option<&str>, live: &LiveState) -> bool {
        let arrives = hook.is_none_or(|hook| [Hook::Prerouting.name(), INPUT].contains(&hook));
        match self {
            Self::Client | Self::FromServer => arrives,
            Self::App => hook != Some(Hook::Prerouting.name()),
            Self::ToServer | Self::ToClient => hook.is_none() || !arrives,
            // With TPROXY that follows from the client's packet, which meets no hook of what is sent.
            Self::ToApp => !arrives || live.routed_mark.is_none(),
            Self::FromApp => live.routed_mark.is_none(),
        }
    }

    const fn is_reply(self) -> bool {
        matches!(self, Self::FromServer | Self::FromApp | Self::ToClient)
    }

    /// Whether it is for the pod.
    const fn is_for_pod(self) -> bool {
        matches!(self, Self::Client | Self::ToClient | Self::ToApp | Self::FromApp)
    }

    /// Whether it is one of the proxy's own connections.
    const fn is_of_proxy(self) -> bool {
        matches!(self, Self::ToServer | Self::FromServer | Self::ToApp | Self::FromApp)
    }

    fn query(self, family: Family, pod: &Pod<'_>) -> PacketQuery {
        let has_tproxy = pod.live.as_ref().is_some_and(|live| live.routed_mark.is_some());
        match self {
            Self::App => query(Sender::App),
            Self::Client | Self::ToClient => query(Sender::Outside),
            Self::ToServer | Self::FromServer => query(Sender::Proxy),
            Self::ToApp | Self::FromApp if has_tproxy => query(Sender::Outside),
            Self::ToApp | Self::FromApp => passthrough_query(family),
        }
    }
}

/// What is asked about a rule.
#[derive(Clone, Debug)]
struct Question {
    kind: Kind,
    query: PacketQuery,
    to: SocketAddr,
    /// Whether the rule names the address or the port to which it is.
    is_named: bool,
    has_port: bool,
}

impl PartialEq for Question {
    fn eq(&self, other: &Self) -> bool {
        (&self.query, self.to) == (&other.query, other.to)
    }
}

impl Question {
    /// A question about a packet of this kind.
    fn about(kind: Kind, family: Family, pod: &Pod<'_>) -> Self {
        let (query, to) = (kind.query(family, pod), captured_destination(kind, family, pod));
        Self { kind, query, to, is_named: false, has_port: false }
    }

    /// The question about a packet that a policy rule is for; `None` if there is none.
    fn with_policy(&self, rule: &PolicyRule, pod: &Pod<'_>) -> Option<Self> {
        let kind = self.kind;
        let mut question = self.with(&tests(rule), pod)?;
        let Some((first, last)) = rule.uids else { return Some(question) };
        let covers = |uid: u32| (first..=last).contains(&uid);
        let is_of_proxy = |uid: u32| uid == pod.proxy().uid || pod.config.traffic.proxy.uids.contains(&uid);
        match kind {
            // The kernel has the user only of what is sent.
            Kind::FromServer | Kind::FromApp | Kind::Client => return None,
            Kind::ToClient => {}
            Kind::ToServer | Kind::ToApp => return covers(pod.proxy().uid).then_some(question),
            Kind::App => {
                let packet = Packet::of(&question.query, question.to, pod.config, pod.network);
                if !packet.process.is_some_and(|process| covers(process.uid)) {
                    question.query.sender = Sender::Uid((first..=last).find(|uid| !is_of_proxy(*uid))?);
                }
            }
        }
        Some(question)
    }

    /// The question about a packet that a rule with these tests is for; `None` if there is none, as far as
    /// its words are read.
    fn with(&self, tests: &[FieldMatch], pod: &Pod<'_>) -> Option<Self> {
        let mut question = self.clone();
        tests.iter().filter(|test| !test.is_negated).try_for_each(|test| question.take(test, pod))?;
        if question.query.transport == Transport::Udp && !question.has_port {
            question.to.set_port(DNS_PORT.number());
        }
        Some(question)
    }

    /// Takes the first value that a rule tests.
    fn take(&mut self, test: &FieldMatch, pod: &Pod<'_>) -> Option<()> {
        let family = Family::of(self.to.ip());
        let (value, last) = *test.values.first()?;
        // No connection has the port 0.
        let port = || value.max(1).min(last).try_into().ok();
        let is_own = |address: IpAddr| pod.network.addresses.iter().any(|own| own.address == address);
        let is_reply = self.kind.is_reply();
        match if is_reply { opposite(test.field) } else { test.field } {
            Field::Protocol => self.query.transport = transport(value)?,
            Field::Destination | Field::Connection(Part::End(Direction::Original, End::Destination), _) => {
                let address = first_address(family, test)?;
                // What the pod forwards is not followed.
                if self.kind.is_for_pod() && !is_own(address) {
                    return None;
                }
                self.to.set_ip(address);
                self.is_named = true;
            }
            Field::DestinationPort
            | Field::EitherPort
            | Field::Connection(Part::End(Direction::Original, End::DestinationPort), _) => {
                self.to.set_port(self.port_of_app(test, pod).or_else(port)?);
                (self.is_named, self.has_port) = (true, true);
            }
            Field::Source if self.query.sender == Sender::Outside => {
                self.query.source = first_address(family, test);
            }
            Field::SourcePort if !self.kind.is_of_proxy() => self.query.source_port = Some(port()?),
            Field::Uid if !is_reply => self.owned_by(Sender::Uid(value.try_into().ok()?), pod)?,
            Field::Gid if !is_reply => self.owned_by(Sender::Gid(value.try_into().ok()?), pod)?,
            Field::Source
            | Field::SourcePort
            | Field::Uid
            | Field::Gid
            | Field::InInterface
            | Field::OutInterface
            | Field::Socket
            | Field::Mark
            | Field::Connmark
            | Field::State
            | Field::Connection(..)
            | Field::TcpFlags
            | Field::SourceType(_)
            | Field::DestinationType(_)
            | Field::ReversePath(_)
            | Field::ExtensionHeader => {}
        }
        Some(())
    }

    /// A port that a rule tests on which the app is known to listen, if the packet is for the app.
    fn port_of_app(&self, test: &FieldMatch, pod: &Pod<'_>) -> Option<u16> {
        let live = pod.live.as_ref().filter(|_| self.kind.is_for_pod())?;
        live.app_port(Family::of(self.to.ip()), pod.config, &|port| test.lists(port.into()))
    }

    /// Takes the owner that a rule tests.
    fn owned_by(&mut self, owner: Sender, pod: &Pod<'_>) -> Option<()> {
        let proxy = pod.proxy();
        let is_proxy = match owner {
            Sender::Uid(uid) => proxy.uid == uid,
            Sender::Gid(gid) => proxy.gid == gid,
            Sender::App | Sender::Kernel | Sender::Outside | Sender::Process { .. } | Sender::Proxy => false,
        };
        if self.kind == Kind::App {
            self.query.sender = owner;
            return Some(());
        }
        (self.kind.is_of_proxy() && is_proxy).then_some(())
    }

    /// Whether the packet is captured without foreign rules, or handed on by the proxy then.
    fn concerns(&self, rules: &Rules, live: &LiveState, pod: &Pod<'_>) -> bool {
        let captured = match self.kind {
            Kind::ToServer | Kind::FromServer => query(Sender::App),
            Kind::ToApp | Kind::FromApp => query(Sender::Outside),
            Kind::App | Kind::Client | Kind::ToClient => self.query.clone(),
        };
        let captured = PacketQuery { transport: self.query.transport, ..captured };
        // What is for its own ports, the proxy does not hand on.
        let is_asked = CAPTURED.contains(&self.kind)
            || !Port::new(self.to.port()).is_some_and(|port| rules.has_proxy_port(port));
        let packet = || Packet::of(&captured, self.to, pod.config, pod.network).with_defaults(&captured, pod);
        is_asked && is_captured_by_ours(&pod.prepared(packet()), live)
    }

    fn packet(&self, pod: &Pod<'_>) -> (String, Packet) {
        let Self { query, to, .. } = self;
        let sender = match query.sender {
            Sender::Outside => "client".to_owned(),
            Sender::Uid(uid) => format!("uid {uid}"),
            Sender::Gid(gid) => format!("gid {gid}"),
            Sender::Proxy => "proxy".to_owned(),
            Sender::App | Sender::Kernel | Sender::Process { .. } => "app".to_owned(),
        };
        let address = query.source.map(|address| format!(" {address}"));
        let port = query.source_port.map(|port| format!(" (source port {port})"));
        let (address, port) = (address.unwrap_or_default(), port.unwrap_or_default());
        let transport = if query.transport == Transport::Udp { ", UDP" } else { "" };
        let packet = Packet::of(query, *to, pod.config, pod.network).with_defaults(query, pod);
        (format!("{sender}{address}{port} to {to}{transport}"), packet)
    }
}

/// A destination whose packets of this kind are captured, if that takes a range or a port of the options.
fn captured_destination(kind: Kind, family: Family, pod: &Pod<'_>) -> SocketAddr {
    let traffic = &pod.config.traffic;
    let any_port = default_port(pod, family, &|_| true);
    let port = |ports: &[Port]| ports.first().map_or(any_port, |port| port.number());
    if kind.is_for_pod() {
        let port = if let InboundPorts::Only(ports) = &traffic.inbound { port(ports) } else { any_port };
        return SocketAddr::new(pod_address(pod.config, pod.network, family), port);
    }
    let outbound = &traffic.outbound;
    let range = match &outbound.ranges {
        OutboundRanges::All => return SocketAddr::new(default_server(pod, family), any_port),
        OutboundRanges::None => None,
        OutboundRanges::Only(ranges) => ranges.iter().find(|range| family.holds(range)),
    };
    let host = |range: &IpNetwork| SocketAddr::new(server_in(range, pod.network), any_port);
    range.map_or_else(|| SocketAddr::new(default_server(pod, family), port(&outbound.ports)), host)
}

/// Whether a policy rule names a user, an address, a port or a protocol. The packets of the table match a
/// negated one.
fn is_asked_about(rule: &PolicyRule) -> bool {
    let names = rule.uids.is_some() || !tests(rule).is_empty();
    names && rule.origin != ROUTE_PROTOCOL && !rule.is_negated
}

/// What a policy rule tests of addresses, ports and the protocol.
fn tests(rule: &PolicyRule) -> Vec<FieldMatch> {
    let PolicyRule { source, destination, protocol, source_ports, destination_ports, .. } = rule;
    let test = |field, words: String, (first, last): (u128, u128)| FieldMatch {
        field,
        values: vec![(first, last)],
        mask: u128::MAX,
        is_negated: false,
        words,
    };
    let address = |field, range: &IpNetwork| {
        let ends = (address_number(range.network()), address_number(range.broadcast()));
        test(field, format!("range {range}"), ends)
    };
    let ports = |field, (first, last): (u16, u16)| {
        test(field, format!("ports {first}-{last}"), (first.into(), last.into()))
    };
    let number =
        |number: u8| test(Field::Protocol, format!("protocol {number}"), (number.into(), number.into()));
    let source = source.as_ref().map(|range| address(Field::Source, range));
    let destination = destination.as_ref().map(|range| address(Field::Destination, range));
    let source_ports = source_ports.map(|range| ports(Field::SourcePort, range));
    let destination_ports = destination_ports.map(|range| ports(Field::DestinationPort, range));
    let all = [source, destination, protocol.map(number), source_ports, destination_ports];
    all.into_iter().flatten().collect()
}

/// The field of a packet that a reply has on its other end.
fn opposite(field: Field) -> Field {
    let ends = [(Field::Source, Field::Destination), (Field::SourcePort, Field::DestinationPort)];
    let others = ends.into_iter().flat_map(|(one, other)| [(one, other), (other, one)]);
    { others }.find(|(one, _)| *one == field).map_or(field, |(_, other)| other)
}

const fn transport(number: u128) -> Option<Transport> {
    match number {
        6 => Some(Transport::Tcp),
        17 => Some(Transport::Udp),
        _ => None,
    }
}

/// An address of a test that a host can have, if there is one.
fn first_address(family: Family, test: &FieldMatch) -> Option<IpAddr> {
    let (first, last) = *test.values.first()?;
    let number = first_host(family, (first, last));
    let number = if first == last { first } else { number.or_else(|| first.checked_add(1))? };
    address_of(family, number).filter(|address| !address.is_unspecified())
}
