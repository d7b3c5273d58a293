//! `.Field`: fields of structs, entries of maps, methods.

use crate::exec::methods::method;
use crate::exec::{Eval, State};
use crate::syntax::ast::Expr;
use crate::value::Value;
use crate::value::schema::Kind;

impl<'a> State<'a> {
    /// Follows a chain of names. Only methods may take arguments, and none of ours does.
    pub(crate) fn fields(
        &self,
        base: &Value<'a>,
        expr: &'a Expr,
        names: &'a [Box<str>],
        has_args: bool,
    ) -> Eval<Value<'a>> {
        let mut value = None;
        for (i, name) in names.iter().enumerate() {
            let has_args = has_args && i + 1 == names.len();
            let of = value.as_ref().unwrap_or(base);
            self.reads.borrow_mut().field(of, name);
            value = match field(of, name, has_args) {
                Ok(value) => Some(value),
                Err(message) => return self.fail(expr.at, expr, message),
            };
        }
        Ok(value.unwrap_or_else(|| base.clone()))
    }
}

fn field<'a>(value: &Value<'a>, name: &str, has_args: bool) -> Result<Value<'a>, String> {
    if matches!(value, Value::Nil) {
        return Ok(Value::Nil);
    }
    if matches!(value, Value::Null) {
        return Err(format!("nil pointer evaluating interface {{}}.{name}"));
    }
    if let Some(result) = method(value, name) {
        return if has_args {
            Err(format!("wrong number of args for {name}: want 0 got 1"))
        } else {
            Ok(result)
        };
    }
    let found = match value {
        Value::Map(_) if has_args => return Err(format!("{name} is not a method but has arguments")),
        Value::Map(map) => return Ok(map.get(name).unwrap_or(Value::Nil)),
        Value::Struct(s) => s.schema.field(name).map(|f| s.value(f)).or_else(|| embedded(s, name)),
        Value::Record(r) => r.get(name).cloned(),
        Value::Wrapper(inner) if name == "Value" => Some((**inner).clone()),
        Value::NilPtr(Kind::Struct(schema)) if schema.field(name).is_some() => {
            return Err(format!("nil pointer evaluating {}.{name}", value.type_name()));
        }
        Value::NilPtr(Kind::Wrapper(_)) if name == "Value" => {
            return Err(format!("nil pointer evaluating {}.{name}", value.type_name()));
        }
        _ => None,
    };
    match found {
        Some(_) if has_args => Err(format!("{name} has arguments but cannot be invoked as function")),
        Some(found) => Ok(found),
        None => Err(format!("can't evaluate field {name} in type {}", value.type_name())),
    }
}

/// A field of an embedded struct.
fn embedded<'a>(outer: &crate::value::Struct<'a>, name: &str) -> Option<Value<'a>> {
    outer.schema.fields.iter().filter(|f| f.key.is_empty()).find_map(|f| match outer.value(f) {
        Value::Struct(inner) => inner.schema.field(name).map(|f| inner.value(f)),
        _ => None,
    })
}
