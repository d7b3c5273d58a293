//! Sets of numbers: the values of one field of packets.

use std::cmp::Ordering;
use std::rc::Rc;

pub(super) use crate::live_rules::Range;

/// Numbers as ranges: sorted, neither overlapping nor adjacent. Copies share their ranges.
#[derive(Clone, Debug)]
pub(super) struct Set {
    ranges: Rc<[Range]>,
    /// Of the ranges: large sets are compared by it first.
    hash: u64,
}

impl Set {
    /// The numbers in these ranges.
    pub(super) fn of(mut ranges: Vec<Range>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<Range> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
                _ => joined.push((first, last)),
            }
        }
        Self::sorted(joined)
    }

    fn sorted(ranges: Vec<Range>) -> Self {
        // FNV-1a, so that the order of sets is the same in every run.
        let step = |hash: u64, part: u64| (hash ^ part).wrapping_mul(0x0100_0000_01b3);
        let parts = |number: u128| [number, number >> 64].map(|half| u64::try_from(half & LOW).unwrap_or(0));
        let numbers = ranges.iter().flat_map(|(first, last)| [*first, *last]).flat_map(parts);
        let hash = numbers.fold(0xcbf2_9ce4_8422_2325, step);
        Self { ranges: ranges.into(), hash }
    }

    pub(super) fn range(first: u128, last: u128) -> Self {
        Self::sorted(vec![(first, last)])
    }

    pub(super) fn one(number: u128) -> Self {
        Self::range(number, number)
    }

    pub(super) fn all() -> Self {
        Self::range(0, u128::MAX)
    }

    pub(super) fn none() -> Self {
        Self::sorted(Vec::new())
    }

    pub(super) fn ranges(&self) -> &[Range] {
        &self.ranges
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number, if there is one only.
    pub(super) fn single(&self) -> Option<u128> {
        match *self.ranges {
            [(first, last)] if first == last => Some(first),
            _ => None,
        }
    }

    pub(super) fn contains(&self, number: u128) -> bool {
        let behind = self.ranges.partition_point(|(first, _)| *first <= number);
        behind.checked_sub(1).and_then(|at| self.ranges.get(at)).is_some_and(|(_, last)| number <= *last)
    }

    /// Every other number.
    pub(super) fn complement(&self) -> Self {
        let mut ranges = Vec::with_capacity(self.ranges.len() + 1);
        let mut next = Some(0);
        for (first, last) in self.ranges.iter() {
            if let (Some(from), Some(to)) = (next, first.checked_sub(1))
                && from <= to
            {
                ranges.push((from, to));
            }
            next = last.checked_add(1);
        }
        ranges.extend(next.map(|from| (from, u128::MAX)));
        Self::sorted(ranges)
    }

    /// The numbers in both.
    pub(super) fn and(&self, other: &Self) -> Self {
        let (few, many) = if self.ranges.len() <= other.ranges.len() { (self, other) } else { (other, self) };
        let mut ranges = Vec::new();
        for (first, last) in few.ranges.iter() {
            let from = many.ranges.partition_point(|(_, end)| end < first);
            let overlapping = many.ranges.iter().skip(from).take_while(|(begin, _)| begin <= last);
            ranges.extend(overlapping.map(|(begin, end)| (*begin.max(first), *end.min(last))));
        }
        match ranges.as_slice() {
            same if same == &*self.ranges => self.clone(),
            same if same == &*other.ranges => other.clone(),
            _ => Self::sorted(ranges),
        }
    }

    /// The numbers in any of these sets.
    pub(super) fn any(mut sets: Vec<Self>) -> Self {
        match (sets.pop(), sets.is_empty()) {
            (Some(only), true) => only,
            (last, _) => {
                Self::of(sets.iter().chain(&last).flat_map(|set| set.ranges.iter().copied()).collect())
            }
        }
    }

    /// The numbers in either.
    pub(super) fn or(&self, other: &Self) -> Self {
        Self::of(self.ranges.iter().chain(other.ranges.iter()).copied().collect())
    }
}

const LOW: u128 = 0xffff_ffff_ffff_ffff;

impl PartialEq for Set {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && (Rc::ptr_eq(&self.ranges, &other.ranges) || self.ranges == other.ranges)
    }
}

impl Eq for Set {}

impl PartialOrd for Set {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Set {
    fn cmp(&self, other: &Self) -> Ordering {
        self.hash.cmp(&other.hash).then_with(|| {
            if Rc::ptr_eq(&self.ranges, &other.ranges) {
                Ordering::Equal
            } else {
                self.ranges.cmp(&other.ranges)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn operations_agree_with_membership(
            one in vec((0_u128..40, 0_u128..6), 0..6),
            other in vec((0_u128..40, 0_u128..6), 0..6),
        ) {
            let set = |ranges: &[(u128, u128)]| Set::of(ranges.iter().map(|(from, more)| (*from, from + more)).collect());
            let (a, b) = (set(&one), set(&other));
            let (and, or, not) = (a.and(&b), a.or(&b), a.complement());
            for number in (0..50).chain([u128::MAX]) {
                let is_in = |ranges: &[(u128, u128)]| ranges.iter().any(|(from, more)| (*from..=from + more).contains(&number));
                prop_assert_eq!(a.contains(number), is_in(&one));
                prop_assert_eq!(and.contains(number), is_in(&one) && is_in(&other));
                prop_assert_eq!(or.contains(number), is_in(&one) || is_in(&other));
                prop_assert_eq!(not.contains(number), !is_in(&one));
            }
            prop_assert_eq!(not.complement(), a);
        }
    }
}
