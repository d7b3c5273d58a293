//! Merging objects field by field, and lists whose items are matched by a key.

use std::collections::{HashMap, HashSet};

use gotemplate::{Field, Kind, Schema};
use serde_json::{Map, Value};

use super::directive::{
    DELETE_FROM, Directive, RETAIN_KEYS, SET_ORDER, directive, directive_list, is_directive, settle,
    settle_fields, settle_items,
};
use super::{MergeError, Problem, check_depth, error, order};
use crate::path::{Lookup as _, Path, type_name};
use crate::schema::{ListMerge, list_merge, pointee};

type Object = Map<String, Value>;

/// The types of a map's fields.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fields {
    Struct(&'static Schema),
    Map(&'static Kind),
    Unknown,
}

impl Fields {
    pub(super) const fn of(schema: &'static Schema) -> Self {
        Self::Struct(schema)
    }

    /// The types of the fields of a value of this kind.
    pub(super) fn from_kind(kind: Option<&'static Kind>) -> Self {
        match kind.copied().map(pointee) {
            Some(Kind::Struct(of)) => Self::Struct(of),
            Some(Kind::Map(of)) => Self::Map(of),
            _ => Self::Unknown,
        }
    }

    /// What is known of the field `name`. Lists that are not known are replaced.
    fn field(self, name: &str) -> FieldType {
        match self {
            Self::Struct(of) => of.by_key(name).map_or(FieldType::UNKNOWN, FieldType::of),
            Self::Map(of) => FieldType { kind: Some(of), merge: ListMerge::Atomic },
            Self::Unknown => FieldType::UNKNOWN,
        }
    }
}

/// The type of a field, and how it merges if it is a list.
#[derive(Clone, Copy, Debug)]
struct FieldType {
    kind: Option<&'static Kind>,
    merge: ListMerge,
}

impl FieldType {
    const UNKNOWN: Self = Self { kind: None, merge: ListMerge::Atomic };

    fn of(field: &'static Field) -> Self {
        Self { kind: Some(&field.kind), merge: list_merge(field) }
    }

    /// The type of a list's items.
    const fn items(self) -> Option<&'static Kind> {
        match self.kind {
            Some(Kind::List(of)) => Some(of),
            _ => None,
        }
    }
}

/// Merges `patch` into `original` field by field.
pub(super) fn merge_fields(
    original: &mut Object,
    mut patch: Object,
    types: Fields,
    path: &Path<'_>,
) -> Result<(), MergeError> {
    check_depth(path)?;
    match directive(&patch, path)? {
        Directive::Delete => {
            original.clear();
            return Ok(());
        }
        Directive::Replace => {
            settle_fields(&mut patch, path)?;
            *original = patch;
            return Ok(());
        }
        Directive::Merge => {}
    }
    if patch.keys().any(|key| is_directive(key)) {
        retain_keys(original, &patch, path)?;
        for (key, value) in &patch {
            if let Some(list) = key.strip_prefix(DELETE_FROM) {
                delete_from(original, list, value, path)?;
            }
        }
        let orders = patch.iter().filter_map(|(key, value)| Some((key.strip_prefix(SET_ORDER)?, value)));
        let orders: Vec<(String, Value)> =
            orders.map(|(list, value)| (list.to_owned(), value.clone())).collect();
        for (list, value) in &orders {
            set_order(original, patch.shift_remove(list), list, value, types, path)?;
        }
    }
    for (key, value) in patch {
        if !is_directive(&key) {
            let of = types.field(&key);
            merge_field(original, key, value, of, path)?;
        }
    }
    Ok(())
}

fn merge_field(
    original: &mut Object,
    key: String,
    patch: Value,
    of: FieldType,
    path: &Path<'_>,
) -> Result<(), MergeError> {
    let path = path.field(&key);
    // `shift_remove`, because `remove` would move the last key into the gap.
    match (original.get_mut(&key), patch) {
        (_, Value::Null) => {
            original.shift_remove(&key);
        }
        (Some(Value::Object(old)), Value::Object(new)) => {
            merge_fields(old, new, Fields::from_kind(of.kind), &path)?;
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            *old = merge_list(std::mem::take(old), new, of, &path)?;
        }
        (Some(old), mut new) => {
            if settle(&mut new, &path)? {
                *old = new;
            } else {
                original.shift_remove(&key);
            }
        }
        (None, mut new) => {
            if settle(&mut new, &path)? {
                original.insert(key, new);
            }
        }
    }
    Ok(())
}

fn merge_list(
    original: Vec<Value>,
    mut patch: Vec<Value>,
    of: FieldType,
    path: &Path<'_>,
) -> Result<Vec<Value>, MergeError> {
    match of.merge {
        ListMerge::Atomic => settle_items(&mut patch, path).map(|()| patch),
        ListMerge::Key(key) => merge_keyed(original, patch, key, of.items(), path),
        ListMerge::Set => Ok(order::unite(&original, &patch)),
    }
}

/// `$retainKeys`: what it does not list goes; the patch may set only what it lists.
fn retain_keys(original: &mut Object, patch: &Object, path: &Path<'_>) -> Result<(), MergeError> {
    let Some(value) = patch.get(RETAIN_KEYS) else {
        return Ok(());
    };
    let keep = directive_list(RETAIN_KEYS, value, path)?;
    let kept = |key: &str| keep.iter().any(|name| name.as_str() == Some(key));
    if let Some((key, _)) =
        patch.iter().find(|(key, value)| !value.is_null() && !is_directive(key) && !kept(key))
    {
        return Err(error(path, Problem::NotRetained { key: key.clone() }));
    }
    original.retain(|key, _| kept(key));
    Ok(())
}

