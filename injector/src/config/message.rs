//! Parses JSON into the messages of Istio's API, as Istio's own parsers do.

use serde_json::{Map, Value, json};

use crate::path::FieldError;
use crate::yaml::similar;
use gotemplate::{EnumType, Field, Kind, Schema};

/// Fields of which a message holds one: the last in the order of the schema.
const ONE_OF: [&[&str]; 5] = [
    &["serviceCluster", "tracingServiceName"],
    &["zipkin", "lightstep", "datadog", "stackdriver", "openCensusAgent"],
    &["literal", "environment", "header"],
    &["httpGet", "tcpSocket", "exec", "grpc"],
    &["cryptomb", "qat"],
];

/// Brings an object into the form in which Istio writes this message: field names in camel case, enums by
/// name, durations in seconds. Unknown fields and those that are null are dropped; null in a list or map is
/// the empty value. Errors: the field, its value and what is accepted.
pub(crate) fn normal(value: &Value, schema: &'static Schema) -> Result<Map<String, Value>, FieldError> {
    message(value, schema, "")
}

/// The fields that [`normal`] drops because the message does not have them, each in a sentence.
pub(crate) fn unknown(value: &Value, schema: &'static Schema) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in value.as_object().into_iter().flatten() {
        match known(schema, key) {
            None => {
                let hint = similar(key, schema).map(|name| format!("; did you mean {name}?"));
                found.push(format!("{key}: not known, ignored{}", hint.unwrap_or_default()));
            }
            Some(field) => {
                if let Kind::Struct(inner) | Kind::Ptr(&Kind::Struct(inner)) = field.kind {
                    found.extend(unknown(value, inner).into_iter().map(|inner| format!("{key}.{inner}")));
                }
            }
        }
    }
    found
}

fn message(value: &Value, schema: &'static Schema, path: &str) -> Result<Map<String, Value>, FieldError> {
    let mut result = Map::new();
    let Some(object) = value.as_object() else {
        return Err(FieldError::new(path, value, "a map"));
    };
    for field in schema.fields {
        let given = object.get(field.key).or_else(|| object.get(&snake(field.key)));
        let Some(value) = given.filter(|value| !value.is_null()) else { continue };
        let path = if path.is_empty() { field.key.to_owned() } else { format!("{path}.{}", field.key) };
        let value = of_kind(value, &field.kind, &path)?;
        for other in rivals(field.key) {
            result.shift_remove(*other);
        }
        result.insert(field.key.to_owned(), value);
    }
    Ok(result)
}

/// The fields that this one replaces.
pub(super) fn rivals(key: &str) -> impl Iterator<Item = &'static &'static str> {
    let group = ONE_OF.into_iter().find(|group| group.contains(&key)).unwrap_or_default();
    group.iter().filter(move |other| **other != key)
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

fn of_kind(value: &Value, kind: &'static Kind, path: &str) -> Result<Value, FieldError> {
    match kind {
        Kind::Any => Ok(value.clone()),
        Kind::Struct(_) | Kind::Map(_) if value.is_null() => Ok(json!({})),
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
        Kind::Float => {
            let text = value.as_str().and_then(|text| serde_json::from_str::<f64>(text).ok());
            let number =
                text.map(|number| json!(number)).or_else(|| value.is_number().then(|| value.clone()));
            number.ok_or_else(|| FieldError::new(path, value, "a number"))
        }
        Kind::Int32 | Kind::Int64 | Kind::Uint32 => {
            let whole = whole(value).filter(|number| fits(*number, kind));
            whole.map(|number| json!(number)).ok_or_else(|| FieldError::new(path, value, "an integer"))
        }
        Kind::List(item) => {
            let items = value.as_array().ok_or_else(|| FieldError::new(path, value, "a list"))?;
            let items =
                items.iter().enumerate().map(|(at, value)| of_kind(value, item, &format!("{path}[{at}]")));
            items.collect::<Result<Vec<Value>, FieldError>>().map(Value::Array)
        }
        Kind::Map(item) => {
            let entries = value.as_object().ok_or_else(|| FieldError::new(path, value, "a map"))?;
            let entries = entries.iter();
            let entries = entries
                .map(|(key, value)| Ok((key.clone(), of_kind(value, item, &format!("{path}.{key}"))?)));
            entries.collect::<Result<Map<String, Value>, FieldError>>().map(Value::Object)
        }
        // 64 bits are a string in protobuf's JSON.
        Kind::Named(_, _) => of_kind(value, &Kind::Int64, path).map(|number| json!(number.to_string())),
        Kind::Ptr(inner) | Kind::Wrapper(inner) => of_kind(value, inner, path),
        Kind::Str => match value {
            Value::String(_) => Ok(value.clone()),
            Value::Null => Ok(json!("")),
            Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                Err(FieldError::new(path, value, "a string (in quotes)"))
            }
        },
        Kind::Struct(schema) => message(value, schema, path).map(Value::Object),
    }
}

/// By name, or by number, which may be one without a name.
fn named(value: &Value, names: &EnumType) -> Option<Value> {
    let number =
        if value.is_null() { Some(0) } else { value.as_i64().and_then(|number| i32::try_from(number).ok()) };
    let mut all = names.values.iter();
    let entry = all.find(|(name, code)| value.as_str() == Some(*name) || number == Some(*code));
    entry.map(|(name, _)| json!(name)).or_else(|| number.map(|number| json!(number)))
}

/// An integer, or a string of one; the string `null` is 0, as in Istio.
#[allow(clippy::cast_possible_truncation, reason = "the fraction is none, and the size is looked at")]
fn whole(value: &Value) -> Option<i64> {
    let float = || value.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e15);
    let text = value.as_str().and_then(|text| serde_json::from_str::<Option<i64>>(text).ok());
    text.map(Option::unwrap_or_default)
        .or_else(|| value.as_i64())
        .or_else(|| float().map(|float| float as i64))
}

fn fits(number: i64, kind: &Kind) -> bool {
    if matches!(kind, Kind::Int32) {
        i32::try_from(number).is_ok()
    } else {
        !matches!(kind, Kind::Uint32) || u32::try_from(number).is_ok()
    }
}
