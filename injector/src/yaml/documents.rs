//! Input files: several documents, of which some are rewritten and all others keep their bytes.

use serde_json::Value;

use super::read::{integers, read_raw};
use super::typing::coerce;
use super::{MAX_BYTES, Problem, YamlError};
use crate::schema;

/// One document of a file. The separators and bodies of a file's documents, one after the other, are the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document<'t> {
    /// The `---` line in front of the body, with its line break and comment; empty in front of the first, if it has none.
    pub separator: &'t str,
    /// The exact text of the document.
    pub body: &'t str,
    /// What it says; `null` when there is nothing but comments.
    pub value: Value,
}

/// Reads a file.
///
/// With coercion: in workloads, pods and lists of them, numbers and bools in string fields become strings.
///
/// # Errors
/// Text that is no UTF-8, no YAML, or beyond the bounds; the line is that of the file.
pub fn read_documents(bytes: &[u8]) -> Result<Vec<Document<'_>>, YamlError> {
    if bytes.len() > MAX_BYTES {
        return Err(YamlError::whole(Problem::TooLong(bytes.len())));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| not_utf8(bytes, error.valid_up_to()))?;
    let mut documents = Vec::new();
    let mut line = 0;
    for (separator, body) in split(text) {
        line += newlines(separator);
        let value = read_body(body).map_err(|mut error| {
            if error.line > 0 {
                error.line += line;
            }
            error
        })?;
        line += newlines(body);
        documents.push(Document { separator, body, value });
    }
    Ok(documents)
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

fn not_utf8(bytes: &[u8], at: usize) -> YamlError {
    let before = bytes.get(..at).unwrap_or_default();
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
    YamlError { line, column, problem: Problem::NotUtf8 }
}

/// Splits at `---` at the start of a line. A separator reaches to the end of its line, unless content follows on it.
fn split(text: &str) -> Vec<(&str, &str)> {
    let mut parts = Vec::new();
    let (mut separator, mut body_from, mut at) = ("", 0, 0);
    for line in text.split_inclusive('\n') {
        let marker = line.strip_prefix('\u{feff}').filter(|_| at == 0).unwrap_or(line);
        if let Some(rest) = marker.strip_prefix("---")
            && (rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
        {
            let body = text.get(body_from..at).unwrap_or_default();
            if !(separator.is_empty() && body.is_empty()) {
                parts.push((separator, body));
            }
            let rest = rest.trim();
            let bare = rest.is_empty() || rest.starts_with('#');
            let length = if bare { line.len() } else { line.len() - marker.len() + "---".len() };
            separator = text.get(at..at + length).unwrap_or_default();
            body_from = at + length;
        }
        at += line.len();
    }
    let body = text.get(body_from..).unwrap_or_default();
    if !(separator.is_empty() && body.is_empty()) {
        parts.push((separator, body));
    }
    parts
}

fn read_body(body: &str) -> Result<Value, YamlError> {
    // Directives precede a separator and would be an error alone.
    if body.lines().all(|line| line.trim().is_empty() || line.starts_with(['#', '%'])) {
        return Ok(Value::Null);
    }
    let mut value = read_raw(body)?.0;
    coerce_document(&mut value, 0);
    integers(&mut value);
    Ok(value)
}

fn coerce_document(value: &mut Value, depth: usize) {
    let Some(kind) = value.get("kind").and_then(Value::as_str) else {
        return;
    };
    if let Some(of) = schema::workload(kind) {
        coerce(value, of);
    } else if kind == "List"
        && depth < super::MAX_DEPTH
        && let Some(Value::Array(items)) = value.get_mut("items")
    {
        items.iter_mut().for_each(|item| coerce_document(item, depth + 1));
    }
}
