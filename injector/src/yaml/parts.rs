//! A file as its documents, one at a time: memory depends on the largest of them, not on the file.

use std::io::{self, BufRead, Read as _};
use std::mem;

use memchr::memchr_iter;
use serde::de::IgnoredAny;

use super::{MAX_BYTES, Problem, YamlError};

/// The text of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The `---` line in front of the body, or nothing.
    pub separator: String,
    /// The exact text.
    pub body: String,
    /// The number of the document in the file, from 1.
    pub number: usize,
    /// The line of the file in which the body begins, from 1.
    pub line: usize,
    /// Whether it follows another JSON text without a separator, as `jq` and `-o json` print them.
    pub joined: bool,
    /// Whether the file has more than this document.
    pub several: bool,
}

/// Why the next document could not be had.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// What the system says.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A document that is too large, or not text.
    #[error("{error}")]
    Document {
        /// The document's number, from 1.
        number: usize,
        /// What is wrong.
        error: YamlError,
    },
}

impl PartError {
    pub(super) fn into_yaml(self) -> YamlError {
        match self {
            Self::Io(error) => YamlError::whole(Problem::Syntax(error.to_string())),
            Self::Document { error, .. } => error,
        }
    }
}

/// Splits a file at `---` at the start of a line, and between JSON texts that follow each other. A separator
/// reaches to the end of its line, unless content follows on it.
#[derive(Debug)]
pub struct Parts<R> {
    reader: R,
    separator: Vec<u8>,
    body: Vec<u8>,
    /// How many bytes of the body have been looked at for the end of a JSON text.
    scanned: usize,
    json: Json,
    joined: bool,
    /// How many there were.
    number: usize,
    /// The line in which the body begins, from 1.
    line: usize,
    /// Whether nothing has been read yet.
    at_start: bool,
}

impl<R: BufRead> Parts<R> {
    /// Begins at the start of a file.
    pub const fn new(reader: R) -> Self {
        Self {
            reader,
            separator: Vec::new(),
            body: Vec::new(),
            scanned: 0,
            json: Json::Before,
            joined: false,
            number: 0,
            line: 1,
            at_start: true,
        }
    }

    /// The next document; `None` at the end of the file.
    ///
    /// # Errors
    /// What the system says; a document of more than `MAX_BYTES`, or that is not UTF-8.
    pub fn next_part(&mut self) -> Result<Option<Part>, PartError> {
        loop {
            if let Some(end) = self.json.find_end(&self.body, &mut self.scanned) {
                let next = self.body.split_off(end);
                return self.finish(Vec::new(), next, true).map(Some);
            }
            let from = self.body.len();
            // One more byte than is accepted shows that there is more.
            let left = (MAX_BYTES + 1).saturating_sub(from) as u64;
            let read = (&mut self.reader).take(left).read_until(b'\n', &mut self.body)?;
            if read == 0 && self.body.len() <= MAX_BYTES {
                return if self.separator.is_empty() && self.body.is_empty() {
                    Ok(None)
                } else {
                    self.finish(Vec::new(), Vec::new(), false).map(Some)
                };
            }
            let line = self.body.get(from..).unwrap_or_default();
            let separator = separator(line, mem::take(&mut self.at_start));
            if let Some(length) = separator {
                let mut line = self.body.split_off(from);
                let rest = line.split_off(length);
                if !(self.separator.is_empty() && self.body.is_empty()) {
                    return self.finish(line, rest, false).map(Some);
                }
                self.line += newlines(&line);
                (self.separator, self.body) = (line, rest);
            } else if self.body.len() > MAX_BYTES {
                let error = YamlError::whole(Problem::DocumentTooLong { line: self.line });
                return Err(PartError::Document { number: self.number + 1, error });
            }
        }
    }

