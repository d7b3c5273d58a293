//! A fast reader for the plain block style that templates render. All other YAML is left to the parser.
//!
//! The parser takes half of an injection's time for texts in which almost every line is `key: value` or
//! `- key: value`. This reader handles those, and gives up (`None`) at the first byte that could mean
//! anything else: then the parser reads the text, and reports errors. A property test compares the two.

use std::ops::Range;

use memchr::memchr;
use serde_json::{Map, Value};

use super::scalar::{key_text, plain};

/// Longer texts are left to the parser, which counts nodes.
const MAX_BYTES: usize = 256 << 10;
const MAX_DEPTH: usize = 40;

/// A line with content.
#[derive(Clone, Copy)]
struct Line<'t> {
    /// The offset of its first byte that is not a blank.
    at: usize,
    /// The column of that byte: how many blanks there are before it.
    indent: usize,
    /// From there, without trailing blanks.
    text: &'t str,
    /// The offset of the line after it.
    next: usize,
}

/// Reads one document of plain block style; `None` if the text has anything else. With `as_written`, the
/// value of each plain scalar is its text.
pub(super) fn read(text: &str, as_written: bool) -> Option<(Value, Vec<Range<usize>>)> {
    // Looks at every byte, so that it takes many at a time.
    let is_plain = text.bytes().fold(true, |plain, byte| plain & matches!(byte, b'\n' | b' '..=b'~'));
    if text.len() > MAX_BYTES || !is_plain {
        return None;
    }
    let mut reader = Reader { text, as_written, line: None, spans: Vec::with_capacity(text.len() / 16) };
    reader.go_to(0)?;
    let first = reader.line?;
    let value = reader.node(first.indent, 0)?;
    reader.line.is_none().then_some((value, reader.spans))
}

struct Reader<'t> {
    text: &'t str,
    as_written: bool,
    /// The next line with content; `None` at the end.
    line: Option<Line<'t>>,
    spans: Vec<Range<usize>>,
}

impl<'t> Reader<'t> {
    /// Makes the first line with content from the offset `at` on the next one.
    fn go_to(&mut self, mut at: usize) -> Option<()> {
        self.line = None;
        while at < self.text.len() {
            let length = self.line_length(at)?;
            let whole = self.text.get(at..at + length)?;
            let content = trim_start(whole);
            let (indent, next) = (whole.len() - content.len(), at + length + 1);
            if !(content.is_empty() || begins(content, b'#')) {
                // Markers and directives.
                if indent == 0 && (content.starts_with(['%', '.']) || content.starts_with("---")) {
                    return None;
                }
                let text = content.trim_end_matches(' ');
                self.line = Some(Line { at: at + indent, indent, text, next });
                return Some(());
            }
            at = next;
        }
        Some(())
    }

    /// The number of bytes from the offset `at` to the end of its line.
    fn line_length(&self, at: usize) -> Option<usize> {
        let rest = self.text.as_bytes().get(at..)?;
        Some(memchr(b'\n', rest).unwrap_or(rest.len()))
    }

    /// The map or list that begins at the next line, which has this indentation.
    fn node(&mut self, indent: usize, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        if is_item(self.line?.text) { self.list(indent, depth) } else { self.map(indent, depth) }
    }

    fn list(&mut self, indent: usize, depth: usize) -> Option<Value> {
        let mut items = Vec::new();
        while let Some(line) = self.line.filter(|line| line.indent == indent && is_item(line.text)) {
            let rest = line.text.get(1..)?;
            let content = trim_start(rest);
            let skipped = 1 + rest.len() - content.len();
            if content.is_empty() || is_item(content) || begins(content, b'#') {
                return None;
            }
            let inner = Line { at: line.at + skipped, indent: indent + skipped, text: content, ..line };
            if key(content).is_some() {
                self.line = Some(inner);
                items.push(self.map(inner.indent, depth + 1)?);
            } else {
                items.push(self.scalar(inner, indent)?);
            }
        }
        self.ends(indent).then_some(Value::Array(items))
    }

    fn map(&mut self, indent: usize, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        let mut fields = Map::new();
        while let Some(line) = self.line.filter(|line| line.indent == indent && !is_item(line.text)) {
            let (name, length) = key(line.text)?;
            self.spans.push(line.at..line.at + length);
            let name = match name {
                Key::Plain("<<") => return None,
                Key::Plain(text) => key_text(plain(text)?)?,
                Key::Quoted(text) => text.to_owned(),
            };
            let rest = line.text.get(length + 1..)?;
            let content = trim_start(rest);
            let value = if content.is_empty() || begins(content, b'#') {
                self.go_to(line.next)?;
                match self.line {
                    Some(next) if next.indent > indent || next.indent == indent && is_item(next.text) => {
                        self.node(next.indent, depth + 1)?
                    }
                    // As the parser shows an empty scalar.
                    _ => self.plain("~")?,
                }
            } else {
                let at = line.at + line.text.len() - content.len();
                self.scalar(Line { at, text: content, ..line }, indent)?
            };
            if fields.insert(name, value).is_some() {
                return None;
            }
        }
        (!fields.is_empty() && self.ends(indent)).then_some(Value::Object(fields))
    }

