//! The order of merged lists.

use std::collections::HashMap;

use serde_json::Value;

use crate::path::Lookup as _;

/// Puts `merged` in order: items that are in `first` as `first` orders them, the others as `live` orders
/// them; each of the others goes before the first item, scanning on from the last insertion, that `live` has
/// after it, else to the end.
///
/// Items are identified by their field `key`, or are their own key.
pub(super) fn weave<'v>(
    merged: Vec<Value>,
    key: Option<&'static str>,
    first: impl Iterator<Item = &'v Value>,
    live: impl Iterator<Item = &'v Value>,
) -> Vec<Value> {
    let wanted = positions(first);
    let before = positions(live);
    let place = |map: &HashMap<&Value, usize>, value: &Value| {
        identity(value, key).and_then(|identity| map.get(identity).copied())
    };
    let mut chosen = Vec::new();
    let mut others = Vec::new();
    for value in merged {
        let at_live = place(&before, &value);
        match place(&wanted, &value) {
            Some(rank) => chosen.push((rank, at_live, value)),
            None => others.push((at_live.unwrap_or(usize::MAX), at_live, value)),
        }
    }
    chosen.sort_by_key(|(rank, ..)| *rank);
    others.sort_by_key(|(rank, ..)| *rank);

    let mut woven = Vec::with_capacity(chosen.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, chosen_at, value) in chosen {
        while let Some((_, _, other)) =
            others.next_if(|(_, other_at, _)| matches!((other_at, chosen_at), (Some(o), Some(c)) if *o < c))
        {
            woven.push(other);
        }
        woven.push(value);
    }
    woven.extend(others.map(|(.., value)| value));
    woven
}

/// The first place of each value.
fn positions<'v>(values: impl Iterator<Item = &'v Value>) -> HashMap<&'v Value, usize> {
    let mut places = HashMap::with_capacity(values.size_hint().0);
    for (place, value) in values.enumerate() {
        places.entry(value).or_insert(place);
    }
    places
}

/// Unites two lists of scalars: no value twice, ordered like any merged list.
pub(super) fn unite(original: &[Value], patch: &[Value]) -> Vec<Value> {
    let mut merged = Vec::with_capacity(original.len() + patch.len());
    let mut seen = std::collections::HashSet::new();
    for value in original.iter().chain(patch).filter(|value| !value.is_null()) {
        if seen.insert(value) {
            merged.push(value.clone());
        }
    }
    weave(merged, None, patch.iter(), original.iter())
}

/// `$setElementOrder`: `merged` in the order of `wanted`.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    live: &[Value],
    key: Option<&'static str>,
) -> Vec<Value> {
    let identities = |items| <[Value]>::iter(items).filter_map(|item| identity(item, key));
    weave(merged, key, identities(wanted), identities(live))
}

/// What identifies an item.
pub(super) fn identity<'v>(item: &'v Value, key: Option<&'static str>) -> Option<&'v Value> {
    match key {
        Some(key) => item.lookup(key),
        None => Some(item),
    }
}

/// Whether `wanted` names the items of `patch` in the patch's order; items to delete need no place.
pub(super) fn follows(patch: &[Value], wanted: &[Value], key: Option<&'static str>) -> bool {
    let mut wanted = wanted.iter();
    patch
        .iter()
        .filter(|item| item.get(super::directive::PATCH).is_none())
        .all(|item| wanted.any(|other| identity(other, key) == identity(item, key)))
}
