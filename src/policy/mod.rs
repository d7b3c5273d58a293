//! Turns the capture configuration into rules: those that Istio's sidecar needs, in the order of the contract.
//!
//! This is the only place that defines rules. Each concern has its own file; [`ruleset`] shows their order, which is
//! part of their meaning: within a chain the first rule that matches decides.

mod dns;
mod from_rules;
mod inbound;
mod interfaces;
mod outbound;
mod owners;
mod tproxy;

use std::net::Ipv6Addr;

use ipnetwork::{Ipv4Network, Ipv6Network};

use crate::config::CaptureConfig;
use crate::model::{Address, Matcher, Owner, PASSTHROUGH_V4, PASSTHROUGH_V6, Ruleset};

pub use from_rules::config_from;

/// The rules for `config`.
#[must_use]
pub fn ruleset(config: &CaptureConfig) -> Ruleset {
    let mut rules = Ruleset::new(config.families);
    // Before everything else in the hook chains: what is excluded here is not even looked at.
    interfaces::exclude(config, &mut rules);
    interfaces::exclude_virtual_interfaces_from_inbound(config, &mut rules);
    inbound::drop_invalid(config, &mut rules);
    inbound::redirects(config, &mut rules);
    // In the mangle chain its early returns come before the rules that capture connections.
    tproxy::skip_proxied_packets(config, &mut rules);
    inbound::capture(config, &mut rules);
    outbound::enter(&mut rules);
    outbound::exclude_ports(config, &mut rules);
    outbound::passthrough(&mut rules);
    // The proxy's own traffic must leave the chain before DNS and the included ranges could take it: no loop.
    owners::proxy(config, &mut rules);
    owners::groups(config, &mut rules);
    dns::capture(config, &mut rules);
    outbound::loopback(config, &mut rules);
    outbound::exclude_ranges(config, &mut rules);
    outbound::include_ports(config, &mut rules);
    outbound::include_ranges(config, &mut rules);
    tproxy::carry_marks(config, &mut rules);
    rules
}

/// The empty matcher: matches every packet.
fn when() -> Matcher<Address> {
    Matcher::default()
}

/// The loopback range that is meant for the app.
fn loopback(config: &CaptureConfig) -> Address {
    Address::Pair { v4: config.traffic.loopback_v4, v6: Ipv6Network::from(Ipv6Addr::LOCALHOST) }
}

/// The source of what the proxy hands to the app.
fn passthrough() -> Address {
    Address::Pair { v4: Ipv4Network::from(PASSTHROUGH_V4), v6: Ipv6Network::from(PASSTHROUGH_V6) }
}

/// The proxy's users, then its groups.
fn proxy_owners(config: &CaptureConfig) -> impl Iterator<Item = Owner> {
    let uids = config.traffic.proxy.uids.iter().map(|uid| Owner::Uid(*uid));
    uids.chain(config.traffic.proxy.gids.iter().map(|gid| Owner::Gid(*gid)))
}
