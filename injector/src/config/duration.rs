//! Durations, as Go reads them and as Istio's API writes them.

/// Nanoseconds of `1m30s`, `7.5s`, `250ms`; `None` if it is no duration.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 7] = [
        ("ns", 1),
        ("us", 1_000),
        ("µs", 1_000),
        ("ms", 1_000_000),
        ("h", 3_600_000_000_000),
        ("m", 60_000_000_000),
        ("s", 1_000_000_000),
    ];
    let (sign, mut rest) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    if rest == "0" {
        return Some(0);
    }
    let mut total: i64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
        let (number, after) = rest.split_at(end);
        let (unit, worth) = UNITS.iter().find(|(unit, _)| after.starts_with(unit))?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        total = total.checked_add(whole.checked_mul(*worth)?)?;
        let mut scale = *worth;
        for digit in fraction.bytes() {
            scale /= 10;
            total = total.checked_add(i64::from(digit - b'0').checked_mul(scale)?)?;
        }
        rest = after.strip_prefix(unit)?;
    }
    Some(sign * total)
}

/// `90s`, `7.500s`: with 0, 3, 6 or 9 decimals.
#[must_use]
pub fn seconds(nanoseconds: i64) -> String {
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let all = nanoseconds.unsigned_abs();
    let (whole, part) = (all / 1_000_000_000, all % 1_000_000_000);
    match part {
        0 => format!("{sign}{whole}s"),
        _ if part.is_multiple_of(1_000_000) => format!("{sign}{whole}.{:03}s", part / 1_000_000),
        _ if part.is_multiple_of(1_000) => format!("{sign}{whole}.{:06}s", part / 1_000),
        _ => format!("{sign}{whole}.{part:09}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_and_written() {
        for (given, written) in [
            ("45s", "45s"),
            ("1m", "60s"),
            ("1m30s", "90s"),
            ("7.5s", "7.500s"),
            ("250us", "0.000250s"),
            ("1ns", "0.000000001s"),
            ("-2s", "-2s"),
            ("0", "0s"),
            ("1h", "3600s"),
        ] {
            assert_eq!(parse(given).map(seconds).as_deref(), Some(written), "{given}");
        }
        for bad in ["", "5", "s", "1.2.3s", "1d", "x", ".s", "99999999999h"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
