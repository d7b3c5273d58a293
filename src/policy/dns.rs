//! DNS capture: queries go to the proxy's DNS port.
//!
//! The app and the proxy may send queries from the same UDP source port to the same server. In a single
//! conntrack zone the second query would match the entry of the first and be translated like it. So each leg
//! is tracked in its own zone: zone 2 has app ↔ proxy, zone 1 has proxy ↔ server. Each leg needs a rule for
//! each direction.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnetwork::{Ipv4Network, Ipv6Network};

use super::{proxy_owners, when};
use crate::config::{CaptureConfig, Dns};
use crate::model::{
    APP_TO_PROXY_ZONE, Address, Chain, DNS_CAPTURE_PORT, DNS_PORT, Family, Hook, Match, Matcher,
    PROXY_TO_SERVER_ZONE, Protocol, Rule, Ruleset, Table, Target, Transport, Why,
};

const PROXY_TO_SERVER: Target = Target::ConntrackZone(PROXY_TO_SERVER_ZONE);
const APP_TO_PROXY: Target = Target::ConntrackZone(APP_TO_PROXY_ZONE);

/// DNS capture: redirects and conntrack zones.
pub(super) fn capture(config: &CaptureConfig, rules: &mut Ruleset) {
    let servers = match &config.dns {
        Dns::Off => return,
        Dns::All => Servers::Every,
        Dns::Servers { v4, v6 } => Servers::Listed(listed(v4, v6)),
    };
    let jump = when().then(Target::Jump(Chain::OutputDns), Why::DnsTraffic);
    rules.hook_tail(Table::Raw, Hook::Output, jump.clone());
    for jump in servers.in_families(&jump) {
        rules.append(Table::Nat, Chain::Output, jump);
    }
    for transport in [Transport::Tcp, Transport::Udp] {
        for server in servers.each() {
            let query = to(server).protocol(Protocol::to(transport, DNS_PORT));
            let rule = query.then(Target::Redirect(DNS_CAPTURE_PORT), Why::DnsToProxy);
            rules.append(Table::Nat, Chain::OutputDns, rule);
        }
    }
    zones(config, &servers, rules);
}

/// The zones of the proxy come first: its packets fit the rules for the app's as well. CT is not the last
/// word, but the first zone that is set stays.
fn zones(config: &CaptureConfig, servers: &Servers, rules: &mut Ruleset) {
    for owner in proxy_owners(config) {
        let query = when().protocol(Protocol::to(Transport::Udp, DNS_PORT)).by(Match::Is(owner));
        rules.append(Table::Raw, Chain::OutputDns, query.then(PROXY_TO_SERVER, Why::DnsZoneProxyQuery));
        let response = when().protocol(Protocol::from(Transport::Udp, DNS_CAPTURE_PORT)).by(Match::Is(owner));
        rules.append(Table::Raw, Chain::OutputDns, response.then(APP_TO_PROXY, Why::DnsZoneProxyResponse));
    }
    let jump = when().then(Target::Jump(Chain::Inbound), Why::DnsTraffic);
    for jump in servers.in_families(&jump) {
        rules.hook_tail(Table::Raw, Hook::Prerouting, jump);
    }
    for server in servers.each() {
        let query = to(server).protocol(Protocol::to(Transport::Udp, DNS_PORT));
        rules.append(Table::Raw, Chain::OutputDns, query.then(APP_TO_PROXY, Why::DnsZoneAppQuery));
        let response = server.map_or_else(when, |server| when().source(server));
        let response = response.protocol(Protocol::from(Transport::Udp, DNS_PORT));
        rules.append(Table::Raw, Chain::Inbound, response.then(PROXY_TO_SERVER, Why::DnsZoneServerResponse));
    }
}

fn to(server: Option<Address>) -> Matcher<Address> {
    server.map_or_else(when, |server| when().to(server))
}

enum Servers {
    Every,
    Listed(Vec<Address>),
}

impl Servers {
    /// Each server, or once no address at all.
    fn each(&self) -> impl Iterator<Item = Option<Address>> {
        match self {
            Self::Every => vec![None],
            Self::Listed(servers) => servers.iter().copied().map(Some).collect(),
        }
        .into_iter()
    }

    /// `rule` in the families that have a server.
    fn in_families(&self, rule: &Rule<Address>) -> Vec<Rule<Address>> {
        let Self::Listed(servers) = self else {
            return vec![rule.clone()];
        };
        let has = |family: Family| {
            servers.iter().any(|server| matches!(server, Address::Net(net) if family.holds(net)))
        };
        match (has(Family::V4), has(Family::V6)) {
            (true, true) => vec![rule.clone()],
            (true, false) => vec![Rule { only: Some(Family::V4), ..rule.clone() }],
            (false, true) => vec![Rule { only: Some(Family::V6), ..rule.clone() }],
            (false, false) => Vec::new(),
        }
    }
}

fn listed(v4: &[Ipv4Addr], v6: &[Ipv6Addr]) -> Vec<Address> {
    let v4 = v4.iter().map(|server| Address::Net(Ipv4Network::from(*server).into()));
    let v6 = v6.iter().map(|server| Address::Net(Ipv6Network::from(*server).into()));
    v4.chain(v6).collect()
}
