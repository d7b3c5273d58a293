//! Typing JSON by the types of a pod: strictly for templates, forgivingly for people's files.

use std::fmt;

use serde_json::{Map, Value};

use super::read::scalar_text;
use crate::overlay::{Path, kind_name};
use crate::quantity;
use crate::schema::{Kind, Struct};

/// A value whose type is not that of its field.
#[derive(Clone, Debug, PartialEq, Eq)]
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

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, found, value, expected } = self;
        let place = if path.is_empty() { "the object" } else { path };
        write!(f, "cannot unmarshal {found} into Go struct field {place} of type {expected} (found {value}")?;
        match *expected {
            "string" if matches!(*found, "number" | "bool") => write!(f, "; quote it)"),
            "int64" | "bool" if *found == "string" => write!(f, "; remove the quotes)"),
            _ => write!(f, ")"),
        }
    }
}

impl std::error::Error for TypeError {}

/// Types `value` strictly: drops fields that the type does not have, keeps patch directives and nulls.
///
/// # Errors
/// The first value of a wrong type, with its path.
pub fn check(value: &mut Value, schema: &'static Struct) -> Result<(), TypeError> {
    check_kind(value, Kind::Struct(schema), &Path::root())
}

fn check_kind(value: &mut Value, kind: Kind, path: &Path<'_>) -> Result<(), TypeError> {
    match (kind, &mut *value) {
        (Kind::Any, _)
        | (_, Value::Null)
        | (Kind::Bool, Value::Bool(_))
        | (Kind::Str | Kind::IntOrString, Value::String(_)) => Ok(()),
        (Kind::Int | Kind::IntOrString, Value::Number(number)) if number.is_i64() => Ok(()),
        (Kind::Struct(of), Value::Object(fields)) => check_struct(fields, of, path),
        (Kind::Map(of), Value::Object(fields)) => fields
            .iter_mut()
            .filter(|(key, _)| !key.starts_with('$'))
            .try_for_each(|(key, value)| check_kind(value, *of, &path.field(key))),
        (Kind::List(of, _), Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                if item.is_null() && matches!(of, Kind::Str) {
                    // As in Go, where a list of strings cannot hold a null.
                    *item = Value::String(String::new());
                }
                check_kind(item, *of, &path.item(index))?;
            }
            Ok(())
        }
        (Kind::Quantity, found @ (Value::String(_) | Value::Number(_))) => check_quantity(found, path),
        (_, found) => Err(type_error(found, expected(kind), path)),
    }
}

fn check_struct(
    fields: &mut Map<String, Value>,
    of: &'static Struct,
    path: &Path<'_>,
) -> Result<(), TypeError> {
    fields.retain(|key, _| key.starts_with('$') || of.field(key).is_some());
    for (key, value) in fields {
        if let Some(kind) = of.field(key) {
            check_kind(value, *kind, &path.field(key))?;
        }
    }
    Ok(())
}

/// A quantity may be a number; it becomes the string that it stands for.
fn check_quantity(value: &mut Value, path: &Path<'_>) -> Result<(), TypeError> {
    let text = match &*value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if quantity::canonical(&text).is_err() {
        return Err(type_error(value, expected(Kind::Quantity), path));
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
    TypeError { path: path.to_string(), found: kind_name(found), value, expected }
}

fn expected(kind: Kind) -> &'static str {
    match kind {
        Kind::Any => "any",
        Kind::Bool => "bool",
        Kind::Int => "int64",
        Kind::IntOrString => "intstr.IntOrString",
        Kind::List(..) => "list",
        Kind::Map(_) => "map[string]",
        Kind::Quantity => "resource.Quantity",
        Kind::Str => "string",
        Kind::Struct(of) => of.name,
    }
}

/// Types `value` forgivingly: numbers and bools in string fields become the strings that Go makes of them; everything
/// else, unknown fields included, stays.
pub fn forgive(value: &mut Value, schema: &'static Struct) {
    forgive_kind(value, Kind::Struct(schema));
}

fn forgive_kind(value: &mut Value, kind: Kind) {
    match (kind, value) {
        (Kind::Str, value) => {
            if let Some(text) = scalar_text(value) {
                *value = Value::String(text);
            }
        }
        (Kind::Struct(of), Value::Object(fields)) => {
            for (key, value) in fields {
                if let Some(kind) = of.field(key) {
                    forgive_kind(value, *kind);
                }
            }
        }
        (Kind::Map(of), Value::Object(fields)) => {
            fields.values_mut().for_each(|value| forgive_kind(value, *of));
        }
        (Kind::List(of, _), Value::Array(items)) => items.iter_mut().for_each(|item| forgive_kind(item, *of)),
        _ => {}
    }
}
