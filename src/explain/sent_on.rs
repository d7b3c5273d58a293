//! What the proxy sends on of a captured connection, from its own socket: what ends that ends the connection.

use std::net::SocketAddr;

use super::defaults::{default_port, default_server};
use super::overview::{passthrough_query, query};
use super::packet::Packet;
use super::replies::{self, ReplyProblem};
use super::row::{Problem, Row};
use super::walk::{Verdict, Walk};
use super::{Pod, rows_of};
use crate::config::{ConnectionState, Sender};
use crate::finding;
use crate::model::{DNS_CAPTURE_PORT, Port};

/// What is wrong behind the verdict about a packet that is asked about, each as a value.
pub(super) fn problems(packet: &Packet, taken: &Walk<'_>, pod: &Pod<'_>) -> Vec<ReplyProblem> {
    let mut found = replies::problems(packet, taken, pod);
    for problem in row(packet, taken, pod, &found).into_iter().flat_map(|row| row.problems) {
        found.push(problem.sentence.into());
    }
    found
}

/// The packet by which the proxy hands on a captured one, with what is sure to be wrong. `before` is what is
/// wrong before that: nothing is sent on of a connection that fails.
pub(super) fn row(packet: &Packet, taken: &Walk<'_>, pod: &Pod<'_>, before: &[ReplyProblem]) -> Option<Row> {
    let (live, to) = (pod.live.as_ref()?, packet.destination);
    let Verdict::Captured(port) = taken.verdict else { return None };
    let family = packet.family();
    // What is for its own ports, and DNS queries, the proxy answers itself.
    let is_own = |to| live.rules.get(&family).is_some_and(|rules| rules.has_proxy_port(to));
    let is_answered = port == DNS_CAPTURE_PORT || Port::new(to.port()).is_some_and(is_own);
    let is_of_proxy = packet.process == Some(pod.proxy());
    if is_answered || is_of_proxy || packet.state != ConnectionState::New {
        return None;
    }
    let query = if packet.is_inbound {
        // With TPROXY that follows from the client's packet. What the pod forwards is not followed.
        let is_followed = pod.network.addresses.iter().any(|own| own.address == to.ip());
        (is_followed && live.routed_mark.is_none()).then(|| passthrough_query(family))?
    } else {
        query(Sender::Proxy)
    };
    let any = || SocketAddr::new(default_server(pod, family), default_port(pod, family, &|_| true));
    let of = |to| {
        let sent = Packet::of(&query, to, pod.config, pod.network).with_defaults(&query, pod);
        rows_of(vec![(String::new(), pod.prepared(sent))], &live.rules, pod).pop()
    };
    let mut row = of(to).filter(|_| before.iter().all(|problem| !problem.is_certain))?;
    // A filter of some servers is for every process, if it names none: the proxy may know another address.
    let elsewhere = if packet.is_inbound { None } else { of(any()) };
    let is_for_proxy = |problem: &Problem| {
        let is_same = |other: &Problem| other.about == problem.about;
        problem.is_of_owner || elsewhere.as_ref().is_none_or(|row| row.problems.iter().any(is_same))
    };
    // Another proxy may get what a foreign rule sends elsewhere.
    let is_lost = |problem: &Problem| problem.is_certain && problem.kind != finding::Problem::ForeignRule;
    row.problems.retain(|problem| is_lost(problem) && !problem.is_of_egress && is_for_proxy(problem));
    for problem in &mut row.problems {
        problem.sentence = format!("what the proxy sends on to {to} {}", problem.sentence);
    }
    Some(row)
}
