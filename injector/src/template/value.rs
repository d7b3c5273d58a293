//! The values a template works on.

use super::schema::{EnumType, Field, Kind, Schema};
use super::text::{Origin, Str};
use serde_json::{Map as JsonMap, Value as Json};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How deep values may nest; printing and comparing go no deeper, so that no value exhausts the stack.
pub(super) const MAX_NESTING: usize = 100;

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
    /// A nil interface that is there: JSON null. In a pipeline it becomes [`Value::Nil`]; a field of it is an error.
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
        /// Their type.
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
    items: Vec<Value<'a>>,
    elem: &'static str,
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
    entries: RefCell<BTreeMap<Str<'a>, Value<'a>>>,
    elem: &'static str,
}

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

impl<'a> Value<'a> {
    /// JSON as `any`: objects are `map[string]any`, numbers `float64`.
    #[must_use]
    pub fn any(json: &'a Json) -> Self {
        Self::typed(Some(json), &Kind::Any, None)
    }

    /// An object as `map[string]any`; `None` is the nil map.
    #[must_use]
    pub const fn any_map(entries: Option<&'a JsonMap<String, Json>>) -> Self {
        Self::Map(Map::Json {
            entries,
            elem: &Kind::Any,
            origin: None,
        })
    }

    /// An object as `map[string]string`; `None` is the nil map. With an origin word its text is tainted by it.
    #[must_use]
    pub fn str_map(entries: Option<&'a JsonMap<String, Json>>, origin: Option<&'static str>) -> Self {
        let origin = origin.map(|kind| Origin { kind, key: "" });
        Self::Map(Map::Json {
            entries,
            elem: &Kind::Str,
            origin,
        })
    }

    /// An object as a struct; `None` is its zero value. With an origin word all of its text is tainted.
    #[must_use]
    pub fn of_struct(
        schema: &'static Schema,
        json: Option<&'a JsonMap<String, Json>>,
        origin: Option<&'static str>,
    ) -> Self {
        let origin = origin.map(|kind| Origin { kind, key: "" });
        Self::Struct(Struct {
            schema,
            json,
            origin,
            pointer: schema.proto,
        })
    }

    /// A struct put together from values.
    #[must_use]
    pub fn record(name: &'static str, fields: Vec<(&'static str, Self)>) -> Self {
        Self::Record(Rc::new(Record {
            name,
            fields,
            text: None,
        }))
    }

    /// The same with the text that it prints as.
    #[must_use]
    pub fn printed_record(name: &'static str, fields: Vec<(&'static str, Self)>, text: Str<'a>) -> Self {
        Self::Record(Rc::new(Record {
            name,
            fields,
            text: Some(text),
        }))
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
        Self::List(List::Own(Rc::new(OwnList { items, elem })))
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
        Self::Map(Map::Own(Rc::new(OwnMap {
            entries: RefCell::new(entries),
            elem,
        })))
    }

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
            Kind::Map(elem) => Self::Map(Map::Json {
                entries: json.and_then(Json::as_object),
                elem,
                origin,
            }),
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
            Kind::Enum(ty) => Self::Enum(ty, json.map_or(0, |json| enum_number(ty, json))),
            Kind::Ptr(inner) => match json {
                None => Self::NilPtr(inner),
                some => match Self::typed(some, inner, origin) {
                    Self::Struct(s) => Self::Struct(Struct { pointer: true, ..s }),
                    scalar => Self::Ptr(Rc::new(scalar)),
                },
            },
            Kind::Duration => json
                .and_then(Json::as_str)
                .and_then(parse_seconds)
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
            Json::Array(items) => Self::List(List::Json {
                items: Some(items),
                elem: &Kind::Any,
                origin,
            }),
            Json::Object(entries) => Self::Map(Map::Json {
                entries: Some(entries),
                elem: &Kind::Any,
                origin,
            }),
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
            Json::Array(items) => Self::list(
                items
                    .iter()
                    .map(|item| Self::from_owned_json(item, source))
                    .collect(),
            ),
            Json::Object(entries) => Self::dict(
                entries
                    .iter()
                    .map(|(k, v)| {
                        (
                            Str::derived(k.as_str(), &[source]),
                            Self::from_owned_json(v, source),
                        )
                    })
                    .collect(),
            ),
        }
    }

    /// Whether it is nil of any sort.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        match self {
            Self::Nil | Self::Null | Self::NilPtr(_) => true,
            Self::List(list) => list.is_nil(),
            Self::Map(map) => map.is_nil(),
            Self::Ptr(_)
            | Self::Bool(_)
            | Self::Int(..)
            | Self::Float(_)
            | Self::Str(_)
            | Self::Enum(..)
            | Self::Duration(_)
            | Self::Wrapper(_)
            | Self::Struct(_)
            | Self::Record(_) => false,
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
}

