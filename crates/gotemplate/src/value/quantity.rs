//! Kubernetes' `resource.Quantity` with its methods as fields.

use crate::value::Value;
use crate::value::text::Str;

/// Go's name of the type.
pub(crate) const QUANTITY: &str = "resource.Quantity";

const NANO: i128 = 1_000_000_000;
/// Suffixes and what they multiply by, in nanos.
const DECIMAL: [(&str, i32); 10] =
    [("n", 0), ("u", 3), ("m", 6), ("", 9), ("k", 12), ("M", 15), ("G", 18), ("T", 21), ("P", 24), ("E", 27)];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// A quantity of this text.
pub(crate) fn of<'a>(text: Str<'a>) -> Value<'a> {
    let nanos = nanos(text.as_str().trim()).unwrap_or_default();
    let up = |unit: i128| {
        let whole = nanos / unit + (nanos % unit).signum();
        Value::int64(i64::try_from(whole).unwrap_or(if whole < 0 { i64::MIN } else { i64::MAX }))
    };
    let fields = vec![
        ("IsZero", Value::Bool(nanos == 0)),
        ("Sign", Value::int(i64::try_from(nanos.signum()).unwrap_or_default())),
        ("Value", up(NANO)),
        ("MilliValue", up(NANO / 1000)),
        ("AsApproximateFloat64", Value::Float(approximate(nanos))),
    ];
    Value::printed_record(QUANTITY, fields, text)
}

#[allow(clippy::cast_precision_loss, reason = "an approximation by its name")]
fn approximate(nanos: i128) -> f64 {
    nanos as f64 / NANO as f64
}

/// The amount in nanos, rounded away from zero; quantities have no smaller part.
fn nanos(text: &str) -> Option<i128> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (number, suffix) =
        rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let (factor, power) = match BINARY.iter().zip((10..).step_by(10)).find(|(known, _)| **known == suffix) {
        Some((_, power)) => (1_i128 << power, 9),
        None => match DECIMAL.iter().find(|(known, _)| *known == suffix) {
            Some((_, power)) => (1, *power),
            None => (1, suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?.checked_add(9)?),
        },
    };
    let power = power.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let scale = 10_i128.checked_pow(power.unsigned_abs());
    let scaled = digits.checked_mul(factor);
    let amount = match (scaled, scale) {
        (Some(scaled), Some(scale)) if power >= 0 => scaled.checked_mul(scale).unwrap_or(i128::MAX),
        (Some(scaled), Some(scale)) => scaled / scale + (scaled % scale).signum(),
        // Beyond the range of i128: the largest amount, or the smallest.
        _ if digits == 0 => 0,
        _ if power >= 0 => i128::MAX,
        _ => 1,
    };
    Some(sign * amount)
}