fn delete_from(original: &mut Object, list: &str, value: &Value, path: &Path<'_>) -> Result<(), MergeError> {
    let gone = directive_list(DELETE_FROM, value, path)?;
    if let Some(Value::Array(items)) = original.get_mut(list) {
        items.retain(|item| !gone.contains(item));
    }
    Ok(())
}

/// `$setElementOrder/list`: the list as merged with the patch's, in the order given.
fn set_order(
    original: &mut Object,
    patch: Option<Value>,
    list: &str,
    value: &Value,
    types: Fields,
    path: &Path<'_>,
) -> Result<(), MergeError> {
    let wanted = directive_list(SET_ORDER, value, path)?;
    let path = path.field(list);
    let of = types.field(list);
    let key = match of.merge {
        ListMerge::Key(key) => Some(key),
        ListMerge::Atomic | ListMerge::Set => None,
    };
    let live = match original.lookup(list) {
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    };
    let merged = match patch {
        None if !original.contains_key(list) => return Ok(()),
        None => live.clone(),
        Some(Value::Array(items)) => {
            if !order::follows(&items, wanted, key) {
                return Err(error(&path, Problem::OrderMismatch { list: list.to_owned() }));
            }
            merge_list(live.clone(), items, of, &path)?
        }
        Some(Value::Null) => {
            original.shift_remove(list);
            return Ok(());
        }
        Some(other) => {
            return Err(error(
                &path,
                Problem::NotAList { directive: list.to_owned(), found: type_name(&other) },
            ));
        }
    };
    if let Some(key) = key {
        check_keys(&merged, key, false, &path)?;
        check_keys(wanted, key, true, &path)?;
    }
    original.insert(list.to_owned(), Value::Array(order::arrange(merged, wanted, &live, key)));
    Ok(())
}

/// Merges the items of `patch` with those of `original`, matched by their field `key`.
fn merge_keyed(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    key: &'static str,
    item: Option<&'static Kind>,
    path: &Path<'_>,
) -> Result<Vec<Value>, MergeError> {
    if patch.is_empty() {
        return Ok(original);
    }
    let mut plain = Vec::with_capacity(patch.len());
    let mut gone = HashSet::new();
    let mut replace = false;
    for (index, value) in patch.into_iter().enumerate() {
        let path = path.item(index);
        let Value::Object(fields) = &value else {
            return Err(error(&path, Problem::NotAMap { found: type_name(&value) }));
        };
        match directive(fields, &path)? {
            Directive::Replace => replace = true,
            Directive::Delete => {
                gone.insert(merge_key(&value, key, true, &path)?.clone());
            }
            Directive::Merge => {
                merge_key(&value, key, true, &path)?;
                plain.push((index, value));
            }
        }
    }
    if replace {
        let mut items = Vec::with_capacity(plain.len());
        for (index, mut value) in plain {
            if settle(&mut value, &path.item(index))? {
                items.push(value);
            }
        }
        return Ok(items);
    }
    if !gone.is_empty() {
        original.retain(|old| old.lookup(key).is_none_or(|old| !gone.contains(old)));
    }
    check_keys(&original, key, false, path)?;
    let keys = |items: &mut dyn Iterator<Item = &Value>| -> Vec<Value> {
        items.map(|item| item.lookup(key).cloned().unwrap_or_default()).collect()
    };
    let live = keys(&mut original.iter());
    let patched = keys(&mut plain.iter().map(|(_, value)| value));
    merge_items(&mut original, plain, key, item, path)?;
    Ok(order::weave(original, Some(key), patched.iter(), live.iter()))
}

/// Merges or appends each patch item, without regard to order.
fn merge_items(
    merged: &mut Vec<Value>,
    patch: Vec<(usize, Value)>,
    key: &'static str,
    item: Option<&'static Kind>,
    path: &Path<'_>,
) -> Result<(), MergeError> {
    let mut places: HashMap<Value, usize> = HashMap::with_capacity(merged.len() + patch.len());
    for (place, value) in merged.iter().enumerate() {
        if let Some(value) = value.lookup(key) {
            places.entry(value.clone()).or_insert(place);
        }
    }
    for (index, value) in patch {
        let path = path.item(index);
        let place = value.lookup(key).and_then(|value| places.get(value).copied());
        match (place.and_then(|place| merged.get_mut(place)), value) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                merge_fields(old, new, Fields::from_kind(item), &path)?;
            }
            (_, mut new) => {
                if let Some(new_key) = new.lookup(key) {
                    places.insert(new_key.clone(), merged.len());
                }
                if settle(&mut new, &path)? {
                    merged.push(new);
                }
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
        Value::Object(fields) => fields.lookup(key).filter(|value| !value.is_null()).ok_or_else(|| {
            error(path, Problem::NoMergeKey { key, item: shortened(&item.to_string()), in_patch })
        }),
        other => Err(error(path, Problem::NotAMap { found: type_name(other) })),
    }
}

/// Every item of `items` has its merge key.
fn check_keys(items: &[Value], key: &'static str, in_patch: bool, path: &Path<'_>) -> Result<(), MergeError> {
    for (index, item) in items.iter().enumerate() {
        merge_key(item, key, in_patch, &path.item(index))?;
    }
    Ok(())
}

/// 200 characters of an item are enough to find it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(200) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
