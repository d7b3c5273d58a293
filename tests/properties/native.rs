//! The native form of rules does to every packet what the rules of its family do at the semantics of iptables.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use istio_iptables::model::{
    CtState, Family, FamilyRules, Hook, Mark, Match, Matcher, Owner, PerFamily, Ports, Rule, Table,
    TableRules, Target, Transport,
};
use istio_iptables::nft::{
    self, Action, ChainName, Field, NativeChain, NativeRule, NativeTable, Operand, Test, Value, Values,
};
use istio_iptables::parse::{self, NativeLine, NativeRules};
use istio_iptables::policy;
use proptest::collection::vec;
use proptest::prelude::*;

use super::configs::config;

/// A packet at a hook, as far as rules look at it.
#[derive(Clone, Debug)]
struct Packet {
    family: Family,
    source: IpAddr,
    destination: IpAddr,
    in_interface: String,
    out_interface: String,
    transport: Option<Transport>,
    source_port: u16,
    destination_port: u16,
    opens: bool,
    state: Option<CtState>,
    mark: u32,
    connmark: u32,
    /// User and group of its socket; `None` for a packet without one.
    owner: Option<(u32, u32)>,
    /// Whether a transparent socket listens.
    listening: bool,
    zone: Option<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Accept,
    Drop,
    Redirect(u16),
    Tproxy(u16),
}

/// What a table has done to a packet: the verdict, its mark, its connection's mark, and its zone.
type Outcome = (Verdict, u32, u32, Option<u16>);

impl Packet {
    fn done(&self, verdict: Option<Verdict>) -> Outcome {
        (verdict.unwrap_or(Verdict::Accept), self.mark, self.connmark, self.zone)
    }

    fn port_is(&self, transport: Transport, test: impl Fn(u16) -> bool, port: u16) -> bool {
        self.transport == Some(transport) && test(port)
    }
}

fn holds<T>(test: &Match<T>, is: impl Fn(&T) -> bool) -> bool {
    match test {
        Match::Is(value) => is(value),
        Match::Not(value) => !is(value),
    }
}

// iptables

fn iptables(rules: Option<&TableRules>, hook: Hook, mut packet: Packet) -> Outcome {
    let none = TableRules::default();
    let table = rules.unwrap_or(&none);
    let hook: Vec<&Rule> = table.hooks.get(&hook).into_iter().flat_map(|rules| rules.iter()).collect();
    let verdict = walk_iptables(table, &hook, &mut packet);
    packet.done(verdict)
}

fn walk_iptables(table: &TableRules, rules: &[&Rule], packet: &mut Packet) -> Option<Verdict> {
    for rule in rules {
        if !matches_iptables(&rule.statement.matcher, packet) {
            continue;
        }
        match rule.statement.target {
            Target::Accept => return Some(Verdict::Accept),
            Target::Drop => return Some(Verdict::Drop),
            Target::Return => return None,
            Target::Redirect(port) => return Some(Verdict::Redirect(port.number())),
            Target::Tproxy { port, mark } if packet.listening => {
                packet.mark = mark.0;
                return Some(Verdict::Tproxy(port.number()));
            }
            Target::Tproxy { .. } => return Some(Verdict::Drop),
            Target::ConntrackZone(zone) => _ = packet.zone.get_or_insert(zone),
            Target::SetMark(mark) => packet.mark = mark.0,
            Target::SaveMark => packet.connmark = packet.mark,
            Target::RestoreMark => packet.mark = packet.connmark,
            Target::Jump(chain) => {
                let rules: Vec<&Rule> = table.chains[&chain].iter().collect();
                if let Some(verdict) = walk_iptables(table, &rules, packet) {
                    return Some(verdict);
                }
            }
        }
    }
    None
}

