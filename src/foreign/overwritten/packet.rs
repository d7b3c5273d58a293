//! Whether a foreign rule matches a packet on one of the mark paths.

use std::net::IpAddr;

use super::super::Stage;
use super::mark_paths::{Affected, MarkPath, Position};
use crate::live_rules::{Field, FieldMatch, INVALID, Limit, LiveRule, NEW, name_number};
use crate::model::{CONNTRACK_PRIORITY, FamilyRules, Fib, Match, Owner, PROXY_LOOPBACK_MARK, Target};

/// SYN alone, of the flags of TCP.
const SYN: u128 = 2;
const TCP: u128 = 6;

/// Whether a rule matches the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Holds {
    No,
    Maybe,
    Yes,
}

/// The possible values of a field.
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
            // All values that the test accepts are excluded.
            Self::Except(values)
                if test.values.iter().all(|(from, to)| from == to && values.contains(from)) =>
            {
                if test.is_negated { Holds::Yes } else { Holds::No }
            }
            Self::Except(_) | Self::Any => Holds::Maybe,
        }
    }
}

/// The proxy's ids and the pod's addresses.
#[derive(Debug)]
pub(super) struct Pod {
    uids: Vec<u128>,
    gids: Vec<u128>,
    /// The pod's addresses without loopback; empty: unknown.
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

/// Whether a rule applies to the packet at this position.
pub(super) fn holds(rule: &LiveRule, path: &MarkPath, position: Position, pod: &Pod) -> Holds {
    let unknown = if rule.unread().is_empty() { Holds::Yes } else { Holds::Maybe };
    let tests = rule.tests();
    tests.iter().map(|test| known(test, path, position, pod).holds(test)).fold(unknown, Holds::min)
}

fn known(test: &FieldMatch, path: &MarkPath, position: Position, pod: &Pod) -> Values {
    let one = |value: u128| Values::These(vec![value]);
    let is_sent = position.stage.is_sent();
    let interface = |is_on_lo: bool| {
        let lo = name_number(b"lo");
        if is_on_lo { one(lo) } else { Values::Except(vec![lo]) }
    };
    match test.field {
        Field::Protocol => one(TCP),
        Field::InInterface if is_sent => one(0),
        Field::InInterface => interface(path.passes_lo),
        // A packet that is marked in OUTPUT is routed again behind the chain, so it still has its first
        // interface.
        Field::OutInterface if position.stage == Stage::Output => interface(path.is_sent_to_lo),
        Field::OutInterface if is_sent => interface(path.passes_lo),
        Field::OutInterface => one(0),
        // With TPROXY the proxy runs as root with the proxy's gid; self-calls of the proxy's uids are
        // captured in nat.
        Field::Uid if path.is_of_proxy && is_sent => one(0),
        Field::Gid if path.is_of_proxy && is_sent => Values::These(pod.gids.clone()),
        Field::Uid if path.affected == Affected::OtherCalls && is_sent => Values::Except(pod.uids.clone()),
        Field::Gid if path.affected == Affected::OtherCalls && is_sent => Values::Except(pod.gids.clone()),
        Field::Mark => one(path.mark.0.into()),
        Field::Connmark => one(path.connmark.0.into()),
        Field::State if position.is_before_tracking() => one(INVALID),
        Field::State => Values::These(path.states.to_vec()),
        Field::TcpFlags if path.states == [NEW] => one(SYN),
        Field::Socket if is_sent => one(1),
        Field::Source if path.is_from_pod() => pod.addresses(),
        Field::Destination if path.is_to_pod() => pod.addresses(),
        Field::SourceType(Limit::None) => one(path.source),
        Field::DestinationType(Limit::None) => one(path.destination),
        Field::ExtensionHeader => one(0),
        Field::Source
        | Field::Destination
        | Field::ReversePath(_)
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

impl Position {
    /// Before connection tracking in OUTPUT; on `lo` packets arrive with their conntrack entry.
    pub(super) fn is_before_tracking(self) -> bool {
        self.stage == Stage::Output && self.priority <= CONNTRACK_PRIORITY
    }
}
