//! Foreign rules that change marks on which TPROXY depends: packets that carry or get one of these marks,
//! each walked with one of the rules at a time.

use std::net::{IpAddr, SocketAddr};

use super::defaults::ANY_PORT;
use super::example_addresses::{any_client, any_pod};
use super::field_match::Open;
use super::packet::{CLIENT_PORT, Packet, Process};
use super::routing::Routing;
use super::rules::Rules;
use super::walk::{Match, Order, Sent, Step, Verdict, Walk};
use crate::config::ConnectionState;
use crate::live_rules::{Field, NO_SOCKET, address_number, name_number};
use crate::model::{
    Chain, FamilyRules, Fib, Link, Mark, Match as Is, Owner, PROXY_LOOPBACK_MARK, Ports, Rule, Target,
    Transport,
};

/// The traffic that breaks if a foreign rule changes the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Affected {
    /// Connections of a root proxy to its own pod.
    OwnCalls,
    /// Connections of the proxy from the client's address.
    ClientAddress,
    /// Connections of other programs to their own pod.
    OtherCalls,
    /// Captured connections of clients.
    Clients,
}

/// What the packets depend on besides their rules.
#[derive(Clone, Copy, Debug)]
pub struct MarkFacts<'a> {
    /// The rules that give packets the marks.
    pub desired: &'a FamilyRules,
    /// The mark of TPROXY.
    pub mark: Mark,
    /// The addresses of the pod, if they are known.
    pub fib: Option<&'a Fib>,
    /// The interfaces of the pod.
    pub links: &'a [Link],
}

/// The sender of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Client,
    /// With TPROXY the proxy runs as root with the proxy's gid; self-calls of its other users are captured in
    /// nat.
    RootProxy,
    Other,
}

/// Packets, each with the traffic that it stands for, its sender, whether it and its connection have the mark
/// of TPROXY, and its state.
const SAMPLES: [(Affected, From, [bool; 2], ConnectionState); 7] = [
    (Affected::OwnCalls, From::RootProxy, [false, false], ConnectionState::New),
    (Affected::OtherCalls, From::Other, [false, false], ConnectionState::New),
    (Affected::Clients, From::Client, [false, false], ConnectionState::New),
    (Affected::Clients, From::Client, [false, false], ConnectionState::Established),
    // The proxy has marked its socket, and a rule of ours its connection.
    (Affected::ClientAddress, From::RootProxy, [true, false], ConnectionState::New),
    (Affected::ClientAddress, From::RootProxy, [true, true], ConnectionState::Established),
    // The reply of the app.
    (Affected::ClientAddress, From::Other, [false, true], ConnectionState::Established),
];

/// The steps of foreign rules that change a mark, each with the traffic that it breaks.
#[must_use]
pub fn mark_harms<'a>(rules: &'a Rules, facts: MarkFacts<'a>) -> Vec<(Step<'a>, Affected)> {
    let mut harms = Vec::new();
    if !rules.foreign().iter().any(|(_, entry)| entry.changes_mark()) {
        return harms;
    }
    let own = facts.fib.into_iter().flat_map(|fib| &fib.addresses).map(|own| own.address);
    let mut own: Vec<IpAddr> = own.filter(|address| !address.is_loopback()).collect();
    if own.is_empty() {
        own.push(any_pod(facts.desired.family));
    }
    for own in own {
        facts.add_harms(rules, own, &mut harms);
    }
    harms
}

/// What matters of a packet's way: where it ends, and whether its connection has the mark of TPROXY where it
/// has to, and only there.
fn outcome((affected, packet): &(Affected, Packet), walk: &Walk<'_>, mark: Mark) -> (Option<Verdict>, bool) {
    let is_reply = packet.connmark == mark && packet.mark != mark;
    let is_marked = walk.end.connmark == mark;
    match affected {
        Affected::ClientAddress if !is_reply => (None, is_marked && walk.end.has_known_marks),
        Affected::Clients => (None, !is_marked),
        Affected::OwnCalls | Affected::OtherCalls | Affected::ClientAddress => (Some(walk.verdict), true),
    }
}