fn matches_iptables(matcher: &Matcher, packet: &Packet) -> bool {
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
    let protocol = protocol.as_ref().is_none_or(|protocol| {
        packet.transport == Some(protocol.transport)
            && protocol.source.is_none_or(|port| port.number() == packet.source_port)
            && protocol.syn.as_ref().is_none_or(|test| holds(test, |_| packet.opens))
            && protocol.destination.as_ref().is_none_or(|test| {
                holds(test, |ports| match ports {
                    Ports::One(port) => port.number() == packet.destination_port,
                    Ports::Any(ports) => ports.iter().any(|port| port.number() == packet.destination_port),
                })
            })
    });
    // A packet without a socket is of no owner: negated tests hold.
    let is_of = |owner: &Owner| match (owner, packet.owner) {
        (_, None) => false,
        (Owner::Uid(id), Some((uid, _))) => *id == uid,
        (Owner::Gid(id), Some((_, gid))) => *id == gid,
    };
    source.as_ref().is_none_or(|test| holds(test, |network| network.contains(packet.source)))
        && destination.as_ref().is_none_or(|test| holds(test, |network| network.contains(packet.destination)))
        && in_interface.as_ref().is_none_or(|name| name.covers(&packet.in_interface))
        && out_interface.as_ref().is_none_or(|name| name.covers(&packet.out_interface))
        && protocol
        && ct_state.is_none_or(|state| packet.state == Some(state))
        && mark.as_ref().is_none_or(|test| holds(test, |mark| mark.0 == packet.mark))
        && connmark.is_none_or(|mark| mark.0 == packet.connmark)
        && owners.iter().all(|test| holds(test, is_of))
}

// nftables

fn native(tables: &[NativeTable], table: Table, hook: Hook, mut packet: Packet) -> Outcome {
    let table = tables.iter().find(|native| native.table == table);
    let verdict = table.and_then(|table| {
        let chain = table.chains.iter().find(|chain| chain.name == ChainName::Hook(hook))?;
        walk_native(table, chain, &mut packet)
    });
    packet.done(verdict)
}

fn walk_native(table: &NativeTable, chain: &NativeChain, packet: &mut Packet) -> Option<Verdict> {
    let named =
        |name: ChainName| table.chains.iter().find(|chain| chain.name == name).expect("the chain is there");
    for NativeRule { tests, action, why: _ } in &chain.rules {
        if !tests.iter().all(|test| passes(table, test, packet)) {
            continue;
        }
        match *action {
            Action::Accept => return Some(Verdict::Accept),
            Action::Drop => return Some(Verdict::Drop),
            Action::Return => return None,
            Action::Redirect(port) => return Some(Verdict::Redirect(port.number())),
            Action::Tproxy { family, port, mark } => {
                if packet.listening && family.is_none_or(|family| family == packet.family) {
                    packet.mark = mark.0;
                    return Some(Verdict::Tproxy(port.number()));
                }
            }
            Action::Zone(zone) => _ = packet.zone.get_or_insert(zone),
            Action::SetMark(mark) => packet.mark = mark.0,
            Action::SaveMark => packet.connmark = packet.mark,
            Action::RestoreMark => packet.mark = packet.connmark,
            Action::Goto(name) => return walk_native(table, named(name), packet),
            Action::Jump(name) => {
                if let Some(verdict) = walk_native(table, named(name), packet) {
                    return Some(verdict);
                }
            }
        }
    }
    None
}

fn passes(table: &NativeTable, test: &Test, packet: &Packet) -> bool {
    match test {
        Test::Family(family) => packet.family == *family,
        Test::Protocol(transport) => packet.transport == Some(*transport),
        Test::Syn(test) => packet.transport == Some(Transport::Tcp) && holds(test, |_| packet.opens),
        Test::State(state) => packet.state == Some(*state),
        Test::Mark(test) => holds(test, |mark| mark.0 == packet.mark),
        Test::Connmark(mark) => mark.0 == packet.connmark,
        Test::Field(field, test) => passes_field(table, *field, test, packet),
    }
}

