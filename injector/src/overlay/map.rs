//! Merging maps, and the directives that stand in maps.

use serde_json::{Map, Value};

use super::path::Path;
use super::{MergeError, Problem, keyed, kind_name, order};
use crate::schema::{Kind, ListMerge, Struct};

type Object = Map<String, Value>;

pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// The types of a map's fields.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fields {
    Struct(&'static Struct),
    Map(&'static Kind),
    Unknown,
}

impl Fields {
    pub(super) const fn of(schema: &'static Struct) -> Self {
        Self::Struct(schema)
    }

    pub(super) fn from_kind(kind: Option<&'static Kind>) -> Self {
        match kind {
            Some(Kind::Struct(of)) => Self::Struct(of),
            Some(Kind::Map(of)) => Self::Map(of),
            Some(
                Kind::Any
                | Kind::Bool
                | Kind::Int
                | Kind::IntOrString
                | Kind::List(..)
                | Kind::Quantity
                | Kind::Str,
            )
            | None => Self::Unknown,
        }
    }

    fn field(self, name: &str) -> Option<&'static Kind> {
        match self {
            Self::Struct(of) => of.field(name),
            Self::Map(of) => Some(of),
            Self::Unknown => None,
        }
    }
}

/// How the list `kind` merges, and what its items are. Lists that are not known are replaced.
fn list_rule(kind: Option<&'static Kind>) -> (ListMerge, Option<&'static Kind>) {
    match kind {
        Some(Kind::List(item, merge)) => (*merge, Some(item)),
        _ => (ListMerge::Atomic, None),
    }
}

/// What `$patch` says in a map or an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directive {
    Delete,
    Merge,
    Replace,
}

/// Reads `$patch`; without it: merge.
pub(super) fn directive(patch: &Object, path: &Path<'_>) -> Result<Directive, MergeError> {
    match patch.get(PATCH) {
        None => Ok(Directive::Merge),
        Some(Value::String(text)) if text == "merge" => Ok(Directive::Merge),
        Some(Value::String(text)) if text == "replace" => Ok(Directive::Replace),
        Some(Value::String(text)) if text == "delete" => Ok(Directive::Delete),
        Some(other) => Err(path.error(Problem::UnknownDirective { value: other.to_string() })),
    }
}

/// Merges `patch` into `original` field by field.
pub(super) fn merge_fields(
    original: &mut Object,
    patch: &Object,
    types: Fields,
    path: &Path<'_>,
) -> Result<(), MergeError> {
    path.check_depth()?;
    match directive(patch, path)? {
        Directive::Delete => {
            original.clear();
            return Ok(());
        }
        Directive::Replace => {
            *original = settle_fields(patch, path)?;
            return Ok(());
        }
        Directive::Merge => {}
    }
    retain_keys(original, patch, path)?;
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM) {
            delete_from(original, list, value, path)?;
        }
    }
    let mut ordered: Vec<&str> = Vec::new();
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(SET_ORDER) {
            set_order(original, patch.get(list), list, value, types, path)?;
            ordered.push(list);
        }
    }
    for (key, value) in patch {
        if !is_directive(key) && !ordered.contains(&key.as_str()) {
            merge_field(original, key, value, types.field(key), path)?;
        }
    }
    Ok(())
}

fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN_KEYS || key.starts_with(SET_ORDER) || key.starts_with(DELETE_FROM)
}

fn merge_field(
    original: &mut Object,
    key: &str,
    patch: &Value,
    kind: Option<&'static Kind>,
    path: &Path<'_>,
) -> Result<(), MergeError> {
    let path = path.field(key);
    // `shift_remove`, because `remove` would move the last key into the gap.
    match (original.get_mut(key), patch) {
        (_, Value::Null) => {
            original.shift_remove(key);
        }
        (Some(Value::Object(old)), Value::Object(new)) => {
            merge_fields(old, new, Fields::from_kind(kind), &path)?;
        }
        (Some(Value::Array(old)), Value::Array(new)) => {
            *old = merge_list(std::mem::take(old), new, kind, &path)?;
        }
        (Some(old), new) => match settle(new, &path)? {
            Some(value) => *old = value,
            None => {
                original.shift_remove(key);
            }
        },
        (None, new) => {
            if let Some(value) = settle(new, &path)? {
                original.insert(key.to_owned(), value);
            }
        }
    }
    Ok(())
}