impl<'a> MarkFacts<'a> {
    /// Walks packets to and from one address of the pod.
    fn add_harms(&self, rules: &'a Rules, own: IpAddr, harms: &mut Vec<(Step<'a>, Affected)>) {
        let (uids, gids) = self.proxy();
        let other = (1000..).find(|id| !uids.contains(id) && !gids.contains(id)).unwrap_or(1000);
        let open = |field, except: &[u128]| Open { field, except: except.to_vec() };
        let numbers =
            |ids: &[u32]| -> Vec<u128> { ids.iter().map(|id| (*id).into()).chain([NO_SOCKET]).collect() };
        let (own_number, lo) = (address_number(own), name_number(b"lo"));
        let of_others = [
            open(Field::Uid, &numbers(&uids)),
            open(Field::Gid, &numbers(&gids)),
            open(Field::SourcePort, &[]),
            open(Field::DestinationPort, &[]),
            open(Field::EitherPort, &[]),
            open(Field::Source, &[own_number]),
            open(Field::Destination, &[own_number]),
            open(Field::InInterface, &[0, lo]),
            open(Field::OutInterface, &[0, lo]),
        ];
        let of_others = of_others.as_slice();
        let of_proxy = of_others.get(2..).unwrap_or_default();
        let routing = Routing { mark: Some(self.mark), fib: self.fib, ..Routing::default() };
        for sample in self.packets(own, (other, &gids)) {
            let is_of_proxy = sample.1.process.is_some_and(|process| process.uid != other);
            let open = if is_of_proxy { of_proxy } else { of_others };
            let sent = Sent { open, ..Sent::of(rules, &sample.1, routing) };
            for order in [Order::OneMark, Order::OneMarkLast] {
                let first = sent.walk_by(&[], order);
                let before = outcome(&sample, &first, self.mark);
                let is_tried = |step: &Step<'_>| {
                    let is_foreign = step.rule.changes_mark() && !step.rule.is_leftover;
                    is_foreign && !matches!(step.matches, Match::Mismatch(_))
                };
                for (at, step) in first.steps.iter().enumerate().filter(|(_, step)| is_tried(step)) {
                    let walk = sent.walk_by(&[at], order);
                    if before.1 && outcome(&sample, &walk, self.mark) != before {
                        harms.push((step.clone(), sample.0));
                    }
                }
            }
        }
    }

    /// The packets to and from one address of the pod.
    fn packets(&self, own: IpAddr, (other, gids): (u32, &[u32])) -> Vec<(Affected, Packet)> {
        let mut interfaces = self.links.iter().map(|link| link.name.as_str());
        let interface = interfaces.find(|name| *name != "lo").unwrap_or("eth0");
        let here = SocketAddr::new(own, self.port());
        let client = SocketAddr::new(any_client(self.desired.family), CLIENT_PORT);
        let mut packets = Vec::new();
        for (affected, sender, [is_marked, is_of_marked], state) in SAMPLES {
            let is_reply = is_of_marked && !is_marked;
            let is_inbound = sender == From::Client;
            let mark = |has: bool| if has { self.mark } else { Mark(0) };
            let ids = match sender {
                From::Other => vec![Some((other, other))],
                From::Client => vec![None],
                From::RootProxy => gids.iter().map(|gid| Some((0, *gid))).collect(),
            };
            for id in ids {
                let process = id.map(|(uid, gid)| Process { uid, gid });
                let mut packet = Packet::over_lo(process, Transport::Tcp, own, here);
                if is_reply {
                    (packet.source, packet.destination) = (here, client);
                } else if is_inbound || is_marked {
                    packet.source = client;
                }
                // A reply is routed by its mark once: before that it leaves by another interface.
                if is_reply || is_inbound {
                    interface.clone_into(&mut packet.interface);
                }
                (packet.is_inbound, packet.is_local, packet.state) = (is_inbound, !is_reply, state);
                (packet.mark, packet.connmark) = (mark(is_marked), mark(is_of_marked));
                packets.push((affected, packet));
            }
        }
        packets
    }

    /// The users and the groups of the proxy, whose own calls get a mark.
    fn proxy(&self) -> (Vec<u32>, Vec<u32>) {
        let (mut uids, mut gids) = (Vec::new(), Vec::new());
        let rules = self.desired.tables.values().flat_map(|table| table.rules());
        let marking = rules.filter(|rule| rule.statement.target == Target::SetMark(PROXY_LOOPBACK_MARK));
        for owner in marking.flat_map(|rule| &rule.statement.matcher.owners) {
            match owner {
                Is::Is(Owner::Uid(uid)) => uids.push(*uid),
                Is::Is(Owner::Gid(gid)) => gids.push(*gid),
                Is::Not(_) => {}
            }
        }
        (uids, gids)
    }

    /// A port that is captured: one that a rule names, or, where all are, one that none does.
    fn port(&self) -> u16 {
        let rules = || self.desired.tables.values().flat_map(|table| table.rules());
        let ports = |rule: &Rule| -> Vec<u16> {
            let tested =
                rule.statement.matcher.protocol.as_ref().and_then(|protocol| protocol.destination.as_ref());
            let ports = tested.map(|test| match test.value() {
                Ports::One(port) => std::slice::from_ref(port),
                Ports::Any(ports) => ports.as_slice(),
            });
            ports.into_iter().flatten().map(|port| port.number()).collect()
        };
        let capturing = rules().find(|rule| rule.statement.target == Target::Jump(Chain::Tproxy));
        let named = capturing.and_then(|rule| ports(rule).first().copied());
        let tested: Vec<u16> = rules().flat_map(ports).collect();
        named.or_else(|| (ANY_PORT..).find(|port| !tested.contains(port))).unwrap_or(ANY_PORT)
    }
}