    /// Whether what follows belongs to something around a node of this indentation.
    fn ends(&self, indent: usize) -> bool {
        self.line.is_none_or(|line| line.indent < indent || line.indent == indent && !is_item(line.text))
    }

    /// The value that `line` holds; what belongs to it is indented deeper than `indent`.
    fn scalar(&mut self, line: Line<'t>, indent: usize) -> Option<Value> {
        if let Some(chomp) = line.text.strip_prefix('|') {
            return self.block(line, indent, chomp);
        }
        let (value, length) = match line.text.as_bytes() {
            [quote @ (b'"' | b'\''), ..] => {
                let (text, length) = quoted(line.text, char::from(*quote))?;
                (Value::String(text), length)
            }
            [b'{' | b'[', ..] => return self.flow_value(line, indent),
            _ => {
                let text = plain_text(line.text)?;
                (self.plain(text)?, text.len())
            }
        };
        let rest = line.text.get(length..)?;
        let comment = begins(rest, b' ') && begins(trim_start(rest), b'#');
        if !(rest.is_empty() || comment) {
            return None;
        }
        self.spans.push(line.at..line.at + length);
        self.go_to(line.next)?;
        // A line that is indented deeper continues the scalar.
        self.line.is_none_or(|next| next.indent <= indent).then_some(value)
    }

    /// The flow collection that `line` holds; its lines are indented at least by `indent`.
    fn flow_value(&mut self, line: Line<'t>, indent: usize) -> Option<Value> {
        let (value, end) = self.flow(line.at, indent, 0)?;
        let rest = self.text.get(end..end + self.line_length(end)?)?;
        if !rest.trim_matches(' ').is_empty() {
            return None;
        }
        self.go_to(end + rest.len() + 1)?;
        self.line.is_none_or(|next| next.indent <= indent).then_some(value)
    }

    /// The flow collection or scalar at the offset `at`, and the offset behind it.
    fn flow(&mut self, at: usize, indent: usize, depth: usize) -> Option<(Value, usize)> {
        let close = match self.text.as_bytes().get(at)? {
            _ if depth > MAX_DEPTH => return None,
            b'{' => b'}',
            b'[' => b']',
            _ => {
                return self.flow_scalar(at, Self::plain);
            }
        };
        let (mut fields, mut items) = (Map::new(), Vec::new());
        let mut at = self.skip(at + 1, indent)?;
        while *self.text.as_bytes().get(at)? != close {
            if close == b'}' {
                let quoted = matches!(self.text.as_bytes().get(at)?, b'"' | b'\'');
                let (name, end) = self.flow_scalar(at, |_, text| plain(text))?;
                let name = key_text(name).filter(|name| name != "<<")?;
                let rest = after_colon(self.text.get(end..)?)?;
                if !quoted && !begins(rest, b' ') {
                    return None;
                }
                let (value, end) = self.flow(self.skip(end + 1, indent)?, indent, depth + 1)?;
                if fields.insert(name, value).is_some() {
                    return None;
                }
                at = self.skip(end, indent)?;
            } else {
                let (value, end) = self.flow(at, indent, depth + 1)?;
                items.push(value);
                at = self.skip(end, indent)?;
            }
            match self.text.as_bytes().get(at)? {
                b',' => at = self.skip(at + 1, indent)?,
                other if *other == close => {}
                _ => return None,
            }
        }
        Some((if close == b'}' { Value::Object(fields) } else { Value::Array(items) }, at + 1))
    }

    /// The scalar of a flow collection at the offset `at`, and the offset behind it.
    fn flow_scalar(&mut self, at: usize, plain: fn(&Self, &str) -> Option<Value>) -> Option<(Value, usize)> {
        let rest = self.text.get(at..)?;
        let (value, length) = match rest.bytes().next()? {
            quote @ (b'"' | b'\'') => {
                let (text, length) = quoted(rest, char::from(quote))?;
                if rest.get(..length)?.contains('\n') {
                    return None;
                }
                (Value::String(text), length)
            }
            _ => {
                let simple =
                    |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-');
                let length = rest.bytes().position(|byte| !simple(byte)).unwrap_or(rest.len());
                let text = rest.get(..length).filter(|text| !(text.is_empty() || begins(text, b'-')))?;
                (plain(self, text)?, length)
            }
        };
        self.spans.push(at..at + length);
        Some((value, at + length))
    }

    /// The value of a plain scalar that is no key.
    fn plain(&self, text: &str) -> Option<Value> {
        if self.as_written { Some(Value::String(text.to_owned())) } else { plain(text) }
    }

    /// The offset of the next byte from `at` on that is neither a blank nor a line break. The lines that
    /// begin there are indented at least by `indent`.
    fn skip(&self, at: usize, indent: usize) -> Option<usize> {
        let (mut end, mut column) = (at, usize::MAX);
        while let Some(byte @ (b' ' | b'\n')) = self.text.as_bytes().get(end) {
            end += 1;
            column = if *byte == b'\n' { 0 } else { column.saturating_add(1) };
        }
        let comment = self.text.as_bytes().get(end) == Some(&b'#');
        (column >= indent && column > 0 && !comment).then_some(end)
    }

