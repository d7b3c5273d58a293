//! Where the scalars of a text are.

use std::ops::Range;

use granit_parser::Event;

use super::read::parser;
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
        return Err(YamlError {
            line: 0,
            column: 0,
            problem: Problem::TooLong(text.len()),
        });
    }
    let mut spans = Vec::new();
    for next in parser(text) {
        let (event, span) = next?;
        if let (Event::Scalar(..), Some(range)) = (event, span.byte_range())
            && !range.is_empty()
        {
            spans.push(range);
        }
    }
    Ok(spans)
}

/// Whether `range` lies within exactly one of `spans`, which are those of [`scalar_spans`].
#[must_use]
pub fn within_one_scalar(spans: &[Range<usize>], range: &Range<usize>) -> bool {
    let after = spans.partition_point(|span| span.start <= range.start);
    after
        .checked_sub(1)
        .and_then(|at| spans.get(at))
        .is_some_and(|span| range.end <= span.end)
}
