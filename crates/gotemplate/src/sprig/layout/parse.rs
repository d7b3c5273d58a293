//! `time.Parse`.

use super::{Chunk, DAY, MONTHS, Pad, Time, WEEKDAYS, civil, days, next_chunk};

/// The parts of a time while it is parsed.
#[derive(Default)]
struct Parts {
    year: i64,
    month: Option<i64>,
    day: Option<i64>,
    of_year: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    nanos: i64,
    afternoon: Option<bool>,
    offset: i64,
}

/// `time.Parse`
pub(in crate::sprig) fn parse(layout: &str, given: &str) -> Result<Time, String> {
    let mut parts = Parts::default();
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
        value = parts.take(chunk, value, after).map_err(|problem| match problem {
            "" => cannot(value, element),
            range => format!("parsing time {given:?}: {range} out of range"),
        })?;
        rest = after;
    }
    if !value.is_empty() {
        return Err(format!("parsing time {given:?}: extra text: {value:?}"));
    }
    parts.time().ok_or_else(|| format!("parsing time {given:?}: day out of range"))
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

/// A number of at most `most` digits, of exactly so many if it is `fixed`.
fn number(value: &str, most: usize, fixed: bool) -> Result<(i64, &str), &'static str> {
    let count = value.bytes().take(most).take_while(u8::is_ascii_digit).count();
    if count == 0 || fixed && count < most {
        return Err("");
    }
    let (digits, rest) = value.split_at_checked(count).ok_or("")?;
    Ok((digits.parse().map_err(|_| "")?, rest))
}

