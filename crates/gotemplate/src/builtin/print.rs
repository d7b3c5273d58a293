//! Go's printing of values: `%v`, `print`, and what an action writes.

use crate::value::schema::{Kind, enum_name};
use crate::value::text::{Str, TextBuilder, too_deep};
use crate::value::{MAX_NESTING, Value};
use std::borrow::Cow;

/// What `{{ value }}` writes.
pub(crate) fn print_action<'a>(out: &mut TextBuilder<'a>, value: &Value<'a>) -> Result<(), String> {
    match value {
        Value::Nil | Value::Null => out.plain("<no value>"),
        other => print_value(out, other, 0),
    }
}

/// `%v`
pub(crate) fn print_value<'a>(
    out: &mut TextBuilder<'a>,
    value: &Value<'a>,
    depth: usize,
) -> Result<(), String> {
    if depth > MAX_NESTING {
        return Err(too_deep());
    }
    match value {
        Value::Nil | Value::Null | Value::NilPtr(_) => out.plain("<nil>"),
        Value::Ptr(inner) => print_value(out, inner, depth + 1),
        Value::Bool(b) => out.plain(if *b { "true" } else { "false" }),
        Value::Int(n, _) => out.plain(&n.to_string()),
        Value::Float(n) => out.plain(&float(*n)),
        Value::Str(s) => out.push(s),
        Value::Enum(ty, n) => out.plain(&enum_name(ty, *n)),
        Value::Duration(nanos) => out.plain(&proto_duration(*nanos)),
        Value::Wrapper(inner) => {
            out.plain("value:")?;
            print_value(out, inner, depth + 1)
        }
        Value::List(list) => {
            out.plain("[")?;
            for i in 0..list.len() {
                out.plain(if i > 0 { " " } else { "" })?;
                print_value(out, &list.get(i).unwrap_or(Value::Nil), depth + 1)?;
            }
            out.plain("]")
        }
        Value::Map(map) => {
            out.plain("map[")?;
            for (i, (key, value)) in map.entries().iter().enumerate() {
                out.plain(if i > 0 { " " } else { "" })?;
                out.push(key)?;
                out.plain(":")?;
                print_value(out, value, depth + 1)?;
            }
            out.plain("]")
        }
        Value::Struct(s) if s.schema.proto => print_message(out, s, depth),
        Value::Struct(s) => print_fields(out, s.schema.fields.iter().map(|f| s.value(f)), depth),
        Value::Record(r) if r.text.is_some() => r.text.as_ref().map_or(Ok(()), |text| out.push(text)),
        Value::Record(r) => print_fields(out, r.fields.iter().map(|(_, v)| v.clone()), depth),
    }
}

fn print_fields<'a>(
    out: &mut TextBuilder<'a>,
    fields: impl Iterator<Item = Value<'a>>,
    depth: usize,
) -> Result<(), String> {
    out.plain("{")?;
    for (i, field) in fields.enumerate() {
        out.plain(if i > 0 { " " } else { "" })?;
        print_value(out, &field, depth + 1)?;
    }
    out.plain("}")
}

/// A protobuf message: `name:value` for every field that is set.
fn print_message<'a>(
    out: &mut TextBuilder<'a>,
    message: &crate::value::Struct<'a>,
    depth: usize,
) -> Result<(), String> {
    let mut first = true;
    for field in message.schema.fields {
        let value = message.value(field);
        if !value.is_true() && !matches!(field.kind, Kind::Wrapper(_) | Kind::Duration) || value.is_nil() {
            continue;
        }
        out.plain(if first { "" } else { "  " })?;
        first = false;
        out.plain(field.key)?;
        out.plain(":")?;
        match &value {
            Value::Str(s) => {
                out.plain("\"")?;
                out.derived(&escape(s.as_str(), '"', false), s)?;
                out.plain("\"")?;
            }
            Value::Struct(_) | Value::Duration(_) | Value::Wrapper(_) => {
                out.plain("{")?;
                print_value(out, &value, depth + 1)?;
                out.plain("}")?;
            }
            _ => print_value(out, &value, depth + 1)?,
        }
    }
    Ok(())
}

fn proto_duration(nanos: i64) -> String {
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    match (seconds, rest) {
        (0, 0) => String::new(),
        (seconds, 0) => format!("seconds:{seconds}"),
        (0, rest) => format!("nanos:{rest}"),
        (seconds, rest) => format!("seconds:{seconds}  nanos:{rest}"),
    }
}

/// `%v` of a float: the shortest digits, with an exponent below 1e-4 and from 1e6 on.
#[must_use]
pub fn float(n: f64) -> String {
    general(n, None, 6, 'e')
}

