//! Rules of one family at the semantics of iptables.

use istio_iptables::model::{Hook, Matcher, Owner, Ports, Rule, TableRules, Target};

use super::packet::{Outcome, Packet, Verdict, holds};

pub(super) fn iptables(rules: Option<&TableRules>, hook: Hook, mut packet: Packet) -> Outcome {
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

pub(super) fn matches_iptables(matcher: &Matcher, packet: &Packet) -> bool {
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
