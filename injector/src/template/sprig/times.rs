//! Durations.

use super::{ANY, arg};
use crate::template::funcs::Functions;
use crate::template::value::{IntType, Value};

const SECOND: i64 = 1_000_000_000;

pub(super) fn register(f: &mut Functions) {
    f.add("duration", &[ANY], None, |_, args| {
        let seconds = match arg(args, 0) {
            Value::Str(s) => s.as_str().parse().unwrap_or_default(),
            Value::Int(n, IntType::Int64) => *n,
            _ => 0,
        };
        Ok(Value::string(go_duration(seconds.saturating_mul(SECOND))))
    });
    f.add("durationRound", &[ANY], None, |_, args| {
        let nanos = match arg(args, 0) {
            Value::Str(s) => parse(s.as_str()).unwrap_or_default(),
            Value::Int(n, IntType::Int64) => *n,
            _ => 0,
        };
        Ok(Value::string(rounded(nanos.unsigned_abs())))
    });
}

/// Go's `Duration.String`: `1h2m3.5s`, `1.5ms`.
pub(in crate::template) fn go_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    let second = SECOND.unsigned_abs();
    if total == 0 {
        return "0s".into();
    }
    let fraction = |value: u64, unit: u64, digits: usize| {
        let rest = format!("{:0digits$}", value % unit);
        let rest = rest.trim_end_matches('0');
        let whole = value / unit;
        if rest.is_empty() { whole.to_string() } else { format!("{whole}.{rest}") }
    };
    if total < second {
        return match total {
            0..1_000 => format!("{sign}{total}ns"),
            1_000..1_000_000 => format!("{sign}{}µs", fraction(total, 1_000, 3)),
            _ => format!("{sign}{}ms", fraction(total, 1_000_000, 6)),
        };
    }
    let seconds = fraction(total % (60 * second), second, 9);
    let (hours, minutes) = (total / (3_600 * second), total / (60 * second) % 60);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Go's `ParseDuration`.
fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total = 0_i64;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, after) = rest.split_at(end);
        let length = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(length);
        let unit = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3_600 * SECOND,
            _ => return None,
        };
        total = total.checked_add(scaled(number, unit)?)?;
        rest = after;
    }
    Some(if negative { -total } else { total })
}

fn scaled(number: &str, unit: i64) -> Option<i64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut result = if whole.is_empty() { 0 } else { whole.parse::<i64>().ok()?.checked_mul(unit)? };
    let mut part = unit;
    for digit in fraction.chars() {
        part /= 10;
        result = result.checked_add(i64::from(digit.to_digit(10)?) * part)?;
    }
    Some(result)
}

/// The largest unit that fits more than once.
fn rounded(nanos: u64) -> String {
    const HOUR: u64 = 3_600_000_000_000;
    let units = [
        (HOUR * 24 * 365, "y"),
        (HOUR * 24 * 30, "mo"),
        (HOUR * 24, "d"),
        (HOUR, "h"),
        (HOUR / 60, "m"),
        (HOUR / 3_600, "s"),
    ];
    let found = units.iter().find(|(unit, _)| nanos > *unit);
    found.map_or_else(|| "0s".to_owned(), |(unit, name)| format!("{}{name}", nanos / unit))
}
