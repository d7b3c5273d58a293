//! Packets that rules are about, and the outcome of one in a table.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use istio_iptables::model::{
    CtState, Family, FamilyRules, Mark, Match, Owner, PerFamily, Ports, TableRules, Transport,
};

/// A packet at a hook, as far as rules look at it.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) family: Family,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) in_interface: String,
    pub(super) out_interface: String,
    pub(super) transport: Option<Transport>,
    pub(super) source_port: u16,
    pub(super) destination_port: u16,
    pub(super) opens: bool,
    pub(super) state: Option<CtState>,
    pub(super) mark: u32,
    pub(super) connmark: u32,
    /// User and group of its socket; `None` for a packet without one.
    pub(super) owner: Option<(u32, u32)>,
    /// Whether a transparent socket listens.
    pub(super) listening: bool,
    pub(super) zone: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Accept,
    Drop,
    Redirect(u16),
    Tproxy(u16),
}

/// What a table has done to a packet: the verdict, its mark, its connection's mark, and its zone.
pub(super) type Outcome = (Verdict, u32, u32, Option<u16>);

impl Packet {
    pub(super) fn done(&self, verdict: Option<Verdict>) -> Outcome {
        (verdict.unwrap_or(Verdict::Accept), self.mark, self.connmark, self.zone)
    }

    pub(super) fn port_is(&self, transport: Transport, test: impl Fn(u16) -> bool, port: u16) -> bool {
        self.transport == Some(transport) && test(port)
    }
}

pub(super) fn holds<T>(test: &Match<T>, is: impl Fn(&T) -> bool) -> bool {
    match test {
        Match::Is(value) => is(value),
        Match::Not(value) => !is(value),
    }
}

/// The constants of some rules.
#[derive(Debug)]
pub(super) struct Pools {
    networks: Vec<IpNetwork>,
    interfaces: Vec<String>,
    ports: Vec<u16>,
    ids: Vec<u32>,
    marks: Vec<u32>,
}

impl Pools {
    pub(super) fn of(rules: &PerFamily<FamilyRules>) -> Self {
        let mut pools = Self {
            networks: ["127.0.0.6/32", "192.0.2.1/32", "::6/128", "2001:db8::1/128"]
                .map(|n| n.parse().unwrap())
                .to_vec(),
            interfaces: ["lo", "eth0"].map(str::to_owned).to_vec(),
            ports: vec![1, 53],
            ids: vec![0],
            marks: vec![0, 1338],
        };
        let rules = rules.values().flat_map(|rules| rules.tables.values()).flat_map(TableRules::rules);
        for matcher in rules.map(|rule| &rule.statement.matcher) {
            let addresses = [&matcher.source, &matcher.destination].into_iter().flatten();
            pools.networks.extend(addresses.map(Match::value).copied());
            let names = [&matcher.in_interface, &matcher.out_interface].into_iter().flatten();
            pools.interfaces.extend(names.map(|name| name.as_str().replace('+', "7")));
            if let Some(protocol) = &matcher.protocol {
                pools.ports.extend(protocol.source.map(|port| port.number()));
                match protocol.destination.as_ref().map(Match::value) {
                    Some(Ports::One(port)) => pools.ports.push(port.number()),
                    Some(Ports::Any(ports)) => pools.ports.extend(ports.iter().map(|port| port.number())),
                    None => {}
                }
            }
            pools.ids.extend(matcher.owners.iter().map(|owner| match owner.value() {
                Owner::Uid(id) | Owner::Gid(id) => *id,
            }));
            pools.marks.extend(matcher.mark.iter().map(|mark| mark.value().0));
            pools.marks.extend(matcher.connmark.iter().map(|mark: &Mark| mark.0));
        }
        pools
    }

    pub(super) fn packet(&self, seed: &[u32; 14]) -> Packet {
        let pick = |index: usize, length: usize| seed[index] as usize % length;
        let family = if seed[0].is_multiple_of(2) { Family::V4 } else { Family::V6 };
        let networks: Vec<_> = self.networks.iter().filter(|network| family.holds(network)).collect();
        let address = |index: usize| within(networks[pick(index, networks.len())], seed[index]);
        let port = |index: usize| self.ports[pick(index, self.ports.len())];
        let name = |index: usize| self.interfaces[pick(index, self.interfaces.len())].clone();
        let id = |index: usize| self.ids[pick(index, self.ids.len())];
        Packet {
            family,
            source: address(1),
            destination: address(2),
            in_interface: name(3),
            out_interface: name(4),
            transport: [Some(Transport::Tcp), Some(Transport::Tcp), Some(Transport::Udp), None][pick(5, 4)],
            source_port: port(6),
            destination_port: port(7),
            opens: seed[8].is_multiple_of(2),
            state: [None, Some(CtState::Invalid), Some(CtState::RelatedOrEstablished)][pick(9, 3)],
            mark: self.marks[pick(10, self.marks.len())],
            connmark: self.marks[pick(11, self.marks.len())],
            owner: (!seed[12].is_multiple_of(3)).then(|| (id(12), id(13))),
            listening: !seed[13].is_multiple_of(4),
            zone: None,
        }
    }
}

/// The first or the last address of a network.
fn within(network: &IpNetwork, seed: u32) -> IpAddr {
    match (network, seed & 0x100 == 0) {
        (network, true) => network.network(),
        (IpNetwork::V4(network), false) => network.broadcast().into(),
        (IpNetwork::V6(network), false) => network.broadcast().into(),
    }
}
