//! Writing YAML as `kubectl` does.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use super::scalar::{self, Scalar};

/// Longer keys are written in the `? key` form, since readers look no further than 1024 characters for the colon.
const LONG_KEY: usize = 800;

/// Writes `value` as block-style YAML, ending with a line break.
///
/// Keys keep their order; lists start at the column of their key; texts of several lines are `|` blocks; strings that some
/// reader could take for something else are quoted; integral floats are integers.
#[must_use]
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => mapping(&mut out, fields, 0),
        Value::Array(items) if !items.is_empty() => sequence(&mut out, items, 0),
        scalar => {
            inline(&mut out, scalar, 2);
            out.push('\n');
        }
    }
    out
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

/// The fields of a map at `indent`; the first one continues a line that is there already.
fn mapping(out: &mut String, fields: &Map<String, Value>, indent: usize) {
    for (index, (key, value)) in fields.iter().enumerate() {
        if index > 0 {
            pad(out, indent);
        }
        let written = quoted(key);
        if written.len() > LONG_KEY {
            let _ = writeln!(out, "? {written}");
            pad(out, indent);
        } else {
            out.push_str(&written);
        }
        out.push(':');
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                out.push('\n');
                pad(out, indent + 2);
                mapping(out, fields, indent + 2);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                pad(out, indent);
                sequence(out, items, indent);
            }
            scalar => {
                out.push(' ');
                inline(out, scalar, indent + 2);
                out.push('\n');
            }
        }
    }
}

/// The items of a list at `indent`; the first one continues a line that is there already.
fn sequence(out: &mut String, items: &[Value], indent: usize) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            pad(out, indent);
        }
        out.push_str("- ");
        match item {
            Value::Object(fields) if !fields.is_empty() => mapping(out, fields, indent + 2),
            Value::Array(items) if !items.is_empty() => sequence(out, items, indent + 2),
            scalar => {
                inline(out, scalar, indent + 2);
                out.push('\n');
            }
        }
    }
}

/// A scalar or an empty collection; the lines of a block are at `indent`.
fn inline(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(value) => out.push_str(&number(value)),
        Value::String(text) if fits_block(text) => block(out, text, indent),
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// YAML 1.1 wants a dot and a signed exponent in a float.
fn number(value: &Number) -> String {
    let Some(float) = value.as_f64().filter(|_| value.is_f64()) else {
        return value.to_string();
    };
    if let Some(integer) = scalar::integral(float) {
        return integer.to_string();
    }
    let text = format!("{float:?}");
    let Some((mantissa, exponent)) = text.split_once('e') else {
        return text;
    };
    let dot = if mantissa.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with('-') { "" } else { "+" };
    format!("{mantissa}{dot}e{sign}{exponent}")
}

/// A string on one line: plain if every reader takes it for the string that it is, else quoted.
fn quoted(text: &str) -> String {
    if text.chars().any(|c| !printable(c)) || looks_like_another_type(text) {
        return double_quoted(text);
    }
    if plain(text) { text.to_owned() } else { format!("'{}'", text.replace('\'', "''")) }
}

/// As JSON, which is YAML, with more escapes.
fn double_quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    for c in Value::from(text).to_string().chars() {
        if printable(c) {
            out.push(c);
        } else {
            let _ = write!(out, "\\u{:04X}", u32::from(c));
        }
    }
    out
}

/// Characters that need no escape on a line. Not among them: line breaks of all kinds, tabs, the byte order mark.
const fn printable(c: char) -> bool {
    matches!(c, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}'
        | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
}

/// Whether a reader of YAML 1.1 or 1.2 could take `text` for a number, bool, null, date, time, merge key or default value.
fn looks_like_another_type(text: &str) -> bool {
    if matches!(text, "=" | "<<") || scalar::resolve(text) != Scalar::Str {
        return true;
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let numeric = digits.starts_with(|c: char| c.is_ascii_digit());
    numeric && (base_60(digits) || date(text) || foreign_number(digits))
}

/// `12:30`, `190:20:30.15`.
fn base_60(text: &str) -> bool {
    text.contains(':') && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'_' | b'.'))
}

/// Starts like `2001-01-01`.
fn date(text: &str) -> bool {
    let mut parts = text.splitn(3, '-');
    let number = |part: Option<&str>, lengths: std::ops::RangeInclusive<usize>| {
        part.is_some_and(|part| {
            lengths.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    number(parts.next(), 4..=4)
        && number(parts.next(), 1..=2)
        && parts.next().is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Digits, underscores and letters of numbers only: some reader may know a form that ours does not.
fn foreign_number(text: &str) -> bool {
    let body = match text.as_bytes() {
        [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', rest @ ..] => rest,
        rest => rest,
    };
    let of_number =
        |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'_' | b'.' | b'e' | b'E' | b'+' | b'-');
    body.iter().all(of_number) && body.iter().filter(|byte| **byte == b'.').count() < 2
}

/// Whether `text` needs no quotes, in block and in flow collections.
fn plain(text: &str) -> bool {
    let mut chars = text.chars();
    let (Some(first), second) = (chars.next(), chars.next()) else {
        return false;
    };
    let starts_well = match first {
        '-' => second.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-') && !text.starts_with("---"),
        ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`'
        | '?' | ':' | '=' | '~' | ' ' => false,
        _ => true,
    };
    starts_well
        && !text.starts_with("...")
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
}

/// Whether `text` can be a `|` block that keeps every character.
fn fits_block(text: &str) -> bool {
    text.contains('\n')
        && text.chars().all(|c| printable(c) || c == '\n' || c == '\t')
        && !text.starts_with(['\n', '\t'])
        && text.split('\n').any(|line| !line.trim().is_empty())
        && !text.split('\n').any(|line| line.ends_with([' ', '\t']))
}

fn block(out: &mut String, text: &str, indent: usize) {
    out.push('|');
    if text.starts_with(' ') {
        out.push('2');
    }
    let body = text.trim_end_matches('\n');
    match text.len() - body.len() {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    for line in body.split('\n') {
        out.push('\n');
        if !line.is_empty() {
            pad(out, indent);
            out.push_str(line);
        }
    }
    // The caller ends the last line.
    out.extend(std::iter::repeat_n('\n', (text.len() - body.len()).saturating_sub(1)));
}
