//! Values → JSON → text, the way Go's `encoding/json` writes it.

use crate::functions::Call;
use crate::layout::{TIME, Time};
use crate::value::schema::{Field, Kind, enum_name};
use crate::value::{Struct, Value};
use serde_json::{Map as JsonMap, Number, Value as Json};

/// How Go writes a time in JSON.
const RFC_3339: &str = "2006-01-02T15:04:05.999999999Z07:00";

/// A value as JSON: structs in the order of their fields without empty ones, maps sorted by key.
pub fn to_json(call: &mut Call<'_>, value: &Value<'_>) -> Result<Json, String> {
    convert(call, value, 0)
}

fn convert(call: &mut Call<'_>, value: &Value<'_>, depth: usize) -> Result<Json, String> {
    call.nest(depth)?;
    Ok(match value {
        Value::Nil | Value::Null | Value::NilPtr(_) => Json::Null,
        Value::Ptr(inner) | Value::Wrapper(inner) => convert(call, inner, depth + 1)?,
        Value::Bool(b) => Json::Bool(*b),
        Value::Int(n, _) => Json::Number((*n).into()),
        Value::Float(n) => match Number::from_f64(*n) {
            Some(number) => Json::Number(number),
            None => return Err(format!("json: unsupported value: {}", crate::builtin::print::float(*n))),
        },
        Value::Str(s) => {
            call.spend(s.as_str().len())?;
            Json::String(s.as_str().to_owned())
        }
        Value::Enum(_, n) => Json::Number((*n).into()),
        Value::Duration(nanos) => Json::String(goduration::seconds(*nanos)),
        Value::List(list) if list.is_nil() => Json::Null,
        Value::Map(map) if map.is_nil() => Json::Null,
        Value::List(list) => {
            let items = list.to_vec();
            Json::Array(items.iter().map(|item| convert(call, item, depth + 1)).collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let mut object = JsonMap::new();
            for (key, value) in map.entries() {
                object.insert(key.as_str().to_owned(), convert(call, &value, depth + 1)?);
            }
            Json::Object(object)
        }
        Value::Struct(s) => {
            let mut object = JsonMap::new();
            fields(call, s, depth, &mut object)?;
            Json::Object(object)
        }
        Value::Record(r) if r.name == TIME => {
            Time::of(r).map_or(Json::Null, |time| Json::String(time.format(RFC_3339)))
        }
        // What prints as text is written as text, but for time.Duration, a number of nanoseconds.
        Value::Record(r) if r.name != "time.Duration" && r.text.is_some() => {
            r.text.as_ref().map_or(Json::Null, |text| Json::String(text.as_str().to_owned()))
        }
        Value::Record(r) if r.text.is_some() => {
            r.get("Nanoseconds").map_or(Ok(Json::Null), |nanos| convert(call, nanos, depth + 1))?
        }
        Value::Record(r) => {
            let mut object = JsonMap::new();
            for (name, value) in &r.fields {
                object.insert((*name).to_owned(), convert(call, value, depth + 1)?);
            }
            Json::Object(object)
        }
    })
}

/// Protobuf's JSON has names where Go's has numbers, unless there is no name.
fn protobuf(call: &mut Call<'_>, value: &Value<'_>, depth: usize) -> Result<Json, String> {
    match value {
        Value::Enum(ty, n) if ty.values.iter().any(|(_, number)| number == n) => {
            Ok(Json::String(enum_name(ty, *n).into_owned()))
        }
        Value::Wrapper(inner) => protobuf(call, inner, depth),
        Value::List(list) if !list.is_nil() => {
            list.to_vec().iter().map(|item| protobuf(call, item, depth + 1)).collect()
        }
        _ => convert(call, value, depth),
    }
}

fn fields(
    call: &mut Call<'_>,
    s: &Struct<'_>,
    depth: usize,
    into: &mut JsonMap<String, Json>,
) -> Result<(), String> {
    let mut embeds = false;
    for field in s.schema.fields {
        let value = s.value(field);
        match &value {
            Value::Struct(inner) if field.key.is_empty() => {
                embeds = true;
                fields(call, inner, depth + 1, into)?;
            }
            _ if field.omit_empty && is_empty(field, &value) => {}
            _ if s.schema.proto => {
                into.insert(field.key.to_owned(), protobuf(call, &value, depth + 1)?);
            }
            _ => {
                into.insert(field.key.to_owned(), convert(call, &value, depth + 1)?);
            }
        }
    }
    // What the schema does not know is kept: a newer Kubernetes may have fields that we do not.
    if let Some(json) = s.json.filter(|_| !embeds) {
        for (key, value) in json {
            if !s.schema.fields.iter().any(|f| f.key == key) {
                into.insert(key.clone(), convert(call, &Value::any(value), depth + 1)?);
            }
        }
    }
    Ok(())
}

fn is_empty(field: &Field, value: &Value<'_>) -> bool {
    !value.is_true() && !matches!(field.kind, Kind::Struct(_))
}

/// How JSON is written.
#[derive(Clone, Copy)]
pub struct Style {
    /// `<`, `>` and `&` as `\u003c` and so on.
    pub escape_html: bool,
    /// What one level is indented by; `None` is everything on one line.
    pub indent: Option<&'static str>,
}

/// `json.Marshal`
pub const COMPACT: Style = Style { escape_html: true, indent: None };

/// JSON as text.
#[must_use]
pub fn encode(json: &Json, style: Style) -> String {
    let mut out = String::new();
    write(&mut out, json, style, 0);
    out
}

fn newline(out: &mut String, style: Style, depth: usize) {
    if let Some(indent) = style.indent {
        out.push('\n');
        out.push_str(&indent.repeat(depth));
    }
}

fn write(out: &mut String, json: &Json, style: Style, depth: usize) {
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Json::Number(n) => out.push_str(&number(n)),
        Json::String(s) => string(out, s, style.escape_html),
        Json::Array(items) if items.is_empty() => out.push_str("[]"),
        Json::Object(entries) if entries.is_empty() => out.push_str("{}"),
        Json::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                newline(out, style, depth + 1);
                write(out, item, style, depth + 1);
            }
            newline(out, style, depth);
            out.push(']');
        }
        Json::Object(entries) => {
            out.push('{');
            for (i, (key, value)) in entries.iter().enumerate() {
                out.push_str(if i > 0 { "," } else { "" });
                newline(out, style, depth + 1);
                string(out, key, style.escape_html);
                out.push_str(if style.indent.is_some() { ": " } else { ":" });
                write(out, value, style, depth + 1);
            }
            newline(out, style, depth);
            out.push('}');
        }
    }
}

/// A number as Go's JSON has it: positional from 1e-6 up to 1e21, no fraction for whole floats.
pub(crate) fn number(n: &Number) -> String {
    if !n.is_f64() {
        return n.to_string();
    }
    let f = n.as_f64().unwrap_or_default();
    if f != 0.0 && (f.abs() < 1e-6 || f.abs() >= 1e21) {
        let text = format!("{f:e}");
        return text.replace('e', if f.abs() >= 1e21 { "e+" } else { "e" });
    }
    format!("{f}")
}

/// As `serde_json` writes it, and what Go escapes besides.
fn string(out: &mut String, text: &str, escape_html: bool) {
    let plain = |byte: u8| match byte {
        b'"' | b'\\' => false,
        b'<' | b'>' | b'&' => !escape_html,
        _ => matches!(byte, b' '..=b'~'),
    };
    if text.bytes().all(plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
        return;
    }
    for c in Json::from(text).to_string().chars() {
        match c {
            '<' | '>' | '&' if escape_html => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            '\u{2028}' | '\u{2029}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
}
