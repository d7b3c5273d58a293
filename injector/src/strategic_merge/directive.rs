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
    // Maps are small, and hashing the key takes longer than a linear search.
    match patch.iter().find(|(key, _)| *key == PATCH).map(|(_, value)| value) {
        None => Ok(Directive::Merge),
        Some(Value::String(text)) if text == "merge" => Ok(Directive::Merge),
        Some(Value::String(text)) if text == "replace" => Ok(Directive::Replace),
        Some(Value::String(text)) if text == "delete" => Ok(Directive::Delete),
        Some(other) => Err(error(path, Problem::UnknownDirective { value: other.to_string() })),
    }
}

pub(super) fn is_directive(key: &str) -> bool {
    key.as_bytes().first() == Some(&b'$')
        && (key == PATCH || key == RETAIN_KEYS || key.starts_with(SET_ORDER) || key.starts_with(DELETE_FROM))
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

/// Takes nulls and directives out of a value that the original lacks; `false` when a directive deletes it.
pub(super) fn settle(value: &mut Value, path: &Path<'_>) -> Result<bool, MergeError> {
    check_depth(path)?;
    match value {
        Value::Object(fields) => match directive(fields, path)? {
            Directive::Delete => return Ok(false),
            Directive::Merge | Directive::Replace => settle_fields(fields, path)?,
        },
        Value::Array(items) => settle_items(items, path)?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(true)
}

pub(super) fn settle_fields(fields: &mut Object, path: &Path<'_>) -> Result<(), MergeError> {
    let mut settled = Ok(());
    fields.retain(|key, value| {
        let is_content = settled.is_ok() && !value.is_null() && !is_directive(key);
        is_content && stays(settle(value, &path.field(key)), &mut settled)
    });
    settled
}

/// The items of a new list; one with `$patch: replace` is an instruction for the list, not an item.
pub(super) fn settle_items(items: &mut Vec<Value>, path: &Path<'_>) -> Result<(), MergeError> {
    let (mut settled, mut index) = (Ok(()), 0);
    items.retain_mut(|item| {
        let path = path.item(index);
        index += 1;
        let is_item = |item: &Value| match item {
            Value::Object(fields) => directive(fields, &path).map(|found| found != Directive::Replace),
            _ => Ok(true),
        };
        settled.is_ok() && stays(is_item(item), &mut settled) && stays(settle(item, &path), &mut settled)
    });
    settled
}

/// The result, or `false` and the error for later.
fn stays(result: Result<bool, MergeError>, failed: &mut Result<(), MergeError>) -> bool {
    result.unwrap_or_else(|error| {
        *failed = Err(error);
        false
    })
}
