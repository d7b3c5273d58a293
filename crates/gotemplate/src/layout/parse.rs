//! `time.Parse`.

use std::num::NonZero;

use time::parsing::Parsed;
use time::{Date, Month, PrimitiveDateTime};

use super::{Chunk, Time, items, next_chunk};

/// The parts of a time while it is parsed.
struct Parts {
    parsed: Parsed,
    nanos: i64,
    offset: i64,
}

/// `time.Parse`
pub(crate) fn parse(layout: &str, given: &str) -> Result<Time, String> {
    let mut parts = Parts { parsed: Parsed::new(), nanos: 0, offset: 0 };
    let (mut rest, mut value) = (layout, given);
    loop {
        let (literal, chunk, after) = match next_chunk(rest) {
            Some((literal, chunk, after)) => (literal, Some(chunk), after),
            None => (rest, None, ""),
        };
        let cannot = |value: &str, element: &str| {
            format!("parsing time {given:?} as {layout:?}: cannot parse {value:?} as {element:?}")
        };
        value = skipped(value, literal).ok_or_else(|| cannot(value, literal))?;
        let Some(chunk) = chunk else { break };
        let element = rest.get(literal.len()..rest.len() - after.len()).unwrap_or_default();
        value = parts.take(chunk, value, after).ok_or_else(|| match range(chunk, value) {
            Some(part) => format!("parsing time {given:?}: {part} out of range"),
            None => cannot(value, element),
        })?;
        rest = after;
    }
    if !value.is_empty() {
        return Err(format!("parsing time {given:?}: extra text: {value:?}"));
    }
    parts.time().map_err(|part| format!("parsing time {given:?}: {part} out of range"))
}

/// `value` behind a literal of the layout, in which a blank is any number of blanks.
fn skipped<'v>(mut value: &'v str, literal: &str) -> Option<&'v str> {
    let mut literal = literal;
    while let Some(c) = literal.chars().next() {
        if c == ' ' {
            if !value.is_empty() && !value.starts_with(' ') {
                return None;
            }
            (literal, value) = (literal.trim_start_matches(' '), value.trim_start_matches(' '));
        } else {
            (literal, value) = (literal.strip_prefix(c)?, value.strip_prefix(c)?);
        }
    }
    Some(value)
}

/// What is out of range, if `value` begins with a number that `chunk` does not take.
fn range(chunk: Chunk, value: &str) -> Option<&'static str> {
    let Chunk::Part(part) = chunk else { return None };
    digits(value, 2).and_then(|_| part.split(['[', ' ', ']']).nth(1))
}

/// A number of so many digits.
fn digits(value: &str, count: usize) -> Option<(i32, &str)> {
    let (digits, rest) = value.split_at_checked(count)?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    Some((digits.parse().ok().filter(|_| all)?, rest))
}

