//! `eq`, `ne`, `lt`, `le`, `gt`, `ge`.

use crate::builtin::print::shown;
use crate::value::Value;
use std::cmp::Ordering;

type Outcome = Result<bool, String>;

/// The kinds of basic values; comparing across kinds is an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Basic {
    Bool,
    Int,
    Float,
    Text,
    None,
}

const fn basic(value: &Value<'_>) -> Basic {
    match value {
        Value::Bool(_) => Basic::Bool,
        Value::Int(..) | Value::Enum(..) => Basic::Int,
        Value::Float(_) => Basic::Float,
        Value::Str(_) => Basic::Text,
        _ => Basic::None,
    }
}

fn int(value: &Value<'_>) -> i64 {
    match value {
        Value::Int(n, _) => *n,
        Value::Enum(_, n) => i64::from(*n),
        _ => 0,
    }
}

fn incompatible(a: &Value<'_>, b: &Value<'_>) -> String {
    format!("incompatible types for comparison: {} and {}", a.type_name(), b.type_name())
}

/// Whether `a` equals any of `others`.
pub(crate) fn eq<'a>(a: &Value<'a>, others: &[Value<'a>]) -> Outcome {
    if others.is_empty() {
        return Err("missing argument for comparison".to_owned());
    }
    for b in others {
        if equal(a, b)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn equal<'a>(a: &Value<'a>, b: &Value<'a>) -> Outcome {
    let valid = |v: &Value<'_>| !matches!(v, Value::Nil | Value::Null);
    if basic(a) != basic(b) {
        return if valid(a) && valid(b) { Err(incompatible(a, b)) } else { Ok(false) };
    }
    match (a, b) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Float(a), Value::Float(b)) => Ok(a == b),
        (Value::Str(a), Value::Str(b)) => Ok(a == b),
        _ if basic(a) == Basic::Int => Ok(int(a) == int(b)),
        _ if valid(a) && valid(b) && family(a) != family(b) => Err(format!(
            "non-comparable types {}: {}, {}: {}",
            shown(a),
            a.type_name(),
            b.type_name(),
            shown(b)
        )),
        _ if a.is_nil() || b.is_nil() => Ok(a.is_nil() == b.is_nil()),
        (Value::Struct(a), Value::Struct(b)) if a.pointer => {
            Ok(a.json.zip(b.json).is_some_and(|(a, b)| std::ptr::eq(a, b)))
        }
        (Value::List(_) | Value::Map(_) | Value::Struct(_), _) => {
            Err(format!("non-comparable type {}: {}", shown(b), b.type_name()))
        }
        (Value::Ptr(a), Value::Ptr(b)) | (Value::Wrapper(a), Value::Wrapper(b)) => {
            Ok(std::rc::Rc::ptr_eq(a, b))
        }
        _ => Ok(false),
    }
}

/// Go's reflect kinds of what is not basic.
const fn family(value: &Value<'_>) -> u8 {
    match value {
        Value::List(_) => 1,
        Value::Map(_) => 2,
        Value::Struct(s) if !s.pointer => 3,
        Value::Record(_) => 3,
        _ => 4,
    }
}

/// `a < b`, `a <= b` and so on, decided by `accept`.
pub(crate) fn order(a: &Value<'_>, b: &Value<'_>, accept: fn(Ordering) -> bool) -> Outcome {
    if basic(a) == Basic::None || basic(b) == Basic::None {
        return Err("invalid type for comparison".to_owned());
    }
    if basic(a) != basic(b) {
        return Err(incompatible(a, b));
    }
    match (a, b) {
        (Value::Bool(_), _) => Err("invalid type for comparison".to_owned()),
        (Value::Str(a), Value::Str(b)) => Ok(accept(a.cmp(b))),
        (Value::Float(a), Value::Float(b)) => Ok(a.partial_cmp(b).is_some_and(accept)),
        _ => Ok(accept(int(a).cmp(&int(b)))),
    }
}
