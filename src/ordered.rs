//! Ordered maps and sets from iterators, by insertion.

use std::collections::{BTreeMap, BTreeSet};

/// `collect` for an ordered map or set without a sort: the standard library sorts first, and the code of a sort is about five
/// kilobytes of the program for every type of element.
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
}

impl<I: Iterator> Ordered for I {}
