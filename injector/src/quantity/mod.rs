//! Kubernetes' `resource.Quantity`: reading one, and writing it in its canonical form.
//!
//! ```
//! # use sidecar_injector::quantity;
//! assert_eq!(quantity::canonical("1024Mi")?, "1Gi");
//! assert_eq!(quantity::canonical("0.5")?, "500m");
//! # Ok::<(), quantity::QuantityError>(())
//! ```
//!
//! [`canonical_quantities`] does it for every quantity of a pod. The suffix's family (`k M G`, `Ki Mi Gi`,
//! `e3`) is kept; the largest suffix without a fraction is taken; what has that scale already stays as it is
//! spelt (`1.001k`, `+5`); less than a nano is rounded up to one; binary quantities below 1Ki or with a
//! fraction become decimal.

#![allow(clippy::wildcard_enum_match_arm, reason = "JSON is a map, a list, or something else")]

use gotemplate::Kind;
use serde_json::Value;

use crate::path::Path;
use crate::schema;

/// Text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path}{}{given:?} is not a quantity; expected a number, if need be with one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an \
     exponent like e3",
    if path.is_empty() { "" } else { ": " }
)]
pub struct QuantityError {
    /// Where, like `spec.containers[0].resources.limits.cpu`; empty when only a text was given.
    pub path: String,
    /// What was given.
    pub given: String,
}

/// Rewrites every quantity of a pod (`resources`, `overhead`, `sizeLimit`, divisors) in canonical form.
///
/// # Errors
/// The first value that is not a quantity, with its path.
pub fn canonical_quantities(pod: &mut Value) -> Result<(), QuantityError> {
    canonicalize(pod).map(|_| ())
}

/// A quantity that was not in canonical form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rewritten {
    /// The JSON pointer of the quantity.
    pub pointer: String,
    /// What it was.
    pub given: Value,
}

/// A quantity as text, which may be a number.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// [`canonical_quantities`], which also returns what it has rewritten.
pub(crate) fn canonicalize(pod: &mut Value) -> Result<Vec<Rewritten>, QuantityError> {
    let mut rewritten = Vec::new();
    schema::for_each_scalar(pod, Kind::Struct(&schema::POD), &Path::root(), &mut |value, kind, path| {
        if !matches!(kind, Kind::Named(schema::QUANTITY_NAME, _)) || value.is_null() {
            return Ok(());
        }
        let error = |e| QuantityError { path: path.to_string(), ..e };
        let written = match value.as_str() {
            Some(given) => canonical(given).map_err(error)?,
            None => canonical(&value.to_string()).map_err(error)?,
        };
        if value.as_str() != Some(written.as_str()) {
            let given = std::mem::replace(value, Value::String(written));
            rewritten.push(Rewritten { pointer: path.pointer(), given });
        }
        Ok(())
    })?;
    Ok(rewritten)
}

/// Decimal suffixes, from 10^-9 on, each a thousand times the one before.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
/// Binary suffixes, from 2^10 on, each 1024 times the one before.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Which suffixes a quantity is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// `1Ki`; the power of two.
    Binary(u32),
    /// `1e3`; the power of ten.
    Exponent(i32),
    /// `1k`; the power of ten.
    Decimal(i32),
}

/// The canonical form of the quantity `text`.
///
/// # Errors
/// When `text` is not a quantity.
pub fn canonical(text: &str) -> Result<String, QuantityError> {
    let error = || QuantityError { path: String::new(), given: text.to_owned() };
    let trimmed = text.trim();
    let (negative, whole, fraction, family) = parts(trimmed).ok_or_else(error)?;
    if stays_as_given(whole, fraction, family) {
        return Ok(trimmed.to_owned());
    }
    let written = match family {
        Family::Binary(power) => binary(whole, fraction, power),
        Family::Exponent(power) | Family::Decimal(power) => decimal(whole, fraction, power, family),
    };
    if written == "0" || !negative { Ok(written) } else { Ok(format!("-{written}")) }
}

