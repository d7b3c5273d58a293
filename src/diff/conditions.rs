//! The tests of a rule, as sets of values of fields.

use super::field::{ESTABLISHED, FROM_OUTSIDE, Field, INSIDE, MAX_U32};
use super::program::Test;
use super::set::{Range, Set};
use crate::live_rules::{self as matches, FieldMatch, Limit, LiveRule};
use crate::ordered::Ordered as _;

/// The tests of a rule, and whether it has others that cannot be evaluated. Those of the owner fail without a
/// socket in nftables, negated or not.
pub(super) fn tests_of(rule: &LiveRule, is_native: bool) -> (Vec<Test>, bool) {
    let mut is_unknown = !rule.unread().is_empty();
    let mut tests = Vec::new();
    for test in rule.tests().iter() {
        match values_of(test) {
            Some((field @ (Field::Uid | Field::Gid), values)) if test.is_negated && is_native => {
                let others = values.complement().and(&Set::range(0, MAX_U32));
                tests.push(Test::new(field, others, false));
            }
            Some((field, values)) => tests.push(Test::new(field, values, test.is_negated)),
            None => is_unknown = true,
        }
    }
    // Last what has many values: classes are split the least by the others.
    let values = |test: &Test| match test.field {
        Field::Source | Field::Destination => 2,
        Field::SourcePort | Field::DestinationPort => 1,
        Field::Protocol
        | Field::Path
        | Field::InInterface
        | Field::OutInterface
        | Field::Uid
        | Field::Gid
        | Field::Mark
        | Field::Connmark
        | Field::State
        | Field::Syn => 0,
    };
    (tests.into_iter().into_sorted_by_key(values), is_unknown)
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
