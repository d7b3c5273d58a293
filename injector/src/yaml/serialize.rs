//! Writing YAML by the serializer alone.

use serde::{Serialize, Serializer};
use serde_json::Value;
use serde_saphyr::{DoubleQuoted, SingleQuoted};

use super::scalar;

/// As `write()`, for every value.
pub(super) fn serialize(value: &Value) -> String {
    // Long texts stay on their line.
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    // Maps with string keys, finite numbers: serializing them does not fail.
    serde_saphyr::to_string_with_options(&Styled(value), options).unwrap_or_default()
}

/// A value in which integral floats are integers, and texts of JSON are in single quotes, so that theirs need
/// no escape. Lines of which the first begins with a tab are in double quotes: the reader of kubectl takes
/// the tab for the indentation of a block.
struct Styled<'a>(&'a Value);

impl Serialize for Styled<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let is_json =
            |text: &str| text.starts_with(['{', '[']) && text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        match self.0 {
            Value::Object(fields) => {
                serializer.collect_map(fields.iter().map(|(key, value)| (key, Styled(value))))
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(Styled)),
            Value::String(text) if is_json(text) => SingleQuoted(text).serialize(serializer),
            Value::String(text) if text.contains('\n') && text.trim_start_matches('\n').starts_with('\t') => {
                DoubleQuoted(text).serialize(serializer)
            }
            Value::Number(number) if number.is_f64() => {
                let integer = number.as_f64().and_then(scalar::integral);
                integer.as_ref().unwrap_or(number).serialize(serializer)
            }
            other => other.serialize(serializer),
        }
    }
}
