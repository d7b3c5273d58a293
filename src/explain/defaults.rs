//! Default values of a packet: a client, a server and a client's port that no foreign rule names and to which
//! routes lead. A value that a rule names is that of few clients, and the report would be theirs.

use std::net::IpAddr;

use super::Pod;
use super::example_addresses::{CLIENTS, SERVERS, any_client, any_server, in_family};
use super::packet::{CLIENT_PORT, Packet};
use super::rules::Rules;
use crate::config::{OutboundRanges, PacketQuery, Sender};
use crate::live_rules::{Field, FieldMatch, address_number};
use crate::model::Family;

/// The last of these, by default (`net.ipv4.ip_local_port_range`).
const LAST_CLIENT_PORT: u16 = 60999;

/// An address outside that no range of the options and no foreign rule names, and to which a route leads.
pub(super) fn default_server(pod: &Pod<'_>, family: Family) -> IpAddr {
    let outbound = &pod.config.traffic.outbound;
    let included: &[_] = if let OutboundRanges::Only(ranges) = &outbound.ranges { ranges } else { &[] };
    let is_open = |candidate: &IpAddr| {
        !outbound.excluded_ranges.iter().chain(included).any(|range| range.contains(*candidate))
    };
    let candidates = SERVERS.into_iter().map(|host| in_family(host, family)).filter(is_open);
    pod.usual(family, candidates).unwrap_or_else(|| any_server(family))
}

/// The default port of the app, and of a server.
pub(super) const ANY_PORT: u16 = 8080;
/// Most ports behind it that are tried in its place, and ports that are tried then: rules name ranges.
const MOST_PORTS: usize = 64;
const OTHER_PORTS: [u16; 6] = [80, 443, 10080, 20080, 40080, 60080];

/// A port of the app, and of a server, that `is_open` takes and no foreign rule names.
pub(super) fn default_port(pod: &Pod<'_>, family: Family, is_open: &dyn Fn(u16) -> bool) -> u16 {
    let tested = pod.live.as_ref().and_then(|live| live.tested.get(&family));
    let open = || (ANY_PORT..).filter(|port| is_open(*port)).take(MOST_PORTS);
    let others = || OTHER_PORTS.into_iter().filter(|port| is_open(*port));
    let untested = open().chain(others()).find(|port| !tested.is_some_and(|tested| tested.has_port(*port)));
    untested.or_else(|| open().next()).unwrap_or(ANY_PORT)
}

impl Pod<'_> {
    /// The first of these addresses that no foreign rule names and to which a route leads; if there is none,
    /// the first one that no foreign rule names, or the first one at all.
    fn usual(&self, family: Family, candidates: impl Iterator<Item = IpAddr> + Clone) -> Option<IpAddr> {
        let tested = self.live.as_ref().and_then(|live| live.tested.get(&family));
        let routing = self.routing(family);
        let is_tested = |address: IpAddr| tested.is_some_and(|tested| tested.has_address(address));
        let untested = { candidates.clone() }.filter(|address| !is_tested(*address));
        let reached = |address: &IpAddr| routing.fib.is_none() || routing.way_to(*address).is_some();
        { untested.clone() }.find(reached).or_else(|| { untested }.next()).or_else(|| { candidates }.next())
    }
}

impl Packet {
    /// The packet with default values that stand for any other, where the question has none; one of the proxy
    /// with the owner that it has in this pod.
    #[must_use]
    pub(super) fn with_defaults(mut self, query: &PacketQuery, pod: &Pod<'_>) -> Self {
        let family = self.family();
        if query.sender == Sender::Proxy {
            self = self.sent_by(query.sender, Some(pod.proxy()));
        }
        let Some(tested) = pod.live.as_ref().and_then(|live| live.tested.get(&family)) else {
            return self;
        };
        if query.source_port.is_none() {
            let is_untested = |port: &u16| !tested.has_port(*port);
            let port = (CLIENT_PORT..=LAST_CLIENT_PORT).step_by(97).find(is_untested);
            self.source.set_port(port.unwrap_or(CLIENT_PORT));
        }
        if query.source.is_none() && self.is_inbound {
            let clients = CLIENTS.into_iter().map(|host| in_family(host, family));
            self.source.set_ip(pod.usual(family, clients).unwrap_or_else(|| any_client(family)));
        }
        self
    }
}

/// What foreign rules test of addresses and ports, at either end, and whether one tests an owner.
#[derive(Clone, Debug, Default)]
pub struct TestedFields {
    addresses: Vec<FieldMatch>,
    ports: Vec<FieldMatch>,
    pub(super) has_owner: bool,
}

impl TestedFields {
    /// What those of a family test.
    #[must_use]
    pub fn by(rules: &Rules) -> Self {
        let mut tested = Self::default();
        for (_, entry) in rules.foreign() {
            tested.has_owner |= entry.rule.tests_owner();
            for test in entry.rule.tests().iter() {
                match test.field {
                    Field::Source | Field::Destination => tested.addresses.push(test.clone()),
                    Field::SourcePort | Field::DestinationPort | Field::EitherPort => {
                        tested.ports.push(test.clone());
                    }
                    Field::Protocol
                    | Field::InInterface
                    | Field::OutInterface
                    | Field::Uid
                    | Field::Gid
                    | Field::Socket
                    | Field::Mark
                    | Field::Connmark
                    | Field::State
                    | Field::Connection(..)
                    | Field::TcpFlags
                    | Field::SourceType(_)
                    | Field::DestinationType(_)
                    | Field::ReversePath(_)
                    | Field::ExtensionHeader => {}
                }
            }
        }
        tested
    }

    fn has_address(&self, address: IpAddr) -> bool {
        let number = address_number(address);
        self.addresses.iter().any(|test| test.lists(number))
    }

    fn has_port(&self, port: u16) -> bool {
        self.ports.iter().any(|test| test.lists(port.into()))
    }
}
