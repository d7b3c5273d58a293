//! Go's number, character and string literals.

use crate::syntax::ast::Number;

/// The text of a quoted or back-quoted literal.
pub(crate) fn unquote(literal: &str) -> Option<String> {
    if let Some(raw) = literal.strip_prefix('`') {
        return Some(raw.strip_suffix('`')?.replace('\r', ""));
    }
    let body = literal.strip_prefix('"')?.strip_suffix('"')?;
    let mut bytes = Vec::with_capacity(body.len());
    let mut rest = body;
    while !rest.is_empty() {
        rest = character(rest, '"', &mut bytes)?;
    }
    Some(String::from_utf8(bytes).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()))
}

/// Appends the first character of `text`, escape sequences resolved; returns what follows.
fn character<'t>(text: &'t str, quote: char, bytes: &mut Vec<u8>) -> Option<&'t str> {
    let mut chars = text.chars();
    let c = chars.next()?;
    if c == quote {
        return None;
    }
    if c != '\\' {
        push(bytes, c);
        return Some(chars.as_str());
    }
    let escape = chars.next()?;
    let rest = chars.as_str();
    match escape {
        'a' => bytes.push(7),
        'b' => bytes.push(8),
        'f' => bytes.push(12),
        'n' => bytes.push(b'\n'),
        'r' => bytes.push(b'\r'),
        't' => bytes.push(b'\t'),
        'v' => bytes.push(11),
        '\\' => bytes.push(b'\\'),
        '\'' | '"' if escape == quote => push(bytes, escape),
        'x' => return byte(rest, 2, 16, bytes),
        'u' => return scalar(rest, 4, bytes),
        'U' => return scalar(rest, 8, bytes),
        '0'..='7' => return byte(text.get(1..)?, 3, 8, bytes),
        _ => return None,
    }
    Some(rest)
}

fn push(bytes: &mut Vec<u8>, c: char) {
    bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

fn byte<'t>(rest: &'t str, digits: usize, radix: u32, bytes: &mut Vec<u8>) -> Option<&'t str> {
    bytes.push(u8::try_from(u32::from_str_radix(plain(rest.get(..digits)?)?, radix).ok()?).ok()?);
    rest.get(digits..)
}

fn scalar<'t>(rest: &'t str, digits: usize, bytes: &mut Vec<u8>) -> Option<&'t str> {
    push(bytes, char::from_u32(u32::from_str_radix(plain(rest.get(..digits)?)?, 16).ok()?)?);
    rest.get(digits..)
}

/// Rust's integer parsers allow a sign, which escapes do not.
fn plain(digits: &str) -> Option<&str> {
    digits.chars().all(|c| c.is_ascii_hexdigit()).then_some(digits)
}

/// A number or character constant. Complex numbers are not supported: nothing in a template uses them.
pub(crate) fn number(text: &str) -> Option<Number> {
    let boxed = text.into();
    if let Some(body) = text.strip_prefix('\'') {
        let mut bytes = Vec::new();
        let rest = character(body, '\'', &mut bytes)?;
        let c = std::str::from_utf8(&bytes).ok()?.chars().next()?;
        let code = i64::from(u32::from(c));
        return (rest == "'").then_some(Number {
            text: boxed,
            int: Some(code),
            float: Some(f64::from(u32::from(c))),
            is_float: false,
        });
    }
    if let Some(int) = integer(text) {
        return Some(Number { text: boxed, int: Some(int), float: Some(to_float(int)), is_float: false });
    }
    let float = float(text)?;
    Some(Number {
        text: boxed,
        int: exact(float),
        float: Some(float),
        is_float: text.contains(['.', 'e', 'E', 'p', 'P']),
    })
}

#[allow(clippy::cast_precision_loss, reason = "Go rounds just so")]
const fn to_float(int: i64) -> f64 {
    int as f64
}

/// The integer a float is equal to.
#[allow(clippy::cast_possible_truncation, reason = "compared afterwards")]
fn exact(float: f64) -> Option<i64> {
    let int = float as i64;
    (to_float(int) == float && float.abs() < 9.2e18).then_some(int)
}

/// Go's integer literals: decimal, `0x`, `0o`, `0b`, a leading zero for octal, `_` between digits.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, body) = match lower.get(..2) {
        Some("0x") => (16, lower.get(2..)?),
        Some("0o") => (8, lower.get(2..)?),
        Some("0b") => (2, lower.get(2..)?),
        _ if lower.len() > 1 && lower.starts_with('0') => (8, lower.get(1..)?),
        _ => (10, lower.as_str()),
    };
    if body.ends_with('_') || body.contains("__") || (radix == 10 && body.starts_with('_')) {
        return None;
    }
    let body = body.replace('_', "");
    if !body.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    i64::from_str_radix(&format!("{}{body}", if negative { "-" } else { "" }), radix).ok()
}

fn float(text: &str) -> Option<f64> {
    let body = text.trim_start_matches(['+', '-']);
    let (hex, digits) =
        body.strip_prefix("0x").or_else(|| body.strip_prefix("0X")).map_or((false, body), |d| (true, d));
    if text.len() - body.len() > 1 || text.contains("__") || text.ends_with('_') || digits.starts_with('_') {
        return None;
    }
    let digits = digits.replace('_', "");
    let value = if hex {
        hex_float(&digits)?
    } else if digits.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-')) {
        digits.parse().ok()?
    } else {
        return None;
    };
    let value = if text.starts_with('-') { -value } else { value };
    f64::is_finite(value).then_some(value)
}

/// `1.8p3`: hexadecimal mantissa, binary exponent.
fn hex_float(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut value = 0.0;
    for c in whole.chars().chain(fraction.chars()) {
        value = value * 16.0 + f64::from(c.to_digit(16)?);
    }
    let scale = exponent.parse::<i32>().ok()? - 4 * i32::try_from(fraction.len()).ok()?;
    Some(value * f64::from(2).powi(scale))
}
