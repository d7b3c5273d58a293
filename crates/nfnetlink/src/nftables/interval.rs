//! Ranges of values of equal length, as the kernel keeps them in interval sets.

use super::{Member, Verdict};

/// The value after `value`, as a number in network byte order; `None` after the last one.
pub(super) fn successor(value: &[u8]) -> Option<Vec<u8>> {
    let mut next = value.to_vec();
    for byte in next.iter_mut().rev() {
        let (sum, overflow) = byte.overflowing_add(1);
        *byte = sum;
        if !overflow {
            return Some(next);
        }
    }
    None
}

/// The value before `value`; `None` before the first one.
fn predecessor(value: &[u8]) -> Option<Vec<u8>> {
    let mut previous = value.to_vec();
    for byte in previous.iter_mut().rev() {
        let (difference, overflow) = byte.overflowing_sub(1);
        *byte = difference;
        if !overflow {
            return Some(previous);
        }
    }
    None
}

/// Sorts ranges of first and last values, and merges those that overlap or are adjacent: the kernel refuses
/// overlaps, and `nft` merges what is adjacent.
#[must_use]
pub fn merge(mut ranges: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    ranges.sort_unstable();
    let mut merged: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if successor(end).is_none_or(|next| first <= next) => {
                if last > *end {
                    *end = last;
                }
            }
            Some(_) | None => merged.push((first, last)),
        }
    }
    merged
}

/// A value, whether a range ends before it, and the verdict of a range that starts with it.
pub(super) type Bound = (Vec<u8>, bool, Option<Verdict>);

pub(super) fn sort(elements: &mut [Bound]) {
    // At the same value one range ends before the next one starts.
    elements.sort_unstable_by(|(a, a_ends, _), (b, b_ends, _)| a.cmp(b).then(b_ends.cmp(a_ends)));
}

/// The ranges that start and end elements describe. Ends are exclusive; an end without a start, which `nft`
/// writes first, describes nothing.
pub(super) fn ranges_of(elements: Vec<(Vec<u8>, bool)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let members = members_of(elements.into_iter().map(|(value, ends)| (value, ends, None)).collect());
    members.into_iter().map(|member| (member.first, member.last)).collect()
}

/// The members that start and end elements describe, each with the verdict of its start.
pub(super) fn members_of(mut elements: Vec<Bound>) -> Vec<Member> {
    sort(&mut elements);
    let mut members = Vec::with_capacity(elements.len() / 2 + 1);
    let mut open: Option<(Vec<u8>, Option<Verdict>)> = None;
    let mut close = |(first, verdict): (Vec<u8>, Option<Verdict>), last: Vec<u8>| {
        if first <= last {
            members.push(Member { first, last, verdict });
        }
    };
    for (value, ends, verdict) in elements {
        if let Some((open, last)) = open.take().zip(predecessor(&value)) {
            close(open, last);
        }
        open = (!ends).then_some((value, verdict));
    }
    if let Some(open) = open {
        let last = vec![u8::MAX; open.0.len()];
        close(open, last);
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u8, last: u8) -> (Vec<u8>, Vec<u8>) {
        (vec![first, 0], vec![last, 255])
    }

    #[test]
    fn overlapping_and_adjacent_ranges_are_merged() {
        let merged =
            merge(vec![range(9, 9), range(1, 2), range(3, 3), range(2, 2), range(5, 6), range(5, 5)]);
        assert_eq!(merged, [range(1, 3), range(5, 6), range(9, 9)]);
        assert_eq!(merge(vec![range(0, 255), range(255, 255), range(7, 8)]), [range(0, 255)]);
    }

    #[test]
    fn start_and_end_elements_are_ranges_again() {
        let start = |byte| (vec![byte, 0], false);
        let end = |byte| (vec![byte, 0], true);
        let elements = vec![end(0), start(200), end(9), start(5), end(12), start(9)];
        assert_eq!(ranges_of(elements), [range(5, 8), range(9, 11), range(200, 255)]);
    }

    #[test]
    fn neighbours_carry_over() {
        assert_eq!(successor(&[1, 255, 255]), Some(vec![2, 0, 0]));
        assert_eq!(successor(&[255, 255]), None);
        assert_eq!(predecessor(&[2, 0, 0]), Some(vec![1, 255, 255]));
        assert_eq!(predecessor(&[0, 0]), None);
    }
}