fn passes_field(table: &NativeTable, field: Field, test: &Match<Operand>, packet: &Packet) -> bool {
    let is = |found: &Found| holds(test, |operand| found.is(operand, table));
    match field {
        Field::InInterface => is(&Found::Name(&packet.in_interface)),
        Field::OutInterface => is(&Found::Name(&packet.out_interface)),
        Field::Source(family) => packet.family == family && is(&Found::Address(packet.source)),
        Field::Destination(family) => packet.family == family && is(&Found::Address(packet.destination)),
        Field::SourcePort(transport) => {
            packet.port_is(transport, |port| is(&Found::Number(port.into())), packet.source_port)
        }
        Field::DestinationPort(transport) => {
            packet.port_is(transport, |port| is(&Found::Number(port.into())), packet.destination_port)
        }
        // Without a socket there is nothing to compare: negated tests fail as well.
        Field::Uid => packet.owner.is_some_and(|(uid, _)| is(&Found::Number(uid))),
        Field::Gid => packet.owner.is_some_and(|(_, gid)| is(&Found::Number(gid))),
    }
}

// What is read back

fn read_back(rules: Option<&NativeRules>, hook: Hook, mut packet: Packet) -> Outcome {
    let verdict = rules
        .and_then(|rules| walk_read_back(rules, rules.hooks.get(&hook).map(Vec::as_slice)?, &mut packet));
    packet.done(verdict)
}

fn walk_read_back(rules: &NativeRules, lines: &[NativeLine], packet: &mut Packet) -> Option<Verdict> {
    for line in lines {
        let gone_to = line.text.rsplit_once("-g ");
        let statement = match (&line.statement, gone_to) {
            (Some(statement), None) => statement.clone(),
            (None, Some((tests, _))) => {
                parse::statement(packet.family, &format!("{tests}-j RETURN")).expect("tests of the model")
            }
            _ => panic!("not understood: {}", line.text),
        };
        if !matches_iptables(&statement.matcher, packet) {
            continue;
        }
        if let Some((_, name)) = gone_to {
            return walk_read_back(rules, &rules.chains[name], packet);
        }
        match statement.target {
            Target::Accept => return Some(Verdict::Accept),
            Target::Drop => return Some(Verdict::Drop),
            Target::Return => return None,
            Target::Redirect(port) => return Some(Verdict::Redirect(port.number())),
            Target::Tproxy { port, mark } if packet.listening => {
                packet.mark = mark.0;
                return Some(Verdict::Tproxy(port.number()));
            }
            Target::Tproxy { .. } => return Some(Verdict::Drop),
            Target::ConntrackZone(zone) => _ = packet.zone.get_or_insert(zone),
            Target::SetMark(mark) => packet.mark = mark.0,
            Target::SaveMark => packet.connmark = packet.mark,
            Target::RestoreMark => packet.mark = packet.connmark,
            Target::Jump(chain) => {
                if let Some(verdict) = walk_read_back(rules, &rules.chains[chain.name()], packet) {
                    return Some(verdict);
                }
            }
        }
    }
    None
}

/// The value of a field in a packet.
enum Found<'a> {
    Name(&'a str),
    Address(IpAddr),
    Number(u32),
}

impl Found<'_> {
    fn is(&self, operand: &Operand, table: &NativeTable) -> bool {
        match operand {
            Operand::One(value) => self.equals(value),
            Operand::Anonymous(values) => self.is_among(values),
            Operand::Named(name) => {
                let (_, values) = table.sets.iter().find(|(set, _)| set == name).expect("the set is there");
                self.is_among(values)
            }
        }
    }

    fn equals(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Name(name), Value::Interface(interface)) => interface.covers(name),
            (Self::Address(address), Value::Network(network)) => network.contains(*address),
            (Self::Number(number), Value::Port(port)) => *number == u32::from(port.number()),
            (Self::Number(number), Value::Id(id)) => number == id,
            _ => panic!("a value of another kind: {value:?}"),
        }
    }

    fn is_among(&self, values: &Values) -> bool {
        match (self, values) {
            (Self::Name(name), Values::Interfaces(list)) => {
                list.iter().any(|interface| interface.as_str() == *name)
            }
            (Self::Address(address), Values::Addresses(_, list)) => list.contains(address),
            (Self::Address(address), Values::Ranges(_, list)) => {
                list.iter().any(|(first, last)| first <= address && address <= last)
            }
            (Self::Number(number), Values::Ports(list)) => {
                list.iter().any(|port| u32::from(port.number()) == *number)
            }
            (Self::Number(number), Values::Uids(list) | Values::Gids(list)) => list.contains(number),
            _ => panic!("values of another kind: {values:?}"),
        }
    }
}

