//! Single values: text in, typed value or what would have been right out.

use std::path::PathBuf;
use std::time::Duration;

use crate::cli::ASK_ABOUT_A_POD;
use crate::model::{Interface, InterfaceError, Mark, PROXY_LOOPBACK_MARK, Port};

use super::error::Expected;
use super::run::LogFormat;

/// The texts that Go's `strconv.ParseBool` accepts.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

pub(super) fn boolean(text: &str) -> Result<bool, Expected> {
    parse_bool(text)
        .ok_or_else(|| Expected::new("true or false (also 1, t, T, TRUE, True, 0, f, F, FALSE, False)"))
}

/// A plain decimal number: digits only and no leading zero, which other programs read as octal.
#[must_use]
pub fn decimal(text: &str) -> Option<u64> {
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
                .hint("`*` means all ports with --istio-inbound-ports (-b) only, and must be the only item"),
            _ if is_range => expected().hint("ranges are not accepted: list the ports"),
            _ => flag_hint(expected(), text),
        }
    })
}

/// A user or group number; the highest one means "no id" to the kernel.
pub(super) fn id(text: &str) -> Result<u32, Expected> {
    match decimal(text).map(u32::try_from) {
        Some(Ok(id)) if id != u32::MAX => Ok(id),
        _ => Err(flag_hint(Expected::new("a decimal number from 0 to 4294967294"), text)),
    }
}

/// The number of a process; 0 is none.
pub(super) fn pid(text: &str) -> Result<u32, Expected> {
    match decimal(text).map(u32::try_from) {
        Some(Ok(pid @ 1..=0x7fff_ffff)) => Ok(pid),
        _ => {
            let expected = Expected::new("the number of a process, from 1 to 2147483647");
            // Of a pod, a container or a program.
            let is_name = text.contains(|letter: char| letter.is_ascii_alphabetic());
            Err(if is_name && !text.starts_with('-') {
                expected.hint(format!(
                "names are not resolved: `--network-namespace NAME` takes one of `ip netns`, `pgrep -n PROGRAM` or \
                 `crictl inspect CONTAINER` on the node has the pid, {ASK_ABOUT_A_POD}"
            ))
            } else {
                flag_hint(expected, text)
            })
        }
    }
}

/// A plain number, also in hexadecimal.
fn any_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|byte| byte.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None => decimal(text),
    }
}

/// A number of 32 bits, also in hexadecimal.
pub(super) fn number(text: &str) -> Option<u32> {
    any_number(text)?.try_into().ok()
}

/// The probe's port: Istio reads it as Go does, so also in hexadecimal.
pub(super) fn probe_port(text: &str) -> Result<Port, Expected> {
    let hexadecimal = || number(text)?.try_into().ok().and_then(Port::new);
    port(text).or_else(|expected| hexadecimal().ok_or(expected))
}

/// The TPROXY mark, also in hexadecimal.
pub(super) fn mark(text: &str) -> Result<Mark, Expected> {
    let number = any_number(text);
    let expected = Expected::new("a number from 1 to 4294967295 other than 1338, also as 0x...");
    match number.map(u32::try_from) {
        Some(Ok(number)) if Mark(number) == PROXY_LOOPBACK_MARK => {
            Err(expected.hint("1338 marks the proxy's own outbound packets"))
        }
        Some(Ok(0)) => Err(expected.hint("mark 0 is that of every unmarked packet")),
        Some(Ok(number)) => Ok(Mark(number)),
        Some(Err(_)) | None => Err(flag_hint(expected, text)),
    }
}

/// The TPROXY routing table: not the kernel's own ones.
pub(super) fn table(text: &str) -> Result<u32, Expected> {
    let expected = Expected::new("a decimal number from 1 to 252 or from 256 to 4294967295");
    match decimal(text).map(u32::try_from) {
        Some(Ok(table @ (1..=252 | 256..))) => Ok(table),
        Some(Ok(0 | 253..=255)) => {
            Err(expected.hint("0 and 253 to 255 are the kernel's own tables (unspec, default, main, local)"))
        }
        Some(Err(_)) | None => Err(flag_hint(expected, text)),
    }
}

pub(super) fn interface(text: &str) -> Result<Interface, Expected> {
    text.parse().map_err(|error: InterfaceError| flag_hint(Expected::new(error.to_string()), text))
}

/// A path. One that begins with `-` is a flag that was taken for the value.
pub(super) fn path(text: &str) -> Result<PathBuf, Expected> {
    if text.is_empty() || text.starts_with('-') || text.contains('\0') {
        Err(flag_hint(Expected::new("a path"), text))
    } else {
        Ok(PathBuf::from(text))
    }
}

/// The config file.
pub(super) fn config_file(text: &str) -> Result<PathBuf, Expected> {
    let expected = Expected::new("the path of a JSON file, or - for standard input");
    if text == "-" { Ok(PathBuf::from(text)) } else { path(text).map_err(|_| expected) }
}

/// The path of a network namespace.
pub(super) fn network_namespace(text: &str) -> Result<PathBuf, Expected> {
    if text.is_empty() { Err(Expected::new("the path of a network namespace")) } else { path(text) }
}

pub(super) fn log_format(text: &str) -> Result<LogFormat, Expected> {
    match text {
        "json" => Ok(LogFormat::Json),
        "text" => Ok(LogFormat::Text),
        _ => Err(Expected::new("text or json")),
    }
}

/// The level of this program out of Istio's `SCOPE:LEVEL,...`: the last one for the scope `default` or `all`,
/// or without a scope. Other scopes are parts of Istio that do not exist here.
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
    match goduration::parse(text) {
        Some(nanoseconds) if nanoseconds > 0 => Ok(Duration::from_nanos(nanoseconds.unsigned_abs())),
        Some(_) => Err(expected()),
        None if decimal(text).is_some() => Err(expected().hint(format!("a unit is missing: {text}s?"))),
        None if text.ends_with("min") => Err(expected().hint("minutes are m")),
        None => Err(flag_hint(expected(), text)),
    }
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
    fn a_time_out_is_longer_than_nothing() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        for text in ["0", "0s", "-5s", "5", ""] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
