//! Go's built-in functions.

mod compare;
pub(crate) mod print;
mod printf;
mod printf_number;

use crate::functions::{Call, Code, Functions, Type, arg};
use crate::value::text::Str;
use crate::value::{IntType, Map, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use print::{sprint, sprintln};
use printf::sprintf;
use std::cmp::Ordering;

type ValueResult<'a> = Result<Value<'a>, String>;

const ANY: &[Type] = &[Type::Any];

impl Functions {
    /// Go's built-in functions.
    #[must_use]
    pub fn builtin() -> Self {
        let mut functions = Self::none();
        functions.insert("and", &[Type::Any], Some(Type::Any), Code::And);
        functions.insert("or", &[Type::Any], Some(Type::Any), Code::Or);
        register(&mut functions);
        functions
    }
}

fn register(f: &mut Functions) {
    f.add("not", ANY, None, |_, args| Ok(Value::Bool(!arg(args, 0).is_true())));
    f.add("eq", ANY, Some(Type::Any), |_, args| {
        compare::eq(arg(args, 0), args.get(1..).unwrap_or_default()).map(Value::Bool)
    });
    f.add("ne", &[Type::Any; 2], None, |_, args| {
        compare::eq(arg(args, 0), args.get(1..).unwrap_or_default()).map(|equal| Value::Bool(!equal))
    });
    f.add("lt", &[Type::Any; 2], None, |_, args| ordered(args, Ordering::is_lt));
    f.add("le", &[Type::Any; 2], None, |_, args| ordered(args, Ordering::is_le));
    f.add("gt", &[Type::Any; 2], None, |_, args| ordered(args, Ordering::is_gt));
    f.add("ge", &[Type::Any; 2], None, |_, args| ordered(args, Ordering::is_ge));
    f.add("index", ANY, Some(Type::Any), |_, args| index(arg(args, 0), args.get(1..).unwrap_or_default()));
    f.add("slice", ANY, Some(Type::Any), |_, args| slice(arg(args, 0), args.get(1..).unwrap_or_default()));
    f.add("len", ANY, None, |_, args| length(arg(args, 0)));
    f.add("print", &[], Some(Type::Any), |call, args| {
        let mut out = call.text();
        sprint(&mut out, args)?;
        Ok(Value::Str(out.finish()))
    });
    f.add("println", &[], Some(Type::Any), |call, args| {
        let mut out = call.text();
        sprintln(&mut out, args)?;
        Ok(Value::Str(out.finish()))
    });
    f.add("printf", &[Type::Str], Some(Type::Any), |call, args| {
        let mut out = call.text();
        if let Some((Value::Str(format), args)) = args.split_first() {
            sprintf(&mut out, format, args)?;
        }
        Ok(Value::Str(out.finish()))
    });
    f.add("html", &[], Some(Type::Any), |call, args| escaped(call, args, html));
    f.add("js", &[], Some(Type::Any), |call, args| escaped(call, args, js));
    f.add("urlquery", &[], Some(Type::Any), |call, args| escaped(call, args, query_escape));
    f.add("call", ANY, Some(Type::Any), |_, args| match arg(args, 0) {
        Value::Nil | Value::Null => Err("call of nil".to_owned()),
        other => Err(format!("non-function of type {}", other.type_name())),
    });
}

fn ordered<'a>(args: &[Value<'a>], accept: fn(Ordering) -> bool) -> ValueResult<'a> {
    compare::order(arg(args, 0), arg(args, 1), accept).map(Value::Bool)
}

fn position(index: &Value<'_>, limit: usize) -> Result<usize, String> {
    match index {
        Value::Int(n, _) => match usize::try_from(*n) {
            Ok(at) if at <= limit => Ok(at),
            _ => Err(format!("index out of range: {n}")),
        },
        Value::Nil | Value::Null => Err("cannot index slice/array with nil".to_owned()),
        other => Err(format!("cannot index slice/array with type {}", other.type_name())),
    }
}

