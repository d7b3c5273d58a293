//! Every kind of traffic of a pod, by one packet each.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::Pod;
use super::defaults::{ANY_PORT, default_port, default_server};
use super::example_addresses::{any_pod, any_server, server_in};
use super::packet::Packet;
use crate::config::{
    CaptureConfig, ConnectionState, Dns, InboundPorts, OutboundRanges, Output, PacketQuery, Sender,
};
use crate::facts::NameServers;
use crate::model::{
    DNS_PORT, Family, InterfaceAddress, Mark, Network, PASSTHROUGH_V4, PASSTHROUGH_V6, Port, Transport,
};

/// Most entries of one list of options that get a row.
const MOST: usize = 5;

/// A packet of each kind, with the name of the kind: for each family that gets rules, and once for one that
/// does not, or of which a live pod has no address.
pub(super) fn packets(pod: &Pod<'_>) -> Vec<(String, Packet)> {
    let Pod { config, network, .. } = *pod;
    let mut rows = Vec::new();
    for family in Family::ALL {
        if config.families.contains(family) && (pod.live.is_none() || has_address(network, family)) {
            Kinds { pod, config, network, family, rows: &mut rows }.all();
        } else {
            let to = any_server(family);
            let mut kinds = Kinds { pod, config, network, family, rows: &mut rows };
            kinds.add(&format!("app to a server, {family}"), Sender::App, to, ANY_PORT);
        }
    }
    rows
}

/// Whether the pod has an address of the family that others can reach.
pub(super) fn has_address(network: &Network, family: Family) -> bool {
    addresses(network, family).any(|own| !is_link_local_v6(own))
}

struct Kinds<'a> {
    pod: &'a Pod<'a>,
    config: &'a CaptureConfig,
    network: &'a Network,
    family: Family,
    rows: &'a mut Vec<(String, Packet)>,
}

impl Kinds<'_> {
    fn all(&mut self) {
        self.inbound();
        self.outbound();
        self.inside();
        self.dns();
    }

    fn inbound(&mut self) {
        let traffic = &self.config.traffic;
        let pod = pod_address(self.config, self.network, self.family);
        let named: Vec<Port> = match &traffic.inbound {
            InboundPorts::All { except } => except.clone(),
            InboundPorts::None => Vec::new(),
            InboundPorts::Only(ports) => ports.clone(),
        };
        let is_open = |number: u16| !named.iter().any(|port| port.number() == number);
        let other = self.port_of_app(&is_open);
        self.add(&format!("client to the app, port {other}"), Sender::Outside, pod, other);
        let declared = self.pod.declared_ports().filter(|port| *port != other);
        for port in named.iter().map(|port| port.number()).chain(declared).take(MOST) {
            self.add(&format!("client to the app, port {port}"), Sender::Outside, pod, port);
        }
        let tunnel = traffic.ports.tunnel;
        self.add("client to the proxy's HBONE port", Sender::Outside, pod, tunnel.number());
        for interface in traffic.excluded_interfaces.iter().map(ToString::to_string).collect::<Vec<_>>() {
            let name = interface.trim_end_matches('+').to_owned();
            let kind = format!("client to the app by {interface}");
            let query = PacketQuery { in_interface: Some(name), ..query(Sender::Outside) };
            self.push(&kind, &query, pod, other);
        }
    }

    /// A port of the app: one on which it listens, if that is known.
    fn port_of_app(&self, is_open: &dyn Fn(u16) -> bool) -> u16 {
        let any = default_port(self.pod, self.family, is_open);
        let known = self.pod.captured_ports();
        let declared = self.pod.live.iter().flat_map(|live| &live.runtime.declared_ports);
        let mut named = known.iter().chain(declared).copied();
        named.find(|port| is_open(*port)).filter(|_| !known.contains(&any)).unwrap_or(any)
    }

    fn outbound(&mut self) {
        let outbound = self.config.traffic.outbound.clone();
        let named: Vec<_> = outbound.excluded_ports.iter().chain(&outbound.ports).collect();
        let is_open = |number: u16| !named.iter().any(|port| port.number() == number);
        let other = default_port(self.pod, self.family, &is_open);
        let server = default_server(self.pod, self.family);
        self.add("app to a server", Sender::App, server, other);
        for (what, ports) in [("excluded", &outbound.excluded_ports), ("included", &outbound.ports)] {
            for port in ports.iter().take(MOST) {
                self.add(&format!("app to a server, {what} port {port}"), Sender::App, server, port.number());
            }
        }
        let included: &[_] = if let OutboundRanges::Only(ranges) = &outbound.ranges { ranges } else { &[] };
        for (what, ranges) in [("excluded", &outbound.excluded_ranges[..]), ("included", included)] {
            let family = self.family;
            for range in ranges.iter().filter(|range| family.holds(range)).take(MOST) {
                let to = server_in(range, self.network);
                self.add(&format!("app to the {what} range {range}"), Sender::App, to, other);
            }
        }
        self.add("proxy to a server", Sender::Proxy, server, other);
        let udp = PacketQuery { transport: Transport::Udp, ..query(Sender::App) };
        self.push("app to a server, UDP", &udp, server, other);
    }

    fn inside(&mut self) {
        let pod = pod_address(self.config, self.network, self.family);
        let any_port = self.port_of_app(&|_| true);
        let loopback = match self.family {
            Family::V4 => Ipv4Addr::LOCALHOST.into(),
            Family::V6 => Ipv6Addr::LOCALHOST.into(),
        };
        self.add("app to itself by loopback", Sender::App, loopback, any_port);
        self.add("app to itself by the pod's address", Sender::App, pod, any_port);
        self.add("proxy to its own pod's address", Sender::Proxy, pod, any_port);
        let query = passthrough_query(self.family);
        self.push("proxy to the app, inbound request", &query, pod, any_port);
    }

    fn dns(&mut self) {
        let server = self.name_server().unwrap_or_else(|| default_server(self.pod, self.family));
        for (name, sender) in [("app", Sender::App), ("proxy", Sender::Proxy)] {
            for transport in [Transport::Udp, Transport::Tcp] {
                let kind = format!("{name} to a name server, {}", transport.name().to_uppercase());
                self.push(&kind, &PacketQuery { transport, ..query(sender) }, server, DNS_PORT.number());
            }
        }
    }

    /// The name server that a problem is about; else the first one that rules capture, or that the pod has.
    fn name_server(&self) -> Option<IpAddr> {
        let runtime = self.pod.live.as_ref().map(|live| &live.runtime);
        let translated = runtime.and_then(|runtime| runtime.translated_servers.first());
        let first = |servers: &NameServers| {
            let local = servers.loopback();
            let all = servers.v4.iter().map(|server| IpAddr::from(*server));
            let all = local.into_iter().chain(all).chain(servers.v6.iter().map(|server| (*server).into()));
            { all }.find(|server| self.family.has(*server))
        };
        let captured = match (&self.config.dns, self.family) {
            (Dns::Servers { v4, .. }, Family::V4) => v4.first().map(|server| IpAddr::from(*server)),
            (Dns::Servers { v6, .. }, Family::V6) => v6.first().map(|server| IpAddr::from(*server)),
            (Dns::All | Dns::Off, _) => None,
        };
        let translated = translated.map(|found| found.server.ip()).filter(|server| self.family.has(*server));
        translated.or(captured).or_else(|| first(&runtime?.name_servers))
    }

    fn add(&mut self, kind: &str, sender: Sender, to: IpAddr, port: u16) {
        self.push(kind, &query(sender), to, port);
    }

    fn push(&mut self, kind: &str, query: &PacketQuery, to: IpAddr, port: u16) {
        let packet = Packet::of(query, SocketAddr::new(to, port), self.config, self.network);
        let packet = packet.with_defaults(query, self.pod);
        self.rows.push((kind.to_owned(), packet));
    }
}

