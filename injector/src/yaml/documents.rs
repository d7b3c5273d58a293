//! Input files: several documents, of which some are rewritten and all others keep their bytes.

use serde_json::Value;

use super::read::{Raw, integers, read_raw};
use super::scalar::{self, Scalar};
use super::typing::coerce_each;
use super::{MAX_BYTES, Problem, YamlError};
use crate::schema;

/// The most scalars of a document that are looked up in its text.
const MOST_SURPRISES: usize = 1000;

/// One document of a file. The separators and bodies of a file's documents, one after the other, are the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document<'t> {
    /// The `---` line in front of the body, with its line break and comment; empty in front of the first, if it has none.
    pub separator: &'t str,
    /// The exact text of the document.
    pub body: &'t str,
    /// What it says; `null` when there is nothing but comments.
    pub value: Value,
    /// Plain scalars in fields for text that YAML 1.1 reads as something else, each as a sentence.
    pub surprises: Vec<String>,
    /// The first key that its map has already: writing the value would lose what the key had before.
    pub duplicate: Option<YamlError>,
}

/// Reads a file.
///
/// With coercion: in workloads, pods and lists of them, numbers and bools in string fields become strings.
///
/// # Errors
/// Text that is not UTF-8, not YAML, or beyond the bounds; the line is that of the file.
pub fn read_documents(bytes: &[u8]) -> Result<Vec<Document<'_>>, YamlError> {
    if bytes.len() > MAX_BYTES {
        return Err(YamlError::whole(Problem::TooLong(bytes.len())));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| not_utf8(bytes, error.valid_up_to()))?;
    let mut documents = Vec::new();
    let mut line = 0;
    for (separator, body) in split(text) {
        line += newlines(separator);
        let mut surprises = Vec::new();
        let of_file = |mut error: YamlError| {
            if error.line > 0 {
                error.line += line;
            }
            error
        };
        let (value, duplicate) = read_body(body, &mut surprises).map_err(of_file)?;
        let duplicate = duplicate.map(of_file);
        line += newlines(body);
        documents.push(Document { separator, body, value, surprises, duplicate });
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

fn read_body(body: &str, surprises: &mut Vec<String>) -> Result<(Value, Option<YamlError>), YamlError> {
    // Directives precede a separator and would be an error alone.
    if body.lines().all(|line| line.trim().is_empty() || line.starts_with(['#', '%'])) {
        return Ok((Value::Null, None));
    }
    let Raw { mut value, duplicate, .. } = read_raw(body)?;
    coerce_document(&mut value, body, surprises, 0);
    integers(&mut value);
    Ok((value, duplicate))
}

fn coerce_document(value: &mut Value, body: &str, surprises: &mut Vec<String>, depth: usize) {
    let Some(kind) = value.get("kind").and_then(Value::as_str) else {
        return;
    };
    if let Some(of) = schema::workload(kind) {
        let mut left = MOST_SURPRISES;
        coerce_each(value, of, &mut |path, text| {
            if left > 0 {
                left -= 1;
                surprises.extend(surprise(body, path, text));
            }
        });
    } else if kind == "List"
        && depth < super::MAX_DEPTH
        && let Some(Value::Array(items)) = value.get_mut("items")
    {
        items.iter_mut().for_each(|item| coerce_document(item, body, surprises, depth + 1));
    }
}

fn is_read_as(plain: &str, text: &str) -> bool {
    match scalar::resolve(plain) {
        Scalar::Bool(flag) => flag.to_string() == text,
        Scalar::Int(number) => number.to_string() == text,
        Scalar::Uint(number) => number.to_string() == text,
        Scalar::Float(number) => text.parse() == Ok(number),
        Scalar::Null | Scalar::Str => false,
    }
}

/// `YES` in a field for text becomes `true`, and `0777` becomes `511`: what the author wrote is not what the cluster gets.
fn surprise(body: &str, path: &str, text: &str) -> Option<String> {
    let key = path.rsplit('.').next()?;
    let given = body.lines().find_map(|line| {
        let (_, rest) = line.split_once(&format!("{key}:"))?;
        let plain = rest.trim_start().split([',', '}', ']', '#']).next()?.trim_end();
        let other = !plain.is_empty() && !plain.contains(['"', '\'', ' ', '{', '[', '|', '>', '&', '*', '!']);
        Some(plain).filter(|plain| other && *plain != text && is_read_as(plain, text))
    })?;
    Some(format!("{path}: {given} is {text} in YAML 1.1: write it in quotes, if it is meant as text"))
}