impl Parts {
    /// Takes an element from the text; `None` if it is not there or out of range.
    fn take<'v>(&mut self, chunk: Chunk, value: &'v str, after: &str) -> Option<&'v str> {
        match chunk {
            Chunk::Year => {
                let (year, rest) = digits(value, 4)?;
                self.parsed.set_year(year).map(|()| rest)
            }
            Chunk::Year2 => {
                let (year, rest) = digits(value, 2)?;
                self.parsed.set_year(if year >= 69 { year + 1900 } else { year + 2000 }).map(|()| rest)
            }
            Chunk::Abbreviation => {
                let rest = value.trim_start_matches(|c: char| c.is_ascii_uppercase());
                (value.len() - rest.len() >= 3).then_some(rest)
            }
            Chunk::Offset(form) => self.offset(form, value),
            Chunk::Fraction { digits, trimmed, .. } => {
                let rest = self.fraction(value);
                (trimmed || value.len() - rest.len() == digits + 1).then_some(rest)
            }
            Chunk::Part(part) => {
                let rest = self.part(part, value)?;
                // A fraction is read where the layout has none.
                let of_layout = matches!(next_chunk(after), Some(("", Chunk::Fraction { .. }, _)));
                let fraction = part.starts_with("[second") && !of_layout;
                Some(if fraction { self.fraction(rest) } else { rest })
            }
        }
    }

    /// Takes what `time` reads, with fewer blanks and digits than it writes.
    fn part<'v>(&mut self, part: &str, value: &'v str) -> Option<&'v str> {
        let value = if part.contains("space") { value.trim_start_matches(' ') } else { value };
        let part = if part == "[hour]" { "[hour padding:none]" } else { &part.replace("space", "none") };
        let rest = self.parsed.parse_items(value.as_bytes(), &items(part)).ok()?;
        value.get(value.len() - rest.len()..)
    }

    /// Takes a fraction of a second, if there is one.
    fn fraction<'v>(&mut self, value: &'v str) -> &'v str {
        let Some(digits) = value.strip_prefix(['.', ',']) else { return value };
        let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
        let digits = digits.get(..digits.len() - rest.len()).unwrap_or_default();
        if digits.is_empty() {
            return value;
        }
        let nine: String = digits.chars().chain(std::iter::repeat('0')).take(9).collect();
        self.nanos = nine.parse().unwrap_or_default();
        rest
    }

    fn offset<'v>(&mut self, form: &str, value: &'v str) -> Option<&'v str> {
        if let Some(rest) = value.strip_prefix('Z').filter(|_| form.starts_with('Z')) {
            return Some(rest);
        }
        let sign = if value.starts_with('-') { -1 } else { 1 };
        let mut rest = value.strip_prefix(['+', '-'])?;
        let count = form.bytes().filter(u8::is_ascii_digit).count() / 2;
        for (at, (unit, most)) in [(3600, 24), (60, 59), (1, 59)].into_iter().take(count).enumerate() {
            if at > 0 && form.contains(':') {
                rest = rest.strip_prefix(':')?;
            }
            let (part, after) = digits(rest, 2).filter(|(part, _)| *part <= most)?;
            self.offset += sign * unit * i64::from(part);
            rest = after;
        }
        Some(rest)
    }

    /// The time of the parts. Errors: what is out of range: the day in its month, or a leap second, which Go
    /// does not have.
    fn time(&self) -> Result<Time, &'static str> {
        let parsed = &self.parsed;
        let hour = parsed.hour_24().or(parsed.hour_12().map(NonZero::get)).unwrap_or_default();
        let hour = match parsed.hour_12_is_pm() {
            Some(true) if hour < 12 => hour + 12,
            Some(false) if hour == 12 => 0,
            _ => hour,
        };
        let (minute, second) = (parsed.minute().unwrap_or_default(), parsed.second().unwrap_or_default());
        let year = parsed.year().unwrap_or_default();
        let date = match (parsed.month(), parsed.day(), parsed.ordinal()) {
            (None, None, Some(day)) => Date::from_ordinal_date(year, day.get()),
            (month, day, _) => {
                Date::from_calendar_date(year, month.unwrap_or(Month::January), day.map_or(1, NonZero::get))
            }
        };
        let time = time::Time::from_hms(hour, minute, second).map_err(|_| "second")?;
        let local = PrimitiveDateTime::new(date.map_err(|_| "day")?, time).assume_utc().unix_timestamp();
        Ok(Time { unix: local - self.offset, nanos: self.nanos, offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_part_that_is_out_of_range() {
        for (given, part) in [
            ("2026-02-30 10:00:00", "day"),
            ("2026-13-01 10:00:00", "month"),
            ("2026-01-01 24:00:00", "hour"),
            ("2026-01-01 10:60:00", "minute"),
            ("2026-12-31 23:59:60", "second"),
            ("2026-12-31 23:59:61", "second"),
        ] {
            let error = parse("2006-01-02 15:04:05", given).err();
            assert_eq!(error, Some(format!("parsing time {given:?}: {part} out of range")));
        }
    }
}
