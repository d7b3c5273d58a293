//! Conversions and type predicates.

use super::{ANY, STR, arg, kind, made, strval, text};
use crate::functions::{Call, Functions};
use crate::syntax;
use crate::value::Value;

pub(crate) fn register(f: &mut Functions) {
    f.add("toString", &[ANY], None, |call, args| strval(call, arg(args, 0)).map(Value::Str));
    f.add("atoi", &[STR], None, |_, args| {
        Ok(Value::int(text(args, 0)?.as_str().parse().unwrap_or_default()))
    });
    f.add("int64", &[ANY], None, |_, args| Ok(Value::int64(to_int(arg(args, 0)))));
    f.add("int", &[ANY], None, |_, args| Ok(Value::int(to_int(arg(args, 0)))));
    f.add("float64", &[ANY], None, |_, args| Ok(Value::Float(to_float(arg(args, 0)))));
    f.add("toDecimal", &[ANY], None, |call, args| {
        let s = strval(call, arg(args, 0))?;
        Ok(Value::int64(i64::from_str_radix(s.as_str(), 8).unwrap_or_default()))
    });
    f.add("typeOf", &[ANY], None, |_, args| Ok(Value::string(arg(args, 0).type_name())));
    f.add("kindOf", &[ANY], None, |_, args| Ok(Value::string(kind(arg(args, 0)))));
    f.add("typeIs", &[STR, ANY], None, |_, args| {
        Ok(Value::Bool(text(args, 0)?.as_str() == arg(args, 1).type_name()))
    });
    f.add("typeIsLike", &[STR, ANY], None, |_, args| {
        let name = arg(args, 1).type_name();
        Ok(Value::Bool(
            text(args, 0)?.as_str() == name.strip_prefix('*').unwrap_or(&name)
                || text(args, 0)?.as_str() == name,
        ))
    });
    f.add("kindIs", &[STR, ANY], None, |_, args| {
        Ok(Value::Bool(text(args, 0)?.as_str() == kind(arg(args, 1))))
    });
    f.add("deepEqual", &[ANY, ANY], None, |call, args| {
        Ok(Value::Bool(deep_equal(call, arg(args, 0), arg(args, 1), 0)?))
    });
    f.add("regexQuoteMeta", &[STR], None, |_, args| {
        let s = text(args, 0)?;
        let escaped = s
            .as_str()
            .chars()
            .flat_map(|c| r"\.+*?()|[]{}^$".contains(c).then_some('\\').into_iter().chain([c]));
        made(escaped.collect::<String>(), s)
    });
}

const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// A number, or text that reads as one; anything else is 0.
#[allow(clippy::cast_possible_truncation, reason = "Go truncates just so")]
pub(crate) fn to_int(value: &Value<'_>) -> i64 {
    match value {
        Value::Int(n, _) => *n,
        // Out of range: what Go gives on amd64.
        Value::Float(n) if !(-TWO_TO_63..TWO_TO_63).contains(n) => i64::MIN,
        Value::Float(n) => *n as i64,
        Value::Bool(b) => i64::from(*b),
        Value::Ptr(inner) => to_int(inner),
        Value::Str(s) => {
            // A fraction of zeros is dropped; a zero in front means octal.
            let text = s.as_str();
            let whole = text.split_once('.').filter(|(_, fraction)| fraction.chars().all(|c| c == '0'));
            syntax::integer(whole.map_or(text, |(whole, _)| whole)).unwrap_or_default()
        }
        _ => 0,
    }
}

/// A number, or text that reads as one; anything else is 0.
#[allow(clippy::cast_precision_loss, reason = "Go rounds just so")]
pub(crate) fn to_float(value: &Value<'_>) -> f64 {
    match value {
        Value::Int(n, _) => *n as f64,
        Value::Float(n) => *n,
        Value::Bool(b) => f64::from(u8::from(*b)),
        Value::Ptr(inner) => to_float(inner),
        Value::Str(s) => s.as_str().parse().unwrap_or_default(),
        _ => 0.0,
    }
}

/// `reflect.DeepEqual`: the same types all the way down.
pub(crate) fn deep_equal(
    call: &mut Call<'_>,
    a: &Value<'_>,
    b: &Value<'_>,
    depth: usize,
) -> Result<bool, String> {
    call.nest(depth)?;
    match (a, b) {
        (Value::Nil | Value::Null, Value::Nil | Value::Null) => return Ok(true),
        (Value::Nil | Value::Null, _) | (_, Value::Nil | Value::Null) => return Ok(false),
        _ if a.type_name() != b.type_name() => return Ok(false),
        _ => {}
    }
    match (a, b) {
        (Value::List(a), Value::List(b)) => {
            if a.len() != b.len() || a.is_nil() != b.is_nil() {
                return Ok(false);
            }
            for (a, b) in a.to_vec().iter().zip(&b.to_vec()) {
                if !deep_equal(call, a, b, depth + 1)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.len() != b.len() || a.is_nil() != b.is_nil() {
                return Ok(false);
            }
            for (key, a) in a.entries() {
                match b.get(key.as_str()) {
                    Some(b) if deep_equal(call, &a, &b, depth + 1)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::Int(a, _), Value::Int(b, _)) => Ok(a == b),
        (Value::Float(a), Value::Float(b)) => Ok(a == b),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        (Value::Str(a), Value::Str(b)) => Ok(a == b),
        (Value::Enum(_, a), Value::Enum(_, b)) => Ok(a == b),
        (Value::Duration(a), Value::Duration(b)) => Ok(a == b),
        (Value::Ptr(a), Value::Ptr(b)) | (Value::Wrapper(a), Value::Wrapper(b)) => {
            deep_equal(call, a, b, depth + 1)
        }
        (Value::NilPtr(_), Value::NilPtr(_)) => Ok(true),
        (Value::Struct(a), Value::Struct(b)) => Ok(a.json == b.json),
        _ => Ok(false),
    }
}
