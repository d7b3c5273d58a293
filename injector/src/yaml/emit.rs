//! A fast writer for values whose texts are plain or simple blocks. All others are left to the serializer.
//!
//! The serializer examines each text several times. This writer decides with one look at most of them that
//! they need no quotes, and gives up (`None`) at what it does not know. A property test compares the two.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::serialize::serialize;

/// The value as block-style YAML; `None` for keys and texts that the serializer has to look at in their
/// place.
pub(super) fn emit(value: &Value) -> Option<String> {
    let mut emitter = Emitter { out: String::with_capacity(4096) };
    match value {
        Value::Object(fields) if !fields.is_empty() => emitter.map(fields, 0)?,
        Value::Array(items) if !items.is_empty() => emitter.list(items, 0)?,
        _ => return None,
    }
    Some(emitter.out)
}

struct Emitter {
    out: String,
}

impl Emitter {
    /// The fields of a map; the first one follows what is on the line already.
    fn map(&mut self, fields: &Map<String, Value>, indent: usize) -> Option<()> {
        for (at, (key, value)) in fields.iter().enumerate() {
            if at > 0 {
                self.indent(indent);
            }
            if !is_plain_key(key) {
                return None;
            }
            self.out.push_str(key);
            self.out.push(':');
            match value {
                Value::Object(fields) if !fields.is_empty() => {
                    self.out.push('\n');
                    self.indent(indent + 2);
                    self.map(fields, indent + 2)?;
                }
                Value::Array(items) if !items.is_empty() => {
                    self.out.push('\n');
                    self.indent(indent);
                    self.list(items, indent)?;
                }
                _ => {
                    self.out.push(' ');
                    self.scalar(value, indent)?;
                }
            }
        }
        Some(())
    }

    /// The items of a list; the first one follows what is on the line already.
    fn list(&mut self, items: &[Value], indent: usize) -> Option<()> {
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.indent(indent);
            }
            self.out.push_str("- ");
            match item {
                Value::Object(fields) if !fields.is_empty() => self.map(fields, indent + 2)?,
                Value::Array(items) if !items.is_empty() => self.list(items, indent + 2)?,
                _ => self.scalar(item, indent)?,
            }
        }
        Some(())
    }

    /// A scalar or an empty collection of a map or list at this indent, and the end of the line.
    fn scalar(&mut self, value: &Value, indent: usize) -> Option<()> {
        match value {
            Value::Null => self.out.push_str("null"),
            Value::Bool(true) => self.out.push_str("true"),
            Value::Bool(false) => self.out.push_str("false"),
            Value::Object(_) => self.out.push_str("{}"),
            Value::Array(_) => self.out.push_str("[]"),
            Value::String(text) if is_plain(text) => self.out.push_str(text),
            Value::String(text) if text.contains(['\n', '\r']) => return self.block(text, indent + 2),
            // An ASCII text of JSON, of which the serializer doubles the single quotes.
            Value::String(text) if text.starts_with(['{', '[']) && text.bytes().all(is_json_byte) => {
                self.out.push('\'');
                self.out.push_str(text);
                self.out.push('\'');
            }
            Value::String(text) if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.out.push('"');
                self.out.push_str(text);
                self.out.push('"');
            }
            Value::Number(number) if !number.is_f64() => {
                // Writing to a string does not fail.
                let _ = write!(self.out, "{number}");
            }
            Value::String(_) | Value::Number(_) => {
                let text = serialize(value);
                self.out.push_str(text.strip_suffix('\n')?);
            }
        }
        self.out.push('\n');
        Some(())
    }

    /// A text of several lines as a `|` block; `None` if its first line is empty or begins with a blank, or
    /// if a byte needs an escape.
    fn block(&mut self, text: &str, indent: usize) -> Option<()> {
        let content = text.trim_end_matches('\n');
        let simple = |byte: u8| matches!(byte, b' '..=b'~' | b'\n');
        if !content.starts_with(|first: char| first.is_ascii_graphic()) || !content.bytes().all(simple) {
            return None;
        }
        self.out.push('|');
        let ends = text.len() - content.len();
        match ends {
            0 => self.out.push('-'),
            1 => {}
            _ => self.out.push('+'),
        }
        self.out.push('\n');
        for line in content.split('\n') {
            if !line.is_empty() {
                self.indent(indent);
                self.out.push_str(line);
            }
            self.out.push('\n');
        }
        self.out.extend(std::iter::repeat_n('\n', ends.saturating_sub(1)));
        Some(())
    }

    fn indent(&mut self, mut width: usize) {
        const BLANKS: &str = "                                ";
        while let Some(rest) = width.checked_sub(BLANKS.len()) {
            self.out.push_str(BLANKS);
            width = rest;
        }
        self.out.push_str(BLANKS.get(..width).unwrap_or_default());
    }
}

/// A byte that JSON in single quotes may have as it is.
fn is_json_byte(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'\''
}

/// Words that a reader may take for something else than text, in lower case.
const WORDS: [&str; 11] = ["false", "inf", "n", "nan", "no", "null", "off", "on", "true", "y", "yes"];

/// Whether a text begins like a word or path, is no special word, and ends with no blank.
fn is_wordlike(text: &str) -> bool {
    let begins = match text.as_bytes() {
        [b'-', b'-', next, ..] | [b'-', next, ..] => next.is_ascii_alphabetic(),
        [first, ..] => first.is_ascii_alphabetic() || matches!(first, b'/' | b'$' | b'('),
        [] => false,
    };
    let word = text.strip_prefix('-').unwrap_or(text);
    begins
        && !text.ends_with(' ')
        && !(word.len() <= 5 && WORDS.iter().any(|special| special.eq_ignore_ascii_case(word)))
}

/// Whether a text in the place of a value is plain.
fn is_plain(text: &str) -> bool {
    let mut printable = true;
    let (mut colon, mut comment, mut before) = (false, false, 0_u8);
    for byte in text.bytes() {
        printable &= matches!(byte, b' '..=b'~');
        colon |= before == b':' && byte == b' ';
        comment |= before == b' ' && byte == b'#';
        before = byte;
    }
    printable && !colon && !comment && before != b':' && is_wordlike(text)
}

/// Whether a key is plain.
fn is_plain_key(key: &str) -> bool {
    const LONGEST: usize = 256;
    let simple = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b'$');
    key.len() <= LONGEST && key.bytes().all(simple) && is_wordlike(key)
}