fn pointer_name(kind: &'static Kind) -> Cow<'static, str> {
    match kind {
        Kind::Duration | Kind::Wrapper(_) => kind_name(kind),
        _ => format!("*{}", kind_name(kind)).into(),
    }
}

fn title(word: &str) -> String {
    let mut chars = word.chars();
    chars
        .next()
        .map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// Go's name of a type.
pub(super) fn kind_name(kind: &'static Kind) -> Cow<'static, str> {
    match kind {
        Kind::Any => "interface {}".into(),
        Kind::Bool => "bool".into(),
        Kind::Str => "string".into(),
        Kind::Int32 => "int32".into(),
        Kind::Int64 => "int64".into(),
        Kind::Uint32 => "uint32".into(),
        Kind::Float => "float64".into(),
        Kind::Map(elem) => format!("map[string]{}", kind_name(elem)).into(),
        Kind::List(elem) => format!("[]{}", kind_name(elem)).into(),
        Kind::Struct(schema) => schema.name.into(),
        Kind::Ptr(inner) => format!("*{}", kind_name(inner)).into(),
        Kind::Enum(ty) => ty.name.into(),
        Kind::Duration => "*durationpb.Duration".into(),
        Kind::Wrapper(inner) => format!("*wrapperspb.{}Value", title(&kind_name(inner))).into(),
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
    json.as_i64()
        .or_else(|| json.as_f64().map(|f| f as i64))
        .unwrap_or_default()
}

fn enum_number(ty: &'static EnumType, json: &Json) -> i32 {
    match json {
        Json::String(name) => ty
            .values
            .iter()
            .find(|(n, _)| n == name)
            .map_or(0, |(_, number)| *number),
        other => i32::try_from(whole(other)).unwrap_or_default(),
    }
}

/// The name of an enum value; its number when it has none.
pub(super) fn enum_name(ty: &'static EnumType, number: i32) -> Cow<'static, str> {
    let found = ty.values.iter().find(|(_, n)| *n == number);
    found.map_or_else(|| number.to_string().into(), |(name, _)| (*name).into())
}

/// `45s`, `7.500s` in nanoseconds.
fn parse_seconds(text: &str) -> Option<i64> {
    let text = text.strip_suffix('s')?;
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > 9 {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let nanos: i64 = format!("{fraction:0<9}").parse().ok()?;
    let total = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    Some(if negative { -total } else { total })
}

impl<'a> List<'a> {
    /// How many elements there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Json { items, .. } => items.map_or(0, <[Json]>::len),
            Self::Own(own) => own.items.len(),
        }
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is the nil slice.
    #[must_use]
    pub const fn is_nil(&self) -> bool {
        matches!(self, Self::Json { items: None, .. })
    }

    /// The element at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Json { items, elem, origin } => {
                Some(Value::typed(Some(items.as_ref()?.get(index)?), elem, *origin))
            }
            Self::Own(own) => own.items.get(index).cloned(),
        }
    }

    /// All elements.
    #[must_use]
    pub fn to_vec(&self) -> Vec<Value<'a>> {
        (0..self.len()).filter_map(|i| self.get(i)).collect()
    }

    /// Go's name of the elements' type.
    #[must_use]
    pub fn elem_name(&self) -> Cow<'static, str> {
        match self {
            Self::Json { elem, .. } => kind_name(elem),
            Self::Own(own) => own.elem.into(),
        }
    }

    /// The elements from `start` to `end`.
    #[must_use]
    pub fn slice(&self, start: usize, end: usize) -> Self {
        match self {
            Self::Json { items, elem, origin } => Self::Json {
                items: items.map(|i| i.get(start..end).unwrap_or_default()),
                elem,
                origin: *origin,
            },
            Self::Own(own) => {
                let items = own.items.get(start..end).unwrap_or_default().to_vec();
                Self::Own(Rc::new(OwnList {
                    items,
                    elem: own.elem,
                }))
            }
        }
    }
}