/// `%g`: an exponent below 1e-4 and from 10^precision on; without a precision, from 10^`shortest_limit` on.
pub(crate) fn general(n: f64, precision: Option<usize>, shortest_limit: i32, mark: char) -> String {
    if n.is_nan() {
        return "NaN".into();
    }
    if n.is_infinite() {
        return if n > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let scientific = match precision {
        None => format!("{n:e}"),
        Some(p) => format!("{n:.*e}", p.max(1) - 1),
    };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let (sign, mantissa) = mantissa.strip_prefix('-').map_or(("", mantissa), |m| ("-", m));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let digits = match digits.trim_end_matches('0') {
        "" => "0",
        kept => kept,
    };
    let limit = precision.map_or(shortest_limit, |p| i32::try_from(p.max(1)).unwrap_or(i32::MAX));
    if exponent < -4 || exponent >= limit {
        return format!("{sign}{}", with_exponent(digits, exponent, mark));
    }
    format!("{sign}{}", positional(digits, exponent))
}

fn with_exponent(digits: &str, exponent: i32, mark: char) -> String {
    let (first, rest) = digits.split_at(digits.len().min(1));
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{first}{point}{rest}{mark}{sign}{:02}", exponent.unsigned_abs())
}

fn positional(digits: &str, exponent: i32) -> String {
    if exponent < 0 {
        let zeros = "0".repeat(usize::try_from(-exponent - 1).unwrap_or_default());
        return format!("0.{zeros}{digits}");
    }
    let whole = usize::try_from(exponent + 1).unwrap_or_default();
    if digits.len() <= whole {
        return format!("{digits:0<whole$}");
    }
    let (before, after) = digits.split_at(whole);
    format!("{before}.{after}")
}

/// `print`: a blank between operands when neither is a string.
pub(crate) fn sprint<'a>(out: &mut TextBuilder<'a>, args: &[Value<'a>]) -> Result<(), String> {
    let mut before_is_text = true;
    for (i, arg) in args.iter().enumerate() {
        let is_text = matches!(arg, Value::Str(_));
        if i > 0 && !is_text && !before_is_text {
            out.plain(" ")?;
        }
        print_value(out, arg, 0)?;
        before_is_text = is_text;
    }
    Ok(())
}

/// `println`: a blank between all operands, and a newline.
pub(crate) fn sprintln<'a>(out: &mut TextBuilder<'a>, args: &[Value<'a>]) -> Result<(), String> {
    for (i, arg) in args.iter().enumerate() {
        out.plain(if i > 0 { " " } else { "" })?;
        print_value(out, arg, 0)?;
    }
    out.plain("\n")
}

/// The inside of Go's `%q`, for the given quote mark.
pub(crate) fn escape(text: &str, quote: char, ascii: bool) -> Cow<'_, str> {
    let plain = |c: char| matches!(c, ' '..='~') && c != '\\' && c != quote;
    if text.bytes().all(|byte| plain(char::from(byte))) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 2);
    for c in text.chars() {
        match c {
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            _ if c == quote => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            _ if !ascii && printable(c) => out.push(c),
            _ if u32::from(c) < 0x80 => out.push_str(&format!("\\x{:02x}", u32::from(c))),
            _ if u32::from(c) < 0x1_0000 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push_str(&format!("\\U{:08x}", u32::from(c))),
        }
    }
    Cow::Owned(out)
}

/// Go's `unicode.IsPrint`, as far as Rust's tables tell: Rust's `Debug` escapes what is not printable.
pub(crate) fn printable(c: char) -> bool {
    if c.is_control() || (c.is_whitespace() && c != ' ') {
        return false;
    }
    c.escape_debug().count() == 1 || is_combining(c)
}

/// `Debug` escapes combining marks although they print.
fn is_combining(c: char) -> bool {
    matches!(u32::from(c), 0x300..=0x36f | 0x483..=0x489 | 0x591..=0x5bd | 0x64b..=0x65f | 0x1ab0..=0x1aff
        | 0x1dc0..=0x1dff | 0x20d0..=0x20f0 | 0xfe00..=0xfe0f | 0xfe20..=0xfe2f)
}

/// `fmt.Sprint(value)` as a string with its origins.
pub fn text_of<'a>(mut out: TextBuilder<'a>, value: &Value<'a>) -> Result<Str<'a>, String> {
    if let Value::Str(s) = value {
        return Ok(s.clone());
    }
    print_value(&mut out, value, 0)?;
    Ok(out.finish())
}

/// A value as `%v` prints it, for messages; cut when long.
pub(crate) fn shown(value: &Value<'_>) -> String {
    let mut text = TextBuilder::new(200);
    let cut = print_value(&mut text, value, 0).is_err();
    format!("{}{}", text.as_str(), if cut { "…" } else { "" })
}
