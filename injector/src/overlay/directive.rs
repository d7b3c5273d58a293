//! Patch directives, and what is left of a patch without them.

use serde_json::{Map, Value};

use super::{MergeError, Problem, check_depth, error};
use crate::path::{Path, type_name};

type Object = Map<String, Value>;

pub(super) const PATCH: &str = "$patch";
pub(super) const RETAIN_KEYS: &str = "$retainKeys";
pub(super) const SET_ORDER: &str = "$setElementOrder/";
pub(super) const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

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
        Some(other) => Err(error(path, Problem::UnknownDirective { value: other.to_string() })),
    }
}

pub(super) fn is_directive(key: &str) -> bool {
    key == PATCH || key == RETAIN_KEYS || key.starts_with(SET_ORDER) || key.starts_with(DELETE_FROM)
}

pub(super) fn directive_list<'v>(
    name: &str,
    value: &'v Value,
    path: &Path<'_>,
) -> Result<&'v [Value], MergeError> {
    value
        .as_array()
        .map(Vec::as_slice)
        .ok_or_else(|| error(path, Problem::NotAList { directive: name.to_owned(), found: type_name(value) }))
}

/// A value of the patch that meets nothing in the original: without nulls and directives. `None` when a directive
/// deletes it.
pub(super) fn settle(value: &Value, path: &Path<'_>) -> Result<Option<Value>, MergeError> {
    check_depth(path)?;
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
pub(super) fn settle_items(items: &[Value], path: &Path<'_>) -> Result<Vec<Value>, MergeError> {
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
