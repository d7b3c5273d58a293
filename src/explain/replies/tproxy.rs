//! The packets that follow one that TPROXY gave to the proxy: replies, and the proxy's own connection to the
//! app.
//!
//! The proxy connects to the app from the client's address. The app's replies are for the client, and policy
//! routing brings them to the proxy by the mark of their connection.

use std::net::SocketAddr;

use super::super::egress::is_egress_filter;
use super::super::packet::{ACCEPTING, FOLLOWING, OPENING, Process, REPLYING};
use super::super::reason::reason;
use super::super::routing;
use super::super::walk::{Verdict, Walk};
use super::{Conversation, Followed, ReplyProblem, fix, mark};
use crate::config::{ConnectionState, PacketQuery, Sender};
use crate::model::{Hook, Mark};

/// What TPROXY does with a reply that belongs to no connection.
pub(super) const TAKEN_FOR_NEW: &str =
    "TPROXY takes them for a new connection, for which the kernel has another socket, and drops them";

/// Whether TPROXY takes the packet.
pub(super) fn is_given_socket(walk: &Walk<'_>) -> bool {
    matches!(walk.verdict, Verdict::Captured(_)) && mark(walk).is_some()
}

impl Conversation<'_> {
    /// A socket of TPROXY replies from the destination that nat has given the first packet. Where TPROXY
    /// takes later ones, too, it looks for the connection by their own destination, and finds the listener,
    /// which resets them.
    pub(super) fn reset_behind_tproxy(&self) -> Option<ReplyProblem> {
        let translating = self.taken.steps.get(self.taken.translated_by?)?;
        let later = self.later_packet(self.taken.end.connmark)?;
        let sentence = || {
            format!(
                "the kernel resets the connection: TPROXY gives it a socket, and {} another destination",
                translating.words()
            )
        };
        later.walk.has_socket.then(|| ReplyProblem::by(sentence(), Some(translating)))
    }

    /// With TPROXY the proxy replies from the address that the packet was sent to.
    pub(super) fn transparent_replies(&self) -> Option<ReplyProblem> {
        if !self.packet.is_inbound {
            return self.transparent_replies_over_lo();
        }
        let query = self.query(
            self.accepting_transparently(),
            self.taken.end.destination,
            ConnectionState::Established,
        );
        let delivered = [Verdict::LikeItsConnection, Verdict::NotCaptured];
        // The second one has the mark that the first one has left to their connection.
        let first = self.reply(&query, REPLYING, self.taken.end.connmark)?;
        self.undelivered("the proxy's replies", &first, &delivered).or_else(|| {
            let connmark = Some(first.walk.end.connmark).filter(|mark| *mark != self.taken.end.connmark)?;
            let second = self.reply(&query, FOLLOWING, connmark)?;
            self.undelivered("the proxy's replies", &second, &delivered)
        })
    }

    /// The replies to a process of the pod, such as the proxy itself: they arrive on `lo`, where the rules of
    /// TPROXY are for them, too.
    fn transparent_replies_over_lo(&self) -> Option<ReplyProblem> {
        // In another zone the first reply can begin no connection, and those behind it can.
        [
            (self.accepting_transparently(), ACCEPTING, ConnectionState::Invalid, "connection is made"),
            (self.transparent_proxy(), FOLLOWING, ConnectionState::New, "data arrives"),
        ]
        .into_iter()
        .find_map(|(sender, flags, state, what)| {
            let query = self.query(sender, self.taken.end.destination, ConnectionState::Established);
            let reply = self.reply(&query, flags, self.taken.end.connmark)?;
            let Some(apart) = self.is_apart(&reply.walk, Hook::Output) else {
                let delivered = [Verdict::LikeItsConnection, Verdict::ToProxySocket];
                return self.undelivered("the proxy's replies", &reply, &delivered);
            };
            let query = PacketQuery { state, ..query };
            let reply = self.follow(&query, self.packet.source, flags, (Mark(0), None))?;
            if is_given_socket(&reply.walk) {
                return Some(
                    apart.problem(|why| format!("the proxy's replies {why}: {TAKEN_FOR_NEW}: no {what}")),
                );
            }
            let delivered = [Verdict::NotCaptured, Verdict::LikeItsConnection, Verdict::ToProxySocket];
            self.undelivered("the proxy's replies", &reply, &delivered)
        })
    }

    /// Later packets belong to no connection if the replies belong to another one.
    pub(super) fn invalid_packets(&self) -> Option<ReplyProblem> {
        let query = self.query(
            self.accepting_transparently(),
            self.taken.end.destination,
            ConnectionState::Established,
        );
        let reply = self.reply(&query, ACCEPTING, self.taken.end.connmark)?;
        let why = self.is_apart(&reply.walk, Hook::Output)?;
        let Followed { packet, walk } = self.own_packet(ConnectionState::Invalid)?;
        let is_lost = matches!(walk.verdict, Verdict::Dropped | Verdict::TakenByForeignRule);
        let because = || reason(&packet, &walk, self.pod).sentence;
        is_lost.then(|| {
            why.problem(|why| {
                format!("replies {why}, so that later packets are invalid and are dropped: {}", because())
            })
        })
    }

    /// With TPROXY: the proxy's connection to the app, from the client's address, and the app's replies.
    pub(super) fn to_the_app(&self, mark: Mark) -> Option<ReplyProblem> {
        if !self.packet.is_inbound {
            return None;
        }
        let own = self.taken.end.destination;
        let is_own = self.pod.network.addresses.iter().any(|address| address.address == own.ip());
        let call = self.call_of_the_proxy(own, mark)?;
        if is_own && let Some(again) = self.captured_again(&call) {
            return Some(again);
        }
        if is_own && call.walk.verdict != Verdict::NotCaptured {
            let lost = self.undelivered("the proxy's packets to the app", &call, &[Verdict::NotCaptured])?;
            let is_of_egress = is_egress_filter(&call.packet, &call.walk, self.pod);
            return Some(ReplyProblem { is_of_egress, ..lost });
        }
        let mut query = self.query(Sender::App, own, ConnectionState::Established);
        let mut connmark = if is_own { call.walk.end.connmark } else { mark };
        let mut apart = None;
        let conversation = Conversation { packet: &call.packet, taken: &call.walk, pod: self.pod };
        let reply = conversation.reply(&query, REPLYING, connmark)?;
        if is_own {
            apart = conversation.is_apart(&reply.walk, Hook::Output);
        }
        if apart.is_some() {
            (query.state, connmark) = (ConnectionState::Invalid, Mark(0));
        }
        let reply = conversation.reply(&query, REPLYING, connmark)?;
        // The kernel finds the pod's own addresses first, whatever the mark.
        if reply.packet.is_local {
            return None;
        }
        if let Some(apart) = apart.filter(|_| reply.walk.verdict != Verdict::ToProxySocket) {
            return Some(apart.problem(|why| {
                format!("the app's replies {why}, and so have no mark: they do not reach the proxy")
            }));
        }
        self.beside_the_proxy(mark, &reply)
    }

    /// The first packet of the proxy's connection to the app, from the address that it was called from.
    fn call_of_the_proxy(&self, own: SocketAddr, mark: Mark) -> Option<Followed<'_>> {
        let query = self.query(self.transparent_proxy(), self.packet.source, ConnectionState::New);
        self.follow(&PacketQuery { mark, ..query }, own, OPENING, (Mark(0), None))
    }

    fn captured_again(&self, call: &Followed<'_>) -> Option<ReplyProblem> {
        let again = self.pod.captured_again()?;
        matches!(call.walk.verdict, Verdict::Captured(_)).then(|| again.into())
    }

    /// A call of a TPROXY proxy to its own pod that REDIRECT brings to its inbound port: whether the
    /// connection to the app that follows comes back the same way.
    pub(super) fn proxy_to_itself(&self) -> Option<ReplyProblem> {
        let mark = self.pod.live.as_ref()?.routed_mark?;
        let is_inbound_port = self.taken.verdict == Verdict::Captured(self.pod.config.traffic.ports.inbound);
        let is_of_proxy = is_inbound_port && self.packet.is_local;
        is_of_proxy.then(|| self.captured_again(&self.call_of_the_proxy(self.packet.destination, mark)?))?
    }

    /// Why the app's reply does not get to the proxy by its mark, if it does not.
    fn beside_the_proxy(&self, mark: Mark, reply: &Followed<'_>) -> Option<ReplyProblem> {
        let cause = match (reply.walk.verdict, reply.walk.unsure()) {
            (Verdict::ToProxySocket, None) => return None,
            (_, Some(unsure)) => {
                return Some(ReplyProblem::may(format!(
                    "the app's replies may not reach the proxy: {unsure}"
                )));
            }
            (Verdict::Misrouted, None) => {
                let decisive = reply.walk.routed.last().and_then(routing::Looked::words);
                decisive.unwrap_or_else(|| "no policy rule leads to a route for them".to_owned())
            }
            (Verdict::LikeItsConnection | Verdict::NotCaptured, None) => {
                format!("no rule gives them mark {mark}")
            }
            (
                Verdict::Captured(_) | Verdict::Dropped | Verdict::NoRoute | Verdict::TakenByForeignRule,
                None,
            ) => reason(&reply.packet, &reply.walk, self.pod).sentence,
        };
        let sentence = format!("the app's replies do not reach the proxy: {cause}");
        let (known_cause, fix) = (reply.walk.policy_rule(), fix::of_walk(&reply.walk, self.pod));
        Some(ReplyProblem { known_cause, fix, ..ReplyProblem::by(sentence, reply.walk.decisive()) })
    }

    /// The owner of the proxy's listening socket; root, if nothing listens.
    fn accepting_transparently(&self) -> Sender {
        self.accepting(self.packet.destination.ip()).unwrap_or_else(|| self.transparent_proxy())
    }

    /// The proxy of a TPROXY pod, in the proxy's group.
    pub(super) fn transparent_proxy(&self) -> Sender {
        let Process { uid, gid } = self.pod.transparent_proxy();
        Sender::Process { uid, gid }
    }
}
