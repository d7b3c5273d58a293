//! Where a packet goes before and behind the rules: as the options have it, or by the live policy rules and routes.

use super::matching::AtHook;
use super::packet::Packet;
use crate::model::{Fib, Mark, RouteKind, Transport};
use crate::routing::{Flow, Found, Lookup, Tried, lookup};
use crate::text::one_line;

/// What routes packets.
#[derive(Clone, Copy, Debug)]
pub struct Routing<'a> {
    /// The mark that the rules give packets for the proxy, which policy routing is to send to `lo`.
    pub mark: Option<Mark>,
    /// The live policy rules and routes; without them it does.
    pub fib: Option<&'a Fib>,
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routed {
    /// To this machine, whose address it has.
    Own,
    /// To this machine, because of a policy rule or route.
    Here,
    /// To another machine, or that is not known.
    Away,
    /// It has no route.
    Nowhere,
    /// A policy rule or route throws it away.
    Rejected,
}

/// A look-up, and what was looked up.
#[derive(Clone, Debug)]
pub struct Looked<'a> {
    /// The packet in words.
    pub packet: String,
    /// The outcome.
    pub lookup: Lookup<'a>,
}

impl<'a> Routing<'a> {
    pub(super) const fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// Looks up a packet in the live rules; `None` without them. `is_anew`: for the second time, since it was changed.
    pub(super) fn look(
        &self,
        at: &AtHook,
        mark: Option<Mark>,
        in_interface: &str,
        is_anew: bool,
    ) -> Option<Looked<'a>> {
        let flow = Flow {
            source: at.source.ip(),
            destination: at.destination.ip(),
            mark: mark.map(|mark| mark.0),
            uid: (!is_anew && in_interface == "lo").then(|| at.process.map_or(0, |process| process.uid)),
            in_interface,
            protocol: protocol(at.transport),
            ports: (!is_anew).then(|| (at.source.port(), at.destination.port())),
        };
        let mark = mark.map_or_else(|| "an unknown mark".to_owned(), |mark| format!("mark {mark}"));
        let packet = format!("to {} with {mark}, iif {in_interface}", at.destination.ip());
        Some(Looked { packet, lookup: lookup(self.fib?, &flow) })
    }

    /// The interface by which a packet leaves that a process sends, and whether that is to this machine: a local route has addresses
    /// that no interface has.
    pub(super) fn leaves_by(&self, packet: &Packet) -> Option<(String, bool)> {
        let flow = Flow {
            source: packet.source.ip(),
            destination: packet.destination.ip(),
            mark: Some(packet.mark.0),
            uid: Some(packet.process.map_or(0, |process| process.uid)),
            in_interface: "lo",
            protocol: protocol(packet.transport),
            ports: Some((packet.source.port(), packet.destination.port())),
        };
        let lookup = lookup(self.fib?, &flow);
        match lookup.decisive?.found {
            Found::Route(route) if route.kind == RouteKind::Unicast => {
                Some((route.interface.clone()?, false))
            }
            Found::Route(route) if route.kind == RouteKind::Local => Some(("lo".to_owned(), true)),
            Found::Route(_) | Found::Rejected(_) | Found::Unknown => None,
        }
    }

    /// The same with the rule and the route that a run makes.
    pub(super) fn routed_by_options(&self, packet: &Packet, at: &AtHook) -> Routed {
        let is_own = packet.is_local || at.destination != packet.destination;
        match self.mark {
            _ if is_own => Routed::Own,
            Some(mark) if mark == at.mark => Routed::Here,
            _ => Routed::Away,
        }
    }
}

const fn protocol(transport: Transport) -> u8 {
    match transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
    }
}

impl Looked<'_> {
    pub(super) fn routed(&self) -> Routed {
        match self.lookup.kind() {
            _ if self.lookup.is_own_address() => Routed::Own,
            _ if self.lookup.is_local() => Routed::Here,
            Some(kind) if kind.is_rejecting() => Routed::Rejected,
            None if self.lookup.decisive.is_none() && self.lookup.uncertain.is_empty() => Routed::Nowhere,
            _ => Routed::Away,
        }
    }

    /// The rule that decides, and what it leads to.
    pub(super) fn words(&self) -> Option<String> {
        self.lookup.decisive.as_ref().map(words)
    }
}

/// A policy rule, and what it leads to.
pub(super) fn words(tried: &Tried<'_>) -> String {
    let rule = match tried.found {
        Found::Route(route) => format!("policy rule `{}`, route `{route}`", tried.rule),
        Found::Rejected(_) | Found::Unknown => format!("policy rule `{}`", tried.rule),
    };
    one_line(&rule).into_owned()
}
