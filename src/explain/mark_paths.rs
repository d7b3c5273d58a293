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
use crate::live_rules::{Field, NO_SOCKET, name_number};
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

/// The steps of foreign rules that change a mark, each with the traffic that it breaks.
#[must_use]
pub fn mark_harms<'a>(rules: &'a Rules, facts: MarkFacts<'a>) -> Vec<(Step<'a>, Affected)> {
    if !rules.foreign().any(|(_, entry)| entry.changes_mark()) {
        return Vec::new();
    }
    let mut harms = Vec::new();
    for path in facts.paths() {
        for order in [Order::OneMark, Order::OneMarkLast] {
            path.add_harms(rules, facts, order, &mut harms);
        }
    }
    harms
}

/// A packet whose way depends on a mark.
#[derive(Clone, Debug)]
struct MarkPath {
    affected: Affected,
    packet: Packet,
    /// What foreign rules may test of it, and it may have any value of.
    open: Vec<Open>,
}

impl MarkPath {
    fn add_harms<'a>(
        &self,
        rules: &'a Rules,
        facts: MarkFacts<'a>,
        order: Order,
        harms: &mut Vec<(Step<'a>, Affected)>,
    ) {
        let routing = Routing { mark: Some(facts.mark), fib: facts.fib, ..Routing::default() };
        let sent = Sent { open: &self.open, ..Sent::of(rules, &self.packet, routing) };
        let first = sent.walk_by(&[], order);
        let is_tried = |step: &Step<'_>| {
            step.rule.changes_mark() && !step.rule.is_leftover && !matches!(step.matches, Match::Mismatch(_))
        };
        for (at, step) in first.steps.iter().enumerate().filter(|(_, step)| is_tried(step)) {
            let walk = sent.walk_by(&[at], order);
            if self.outcome(&walk, facts.mark) != self.outcome(&first, facts.mark) {
                harms.push((step.clone(), self.affected));
            }
        }
    }

    /// What matters of the packet's way: whether it ends elsewhere, or whether its connection has the mark of
    /// TPROXY.
    fn outcome(&self, walk: &Walk<'_>, mark: Mark) -> (Option<Verdict>, bool) {
        let is_reply = self.packet.connmark == mark && self.packet.mark != mark;
        let is_marked = walk.end.connmark == mark;
        match self.affected {
            Affected::OwnCalls | Affected::OtherCalls => (Some(walk.verdict), false),
            Affected::ClientAddress if is_reply => (Some(walk.verdict), false),
            Affected::ClientAddress => (None, is_marked && walk.end.has_known_marks),
            Affected::Clients => (None, is_marked),
        }
    }
}

impl MarkFacts<'_> {
    fn paths(self) -> Vec<MarkPath> {
        let family = self.desired.family;
        let own = self.fib.into_iter().flat_map(|fib| &fib.addresses).map(|own| own.address);
        let mut own: Vec<IpAddr> = own.filter(|address| !address.is_loopback()).collect();
        if own.is_empty() {
            own.push(any_pod(family));
        }
        own.into_iter().flat_map(|own| self.paths_of(own)).collect()
    }

    /// The packets to and from one address of the pod.
    fn paths_of(self, own: IpAddr) -> Vec<MarkPath> {
        let (uids, gids) = self.proxy();
        let other = (1000..).find(|id| !uids.contains(id) && !gids.contains(id)).unwrap_or(1000);
        let mark = self.mark;
        let client = any_client(self.desired.family);
        let other_interface = self.links.iter().map(|link| link.name.as_str()).find(|name| *name != "lo");
        let interface = other_interface.unwrap_or("eth0").to_owned();
        let state = ConnectionState::Established;
        let (here, from_client) = (SocketAddr::new(own, self.port()), SocketAddr::new(client, CLIENT_PORT));
        let of_other = Some(Process { uid: other, gid: other });
        let packet = Packet::over_lo(of_other, Transport::Tcp, own, here);
        // It is routed by its mark once: before that it leaves by another interface.
        let reply = Packet {
            source: here,
            destination: from_client,
            connmark: mark,
            state,
            is_local: false,
            interface: interface.clone(),
            ..packet.clone()
        };
        let of_anyone = vec![any(Field::Destination), id(Field::Uid, &[]), id(Field::Gid, &[])];
        let of_others = vec![id(Field::Uid, &uids), id(Field::Gid, &gids)];
        let captured =
            Packet { is_inbound: true, process: None, source: from_client, interface, ..packet.clone() };
        let mut paths = vec![
            (Affected::ClientAddress, reply, of_anyone),
            (Affected::OtherCalls, packet.clone(), of_others),
            (Affected::Clients, Packet { state, ..captured.clone() }, vec![any(Field::Source)]),
            (Affected::Clients, captured, vec![any(Field::Source)]),
        ];
        // With TPROXY the proxy runs as root with the proxy's gid; self-calls of its other users are captured
        // in nat.
        for gid in gids {
            let root = Packet { process: Some(Process { uid: 0, gid }), ..packet.clone() };
            let sent = Packet { mark, source: from_client, ..root.clone() };
            let later = Packet { connmark: mark, state, ..sent.clone() };
            paths.push((Affected::OwnCalls, root, Vec::new()));
            paths.push((Affected::ClientAddress, sent, vec![any(Field::Source)]));
            paths.push((Affected::ClientAddress, later, vec![any(Field::Source)]));
        }
        let of_all = [Field::SourcePort, Field::DestinationPort, Field::EitherPort].map(any);
        let not_lo = [Field::InInterface, Field::OutInterface]
            .map(|field| Open { field, except: vec![0, name_number(b"lo")] });
        let path = |(affected, packet, open): (_, _, Vec<Open>)| MarkPath {
            affected,
            packet,
            open: open.into_iter().chain(of_all.clone()).chain(not_lo.clone()).collect(),
        };
        paths.into_iter().map(path).collect()
    }

    /// The users and the groups of the proxy, whose own calls get a mark.
    fn proxy(self) -> (Vec<u32>, Vec<u32>) {
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
    fn port(self) -> u16 {
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

/// A field that may have any value.
fn any(field: Field) -> Open {
    Open { field, except: Vec::new() }
}

/// An id of the sender, none of these.
fn id(field: Field, not: &[u32]) -> Open {
    Open { field, except: not.iter().map(|id| (*id).into()).chain([NO_SOCKET]).collect() }
}
