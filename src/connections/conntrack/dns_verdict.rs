//! What rules do with one DNS query, as far as its conntrack entry shows it.

use std::net::IpAddr;

use super::dns::desired_path;
use crate::live_rules::{Field, FieldMatch, address_number, all_hold, name_number};
use crate::model::{Chain, DNS_PORT, FamilyRules, Target};

/// `IPPROTO_UDP`.
const UDP: u128 = 17;

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
pub struct DnsRules(Vec<(Vec<FieldMatch>, Target)>);

impl DnsRules {
    pub(super) fn of(desired: &FamilyRules) -> Self {
        let rules = desired_path(desired).into_iter().flatten();
        Self(rules.map(|rule| ((&rule.matcher).into(), rule.target)).collect())
    }

    /// Whether a new query like this one is captured; `None` if that depends on its owner, or on an interface
    /// that is not known.
    #[must_use]
    pub fn captures(&self, query: &Query<'_>) -> Option<bool> {
        let Self(rules) = self;
        // What rules do that may be for this query, but are not certain to be.
        let mut possible: Option<bool> = None;
        for (tests, target) in rules {
            let applies = applies(tests, query);
            let captures = match (target, applies) {
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
            if applies == Some(true) {
                return Some(captures);
            }
            possible = Some(captures);
        }
        // No rule behind these captures UDP.
        (possible != Some(true)).then_some(false)
    }
}

/// Whether a rule is for a query; `None` if that is not known.
fn applies(tests: &[FieldMatch], query: &Query<'_>) -> Option<bool> {
    all_hold(tests, |field| match field {
        Field::Source => Some(address_number(query.source)),
        Field::Destination => Some(address_number(query.destination)),
        Field::OutInterface => query.out_interface.map(|name| name_number(name.as_bytes())),
        Field::InInterface => Some(0),
        Field::Protocol => Some(UDP),
        Field::DestinationPort => Some(DNS_PORT.number().into()),
        Field::SourcePort
        | Field::EitherPort
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
        | Field::ExtensionHeader => None,
    })
}