/// The sign, the digits before and behind the point, and the suffix.
fn parts(trimmed: &str) -> Option<(bool, &str, &str, Family)> {
    let (negative, rest) = match trimmed.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, trimmed.strip_prefix('+').unwrap_or(trimmed)),
    };
    let suffix_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at_checked(suffix_at)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let empty = whole.is_empty() && fraction.is_empty();
    (!empty && !fraction.contains('.')).then_some((negative, whole, fraction, family(suffix)?))
}

/// The amount of a quantity in billionths, rounded up and capped, for comparisons and sums; `None` if it is
/// not a quantity.
pub(crate) fn nanos(text: &str) -> Option<i128> {
    const MOST: i128 = i128::MAX >> 20;
    let (negative, whole, fraction, family) = parts(text.trim())?;
    let amount = match family {
        Family::Binary(power) => {
            let (units, nanos) = binary_amount(whole, fraction, power);
            i128::try_from(units * NANO + nanos).unwrap_or(MOST)
        }
        Family::Exponent(power) | Family::Decimal(power) => {
            let digits = format!("{whole}{fraction}");
            let digits = digits.trim_start_matches('0');
            let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(MOST) };
            let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
            let exponent = power.saturating_add(9).saturating_sub(places);
            let scale = 10_i128.checked_pow(exponent.unsigned_abs());
            match (exponent >= 0, scale) {
                (true, Some(scale)) => mantissa.saturating_mul(scale),
                (true, None) => {
                    if mantissa == 0 {
                        0
                    } else {
                        MOST
                    }
                }
                (false, Some(scale)) => mantissa / scale + i128::from(mantissa % scale != 0),
                (false, None) => i128::from(mantissa != 0),
            }
        }
    };
    let amount = amount.min(MOST);
    Some(if negative { -amount } else { amount })
}

/// The quantity of so many billionths, in canonical form: binary where that is a whole number of mebibytes.
pub(crate) fn of_nanos(amount: i128) -> String {
    let mebi = 1_i128 << 20;
    let nano = 1_000_000_000;
    let text = if amount != 0 && amount % (nano * mebi) == 0 {
        format!("{}Mi", amount / nano / mebi)
    } else {
        format!("{amount}n")
    };
    canonical(&text).unwrap_or(text)
}

/// Kubernetes remembers the text of a quantity whose digits and scale are those of the canonical form
/// already, and writes it back as it came: `1.001k`, `+5`, `1E3`.
fn stays_as_given(whole: &str, fraction: &str, family: Family) -> bool {
    let whole = whole.trim_start_matches('0');
    let digits = i32::try_from(whole.len() + fraction.len()).unwrap_or(i32::MAX);
    if whole.is_empty() {
        return false;
    }
    match family {
        Family::Decimal(power) | Family::Exponent(power) => {
            let scale = power.saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX));
            let zeros = match trailing_zeros(fraction) {
                zeros if zeros == fraction.len() => zeros + trailing_zeros(whole),
                zeros => zeros,
            };
            digits <= 18 && scale >= -9 && scale % 3 == 0 && zeros < 3
        }
        Family::Binary(power) => {
            let power = i32::try_from(power).unwrap_or(i32::MAX);
            let exact = digits <= 14 - power * 3 / 10;
            fraction.is_empty() && exact && whole.parse().is_ok_and(|n: u64| !n.is_multiple_of(1024))
        }
    }
}

fn trailing_zeros(digits: &str) -> usize {
    digits.len() - digits.trim_end_matches('0').len()
}

fn family(suffix: &str) -> Option<Family> {
    if let Some((power, _)) = (-9..).step_by(3).zip(DECIMAL).find(|(_, known)| *known == suffix) {
        return Some(Family::Decimal(power));
    }
    if let Some((power, _)) = (10..).step_by(10).zip(BINARY).find(|(_, known)| *known == suffix) {
        return Some(Family::Binary(power));
    }
    let power: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Beyond this no resource is meant, and sums below cannot overflow.
    (power.abs() <= 10_000).then_some(Family::Exponent(power))
}

