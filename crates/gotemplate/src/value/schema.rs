//! Go's information about types that JSON lacks: field names, zero values, pointers, enums.

use std::borrow::Cow;

/// The Go type of a piece of JSON.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `any`: as the JSON says; numbers are `float64`, objects `map[string]any`.
    Any,
    /// `bool`
    Bool,
    /// `string`, also a named string type.
    Str,
    /// `int32`
    Int32,
    /// `int64`
    Int64,
    /// `uint32`
    Uint32,
    /// `float64`
    Float,
    /// `map[string]T`; `Map(&Kind::Str)` is `map[string]string`.
    Map(&'static Self),
    /// `[]T`
    List(&'static Self),
    /// A named type with the values of another one: `Named("resource.Quantity", &Kind::Str)`.
    Named(&'static str, &'static Self),
    /// A struct.
    Struct(&'static Schema),
    /// `*T`: nil when the JSON has no such key or null.
    Ptr(&'static Self),
    /// A protobuf enum: printed as its name, `.String` gives the name.
    Enum(&'static EnumType),
    /// `*durationpb.Duration`, written in JSON as `"45s"`.
    Duration,
    /// A protobuf wrapper message such as `*wrapperspb.BoolValue`, written in JSON as the bare value.
    Wrapper(&'static Self),
}

/// A protobuf enum type.
#[derive(Debug)]
pub struct EnumType {
    /// Go's name of the type, for messages: `v1alpha1.ProxyConfig_InboundInterceptionMode`.
    pub name: &'static str,
    /// Names and numbers; the first is what an unset field has.
    pub values: &'static [(&'static str, i32)],
}

/// A struct type: Go's fields in the order of their declaration.
#[derive(Debug)]
pub struct Schema {
    /// Go's name of the type, for messages and for parameters that want it: `v1.Container`.
    pub name: &'static str,
    /// A protobuf message: has `GetX` for each field `X`, callable on nil; handed around as a pointer.
    pub proto: bool,
    /// The fields.
    pub fields: &'static [Field],
}

/// A field of a struct.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name of the field in Go: `ContainerPort`.
    pub name: &'static str,
    /// The key of the field in JSON: `containerPort`. Empty: an embedded struct whose keys stand in the same
    /// object.
    pub key: &'static str,
    /// The type of the field.
    pub kind: Kind,
    /// `omitempty`: left out of JSON when it is the zero value.
    pub omit_empty: bool,
    /// What its text is called when it shows up where it must not, such as `annotation`.
    pub origin: Option<&'static str>,
    /// For other readers of the schema: Go's struct tag `patchMergeKey`.
    pub merge: Option<&'static str>,
}

impl Field {
    /// A field with `omitempty` and no origin of its own.
    #[must_use]
    pub const fn new(name: &'static str, key: &'static str, kind: Kind) -> Self {
        Self { name, key, kind, omit_empty: true, origin: None, merge: None }
    }

    /// The field without `omitempty`.
    #[must_use]
    pub const fn always(mut self) -> Self {
        self.omit_empty = false;
        self
    }

    /// The field with an origin: its text, and that of everything in it, is tainted.
    #[must_use]
    pub const fn from(mut self, origin: &'static str) -> Self {
        self.origin = Some(origin);
        self
    }

    /// The field with a merge key.
    #[must_use]
    pub const fn merge(mut self, key: &'static str) -> Self {
        self.merge = Some(key);
        self
    }
}

impl Schema {
    /// The field with this Go name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|f| is_same_name(f.name, name))
    }

    /// The field with this key in JSON.
    #[must_use]
    pub fn by_key(&self, key: &str) -> Option<&'static Field> {
        self.fields.iter().find(|f| is_same_name(f.key, key))
    }
}

/// Whether two names are the same. Most differ in length or first byte, which takes no call to find out.
#[inline]
#[must_use]
pub fn is_same_name(one: &str, other: &str) -> bool {
    one.len() == other.len() && one.as_bytes().first() == other.as_bytes().first() && one == other
}

pub(crate) fn pointer_name(kind: &'static Kind) -> Cow<'static, str> {
    match kind {
        Kind::Duration | Kind::Wrapper(_) => kind_name(kind),
        _ => format!("*{}", kind_name(kind)).into(),
    }
}

pub(crate) fn title(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// Go's name of a type.
pub(crate) fn kind_name(kind: &'static Kind) -> Cow<'static, str> {
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
        Kind::Named(name, _) => (*name).into(),
        Kind::Ptr(inner) => format!("*{}", kind_name(inner)).into(),
        Kind::Enum(ty) => ty.name.into(),
        Kind::Duration => "*durationpb.Duration".into(),
        Kind::Wrapper(inner) => format!("*wrapperspb.{}Value", title(&kind_name(inner))).into(),
    }
}

/// The name of an enum value; its number when it has none.
pub(crate) fn enum_name(ty: &'static EnumType, number: i32) -> Cow<'static, str> {
    let found = ty.values.iter().find(|(_, n)| *n == number);
    found.map_or_else(|| number.to_string().into(), |(name, _)| (*name).into())
}
