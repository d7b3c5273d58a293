//! What Go's `encoding/json`, with which libcni reads configurations, accepts besides and refuses. It never
//! passes input beyond its limits to plugins.

use std::borrow::Cow;

use crate::error::shortened;

/// How deep objects and lists may be nested.
const DEEPEST: usize = 10_000;
/// Maximum length of a number in messages.
const SHOWN: usize = 40;

/// The text with U+FFFD for each half of a surrogate pair (`\\ud800`), as Go reads it. All other bytes stay
/// in their places.
#[must_use]
pub fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    const ESCAPE: usize = "\\ud800".len();
    let code = |at: usize| {
        let hex = json.get(at..at + ESCAPE)?.strip_prefix("\\u")?;
        u16::from_str_radix(hex, 16).ok()
    };
    let mut read = Cow::Borrowed(json);
    let mut from = 0;
    while let Some(at) = json.get(from..).and_then(|rest| rest.find('\\')).map(|offset| from + offset) {
        from = match (code(at), code(at + ESCAPE)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at + 2 * ESCAPE,
            (Some(0xd800..=0xdfff), _) => {
                read.to_mut().replace_range(at..at + ESCAPE, "\\ufffd");
                at + ESCAPE
            }
            (Some(_), _) => at + ESCAPE,
            // Of another character, which may be a backslash.
            (None, _) => {
                at + 1 + json.get(at + 1..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
            }
        }
    }
    read
}

/// Whether a key is that of a field of a struct: Go folds two letters besides those of ASCII.
#[must_use]
pub fn is_field(key: &str, field: &str) -> bool {
    let folded = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        _ => c.to_ascii_lowercase(),
    };
    key.chars().map(folded).eq(field.chars().map(folded))
}

/// Rejects JSON of correct syntax that libcni rejects.
///
/// # Errors
/// What exceeds a limit.
pub fn require(json: &str) -> Result<(), String> {
    let (mut rest, mut depth) = (json.as_bytes(), 0_usize);
    while let Some((byte, after)) = rest.split_first() {
        rest = match byte {
            b'"' => behind_string(after),
            b'{' | b'[' if depth == DEEPEST => {
                return Err(format!("objects and lists nested deeper than {DEEPEST} are not accepted"));
            }
            b'{' | b'[' => {
                depth += 1;
                after
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                after
            }
            b'-' | b'0'..=b'9' => behind_number(rest)?,
            _ => after,
        }
    }
    Ok(())
}

fn behind_string(text: &[u8]) -> &[u8] {
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => break,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
    bytes.as_slice()
}

/// Numbers become `float64`.
fn behind_number(text: &[u8]) -> Result<&[u8], String> {
    let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
    let length = text.iter().position(|byte| !is_part(byte)).unwrap_or(text.len());
    let (number, behind) = text.split_at(length);
    if serde_json::from_slice::<f64>(number).is_err() {
        let number = shortened(&String::from_utf8_lossy(number), SHOWN);
        return Err(format!("{number} is not accepted, expected a number of 64-bit floating point"));
    }
    Ok(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_64_bit_floating_point_are_refused() {
        for accepted in [
            "1.7976931348623157e308",
            "-1e-999",
            "0e999",
            "123456789012345678901234567890.10",
            "18446744073709551616",
            "[1,-2.5E+3]",
            r#""1e999""#,
            r#"{"1e999": "\\", "\"": 1}"#,
        ] {
            assert_eq!(require(accepted), Ok(()), "{accepted}");
        }
        let digits = "9".repeat(400);
        for refused in ["1e999", "-1e309", r#"{"a":[{"b":1E400}]}"#, r#"["\"",1e999]"#, digits.as_str()] {
            let problem = require(refused).unwrap_err();
            assert!(problem.contains("expected a number") && problem.len() < 120, "{problem}");
        }
    }

    #[test]
    fn nesting_is_limited_as_in_go() {
        let nested = |depth: usize| {
            format!("{}{}", "[{\"a\":".repeat(depth / 2), "1".to_owned() + &"}]".repeat(depth / 2))
        };
        assert_eq!(require(&nested(DEEPEST)), Ok(()));
        assert_eq!(require(&format!("[{0},{0}]", nested(DEEPEST - 2))), Ok(()), "one behind the other");
        assert!(require(&nested(DEEPEST + 2)).unwrap_err().contains("deeper than 10000"));
        assert_eq!(require(&format!("\"{}\"", "[".repeat(DEEPEST + 1))), Ok(()));
    }
}
