//! Why a live rule of ours exists: by its chain and form, since the tables of iptables keep no reasons.
//!
//! The other direction is [`crate::policy`]. The test at the end takes it through all rules of many options.

use crate::model::{Chain, Hook, Match, Matcher, Owner, Statement, Table, Target, Why};
use crate::parse::ObservedTable;

/// The reason for a rule of ours in a shared chain.
pub(super) fn why_in_hook(hook: Hook, Statement { matcher, target }: &Statement) -> Option<Why> {
    Some(match (*target, hook) {
        (Target::Jump(Chain::Inbound), _) if matcher.protocol.is_some() => Why::InboundTraffic,
        (Target::Jump(Chain::Inbound | Chain::OutputDns), _) => Why::DnsTraffic,
        (Target::Jump(Chain::Output), _) => Why::OutboundTraffic,
        (Target::Jump(Chain::Drop), _) => Why::InvalidPacket,
        (Target::Jump(Chain::Redirect), _) => Why::VirtualInterfaceOutbound,
        (Target::SaveMark, _) => Why::SaveMark,
        (Target::RestoreMark, _) => Why::RestoreMark,
        (Target::SetMark(_), _) => Why::ProxyLoopbackMark,
        (Target::Return, Hook::Output) if matcher.mark.is_some() => Why::MarkedLoopback,
        (Target::Return, Hook::Output) => Why::ExcludedInterfaceOut,
        // That of a virtual interface has the same form.
        (Target::Return, Hook::Prerouting) => Why::ExcludedInterfaceIn,
        _ => return None,
    })
}

/// Whether packets that leave by the interface of this rule are not captured either.
pub(super) fn has_outbound_half(table: &ObservedTable, inbound: &Statement) -> bool {
    let matcher = Matcher {
        in_interface: None,
        out_interface: inbound.matcher.in_interface.clone(),
        ..Matcher::default()
    };
    let outbound = Statement { matcher, target: Target::Return };
    table.hook(Hook::Output).iter().any(|line| line.statement.as_ref() == Some(&outbound))
}

/// The reason for rule number `at` of a chain of ours.
pub(super) fn why_in_chain(
    (table, chain): (Table, Chain),
    at: usize,
    statement: &Statement,
    proxy: &[Owner],
) -> Option<Why> {
    let Statement { matcher, target } = statement;
    let has_port = has_port(matcher);
    Some(match (chain, *target) {
        (_, Target::ConntrackZone(_)) => zone(chain, matcher),
        (Chain::Redirect, Target::Redirect(_)) => Why::ToOutboundPort,
        (Chain::InRedirect, Target::Redirect(_)) => Why::ToInboundPort,
        (Chain::OutputDns, Target::Redirect(_)) => Why::DnsToProxy,
        (Chain::Tproxy, Target::Tproxy { .. }) => Why::TransparentProxy,
        (Chain::Divert, Target::SetMark(_)) => Why::DivertMark,
        (Chain::Divert, Target::Accept) => Why::DivertAccept,
        (Chain::Drop, Target::Drop) => Why::DropInvalid,
        (Chain::Drop, Target::Return) => Why::InvalidDuringCapture,
        (Chain::Redirect | Chain::InRedirect | Chain::Tproxy | Chain::OutputDns, Target::Return) => {
            let has_flags = matcher.protocol.as_ref().is_some_and(|protocol| protocol.syn.is_some());
            if has_flags { Why::SegmentDuringCapture } else { Why::OpenConnection }
        }
        (Chain::Established, _) => Why::KeepsTranslation,
        (Chain::Inbound, Target::Return) => match matcher {
            Matcher { source: Some(_), .. } => Why::PassthroughSource,
            Matcher { mark: Some(Match::Is(_)), .. } => Why::AlreadyMarked,
            Matcher { mark: Some(Match::Not(_)), .. } => Why::OtherLoopback,
            _ if table == Table::Nat && at == 0 => Why::TunnelPort,
            _ => Why::ExcludedInboundPort,
        },
        (Chain::Inbound, Target::Jump(Chain::Divert)) => Why::KnownInboundConnection,
        (Chain::Inbound, Target::Jump(_)) if has_port => Why::IncludedInboundPort,
        (Chain::Inbound, Target::Jump(_)) => Why::EveryInboundPort,
        (Chain::Output, target) => return outbound(matcher, target, proxy),
        _ => return None,
    })
}

