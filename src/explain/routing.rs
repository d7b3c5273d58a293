//! Where a packet goes before and behind the rules: as the options have it, or by the live policy rules and
//! routes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::listener::Listener;
use super::matching::PacketState;
use super::packet::Packet;
use crate::model::{Fib, FibRoute, Links, Mark, RouteKind, Transport};
use crate::routing::{self, Flow, Found, Lookup, Tried, lookup};
use crate::text::one_line;

/// What routes packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Routing<'a> {
    /// The mark that the rules give packets for the proxy, which policy routing is to send to `lo`.
    pub mark: Option<Mark>,
    /// The live policy rules and routes; without them it does.
    pub fib: Option<&'a Fib>,
    /// The interfaces.
    pub links: Option<&'a Links>,
    /// The sockets that TPROXY of other programs may hand packets to; `None` if they cannot be listed.
    pub listeners: Option<&'a [Listener]>,
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
    /// The packet has no route.
    Nowhere,
    /// A policy rule or route throws it away.
    Rejected,
}

/// A look-up, and what was looked up.
#[derive(Clone, Debug)]
pub struct Looked<'a> {
    destination: IpAddr,
    mark: Option<Mark>,
    in_interface: String,
    /// The outcome.
    pub lookup: Lookup<'a>,
    /// Whether it is for an address of this machine, whichever table leads it there.
    pub(super) is_own: bool,
}

impl Packet {
    /// The packet, leaving by the interface of its route where none is asked about, with the source that the
    /// kernel chooses where none is, or that of a client which its interface leads to. What is for an address
    /// that no interface but `lo` has arrives by the one that leads to the client.
    #[must_use]
    pub fn by_route(mut self, routing: Routing<'_>) -> Self {
        if self.is_inbound && !self.has_interface && !routing.is_on_link(self.destination.ip()) {
            let way = routing.way_to(self.source.ip());
            self.interface = way.unwrap_or(self.interface);
        }
        if self.is_inbound && !self.has_source {
            self.source.set_ip(routing.client(&self.interface, self.source.ip()));
        }
        let is_open = !self.is_inbound && !self.has_interface;
        if let Some((source, interface, is_local)) = routing.leaves_by(&self).filter(|_| is_open) {
            self.is_local |= is_local;
            self.source.set_ip(source);
            self.interface = interface;
        }
        self
    }
}

impl<'a> Routing<'a> {
    pub(super) const fn mark(&self) -> Option<Mark> {
        self.mark
    }

