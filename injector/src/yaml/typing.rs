//! Converts JSON to the types of a pod: strictly for templates, with coercion for users' files.

use std::convert::Infallible;

use gotemplate::{Kind, Schema};
use serde_json::{Map, Value};

use super::scalar::scalar_text;
use crate::path::{Path, type_name};
use crate::quantity;
use crate::schema::{INT_OR_STRING_NAME, QUANTITY_NAME, for_each_scalar, pointee};

/// A value whose type is not that of its field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot unmarshal {found} into Go struct field {} of type {expected} (found {value}{})", self.place(), self.fix())]
pub struct TypeError {
    /// The field, like `spec.containers[0].env[0].value`.
    pub path: String,
    /// What JSON calls the type that was found.
    pub found: &'static str,
    /// The value.
    pub value: String,
    /// The type that the field has.
    pub expected: &'static str,
}

impl TypeError {
    fn place(&self) -> &str {
        if self.path.is_empty() { "the object" } else { &self.path }
    }

    fn fix(&self) -> &'static str {
        match (self.expected, self.found) {
            _ if self.value.contains("<no value>") => "; a value that the template reads is not set",
            ("string", "number" | "bool") => "; quote it",
            ("int32" | "int64" | "bool", "string") => "; remove the quotes",
            _ => "",
        }
    }
}

/// Types `value` strictly: drops fields that the type does not have, keeps patch directives and nulls.
///
/// # Errors
/// The first value of a wrong type, with its path.
pub fn check(value: &mut Value, schema: &'static Schema) -> Result<(), TypeError> {
    check_dropping(value, schema, &mut Vec::new())
}

/// A field that a type does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownField {
    /// Where it was, like `spec.containers[0].volumeMounts[0].readonly`.
    pub path: String,
    /// The name of the field.
    pub key: String,
    /// The field that it may be meant for.
    pub similar: Option<&'static str>,
}

/// Does what [`check`] does, and notes what it drops.
pub(super) fn check_dropping(
    value: &mut Value,
    schema: &'static Schema,
    dropped: &mut Vec<UnknownField>,
) -> Result<(), TypeError> {
    check_kind(value, Kind::Struct(schema), &Path::root(), dropped)
}

type Dropped = Vec<UnknownField>;

fn check_kind(
    value: &mut Value,
    kind: Kind,
    path: &Path<'_>,
    dropped: &mut Dropped,
) -> Result<(), TypeError> {
    let kind = pointee(kind);
    match (kind, &mut *value) {
        (Kind::Any, _)
        | (_, Value::Null)
        | (Kind::Bool, Value::Bool(_))
        | (Kind::Str | Kind::Named(INT_OR_STRING_NAME, _), Value::String(_)) => Ok(()),
        (Kind::Int64, Value::Number(number)) if number.is_i64() => Ok(()),
        (Kind::Int32 | Kind::Named(INT_OR_STRING_NAME, _), Value::Number(number))
            if number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()) =>
        {
            Ok(())
        }
        (Kind::Struct(of), Value::Object(fields)) => check_struct(fields, of, path, dropped),
        (Kind::Map(of), Value::Object(fields)) => fields
            .iter_mut()
            .filter(|(key, _)| key.as_bytes().first() != Some(&b'$'))
            .try_for_each(|(key, value)| check_kind(value, *of, &path.field(key), dropped)),
        (Kind::List(of), Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                if item.is_null() && matches!(of, Kind::Str) {
                    // As in Go, where a list of strings cannot hold a null.
                    *item = Value::String(String::new());
                }
                check_kind(item, *of, &path.item(index), dropped)?;
            }
            Ok(())
        }
        (Kind::Named(QUANTITY_NAME, _), found @ (Value::String(_) | Value::Number(_))) => {
            check_quantity(found, path)
        }
        (_, found) => Err(type_error(found, expected(kind), path)),
    }
}

/// Drops the fields that the type does not have, and checks the others.
fn check_struct(
    fields: &mut Map<String, Value>,
    of: &'static Schema,
    path: &Path<'_>,
    dropped: &mut Dropped,
) -> Result<(), TypeError> {
    let mut result = Ok(());
    fields.retain(|key, value| match of.by_key(key) {
        Some(field) => {
            if result.is_ok() {
                result = check_kind(value, field.kind, &path.field(key), dropped);
            }
            true
        }
        None if key.as_bytes().first() == Some(&b'$') => true,
        None => {
            dropped.push(unknown(key, of, path));
            false
        }
    });
    result
}

fn unknown(key: &str, of: &'static Schema, path: &Path<'_>) -> UnknownField {
    UnknownField { path: path.field(key).to_string(), key: key.to_owned(), similar: similar(key, of) }
}

/// The field that was probably meant.
pub(crate) fn similar(key: &str, of: &'static Schema) -> Option<&'static str> {
    const MAX_DISTANCE: usize = 2;
    let lower = key.to_lowercase();
    let near =
        of.fields.iter().map(|field| (strsim::levenshtein(&field.key.to_lowercase(), &lower), field.key));
    near.min().filter(|(steps, _)| *steps <= MAX_DISTANCE).map(|(_, name)| name)
}

/// A quantity may be a number; it becomes its text.
fn check_quantity(value: &mut Value, path: &Path<'_>) -> Result<(), TypeError> {
    let text = match &*value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if quantity::canonical(&text).is_err() {
        return Err(type_error(value, QUANTITY_NAME, path));
    }
    *value = Value::String(text);
    Ok(())
}

fn type_error(found: &Value, expected: &'static str, path: &Path<'_>) -> TypeError {
    let value = match found {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        scalar => scalar.to_string().chars().take(80).collect(),
    };
    TypeError { path: path.to_string(), found: type_name(found), value, expected }
}

const fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Bool => "bool",
        Kind::Int32 => "int32",
        Kind::Int64 => "int64",
        Kind::List(_) => "list",
        Kind::Map(_) => "map[string]",
        Kind::Named(name, _) => name,
        Kind::Str => "string",
        Kind::Struct(of) => of.name,
        _ => "any",
    }
}

/// Coerces `value` to the types of `schema`: numbers and bools in string fields become the strings that Go
/// makes of them; everything else, unknown fields included, stays.
pub fn coerce(value: &mut Value, schema: &'static Schema) {
    coerce_each(value, schema, &mut |_, _| {});
}

/// Does what [`coerce`] does, and calls `coerced` with the path and the text of each value that it changes.
pub(super) fn coerce_each(
    value: &mut Value,
    schema: &'static Schema,
    coerced: &mut dyn FnMut(&Path<'_>, &str),
) {
    let Ok(()) = for_each_scalar(value, Kind::Struct(schema), &Path::root(), &mut |value, kind, path| {
        if let (Kind::Str, Some(text)) = (kind, scalar_text(value)) {
            coerced(path, &text);
            *value = Value::String(text);
        }
        Ok::<(), Infallible>(())
    });
}
