//! What a connection still depends on behind the verdict about its first packet: the listener on the proxy's
//! port, and the packets that follow: behind TPROXY (`tproxy.rs`), REDIRECT, and none of our rules
//! (`direct.rs`).

mod direct;
mod tproxy;

use std::net::{IpAddr, SocketAddr};

use super::connection::Connection;
use super::listener::{Listener, ListenerProblem};
use super::overview::query;
use super::packet::{ACCEPTING, FOLLOWING, Packet, TcpFlags};
use super::proxy::CapturedAgain;
use super::reach::out_of_reach;
use super::reason::reason;
use super::walk::{Match, Sent, Step, Verdict, Walk, walk};
use super::{Pod, devices, fix, routing, runtime};
use crate::config::{ConnectionState, PacketQuery, Sender};
use crate::finding::{RuleId, Subject};
use crate::live_rules::Effect;
use crate::model::{Hook, LinkKind, Mark, Target, Transport};
use crate::routing::drops_marked;
use crate::text::one_line;

/// What is wrong behind the verdict about a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplyProblem {
    pub(super) sentence: String,
    /// The foreign rule that causes it.
    pub(super) rule: Option<RuleId>,
    /// The policy rule by which it is lost, or the setting of an interface.
    pub(super) known_cause: Option<Subject>,
    /// The command that mends it, if one is known.
    pub(super) fix: Option<fix::Fix>,
    /// Whether it is sure to happen.
    pub(super) is_certain: bool,
    /// Whether a socket of the proxy ends all connections of a kind. One that takes MPTCP ends those of MPTCP
    /// clients only.
    pub(super) ends_at_proxy: bool,
    /// As in a row's problem.
    pub(super) is_of_egress: bool,
}

impl ReplyProblem {
    fn by(sentence: String, step: Option<&Step<'_>>) -> Self {
        let rule = step.filter(|step| step.rule.is_foreign()).map(Step::id);
        Self {
            sentence,
            rule,
            known_cause: None,
            fix: None,
            is_certain: true,
            ends_at_proxy: false,
            is_of_egress: false,
        }
    }

    fn may(sentence: String) -> Self {
        Self { is_certain: false, ..Self::by(sentence, None) }
    }
}

impl From<CapturedAgain> for ReplyProblem {
    fn from(problem: CapturedAgain) -> Self {
        let fix = fix::Fix { command: problem.mend(), table: None, precedes_removal: false };
        Self { ends_at_proxy: true, fix: Some(fix), ..problem.to_string().into() }
    }
}

impl From<ListenerProblem> for ReplyProblem {
    fn from(problem: ListenerProblem) -> Self {
        Self { is_certain: problem.is_certain(), ..problem.to_string().into() }
    }
}

impl From<String> for ReplyProblem {
    fn from(sentence: String) -> Self {
        Self::by(sentence, None)
    }
}

/// Why packets that follow do not belong to a connection.
struct Apart {
    why: String,
    by: Option<RuleId>,
}

impl Apart {
    fn problem(self, sentence: impl FnOnce(&str) -> String) -> ReplyProblem {
        ReplyProblem { rule: self.by, ..ReplyProblem::by(sentence(&self.why), None) }
    }
}

/// What is wrong behind the verdict about a packet, each as a value.
pub(super) fn problems(packet: &Packet, taken: &Walk<'_>, pod: &Pod<'_>) -> Vec<ReplyProblem> {
    let conversation = Conversation { packet, taken, pod };
    let to = taken.end.destination.ip();
    let loopback = || runtime::loopback_problem(to, pod).filter(|_| !packet.is_inbound);
    // A bridge has a carrier while a port of it has one: without, there is nothing behind it to call.
    let no_carrier = || {
        let link = pod.live.as_ref()?.links.named(devices::interface(packet, taken))?;
        let words = || format!("{} has no carrier: nothing gets in or out by it", one_line(&link.name));
        (!link.has_carrier && link.kind != LinkKind::Bridge).then(words)
    };
    match taken.verdict {
        Verdict::Captured(port) => {
            let out_of_reach =
                || out_of_reach(packet, (taken, port), pod.live.as_ref()?).map(ReplyProblem::from);
            let way = runtime::problem_of_way(packet, (to, port), pod).map(ReplyProblem::from);
            let listener = || runtime::problem_of_listener(packet, port, pod).map(ReplyProblem::from);
            let arrives = no_carrier().filter(|_| packet.is_inbound).map(ReplyProblem::from);
            let proxy = way.or_else(listener).or_else(out_of_reach);
            arrives.into_iter().chain(proxy).chain(conversation.behind_capture()).collect()
        }
        Verdict::NotCaptured => {
            let behind = conversation.behind_the_rules().or_else(|| conversation.later_packets());
            let unsent = if packet.is_local && !packet.is_inbound { loopback() } else { no_carrier() };
            let unbound =
                || runtime::unbound_passthrough(packet.family(), pod).filter(|_| packet.is_of_passthrough());
            unsent.or_else(unbound).map(ReplyProblem::from).into_iter().chain(behind).collect()
        }
        Verdict::TakenByForeignRule => {
            let reset = conversation.reset_behind_tproxy();
            reset.or_else(|| conversation.behind_translation()).into_iter().collect()
        }
        // In IPv6 the routes of a loopback interface go with it.
        Verdict::Misrouted => loopback().map(ReplyProblem::from).into_iter().collect(),
        Verdict::Dropped | Verdict::LikeItsConnection | Verdict::NoRoute | Verdict::ToProxySocket => {
            Vec::new()
        }
    }
}