    /// Looks up a packet in the live rules as it is now; `None` without them. What a process sends is looked
    /// up so for the second time, since it was changed.
    pub(super) fn look(
        &self,
        at: &PacketState,
        mark: Option<Mark>,
        in_interface: &str,
    ) -> Option<Looked<'a>> {
        let is_inbound = in_interface != "lo" || at.out_interface.is_none();
        let flow = Flow {
            source: at.source.ip(),
            destination: at.destination.ip(),
            mark: mark.map(|mark| mark.0),
            // That of no socket.
            uid: is_inbound.then_some(0),
            in_interface,
            protocol: protocol(at.transport),
            ports: is_inbound.then(|| (at.source.port(), at.destination.port())),
        };
        self.looked(&flow)
    }

    fn looked(&self, flow: &Flow<'_>) -> Option<Looked<'a>> {
        Some(Looked {
            destination: flow.destination,
            mark: flow.mark.map(Mark),
            in_interface: flow.in_interface.to_owned(),
            lookup: lookup(self.fib?, flow),
            is_own: self.has_own(flow.destination),
        })
    }

    /// The look-ups before a process sends its first packet, up to the one that decides; `None` without live
    /// rules. A socket that is not bound is looked up without an address and, over TCP, without a port. With
    /// what the kernel has chosen IPv4 looks again.
    pub(super) fn look_first(&self, packet: &Packet) -> Option<Vec<Looked<'a>>> {
        let bound = Flow {
            source: packet.source.ip(),
            destination: packet.destination.ip(),
            mark: Some(packet.mark.0),
            // The kernel itself is root.
            uid: Some(packet.process.map_or(0, |process| process.uid)),
            in_interface: "lo",
            protocol: protocol(packet.transport),
            ports: Some((packet.source.port(), packet.destination.port())),
        };
        let port =
            if packet.has_port || packet.transport == Transport::Udp { packet.source.port() } else { 0 };
        let ports = Some((port, packet.destination.port()));
        let first = Flow {
            source: if packet.has_source { bound.source } else { unspecified(bound.destination) },
            ports,
            ..bound
        };
        let v4 = bound.destination.is_ipv4();
        // In IPv6 a port is chosen behind the look-ups.
        let bound = Flow { ports: if v4 { bound.ports } else { first.ports }, ..bound };
        let is_bound = (first.source, first.ports) == (bound.source, bound.ports);
        let first = self.looked(&first)?;
        let fails = matches!(first.routed(), Routed::Rejected | Routed::Nowhere);
        if is_bound || fails || !v4 {
            return Some(vec![first]);
        }
        let again = self.looked(&bound)?;
        let is_alike = first.lookup.decisive == again.lookup.decisive && first.lookup.uncertain.is_empty();
        Some(if is_alike { vec![again] } else { vec![first, again] })
    }

    /// The source that the kernel chooses, the interface by which a packet leaves that a process sends, and
    /// whether that is to this machine: a local route has addresses that no interface has. `None` without
    /// live rules, or without a route.
    pub(super) fn leaves_by(&self, packet: &Packet) -> Option<(IpAddr, String, bool)> {
        let fib = self.fib?;
        let first = self.look_first(packet)?;
        let chosen = routing::source(fib, &first.first()?.lookup, packet.destination.ip());
        let source = chosen.filter(|_| !packet.has_source).unwrap_or(packet.source.ip());
        let mut sent = packet.clone();
        sent.source.set_ip(source);
        let looked = self.look_first(&sent)?;
        match looked.last()?.lookup.decisive?.found {
            Found::Route(route) if route.kind == RouteKind::Unicast => {
                Some((source, route.interface.clone()?, false))
            }
            Found::Route(route) if route.kind == RouteKind::Local => Some((source, "lo".to_owned(), true)),
            Found::Route(_) | Found::Rejected(_) | Found::Unknown => None,
        }
    }

    /// The address of a client on this interface: one for documentation, or that of a neighbour where none
    /// such is routed to it.
    pub(super) fn client(&self, interface: &str, documentation: IpAddr) -> IpAddr {
        let neighbour = || {
            let fib = self.fib?;
            if self.way_to(documentation).as_deref() == Some(interface) {
                return None;
            }
            let is_by_it = |route: &FibRoute| {
                route.kind == RouteKind::Unicast && route.interface.as_deref() == Some(interface)
            };
            let ranges =
                fib.routes.iter().filter(|route| is_by_it(route)).filter_map(|route| route.destination);
            let global = ranges.filter(|range| !is_link_local(range.network()));
            { global }.find_map(|range| range.iter().skip(1).take(8).find(|address| !self.has_own(*address)))
        };
        neighbour().unwrap_or(documentation)
    }

    /// The interface that leads to an address.
    pub(super) fn way_to(&self, address: IpAddr) -> Option<String> {
        let flow = back(unspecified(address), address, (Some(0), 6));
        match lookup(self.fib?, &flow).decisive?.found {
            Found::Route(route) if route.kind == RouteKind::Unicast => route.interface.clone(),
            Found::Route(_) | Found::Rejected(_) | Found::Unknown => None,
        }
    }

    /// Whether an interface other than `lo` has the address.
    fn is_on_link(&self, address: IpAddr) -> bool {
        let mut own = self.fib.into_iter().flat_map(|fib| &fib.addresses);
        own.any(|own| own.address == address && own.interface != "lo")
    }

    /// Whether an address is one of the machine's own.
    #[must_use]
    pub fn has_own(&self, address: IpAddr) -> bool {
        self.fib.is_some_and(|fib| fib.addresses.iter().any(|own| own.address == address))
    }

    /// The address of an interface that REDIRECT gives what arrives there, and at which TPROXY looks for a
    /// socket: the first one, of the scope of the destination.
    pub(super) fn own_address(&self, interface: &str, destination: IpAddr) -> Option<IpAddr> {
        let is_usable =
            |address: IpAddr| destination.is_ipv4() || !is_link_local(destination) || is_link_local(address);
        let mut own =
            self.fib?.addresses.iter().filter(|own| own.interface == interface && !own.is_tentative);
        own.find(|own| is_usable(own.address)).map(|own| own.address)
    }

    /// Where a packet goes by the rule and the route that a run makes.
    pub(super) fn routed_by_options(&self, packet: &Packet, at: &PacketState) -> Routed {
        let is_own = packet.is_local || at.destination != packet.destination;
        match self.mark {
            _ if is_own => Routed::Own,
            Some(mark) if mark == at.mark => Routed::Here,
            _ => Routed::Away,
        }
    }
}

const fn unspecified(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// What goes back to the source of a packet.
pub(super) const fn back(
    source: IpAddr,
    destination: IpAddr,
    (mark, protocol): (Option<u32>, u8),
) -> Flow<'static> {
    Flow { source, destination, mark, uid: Some(0), in_interface: "lo", protocol, ports: None }
}

const fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

pub(super) const fn protocol(transport: Transport) -> u8 {
    match transport {
        Transport::Tcp => 6,
        Transport::Udp => 17,
    }
}

impl Looked<'_> {
    pub(super) fn routed(&self) -> Routed {
        match self.lookup.kind() {
            _ if self.lookup.is_own_address() || (self.is_own && self.lookup.is_local()) => Routed::Own,
            _ if self.lookup.is_local() => Routed::Here,
            Some(kind) if kind.is_rejecting() => Routed::Rejected,
            None if self.lookup.decisive.is_none() && self.lookup.uncertain.is_empty() => Routed::Nowhere,
            _ => Routed::Away,
        }
    }

    /// The packet in words.
    pub(super) fn packet(&self) -> String {
        let mark = self.mark.map_or_else(|| "an unknown mark".to_owned(), |mark| format!("mark {mark}"));
        format!("to {} with {mark}, iif {}", self.destination, self.in_interface)
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
