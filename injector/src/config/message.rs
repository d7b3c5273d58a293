//! JSON into the messages of Istio's API, as its own readers take them.

use serde_json::{Map, Value, json};

use crate::path::FieldError;
use gotemplate::{EnumType, Field, Kind, Schema};

/// How text fields take other scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// A number or boolean becomes its text, as in a file that Kubernetes' readers read.
    Coerced,
    /// Text only, as in an annotation.
    Strict,
}

/// Brings an object into the form in which Istio writes this message: field names in camel case, enums by name,
/// durations in seconds. Unknown fields and nulls are dropped.
///
/// # Errors
///
/// The field, its value and what is accepted.
pub fn normal(value: &Value, schema: &'static Schema, text: Text) -> Result<Map<String, Value>, FieldError> {
    message(value, schema, text, "")
}

/// The fields that [`normal`] drops because the message does not have them.
#[must_use]
pub fn unknown(value: &Value, schema: &'static Schema) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        match known(schema, key) {
            None => found.push(key.clone()),
            Some(field) => {
                if let Kind::Struct(inner) | Kind::Ptr(&Kind::Struct(inner)) = field.kind {
                    found.extend(unknown(value, inner).into_iter().map(|inner| format!("{key}.{inner}")));
                }
            }
        }
    }
    found
}

fn message(
    value: &Value,
    schema: &'static Schema,
    text: Text,
    path: &str,
) -> Result<Map<String, Value>, FieldError> {
    let mut result = Map::new();
    let Some(object) = value.as_object() else {
        return Err(FieldError::new(path, value, "a map"));
    };
    for (key, value) in object.iter().filter(|(_, value)| !value.is_null()) {
        let Some(field) = known(schema, key) else { continue };
        let path = if path.is_empty() { field.key.to_owned() } else { format!("{path}.{}", field.key) };
        result.insert(field.key.to_owned(), of_kind(value, &field.kind, text, &path)?);
    }
    Ok(result)
}

fn known(schema: &'static Schema, key: &str) -> Option<&'static Field> {
    let exact = schema.fields.iter().find(|field| field.key == key);
    exact.or_else(|| schema.fields.iter().find(|field| key.contains('_') && snake(field.key) == key))
}

fn snake(camel: &str) -> String {
    let mut text = String::new();
    for c in camel.chars() {
        if c.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

fn of_kind(value: &Value, kind: &'static Kind, text: Text, path: &str) -> Result<Value, FieldError> {
    match kind {
        Kind::Any => Ok(value.clone()),
        Kind::Bool if value.is_boolean() => Ok(value.clone()),
        Kind::Bool => Err(FieldError::new(path, value, "true or false")),
        Kind::Duration => {
            let nanoseconds = value.as_str().and_then(goduration::parse);
            nanoseconds
                .map(|n| json!(goduration::seconds(n)))
                .ok_or_else(|| FieldError::new(path, value, "a duration such as 45s"))
        }
        Kind::Enum(names) => named(value, names).ok_or_else(|| {
            let all: Vec<&str> = names.values.iter().map(|(name, _)| *name).collect();
            FieldError::new(path, value, &all.join(", "))
        }),
        Kind::Float => number(value).ok_or_else(|| FieldError::new(path, value, "a number")),
        Kind::Int32 | Kind::Int64 | Kind::Uint32 => {
            let whole = number(value).and_then(|number| whole(&number)).filter(|number| fits(*number, kind));
            whole.map(|number| json!(number)).ok_or_else(|| FieldError::new(path, value, "a whole number"))
        }
        Kind::List(item) => {
            let items = value.as_array().ok_or_else(|| FieldError::new(path, value, "a list"))?;
            let items = items
                .iter()
                .enumerate()
                .map(|(at, value)| of_kind(value, item, text, &format!("{path}[{at}]")));
            items.collect::<Result<Vec<Value>, FieldError>>().map(Value::Array)
        }
        Kind::Map(item) => {
            let entries = value.as_object().ok_or_else(|| FieldError::new(path, value, "a map"))?;
            let entries = entries.iter().filter(|(_, value)| !value.is_null() || matches!(item, Kind::Any));
            let entries = entries
                .map(|(key, value)| Ok((key.clone(), of_kind(value, item, text, &format!("{path}.{key}"))?)));
            entries.collect::<Result<Map<String, Value>, FieldError>>().map(Value::Object)
        }
        Kind::Ptr(inner) | Kind::Wrapper(inner) | Kind::Named(_, inner) => of_kind(value, inner, text, path),
        Kind::Str => match value {
            Value::String(_) => Ok(value.clone()),
            Value::Bool(_) | Value::Number(_) if text == Text::Coerced => Ok(json!(value.to_string())),
            Value::Array(_) | Value::Bool(_) | Value::Null | Value::Number(_) | Value::Object(_) => {
                Err(FieldError::new(path, value, "text (in quotes)"))
            }
        },
        Kind::Struct(schema) => message(value, schema, text, path).map(Value::Object),
    }
}

/// By name or by number.
fn named(value: &Value, names: &EnumType) -> Option<Value> {
    let (text, number) = (value.as_str(), value.as_i64());
    let mut all = names.values.iter();
    let entry = all.find(|(name, value)| text == Some(*name) || number == Some(i64::from(*value)))?;
    Some(json!(entry.0))
}

/// A number, or the text of one.
fn number(value: &Value) -> Option<Value> {
    match value {
        Value::Number(_) => Some(value.clone()),
        Value::String(text) => serde_json::from_str(text).ok().filter(Value::is_number),
        Value::Array(_) | Value::Bool(_) | Value::Null | Value::Object(_) => None,
    }
}

#[allow(clippy::cast_possible_truncation, reason = "the fraction is none, and the size is looked at")]
fn whole(number: &Value) -> Option<i64> {
    let float = || number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15);
    number.as_i64().or_else(|| float().map(|float| float as i64))
}

fn fits(number: i64, kind: &Kind) -> bool {
    if matches!(kind, Kind::Int32) {
        i32::try_from(number).is_ok()
    } else {
        !matches!(kind, Kind::Uint32) || u32::try_from(number).is_ok()
    }
}
