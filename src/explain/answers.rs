//! What a connection still depends on behind the verdict about its first packet: the listener on the proxy's port, and the packets
//! that follow: answers, and with TPROXY the proxy's own connection to the app.
//!
//! With TPROXY the proxy connects to the app from the client's address. The app's answers are for the client, and policy routing
//! brings them to the proxy by the mark of their connection.

use std::net::{IpAddr, SocketAddr};

use super::arrival::to_no_host;
use super::connection::Connection;
use super::foreign_rule::Effect;
use super::listener::Listener;
use super::overview::query;
use super::packet::{ACCEPTING, ANSWERING, FOLLOWING, OPENING, Packet, TcpFlags};
use super::reach::out_of_reach;
use super::reason::reason;
use super::walk::{Match, Sent, Step, Verdict, Walk, walk};
use super::{Pod, devices_and_ipsec, routing, runtime};
use crate::config::{ConnectionState, PacketQuery, Sender};
use crate::model::{DNS_PORT, Hook, Mark, PASSTHROUGH_V4, PASSTHROUGH_V6, Target, Transport};
use crate::text::one_line;

/// What is wrong behind the verdict about a packet, in one sentence.
pub(super) fn problem(packet: &Packet, taken: &Walk<'_>, pod: &Pod<'_>) -> Option<String> {
    let problems = problems(packet, taken, pod);
    (!problems.is_empty()).then(|| problems.join("; "))
}

