//! Durations and dates.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::{ANY, STR, arg, made, text};
use crate::functions::{Functions, Type};
use crate::layout::{self, TIME, Time, ZERO};
use crate::value::text::Str;
use crate::value::{IntType, Value};

const SECOND: i64 = 1_000_000_000;
const DATE: Type = Type::Struct(TIME);
/// The layout of `<input type="date">`.
const HTML: &str = "2006-01-02";

/// The time, or why there is none.
type Clock = Arc<dyn Fn() -> Result<Time, String> + Send + Sync>;

impl Functions {
    /// Gives sprig's date functions a clock: `now`, `ago` and `date` need one.
    pub fn add_clock(&mut self, clock: impl Fn() -> SystemTime + Send + Sync + 'static) {
        register(self, Arc::new(move || Ok(of_system(clock()))));
    }
}

fn of_system(time: SystemTime) -> Time {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Time { unix, nanos: i64::from(since.subsec_nanos()), offset: 0 }
}

pub(crate) fn without_clock() -> Clock {
    Arc::new(|| Err("not available: it needs the clock: rendering twice must give the same text".to_owned()))
}

#[allow(clippy::needless_pass_by_value, reason = "the functions share it")]
pub(crate) fn register(f: &mut Functions, clock: Clock) {
    durations(f, &clock);
    let now = Arc::clone(&clock);
    f.add("now", &[], None, move |_, _| Ok(now()?.value()));
    for name in ["toDate", "mustToDate"] {
        f.add(name, &[STR, STR], None, move |_, args| {
            let parsed = layout::parse(text(args, 0)?.as_str(), text(args, 1)?.as_str());
            Ok(if name == "toDate" { parsed.unwrap_or(ZERO) } else { parsed? }.value())
        });
    }
    for name in ["dateModify", "date_modify", "mustDateModify", "must_date_modify"] {
        f.add(name, &[STR, DATE], None, move |_, args| {
            let (change, date) = (text(args, 0)?.as_str(), time(arg(args, 1)).unwrap_or(ZERO));
            match goduration::parse(change) {
                Some(nanos) => Ok(date.plus(nanos).value()),
                None if name.starts_with("must") => Err(format!("time: invalid duration {change:?}")),
                None => Ok(arg(args, 1).clone()),
            }
        });
    }
    f.add("unixEpoch", &[DATE], None, |_, args| {
        Ok(Value::string(time(arg(args, 0)).unwrap_or(ZERO).unix.to_string()))
    });
    // Layout, date, zone: which of the arguments each is; without a layout the one of HTML.
    for name in ["now", "ago", "durationRound"] {
        f.mark_volatile(name);
    }
    for (name, layout, date, zone) in [
        ("date", Some(0), 1, None),
        ("dateInZone", Some(0), 1, Some(2)),
        ("date_in_zone", Some(0), 1, Some(2)),
        ("htmlDate", None, 0, None),
        ("htmlDateInZone", None, 0, Some(1)),
    ] {
        let clock = Arc::clone(&clock);
        let params: Vec<Type> =
            layout.map(|_| STR).into_iter().chain([ANY]).chain(zone.map(|_| STR)).collect();
        f.add(name, &params, None, move |_, args| {
            // What the result holds besides the date comes from the layout.
            let html = Str::borrowed(HTML);
            let layout = layout.map_or(Ok(&html), |at| text(args, at))?;
            let zone = zone.map_or(Ok("UTC"), |at| text(args, at).map(|zone| zone.as_str()))?;
            if !matches!(zone, "" | "UTC" | "Local") {
                return Err(format!("time zone {zone:?} is not available: expected UTC"));
            }
            let date = time_or_number(arg(args, date)).map_or_else(|| clock(), Ok)?;
            made(Time { offset: 0, ..date }.format(layout.as_str()), layout)
        });
        f.mark_volatile(name);
    }
}

fn time(value: &Value<'_>) -> Option<Time> {
    match value {
        Value::Record(record) => Time::of(record),
        _ => None,
    }
}

/// A time, or an integer as seconds since 1970.
fn time_or_number(value: &Value<'_>) -> Option<Time> {
    match value {
        Value::Int(unix, IntType::Int | IntType::Int32 | IntType::Int64) => {
            Some(Time { unix: *unix, nanos: 0, offset: 0 })
        }
        other => time(other),
    }
}

fn durations(f: &mut Functions, clock: &Clock) {
    f.add("duration", &[ANY], None, |_, args| {
        let seconds = match arg(args, 0) {
            Value::Str(s) => s.as_str().parse().unwrap_or_default(),
            Value::Int(n, IntType::Int64) => *n,
            _ => 0,
        };
        Ok(Value::string(goduration::format(seconds.saturating_mul(SECOND))))
    });
    let now = Arc::clone(clock);
    f.add("ago", &[ANY], None, move |_, args| {
        let now = now()?;
        let nanos = now.since(time_or_number(arg(args, 0)).unwrap_or(now));
        let half = if nanos < 0 { -SECOND / 2 } else { SECOND / 2 };
        let seconds = nanos.saturating_add(half) / SECOND;
        Ok(Value::string(goduration::format(seconds.saturating_mul(SECOND))))
    });
    let now = Arc::clone(clock);
    f.add("durationRound", &[ANY], None, move |_, args| {
        let nanos = match arg(args, 0) {
            Value::Str(s) => goduration::parse(s.as_str()).unwrap_or_default(),
            Value::Int(n, IntType::Int64) => *n,
            other => time(other).map_or(Ok(0), |time| Ok::<_, String>(now()?.since(time)))?,
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