/// A connection, of which the first packet's way is known.
struct Conversation<'a> {
    packet: &'a Packet,
    taken: &'a Walk<'a>,
    pod: &'a Pod<'a>,
}

/// A packet that follows, and what becomes of it.
struct Followed<'a> {
    packet: Packet,
    walk: Walk<'a>,
}

impl<'a> Conversation<'a> {
    /// What is wrong behind the capture of the first packet.
    fn behind_capture(&self) -> Vec<ReplyProblem> {
        if self.packet.state != ConnectionState::New {
            return Vec::new();
        }
        if let Some(reset) = self.reset_behind_tproxy() {
            return vec![reset];
        }
        let has_tproxy = self.pod.live.as_ref().is_some_and(|live| live.routed_mark.is_some());
        let by_tproxy = mark(self.taken).filter(|_| has_tproxy);
        let mut problems = Vec::new();
        match by_tproxy {
            Some(mark) => {
                problems.extend(self.invalid_packets());
                problems.extend(self.transparent_replies());
                problems.extend(self.to_the_app(mark));
            }
            None => {
                problems.extend(self.translated_replies());
                problems.extend(self.proxy_to_itself());
            }
        }
        if problems.is_empty() {
            problems.extend(self.later_packets());
        }
        problems
    }

    /// Whether rules that the first packet has passed drop those that follow it in its direction: by the
    /// state of their connection, or their flags.
    fn later_packets(&self) -> Option<ReplyProblem> {
        let later = self.later_packet(self.taken.end.connmark)?;
        let hook = if self.packet.is_inbound { Hook::Prerouting } else { Hook::Output };
        let apart = self
            .is_apart(&later.walk, hook)
            .filter(|_| self.taken.end.destination != self.packet.destination);
        if let Some(why) = apart {
            let to = self.packet.destination;
            return Some(
                why.problem(|why| format!("later packets {why}, and so go to {to}: no data arrives")),
            );
        }
        self.lost_later(&later)
    }

    /// Whether those are lost, or may be.
    fn lost_later(&self, later: &Followed<'_>) -> Option<ReplyProblem> {
        let is_lost = match later.walk.verdict {
            Verdict::Dropped | Verdict::TakenByForeignRule | Verdict::Misrouted => true,
            // They do not leave.
            Verdict::ToProxySocket => !self.packet.is_inbound && !self.packet.is_local,
            Verdict::Captured(_) | Verdict::LikeItsConnection | Verdict::NoRoute | Verdict::NotCaptured => {
                false
            }
        };
        // What is not known of the first packet is named with its verdict.
        let is_unsure = later.walk.unsure().is_some() && self.taken.unsure().is_none();
        if is_lost || is_unsure { self.undelivered("later packets", later, &[]) } else { None }
    }

