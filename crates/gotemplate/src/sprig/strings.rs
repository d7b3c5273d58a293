//! Cutting, padding, quoting, joining.

use super::{ANY, INT, STR, ValueResult, arg, int, made, size, strval, text};
use crate::builtin::print::escape;
use crate::functions::{Call, Functions};
use crate::value::Value;
use crate::value::text::{Str, TextBuilder};
use std::collections::BTreeMap;

/// A question about a text and a part of one.
type Test = fn(&str, &str) -> bool;

pub(crate) fn register(f: &mut Functions) {
    f.add("hello", &[], None, |_, _| Ok(Value::string("Hello!")));
    f.add("quote", &[], Some(ANY), |call, args| quote(call, args));
    f.add("squote", &[], Some(ANY), |call, args| squote(call, args));
    f.add("trim", &[STR], None, |_, args| {
        let s = text(args, 0)?;
        Ok(Value::Str(s.part(s.as_str().trim())))
    });
    f.add("trimall", &[STR, STR], None, |_, args| trim_all(args));
    f.add("trimAll", &[STR, STR], None, |_, args| trim_all(args));
    f.add("trimSuffix", &[STR, STR], None, |_, args| {
        let (suffix, s) = (text(args, 0)?, text(args, 1)?);
        Ok(Value::Str(s.part(s.as_str().strip_suffix(suffix.as_str()).unwrap_or(s.as_str()))))
    });
    f.add("trimPrefix", &[STR, STR], None, |_, args| {
        let (prefix, s) = (text(args, 0)?, text(args, 1)?);
        Ok(Value::Str(s.part(s.as_str().strip_prefix(prefix.as_str()).unwrap_or(s.as_str()))))
    });
    f.add("trunc", &[INT, STR], None, |_, args| trunc(args));
    f.add("substr", &[INT, INT, STR], None, |_, args| substr(args));
    f.add("repeat", &[INT, STR], None, repeat);
    let tests: [(&str, Test); 3] = [
        ("contains", |s, part| s.contains(part)),
        ("hasPrefix", |s, part| s.starts_with(part)),
        ("hasSuffix", |s, part| s.ends_with(part)),
    ];
    for (name, test) in tests {
        f.add(name, &[STR, STR], None, move |_, args| {
            Ok(Value::Bool(test(text(args, 1)?.as_str(), text(args, 0)?.as_str())))
        });
    }
    pieces_and_lines(f);
}

fn pieces_and_lines(f: &mut Functions) {
    f.add("cat", &[], Some(ANY), cat);
    f.add("indent", &[INT, STR], None, |call, args| indent(call, args, ""));
    f.add("nindent", &[INT, STR], None, |call, args| indent(call, args, "\n"));
    f.add("replace", &[STR, STR, STR], None, replace);
    f.add("plural", &[STR, STR, INT], None, |_, args| Ok(arg(args, usize::from(int(args, 2) != 1)).clone()));
    f.add("join", &[STR, ANY], None, join);
    f.add("split", &[STR, STR], None, |call, args| split(call, args, 1, None));
    f.add("splitn", &[STR, INT, STR], None, |call, args| split(call, args, 2, Some(int(args, 1))));
    f.add("splitList", &[STR, STR], None, |call, args| {
        let (separator, s) = (text(args, 0)?, text(args, 1)?);
        let parts = pieces(call, s, separator.as_str(), None)?;
        Ok(Value::strings(parts))
    });
    f.add("toStrings", &[ANY], None, |call, args| Ok(Value::strings(strslice(call, arg(args, 0))?)));
    f.add("sortAlpha", &[ANY], None, |call, args| {
        let Value::List(_) = arg(args, 0) else {
            return Ok(Value::strings([strval(call, arg(args, 0))?]));
        };
        let mut items = strslice(call, arg(args, 0))?;
        items.sort();
        Ok(Value::strings(items))
    });
}

fn quote<'a>(call: &Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let mut out = call.text();
    for value in args.iter().filter(|v| !matches!(v, Value::Nil | Value::Null)) {
        let s = strval(call, value)?;
        out.plain(if out.is_empty() { "\"" } else { " \"" })?;
        out.derived(&escape(s.as_str(), '"', false), &s)?;
        out.plain("\"")?;
    }
    Ok(Value::Str(out.finish()))
}

fn squote<'a>(call: &Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let mut out = call.text();
    for value in args.iter().filter(|v| !matches!(v, Value::Nil | Value::Null)) {
        out.plain(if out.is_empty() { "'" } else { " '" })?;
        out.push(&strval(call, value)?)?;
        out.plain("'")?;
    }
    Ok(Value::Str(out.finish()))
}

fn trim_all<'a>(args: &[Value<'a>]) -> ValueResult<'a> {
    let (cutset, s) = (text(args, 0)?, text(args, 1)?);
    Ok(Value::Str(s.part(s.as_str().trim_matches(|c| cutset.as_str().contains(c)))))
}

