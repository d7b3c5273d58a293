//! Outbound capture.

use super::when;
use crate::config::{CaptureConfig, OutboundRanges};
use crate::model::{Address, Chain, Hook, Interface, Protocol, Ruleset, Table, Target, Transport, Why};

/// Everything that a process of the pod sends goes through our chain, also UDP: the chain decides.
pub(super) fn enter(rules: &mut Ruleset) {
    let jump = when().then(Target::Jump(Chain::Output), Why::OutboundTraffic);
    rules.hook_tail(Table::Nat, Hook::Output, jump);
}

/// An excluded port is not captured, whichever user sends to it.
pub(super) fn exclude_ports(config: &CaptureConfig, rules: &mut Ruleset) {
    for port in &config.traffic.outbound.excluded_ports {
        for transport in [Transport::Tcp, Transport::Udp] {
            let rule = when().protocol(Protocol::to(transport, *port));
            rules.append(Table::Nat, Chain::Output, rule.then(Target::Return, Why::ExcludedOutboundPort));
        }
    }
}

/// What the proxy hands to the app over loopback must not come back to the proxy.
pub(super) fn passthrough(rules: &mut Ruleset) {
    let rule = when().source(super::passthrough()).via_out(Interface::loopback());
    rules.append(Table::Nat, Chain::Output, rule.then(Target::Return, Why::InboundPassthrough));
}

/// Traffic to the loopback range that the rules on owners and on DNS have not decided.
pub(super) fn loopback(config: &CaptureConfig, rules: &mut Ruleset) {
    let rule = when().to(super::loopback(config)).then(Target::Return, Why::LoopbackDestination);
    rules.append(Table::Nat, Chain::Output, rule);
}

/// Takes precedence over every inclusion.
pub(super) fn exclude_ranges(config: &CaptureConfig, rules: &mut Ruleset) {
    for range in &config.traffic.outbound.excluded_ranges {
        let rule = when().to(Address::Net(*range)).then(Target::Return, Why::ExcludedRange);
        rules.append(Table::Nat, Chain::Output, rule);
    }
}

/// Captures these ports also where their range is not captured.
pub(super) fn include_ports(config: &CaptureConfig, rules: &mut Ruleset) {
    for port in &config.traffic.outbound.ports {
        let rule = when().protocol(Protocol::to(Transport::Tcp, *port));
        rules.append(
            Table::Nat,
            Chain::Output,
            rule.then(Target::Jump(Chain::Redirect), Why::IncludedOutboundPort),
        );
    }
}

/// Traffic that no rule above matched. A KubeVirt guest's packets do not pass the output hook, so the same
/// ranges are put at the head of the prerouting hook for its interface.
pub(super) fn include_ranges(config: &CaptureConfig, rules: &mut Ruleset) {
    let redirect = Target::Jump(Chain::Redirect);
    match &config.traffic.outbound.ranges {
        OutboundRanges::None => {}
        OutboundRanges::All => {
            rules.append(Table::Nat, Chain::Output, when().then(redirect, Why::EveryRange));
            let redirects = config.traffic.virtual_interfaces.iter().map(|interface| {
                when().via_in(interface.clone()).then(redirect, Why::VirtualInterfaceOutbound)
            });
            rules.hook_heads(Table::Nat, Hook::Prerouting, redirects.collect());
        }
        OutboundRanges::Only(ranges) => {
            let mut redirects = Vec::new();
            for range in ranges {
                let to_range = when().to(Address::Net(*range));
                for interface in &config.traffic.virtual_interfaces {
                    let from_guest = to_range.clone().via_in(interface.clone());
                    redirects.push(from_guest.then(redirect, Why::VirtualInterfaceOutbound));
                }
                rules.append(Table::Nat, Chain::Output, to_range.then(redirect, Why::IncludedRange));
            }
            rules.hook_heads(Table::Nat, Hook::Prerouting, redirects);
        }
    }
}