/// An address of the pod; one for documentation if it has none yet.
pub(super) fn pod_address(config: &CaptureConfig, network: &Network, family: Family) -> IpAddr {
    let excluded = |own: &&InterfaceAddress| {
        !config.traffic.excluded_interfaces.iter().any(|interface| interface.covers(&own.interface))
    };
    let found = addresses(network, family).find(excluded);
    found.map_or_else(|| any_pod(family), |own| own.address)
}

/// The question about all kinds of traffic, or, with a destination, about a packet of this sender.
#[must_use]
pub const fn query(sender: Sender) -> PacketQuery {
    PacketQuery {
        sender,
        destination: None,
        transport: Transport::Tcp,
        source: None,
        source_port: None,
        in_interface: None,
        out_interface: None,
        mark: Mark(0),
        connmark: Mark(0),
        state: ConnectionState::New,
        expected: None,
        output: Output::Text,
        is_diagram: false,
        live: false,
    }
}

/// The question about the connection by which the proxy hands on an inbound request.
pub(super) fn passthrough_query(family: Family) -> PacketQuery {
    let source = match family {
        Family::V4 => PASSTHROUGH_V4.into(),
        Family::V6 => PASSTHROUGH_V6.into(),
    };
    PacketQuery { source: Some(source), out_interface: Some("lo".to_owned()), ..query(Sender::Proxy) }
}

/// Every interface has such an address; no host outside of its link has a route to it.
fn is_link_local_v6(own: &InterfaceAddress) -> bool {
    matches!(own.address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// The addresses of the pod, those on `lo` last.
fn addresses(network: &Network, family: Family) -> impl Iterator<Item = &InterfaceAddress> {
    let own = || network.addresses.iter().filter(move |own| family.has(own.address));
    let on_lo = |own: &&InterfaceAddress| own.interface == "lo";
    own().filter(move |own| !on_lo(own)).chain(own().filter(on_lo).filter(|own| own.is_of_pod()))
}
