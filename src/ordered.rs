//! Ordered maps, sets and short lists from iterators, by insertion.

use std::collections::{BTreeMap, BTreeSet};

/// `collect` for what is ordered, without the code of a sort, which is about five kilobytes of the program
/// for every type of element.
pub(crate) trait Ordered: Iterator + Sized {
    /// The items as a set.
    fn into_set(self) -> BTreeSet<Self::Item>
    where
        Self::Item: Ord,
    {
        let mut set = BTreeSet::new();
        set.extend(self);
        set
    }

    /// The pairs as a map; of equal keys the last one counts.
    fn into_map<K: Ord, V>(self) -> BTreeMap<K, V>
    where
        Self: Iterator<Item = (K, V)>,
    {
        let mut map = BTreeMap::new();
        map.extend(self);
        map
    }

    /// The items in the order of their keys, those with the same key in the order in which they come. For
    /// short lists: each item is inserted at its place.
    fn into_sorted_by_key<K: Ord>(self, key: impl Fn(&Self::Item) -> K) -> Vec<Self::Item> {
        let mut sorted = Vec::new();
        for item in self {
            let at = sorted.partition_point(|before| key(before) <= key(&item));
            sorted.insert(at, item);
        }
        sorted
    }
}

impl<I: Iterator> Ordered for I {}
