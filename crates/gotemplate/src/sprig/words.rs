//! Letter case, words, wrapping.

use super::{INT, STR, ValueResult, add_changes, cases, int, made, text};
use crate::functions::{Call, Functions};
use crate::value::Value;
use crate::value::text::{Str, floor_char};

pub(crate) fn register(f: &mut Functions) {
    let changes: [(&str, super::Change); 10] = [
        ("upper", str::to_uppercase),
        ("lower", str::to_lowercase),
        ("title", title),
        ("untitle", untitle),
        ("nospace", |s| s.chars().filter(|c| !c.is_whitespace()).collect()),
        ("initials", |s| s.split_whitespace().filter_map(|word| word.chars().next()).collect()),
        ("swapcase", swapcase),
        ("snakecase", |s| cases::lowered(s, '_')),
        ("kebabcase", |s| cases::lowered(s, '-')),
        ("camelcase", cases::camel),
    ];
    add_changes(f, changes);
    f.add("abbrev", &[INT, STR], None, |_, args| abbreviate(args, 0, int(args, 0), 1));
    f.add("abbrevboth", &[INT, INT, STR], None, |_, args| abbreviate(args, int(args, 0), int(args, 1), 2));
    f.add("wrap", &[INT, STR], None, |call, args| {
        let newline = Str::borrowed("\n");
        wrap(call, int(args, 0), &newline, text(args, 1)?, false)
    });
    f.add("wrapWith", &[INT, STR, STR], None, |call, args| {
        let newline = Str::borrowed("\n");
        let separator = Some(text(args, 1)?).filter(|s| !s.as_str().is_empty());
        wrap(call, int(args, 0), separator.unwrap_or(&newline), text(args, 2)?, true)
    });
}

/// The first letter of every word in upper case.
fn title(s: &str) -> String {
    let mut inside = false;
    s.chars()
        .flat_map(|c| {
            let starts = !inside;
            inside = c.is_alphanumeric() || c == '_' || (!c.is_whitespace() && !c.is_ascii());
            if starts { c.to_uppercase().collect::<Vec<_>>() } else { vec![c] }
        })
        .collect()
}

/// Only the very first letter of every word in lower case.
fn untitle(s: &str) -> String {
    let mut inside = false;
    s.chars()
        .flat_map(|c| {
            let starts = !inside && !c.is_whitespace();
            inside = !c.is_whitespace();
            if starts { c.to_lowercase().collect::<Vec<_>>() } else { vec![c] }
        })
        .collect()
}

fn swapcase(s: &str) -> String {
    s.chars()
        .flat_map(|c| {
            if c.is_uppercase() {
                c.to_lowercase().collect::<Vec<_>>()
            } else if c.is_lowercase() {
                c.to_uppercase().collect()
            } else {
                vec![c]
            }
        })
        .collect()
}

/// Cuts to `width` bytes with dots where something is missing; with an offset also at the front.
fn abbreviate<'a>(args: &[Value<'a>], offset: i64, width: i64, at: usize) -> ValueResult<'a> {
    let s = text(args, at)?;
    let length = s.as_str().len();
    let (Ok(mut offset), Ok(width)) = (usize::try_from(offset.max(0)), usize::try_from(width)) else {
        return Ok(Value::Str(s.clone()));
    };
    if width < 4 || (offset > 0 && width < 7) || length <= width {
        return Ok(Value::Str(s.clone()));
    }
    let cut = |start: usize, end: usize| {
        let whole = s.as_str();
        whole.get(floor_char(whole, start)..floor_char(whole, end)).unwrap_or_default().to_owned()
    };
    offset = offset.min(length);
    if length - offset < width - 3 {
        offset = length - (width - 3);
    }
    let result = if offset <= 4 {
        format!("{}...", cut(0, width - 3))
    } else if offset + width - 3 < length {
        format!("...{}...", cut(offset, offset + width - 6))
    } else {
        format!("...{}", cut(length - (width - 3), length))
    };
    made(result, s)
}

/// Breaks lines at blanks after at most `width` bytes; longer words stay whole, or are broken anywhere.
fn wrap<'a>(
    call: &mut Call<'_>,
    width: i64,
    newline: &Str<'a>,
    s: &Str<'a>,
    breaks: bool,
) -> ValueResult<'a> {
    let width = usize::try_from(width).unwrap_or(1).max(1);
    call.spend(s.as_str().len().saturating_mul(newline.as_str().len() + 1))?;
    let mut rest = s.as_str();
    let mut out = String::new();
    while rest.len() > width {
        if let Some(after) = rest.strip_prefix(' ') {
            rest = after;
            continue;
        }
        let line = rest.get(..floor_char(rest, width + 1)).unwrap_or_default();
        let (line, skip) = match line.rfind(' ') {
            Some(blank) => (line.get(..blank).unwrap_or_default(), 1),
            None if breaks => (rest.get(..floor_char(rest, width)).unwrap_or_default(), 0),
            None => match rest.find(' ') {
                Some(blank) => (rest.get(..blank).unwrap_or_default(), 1),
                None => break,
            },
        };
        if line.is_empty() {
            break;
        }
        out.push_str(line);
        out.push_str(newline.as_str());
        rest = rest.get(line.len() + skip..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(Value::Str(Str::derived(out, &[s, newline])))
}
