//! Slash-separated paths and URLs.

use super::dicts::map;
use super::{DICT, STR, ValueResult, add_changes, text};
use crate::functions::Functions;
use crate::value::Value;
use crate::value::text::Str;
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

pub(crate) fn register(f: &mut Functions) {
    add_changes(f, [("base", base), ("dir", dir), ("clean", clean), ("ext", ext)]);
    add_changes(f, [("osBase", base), ("osDir", dir), ("osClean", clean), ("osExt", ext)]);
    for name in ["isAbs", "osIsAbs"] {
        f.add(name, &[STR], None, |_, args| Ok(Value::Bool(text(args, 0)?.as_str().starts_with('/'))));
    }
    f.add("urlParse", &[STR], None, |_, args| url_parse(text(args, 0)?));
    f.add("urlJoin", &[DICT], None, |_, args| url_join(args));
}

fn base(path: &str) -> String {
    if path.is_empty() {
        return ".".into();
    }
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() {
        return "/".into();
    }
    trimmed.rsplit('/').next().unwrap_or_default().into()
}

fn dir(path: &str) -> String {
    clean(path.rfind('/').map_or("", |at| path.get(..=at).unwrap_or_default()))
}

fn ext(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.rfind('.').map_or_else(String::new, |at| name.get(at..).unwrap_or_default().into())
}

fn clean(path: &str) -> String {
    path_clean::clean(path).to_string_lossy().into_owned()
}

fn url_parse<'a>(s: &Str<'a>) -> ValueResult<'a> {
    let mut rest = s.as_str();
    if rest.chars().any(|c| c.is_ascii_control()) {
        return Err("unable to parse url: invalid control character in URL".to_owned());
    }
    check_escapes(rest)?;
    let fragment = cut_back(&mut rest, '#');
    let query = cut_back(&mut rest, '?');
    let scheme = rest.split_once(':').filter(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
    });
    let (scheme, rest) = scheme.map_or((String::new(), rest), |(scheme, rest)| (scheme.to_lowercase(), rest));
    if scheme.is_empty() && rest.starts_with(':') {
        return Err("unable to parse url: missing protocol scheme".to_owned());
    }
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    let is_opaque = !scheme.is_empty() && !rest.starts_with('/') && !rest.is_empty();
    let (userinfo, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let hostname = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let parts = [
        ("scheme", scheme.as_str()),
        ("host", host),
        ("hostname", hostname),
        ("path", if is_opaque { "" } else { path }),
        ("query", query),
        ("opaque", if is_opaque { rest } else { "" }),
        ("fragment", fragment),
        ("userinfo", userinfo),
    ];
    let decoded = |name: &str, part: &str| {
        if matches!(name, "path" | "fragment") {
            percent_decode_str(part).decode_utf8_lossy().into_owned()
        } else {
            part.to_owned()
        }
    };
    let entries = parts.into_iter().map(|(name, part)| {
        (Str::from(name.to_owned()), Value::Str(Str::derived(decoded(name, part), &[s])))
    });
    Ok(Value::dict(entries.collect::<BTreeMap<_, _>>()))
}

/// Every `%` precedes two hexadecimal digits.
fn check_escapes(rest: &str) -> Result<(), String> {
    let is_bad = |after: &str| !after.get(..2).is_some_and(|d| d.chars().all(|c| c.is_ascii_hexdigit()));
    if let Some(bad) = rest.split('%').skip(1).find(|after| is_bad(after)) {
        let bad: String = bad.chars().take(2).collect();
        return Err(format!("unable to parse url: parse {rest:?}: invalid URL escape \"%{bad}\""));
    }
    Ok(())
}

/// Cuts `text` at the first `mark` and returns what follows it.
fn cut_back<'t>(text: &mut &'t str, mark: char) -> &'t str {
    let (before, after) = text.split_once(mark).unwrap_or((text, ""));
    *text = before;
    after
}

fn url_join<'a>(args: &[Value<'a>]) -> ValueResult<'a> {
    let dict = map(args, 0)?;
    let part = |key: &str| match dict.get(key) {
        None => Ok(Str::borrowed("")),
        Some(Value::Str(s)) => Ok(s),
        Some(other) => Err(format!(
            "unable to parse {key} key, must be of type string, but {} found",
            super::kind(&other)
        )),
    };
    let all = [
        part("scheme")?,
        part("userinfo")?,
        part("host")?,
        part("path")?,
        part("query")?,
        part("opaque")?,
        part("fragment")?,
    ];
    let [scheme, userinfo, host, path, query, opaque, fragment] = &all;
    let mut out = String::new();
    if !scheme.as_str().is_empty() {
        out.push_str(scheme.as_str());
        out.push(':');
    }
    if opaque.as_str().is_empty() {
        if !(scheme.as_str().is_empty() && host.as_str().is_empty() && userinfo.as_str().is_empty()) {
            if !host.as_str().is_empty() || !path.as_str().is_empty() || !userinfo.as_str().is_empty() {
                out.push_str("//");
            }
            if !userinfo.as_str().is_empty() {
                out.push_str(userinfo.as_str());
                out.push('@');
            }
            out.push_str(host.as_str());
        }
        if !path.as_str().is_empty() && !path.as_str().starts_with('/') && !host.as_str().is_empty() {
            out.push('/');
        }
        out.push_str(&path.as_str().replace(' ', "%20"));
    } else {
        out.push_str(opaque.as_str());
    }
    for (mark, part) in [('?', query), ('#', fragment)] {
        if !part.as_str().is_empty() {
            out.push(mark);
            out.push_str(part.as_str());
        }
    }
    let sources: Vec<&Str<'a>> = all.iter().collect();
    Ok(Value::Str(Str::derived(out, &sources)))
}
