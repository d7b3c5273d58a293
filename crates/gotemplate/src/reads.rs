//! What a rendering has read of the structs in its data.
//!
//! The evaluator sees each way from a template to a struct: a field by its name, an argument of a function, a
//! value that is printed. Where it does not know what happens to a struct, all of it counts as read.

use crate::functions::{Func, Type};
use crate::value::schema::{Field, Kind, Schema};
use crate::value::{List, Map, Struct, Value};

/// The fields of structs that a rendering has read, and whether its output depends on the data alone.
///
/// Two renderings of a template give the same output if all fields in here have the same values, all data
/// outside of structs is the same and neither [`is_volatile`](Self::is_volatile).
#[derive(Clone, Debug, Default)]
pub struct Reads {
    structs: Vec<StructReads>,
    volatile: bool,
}

#[derive(Clone, Debug)]
struct StructReads {
    schema: &'static Schema,
    fields: Vec<&'static Field>,
    whole: bool,
}

impl Reads {
    /// Whether a function was called whose result depends on more than its arguments.
    #[must_use]
    pub const fn is_volatile(&self) -> bool {
        self.volatile
    }

    /// The fields that were read of structs of this type; `None` if all may have been, also those that the
    /// schema lacks.
    #[must_use]
    pub fn fields(&self, schema: &'static Schema) -> Option<&[&'static Field]> {
        match self.structs.iter().find(|known| std::ptr::eq(known.schema, schema)) {
            Some(known) if known.whole => None,
            Some(known) => Some(&known.fields),
            None => Some(&[]),
        }
    }

    /// Adds what another rendering has read; whether anything is new.
    pub fn add(&mut self, other: &Self) -> bool {
        let mut grown = other.volatile && !self.volatile;
        self.volatile |= other.volatile;
        for StructReads { schema, fields, whole } in &other.structs {
            let known = self.of(schema);
            grown |= *whole && !known.whole;
            known.whole |= *whole;
            for field in fields {
                grown |= known.add(field);
            }
        }
        grown
    }

    /// The field or getter `name` of a value is read.
    pub(crate) fn field(&mut self, value: &Value<'_>, name: &str) {
        if let Value::Struct(Struct { schema, .. }) = value {
            self.named(schema, name);
        }
    }

    fn named(&mut self, schema: &'static Schema, name: &str) {
        // Templates read the same few fields again and again.
        if self.of(schema).fields.iter().any(|known| known.name == name) {
            return;
        }
        let getter = || schema.field(name.strip_prefix("Get")?);
        if let Some(field) = schema.field(name).or_else(getter) {
            self.of(schema).add(field);
        }
        // The keys of an embedded struct stand among those of the outer one, which has no fields for them.
        if schema.fields.iter().any(|field| field.key.is_empty()) {
            self.whole(schema);
        }
    }

    /// A function is called with these arguments.
    pub(crate) fn call(&mut self, func: &Func, arguments: &[Value<'_>]) {
        self.volatile |= func.volatile;
        for (at, argument) in arguments.iter().enumerate() {
            // Only of a struct that the signature asks for is known what happens to it.
            let is_struct = matches!(func.params.get(at), Some(Type::Struct(_) | Type::Structs(_)));
            match (func.reads.filter(|_| is_struct), schema_of(argument)) {
                (Some(names), Some(schema)) => names.iter().for_each(|name| self.read(schema, name)),
                _ => self.value(argument),
            }
        }
    }

    /// A field is read with all that is in it.
    fn read(&mut self, schema: &'static Schema, name: &str) {
        self.named(schema, name);
        if let Some(field) = schema.field(name) {
            self.kind(&field.kind);
        }
    }

    /// A value is read with all that is in it. What a template made itself holds only what has been an
    /// argument.
    pub(crate) fn value(&mut self, value: &Value<'_>) {
        match value {
            Value::Struct(Struct { schema, .. }) => self.whole(schema),
            Value::List(List::Json { elem, .. }) | Value::Map(Map::Json { elem, .. }) => self.kind(elem),
            Value::Record(record) => record.fields.iter().for_each(|(_, value)| self.value(value)),
            Value::Ptr(inner) | Value::Wrapper(inner) => self.value(inner),
            _ => {}
        }
    }

    fn kind(&mut self, kind: &'static Kind) {
        match kind {
            Kind::Struct(schema) => self.whole(schema),
            Kind::List(inner)
            | Kind::Map(inner)
            | Kind::Ptr(inner)
            | Kind::Named(_, inner)
            | Kind::Wrapper(inner) => self.kind(inner),
            _ => {}
        }
    }

    fn whole(&mut self, schema: &'static Schema) {
        let known = self.of(schema);
        if !std::mem::replace(&mut known.whole, true) {
            schema.fields.iter().for_each(|field| self.kind(&field.kind));
        }
    }

    fn of(&mut self, schema: &'static Schema) -> &mut StructReads {
        let at = self.structs.iter().position(|known| std::ptr::eq(known.schema, schema));
        let at = at.unwrap_or_else(|| {
            self.structs.push(StructReads { schema, fields: Vec::new(), whole: false });
            self.structs.len() - 1
        });
        #[allow(clippy::indexing_slicing, reason = "found or pushed above")]
        &mut self.structs[at]
    }
}

impl StructReads {
    fn add(&mut self, field: &'static Field) -> bool {
        let is_new = !self.fields.iter().any(|known| known.name == field.name);
        if is_new {
            self.fields.push(field);
        }
        is_new
    }
}

/// The type of a struct, or of the structs in a list.
fn schema_of(value: &Value<'_>) -> Option<&'static Schema> {
    match value {
        Value::Struct(Struct { schema, .. }) | Value::List(List::Json { elem: Kind::Struct(schema), .. }) => {
            Some(schema)
        }
        _ => None,
    }
}
