//! What rules do with one DNS query, as far as its conntrack entry shows it.

use std::net::IpAddr;

use ipnetwork::IpNetwork;

use super::dns::desired_path;
use crate::model::{Chain, FamilyRules, Match, Matcher, Statement, Target};

/// A query, as its conntrack entry shows it: without its owner.
#[derive(Clone, Copy, Debug)]
pub struct Query<'a> {
    /// The source of the original direction.
    pub source: IpAddr,
    /// The name server.
    pub destination: IpAddr,
    /// The interface by which it leaves, if that is known.
    pub out_interface: Option<&'a str>,
}

/// The rules of one family that DNS queries over UDP meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsRules(Vec<Statement>);

impl DnsRules {
    pub(super) fn of(desired: &FamilyRules) -> Self {
        Self(desired_path(desired).into_iter().flatten().cloned().collect())
    }

    /// Whether a new query like this one is captured; `None` if that depends on its owner, or on an interface
    /// that is not known.
    #[must_use]
    pub fn captures(&self, query: &Query<'_>) -> Option<bool> {
        let Self(rules) = self;
        // What rules do that may be for this query, but are not certain to be.
        let mut possible: Option<bool> = None;
        for rule in rules {
            let captures = match (rule.target, applies(&rule.matcher, query)) {
                (Target::Jump(Chain::Output | Chain::OutputDns), Some(true)) => continue,
                (Target::Jump(Chain::Output | Chain::OutputDns), _) => return None,
                (_, Some(false)) => continue,
                (Target::Redirect(_), _) => true,
                (Target::Return | Target::Accept, _) => false,
                (
                    Target::ConntrackZone(_)
                    | Target::Drop
                    | Target::Jump(_)
                    | Target::RestoreMark
                    | Target::SaveMark
                    | Target::SetMark(_)
                    | Target::Tproxy { .. },
                    _,
                ) => return None,
            };
            if possible.is_some_and(|possible| possible != captures) {
                return None;
            }
            if applies(&rule.matcher, query) == Some(true) {
                return Some(captures);
            }
            possible = Some(captures);
        }
        // No rule behind these captures UDP.
        (possible != Some(true)).then_some(false)
    }
}

/// Whether a rule is for a query; `None` if that is not known.
fn applies(matcher: &Matcher, query: &Query<'_>) -> Option<bool> {
    let Matcher {
        source,
        destination,
        in_interface,
        out_interface,
        protocol,
        ct_state,
        mark,
        connmark,
        owners,
    } = matcher;
    let contains = |networks: &Option<Match<IpNetwork>>, address: IpAddr| match networks {
        None => true,
        Some(Match::Is(network)) => network.contains(address),
        Some(Match::Not(network)) => !network.contains(address),
    };
    let leaves_by_it = match (out_interface, query.out_interface) {
        (None, _) => Some(true),
        (Some(_), None) => None,
        (Some(interface), Some(name)) => Some(interface.covers(name)),
    };
    if !contains(source, query.source)
        || !contains(destination, query.destination)
        || leaves_by_it == Some(false)
    {
        return Some(false);
    }
    let from_any_port = protocol.as_ref().is_none_or(|protocol| protocol.source.is_none());
    let is_known = in_interface.is_none()
        && from_any_port
        && ct_state.is_none()
        && mark.is_none()
        && connmark.is_none()
        && owners.is_empty();
    leaves_by_it.filter(|_| is_known)
}