/// Writes `whole.fraction × 10^power` with a decimal suffix or exponent.
fn decimal(whole: &str, fraction: &str, power: i32, family: Family) -> String {
    let mut digits = format!("{whole}{fraction}");
    let mut exponent = power.saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX));
    if exponent < -9 {
        let surplus = usize::try_from(-9 - exponent).unwrap_or(usize::MAX);
        digits = rounded_up(&digits, surplus);
        exponent = -9;
    }
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return "0".to_owned();
    }
    let mantissa = significant.trim_end_matches('0');
    exponent += i32::try_from(significant.len() - mantissa.len()).unwrap_or(0);
    let mut zeros = exponent.rem_euclid(3);
    if matches!(family, Family::Decimal(_) | Family::Binary(_)) {
        // There is no suffix beyond E.
        zeros = zeros.max(exponent - 18);
    }
    exponent -= zeros;
    let zeros = "0".repeat(usize::try_from(zeros).unwrap_or(0));
    match family {
        Family::Exponent(_) if exponent == 0 => format!("{mantissa}{zeros}"),
        Family::Exponent(_) => format!("{mantissa}{zeros}e{exponent}"),
        Family::Decimal(_) | Family::Binary(_) => {
            let mut suffixes = (-9..).step_by(3).zip(DECIMAL);
            let suffix = suffixes.find(|(power, _)| *power == exponent).map_or("", |(_, suffix)| suffix);
            format!("{mantissa}{zeros}{suffix}")
        }
    }
}

/// Drops the last `surplus` digits, rounding away from zero.
fn rounded_up(digits: &str, surplus: usize) -> String {
    let keep = digits.len().saturating_sub(surplus);
    let (kept, dropped) = digits.split_at_checked(keep).unwrap_or((digits, ""));
    if dropped.bytes().all(|digit| digit == b'0') {
        return kept.to_owned();
    }
    let mut bytes: Vec<u8> = kept.bytes().collect();
    for digit in bytes.iter_mut().rev() {
        if *digit == b'9' {
            *digit = b'0';
        } else {
            *digit += 1;
            return bytes.iter().map(|digit| char::from(*digit)).collect();
        }
    }
    std::iter::once('1').chain(bytes.iter().map(|digit| char::from(*digit))).collect()
}

/// The largest binary quantity: Kubernetes caps them here.
const MAX: u128 = i64::MAX as u128;
const NANO: u128 = 1_000_000_000;

/// Writes `whole.fraction × 2^power`.
fn binary(whole: &str, fraction: &str, power: u32) -> String {
    let (units, nanos) = binary_amount(whole, fraction, power);
    if nanos != 0 || units < 1024 {
        return decimal(&units.to_string(), &format!("{nanos:09}"), 0, Family::Binary(power));
    }
    let (mut amount, mut suffix) = (units, "");
    for larger in BINARY {
        if !amount.is_multiple_of(1024) {
            break;
        }
        (amount, suffix) = (amount / 1024, larger);
    }
    format!("{amount}{suffix}")
}

/// `whole.fraction × 2^power` as units and nanos, capped.
fn binary_amount(whole: &str, fraction: &str, power: u32) -> (u128, u128) {
    let significant = whole.trim_start_matches('0');
    let whole: u128 = if significant.is_empty() { 0 } else { significant.parse().unwrap_or(u128::MAX) };
    if whole > (MAX >> power) {
        return (MAX, 0);
    }
    // 18 digits of the fraction: 10^18 × 2^60 has room in 128 bits; what is beyond only rounds up.
    let fraction = fraction.trim_end_matches('0');
    let digits: String =
        if fraction.len() > 18 { rounded_up(fraction, fraction.len() - 18) } else { fraction.to_owned() };
    let places = u32::try_from(fraction.len().min(18)).unwrap_or(18);
    let part: u128 = digits.parse().unwrap_or(0);
    let scaled = part << power;
    let nanos = match places.checked_sub(9) {
        Some(more) => scaled.div_ceil(10_u128.pow(more)),
        None => scaled * 10_u128.pow(9 - places),
    };
    let total = (whole << power) + nanos / NANO;
    if total >= MAX { (MAX, 0) } else { (total, nanos % NANO) }
}

#[cfg(test)]
mod tests;