/// The reason for a rule of `ISTIO_OUTPUT`.
fn outbound(matcher: &Matcher, target: Target, proxy: &[Owner]) -> Option<Why> {
    Some(match (target, matcher) {
        (Target::Jump(Chain::InRedirect), _) => Why::ProxyCallsItself,
        (Target::Jump(Chain::OutputDns), _) => Why::DnsTraffic,
        (Target::Jump(Chain::Redirect), Matcher { destination: Some(_), .. }) => Why::IncludedRange,
        (Target::Jump(Chain::Redirect), matcher) if has_port(matcher) => Why::IncludedOutboundPort,
        (Target::Jump(Chain::Redirect), _) => Why::EveryRange,
        (Target::Return, Matcher { source: Some(_), .. }) => Why::InboundPassthrough,
        (Target::Return, Matcher { destination: Some(test), .. }) => {
            if test.value().ip().is_loopback() {
                Why::LoopbackDestination
            } else {
                Why::ExcludedRange
            }
        }
        (Target::Return, Matcher { out_interface: Some(_), .. }) => Why::AppLoopback,
        (Target::Return, Matcher { owners, .. }) => match owners.as_slice() {
            [Match::Is(owner)] if proxy.contains(owner) => Why::ProxyTraffic,
            [Match::Is(_)] => Why::ExcludedOwnerGroup,
            [] => Why::ExcludedOutboundPort,
            _ => Why::OtherOwnerGroups,
        },
        _ => return None,
    })
}

/// The reason for a rule that puts DNS into a zone of connection tracking.
fn zone(chain: Chain, matcher: &Matcher) -> Why {
    let is_reply = matcher.protocol.as_ref().is_some_and(|protocol| protocol.source.is_some());
    match (chain, is_reply, matcher.owners.is_empty()) {
        (Chain::Inbound, ..) => Why::DnsZoneServerResponse,
        (_, true, _) => Why::DnsZoneProxyResponse,
        (_, false, true) => Why::DnsZoneAppQuery,
        (_, false, false) => Why::DnsZoneProxyQuery,
    }
}

fn has_port(matcher: &Matcher) -> bool {
    matcher.protocol.as_ref().is_some_and(|protocol| protocol.destination.is_some())
}

/// The users and groups of the proxy: those whose calls to the pod's own address are inbound traffic.
pub(super) fn proxy_owners<'a>(output: impl Iterator<Item = &'a Statement>) -> Vec<Owner> {
    let own = output.filter(|statement| statement.target == Target::Jump(Chain::InRedirect));
    own.flat_map(|statement| &statement.matcher.owners).map(|owner| *owner.value()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::config_of;
    use crate::model::Family;
    use crate::policy;

    #[test]
    fn reason_of_each_rule_is_found_by_its_form() {
        for options in [
            "-i * -b * -d 15020,80 -x 10.96.0.0/12 -o 9000 -q 443 -c eth1 --redirect-dns --drop-invalid",
            "-i 10.0.0.0/8,fd00::/8 -b 80,443 -u 1337,5 -g 7 --capture-all-dns --redirect-dns --dual-stack",
            "-i * -b * -d 15020 -m TPROXY -c eth1 --dual-stack",
            "-b 80,81 -m TPROXY --drop-invalid",
        ] {
            let config = config_of(options);
            for family in Family::ALL {
                let rules = policy::ruleset(&config).resolve(family);
                for (table, rules) in &rules.tables {
                    let output = rules.chains.get(&Chain::Output);
                    let proxy = proxy_owners(output.into_iter().flatten().map(|rule| &rule.statement));
                    for (hook, rules) in &rules.hooks {
                        for rule in rules.iter() {
                            assert_eq!(
                                why_in_hook(*hook, &rule.statement),
                                Some(rule.why),
                                "{options}: {rule:?}"
                            );
                        }
                    }
                    for (chain, rules) in &rules.chains {
                        for (at, rule) in rules.iter().enumerate() {
                            let why = why_in_chain((*table, *chain), at, &rule.statement, &proxy);
                            assert_eq!(why, Some(rule.why), "{options}: {rule:?}");
                        }
                    }
                }
            }
        }
    }
}