impl<'a> Map<'a> {
    /// How many entries there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Json { entries, .. } => entries.map_or(0, JsonMap::len),
            Self::Own(own) => own.entries.borrow().len(),
        }
    }

    /// Whether there is no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is the nil map.
    #[must_use]
    pub const fn is_nil(&self) -> bool {
        matches!(self, Self::Json { entries: None, .. })
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        match self {
            Self::Json {
                entries,
                elem,
                origin,
            } => {
                let (key, json) = (*entries)?.get_key_value(key)?;
                let origin = origin.map(|o| Origin { kind: o.kind, key });
                Some(Value::typed(Some(json), elem, origin))
            }
            Self::Own(own) => own.entries.borrow().get(key).cloned(),
        }
    }

    /// What Go gives for a key that is not there: the zero value of the values' type.
    #[must_use]
    pub fn zero(&self) -> Value<'a> {
        match self {
            Self::Json { elem, .. } => Value::typed(None, elem, None),
            Self::Own(own) if own.elem == "string" => Value::Str(Str::borrowed("")),
            Self::Own(_) => Value::Null,
        }
    }

    /// All entries, sorted by key.
    #[must_use]
    pub fn entries(&self) -> Vec<(Str<'a>, Value<'a>)> {
        match self {
            Self::Json { entries: None, .. } => Vec::new(),
            Self::Json {
                entries: Some(entries),
                elem,
                origin,
            } => {
                let mut all: Vec<_> = entries.iter().collect();
                all.sort_unstable_by_key(|(key, _)| *key);
                let value = |(key, json): (&'a String, &'a Json)| {
                    let origin = origin.map(|o| Origin { kind: o.kind, key });
                    (
                        Str::borrowed(key).tainted(origin),
                        Value::typed(Some(json), elem, origin),
                    )
                };
                all.into_iter().map(value).collect()
            }
            Self::Own(own) => own
                .entries
                .borrow()
                .iter()
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect(),
        }
    }

    /// Go's name of the values' type.
    #[must_use]
    pub fn elem_name(&self) -> Cow<'static, str> {
        match self {
            Self::Json { elem, .. } => kind_name(elem),
            Self::Own(own) => own.elem.into(),
        }
    }

    /// The entries to change in place; `None` for a map that is shared input.
    pub(super) fn own(&self) -> Option<&Rc<OwnMap<'a>>> {
        match self {
            Self::Own(own) => Some(own),
            Self::Json { .. } => None,
        }
    }
}

impl<'a> OwnMap<'a> {
    /// Adds or replaces an entry; the caller has made sure that `value` does not contain this map.
    pub(super) fn insert(&self, key: Str<'a>, value: Value<'a>) {
        let before = self.entries.borrow_mut().insert(key, value);
        drop(before);
    }

    /// Removes an entry.
    pub(super) fn remove(&self, key: &str) {
        let before = self.entries.borrow_mut().remove(key);
        drop(before);
    }
}

impl<'a> Struct<'a> {
    /// The value of a field.
    #[must_use]
    pub fn value(&self, field: &'static Field) -> Value<'a> {
        let origin = match (field.origin, self.origin) {
            (Some(kind), _) => Some(Origin { kind, key: field.key }),
            (None, Some(outer)) => Some(Origin {
                kind: outer.kind,
                key: field.key,
            }),
            (None, None) => None,
        };
        if field.key.is_empty()
            && let Kind::Struct(schema) = field.kind
        {
            return Value::Struct(Self {
                schema,
                json: self.json,
                origin,
                pointer: false,
            });
        }
        Value::typed(
            self.json.and_then(|json| json.get(field.key)),
            &field.kind,
            origin,
        )
    }
}

impl<'a> Record<'a> {
    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.fields
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| value)
    }
}

/// Long chains of collections are taken apart one by one: dropping them recursively could exhaust the stack.
fn drop_flat(mut pending: Vec<Value<'_>>) {
    while let Some(value) = pending.pop() {
        match value {
            Value::List(List::Own(own)) => {
                if let Some(mut own) = Rc::into_inner(own) {
                    pending.append(&mut own.items);
                }
            }
            Value::Map(Map::Own(own)) => {
                if let Some(own) = Rc::into_inner(own) {
                    pending.extend(std::mem::take(&mut *own.entries.borrow_mut()).into_values());
                }
            }
            _ => {}
        }
    }
}

impl Drop for OwnList<'_> {
    fn drop(&mut self) {
        drop_flat(std::mem::take(&mut self.items));
    }
}

impl Drop for OwnMap<'_> {
    fn drop(&mut self) {
        drop_flat(std::mem::take(self.entries.get_mut()).into_values().collect());
    }
}
