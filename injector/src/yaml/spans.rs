//! Where the scalars of a text are.

use std::ops::Range;

use super::read::{parser, scalar_span};
use super::{MAX_BYTES, Problem, YamlError};

/// The byte ranges of all scalars of `text`, keys included, in order; quotes and block headers belong to them, empty
/// scalars are left out.
///
/// Comments, anchors, tags, aliases and punctuation lie in no scalar.
///
/// # Errors
/// Bad YAML, with line and column.
pub fn scalar_spans(text: &str) -> Result<Vec<Range<usize>>, YamlError> {
    if text.len() > MAX_BYTES {
        return Err(YamlError { line: 0, column: 0, problem: Problem::TooLong(text.len()) });
    }
    let mut spans = Vec::new();
    for next in parser(text) {
        let (event, span) = next?;
        spans.extend(scalar_span(&event, &span));
    }
    Ok(spans)
}

/// Whether `range` lies within exactly one of `spans`, which are those of [`scalar_spans`]. An empty range always does:
/// nothing was printed there.
#[must_use]
pub fn within_one_scalar(spans: &[Range<usize>], range: &Range<usize>) -> bool {
    if range.is_empty() {
        return true;
    }
    let after = spans.partition_point(|span| span.start <= range.start);
    after.checked_sub(1).and_then(|at| spans.get(at)).is_some_and(|span| range.end <= span.end)
}