/// The same, each in a sentence.
pub(super) fn problems(packet: &Packet, taken: &Walk<'_>, pod: &Pod<'_>) -> Vec<String> {
    let conversation = Conversation { packet, taken, pod };
    let to = taken.end.destination.ip();
    let loopback = || runtime::loopback_problem(to, pod).filter(|_| !packet.is_inbound);
    let no_carrier = || {
        let link = pod.live.as_ref()?.links.named(devices_and_ipsec::interface(packet, taken))?;
        let words = || format!("{} has no carrier: nothing gets in or out by it", one_line(&link.name));
        (!link.has_carrier).then(words)
    };
    match taken.verdict {
        Verdict::Captured(port) => {
            let out_of_reach = || out_of_reach(packet, (taken, port), pod.live.as_ref()?);
            let listener = runtime::problem_of(packet, (to, port), pod).or_else(out_of_reach);
            let arrives = no_carrier().filter(|_| packet.is_inbound);
            arrives.into_iter().chain(listener).chain(conversation.behind_capture()).collect()
        }
        Verdict::NotCaptured => {
            let behind = conversation.behind_the_rules().or_else(|| conversation.later_packets());
            let unsent = if packet.is_local && !packet.is_inbound { loopback() } else { no_carrier() };
            let is_passthrough =
                [IpAddr::from(PASSTHROUGH_V4), PASSTHROUGH_V6.into()].contains(&packet.source.ip());
            let unbound = || runtime::passthrough_problem(packet.family(), pod).filter(|_| is_passthrough);
            unsent.or_else(unbound).into_iter().chain(behind).collect()
        }
        Verdict::TakenByForeignRule => {
            let reset = conversation.reset_behind_tproxy();
            reset.or_else(|| conversation.behind_translation()).into_iter().collect()
        }
        // In IPv6 the routes of a loopback interface go with it.
        Verdict::Misrouted => loopback().into_iter().collect(),
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
    fn behind_capture(&self) -> Vec<String> {
        if self.packet.state != ConnectionState::New {
            return Vec::new();
        }
        if let Some(reset) = self.reset_behind_tproxy() {
            return vec![reset];
        }
        let has_tproxy = self.pod.live.as_ref().is_some_and(|live| live.routed_mark.is_some());
        let by_tproxy = mark(self.taken).filter(|_| has_tproxy);
        let mut problems = Vec::new();
        let translating = self.taken.translated_by.and_then(|at| self.taken.steps.get(at));
        problems.extend(translating.filter(|step| step.rule.is_foreign()).map(|step| {
            format!(
                "a foreign rule gives it another destination, which the proxy takes for that of the client: {}",
                step.words()
            )
        }));
        match by_tproxy {
            Some(mark) => {
                problems.extend(self.invalid_packets());
                problems.extend(self.transparent_answers());
                problems.extend(self.to_the_app(mark));
            }
            None => problems.extend(self.translated_answers()),
        }
        if problems.is_empty() {
            problems.extend(self.later_packets());
        }
        problems
    }

    /// Whether rules that the first packet has passed drop those that follow it in its direction: by the state of their connection, or
    /// their flags.
    fn later_packets(&self) -> Option<String> {
        let later = self.later_packet(self.taken.end.connmark)?;
        let hook = if self.packet.is_inbound { Hook::Prerouting } else { Hook::Output };
        let apart = self
            .is_apart(&later.walk, hook)
            .filter(|_| self.taken.end.destination != self.packet.destination);
        if let Some(why) = apart {
            let to = self.packet.destination;
            return Some(format!("later packets {why}, and so go to {to}: no data arrives"));
        }
        self.lost_later(&later)
    }

    /// Whether those are lost, or may be.
    fn lost_later(&self, later: &Followed<'_>) -> Option<String> {
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
        let connection = Connection { original: (source, destination), reply, is_answer: false };
        let (family, connection) = (packet.family(), Some(connection));
        let routing = live.routing(family);
        let walk = Sent { rules: live.rules.get(&family)?, packet: &packet, routing, connection }.walk();
        Some(Followed { packet, walk })
    }

    /// A socket of TPROXY answers from the destination that nat has given the first packet. Where TPROXY takes later ones, too, it looks for
    /// the connection by their own destination, and finds the listener, which resets them.
    fn reset_behind_tproxy(&self) -> Option<String> {
        let translating = self.taken.steps.get(self.taken.translated_by?)?;
        let later = self.later_packet(self.taken.end.connmark)?;
        later.walk.has_socket.then(|| {
            format!(
                "the kernel resets the connection: TPROXY gives it a socket, and {} another destination",
                translating.words()
            )
        })
    }

    /// With REDIRECT the proxy's answers get back the address that the packet was sent to, if they belong to its connection.
    fn translated_answers(&self) -> Option<String> {
        let query = self.query(Sender::Proxy, self.taken.end.destination, ConnectionState::Established);
        [(ACCEPTING, "connection is made"), (FOLLOWING, "data arrives")].into_iter().find_map(
            |(flags, what)| {
                let answer = self.answer(&query, flags, self.taken.end.connmark)?;
                if let Some(why) = self.is_apart(&answer.walk, Hook::Output) {
                    return Some(format!("the proxy's answers {why}, and so keep its address: no {what}"));
                }
                self.undelivered("the proxy's answers", &answer, &[Verdict::LikeItsConnection])
            },
        )
    }

    /// With TPROXY the proxy answers from the address that the packet was sent to.
    fn transparent_answers(&self) -> Option<String> {
        if !self.packet.is_inbound {
            return None;
        }
        let query = self.query(self.accepting(), self.taken.end.destination, ConnectionState::Established);
        let answer = self.answer(&query, ANSWERING, self.taken.end.connmark)?;
        let delivered = [Verdict::LikeItsConnection, Verdict::NotCaptured];
        self.undelivered("the proxy's answers", &answer, &delivered)
    }

    /// Later packets belong to no connection if the answers belong to another one.
    fn invalid_packets(&self) -> Option<String> {
        let query = self.query(self.accepting(), self.taken.end.destination, ConnectionState::Established);
        let answer = self.answer(&query, ACCEPTING, self.taken.end.connmark)?;
        let why = self.is_apart(&answer.walk, Hook::Output)?;
        let Followed { packet, walk } = self.own_packet(ConnectionState::Invalid)?;
        let is_lost = matches!(walk.verdict, Verdict::Dropped | Verdict::TakenByForeignRule);
        is_lost.then(|| {
            let because = reason(&packet, &walk, self.pod).sentence;
            format!("answers {why}, so that later packets are invalid and are dropped: {because}")
        })
    }

    /// With TPROXY: the proxy's connection to the app, from the client's address, and the app's answers.
    fn to_the_app(&self, mark: Mark) -> Option<String> {
        if !self.packet.is_inbound {
            return None;
        }
        let own = self.taken.end.destination;
        let is_own = self.pod.network.addresses.iter().any(|address| address.address == own.ip());
        let query =
            PacketQuery { mark, ..self.query(self.root_proxy(), self.packet.source, ConnectionState::New) };
        let call = self.follow(&query, own, OPENING, (Mark(0), None))?;
        if is_own && call.walk.verdict != Verdict::NotCaptured {
            return self.undelivered("the proxy's packets to the app", &call, &[Verdict::NotCaptured]);
        }
        let mut query = self.query(Sender::App, own, ConnectionState::Established);
        let mut connmark = if is_own { call.walk.end.connmark } else { mark };
        let mut apart = None;
        let conversation = Conversation { packet: &call.packet, taken: &call.walk, pod: self.pod };
        let answer = conversation.answer(&query, ANSWERING, connmark)?;
        if is_own {
            apart = conversation.is_apart(&answer.walk, Hook::Output);
        }
        if apart.is_some() {
            (query.state, connmark) = (ConnectionState::Invalid, Mark(0));
        }
        let answer = conversation.answer(&query, ANSWERING, connmark)?;
        // The kernel finds the pod's own addresses first, whatever the mark.
        if answer.packet.is_local {
            return None;
        }
        if let (Some(why), false) = (&apart, answer.walk.verdict == Verdict::ToProxySocket) {
            return Some(format!(
                "the app's answers {why}, and so have no mark: they do not reach the proxy"
            ));
        }
        let cause = match (answer.walk.verdict, answer.walk.unsure()) {
            (Verdict::ToProxySocket, None) => return None,
            (_, Some(unsure)) => return Some(format!("the app's answers may not reach the proxy: {unsure}")),
            (Verdict::Misrouted, None) => {
                let decisive = answer.walk.routed.last().and_then(routing::Looked::words);
                decisive.unwrap_or_else(|| "no policy rule leads to a route for them".to_owned())
            }
            (Verdict::LikeItsConnection | Verdict::NotCaptured, None) => {
                format!("no rule gives them mark {mark}")
            }
            (
                Verdict::Captured(_) | Verdict::Dropped | Verdict::NoRoute | Verdict::TakenByForeignRule,
                None,
            ) => reason(&answer.packet, &answer.walk, self.pod).sentence,
        };
        Some(format!("the app's answers do not reach the proxy: {cause}"))
    }

    /// What is wrong behind a packet that no rule takes: its answers may be taken for the beginning of a connection, or be lost.
    fn behind_the_rules(&self) -> Option<String> {
        let has_source = !self.packet.source.ip().is_unspecified();
        if self.packet.state != ConnectionState::New || !has_source {
            return None;
        }
        let is_query = self.packet.destination.port() == DNS_PORT.number();
        if self.packet.transport == Transport::Udp && !is_query {
            return None;
        }
        let (sender, hook) = if self.packet.is_local {
            (Sender::App, Hook::Output)
        } else {
            (Sender::Outside, Hook::Prerouting)
        };
        // By its mark: the app's or the proxy's own socket has it.
        let by_mark = (!self.packet.is_inbound).then_some(Verdict::ToProxySocket);
        let delivered: Vec<_> = [Verdict::LikeItsConnection].into_iter().chain(by_mark).collect();
        let query = self.query(sender, self.packet.destination, ConnectionState::Established);
        if self.packet.transport == Transport::Udp {
            return self.behind_a_query(&query, hook, &delivered);
        }
        [ACCEPTING, FOLLOWING].into_iter().find_map(|flags| {
            let answer = self.answer(&query, flags, self.taken.end.connmark)?;
            match self.is_apart(&answer.walk, hook) {
                Some(why) => self.behind_answers(&why, &answer.walk, &query),
                None => self.undelivered("its answers", &answer, &delivered).or_else(|| {
                    let connmark = answer.walk.end.connmark;
                    let later =
                        self.later_packet(connmark).filter(|_| connmark != self.taken.end.connmark)?;
                    self.lost_later(&later)
                }),
            }
        })
    }

    /// What is wrong behind a DNS query over UDP that no rule takes. An answer that does not belong to it arrives, too, unless a rule asks for
    /// that.
    fn behind_a_query(&self, query: &PacketQuery, hook: Hook, delivered: &[Verdict]) -> Option<String> {
        let answer = self.answer(query, &[], self.taken.end.connmark)?;
        let Some(why) = self.is_apart(&answer.walk, hook) else {
            return self.undelivered("its answers", &answer, delivered);
        };
        let query = PacketQuery { state: ConnectionState::New, ..query.clone() };
        let answer = self.follow(&query, self.packet.source, &[], (Mark(0), None))?;
        let delivered = [Verdict::NotCaptured, Verdict::ToProxySocket];
        self.undelivered(&format!("its answers {why}, and"), &answer, &delivered)
    }

    /// What is wrong behind answers that do not belong to the connection.
    fn behind_answers(&self, why: &str, answer: &Walk<'_>, query: &PacketQuery) -> Option<String> {
        let follow = |state, flags| {
            let query = PacketQuery { state, ..query.clone() };
            self.follow(&query, self.packet.source, flags, (Mark(0), None))
        };
        let first = follow(ConnectionState::Invalid, ACCEPTING)?;
        let is_dropped =
            |walk: &Walk<'_>| matches!(walk.verdict, Verdict::Captured(_)) && mark(walk).is_some();
        if is_dropped(&first.walk) {
            return Some(format!(
                "its answers {why}: TPROXY takes them for a new connection, for which the kernel has another socket, and drops them: no \
                 connection is made"
            ));
        }
        let delivered = [Verdict::NotCaptured, Verdict::LikeItsConnection, Verdict::ToProxySocket];
        // The answer can begin no connection. What comes behind it can (nf_conntrack_tcp_loose), unless there is one.
        let mut is_begun = self.taken.end.is_tracked;
        let state = if is_begun { ConnectionState::Invalid } else { ConnectionState::New };
        let mut own = self.own_packet(state)?;
        let is_over_lo = self.packet.is_local && !self.packet.is_inbound;
        let (sent, follows) = (self.taken.end.zone.original, own.walk.end.zone.original);
        if is_begun && !is_over_lo && own.walk.end.is_tracked && sent != follows {
            // In its zone there is none.
            is_begun = false;
            own = self.own_packet(ConnectionState::New)?;
        }
        let belongs = self.answer(query, FOLLOWING, self.taken.end.connmark)?;
        let is_in_its_zone = belongs.walk.end.zone.reply == own.walk.end.zone.reply;
        let next = if (is_begun && !answer.end.is_tracked)
            || (!is_begun && own.walk.end.is_tracked && is_in_its_zone)
        {
            belongs
        } else {
            follow(ConnectionState::New, FOLLOWING)?
        };
        let own_words = format!("its answers {why}, and its later packets");
        for (what, walk) in [(format!("its answers {why},"), &next.walk), (own_words, &own.walk)] {
            if let Verdict::Captured(port) = walk.verdict {
                return Some(format!(
                    "{what} seem to begin another connection and go to the proxy's port {port}: no data arrives"
                ));
            }
        }
        let later = || self.undelivered("its later packets", &own, &delivered);
        [first, next]
            .iter()
            .find_map(|answer| self.undelivered("its answers", answer, &delivered))
            .or_else(later)
    }

    /// A later packet in its direction that belongs to no connection yet.
    fn own_packet(&self, state: ConnectionState) -> Option<Followed<'a>> {
        let live = self.pod.live.as_ref()?;
        let packet = Packet { state, tcp_flags: Some(FOLLOWING), ..self.packet.clone() };
        let (rules, routing) = (live.rules.get(&packet.family())?, live.routing(packet.family()));
        let walk = walk(rules, &packet, routing);
        Some(Followed { packet, walk })
    }

    /// What a foreign rule has sent elsewhere is answered from there: by another host, or by a process of the pod. Answers in another
    /// zone keep that address.
    fn behind_translation(&self) -> Option<String> {
        let (to, is_new) = (self.taken.end.destination, self.packet.state == ConnectionState::New);
        let is_own =
            to.ip().is_loopback() || self.pod.network.addresses.iter().any(|own| own.address == to.ip());
        // What the pod forwards is not followed.
        if (self.packet.is_inbound && !is_own) || !is_new || to == self.packet.destination {
            return None;
        }
        let (sender, hook) =
            if is_own { (Sender::App, Hook::Output) } else { (Sender::Outside, Hook::Prerouting) };
        if self.packet.is_inbound
            && let IpAddr::V4(address) = to.ip()
        {
            let link = self.pod.live.as_ref()?.links.named(&self.packet.interface)?;
            let dropped = to_no_host(link, address);
            if dropped.is_some() {
                return dropped;
            }
        }
        if is_own && !self.has_listener(to) {
            return Some(format!("nothing listens on {to}"));
        }
        let query = self.query(sender, to, ConnectionState::Established);
        let answer = self.answer(&query, ANSWERING, self.taken.end.connmark)?;
        match self.is_apart(&answer.walk, hook) {
            Some(why) => {
                let receiver = if self.packet.is_inbound { "client" } else { "app" };
                Some(format!("its answers {why}, and so keep the address {to}: the {receiver} gets none"))
            }
            None => {
                let delivered = [Verdict::LikeItsConnection, Verdict::ToProxySocket];
                self.undelivered("its answers", &answer, &delivered)
            }
        }
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

    /// The proxy that has taken the packet: its answers have the user of the socket that listens.
    fn accepting(&self) -> Sender {
        let Verdict::Captured(port) = self.taken.verdict else { return self.root_proxy() };
        let listener = self.listener(SocketAddr::new(self.packet.destination.ip(), port.number()));
        self.proxy_as(listener.map_or(0, |found| found.uid))
    }

    /// The proxy of a TPROXY pod is root, in the proxy's group: only root may take another's address.
    fn root_proxy(&self) -> Sender {
        self.proxy_as(0)
    }

    fn proxy_as(&self, uid: u32) -> Sender {
        let gid = self.pod.config.traffic.proxy.gids.first().copied().unwrap_or_default();
        Sender::Process { uid, gid }
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

    /// An answer: it belongs to the connection, if it is not looked for elsewhere.
    fn answer(&self, query: &PacketQuery, flags: TcpFlags, connmark: Mark) -> Option<Followed<'a>> {
        let Packet { source, destination, .. } = *self.packet;
        let reply = (self.taken.end.destination, Some(source));
        let connection = Connection { original: (source, destination), reply, is_answer: true };
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
        let sent = Sent { rules: live.rules.get(&family)?, packet: &packet, routing, connection };
        let walk = sent.walk();
        Some(Followed { packet, walk })
    }

    /// Why answers do not belong to the connection, if they do not.
    fn is_apart(&self, answer: &Walk<'_>, hook: Hook) -> Option<String> {
        let (sent, back) = (&self.taken.end, &answer.end);
        let rule = || {
            let is_its = |step: &&Step<'_>| step.hook == hook.name() && assigns(step);
            let here = answer.steps.iter().find(is_its);
            here.or_else(|| self.taken.steps.iter().find(assigns))
        };
        let why = match (sent.is_tracked, back.is_tracked) {
            (_, false) => "are not tracked",
            (false, true) => "belong to no connection, since what they answer is not tracked",
            (true, true) if sent.zone.reply != back.zone.reply => {
                "are looked for in another conntrack zone than their connection"
            }
            (true, true) => return None,
        };
        let by = rule().map_or_else(String::new, |step| format!(" ({})", step.words()));
        Some(format!("{why}{by}"))
    }

    /// The policy rule and the route that lead what a process of the pod sends to another one out of it.
    fn leaves_the_pod(&self, followed: &Followed<'_>) -> Option<String> {
        let Followed { packet, walk } = followed;
        let is_within =
            !self.packet.is_inbound && !packet.is_inbound && packet.destination == self.packet.source;
        let last = walk.routed.last().filter(|_| is_within)?;
        (last.routed() == routing::Routed::Away).then(|| last.words()).flatten()
    }

    /// What becomes of a packet that follows, if it is none of these.
    fn undelivered(&self, what: &str, followed: &Followed<'_>, delivered: &[Verdict]) -> Option<String> {
        let Followed { packet, walk } = followed;
        if delivered.contains(&walk.verdict)
            && let Some(way) = self.leaves_the_pod(followed)
        {
            return Some(format!("{what} do not arrive: they leave the pod: {way}"));
        }
        if delivered.contains(&walk.verdict) {
            // What may decide over the packet itself is named with its verdict.
            let is_new = |unsure: &String| self.taken.all_unsure().all(|known| known != *unsure);
            return walk.all_unsure().find(is_new).map(|unsure| format!("{what} may not arrive: {unsure}"));
        }
        if let Some(unsure) = walk.unsure() {
            return Some(format!("{what} may not arrive: {unsure}"));
        }
        let by_mark = || walk.routed.last().and_then(routing::Looked::words);
        let by_mark =
            Some(walk.verdict).filter(|verdict| *verdict == Verdict::ToProxySocket).and_then(|_| by_mark());
        let cause = by_mark.unwrap_or_else(|| reason(packet, walk, self.pod).sentence);
        Some(format!("{what} do not arrive: {cause}"))
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
