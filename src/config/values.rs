//! Single values: text in, typed value or what would have been right out.

use std::path::PathBuf;
use std::time::Duration;

use crate::model::{Interface, InterfaceError, Mark, Port};

use super::error::Expected;
use super::run::LogFormat;

/// The mark of outbound packets that the proxy sends to itself; inbound packets need another one.
const OUTBOUND_MARK: u32 = 1338;

/// What Go's `strconv.ParseBool` accepts.
pub(super) fn boolean(text: &str) -> Result<bool, Expected> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(Expected::new(
            "true or false (also 1, t, T, TRUE, True, 0, f, F, FALSE, False)",
        )),
    }
}

/// A plain decimal number: digits only and no leading zero, which other programs read as octal.
pub(super) fn decimal(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    plain.then(|| text.parse().ok()).flatten()
}

pub(super) fn port(text: &str) -> Result<Port, Expected> {
    let expected = || Expected::new("a plain port number from 1 to 65535");
    text.parse().map_err(|_| {
        let is_range = text
            .split_once([':', '-'])
            .is_some_and(|(from, to)| decimal(from).is_some() && decimal(to).is_some());
        match text {
            "*" => expected()
                .hint("`*` means all ports with --istio-inbound-ports (-b) only, and stands alone there"),
            _ if is_range => expected().hint("ranges are not accepted: list the ports"),
            _ => flag_hint(expected(), text),
        }
    })
}

/// A user or group number; the highest one means "no id" to the kernel.
pub(super) fn id(text: &str) -> Result<u32, Expected> {
    match decimal(text).map(u32::try_from) {
        Some(Ok(id)) if id != u32::MAX => Ok(id),
        _ => Err(flag_hint(
            Expected::new("a plain number from 0 to 4294967294"),
            text,
        )),
    }
}

/// The TPROXY mark, also in hexadecimal.
pub(super) fn mark(text: &str) -> Result<Mark, Expected> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None => decimal(text),
    };
    let expected = Expected::new("a number from 1 to 4294967295 other than 1338, also as 0x...");
    match number.map(u32::try_from) {
        Some(Ok(OUTBOUND_MARK)) => Err(expected.hint("1338 marks the proxy's own outbound packets")),
        Some(Ok(0)) => Err(expected.hint("mark 0 is every unmarked packet")),
        Some(Ok(number)) => Ok(Mark(number)),
        Some(Err(_)) | None => Err(flag_hint(expected, text)),
    }
}

/// The TPROXY routing table: not the kernel's own ones.
pub(super) fn table(text: &str) -> Result<u32, Expected> {
    let expected = Expected::new("a plain number from 1 to 252 or from 256 to 4294967295");
    match decimal(text).map(u32::try_from) {
        Some(Ok(table @ (1..=252 | 256..))) => Ok(table),
        Some(Ok(0 | 253..=255)) => {
            Err(expected.hint("0 and 253 to 255 are the kernel's own tables (unspec, default, main, local)"))
        }
        Some(Err(_)) | None => Err(flag_hint(expected, text)),
    }
}

pub(super) fn interface(text: &str) -> Result<Interface, Expected> {
    text.parse()
        .map_err(|error: InterfaceError| flag_hint(Expected::new(error.to_string()), text))
}

/// A path. One that begins with `-` is a flag that was taken for the value.
pub(super) fn path(text: &str) -> Result<PathBuf, Expected> {
    if text.starts_with('-') || text.contains('\0') {
        Err(flag_hint(Expected::new("a path"), text))
    } else {
        Ok(PathBuf::from(text))
    }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, Expected> {
    match text {
        "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        _ => Err(Expected::new("text or json")),
    }
}

/// The level of this program out of Istio's `SCOPE:LEVEL,...`: the last one for the scope `default` or `all`, or
/// without a scope. Other scopes are parts of Istio that do not exist here.
pub(super) fn log_level(text: &str) -> Result<Option<log::LevelFilter>, Expected> {
    let mut level = None;
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (scope, word) = pair.split_once(':').unwrap_or(("default", pair));
        let parsed = match word {
            "none" => log::LevelFilter::Off,
            "fatal" | "error" => log::LevelFilter::Error,
            "warn" => log::LevelFilter::Warn,
            "info" => log::LevelFilter::Info,
            "debug" => log::LevelFilter::Debug,
            _ => {
                return Err(Expected::new(
                    "LEVEL or SCOPE:LEVEL,... with the levels none, fatal, error, warn, info and debug",
                ));
            }
        };
        if matches!(scope, "default" | "all") {
            level = Some(parsed);
        }
    }
    Ok(level)
}

/// A duration in Go's syntax, longer than nothing.
pub(super) fn duration(text: &str) -> Result<Duration, Expected> {
    let expected = || Expected::new("a duration above zero such as 5s, 1m30s or 500ms");
    match go_duration(text) {
        Some(nanoseconds) if nanoseconds > 0 => Ok(Duration::from_nanos(nanoseconds.unsigned_abs())),
        Some(_) => Err(expected()),
        None if decimal(text).is_some() => Err(expected().hint(format!("a unit is missing: {text}s?"))),
        None => Err(flag_hint(expected(), text)),
    }
}

/// Go's `time.ParseDuration`, in nanoseconds: an optional sign, then decimal numbers, each with a fraction if need be
/// and always with a unit. `0` needs none.
fn go_duration(text: &str) -> Option<i64> {
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
        let (unit, after) = after.split_at(
            after
                .find(|c: char| c == '.' || c.is_ascii_digit())
                .unwrap_or(after.len()),
        );
        total = total.checked_add(scaled(whole, fraction, nanoseconds(unit)?)?)?;
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

fn nanoseconds(unit: &str) -> Option<u64> {
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

/// A value that looks like a flag was probably one, behind an option whose value was forgotten.
fn flag_hint(expected: Expected, text: &str) -> Expected {
    let looks_like_flag = text
        .strip_prefix('-')
        .is_some_and(|rest| rest.starts_with(|c: char| c == '-' || c.is_ascii_alphabetic()));
    if looks_like_flag {
        expected.hint("it looks like a flag: is the value missing in front of it?")
    } else {
        expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_as_go_parses_them() {
        for text in ["1", "t", "T", "TRUE", "true", "True"] {
            assert_eq!(boolean(text), Ok(true), "{text}");
        }
        for text in ["0", "f", "F", "FALSE", "false", "False"] {
            assert_eq!(boolean(text), Ok(false), "{text}");
        }
        for text in ["", "tRUE", "yes", "no", "on", "2", " true", "truee"] {
            assert!(boolean(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_as_go_parses_them() {
        const SECOND: i64 = 1_000_000_000;
        for (text, nanoseconds) in [
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
            assert_eq!(go_duration(text), Some(nanoseconds), "{text}");
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
            assert_eq!(go_duration(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_out_is_longer_than_nothing() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for text in ["0", "0s", "-5s", "5", ""] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