/// Counts bytes, as Go does; a character that would be cut in half goes.
fn trunc<'a>(args: &[Value<'a>]) -> ValueResult<'a> {
    let s = text(args, 1)?;
    let (count, length) = (int(args, 0), s.as_str().len());
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    Ok(Value::Str(if count < 0 && wanted < length {
        s.slice(length - wanted, length)
    } else if count >= 0 {
        s.slice(0, wanted)
    } else {
        s.clone()
    }))
}

fn substr<'a>(args: &[Value<'a>]) -> ValueResult<'a> {
    let s = text(args, 2)?;
    let length = s.as_str().len();
    let (start, end) = (usize::try_from(int(args, 0)), usize::try_from(int(args, 1)));
    let (start, end) = match (start, end) {
        (Err(_), Ok(end)) => (0, end),
        (Ok(start), Ok(end)) if end <= length => (start, end),
        (Ok(start), _) => (start, length),
        (Err(_), Err(_)) => return Err("slice bounds out of range".to_owned()),
    };
    if start > end || end > length {
        return Err(format!("slice bounds out of range [{start}:{end}] with length {length}"));
    }
    Ok(Value::Str(s.slice(start, end)))
}

fn repeat<'a>(call: &mut Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let (count, s) = (size(args, 0, "the repeat count")?, text(args, 1)?);
    call.spend(s.as_str().len().max(1).saturating_mul(count))?;
    made(s.as_str().repeat(count), s)
}

fn cat<'a>(call: &mut Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let mut out = call.text();
    let mut first = true;
    for value in args.iter().filter(|v| !matches!(v, Value::Nil | Value::Null)) {
        out.plain(if first { "" } else { " " })?;
        first = false;
        out.push(&strval(call, value)?)?;
    }
    Ok(Value::Str(out.finish()))
}

fn indent<'a>(call: &mut Call<'_>, args: &[Value<'a>], before: &str) -> ValueResult<'a> {
    let (width, s) = (size(args, 0, "the indentation")?, text(args, 1)?);
    let lines = s.as_str().matches('\n').count() + 1;
    call.spend(lines.saturating_mul(width))?;
    let pad = " ".repeat(width);
    let mut out = call.text();
    out.plain(before)?;
    for (i, line) in s.as_str().split('\n').enumerate() {
        out.plain(if i > 0 { "\n" } else { "" })?;
        out.plain(&pad)?;
        out.push(&s.part(line))?;
    }
    Ok(Value::Str(out.finish()))
}

fn replace<'a>(call: &mut Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let (old, new, s) = (text(args, 0)?, text(args, 1)?, text(args, 2)?);
    let times = s.as_str().matches(old.as_str()).count();
    call.spend(times.saturating_mul(new.as_str().len()).saturating_add(s.as_str().len()))?;
    Ok(Value::Str(Str::derived(s.as_str().replace(old.as_str(), new.as_str()), &[s, new])))
}

/// sprig's idea of a list of strings: nil elements are skipped, a scalar is a list of one.
pub(crate) fn strslice<'a>(call: &Call<'_>, value: &Value<'a>) -> Result<Vec<Str<'a>>, String> {
    match value {
        Value::Nil | Value::Null => Ok(Vec::new()),
        Value::List(list) => list
            .to_vec()
            .iter()
            .filter(|item| !matches!(item, Value::Nil | Value::Null))
            .map(|item| strval(call, item))
            .collect(),
        other => Ok(vec![strval(call, other)?]),
    }
}

fn join<'a>(call: &mut Call<'_>, args: &[Value<'a>]) -> ValueResult<'a> {
    let separator = text(args, 0)?;
    let mut out: TextBuilder<'a> = call.text();
    for (i, item) in strslice(call, arg(args, 1))?.iter().enumerate() {
        if i > 0 {
            out.push(separator)?;
        }
        out.push(item)?;
    }
    Ok(Value::Str(out.finish()))
}

/// Go's `strings.SplitN`: an empty separator splits into characters.
fn pieces<'a>(
    call: &mut Call<'_>,
    s: &Str<'a>,
    separator: &str,
    limit: Option<i64>,
) -> Result<Vec<Str<'a>>, String> {
    call.spend(s.as_str().len().saturating_mul(8))?;
    let whole = s.as_str();
    let limit = match limit {
        Some(0) => return Ok(Vec::new()),
        Some(n) => usize::try_from(n).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    if !separator.is_empty() {
        return Ok(whole.splitn(limit, separator).map(|part| s.part(part)).collect());
    }
    let mut parts = Vec::new();
    for (at, c) in whole.char_indices() {
        if parts.len() + 1 == limit {
            parts.push(s.slice(at, whole.len()));
            break;
        }
        parts.push(s.slice(at, at + c.len_utf8()));
    }
    Ok(parts)
}

fn split<'a>(call: &mut Call<'_>, args: &[Value<'a>], at: usize, limit: Option<i64>) -> ValueResult<'a> {
    let (separator, s) = (text(args, 0)?, text(args, at)?);
    let parts = pieces(call, s, separator.as_str(), limit)?;
    let entries =
        parts.into_iter().enumerate().map(|(i, part)| (Str::from(format!("_{i}")), Value::Str(part)));
    Ok(Value::map_of(entries.collect::<BTreeMap<_, _>>(), "string"))
}
