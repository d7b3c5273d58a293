//! A packet that is followed, from the question to the outcome.

use super::super::connection::Connection;
use super::super::field_match::Open;
use super::super::matching::{PacketState, Words};
use super::super::packet::Packet;
use super::super::routing::{Routed, Routing};
use super::super::rules::Rules;
use super::Walker;
use super::decisive::decisive;
use super::order::Order;
use super::outcome::Walk;
use crate::config::ConnectionState;

/// Follows `packet` through the rules of its family.
#[must_use]
pub fn walk<'a>(rules: &'a Rules, packet: &Packet, routing: Routing<'a>) -> Walk<'a> {
    Sent::of(rules, packet, routing).walk()
}

/// Follows `packet`, of which some fields are `open` to foreign rules.
#[must_use]
pub fn walk_open<'a>(rules: &'a Rules, packet: &Packet, routing: Routing<'a>, open: &[Open]) -> Walk<'a> {
    Sent { open, ..Sent::of(rules, packet, routing) }.walk()
}

/// A packet that is followed.
#[derive(Clone, Copy)]
pub(in crate::explain) struct Sent<'a, 'b> {
    pub(in crate::explain) rules: &'a Rules,
    pub(in crate::explain) packet: &'b Packet,
    pub(in crate::explain) routing: Routing<'a>,
    /// The connection of the packet, if it follows a packet whose way is known.
    pub(in crate::explain) connection: Option<Connection>,
    /// Whether it is said why rules are not for it.
    pub(in crate::explain) words: Words,
    /// What foreign rules test and is not known of the packet.
    pub(in crate::explain) open: &'b [Open],
}

impl<'a, 'b> Sent<'a, 'b> {
    /// A packet of which all is known but its connection.
    pub(in crate::explain) const fn of(rules: &'a Rules, packet: &'b Packet, routing: Routing<'a>) -> Self {
        Self { rules, packet, routing, connection: None, words: Words::None, open: &[] }
    }

    /// The way of the packet, with the rules that may make it another one.
    pub(in crate::explain) fn walk(self) -> Walk<'a> {
        let mut walk = self.walk_with(&[]);
        self.settle(&mut walk);
        self.try_other_order(&mut walk);
        self.find_cause(&mut walk);
        walk
    }

    /// The way of the packet if no rule matches of which that is not known, apart from those that the steps
    /// in `chosen` try.
    pub(in crate::explain) fn walk_with(self, chosen: &[usize]) -> Walk<'a> {
        self.walk_by(chosen, Order::ForeignFirst)
    }

    /// The way of the packet with chains in this order, as in [`Self::walk_with`].
    pub(in crate::explain) fn walk_by(self, chosen: &[usize], order: Order) -> Walk<'a> {
        let Self { rules, packet, routing, connection, words, open } = self;
        let mut walker = Walker {
            rules,
            at: PacketState::of(packet, words),
            packet,
            routing,
            connection,
            open,
            chosen,
            order,
            steps: Vec::new(),
            uncertain: Vec::new(),
            beside: None,
            socket: None,
            has_unknown_destination: false,
            is_translated: packet.state != ConnectionState::New,
            has_source: false,
            without_connection: None,
            translated_by: None,
            routed: Vec::new(),
            to: Routed::Away,
            later: None,
            because: None,
            dropped_by: None,
            is_invalid: false,
        };
        let verdict = walker.verdict(packet);
        let Walker {
            steps,
            uncertain,
            routed,
            later,
            because,
            dropped_by,
            is_invalid,
            translated_by,
            socket,
            at: end,
            ..
        } = walker;
        let is_decided = later.is_some() || because.is_some();
        let decided_by = if is_decided { later } else { decisive(&steps, packet, verdict, routing.mark()) };
        let (cause, order) = (None, None);
        Walk {
            steps,
            verdict,
            decided_by,
            cause,
            uncertain,
            routed,
            because,
            dropped_by,
            is_invalid,
            order,
            translated_by,
            has_socket: socket.is_some(),
            end,
        }
    }
}