fn index<'a>(item: &Value<'a>, indexes: &[Value<'a>]) -> ValueResult<'a> {
    if matches!(item, Value::Nil | Value::Null) {
        return Err("index of untyped nil".to_owned());
    }
    let mut item = item.clone();
    for at in indexes {
        item = match &item {
            Value::Nil | Value::Null | Value::NilPtr(_) => return Err("index of nil pointer".to_owned()),
            Value::List(list) => {
                let at = position(at, list.len())?;
                list.get(at).ok_or("reflect: slice index out of range")?
            }
            Value::Str(s) => {
                let at = position(at, s.as_str().len())?;
                let byte = s.as_str().as_bytes().get(at).copied();
                let byte = byte.ok_or("reflect: string index out of range")?;
                Value::Int(i64::from(byte), IntType::Uint8)
            }
            Value::Map(map) => entry(map, at)?,
            other => return Err(format!("can't index item of type {}", other.type_name())),
        };
    }
    Ok(item)
}

fn entry<'a>(map: &Map<'a>, key: &Value<'a>) -> ValueResult<'a> {
    match key {
        Value::Str(key) => Ok(map.get(key.as_str()).unwrap_or_else(|| map.zero())),
        Value::Nil | Value::Null => Err("value is nil; should be of type string".to_owned()),
        other => Err(format!("value has type {}; should be string", other.type_name())),
    }
}

fn slice<'a>(item: &Value<'a>, indexes: &[Value<'a>]) -> ValueResult<'a> {
    let length = match item {
        Value::Nil | Value::Null => return Err("slice of untyped nil".to_owned()),
        Value::NilPtr(_) => return Err("slice of nil pointer".to_owned()),
        _ if indexes.len() > 3 => return Err(format!("too many slice indexes: {}", indexes.len())),
        Value::Str(_) if indexes.len() == 3 => return Err("cannot 3-index slice a string".to_owned()),
        Value::Str(s) => s.as_str().len(),
        Value::List(list) => list.len(),
        other => return Err(format!("can't slice item of type {}", other.type_name())),
    };
    let mut bounds = [0, length, length];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = position(index, length)?;
    }
    let [start, end, capacity] = bounds;
    if start > end {
        return Err(format!("invalid slice index: {start} > {end}"));
    }
    if end > capacity {
        return Err(format!("invalid slice index: {end} > {capacity}"));
    }
    match item {
        Value::Str(s) => Ok(Value::Str(s.slice(start, end))),
        Value::List(list) => Ok(Value::List(list.slice(start, end))),
        _ => Ok(Value::Nil),
    }
}

fn length<'a>(item: &Value<'a>) -> ValueResult<'a> {
    let length = match item {
        Value::Str(s) => s.as_str().len(),
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        Value::Nil | Value::Null | Value::NilPtr(_) => return Err("len of nil pointer".to_owned()),
        other => return Err(format!("len of type {}", other.type_name())),
    };
    Ok(Value::int(i64::try_from(length).unwrap_or(i64::MAX)))
}

/// The text of the arguments, put through `escape`.
fn escaped<'a>(call: &Call<'_>, args: &[Value<'a>], escape: fn(&str) -> String) -> ValueResult<'a> {
    let mut out = call.text();
    let shown = |value: &Value<'a>| match value {
        Value::Nil | Value::Null => Value::Str(Str::borrowed("<no value>")),
        other => other.clone(),
    };
    sprint(&mut out, &args.iter().map(shown).collect::<Vec<_>>())?;
    let text = out.finish();
    Ok(Value::Str(Str::derived(escape(text.as_str()), &[&text])))
}

fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            _ => out.push(c),
        }
    }
    out
}

fn js(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\'' => out.push_str("\\'"),
            '"' => out.push_str("\\\""),
            '<' => out.push_str("\\u003C"),
            '>' => out.push_str("\\u003E"),
            '&' => out.push_str("\\u0026"),
            '=' => out.push_str("\\u003D"),
            _ if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            _ if !print::printable(c) => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out
}

/// What `url.QueryEscape` leaves as it is, besides the space, which becomes a plus.
const UNESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');

/// Go's `url.QueryEscape`.
pub(crate) fn query_escape(text: &str) -> String {
    utf8_percent_encode(text, UNESCAPED).to_string().replace(' ', "+")
}
