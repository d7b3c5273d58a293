//! The values a template works on.

mod collections;
pub(crate) mod quantity;
pub(crate) mod schema;
pub(crate) mod text;
mod typed;

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::{Map as JsonMap, Value as Json};

use schema::{EnumType, Field, Kind, Schema, is_same_name, pointer_name, title};
pub(crate) use text::MAX_NESTING;
use text::{Origin, Str};

/// Go's integer types, as far as they show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum IntType {
    Int,
    Int32,
    Int64,
    Uint8,
    Uint32,
}

impl IntType {
    /// Go's name of the type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Int32 => "int32",
            Self::Int64 => "int64",
            Self::Uint8 => "uint8",
            Self::Uint32 => "uint32",
        }
    }
}

/// A value. Cloning is cheap: text and collections are borrowed or shared.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// No value at all: a missing map key, literal `nil`. Prints `<no value>`.
    Nil,
    /// A nil interface that is there: JSON null. In a pipeline it becomes [`Value::Nil`]; a field of it is an
    /// error.
    Null,
    /// A nil pointer to a struct (methods may be called on it) or to something else.
    NilPtr(&'static Kind),
    /// A pointer to a scalar: true as long as it is not nil, printed as what it points to.
    Ptr(Rc<Self>),
    /// `bool`
    Bool(bool),
    /// An integer.
    Int(i64, IntType),
    /// `float64`
    Float(f64),
    /// `string`
    Str(Str<'a>),
    /// A protobuf enum value.
    Enum(&'static EnumType, i32),
    /// `*durationpb.Duration`, in nanoseconds.
    Duration(i64),
    /// A protobuf wrapper message with its value.
    Wrapper(Rc<Self>),
    /// A slice.
    List(List<'a>),
    /// A map.
    Map(Map<'a>),
    /// A struct over JSON.
    Struct(Struct<'a>),
    /// A struct put together from values.
    Record(Rc<Record<'a>>),
}

/// A slice, over JSON or our own.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// Over JSON; `None` is the nil slice.
    Json {
        /// The elements.
        items: Option<&'a [Json]>,
        /// The type of the elements.
        elem: &'static Kind,
        /// Where their text came from.
        origin: Option<Origin<'a>>,
    },
    /// Our own.
    Own(Rc<OwnList<'a>>),
}

/// A slice made by a template.
#[derive(Debug)]
pub struct OwnList<'a> {
    pub(crate) items: Vec<Value<'a>>,
    pub(crate) elem: &'static str,
}

/// A map with string keys, over JSON or our own.
#[derive(Clone, Debug)]
pub enum Map<'a> {
    /// Over JSON; `None` is the nil map.
    Json {
        /// The entries.
        entries: Option<&'a JsonMap<String, Json>>,
        /// The type of the values.
        elem: &'static Kind,
        /// Where the text came from. For text right in this map, the entry's key replaces the origin's.
        origin: Option<Origin<'a>>,
    },
    /// Our own, changed in place by `set` and `unset`.
    Own(Rc<OwnMap<'a>>),
}

/// A map made by a template.
#[derive(Debug)]
pub struct OwnMap<'a> {
    pub(crate) entries: RefCell<BTreeMap<Str<'a>, Value<'a>>>,
    pub(crate) elem: &'static str,
}

/// A struct over a JSON object.
#[derive(Clone, Copy, Debug)]
pub struct Struct<'a> {
    /// The type of the struct.
    pub schema: &'static Schema,
    /// The JSON of the struct; `None` is the zero value.
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

impl<'a> Value<'a> {
    /// JSON as `any`: objects are `map[string]any`, numbers `float64`.
    #[must_use]
    pub fn any(json: &'a Json) -> Self {
        Self::typed(Some(json), &Kind::Any, None)
    }

    /// An object as `map[string]any`; `None` is the nil map.
    #[must_use]
    pub const fn any_map(entries: Option<&'a JsonMap<String, Json>>) -> Self {
        Self::Map(Map::Json { entries, elem: &Kind::Any, origin: None })
    }

    /// An object as `map[string]string`; `None` is the nil map. With an origin word its text is tainted by
    /// it.
    #[must_use]
    pub fn str_map(entries: Option<&'a JsonMap<String, Json>>, origin: Option<&'static str>) -> Self {
        let origin = origin.map(|kind| Origin { kind, key: "" });
        Self::Map(Map::Json { entries, elem: &Kind::Str, origin })
    }

    /// An object as a struct; `None` is its zero value. With an origin word all of its text is tainted.
    #[must_use]
    pub fn of_struct(
        schema: &'static Schema,
        json: Option<&'a JsonMap<String, Json>>,
        origin: Option<&'static str>,
    ) -> Self {
        let origin = origin.map(|kind| Origin { kind, key: "" });
        Self::Struct(Struct { schema, json, origin, pointer: schema.proto })
    }

    /// A struct put together from values.
    #[must_use]
    pub fn record(name: &'static str, fields: Vec<(&'static str, Self)>) -> Self {
        Self::Record(Rc::new(Record { name, fields, text: None }))
    }

    /// A struct put together from values, with the text that it prints as.
    #[must_use]
    pub fn printed_record(name: &'static str, fields: Vec<(&'static str, Self)>, text: Str<'a>) -> Self {
        Self::Record(Rc::new(Record { name, fields, text: Some(text) }))
    }

    /// Text that belongs to us.
    #[must_use]
    pub fn string(text: impl Into<String>) -> Self {
        Self::Str(text.into().into())
    }

    /// Text that belongs to the user: tainted by `origin`.
    #[must_use]
    pub fn user_text(text: &'a str, origin: Origin<'a>) -> Self {
        Self::Str(Str::borrowed(text).tainted(Some(origin)))
    }

    /// An `int`.
    #[must_use]
    pub const fn int(number: i64) -> Self {
        Self::Int(number, IntType::Int)
    }

    /// An `int64`.
    #[must_use]
    pub const fn int64(number: i64) -> Self {
        Self::Int(number, IntType::Int64)
    }

    /// A `[]any`.
    #[must_use]
    pub fn list(items: Vec<Self>) -> Self {
        Self::list_of(items, "interface {}")
    }

    /// A slice with elements of the Go type `elem`.
    #[must_use]
    pub fn list_of(items: Vec<Self>, elem: &'static str) -> Self {
        Self::List(List::Own(Rc::new(OwnList::new(items, elem))))
    }

    /// A `[]string`.
    #[must_use]
    pub fn strings(items: impl IntoIterator<Item = Str<'a>>) -> Self {
        Self::list_of(items.into_iter().map(Self::Str).collect(), "string")
    }

    /// A `map[string]any`.
    #[must_use]
    pub fn dict(entries: BTreeMap<Str<'a>, Self>) -> Self {
        Self::map_of(entries, "interface {}")
    }

    /// A map with values of the Go type `elem`.
    #[must_use]
    pub fn map_of(entries: BTreeMap<Str<'a>, Self>, elem: &'static str) -> Self {
        Self::Map(Map::Own(Rc::new(OwnMap::new(entries, elem))))
    }

    /// Whether it is nil of any sort.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        match self {
            Self::Nil | Self::Null | Self::NilPtr(_) => true,
            Self::List(list) => list.is_nil(),
            Self::Map(map) => map.is_nil(),
            _ => false,
        }
    }

    /// Go's truth: not the zero value; structs and non-nil pointers are always true.
    #[must_use]
    pub fn is_true(&self) -> bool {
        match self {
            Self::Nil | Self::Null | Self::NilPtr(_) => false,
            Self::Bool(b) => *b,
            Self::Int(n, _) => *n != 0,
            Self::Float(n) => *n != 0.0,
            Self::Str(s) => !s.as_str().is_empty(),
            Self::Enum(_, n) => *n != 0,
            Self::List(list) => !list.is_empty(),
            Self::Map(map) => !map.is_empty(),
            Self::Ptr(_) | Self::Duration(_) | Self::Wrapper(_) | Self::Struct(_) | Self::Record(_) => true,
        }
    }

    /// Go's name of the type, as `%T` prints it.
    #[must_use]
    pub fn type_name(&self) -> Cow<'static, str> {
        match self {
            Self::Nil | Self::Null => "<nil>".into(),
            Self::NilPtr(kind) => pointer_name(kind),
            Self::Ptr(inner) => format!("*{}", inner.type_name()).into(),
            Self::Bool(_) => "bool".into(),
            Self::Int(_, ty) => ty.name().into(),
            Self::Float(_) => "float64".into(),
            Self::Str(_) => "string".into(),
            Self::Enum(ty, _) => ty.name.into(),
            Self::Duration(_) => "*durationpb.Duration".into(),
            Self::Wrapper(inner) => format!("*wrapperspb.{}Value", title(&inner.type_name())).into(),
            Self::List(list) => format!("[]{}", list.elem_name()).into(),
            Self::Map(map) => format!("map[string]{}", map.elem_name()).into(),
            Self::Struct(s) if s.pointer => format!("*{}", s.schema.name).into(),
            Self::Struct(s) => s.schema.name.into(),
            Self::Record(r) => r.name.into(),
        }
    }

    /// The string, if it is one.
    #[must_use]
    pub const fn as_str(&self) -> Option<&Str<'a>> {
        match self {
            Self::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The steps that a look at this value costs.
    pub(crate) fn step_cost(&self) -> usize {
        match self {
            Self::Str(text) => text.as_str().len() / 256,
            Self::List(list) => list.len() / 16,
            Self::Map(map) => map.len() / 16,
            _ => 0,
        }
    }
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
        Value::typed(
            self.json.and_then(|json| collections::entry(json, field.key)).map(|(_, json)| json),
            &field.kind,
            origin,
        )
    }
}

impl<'a> Record<'a> {
    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.fields.iter().find(|(n, _)| is_same_name(n, name)).map(|(_, value)| value)
    }
}