    /// A packet that follows the first one of a connection in its direction.
    fn later_packet(&self, connmark: Mark) -> Option<Followed<'a>> {
        let Packet { source, destination, transport, .. } = *self.packet;
        if transport != Transport::Tcp || self.packet.state != ConnectionState::New {
            return None;
        }
        let live = self.pod.live.as_ref()?;
        let end = &self.taken.end;
        let state = ConnectionState::Established;
        let packet = Packet { state, tcp_flags: Some(FOLLOWING), connmark, ..self.packet.clone() };
        let reply = (end.destination, Some(source));
        let connection = Connection { original: (source, destination), reply, is_reply: false };
        let (family, connection) = (packet.family(), Some(connection));
        let routing = live.routing(family);
        let sent = Sent::of(live.rules.get(&family)?, &packet, routing);
        let walk = Sent { connection, ..sent }.walk();
        Some(Followed { packet, walk })
    }

    /// With REDIRECT the proxy's replies get back the address that the packet was sent to, if they belong to
    /// its connection.
    fn translated_replies(&self) -> Option<ReplyProblem> {
        let accepting = self.accepting(self.taken.end.destination.ip()).unwrap_or(Sender::Proxy);
        [(accepting, ACCEPTING, "connection is made"), (Sender::Proxy, FOLLOWING, "data arrives")]
            .into_iter()
            .find_map(|(sender, flags, what)| {
                let query = self.query(sender, self.taken.end.destination, ConnectionState::Established);
                let reply = self.reply(&query, flags, self.taken.end.connmark)?;
                if let Some(why) = self.is_apart(&reply.walk, Hook::Output) {
                    return Some(why.problem(|why| {
                        format!("the proxy's replies {why}, and so keep its address: no {what}")
                    }));
                }
                self.undelivered("the proxy's replies", &reply, &[Verdict::LikeItsConnection])
            })
    }

    /// A later packet in its direction that belongs to no connection yet.
    fn own_packet(&self, state: ConnectionState) -> Option<Followed<'a>> {
        let live = self.pod.live.as_ref()?;
        let packet = Packet { state, tcp_flags: Some(FOLLOWING), ..self.packet.clone() };
        let (rules, routing) = (live.rules.get(&packet.family())?, live.routing(packet.family()));
        let walk = walk(rules, &packet, routing);
        Some(Followed { packet, walk })
    }

    /// Whether a process of the pod takes packets to this address, as far as sockets can be listed.
    fn has_listener(&self, to: SocketAddr) -> bool {
        let live = self.pod.live.as_ref();
        live.is_none_or(|live| live.runtime.listeners.is_none()) || self.listener(to).is_some()
    }

    /// The socket of the pod that takes packets to this address.
    fn listener(&self, to: SocketAddr) -> Option<&Listener> {
        let listeners = self.pod.live.as_ref()?.runtime.listeners.as_ref()?;
        listeners.iter().find(|found| {
            (found.transport, found.address.port()) == (self.packet.transport, to.port())
                && found.serves(self.packet.family())
                && found.takes(to, None)
        })
    }

    /// The owner of the proxy's socket that takes packets to this address, if there is one: until the proxy
    /// accepts the connection, its replies are of that socket.
    fn accepting(&self, to: IpAddr) -> Option<Sender> {
        let Verdict::Captured(port) = self.taken.verdict else { return None };
        let listener = self.listener(SocketAddr::new(to, port.number()))?;
        Some(Sender::Process { uid: listener.uid, gid: self.pod.proxy().gid })
    }

    /// A question about a packet that follows.
    fn query(&self, sender: Sender, source: SocketAddr, state: ConnectionState) -> PacketQuery {
        let listener = self.listener(source).filter(|_| sender == Sender::App);
        let sender = listener.map_or(sender, |found| Sender::Uid(found.uid));
        PacketQuery {
            source: Some(source.ip()),
            source_port: Some(source.port()),
            transport: self.packet.transport,
            state,
            ..query(sender)
        }
    }

    /// A reply: it belongs to the connection, if it is not looked for elsewhere.
    fn reply(&self, query: &PacketQuery, flags: TcpFlags, connmark: Mark) -> Option<Followed<'a>> {
        let Packet { source, destination, .. } = *self.packet;
        let reply = (self.taken.end.destination, Some(source));
        let connection = Connection { original: (source, destination), reply, is_reply: true };
        self.follow(query, source, flags, (connmark, Some(connection)))
    }

    fn follow(
        &self,
        query: &PacketQuery,
        to: SocketAddr,
        flags: TcpFlags,
        (connmark, connection): (Mark, Option<Connection>),
    ) -> Option<Followed<'a>> {
        let live = self.pod.live.as_ref()?;
        let (family, query) = (self.packet.family(), PacketQuery { connmark, ..query.clone() });
        let routing = live.routing(family);
        let packet =
            Packet::of(&query, to, self.pod.config, self.pod.network).with_defaults(&query, self.pod);
        let packet = packet.by_route(routing);
        let mut packet = Packet { tcp_flags: Some(flags), ..packet };
        if packet.is_inbound {
            packet.interface.clone_from(&self.packet.interface);
        }
        let sent = Sent::of(live.rules.get(&family)?, &packet, routing);
        let walk = Sent { connection, ..sent }.walk();
        Some(Followed { packet, walk })
    }

    /// Why replies do not belong to the connection, if they do not.
    fn is_apart(&self, reply: &Walk<'_>, hook: Hook) -> Option<Apart> {
        let (sent, back) = (&self.taken.end, &reply.end);
        let rule = || {
            let is_its = |step: &&Step<'_>| step.hook == hook.name() && assigns(step);
            let here = reply.steps.iter().find(is_its);
            here.or_else(|| self.taken.steps.iter().find(assigns))
        };
        let why = match (sent.is_tracked, back.is_tracked) {
            (_, false) => "are not tracked",
            (false, true) => "belong to no connection, since the packets that they reply to are not tracked",
            (true, true) if sent.zone.reply != back.zone.reply => {
                "are looked for in another conntrack zone than their connection"
            }
            (true, true) => return None,
        };
        let Some(step) = rule() else { return Some(Apart { why: why.to_owned(), by: None }) };
        let by = step.rule.is_foreign().then(|| step.id());
        Some(Apart { why: format!("{why} ({})", step.words()), by })
    }

    /// The policy rule and the route that lead what a process of the pod sends to another one out of it.
    fn leaves_the_pod(&self, followed: &Followed<'_>) -> Option<String> {
        let Followed { packet, walk } = followed;
        let is_within =
            !self.packet.is_inbound && !packet.is_inbound && packet.destination == self.packet.source;
        let last = walk.routed.last().filter(|_| is_within)?;
        (last.routed() == routing::Routed::Away).then(|| last.words()).flatten()
    }

    /// What the kernel drops that arrives from outside with the mark of TPROXY, as replies to the pod's own
    /// connections do where all inbound ports are captured.
    fn dropped_by_mark(&self, what: &str, followed: &Followed<'_>) -> Option<ReplyProblem> {
        let Followed { packet, walk } = followed;
        let live = self.pod.live.as_ref()?;
        let is_marked = packet.is_inbound && walk.verdict == Verdict::ToProxySocket;
        let name = is_marked.then_some(packet.interface.as_str())?;
        let why = drops_marked(packet.family(), &live.links, name)?;
        let sentence = format!("{what} do not arrive: the kernel drops what TPROXY has marked: {why}");
        Some(ReplyProblem { known_cause: Some(Subject::Condition(why)), ..ReplyProblem::by(sentence, None) })
    }

    /// What becomes of a packet that follows, if it is none of these.
    fn undelivered(
        &self,
        what: &str,
        followed: &Followed<'_>,
        delivered: &[Verdict],
    ) -> Option<ReplyProblem> {
        let Followed { packet, walk } = followed;
        if delivered.contains(&walk.verdict)
            && let Some(way) = self.leaves_the_pod(followed)
        {
            return Some(format!("{what} do not arrive: they leave the pod: {way}").into());
        }
        if delivered.contains(&walk.verdict) {
            if let Some(dropped) = self.dropped_by_mark(what, followed) {
                return Some(dropped);
            }
            // What may decide over the packet itself is named with its verdict.
            let is_new = |unsure: &String| self.taken.all_unsure().all(|known| known != *unsure);
            let unsure = walk.all_unsure().find(is_new)?;
            return Some(ReplyProblem::may(format!("{what} may not arrive: {unsure}")));
        }
        if let Some(unsure) = walk.unsure() {
            return Some(ReplyProblem::may(format!("{what} may not arrive: {unsure}")));
        }
        let by_mark = || walk.routed.last().and_then(routing::Looked::words);
        let by_mark =
            Some(walk.verdict).filter(|verdict| *verdict == Verdict::ToProxySocket).and_then(|_| by_mark());
        let decisive = walk.decisive().filter(|_| by_mark.is_none());
        let cause = by_mark.unwrap_or_else(|| reason(packet, walk, self.pod).sentence);
        let problem = ReplyProblem::by(format!("{what} do not arrive: {cause}"), decisive);
        let fix = fix::of_walk(walk, self.pod);
        Some(ReplyProblem { known_cause: walk.policy_rule(), fix, ..problem })
    }
}

/// Whether a rule decides how connection tracking treats the packet.
fn assigns(step: &&Step<'_>) -> bool {
    let zone = |effect: &Effect| {
        matches!(effect, Effect::Untracks | Effect::SetsZone(_) | Effect::Known(Target::ConntrackZone(_)))
    };
    step.matches == Match::Matches && step.effect.as_ref().is_some_and(zone)
}

/// The mark that TPROXY gave a packet.
fn mark(taken: &Walk<'_>) -> Option<Mark> {
    taken.steps.iter().rev().find_map(|step| match step.effect {
        Some(Effect::Known(Target::Tproxy { mark, .. })) => Some(mark),
        Some(Effect::GivesSocket(_, change)) => Some(change?.apply(Mark(0), Mark(0)).0),
        Some(_) | None => None,
    })
}
