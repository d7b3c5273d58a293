//! What is known of a packet whose mark counts, and whether a rule is for it.

use std::net::IpAddr;

use super::carriers::{CONNTRACK, Carrier, Harm, Place, Stage};
use crate::model::{FamilyRules, Fib, Match, Owner, PROXY_LOOPBACK_MARK, Target};
use crate::parse::matches::{Field, FieldMatch, INVALID, Limit, Matches, NEW, name_number};

/// SYN alone, of the flags of TCP.
const SYN: u128 = 2;
const TCP: u128 = 6;

/// Whether a rule is for the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holds {
    No,
    Maybe,
    Yes,
}

/// What is known of a field.
enum Values {
    These(Vec<u128>),
    Except(Vec<u128>),
    Any,
}

impl Values {
    fn holds(&self, test: &FieldMatch) -> Holds {
        match self {
            Self::These(values) => {
                let holds = |value: &u128| test.lists(*value) != test.is_negated;
                match (values.iter().any(holds), values.iter().all(holds)) {
                    (_, true) if !values.is_empty() => Holds::Yes,
                    (true, _) => Holds::Maybe,
                    (false, _) => Holds::No,
                }
            }
            // A test for nothing but what it is not.
            Self::Except(values)
                if test.values.iter().all(|(from, to)| from == to && values.contains(from)) =>
            {
                if test.is_negated { Holds::Yes } else { Holds::No }
            }
            Self::Except(_) | Self::Any => Holds::Maybe,
        }
    }
}

/// Who the proxy is, and where the pod.
#[derive(Debug)]
pub(super) struct Pod {
    uids: Vec<u128>,
    gids: Vec<u128>,
    /// Its addresses, without those of loopback; none if they are not known.
    addresses: Vec<u128>,
}

impl Pod {
    pub(super) fn of(rules: &FamilyRules, fib: Option<&Fib>) -> Self {
        let (mut uids, mut gids) = (Vec::new(), Vec::new());
        let statements = rules.tables.values().flat_map(|table| table.rules()).map(|rule| &rule.statement);
        for statement in statements.filter(|says| says.target == Target::SetMark(PROXY_LOOPBACK_MARK)) {
            for owner in &statement.matcher.owners {
                match owner {
                    Match::Is(Owner::Uid(uid)) => uids.push((*uid).into()),
                    Match::Is(Owner::Gid(gid)) => gids.push((*gid).into()),
                    Match::Not(_) => {}
                }
            }
        }
        let own = fib.into_iter().flat_map(|fib| &fib.addresses).map(|own| own.address);
        let addresses = own.filter(|address| !address.is_loopback()).map(number).collect();
        Self { uids, gids, addresses }
    }

    fn addresses(&self) -> Values {
        if self.addresses.is_empty() { Values::Any } else { Values::These(self.addresses.clone()) }
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// Whether a rule with these matches is for the packet at this place.
pub(super) fn holds(matches: &Matches, carrier: &Carrier, place: Place, pod: &Pod) -> Holds {
    let unknown = if matches.unknown.is_empty() { Holds::Yes } else { Holds::Maybe };
    let tests = matches.known.iter().map(|test| known(test, carrier, place, pod).holds(test));
    tests.fold(unknown, Holds::min)
}

fn known(test: &FieldMatch, carrier: &Carrier, place: Place, pod: &Pod) -> Values {
    let one = |value: u128| Values::These(vec![value]);
    let is_sent = matches!(place.stage, Stage::Output | Stage::Postrouting);
    let interface = |is_on_lo: bool| {
        let lo = name_number(b"lo");
        if is_on_lo { one(lo) } else { Values::Except(vec![lo]) }
    };
    match test.field {
        Field::Protocol => one(TCP),
        Field::InInterface if is_sent => one(0),
        Field::InInterface => interface(carrier.passes_lo),
        // What is marked in the chain is routed again behind it.
        Field::OutInterface if place.stage == Stage::Output => interface(carrier.is_sent_to_lo),
        Field::OutInterface if is_sent => interface(carrier.passes_lo),
        Field::OutInterface => one(0),
        // The proxy of a pod with TPROXY is root, in a group of its own: calls of its users are captured by nat.
        Field::Uid if carrier.is_of_proxy && is_sent => one(0),
        Field::Gid if carrier.is_of_proxy && is_sent => Values::These(pod.gids.clone()),
        Field::Uid if carrier.harm == Harm::OtherCalls && is_sent => Values::Except(pod.uids.clone()),
        Field::Gid if carrier.harm == Harm::OtherCalls && is_sent => Values::Except(pod.gids.clone()),
        Field::Mark => one(carrier.mark.0.into()),
        Field::Connmark => one(carrier.connmark.0.into()),
        Field::State if place.is_before_tracking() => one(INVALID),
        Field::State => Values::These(carrier.states.to_vec()),
        Field::TcpFlags if carrier.states == [NEW] => one(SYN),
        Field::Socket if is_sent => one(1),
        Field::Source if carrier.is_from_pod() => pod.addresses(),
        Field::Destination if carrier.is_to_pod() => pod.addresses(),
        Field::SourceType(Limit::None) => one(carrier.source),
        Field::DestinationType(Limit::None) => one(carrier.destination),
        Field::Source
        | Field::Destination
        | Field::SourceType(_)
        | Field::DestinationType(_)
        | Field::SourcePort
        | Field::DestinationPort
        | Field::EitherPort
        | Field::Uid
        | Field::Gid
        | Field::Socket
        | Field::Connection(..)
        | Field::TcpFlags => Values::Any,
    }
}

impl Place {
    /// What a process sends has no connection yet; on `lo` it brings it along.
    pub(super) fn is_before_tracking(self) -> bool {
        self.stage == Stage::Output && self.priority <= CONNTRACK
    }
}
