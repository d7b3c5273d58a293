//! JSON → values of Go types.

use crate::value::quantity::{self, QUANTITY};
use crate::value::schema::{EnumType, Kind};
use crate::value::text::{Origin, Str};
use crate::value::{IntType, List, Map, Struct, Value};
use serde_json::Value as Json;
use std::rc::Rc;

impl<'a> Value<'a> {
    /// JSON as a value of the Go type `kind`; `None` is an absent key.
    #[must_use]
    pub fn typed(json: Option<&'a Json>, kind: &'static Kind, origin: Option<Origin<'a>>) -> Self {
        let json = json.filter(|j| !j.is_null() || matches!(kind, Kind::Any));
        match kind {
            Kind::Any => json.map_or(Self::Null, |json| Self::untyped(json, origin)),
            Kind::Bool => Self::Bool(json.and_then(Json::as_bool).unwrap_or_default()),
            Kind::Str => Self::Str(json.map_or(Str::borrowed(""), |j| scalar_text(j).tainted(origin))),
            Kind::Int32 => Self::Int(json.map_or(0, whole), IntType::Int32),
            Kind::Int64 => Self::Int(json.map_or(0, whole), IntType::Int64),
            Kind::Uint32 => Self::Int(json.map_or(0, whole), IntType::Uint32),
            Kind::Float => Self::Float(json.and_then(Json::as_f64).unwrap_or_default()),
            Kind::Map(elem) => Self::Map(Map::Json { entries: json.and_then(Json::as_object), elem, origin }),
            Kind::List(elem) => {
                let items = json.and_then(Json::as_array).map(Vec::as_slice);
                Self::List(List::Json { items, elem, origin })
            }
            Kind::Struct(schema) => Self::Struct(Struct {
                schema,
                json: json.and_then(Json::as_object),
                origin,
                pointer: schema.proto,
            }),
            Kind::Named(QUANTITY, _) => {
                quantity::of(json.map_or(Str::borrowed("0"), |json| scalar_text(json).tainted(origin)))
            }
            Kind::Named(_, of) => Self::typed(json, of, origin),
            Kind::Enum(ty) => Self::Enum(ty, json.map_or(0, |json| enum_number(ty, json))),
            Kind::Ptr(inner) => match json {
                None => Self::NilPtr(inner),
                some => match Self::typed(some, inner, origin) {
                    Self::Struct(s) => Self::Struct(Struct { pointer: true, ..s }),
                    record @ Self::Record(_) => record,
                    scalar => Self::Ptr(Rc::new(scalar)),
                },
            },
            Kind::Duration => json
                .and_then(Json::as_str)
                .and_then(goduration::parse)
                .map_or(Self::NilPtr(kind), Self::Duration),
            Kind::Wrapper(inner) => match json {
                None => Self::NilPtr(kind),
                some => Self::Wrapper(Rc::new(Self::typed(some, inner, origin))),
            },
        }
    }

    fn untyped(json: &'a Json, origin: Option<Origin<'a>>) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(b) => Self::Bool(*b),
            Json::Number(n) => Self::Float(n.as_f64().unwrap_or_default()),
            Json::String(s) => Self::Str(Str::borrowed(s).tainted(origin)),
            Json::Array(items) => Self::List(List::Json { items: Some(items), elem: &Kind::Any, origin }),
            Json::Object(entries) => {
                Self::Map(Map::Json { entries: Some(entries), elem: &Kind::Any, origin })
            }
        }
    }

    /// JSON that the template made itself (`fromJson`), as `any`, with all of its text tainted like `source`.
    #[must_use]
    pub fn from_owned_json(json: &Json, source: &Str<'a>) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(b) => Self::Bool(*b),
            Json::Number(n) => Self::Float(n.as_f64().unwrap_or_default()),
            Json::String(s) => Self::Str(Str::derived(s.as_str(), &[source])),
            Json::Array(items) => {
                Self::list(items.iter().map(|item| Self::from_owned_json(item, source)).collect())
            }
            Json::Object(entries) => Self::dict(
                entries
                    .iter()
                    .map(|(k, v)| (Str::derived(k.as_str(), &[source]), Self::from_owned_json(v, source)))
                    .collect(),
            ),
        }
    }
}

fn scalar_text(json: &Json) -> Str<'_> {
    match json {
        Json::String(s) => Str::borrowed(s),
        Json::Null => Str::borrowed(""),
        other @ (Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_)) => {
            other.to_string().into()
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a float without a fraction, as JSON writers produce them"
)]
fn whole(json: &Json) -> i64 {
    json.as_i64().or_else(|| json.as_f64().map(|f| f as i64)).unwrap_or_default()
}

fn enum_number(ty: &'static EnumType, json: &Json) -> i32 {
    match json {
        Json::String(name) => ty.values.iter().find(|(n, _)| n == name).map_or(0, |(_, number)| *number),
        other => i32::try_from(whole(other)).unwrap_or_default(),
    }
}
