//! Writing YAML as `kubectl` does.

use serde_json::Value;

use super::emit::emit;
use super::serialize::serialize;

/// Writes `value` as block-style YAML, ending with a line break.
///
/// Keys keep their order; lists start at the column of their key; texts of several lines are `|` blocks;
/// strings that some reader could take for something else are quoted, JSON with single quotes; integral
/// floats are integers.
#[must_use]
pub fn write(value: &Value) -> String {
    emit(value).unwrap_or_else(|| serialize(value))
}