// Packets that rules are about

/// The constants of some rules.
#[derive(Debug)]
struct Pools {
    networks: Vec<IpNetwork>,
    interfaces: Vec<String>,
    ports: Vec<u16>,
    ids: Vec<u32>,
    marks: Vec<u32>,
}

impl Pools {
    fn of(rules: &PerFamily<FamilyRules>) -> Self {
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

    fn packet(&self, seed: &[u32; 14]) -> Packet {
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

proptest! {
    #[test]
    fn native_tables_do_what_the_rules_of_each_family_do(
        config in config(),
        seeds in vec(any::<[u32; 14]>(), 60),
    ) {
        let rules = policy::ruleset(&config);
        let rules: PerFamily<_> = Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect();
        let tables = nft::tables(&rules);
        let pools = Pools::of(&rules);
        for packet in seeds.iter().map(|seed| pools.packet(seed)) {
            for (table, hook) in Table::ALL.into_iter().flat_map(|table| Hook::ALL.map(|hook| (table, hook))) {
                let of_family = rules.get(&packet.family).unwrap().tables.get(&table);
                let expected = iptables(of_family, hook, packet.clone());
                let found = native(&tables, table, hook, packet.clone());
                prop_assert_eq!(found, expected, "{:?} {:?} {:?}\n{}", table, hook, packet, nft::text(&tables));
            }
        }
    }

    #[test]
    fn native_tables_that_are_read_back_do_what_the_rules_of_each_family_do(
        config in config(),
        seeds in vec(any::<[u32; 14]>(), 60),
    ) {
        let rules = policy::ruleset(&config);
        let rules: PerFamily<_> = Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect();
        let tables: Vec<_> = nft::tables(&rules).iter().map(|table| nft::encode(table).normalized()).collect();
        let read = Family::ALL.map(|family| (family, parse::native(&tables, family)));
        let read: PerFamily<_> = read.into();
        let lines = read.values().flat_map(|tables| tables.values());
        let lines = lines.flat_map(|rules| rules.hooks.values().chain(rules.chains.values())).flatten();
        for line in lines {
            prop_assert!(line.why.is_some(), "{}", line.text);
        }
        let pools = Pools::of(&rules);
        for packet in seeds.iter().map(|seed| pools.packet(seed)) {
            for (table, hook) in Table::ALL.into_iter().flat_map(|table| Hook::ALL.map(|hook| (table, hook))) {
                let expected = iptables(rules.get(&packet.family).unwrap().tables.get(&table), hook, packet.clone());
                let found = read_back(read.get(&packet.family).unwrap().get(&table), hook, packet.clone());
                prop_assert_eq!(found, expected, "{:?} {:?} {:?}\n{:#?}", table, hook, packet, read);
            }
        }
    }

    #[test]
    fn no_native_table_tests_a_negated_owner(config in config()) {
        let rules = policy::ruleset(&config);
        let rules = Family::ALL.into_iter().map(|family| (family, rules.resolve(family))).collect();
        for test in nft::tables(&rules).iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules).flat_map(|rule| &rule.tests) {
            prop_assert!(!matches!(test, Test::Field(Field::Uid | Field::Gid, Match::Not(_))), "{}", test);
        }
    }
}
