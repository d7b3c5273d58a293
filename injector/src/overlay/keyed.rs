//! Merging lists whose items are matched by a key.

use std::collections::HashMap;

use serde_json::Value;

use super::map::{self, Directive, Fields};
use super::path::Path;
use super::{MergeError, Problem, kind_name, order};
use crate::schema::Kind;

/// Lays the items of `patch` over those of `original`, matched by their field `key`.
pub(super) fn merge_list(
    mut original: Vec<Value>,
    patch: &[Value],
    key: &'static str,
    item: Option<&'static Kind>,
    path: &Path<'_>,
) -> Result<Vec<Value>, MergeError> {
    if patch.is_empty() {
        return Ok(original);
    }
    let mut plain = Vec::with_capacity(patch.len());
    let mut replace = false;
    for (index, value) in patch.iter().enumerate() {
        let path = path.item(index);
        let Value::Object(fields) = value else {
            return Err(path.error(Problem::NotAMap { found: kind_name(value) }));
        };
        match map::directive(fields, &path)? {
            Directive::Replace => replace = true,
            Directive::Delete => {
                let gone = merge_key(value, key, true, &path)?;
                original.retain(|old| old.get(key) != Some(gone));
            }
            Directive::Merge => {
                merge_key(value, key, true, &path)?;
                plain.push((index, value));
            }
        }
    }
    if replace {
        let items = plain.iter().filter_map(|(at, value)| map::settle(value, &path.item(*at)).transpose());
        return items.collect();
    }
    check_keys(&original, key, false, path)?;
    let live: Vec<Value> = original.iter().map(|old| old.get(key).cloned().unwrap_or_default()).collect();
    lay_over(&mut original, &plain, key, item, path)?;
    let patched: Vec<&Value> = plain.iter().filter_map(|(_, value)| value.get(key)).collect();
    Ok(order::weave(original, Some(key), &patched, &live.iter().collect::<Vec<_>>()))
}

/// Merges or appends each patch item, without regard to order.
fn lay_over(
    merged: &mut Vec<Value>,
    patch: &[(usize, &Value)],
    key: &'static str,
    item: Option<&'static Kind>,
    path: &Path<'_>,
) -> Result<(), MergeError> {
    let mut places: HashMap<Value, usize> = HashMap::with_capacity(merged.len() + patch.len());
    for (place, value) in merged.iter().enumerate() {
        if let Some(value) = value.get(key) {
            places.entry(value.clone()).or_insert(place);
        }
    }
    for (index, value) in patch {
        let path = path.item(*index);
        let place = value.get(key).and_then(|value| places.get(value).copied());
        match (place.and_then(|place| merged.get_mut(place)), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                map::merge_fields(old, new, Fields::from_kind(item), &path)?;
            }
            (_, new) => {
                if let Some(new_key) = new.get(key) {
                    places.insert(new_key.clone(), merged.len());
                }
                merged.extend(map::settle(new, &path)?);
            }
        }
    }
    Ok(())
}

/// The value of an item's merge key.
fn merge_key<'v>(
    item: &'v Value,
    key: &'static str,
    in_patch: bool,
    path: &Path<'_>,
) -> Result<&'v Value, MergeError> {
    match item {
        Value::Object(fields) => fields.get(key).filter(|value| !value.is_null()).ok_or_else(|| {
            path.error(Problem::NoMergeKey { key, item: shortened(&item.to_string()), in_patch })
        }),
        other => Err(path.error(Problem::NotAMap { found: kind_name(other) })),
    }
}

/// Every item of `items` has its merge key.
pub(super) fn check_keys(
    items: &[Value],
    key: &'static str,
    in_patch: bool,
    path: &Path<'_>,
) -> Result<(), MergeError> {
    for (index, item) in items.iter().enumerate() {
        merge_key(item, key, in_patch, &path.item(index))?;
    }
    Ok(())
}

/// An error message is read by people: 200 characters of an item are enough to find it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
