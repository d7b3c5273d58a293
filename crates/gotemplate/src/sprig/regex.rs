//! Regular expressions: linear time, as Go's; Unicode classes such as `\p{L}` are not known.

use super::{INT, STR, ValueResult, int, made, text};
use crate::functions::{Call, Functions};
use crate::value::Value;
use crate::value::text::Str;
use regex_lite::{Regex, RegexBuilder};

type Body = for<'a> fn(&mut Call<'_>, &Regex, &[Value<'a>]) -> ValueResult<'a>;

pub(crate) fn register(f: &mut Functions) {
    let functions: [(&str, &str, bool, Body); 6] = [
        ("regexMatch", "mustRegexMatch", false, |_, re, args| {
            Ok(Value::Bool(re.is_match(text(args, 1)?.as_str())))
        }),
        ("regexFind", "mustRegexFind", false, |_, re, args| {
            let s = text(args, 1)?;
            let found = re.find(s.as_str());
            Ok(Value::Str(found.map_or(Str::borrowed(""), |m| s.slice(m.start(), m.end()))))
        }),
        ("regexFindAll", "mustRegexFindAll", true, |call, re, args| {
            let s = text(args, 1)?;
            call.spend(s.as_str().len().saturating_mul(64))?;
            let count = usize::try_from(int(args, 2)).unwrap_or(usize::MAX);
            let found = re.find_iter(s.as_str()).take(count).map(|m| s.slice(m.start(), m.end()));
            Ok(Value::strings(found.collect::<Vec<_>>()))
        }),
        ("regexReplaceAll", "mustRegexReplaceAll", false, |call, re, args| replace(call, re, args, false)),
        ("regexReplaceAllLiteral", "mustRegexReplaceAllLiteral", false, |call, re, args| {
            replace(call, re, args, true)
        }),
        ("regexSplit", "mustRegexSplit", true, split),
    ];
    for (name, must, counts, body) in functions {
        for name in [name, must] {
            add(f, name, counts, body);
        }
    }
}

/// Compiles the pattern, the first argument, in front of `body`.
fn add(f: &mut Functions, name: &str, counts: bool, body: Body) {
    let last = if name.contains("Replace") { Some(STR) } else { counts.then_some(INT) };
    let params: Vec<_> = [STR, STR].into_iter().chain(last).collect();
    let lenient = name == "regexMatch";
    f.add(name, &params, None, move |call, args| {
        let pattern = text(args, 0)?.as_str();
        // A short pattern with repetitions can be a big machine, which looks at every byte.
        let machine = if pattern.contains('{') { 256 } else { pattern.len() };
        let bytes = text(args, 1)?.as_str().len();
        call.work(pattern.len().saturating_add(bytes.saturating_mul(machine)) / 64)?;
        match RegexBuilder::new(pattern).size_limit(1 << 18).nest_limit(50).build() {
            Ok(re) => body(call, &re, args),
            Err(_) if lenient => Ok(Value::Bool(false)),
            Err(error) => Err(format!("error parsing regexp {pattern:?}: {error}")),
        }
    });
}

fn replace<'a>(call: &mut Call<'_>, re: &Regex, args: &[Value<'a>], literal: bool) -> ValueResult<'a> {
    let (s, new) = (text(args, 1)?, text(args, 2)?);
    let hits = re.find_iter(s.as_str()).count();
    let each = new.as_str().len().saturating_add(if literal { 0 } else { s.as_str().len() });
    call.spend(hits.saturating_mul(each))?;
    let result = if literal {
        re.replace_all(s.as_str(), regex_lite::NoExpand(new.as_str()))
    } else {
        re.replace_all(s.as_str(), new.as_str())
    };
    made(result, s).map(|value| match value {
        Value::Str(result) => Value::Str(Str::derived(result.as_str(), &[s, new])),
        other => other,
    })
}

/// Go's `Split`: at most `n` pieces, the last one takes the rest.
fn split<'a>(call: &mut Call<'_>, re: &Regex, args: &[Value<'a>]) -> ValueResult<'a> {
    let s = text(args, 1)?;
    let whole = s.as_str();
    let Some(limit) = Some(int(args, 2)).filter(|n| *n != 0) else {
        return Ok(Value::strings([]));
    };
    call.spend(whole.len().saturating_mul(64))?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    let (mut start, mut end) = (0, 0);
    for found in re.find_iter(whole) {
        if parts.len() + 1 == limit {
            break;
        }
        end = found.start();
        if found.end() != 0 {
            parts.push(s.slice(start, end));
        }
        start = found.end();
    }
    if end != whole.len() || parts.is_empty() {
        parts.push(s.slice(start, whole.len()));
    }
    Ok(Value::strings(parts))
}
