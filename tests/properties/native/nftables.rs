//! Native tables at the semantics of nftables.

use std::net::IpAddr;

use istio_iptables::model::{Hook, Match, Table, Transport};
use istio_iptables::nft::{
    Action, ChainName, Field, NativeChain, NativeRule, NativeTable, Operand, Test, Value, Values,
};

use super::packet::{Outcome, Packet, Verdict, holds};

pub(super) fn native(tables: &[NativeTable], table: Table, hook: Hook, mut packet: Packet) -> Outcome {
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
