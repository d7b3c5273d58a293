//! Input files: several documents, of which some are rewritten and all others keep their bytes.

use std::mem;

use serde_json::Value;

use super::YamlError;
use super::parts::{Part, PartError, Parts};
use super::read::{Raw, as_written, integers, read_raw};
use super::typing::coerce_each;
use crate::schema;

/// The most converted scalars that are reported of one document.
const MOST_SURPRISES: usize = 1000;

/// One document of a file. The separators and bodies of a file's documents, one after the other, are the
/// file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// The `---` line in front of the body, with its line break and comment; empty in front of the first, if
    /// it has none.
    pub separator: String,
    /// The exact text of the document.
    pub body: String,
    /// What it says; `null` when there is nothing but comments.
    pub value: Value,
    /// Plain scalars in fields for text that YAML 1.1 reads as something else, each as a sentence.
    pub surprises: Vec<String>,
    /// The first key that its map has already: writing the value would lose what the key had before.
    pub duplicate: Option<YamlError>,
}

/// Reads a file that is in memory; [`Parts`] reads one that need not be.
///
/// With coercion: in workloads, pods and lists of them, numbers and bools in string fields become strings.
///
/// # Errors
/// Text that is not UTF-8, not YAML, or a document beyond the bounds; the line is that of the file.
pub fn read_documents(bytes: &[u8]) -> Result<Vec<Document>, YamlError> {
    let mut parts = Parts::new(bytes);
    let mut documents = Vec::new();
    // A slice is read without I/O errors.
    while let Some(mut part) = parts.next_part().map_err(PartError::into_yaml)? {
        documents.push(part.read()?);
    }
    Ok(documents)
}

impl Part {
    /// Reads what the document says; its texts move into the result.
    ///
    /// # Errors
    /// As [`read_documents`].
    pub fn read(&mut self) -> Result<Document, YamlError> {
        let of_file = |mut error: YamlError| {
            if error.line > 0 {
                error.line += self.line - 1;
            }
            error
        };
        let mut surprises = Vec::new();
        let (value, duplicate) = read_body(&self.body, &mut surprises).map_err(of_file)?;
        let duplicate = duplicate.map(of_file);
        let (separator, body) = (mem::take(&mut self.separator), mem::take(&mut self.body));
        Ok(Document { separator, body, value, surprises, duplicate })
    }
}

fn read_body(body: &str, surprises: &mut Vec<String>) -> Result<(Value, Option<YamlError>), YamlError> {
    // Directives precede a separator and would be an error alone.
    if body.lines().all(|line| line.trim().is_empty() || line.starts_with(['#', '%'])) {
        return Ok((Value::Null, None));
    }
    let Raw { mut value, duplicate, .. } = read_raw(body)?;
    let mut coerced = Vec::new();
    coerce_document(&mut value, &mut coerced, "", 0);
    if !coerced.is_empty() {
        let written = as_written(body).unwrap_or_default();
        surprises.extend(coerced.iter().filter_map(|one| one.surprise(&written)).take(MOST_SURPRISES));
    }
    integers(&mut value);
    Ok((value, duplicate))
}

/// A scalar that became the text of a field.
struct Coerced {
    /// JSON pointer in the document.
    pointer: String,
    path: String,
    text: String,
}

fn coerce_document(value: &mut Value, coerced: &mut Vec<Coerced>, at: &str, depth: usize) {
    let Some(kind) = value.get("kind").and_then(Value::as_str) else {
        return;
    };
    if let Some(of) = schema::workload(kind) {
        coerce_each(value, of, &mut |path, text| {
            let pointer = format!("{at}{}", path.pointer());
            coerced.push(Coerced { pointer, path: path.to_string(), text: text.to_owned() });
        });
    } else if kind == "List"
        && depth < super::MAX_DEPTH
        && let Some(Value::Array(items)) = value.get_mut("items")
    {
        for (index, item) in items.iter_mut().enumerate() {
            coerce_document(item, coerced, &format!("{at}/items/{index}"), depth + 1);
        }
    }
}

impl Coerced {
    /// `YES` in a field for text becomes `true`, and `0777` becomes `511`: what the author wrote is not what
    /// the cluster gets. `written` is the document with its scalars as texts.
    fn surprise(&self, written: &Value) -> Option<String> {
        let Self { pointer, path, text } = self;
        let given = written.pointer(pointer)?.as_str().filter(|given| given != text)?;
        Some(format!("{path}: {given} is {text} in YAML 1.1: write it in quotes, if it is meant as text"))
    }
}
