//! Structs: over JSON with a schema, or put together from values.

use super::schema::{Field, Kind, Schema};
use super::text::{Origin, Str};
use super::value::Value;
use serde_json::{Map as JsonMap, Value as Json};

/// A struct over a JSON object.
#[derive(Clone, Copy, Debug)]
pub struct Struct<'a> {
    /// Its type.
    pub schema: &'static Schema,
    /// Its JSON; `None` is the zero value.
    pub json: Option<&'a JsonMap<String, Json>>,
    /// Where its text came from.
    pub origin: Option<Origin<'a>>,
    /// Handed around as a pointer.
    pub pointer: bool,
}

/// A struct put together from values, such as the data a template is rendered with.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    /// Go's name of the type.
    pub name: &'static str,
    /// Field names and values.
    pub fields: Vec<(&'static str, Value<'a>)>,
    /// What it prints as, if it has its own text.
    pub text: Option<Str<'a>>,
}

impl<'a> Struct<'a> {
    /// The value of a field.
    #[must_use]
    pub fn value(&self, field: &'static Field) -> Value<'a> {
        let origin = match (field.origin, self.origin) {
            (Some(kind), _) => Some(Origin { kind, key: field.key }),
            (None, Some(outer)) => Some(Origin { kind: outer.kind, key: field.key }),
            (None, None) => None,
        };
        if field.key.is_empty()
            && let Kind::Struct(schema) = field.kind
        {
            return Value::Struct(Self { schema, json: self.json, origin, pointer: false });
        }
        Value::typed(self.json.and_then(|json| json.get(field.key)), &field.kind, origin)
    }
}

impl<'a> Record<'a> {
    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.fields.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }
}
