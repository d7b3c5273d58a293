//! What a captured packet still depends on: the listener on the proxy's port and, with TPROXY, the way of the app's answers.
//!
//! With TPROXY the proxy connects to the app from the client's address. The app's answers are for the client, and policy routing
//! brings them to the proxy by the mark of their connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::foreign_rule::Effect;
use super::overview::query;
use super::packet::Packet;
use super::reason::reason;
use super::walk::{Match, Step, Verdict, Walk, walk};
use super::{Pod, routing, runtime};
use crate::config::{ConnectionState, PacketQuery, Sender};
use crate::model::{Hook, Mark, Port, Target, Transport};
use crate::text::one_line;

/// What is wrong behind the verdict about a packet.
pub(super) fn problem(packet: &Packet, taken: &Walk<'_>, pod: &Pod<'_>) -> Option<String> {
    let Verdict::Captured(port) = taken.verdict else { return taken_for_new(packet, taken, pod) };
    let answers = [lost(packet, taken, pod), not_translated(packet, taken, port, pod)];
    let problems = std::iter::once(runtime::problem_of(packet, port, pod)).chain(answers);
    let problems: Vec<String> = problems.flatten().collect();
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// Where a connection is not tracked in one direction, its answers seem to begin a connection of their own, and are captured as one.
fn taken_for_new(packet: &Packet, taken: &Walk<'_>, pod: &Pod<'_>) -> Option<String> {
    let begins = packet.transport == Transport::Tcp && packet.state == ConnectionState::New;
    if !begins || (packet.is_local && !packet.is_inbound) || !taken.steps.iter().any(untracks) {
        return None;
    }
    let sender = if packet.is_inbound { Sender::App } else { Sender::Outside };
    let (verdict, _) = answer(packet, packet.destination, ConnectionState::New, sender, pod)?;
    let Verdict::Captured(port) = verdict else { return None };
    Some(format!(
        "its answers, which seem to begin another connection, go to the proxy's port {port}: no data arrives"
    ))
}

fn untracks(step: &Step<'_>) -> bool {
    matches!((&step.matches, &step.effect), (Match::Matches, Some(Effect::Untracks)))
}

/// With REDIRECT the proxy's answers get back the address that the packet was sent to, if they are tracked when they are sent.
fn not_translated(packet: &Packet, taken: &Walk<'_>, port: Port, pod: &Pod<'_>) -> Option<String> {
    if packet.transport != Transport::Tcp || mark(taken).is_some() {
        return None;
    }
    let source = match packet.destination.ip() {
        address if packet.is_inbound => address,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    let source = SocketAddr::new(source, port.number());
    let (_, untracks) = answer(packet, source, ConnectionState::Established, Sender::Proxy, pod)?;
    untracks.map(|rule| {
        format!("the proxy's answers are not tracked, and so keep its address: no connection is made: {rule}")
    })
}

/// The verdict about the answer to a packet, and the rule because of which it is not tracked when it is sent.
fn answer(
    packet: &Packet,
    source: SocketAddr,
    state: ConnectionState,
    sender: Sender,
    pod: &Pod<'_>,
) -> Option<(Verdict, Option<String>)> {
    let live = pod.live.as_ref()?;
    let rules = live.rules.get(&packet.family())?;
    let routing = live.routing(packet.family());
    let query =
        PacketQuery { source: Some(source.ip()), source_port: Some(source.port()), state, ..query(sender) };
    let answer = Packet::of(&query, packet.source, pod.config, pod.network);
    let answer = answer.by_route(&query, routing, pod.network);
    let walk = walk(rules, &answer, routing);
    let sent = walk.steps.iter().take_while(|step| step.chain != Hook::Prerouting.name());
    let rule = sent.into_iter().find(|step| untracks(step));
    let rule = rule.map(|step| format!("{} {} {}", step.table, step.chain, one_line(&step.rule.text())));
    Some((walk.verdict, rule))
}

/// What keeps the app's answers from the proxy.
fn lost(packet: &Packet, taken: &Walk<'_>, pod: &Pod<'_>) -> Option<String> {
    let live = pod.live.as_ref()?;
    let mark = mark(taken).filter(|_| packet.is_inbound)?;
    let rules = live.rules.get(&packet.family())?;
    let routing = live.routing(packet.family());
    let query = PacketQuery {
        source: Some(packet.destination.ip()),
        source_port: Some(packet.destination.port()),
        connmark: mark,
        state: ConnectionState::Established,
        ..query(Sender::App)
    };
    let answer = Packet::of(&query, packet.source, pod.config, pod.network);
    let answer = answer.by_route(&query, routing, pod.network);
    // The kernel finds the pod's own addresses first, whatever the mark.
    if answer.is_local {
        return None;
    }
    let walk = walk(rules, &answer, routing);
    let rule = walk.uncertain.first().and_then(|at| walk.steps.get(*at));
    let rule = rule.map(|step| format!("{} {} {}", step.table, step.chain, one_line(&step.rule.text())));
    let route = walk.routed.iter().flat_map(|looked| &looked.lookup.uncertain).map(routing::words).next();
    let unsure = route.or(rule);
    let cause = match (walk.verdict, unsure) {
        (Verdict::ToProxySocket, None) => return None,
        (_, Some(unsure)) => return Some(format!("the app's answers may not reach the proxy: {unsure}")),
        (Verdict::Misrouted, None) => {
            let decisive = walk.routed.last().and_then(routing::Looked::words);
            decisive.unwrap_or_else(|| "no policy rule leads to a route for them".to_owned())
        }
        (Verdict::LikeItsConnection | Verdict::NotCaptured, None) => {
            format!("no rule gives them mark {mark}")
        }
        (Verdict::Captured(_) | Verdict::Dropped | Verdict::NoRoute | Verdict::TakenByForeignRule, None) => {
            reason(&answer, &walk, pod).sentence
        }
    };
    Some(format!("the app's answers do not reach the proxy: {cause}"))
}

/// The mark that TPROXY gave a packet.
fn mark(taken: &Walk<'_>) -> Option<Mark> {
    taken.steps.iter().find_map(|step| match step.effect {
        Some(Effect::Known(Target::Tproxy { mark, .. })) => Some(mark),
        Some(_) | None => None,
    })
}
