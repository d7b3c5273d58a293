//! JSON → YAML in blocks, keys sorted, as `toYaml` prints it.

use super::json::number;
use serde_json::{Map as JsonMap, Value as Json};

/// The YAML of a value, with a newline at its end.
pub(super) fn encode(json: &Json) -> String {
    let mut out = String::new();
    match json {
        Json::Object(entries) if !entries.is_empty() => object(&mut out, entries, 0, true),
        Json::Array(items) if !items.is_empty() => array(&mut out, items, 0, true),
        scalar => {
            self::scalar(&mut out, scalar);
            out.push('\n');
        }
    }
    out
}

fn pad(out: &mut String, indent: usize, inline: bool) {
    if !inline {
        out.push_str(&" ".repeat(indent));
    }
}

/// `inline`: the first entry continues the line.
fn object(out: &mut String, entries: &JsonMap<String, Json>, indent: usize, inline: bool) {
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_unstable_by_key(|(key, _)| *key);
    for (i, (key, value)) in sorted.into_iter().enumerate() {
        pad(out, indent, inline && i == 0);
        text(out, key);
        out.push(':');
        match value {
            Json::Object(entries) if !entries.is_empty() => {
                out.push('\n');
                object(out, entries, indent + 2, false);
            }
            Json::Array(items) if !items.is_empty() => {
                out.push('\n');
                array(out, items, indent, false);
            }
            other => {
                out.push(' ');
                scalar(out, other);
                out.push('\n');
            }
        }
    }
}

fn array(out: &mut String, items: &[Json], indent: usize, inline: bool) {
    for (i, item) in items.iter().enumerate() {
        pad(out, indent, inline && i == 0);
        out.push_str("- ");
        match item {
            Json::Object(entries) if !entries.is_empty() => object(out, entries, indent + 2, true),
            Json::Array(items) if !items.is_empty() => array(out, items, indent + 2, true),
            other => {
                scalar(out, other);
                out.push('\n');
            }
        }
    }
}

fn scalar(out: &mut String, json: &Json) {
    match json {
        Json::Null => out.push_str("null"),
        Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Json::Number(n) => out.push_str(&number(n)),
        Json::String(s) => text(out, s),
        Json::Array(_) => out.push_str("[]"),
        Json::Object(_) => out.push_str("{}"),
    }
}

/// A string: plain when no YAML reader can take it for something else, in double quotes otherwise.
fn text(out: &mut String, text: &str) {
    if is_plain(text) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if u32::from(c) < 0x20 || (0x7f..0xa0).contains(&u32::from(c)) => {
                out.push_str(&format!("\\x{:02x}", u32::from(c)));
            }
            '\u{2028}' | '\u{2029}' | '\u{feff}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('"');
}

fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return false };
    let safe = |c: char| {
        c.is_alphanumeric() || matches!(c, '_' | '/' | '.' | '-' | '+' | '=' | '@' | '(' | ')' | '$' | ';')
    };
    let middle =
        |c: char| safe(c) || matches!(c, ' ' | ':' | '\'' | '~' | '^' | '?' | '*' | '&' | '!' | '<' | '>');
    (first.is_alphabetic()
        || matches!(first, '_' | '/' | '(' | '$')
        || (first.is_ascii_digit() && !like_number(text)))
        && chars.clone().all(middle)
        && text.chars().last().is_some_and(safe)
        && !text.contains(": ")
        && !text.contains(" #")
        && !WORDS.contains(&text.to_ascii_lowercase().as_str())
}

/// Whether it could be a number, a date or a time in some version of YAML.
fn like_number(text: &str) -> bool {
    text.chars().all(|c| {
        c.is_ascii_hexdigit()
            || matches!(c, '.' | '_' | ':' | '+' | '-' | 'x' | 'X' | 'o' | 'O' | 'T' | 't' | 'Z' | 'z' | ' ')
    })
}
