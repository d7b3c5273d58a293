//! Turns the capture configuration into rules: those that Istio's sidecar needs, in the order of Istio's
//! binary.
//!
//! This is the only place that defines rules. Each concern has its own file; [`ruleset`] shows their order,
//! which is part of their meaning: within a chain the first rule that matches decides. `tests/policy.rs`
//! fails if a rule moves.

mod compact;
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

pub use compact::compact;
pub use from_rules::config_from;

/// The rules for `config`.
#[must_use]
pub fn ruleset(config: &CaptureConfig) -> Ruleset {
    let mut rules = Ruleset::new(config.families);
    // PREROUTING and OUTPUT. The excluded interfaces come first: a jump before them would capture their
    // traffic.
    interfaces::exclude(config, &mut rules);
    // Heads of nat PREROUTING: those of `include_ranges` go in front. Added after them, this RETURN would be
    // first, and no packet of a guest would be captured.
    interfaces::exclude_virtual_interfaces_from_inbound(config, &mut rules);
    // Before TPROXY, which would hand an INVALID packet to the proxy.
    inbound::drop_invalid(config, &mut rules);
    // ISTIO_INBOUND. The tunnel port (nat) and what the proxy has already (mangle) leave it first: after the
    // ports to capture, the one would be redirected, and the other handed to the proxy in a loop.
    inbound::redirects(config, &mut rules);
    tproxy::skip_proxied_packets(config, &mut rules);
    inbound::capture(config, &mut rules);
    // ISTIO_OUTPUT. Its jump comes after the excluded interfaces, see above.
    outbound::enter(&mut rules);
    // After the owners, a call of the proxy to an excluded port of its own pod would be captured as inbound.
    outbound::exclude_ports(config, &mut rules);
    // After the owners, what the proxy hands to the app would go to the proxy's inbound port: a loop.
    outbound::passthrough(&mut rules);
    // After DNS or the ranges, they would capture the proxy's own traffic: a loop.
    owners::proxy(config, &mut rules);
    // Before the proxy, "only these groups" would exempt its calls to its own pod; after DNS, an excluded
    // group's queries would be captured.
    owners::groups(config, &mut rules);
    // After the next two, queries to a name server on loopback or in an excluded range would bypass the
    // proxy.
    dns::capture(config, &mut rules);
    // After the included ports and ranges, neither would have an effect on what these capture.
    outbound::loopback(config, &mut rules);
    outbound::exclude_ranges(config, &mut rules);
    // Exchanged, these two would capture the same; the order is Istio's.
    outbound::include_ports(config, &mut rules);
    outbound::include_ranges(config, &mut rules);
    // mangle PREROUTING and OUTPUT: after the excluded interfaces, whose packets get none of these marks.
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