    /// The document that ends here; the next one begins with `separator` and `body`.
    fn finish(&mut self, separator: Vec<u8>, body: Vec<u8>, joins: bool) -> Result<Part, PartError> {
        self.number += 1;
        let number = self.number;
        let several = number > 1 || !(separator.is_empty() && body.is_empty());
        let own_separator = mem::replace(&mut self.separator, separator);
        let own_body = mem::replace(&mut self.body, body);
        let line = self.line;
        self.line += newlines(&own_body) + newlines(&self.separator);
        let joined = mem::replace(&mut self.joined, joins);
        (self.json, self.scanned) = (Json::Before, 0);
        let text = |bytes: Vec<u8>| {
            String::from_utf8(bytes).map_err(|error| PartError::Document {
                number,
                error: not_utf8(error.as_bytes(), line, error.utf8_error().valid_up_to()),
            })
        };
        let (separator, body) = (text(own_separator)?, text(own_body)?);
        Ok(Part { separator, body, number, line, joined, several })
    }
}

fn newlines(bytes: &[u8]) -> usize {
    memchr_iter(b'\n', bytes).count()
}

fn not_utf8(bytes: &[u8], first_line: usize, at: usize) -> YamlError {
    let before = bytes.get(..at).unwrap_or_default();
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    YamlError { line: first_line + newlines(before), column, problem: Problem::NotUtf8 }
}

/// The length of the separator that a line is or begins with.
fn separator(line: &[u8], first: bool) -> Option<usize> {
    const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
    let marker = if first { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line };
    let [b'-', b'-', b'-', rest @ ..] = marker else { return None };
    if !matches!(rest, [] | [b' ' | b'\t' | b'\r' | b'\n', ..]) {
        return None;
    }
    let content = rest.trim_ascii();
    let bare = content.is_empty() || content.starts_with(b"#");
    Some(if bare { line.len() } else { line.len() - rest.len() })
}

/// Where in a JSON text the reader is.
#[derive(Clone, Copy, Debug)]
enum Json {
    /// Nothing but blanks so far.
    Before,
    Inside {
        depth: usize,
        string: bool,
        escaped: bool,
    },
    /// Nothing but blanks since the end of the object, at this offset.
    After(usize),
    /// The body is something else.
    No,
}

impl Json {
    /// Where the next JSON text begins, if the body is one with another one behind it. YAML in one document
    /// is never that.
    fn find_end(&mut self, body: &[u8], scanned: &mut usize) -> Option<usize> {
        while !matches!(self, Self::No) {
            let at = *scanned;
            let byte = *body.get(at)?;
            *scanned += 1;
            *self = match *self {
                Self::Before | Self::After(_) if byte.is_ascii_whitespace() => *self,
                Self::Before if byte == b'{' => Self::Inside { depth: 1, string: false, escaped: false },
                Self::After(end) if byte == b'{' => {
                    let object = body.get(..end).unwrap_or_default();
                    if serde_json::from_slice::<IgnoredAny>(object).is_ok() {
                        return Some(at);
                    }
                    Self::No
                }
                Self::Inside { depth, string, escaped } => inside(byte, at, depth, string, escaped),
                Self::Before | Self::After(_) | Self::No => Self::No,
            };
        }
        None
    }
}

/// The state behind a byte of an object.
const fn inside(byte: u8, at: usize, depth: usize, string: bool, escaped: bool) -> Json {
    match (string, byte) {
        (true, b'\\') if !escaped => Json::Inside { depth, string, escaped: true },
        (true, b'"') if !escaped => Json::Inside { depth, string: false, escaped: false },
        (true, _) => Json::Inside { depth, string, escaped: false },
        (false, b'"') => Json::Inside { depth, string: true, escaped: false },
        (false, b'{') => Json::Inside { depth: depth + 1, string, escaped },
        (false, b'}') if depth <= 1 => Json::After(at + 1),
        (false, b'}') => Json::Inside { depth: depth - 1, string, escaped },
        (false, _) => Json::Inside { depth, string, escaped },
    }
}