fn merge_list(
    original: Vec<Value>,
    patch: &[Value],
    kind: Option<&'static Kind>,
    path: &Path<'_>,
) -> Result<Vec<Value>, MergeError> {
    match list_rule(kind) {
        (ListMerge::Atomic, _) => settle_items(patch, path),
        (ListMerge::Key(key), item) => keyed::merge_list(original, patch, key, item, path),
        (ListMerge::Set, _) => Ok(order::unite(&original, patch)),
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
        return Err(path.error(Problem::NotRetained { key: key.clone() }));
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
    patch: Option<&Value>,
    list: &str,
    value: &Value,
    types: Fields,
    path: &Path<'_>,
) -> Result<(), MergeError> {
    let wanted = directive_list(SET_ORDER, value, path)?;
    let path = path.field(list);
    let kind = types.field(list);
    let key = match list_rule(kind).0 {
        ListMerge::Key(key) => Some(key),
        ListMerge::Atomic | ListMerge::Set => None,
    };
    let live = match original.get(list) {
        Some(Value::Array(items)) => items.clone(),
        _ => Vec::new(),
    };
    let patched = match patch {
        None => None,
        Some(Value::Array(items)) => Some(items),
        Some(Value::Null) => {
            original.shift_remove(list);
            return Ok(());
        }
        Some(other) => {
            return Err(path.error(Problem::NotAList { directive: list.to_owned(), found: kind_name(other) }));
        }
    };
    let merged = match patched {
        None => live.clone(),
        Some(items) => {
            if !order::follows(items, wanted, key) {
                return Err(path.error(Problem::OrderMismatch { list: list.to_owned() }));
            }
            merge_list(live.clone(), items, kind, &path)?
        }
    };
    if !original.contains_key(list) && patched.is_none() {
        return Ok(());
    }
    if let Some(key) = key {
        keyed::check_keys(&merged, key, false, &path)?;
        keyed::check_keys(wanted, key, true, &path)?;
    }
    original.insert(list.to_owned(), Value::Array(order::arrange(merged, wanted, &live, key)));
    Ok(())
}

fn directive_list<'v>(name: &str, value: &'v Value, path: &Path<'_>) -> Result<&'v [Value], MergeError> {
    value
        .as_array()
        .map(Vec::as_slice)
        .ok_or_else(|| path.error(Problem::NotAList { directive: name.to_owned(), found: kind_name(value) }))
}

/// A value of the patch that meets nothing in the original: without nulls and directives. `None` when a directive
/// deletes it.
pub(super) fn settle(value: &Value, path: &Path<'_>) -> Result<Option<Value>, MergeError> {
    path.check_depth()?;
    match value {
        Value::Object(fields) => match directive(fields, path)? {
            Directive::Delete => Ok(None),
            Directive::Merge | Directive::Replace => {
                settle_fields(fields, path).map(|f| Some(Value::Object(f)))
            }
        },
        Value::Array(items) => settle_items(items, path).map(|items| Some(Value::Array(items))),
        scalar => Ok(Some(scalar.clone())),
    }
}

pub(super) fn settle_fields(fields: &Object, path: &Path<'_>) -> Result<Object, MergeError> {
    let mut settled = Map::with_capacity(fields.len());
    for (key, value) in fields {
        if value.is_null() || is_directive(key) {
            continue;
        }
        if let Some(value) = settle(value, &path.field(key))? {
            settled.insert(key.clone(), value);
        }
    }
    Ok(settled)
}

/// The items of a new list; an item that carries `$patch: replace` speaks of the list and is none itself.
fn settle_items(items: &[Value], path: &Path<'_>) -> Result<Vec<Value>, MergeError> {
    let mut settled = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let path = path.item(index);
        if let Value::Object(fields) = item
            && directive(fields, &path)? == Directive::Replace
        {
            continue;
        }
        settled.extend(settle(item, &path)?);
    }
    Ok(settled)
}
