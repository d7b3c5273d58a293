//! Durations.

use super::{ANY, arg};
use crate::functions::Functions;
use crate::value::{IntType, Value};

const SECOND: i64 = 1_000_000_000;

pub(crate) fn register(f: &mut Functions) {
    f.add("duration", &[ANY], None, |_, args| {
        let seconds = match arg(args, 0) {
            Value::Str(s) => s.as_str().parse().unwrap_or_default(),
            Value::Int(n, IntType::Int64) => *n,
            _ => 0,
        };
        Ok(Value::string(goduration::format(seconds.saturating_mul(SECOND))))
    });
    f.add("durationRound", &[ANY], None, |_, args| {
        let nanos = match arg(args, 0) {
            Value::Str(s) => goduration::parse(s.as_str()).unwrap_or_default(),
            Value::Int(n, IntType::Int64) => *n,
            _ => 0,
        };
        Ok(Value::string(rounded(nanos.unsigned_abs())))
    });
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
