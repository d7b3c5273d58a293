#![doc = include_str!("../README.md")]

/// Go's `time.ParseDuration`, in nanoseconds: an optional sign, then decimal numbers, each with an optional
/// fraction and a unit (`ns`, `us`, `µs`, `ms`, `s`, `m`, `h`). `0` needs no unit.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
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
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit, after) =
            after.split_at(after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len()));
        total = total.checked_add(scaled(whole, fraction, worth(unit)?)?)?;
        rest = after;
    }
    match (negative, i64::try_from(total)) {
        (false, Ok(total)) => Some(total),
        (true, Ok(total)) => Some(-total),
        // Go takes the lowest number of all too.
        (true, Err(_)) if total == i64::MIN.unsigned_abs() => Some(i64::MIN),
        (_, Err(_)) => None,
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `whole.fraction` units, rounded as Go rounds them.
fn scaled(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut part: u64 = 0;
    let mut scale = 1.0;
    // 18 digits always fit, sometimes 19; the others weigh less than a nanosecond of an hour.
    for digit in fraction.bytes().take(19) {
        let longer = part * 10 + u64::from(digit - b'0');
        if longer > 1 << 63 {
            break;
        }
        part = longer;
        scale *= 10.0;
    }
    let part = part as f64 * (unit as f64 / scale);
    whole.checked_mul(unit)?.checked_add(part as u64)
}

fn worth(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        // The micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// Go's `Duration.String` of so many nanoseconds: `1h2m3.5s`, `1.5ms`, `0s`.
#[must_use]
pub fn format(nanoseconds: i64) -> String {
    const SECOND: u64 = 1_000_000_000;
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let total = nanoseconds.unsigned_abs();
    match total {
        0 => "0s".into(),
        1..1_000 => format!("{sign}{total}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(total, 1_000, 3)),
        1_000_000..SECOND => format!("{sign}{}ms", decimal(total, 1_000_000, 6)),
        _ => {
            let seconds = decimal(total % (60 * SECOND), SECOND, 9);
            match (total / (3_600 * SECOND), total / (60 * SECOND) % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// `value` in `unit`s of 10^`digits`, without trailing zeros.
fn decimal(value: u64, unit: u64, digits: usize) -> String {
    let text = format!("{}.{:0digits$}", value / unit, value % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Protobuf's JSON of so many nanoseconds: seconds with 0, 3, 6 or 9 decimals, such as `90s` or `7.500s`.
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
    fn durations_as_go_parses_them() {
        const SECOND: i64 = 1_000_000_000;
        for (text, expected) in [
            ("0", 0),
            ("+0", 0),
            ("-0", 0),
            ("0s", 0),
            ("5s", 5 * SECOND),
            ("-5s", -5 * SECOND),
            ("+5s", 5 * SECOND),
            ("5.0s", 5 * SECOND),
            ("5.6s", 5_600_000_000),
            ("5.s", 5 * SECOND),
            (".5s", SECOND / 2),
            ("1.004s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("10ns", 10),
            ("11us", 11_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("13ms", 13_000_000),
            ("15m", 15 * 60 * SECOND),
            ("16h", 16 * 3600 * SECOND),
            ("3h30m", (3 * 60 + 30) * 60 * SECOND),
            ("10.5s4m", 4 * 60 * SECOND + 10_500_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("39h9m14.425s", (39 * 3600 + 9 * 60 + 14) * SECOND + 425_000_000),
            ("0.3333333333333333333h", 20 * 60 * SECOND),
            ("0.100000000000000000000h", 6 * 60 * SECOND),
            ("9223372036854775807ns", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
        for text in [
            "",
            "3",
            "-",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            "1d",
            "5 s",
            " 5s",
            "5S",
            "1e3s",
            "0x5s",
            "--5s",
            "\u{85}",
            "9223372036854775808ns",
            "-9223372036854775809ns",
            "3000000h",
            "9223372036854775.808us",
            "1s-2s",
            "5sm",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
    #[test]
    fn seconds_have_the_decimals_of_protobuf() {
        for (given, written) in [
            ("45s", "45s"),
            ("1m30s", "90s"),
            ("7.5s", "7.500s"),
            ("250us", "0.000250s"),
            ("1ns", "0.000000001s"),
            ("-2s", "-2s"),
            ("+5s", "5s"),
            ("0", "0s"),
        ] {
            assert_eq!(parse(given).map(seconds).as_deref(), Some(written), "{given}");
        }
    }

    #[test]
    fn formatted_durations_parse_to_the_same_value() {
        for (nanoseconds, text) in [
            (0, "0s"),
            (1, "1ns"),
            (-1_500, "-1.5µs"),
            (2_000_000, "2ms"),
            (1_000_000_000, "1s"),
            (67_500_000_000, "1m7.5s"),
            (3_600_000_000_000, "1h0m0s"),
        ] {
            assert_eq!(format(nanoseconds), text);
            assert_eq!(parse(text), Some(nanoseconds));
        }
        for nanoseconds in [i64::MIN, i64::MAX, 39 * 3_600_000_000_000 + 1] {
            assert_eq!(parse(&format(nanoseconds)), Some(nanoseconds));
        }
    }
}
