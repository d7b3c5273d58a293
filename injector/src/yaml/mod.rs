//! Reading and writing YAML as Kubernetes' tools do: YAML 1.1, by way of JSON.
//!
//! - [`read()`]: one document as JSON; what Go's `sigs.k8s.io/yaml` would make of it. For values, mesh
//!   config, configs.
//! - `read_overlay`: a template's output as a strategic merge patch for a pod, typed strictly, and where its
//!   scalars are.
//! - [`Parts`], [`Part::read`]: an input file of any size, document by document, with coercion; unchanged
//!   documents keep their bytes. [`read_documents`]: the same for a file in memory.
//! - [`write()`]: JSON as block-style YAML that any YAML 1.1 or 1.2 reader reads back the same.
//! - [`scalar_spans`], [`within_one_scalar`]: where the scalars of a text are.
//! - [`check`], [`coerce`]: the typing alone, on JSON.
//!
//! Plain scalars: `y n yes no on off true false` (three spellings each) are booleans; `012`, `0o12`, `0x10`,
//! `0b1`, `1_000` integers; `1e3` a float, written as the integer 1000 where JSON would; no timestamps, no
//! base 60. Of duplicate keys the last wins, in the place of the first; [`Document::duplicate`] and
//! [`duplicate_key`] name the first of them. `<<` merges at its position. Keys that are not strings become
//! strings.
//!
//! Bounds: `MAX_BYTES` of text a document, `MAX_NODES` nodes with aliases expanded, `MAX_DEPTH` levels.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "JSON is a map, a list, or something else; the parser's events are open-ended"
)]

mod block;
mod documents;
mod emit;
mod parts;
mod read;
mod scalar;
mod serialize;
mod typing;
mod write;

#[cfg(test)]
mod tests;

use std::ops::Range;

pub use documents::{Document, read_documents};
pub use parts::{Part, PartError, Parts};
pub use read::{duplicate_key, read, read_at_most, scalar_spans, within_one_scalar};
pub use typing::{TypeError, check, coerce};
pub(crate) use typing::{UnknownField, similar};
pub use write::write;

use serde_json::Value;

use crate::schema;

/// The largest text that is read.
pub(crate) const MAX_BYTES: usize = crate::files::MAX_BYTES;
/// The most nodes a document may have once its aliases are expanded, unless the caller sets another limit.
pub(crate) const MAX_NODES: usize = 500_000;
/// The deepest nesting of maps and lists.
pub(crate) const MAX_DEPTH: usize = 100;

/// Reads a template's output as a strategic merge patch for a pod (`metadata`, `spec`), and where its scalars
/// are, as [`scalar_spans`] gives them, in one pass.
///
/// Strictly typed, as Go would decode the result: a number where a pod has a string is an error. Fields that
/// pods do not have are dropped, and returned, as is the first duplicate key; patch directives stay.
///
/// # Errors
/// Bad YAML, with line and column; a value of the wrong type, with its path.
pub(crate) fn read_overlay(text: &str) -> Result<Overlay, YamlError> {
    let read::Raw { mut value, spans, duplicate } = read::read_raw(text)?;
    read::integers(&mut value);
    let mut unknown = Vec::new();
    typing::check_dropping(&mut value, &schema::POD, &mut unknown)
        .map_err(|error| YamlError::whole(Problem::Type(error)))?;
    Ok(Overlay { value, spans, unknown, duplicate })
}

/// A template's output as it was read.
#[derive(Debug)]
pub(crate) struct Overlay {
    /// The patch.
    pub value: Value,
    /// Where its scalars are in the text.
    pub spans: Vec<Range<usize>>,
    /// The fields that the API does not have.
    pub unknown: Vec<UnknownField>,
    /// The first key that its map has already.
    pub duplicate: Option<YamlError>,
}

/// Text that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", self.place())]
pub struct YamlError {
    /// The line, from 1; 0 when the problem has no single place.
    pub line: usize,
    /// The column, from 1; 0 when the problem has no single place.
    pub column: usize,
    /// The problem.
    pub problem: Problem,
}

/// The error of a YAML text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
#[non_exhaustive]
pub enum Problem {
    /// A tag whose value is not of its kind, or a kind that JSON lacks.
    #[error("cannot decode {value:?} as {tag}")]
    BadTag { tag: String, value: String },
    /// A key that the map has already.
    #[error("duplicate key {0:?}: only the last value is used; remove or rename the others")]
    DuplicateKey(String),
    /// A document that is longer than `MAX_BYTES`.
    #[error("the document that begins in line {line} is larger than {} MiB, the most that is read of one document: split it, or its List", MAX_BYTES >> 20)]
    DocumentTooLong { line: usize },
    /// A map, list or null as a key.
    #[error("a key must be a string, number or bool")]
    Key,
    /// `<<` with something else than maps.
    #[error("map merge (<<) requires a map or a list of maps as its value")]
    Merge,
    /// More than one document where one is expected.
    #[error("expected a single document, found a second one")]
    ManyDocuments,
    /// Not UTF-8.
    #[error("the text is not valid UTF-8")]
    NotUtf8,
    /// `.inf` or `.nan`, which JSON does not have.
    #[error("{0} is not a number in JSON; quote it if it is a string")]
    NotFinite(String),
    /// The parser's own complaint.
    #[error("{0}")]
    Syntax(String),
    /// Deeper than `MAX_DEPTH`.
    #[error("nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Longer than `MAX_BYTES`.
    #[error("{0} bytes are too many; at most {MAX_BYTES} are read")]
    TooLong(usize),
    /// More than so many.
    #[error("more than {0} values with aliases expanded; is this a YAML bomb?")]
    TooManyNodes(usize),
    /// A value of the wrong type.
    #[error("{0}")]
    Type(TypeError),
}

impl YamlError {
    /// A problem without a single place.
    pub(super) const fn whole(problem: Problem) -> Self {
        Self { line: 0, column: 0, problem }
    }

    fn place(&self) -> String {
        match self {
            Self { line: 0, problem: Problem::Type(_), .. } => String::new(),
            Self { line: 0, .. } => "yaml: ".to_owned(),
            Self { line, column, .. } => format!("yaml: line {line}, column {column}: "),
        }
    }
}
