//! Go's `time.Time` and its layouts, on the calendar of the crate `time`.

mod parse;

pub(crate) use parse::parse;

use time::OffsetDateTime;
use time::format_description::{BorrowedFormatItem, parse_borrowed};

use crate::value::{IntType, Record, Value};

const SECOND: i64 = 1_000_000_000;
/// The days of 400 years, after which the calendar repeats, in seconds.
const CYCLE: i64 = 146_097 * 86_400;
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

    /// The calendar's date and time of day, and the year, of which Go has more than `time`.
    fn calendar(self) -> (OffsetDateTime, i64) {
        let local = self.unix.saturating_add(self.offset);
        let date = OffsetDateTime::from_unix_timestamp(local.rem_euclid(CYCLE));
        let date = date.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        (date, i64::from(date.year()) + 400 * local.div_euclid(CYCLE))
    }

    /// The time as a template has it: with Go's methods as fields, and printed by its `String`.
    pub(super) fn value<'a>(self) -> Value<'a> {
        let (date, year) = self.calendar();
        let number = |number: i64| Value::Int(number, IntType::Int);
        let named = |kind, name: String| Value::printed_record(kind, Vec::new(), name.into());
        let nanos = self.unix.saturating_mul(SECOND).saturating_add(self.nanos);
        let fields = vec![
            ("Unix", Value::int64(self.unix)),
            ("UnixMilli", Value::int64(nanos.div_euclid(1_000_000))),
            ("UnixNano", Value::int64(nanos)),
            ("Nanosecond", number(self.nanos)),
            ("Year", number(year)),
            ("Month", named("time.Month", date.month().to_string())),
            ("Day", number(date.day().into())),
            ("Weekday", named("time.Weekday", date.weekday().to_string())),
            ("YearDay", number(date.ordinal().into())),
            ("Hour", number(date.hour().into())),
            ("Minute", number(date.minute().into())),
            ("Second", number(date.second().into())),
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
        let (date, year) = self.calendar();
        let mut out = String::new();
        let mut rest = layout;
        while let Some((literal, chunk, after)) = next_chunk(rest) {
            out.push_str(literal);
            rest = after;
            out.push_str(&match chunk {
                Chunk::Year => format!("{year:04}"),
                Chunk::Year2 => format!("{:02}", year.rem_euclid(100)),
                // A date has every component.
                Chunk::Part(part) => date.format(&items(part)).unwrap_or_default(),
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

/// An element of a layout.
#[derive(Clone, Copy)]
enum Chunk {
    Year,
    Year2,
    /// What `time` writes and reads, in its own language.
    Part(&'static str),
    Abbreviation,
    Offset(&'static str),
    Fraction {
        separator: char,
        digits: usize,
        trimmed: bool,
    },
}

/// A description of `time`, parsed; those of [`CHUNKS`] are right.
fn items(description: &str) -> Vec<BorrowedFormatItem<'_>> {
    parse_borrowed::<2>(description).unwrap_or_default()
}

/// Longer ones before their beginnings.
const CHUNKS: [(&str, Chunk); 36] = [
    ("January", Chunk::Part("[month repr:long case_sensitive:false]")),
    ("Jan", Chunk::Part("[month repr:short case_sensitive:false]")),
    ("Monday", Chunk::Part("[weekday repr:long case_sensitive:false]")),
    ("Mon", Chunk::Part("[weekday repr:short case_sensitive:false]")),
    ("MST", Chunk::Abbreviation),
    ("002", Chunk::Part("[ordinal]")),
    ("01", Chunk::Part("[month]")),
    ("02", Chunk::Part("[day]")),
    ("03", Chunk::Part("[hour repr:12]")),
    ("04", Chunk::Part("[minute]")),
    ("05", Chunk::Part("[second]")),
    ("06", Chunk::Year2),
    ("15", Chunk::Part("[hour]")),
    ("1", Chunk::Part("[month padding:none]")),
    ("2006", Chunk::Year),
    ("2", Chunk::Part("[day padding:none]")),
    ("__2", Chunk::Part("[ordinal padding:space]")),
    ("_2", Chunk::Part("[day padding:space]")),
    ("3", Chunk::Part("[hour repr:12 padding:none]")),
    ("4", Chunk::Part("[minute padding:none]")),
    ("5", Chunk::Part("[second padding:none]")),
    ("PM", Chunk::Part("[period]")),
    ("pm", Chunk::Part("[period case:lower]")),
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
        Chunk::Part(part) if part.contains("short") => !after.starts_with(|c: char| c.is_ascii_lowercase()),
        Chunk::Fraction { trimmed, .. } => {
            let digit = if trimmed { '9' } else { '0' };
            !after.trim_start_matches(digit).starts_with(|c: char| c.is_ascii_digit())
        }
        _ => true,
    }
}
