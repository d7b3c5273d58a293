//! What a captured packet still depends on: the listener on the proxy's port and, with TPROXY, the way of the app's answers.
//!
//! With TPROXY the proxy connects to the app from the client's address. The app's answers are for the client, and policy routing
//! brings them to the proxy by the mark of their connection.

use super::foreign_rule::Effect;
use super::overview::query;
use super::packet::Packet;
use super::reason::reason;
use super::walk::{Verdict, Walk, walk};
use super::{Pod, routing, runtime};
use crate::config::{ConnectionState, PacketQuery, Sender};
use crate::model::{Mark, Port, Target};
use crate::text::one_line;

/// What is wrong behind the capture of a packet that goes to `port`.
pub(super) fn problem(packet: &Packet, taken: &Walk<'_>, port: Port, pod: &Pod<'_>) -> Option<String> {
    let problems = [runtime::problem_of(packet, port, pod), lost(packet, taken, pod)];
    let problems: Vec<String> = problems.into_iter().flatten().collect();
    (!problems.is_empty()).then(|| problems.join("; "))
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
