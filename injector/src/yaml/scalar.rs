//! What a plain scalar means in YAML 1.1, as Go's yaml.v2 reads it.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Number, Value};

/// Base64 as Go's `StdEncoding` reads it: padded, the bits behind the last byte do not count.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// The text of a `!!binary` value. What is not UTF-8 is replaced byte by byte, as Go's encoding/json does.
pub(super) fn binary(text: &str) -> Option<String> {
    let bytes = BASE64.decode(text.replace(['\r', '\n'], "")).ok()?;
    let mut decoded = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        decoded.push_str(chunk.valid());
        decoded.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Some(decoded)
}

/// The meaning of a plain scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Int(i64),
    /// Beyond `i64`.
    Uint(u64),
    Float(f64),
    Str,
}

/// Reads a plain scalar.
pub(super) fn resolve(text: &str) -> Scalar {
    // Few scalars can be anything but a string.
    match text.as_bytes().first() {
        None | Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'~') => {}
        Some(b'F' | b'N' | b'O' | b'T' | b'Y' | b'f' | b'n' | b'o' | b't' | b'y') if text.len() <= 5 => {}
        Some(_) => return Scalar::Str,
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Scalar::Bool(true);
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        _ => {}
    }
    match text.as_bytes().first() {
        Some(b'0'..=b'9' | b'+' | b'-') => {
            if text.contains('_') {
                number(&text.replace('_', ""))
            } else {
                number(text)
            }
        }
        Some(b'.') => float(text),
        _ => Scalar::Str,
    }
}

fn number(text: &str) -> Scalar {
    integer(text).unwrap_or_else(|| float(text))
}

/// An integer with Go's prefixes: `0x`, `0o`, `0b`, and `0` for octal.
fn integer(text: &str) -> Option<Scalar> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, digits.get(2..)?),
        [b'0', b'o' | b'O', ..] => (8, digits.get(2..)?),
        [b'0', b'b' | b'B', ..] => (2, digits.get(2..)?),
        [b'0', _, ..] => (8, digits.get(1..)?),
        _ => (10, digits),
    };
    if !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match (negative, i64::try_from(magnitude)) {
        (false, Ok(value)) => Some(Scalar::Int(value)),
        (false, Err(_)) => Some(Scalar::Uint(magnitude)),
        (true, Ok(value)) => Some(Scalar::Int(-value)),
        (true, Err(_)) if magnitude == i64::MIN.unsigned_abs() => Some(Scalar::Int(i64::MIN)),
        (true, Err(_)) => None,
    }
}

/// A float of the form `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`; anything else is a string.
fn float(text: &str) -> Scalar {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let check_shape = digits(whole)
        && digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent));
    match text.parse::<f64>() {
        Ok(value) if check_shape && value.is_finite() => Scalar::Float(value),
        _ => Scalar::Str,
    }
}

/// The integer that JSON would show for `value`, so that `1e3` is 1000 and never `1000.0`.
pub(super) fn integral(value: f64) -> Option<Number> {
    const TWO_63: f64 = 9_223_372_036_854_775_808.0;
    if value.fract() != 0.0 {
        return None;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
    if (-TWO_63..TWO_63).contains(&value) {
        Some(Number::from(value as i64))
    } else if (TWO_63..2.0 * TWO_63).contains(&value) {
        Some(Number::from(value as u64))
    } else {
        None
    }
}

/// The value of a plain scalar; `None` for numbers that JSON does not have.
pub(super) fn plain(text: &str) -> Option<Value> {
    Some(match resolve(text) {
        Scalar::Null => Value::Null,
        Scalar::Bool(value) => Value::Bool(value),
        Scalar::Int(value) => Value::from(value),
        Scalar::Uint(value) => Value::from(value),
        Scalar::Float(value) => Value::Number(Number::from_f64(value)?),
        Scalar::Str => Value::String(text.to_owned()),
    })
}

/// A key as JSON needs it.
pub(super) fn key_text(key: Value) -> Option<String> {
    match key {
        Value::String(text) => Some(text),
        other => scalar_text(&other),
    }
}

/// How Go spells a number or bool where a string is wanted.
pub(super) fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) if number.is_f64() => number.as_f64().map(gotemplate::float_text),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