    /// A literal block, `|`, whose lines are indented deeper than `indent`.
    fn block(&mut self, line: Line<'t>, indent: usize, chomp: &str) -> Option<Value> {
        let mut body = String::new();
        let (mut at, mut width, mut start, mut end) = (line.next, None, 0, line.next);
        let mut blank = 0;
        while at < self.text.len() {
            let length = self.line_length(at)?;
            let whole = self.text.get(at..at + length)?;
            let here = whole.len() - trim_start(whole).len();
            if here == whole.len() {
                // Blanks beyond the indentation are content; before the first line they are an error.
                if width.is_none_or(|width| here > width) && here > 0 {
                    return None;
                }
                blank += 1;
            } else {
                if width.is_none() {
                    start = at + here;
                }
                let width = *width.get_or_insert(here);
                if width <= indent {
                    return None;
                }
                if here < width {
                    // The parser takes the indentation for part of the block.
                    at += here;
                    break;
                }
                body.extend(std::iter::repeat_n('\n', std::mem::take(&mut blank)));
                body.push_str(whole.get(width..)?);
                body.push('\n');
                end = at + length + 1;
            }
            at += length + 1;
        }
        if body.is_empty() || end > self.text.len() {
            return None;
        }
        match chomp {
            "" => {}
            "-" => {
                body.pop();
            }
            _ => return None,
        }
        // So do the blank lines behind it.
        self.spans.push(start..at.min(self.text.len()));
        self.go_to(end)?;
        Some(Value::String(body))
    }
}

fn is_item(text: &str) -> bool {
    matches!(text.as_bytes(), [b'-'] | [b'-', b' ', ..])
}

/// Whether a text begins with this ASCII character, without a call.
fn begins(text: &str, byte: u8) -> bool {
    text.as_bytes().first() == Some(&byte)
}

fn after_colon(text: &str) -> Option<&str> {
    text.get(1..).filter(|_| begins(text, b':'))
}

/// The text without the blanks in front of it.
fn trim_start(text: &str) -> &str {
    let blanks = text.bytes().take_while(|byte| *byte == b' ').count();
    text.get(blanks..).unwrap_or_default()
}

enum Key<'t> {
    Plain(&'t str),
    Quoted(&'t str),
}

/// The key that a line begins with, and how many bytes there are before its colon.
fn key(text: &str) -> Option<(Key<'_>, usize)> {
    let of_colon = |length: usize| {
        let rest = after_colon(text.get(length..)?)?;
        (rest.is_empty() || begins(rest, b' ')).then_some(length)
    };
    match text.as_bytes().first()? {
        quote @ (b'"' | b'\'') => {
            let inner = text.get(1..)?.split(char::from(*quote)).next()?;
            let length = of_colon(inner.len() + 2)?;
            (!inner.contains('\\')).then_some((Key::Quoted(inner), length))
        }
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'.' | b'/' | b'$' | b'<' => {
            let simple = |byte: u8| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'$' | b'<' | b'-')
            };
            let length = of_colon(text.bytes().position(|byte| !simple(byte))?)?;
            Some((Key::Plain(text.get(..length)?), length))
        }
        _ => None,
    }
}

/// The plain scalar that a line holds.
fn plain_text(text: &str) -> Option<&str> {
    // A search for two bytes takes long to prepare.
    let text = if text.contains('#') { text.split(" #").next()?.trim_end_matches(' ') } else { text };
    let mut bytes = text.bytes();
    let begins = match bytes.next()? {
        b'-' => bytes.next().is_some_and(|byte| byte != b' '),
        first => {
            first.is_ascii_alphanumeric()
                || matches!(first, b'_' | b'.' | b'/' | b'$' | b'(' | b'+' | b'<' | b'=')
        }
    };
    let key = text.contains(':') && (text.contains(": ") || text.ends_with(':'));
    (begins && !key).then_some(text)
}

/// The text in quotes at the start of `text`, and how many bytes it takes with them. Escapes that are not in
/// JSON too are left to the parser.
fn quoted(text: &str, quote: char) -> Option<(String, usize)> {
    let body = text.get(1..)?;
    let end = body.bytes().position(|byte| char::from(byte) == quote || byte == b'\\')?;
    let rest = body.get(end..)?;
    if rest.starts_with(quote) && !rest.starts_with("''") {
        return Some((body.get(..end)?.to_owned(), end + 2));
    }
    let mut out = String::with_capacity(2 * end);
    let mut chars = body.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if quote == '\'' && chars.next_if(|(_, c)| *c == '\'').is_some() => out.push('\''),
            _ if c == quote => return Some((out, at + 2)),
            '\\' if quote == '"' => match chars.next()?.1 {
                c @ ('"' | '\\' | '/') => out.push(c),
                'n' => out.push('\n'),
                't' => out.push('\t'),
                _ => return None,
            },
            _ => out.push(c),
        }
    }
    None
}
