//! The tests of a rule, as sets of values of fields.

use ipnetwork::IpNetwork;

use super::field::{
    ESTABLISHED, FROM_OUTSIDE, Field, INSIDE, INVALID, MAX_U32, TCP, UDP, interfaces, network,
};
use super::program::Test;
use super::set::{Range, Set};
use crate::live_rules::{self as matches, FieldMatch, Limit, Reading};
use crate::model::{CtState, Mark, Match, Matcher, Owner, Ports, Protocol, Transport};

/// The tests of a matcher. Those of the owner fail without a socket in nftables, negated or not.
pub(super) fn matcher_tests(matcher: &Matcher, is_native: bool) -> Vec<Test> {
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
    // First what has few values: classes are split the least by it.
    let mut tests = Vec::new();
    tests.extend(
        protocol.iter().map(|protocol| is(Field::Protocol, Set::one(protocol_number(protocol.transport)))),
    );
    tests.extend(in_interface.iter().map(|name| is(Field::InInterface, interfaces(name))));
    tests.extend(out_interface.iter().map(|name| is(Field::OutInterface, interfaces(name))));
    tests.extend(ct_state.map(|state| {
        is(
            Field::State,
            Set::one(match state {
                CtState::Invalid => INVALID,
                CtState::RelatedOrEstablished => ESTABLISHED,
            }),
        )
    }));
    tests.extend(mark.map(|mark| of(Field::Mark, mark.map(|Mark(mark)| Set::one(mark.into())))));
    tests.extend(connmark.map(|Mark(mark)| is(Field::Connmark, Set::one(mark.into()))));
    tests.extend(owners.iter().map(|owner| {
        let (field, id) = match *owner.value() {
            Owner::Uid(uid) => (Field::Uid, uid),
            Owner::Gid(gid) => (Field::Gid, gid),
        };
        match owner.map(|_| Set::one(id.into())) {
            Match::Not(one) if is_native => is(field, one.complement().and(&Set::range(0, MAX_U32))),
            test @ (Match::Is(_) | Match::Not(_)) => of(field, test),
        }
    }));
    if let Some(Protocol { transport: _, source, destination, syn }) = protocol {
        tests.extend(source.map(|port| is(Field::SourcePort, Set::one(port.number().into()))));
        tests.extend(destination.iter().map(|test| match test {
            Match::Is(ports) => is(Field::DestinationPort, port_set(ports)),
            Match::Not(ports) => Test::new(Field::DestinationPort, port_set(ports), true),
        }));
        tests.extend(syn.map(|syn| of(Field::Syn, syn.map(|_| Set::one(1)))));
    }
    let address = |test: Match<IpNetwork>| test.map(|range| Set::of(vec![network(range)]));
    tests.extend(source.map(|test| of(Field::Source, address(test))));
    tests.extend(destination.map(|test| of(Field::Destination, address(test))));
    tests
}

fn is(field: Field, values: Set) -> Test {
    Test::new(field, values, false)
}

fn of(field: Field, test: Match<Set>) -> Test {
    match test {
        Match::Is(values) => Test::new(field, values, false),
        Match::Not(values) => Test::new(field, values, true),
    }
}

const fn protocol_number(transport: Transport) -> u128 {
    match transport {
        Transport::Tcp => TCP,
        Transport::Udp => UDP,
    }
}

fn port_set(ports: &Ports) -> Set {
    let ports = match ports {
        Ports::One(port) => std::slice::from_ref(port),
        Ports::Any(ports) => ports,
    };
    Set::of(ports.iter().map(|port| (port.number().into(), port.number().into())).collect())
}

/// The tests of a rule for which the model lacks terms, and whether it has others that cannot be evaluated.
pub(super) fn reading_tests(reading: &Reading, is_native: bool) -> (Vec<Test>, bool) {
    let mut is_unknown = !reading.unread.is_empty();
    let mut tests = Vec::new();
    for test in &reading.tests {
        match values_of(test) {
            Some((field @ (Field::Uid | Field::Gid), values)) if test.is_negated && is_native => {
                tests.push(is(field, values.complement().and(&Set::range(0, MAX_U32))));
            }
            Some((field, values)) => tests.push(Test::new(field, values, test.is_negated)),
            None => is_unknown = true,
        }
    }
    (tests, is_unknown)
}

/// The field and its values; `None` if classes of packets do not tell them.
fn values_of(test: &FieldMatch) -> Option<(Field, Set)> {
    use matches::Field as Tested;
    let values = || Set::of(test.values.clone());
    Some(match test.field {
        // The set of a mask that is no prefix is too large.
        Tested::Source | Tested::Destination if test.mask != u128::MAX => return None,
        Tested::Protocol => (Field::Protocol, values()),
        Tested::Source => (Field::Source, values()),
        Tested::Destination => (Field::Destination, values()),
        Tested::SourcePort => (Field::SourcePort, values()),
        Tested::DestinationPort => (Field::DestinationPort, values()),
        Tested::InInterface => (Field::InInterface, values()),
        Tested::OutInterface => (Field::OutInterface, values()),
        Tested::Uid => (Field::Uid, values()),
        Tested::Gid => (Field::Gid, values()),
        Tested::Socket => (Field::Uid, Set::range(0, MAX_U32)),
        Tested::Mark => (Field::Mark, masked(test.mask, &test.values)?),
        Tested::Connmark => (Field::Connmark, masked(test.mask, &test.values)?),
        Tested::State => (Field::State, states(test)?),
        Tested::TcpFlags if test.mask == 0x17 && test.values == [(2, 2)] => (Field::Syn, Set::one(1)),
        // Where a packet goes is known where it was sent; of what arrives, too.
        Tested::DestinationType(Limit::None) if test.values == [(matches::LOCAL, matches::LOCAL)] => {
            (Field::Path, Set::one(FROM_OUTSIDE).or(&Set::one(INSIDE)))
        }
        Tested::TcpFlags
        | Tested::EitherPort
        | Tested::Connection(..)
        | Tested::SourceType(_)
        | Tested::DestinationType(_)
        | Tested::ReversePath(_)
        | Tested::ExtensionHeader => return None,
    })
}

/// Marks with these bits; `None` if that are too many ranges.
fn masked(mask: u128, values: &[Range]) -> Option<Set> {
    const MOST_BITS: u32 = 12;
    if mask == MAX_U32 {
        return Some(Set::of(values.to_vec()));
    }
    let low = mask.trailing_zeros().min(u32::BITS);
    let free: Vec<u128> = (low..u32::BITS).map(|bit| 1 << bit).filter(|bit| mask & bit == 0).collect();
    let is_small = u32::try_from(free.len()).is_ok_and(|bits| bits <= MOST_BITS);
    let single = |(first, last): &Range| (first == last).then_some(*first);
    let mut firsts: Vec<u128> = values.iter().map(single).collect::<Option<_>>().filter(|_| is_small)?;
    for bit in free {
        let with_bit: Vec<u128> = firsts.iter().map(|first| first | bit).collect();
        firsts.extend(with_bit);
    }
    Some(Set::of(firsts.into_iter().map(|first| (first, first | ((1 << low) - 1))).collect()))
}

/// A packet of a connection that belongs to another one is not told from one of a connection, and a
/// translation is not followed.
fn states(test: &FieldMatch) -> Option<Set> {
    let has = |state| test.lists(state);
    if has(matches::DNAT) || has(matches::SNAT) || has(matches::RELATED) && !has(ESTABLISHED) {
        return None;
    }
    Some(Set::of(test.values.iter().copied().filter(|(state, _)| *state != matches::RELATED).collect()))
}
