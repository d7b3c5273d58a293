//! A connection that connection tracking has seen: what the rules did with its first packet, and why.

use std::net::SocketAddr;

use serde_json::{Map, Value};

use super::matching::Words;
use super::packet::Packet;
use super::reason::Reason;
use super::rules::Rules;
use super::walk::{Step, Verdict};
use super::{Pod, explained, json, text};
use crate::config::{ConnectionState, Output, PacketQuery, Sender};
use crate::model::{Mark, Port, Transport};

/// A connection as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenConnection {
    /// TCP or UDP.
    pub transport: Transport,
    /// From.
    pub source: SocketAddr,
    /// To, before any translation.
    pub destination: SocketAddr,
    /// The port that the destination was translated to, if it was.
    pub translated_to: Option<u16>,
    /// The sender; `None` for a process of the pod of which nothing more is known.
    pub sender: Option<Sender>,
}

/// What became of it.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// What became of it.
    pub verdict: Verdict,
    /// The verdict in a line, with the reason.
    pub headline: String,
    /// The rule that decided, with its place.
    pub rule: Option<String>,
    /// The option that the rule, or the lack of one, follows from.
    pub option: Option<String>,
    /// Whether the live rules say the same.
    pub is_explained: bool,
    /// The sender with whom the rules say so.
    pub sender: Sender,
    /// Verdict, port, reason, option and rule as `explain` has them.
    pub json: Map<String, Value>,
}

pub(super) fn judge(seen: &SeenConnection, pod: &Pod<'_>) -> Judgement {
    let first = judge_as(seen.sender.unwrap_or(Sender::App), seen, pod);
    if first.is_explained || seen.sender.is_some() {
        return first;
    }
    let other = judge_as(Sender::Proxy, seen, pod);
    if other.is_explained { other } else { first }
}

fn judge_as(sender: Sender, seen: &SeenConnection, pod: &Pod<'_>) -> Judgement {
    let (rules, none) = (pod.rules(), Rules::default());
    let packet = packet(seen, sender, pod);
    let rules = rules.get(&packet.family()).unwrap_or(&none);
    let (walk, reason) = explained(&packet, rules, Words::None, pod);
    let to_proxy = seen.translated_to.and_then(Port::new).filter(|port| rules.has_proxy_port(*port));
    let is_explained = match walk.verdict {
        Verdict::Captured(_) if to_proxy.is_none() => walk.has_socket,
        Verdict::Captured(port) => to_proxy == Some(port),
        Verdict::Dropped
        | Verdict::LikeItsConnection
        | Verdict::Misrouted
        | Verdict::NoRoute
        | Verdict::NotCaptured
        | Verdict::TakenByForeignRule
        | Verdict::ToProxySocket => to_proxy.is_none(),
    };
    let decisive = walk.decisive();
    if is_explained {
        return Judgement {
            verdict: walk.verdict,
            headline: text::headline(&packet, &walk, &reason, pod),
            rule: decisive.map(Step::words),
            option: reason.option.as_ref().map(ToString::to_string),
            is_explained,
            sender,
            json: json::connection(walk.verdict, &reason, decisive),
        };
    }
    let verdict = to_proxy.map_or(Verdict::NotCaptured, Verdict::Captured);
    let sentence =
        "the live rules say otherwise: they have changed since, or its sender is not known".to_owned();
    let headline = format!("{}: {sentence}", verdict.outcome());
    let reason = Reason { sentence, option: None };
    let json = json::connection(verdict, &reason, None);
    Judgement { verdict, headline, rule: None, option: None, is_explained, sender, json }
}

impl Judgement {
    /// What decided: the rule, or the option that has none for it.
    #[must_use]
    pub fn decided_by(&self) -> String {
        self.rule.clone().or_else(|| self.option.clone()).unwrap_or_default()
    }
}

/// The first packet of the connection.
fn packet(seen: &SeenConnection, sender: Sender, pod: &Pod<'_>) -> Packet {
    let query = PacketQuery {
        sender,
        destination: Some(seen.destination),
        transport: seen.transport,
        source: Some(seen.source.ip()),
        source_port: Some(seen.source.port()),
        in_interface: None,
        out_interface: None,
        mark: Mark(0),
        connmark: Mark(0),
        state: ConnectionState::New,
        expected: None,
        output: Output::Json,
        is_diagram: false,
        live: true,
    };
    pod.prepared(Packet::of(&query, seen.destination, pod.config, pod.network))
}
