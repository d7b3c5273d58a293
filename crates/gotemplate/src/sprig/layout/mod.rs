//! Go's `time.Time` and its layouts.

mod parse;

pub(super) use parse::parse;

use crate::value::text::Str;
use crate::value::{IntType, Record, Value};

const SECOND: i64 = 1_000_000_000;
const DAY: i64 = 86_400;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
/// Go's name of the type.
pub(crate) const TIME: &str = "time.Time";

/// Seconds since 1970, nanoseconds, and the offset from UTC in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) unix: i64,
    pub(crate) nanos: i64,
    pub(crate) offset: i64,
}

/// Go's zero time: the first of January of the year 1.
pub(super) const ZERO: Time = Time { unix: -62_135_596_800, nanos: 0, offset: 0 };

/// A year, month and day as days since 1970, and back; `month` from 1. The algorithms are Howard Hinnant's.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, of_year - (153 * shifted + 2) / 5 + 1)
}

fn name_of(names: &[&'static str], index: i64) -> &'static str {
    usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or_default()
}

impl Time {
    /// So many nanoseconds later.
    pub(super) const fn plus(self, nanos: i64) -> Self {
        let sum = self.nanos + nanos % SECOND;
        let unix = self.unix.saturating_add(nanos / SECOND).saturating_add(sum.div_euclid(SECOND));
        Self { unix, nanos: sum.rem_euclid(SECOND), ..self }
    }

    /// The nanoseconds since `earlier`, as far as a `time.Duration` can tell.
    pub(super) const fn since(self, earlier: Self) -> i64 {
        let seconds = self.unix.saturating_sub(earlier.unix);
        seconds.saturating_mul(SECOND).saturating_add(self.nanos - earlier.nanos)
    }

    /// The same with Go's methods as fields, and printed by its `String`.
    pub(super) fn value<'a>(self) -> Value<'a> {
        let local = self.unix + self.offset;
        let (year, month, day) = civil(local.div_euclid(DAY));
        let second = local.rem_euclid(DAY);
        let number = |number: i64| Value::Int(number, IntType::Int);
        let named = |kind, name: &'static str| Value::printed_record(kind, Vec::new(), Str::borrowed(name));
        let nanos = self.unix.saturating_mul(SECOND).saturating_add(self.nanos);
        let fields = vec![
            ("Unix", Value::int64(self.unix)),
            ("UnixMilli", Value::int64(nanos.div_euclid(1_000_000))),
            ("UnixNano", Value::int64(nanos)),
            ("Nanosecond", number(self.nanos)),
            ("Year", number(year)),
            ("Month", named("time.Month", name_of(&MONTHS, month - 1))),
            ("Day", number(day)),
            ("Weekday", named("time.Weekday", name_of(&WEEKDAYS, (local.div_euclid(DAY) + 4).rem_euclid(7)))),
            ("YearDay", number(local.div_euclid(DAY) - days(year, 1, 1) + 1)),
            ("Hour", number(second / 3600)),
            ("Minute", number(second / 60 % 60)),
            ("Second", number(second % 60)),
            ("IsZero", Value::Bool(self.unix == ZERO.unix && self.nanos == 0)),
            ("offset", number(self.offset)),
        ];
        Value::printed_record(TIME, fields, self.format("2006-01-02 15:04:05.999999999 -0700 MST").into())
    }

    /// The time that a value is.
    pub(crate) fn of(record: &Record<'_>) -> Option<Self> {
        let field = |name| match record.get(name) {
            Some(Value::Int(number, _)) => *number,
            _ => 0,
        };
        (record.name == TIME).then(|| Self {
            unix: field("Unix"),
            nanos: field("Nanosecond"),
            offset: field("offset"),
        })
    }

    /// `Time.Format`
    pub(crate) fn format(self, layout: &str) -> String {
        let local = self.unix + self.offset;
        let (year, month, day) = civil(local.div_euclid(DAY));
        let (hour, minute, second) =
            (local.rem_euclid(DAY) / 3600, local.rem_euclid(3600) / 60, local.rem_euclid(60));
        let mut out = String::new();
        let mut rest = layout;
        while let Some((literal, chunk, after)) = next_chunk(rest) {
            out.push_str(literal);
            rest = after;
            let of_year = local.div_euclid(DAY) - days(year, 1, 1) + 1;
            let half = if hour % 12 == 0 { 12 } else { hour % 12 };
            let weekday = name_of(&WEEKDAYS, (local.div_euclid(DAY) + 4).rem_euclid(7));
            let month_name = name_of(&MONTHS, month - 1);
            out.push_str(&match chunk {
                Chunk::Year => format!("{year:04}"),
                Chunk::Year2 => format!("{:02}", year.rem_euclid(100)),
                Chunk::MonthName => month_name.to_owned(),
                Chunk::MonthShort => month_name.get(..3).unwrap_or_default().to_owned(),
                Chunk::Weekday => weekday.to_owned(),
                Chunk::WeekdayShort => weekday.get(..3).unwrap_or_default().to_owned(),
                Chunk::Month(pad) => pad.write(month, 2),
                Chunk::Day(pad) => pad.write(day, 2),
                Chunk::YearDay(pad) => pad.write(of_year, 3),
                Chunk::Hour => format!("{hour:02}"),
                Chunk::Hour12(pad) => pad.write(half, 2),
                Chunk::Minute(pad) => pad.write(minute, 2),
                Chunk::Second(pad) => pad.write(second, 2),
                Chunk::Half(am, pm) => if hour < 12 { am } else { pm }.to_owned(),
                Chunk::Abbreviation if self.offset == 0 => "UTC".to_owned(),
                Chunk::Abbreviation => offset_text(self.offset, "-0700"),
                Chunk::Offset(form) if self.offset == 0 && form.starts_with('Z') => "Z".to_owned(),
                Chunk::Offset(form) => offset_text(self.offset, form),
                Chunk::Fraction { separator, digits, trimmed } => {
                    fraction(self.nanos, separator, digits, trimmed)
                }
            });
        }
        out.push_str(rest);
        out
    }
}

fn fraction(nanos: i64, separator: char, digits: usize, trimmed: bool) -> String {
    let all = format!("{nanos:09}");
    let kept = all.get(..digits.min(9)).unwrap_or_default();
    let kept = if trimmed { kept.trim_end_matches('0') } else { kept };
    if kept.is_empty() { String::new() } else { format!("{separator}{kept}") }
}

/// An offset in one of Go's forms: `-07`, `-0700`, `-07:00`, with seconds, with `Z`.
fn offset_text(offset: i64, form: &str) -> String {
    let sign = if offset < 0 { '-' } else { '+' };
    let all = offset.abs();
    let parts = [all / 3600, all / 60 % 60, all % 60];
    let count = form.bytes().filter(u8::is_ascii_digit).count() / 2;
    let colon = if form.contains(':') { ":" } else { "" };
    let parts: Vec<String> = parts.iter().take(count).map(|part| format!("{part:02}")).collect();
    format!("{sign}{}", parts.join(colon))
}

/// How a number is filled up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pad {
    None,
    Blank,
    Zero,
}

impl Pad {
    fn write(self, number: i64, width: usize) -> String {
        match self {
            Self::None => number.to_string(),
            Self::Blank => format!("{number:width$}"),
            Self::Zero => format!("{number:0width$}"),
        }
    }
}

/// An element of a layout.
#[derive(Clone, Copy)]
enum Chunk {
    Year,
    Year2,
    MonthName,
    MonthShort,
    Weekday,
    WeekdayShort,
    Month(Pad),
    Day(Pad),
    YearDay(Pad),
    Hour,
    Hour12(Pad),
    Minute(Pad),
    Second(Pad),
    Half(&'static str, &'static str),
    Abbreviation,
    Offset(&'static str),
    Fraction { separator: char, digits: usize, trimmed: bool },
}

/// Longer ones before their beginnings.
const CHUNKS: [(&str, Chunk); 36] = [
    ("January", Chunk::MonthName),
    ("Jan", Chunk::MonthShort),
    ("Monday", Chunk::Weekday),
    ("Mon", Chunk::WeekdayShort),
    ("MST", Chunk::Abbreviation),
    ("002", Chunk::YearDay(Pad::Zero)),
    ("01", Chunk::Month(Pad::Zero)),
    ("02", Chunk::Day(Pad::Zero)),
    ("03", Chunk::Hour12(Pad::Zero)),
    ("04", Chunk::Minute(Pad::Zero)),
    ("05", Chunk::Second(Pad::Zero)),
    ("06", Chunk::Year2),
    ("15", Chunk::Hour),
    ("1", Chunk::Month(Pad::None)),
    ("2006", Chunk::Year),
    ("2", Chunk::Day(Pad::None)),
    ("__2", Chunk::YearDay(Pad::Blank)),
    ("_2", Chunk::Day(Pad::Blank)),
    ("3", Chunk::Hour12(Pad::None)),
    ("4", Chunk::Minute(Pad::None)),
    ("5", Chunk::Second(Pad::None)),
    ("PM", Chunk::Half("AM", "PM")),
    ("pm", Chunk::Half("am", "pm")),
    ("-070000", Chunk::Offset("-070000")),
    ("-07:00:00", Chunk::Offset("-07:00:00")),
    ("-0700", Chunk::Offset("-0700")),
    ("-07:00", Chunk::Offset("-07:00")),
    ("-07", Chunk::Offset("-07")),
    ("Z070000", Chunk::Offset("Z070000")),
    ("Z07:00:00", Chunk::Offset("Z07:00:00")),
    ("Z0700", Chunk::Offset("Z0700")),
    ("Z07:00", Chunk::Offset("Z07:00")),
    ("Z07", Chunk::Offset("Z07")),
    // Fractions: the digits are counted.
    (".0", Chunk::Fraction { separator: '.', digits: 0, trimmed: false }),
    (",0", Chunk::Fraction { separator: ',', digits: 0, trimmed: false }),
    (".9", Chunk::Fraction { separator: '.', digits: 0, trimmed: true }),
];

/// What precedes the next element of a layout, the element, and what follows.
fn next_chunk(layout: &str) -> Option<(&str, Chunk, &str)> {
    layout.char_indices().find_map(|(at, _)| {
        let rest = layout.get(at..)?;
        // `_2006` is a line and a year.
        let skip = rest.starts_with("_2006");
        let (text, chunk) =
            CHUNKS.iter().filter(|_| !skip).find(|(text, chunk)| begins(rest, text, *chunk))?;
        let (chunk, length) = match *chunk {
            Chunk::Fraction { separator, trimmed, .. } => {
                let digit = if trimmed { '9' } else { '0' };
                let digits = rest.chars().skip(1).take_while(|c| *c == digit).count();
                (Chunk::Fraction { separator, digits, trimmed }, digits + 1)
            }
            other => (other, text.len()),
        };
        Some((layout.get(..at)?, chunk, rest.get(length..)?))
    })
}

fn begins(rest: &str, text: &str, chunk: Chunk) -> bool {
    let Some(after) = rest.strip_prefix(text) else { return false };
    match chunk {
        // `Janet` and `Money` are words.
        Chunk::MonthShort | Chunk::WeekdayShort => !after.starts_with(|c: char| c.is_ascii_lowercase()),
        Chunk::Fraction { trimmed, .. } => {
            let digit = if trimmed { '9' } else { '0' };
            !after.trim_start_matches(digit).starts_with(|c: char| c.is_ascii_digit())
        }
        _ => true,
    }
}