fn named<'v>(value: &'v str, names: &[&str], short: bool) -> Result<(i64, &'v str), &'static str> {
    let found = names.iter().zip(1..).find_map(|(name, index)| {
        let name = if short { name.get(..3)? } else { name };
        let given = value.get(..name.len())?;
        given.eq_ignore_ascii_case(name).then_some((index, name.len()))
    });
    let (index, length) = found.ok_or("")?;
    Ok((index, value.get(length..).ok_or("")?))
}

fn in_range(number: i64, below: i64, what: &'static str) -> Result<i64, &'static str> {
    if (0..below).contains(&number) { Ok(number) } else { Err(what) }
}

impl Parts {
    /// Takes an element from the text; an error is what is out of range, empty if it is not there.
    fn take<'v>(&mut self, chunk: Chunk, value: &'v str, after: &str) -> Result<&'v str, &'static str> {
        let padded = |value: &'v str, pad: Pad| {
            if pad == Pad::Blank { value.strip_prefix(' ').unwrap_or(value) } else { value }
        };
        let rest;
        match chunk {
            Chunk::Hour | Chunk::Hour12(_) | Chunk::Minute(_) | Chunk::Second(_) | Chunk::Half(..) => {
                rest = self.take_clock(chunk, value, after)?;
            }
            Chunk::Year => (self.year, rest) = number(value, 4, true)?,
            Chunk::Year2 => {
                let (year, after) = number(value, 2, true)?;
                (self.year, rest) = (if year >= 69 { year + 1900 } else { year + 2000 }, after);
            }
            Chunk::MonthName | Chunk::MonthShort => {
                let (month, after) = named(value, &MONTHS, matches!(chunk, Chunk::MonthShort))?;
                (self.month, rest) = (Some(month), after);
            }
            Chunk::Weekday | Chunk::WeekdayShort => {
                rest = named(value, &WEEKDAYS, matches!(chunk, Chunk::WeekdayShort))?.1;
            }
            Chunk::Month(pad) => {
                let (month, after) = number(value, 2, pad == Pad::Zero)?;
                (self.month, rest) = (Some(in_range(month - 1, 12, "month")? + 1), after);
            }
            Chunk::Day(pad) => {
                let (day, after) = number(padded(value, pad), 2, pad == Pad::Zero)?;
                (self.day, rest) = (Some(day), after);
            }
            Chunk::YearDay(_) => {
                let (day, after) = number(value.trim_start_matches(' '), 3, false)?;
                (self.of_year, rest) = (Some(day), after);
            }
            Chunk::Abbreviation => {
                rest = value.trim_start_matches(|c: char| c.is_ascii_uppercase());
                if value.len() - rest.len() < 3 {
                    return Err("");
                }
            }
            Chunk::Offset(form) => rest = self.offset(form, value)?,
            Chunk::Fraction { digits, trimmed, .. } => {
                rest = self.fraction(value);
                if !trimmed && value.len() - rest.len() != digits + 1 {
                    return Err("");
                }
            }
        }
        Ok(rest)
    }

    /// The same for the time of the day.
    fn take_clock<'v>(&mut self, chunk: Chunk, value: &'v str, after: &str) -> Result<&'v str, &'static str> {
        let rest;
        match chunk {
            Chunk::Hour => {
                let (hour, after) = number(value, 2, false)?;
                (self.hour, rest) = (in_range(hour, 24, "hour")?, after);
            }
            Chunk::Hour12(pad) => {
                let (hour, after) = number(value, 2, pad == Pad::Zero)?;
                (self.hour, rest) = (in_range(hour, 13, "hour")?, after);
            }
            Chunk::Minute(pad) => {
                let (minute, after) = number(value, 2, pad == Pad::Zero)?;
                (self.minute, rest) = (in_range(minute, 60, "minute")?, after);
            }
            Chunk::Second(pad) => {
                let (second, behind) = number(value, 2, pad == Pad::Zero)?;
                self.second = in_range(second, 60, "second")?;
                // A fraction is read where the layout has none.
                let of_layout = matches!(next_chunk(after), Some(("", Chunk::Fraction { .. }, _)));
                rest = if of_layout { behind } else { self.fraction(behind) };
            }
            Chunk::Half(am, pm) => {
                let half = value.get(..2).ok_or("")?;
                self.afternoon = Some(if half == pm {
                    true
                } else if half == am {
                    false
                } else {
                    return Err("");
                });
                rest = value.get(2..).ok_or("")?;
            }
            _ => rest = value,
        }
        Ok(rest)
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

    fn offset<'v>(&mut self, form: &str, value: &'v str) -> Result<&'v str, &'static str> {
        if let Some(rest) = value.strip_prefix('Z').filter(|_| form.starts_with('Z')) {
            return Ok(rest);
        }
        let sign = if value.starts_with('-') { -1 } else { 1 };
        let mut rest = value.strip_prefix(['+', '-']).ok_or("")?;
        let count = form.bytes().filter(u8::is_ascii_digit).count() / 2;
        for (at, unit) in [3600, 60, 1].into_iter().take(count).enumerate() {
            if at > 0 && form.contains(':') {
                rest = rest.strip_prefix(':').ok_or("")?;
            }
            let (part, after) = number(rest, 2, true)?;
            self.offset += sign * unit * in_range(part, if at == 0 { 25 } else { 60 }, "time zone offset")?;
            rest = after;
        }
        Ok(rest)
    }

    /// The time of the parts; `None` if the day is not in its month.
    fn time(&self) -> Option<Time> {
        let hour = match self.afternoon {
            Some(true) if self.hour < 12 => self.hour + 12,
            Some(false) if self.hour == 12 => 0,
            _ => self.hour,
        };
        let first = days(self.year, 1, 1);
        let date = match self.of_year.filter(|_| self.month.is_none() && self.day.is_none()) {
            Some(day) => (1..=days(self.year + 1, 1, 1) - first).contains(&day).then_some(first + day - 1)?,
            None => {
                let (month, day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
                let date = days(self.year, month, day);
                (civil(date) == (self.year, month, day)).then_some(date)?
            }
        };
        let local = date * DAY + hour * 3600 + self.minute * 60 + self.second;
        Some(Time { unix: local - self.offset, nanos: self.nanos, offset: self.offset })
    }
}
