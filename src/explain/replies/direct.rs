//! The packets that follow one that goes to its destination, or where a foreign rule sends it: their replies.

use std::net::IpAddr;

use super::super::arrival::to_no_host;
use super::super::packet::{ACCEPTING, FOLLOWING, REPLYING};
use super::super::walk::{Verdict, Walk};
use super::tproxy::{TAKEN_FOR_NEW, is_given_socket};
use super::{Apart, Conversation, ReplyProblem};
use crate::config::{ConnectionState, PacketQuery, Sender};
use crate::model::{DNS_PORT, Hook, Mark, Transport};

impl<'a> Conversation<'a> {
    /// What is wrong behind a packet that no rule takes: its replies may be taken for the beginning of a
    /// connection, or be lost.
    pub(super) fn behind_the_rules(&self) -> Option<ReplyProblem> {
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
        // What follows has the mark that the packets before it have left to the connection.
        let mut connmark = self.taken.end.connmark;
        [ACCEPTING, FOLLOWING].into_iter().find_map(|flags| {
            let reply = self.reply(&query, flags, connmark)?;
            if let Some(why) = self.is_apart(&reply.walk, hook) {
                return self.behind_replies(why, &reply.walk, &query);
            }
            self.undelivered("its replies", &reply, &delivered).or_else(|| {
                connmark = reply.walk.end.connmark;
                let later = self.later_packet(connmark)?;
                let is_changed = connmark != self.taken.end.connmark;
                connmark = later.walk.end.connmark;
                if is_changed { self.lost_later(&later) } else { None }
            })
        })
    }

    /// What is wrong behind a DNS query over UDP that no rule takes. A reply that does not belong to it
    /// arrives, too, unless a rule asks for that.
    fn behind_a_query(&self, query: &PacketQuery, hook: Hook, delivered: &[Verdict]) -> Option<ReplyProblem> {
        let reply = self.reply(query, &[], self.taken.end.connmark)?;
        let Some(why) = self.is_apart(&reply.walk, hook) else {
            return self.undelivered("its replies", &reply, delivered);
        };
        let query = PacketQuery { state: ConnectionState::New, ..query.clone() };
        let reply = self.follow(&query, self.packet.source, &[], (Mark(0), None))?;
        let delivered = [Verdict::NotCaptured, Verdict::ToProxySocket];
        self.undelivered(&format!("its replies {}, and", why.why), &reply, &delivered)
    }

    /// What is wrong behind replies that do not belong to the connection.
    fn behind_replies(&self, apart: Apart, reply: &Walk<'_>, query: &PacketQuery) -> Option<ReplyProblem> {
        let follow = |state, flags| {
            let query = PacketQuery { state, ..query.clone() };
            self.follow(&query, self.packet.source, flags, (Mark(0), None))
        };
        let first = follow(ConnectionState::Invalid, ACCEPTING)?;
        if is_given_socket(&first.walk) {
            return Some(
                apart.problem(|why| format!("its replies {why}: {TAKEN_FOR_NEW}: no connection is made")),
            );
        }
        let delivered = [Verdict::NotCaptured, Verdict::LikeItsConnection, Verdict::ToProxySocket];
        // The reply can begin no connection. What comes behind it can (nf_conntrack_tcp_loose), unless there
        // is one.
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
        let belongs = self.reply(query, FOLLOWING, self.taken.end.connmark)?;
        let is_in_its_zone = belongs.walk.end.zone.reply == own.walk.end.zone.reply;
        let next = if (is_begun && !reply.end.is_tracked)
            || (!is_begun && own.walk.end.is_tracked && is_in_its_zone)
        {
            belongs
        } else {
            follow(ConnectionState::New, FOLLOWING)?
        };
        for (what, walk) in [(",", &next.walk), (", and its later packets", &own.walk)] {
            if let Verdict::Captured(port) = walk.verdict {
                return Some(apart.problem(|why| {
                    format!(
                        "its replies {why}{what} seem to begin another connection and go to the proxy's port {port}: no data arrives"
                    )
                }));
            }
        }
        let later = || self.undelivered("its later packets", &own, &delivered);
        [first, next]
            .iter()
            .find_map(|reply| self.undelivered("its replies", reply, &delivered))
            .or_else(later)
    }

    /// What a foreign rule has sent elsewhere gets its replies from there: from another host, or from a
    /// process of the pod. Replies in another zone keep that address.
    pub(super) fn behind_translation(&self) -> Option<ReplyProblem> {
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
            if let Some(dropped) = dropped {
                return Some(dropped.into());
            }
        }
        if is_own && !self.has_listener(to) {
            return Some(format!("nothing listens on {to}").into());
        }
        let query = self.query(sender, to, ConnectionState::Established);
        let reply = self.reply(&query, REPLYING, self.taken.end.connmark)?;
        match self.is_apart(&reply.walk, hook) {
            Some(why) => {
                let receiver = if self.packet.is_inbound { "client" } else { "app" };
                Some(why.problem(|why| {
                    format!("its replies {why}, and so keep the address {to}: the {receiver} gets none")
                }))
            }
            None => {
                let delivered = [Verdict::LikeItsConnection, Verdict::ToProxySocket];
                self.undelivered("its replies", &reply, &delivered)
            }
        }
    }
}
