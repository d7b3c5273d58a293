//! Values: reading, merging, and which of them the built-in templates read.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::LazyLock;

use regex_lite::Regex;
use serde_json::{Value, json};

use super::builtin;
use super::error::{ConfigError, Problem};
use super::source::Source;
use crate::yaml;

/// The name of `--set` as a source.
pub(super) const SET: &str = "--set";

/// What the program itself reads, not the templates.
const OTHERS: [&str; 7] = [
    "global.hub",
    "global.tag",
    "global.variant",
    "global.proxy.image",
    "global.proxy_init.image",
    "sidecarInjectorWebhook.rewriteAppHTTPProbe",
    "sidecarInjectorWebhook.enableNamespacesByDefault",
];

/// The paths that the built-in templates read.
static READ: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let paths = Regex::new(r"\.Values\.([\w.]+)").ok();
    let found = paths.iter().flat_map(|paths| paths.captures_iter(builtin::CONFIG));
    let found = found.filter_map(|found| found.get(1)).map(|path| path.as_str());
    found.chain(OTHERS).chain(["pilot.env"]).collect()
});

/// Reads a map of values.
pub(super) fn read(source: &Source) -> Result<Value, ConfigError> {
    let value = yaml::read(&source.text)
        .map_err(|error| ConfigError::new(&source.name, "", Problem::Yaml(Box::new(error))))?;
    match value {
        Value::Object(_) => Ok(value),
        Value::Null => Ok(Value::Object(serde_json::Map::new())),
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(ConfigError::new(&source.name, "", Problem::WrongType("a map of values")))
        }
    }
}

/// What null does to the value below it.
#[derive(Clone, Copy, PartialEq)]
enum Null {
    /// Nothing, as in a values file.
    Absent,
    /// Replaces it, as one `--set` does to another.
    Replaces,
    /// Deletes it, as `--set` does to the values of files (Helm).
    Deletes,
}

/// Merges values: maps by key, everything else as a whole.
fn merge(below: Value, given: Value, null: Null) -> Value {
    match (below, given) {
        (below, Value::Null) if null == Null::Absent => below,
        (Value::Object(mut below), Value::Object(given)) => {
            for (key, value) in given {
                if value.is_null() && null == Null::Deletes {
                    below.shift_remove(&key);
                    continue;
                }
                let old = below.get_mut(&key).map(Value::take).unwrap_or_default();
                below.insert(key, merge(old, value, null));
            }
            Value::Object(below)
        }
        (_, given) => given,
    }
}

/// Where values come from: a file or ConfigMap, and `--set` over it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ValuesFrom {
    pub(super) file: String,
    pub(super) set: Value,
}

impl ValuesFrom {
    /// The source of the value at a path: `global.tag`.
    #[must_use]
    pub fn of(&self, path: &str) -> &str {
        let mut at = &self.set;
        for key in path.split('.') {
            match at.get(key) {
                None => return &self.file,
                Some(below) => at = below,
            }
            if !at.is_object() {
                break;
            }
        }
        SET
    }

    /// The source of the first value that an expression of a template reads: `eq .Values.global.tag "x"`.
    #[must_use]
    pub fn of_expression(&self, expression: &str) -> Option<&str> {
        let (_, path) = expression.split_once(".Values")?;
        let end = path.find(|c: char| !c.is_alphanumeric() && !matches!(c, '.' | '_')).unwrap_or(path.len());
        Some(self.of(path.get(..end).unwrap_or_default().trim_matches('.')))
    }

    pub(super) fn merge_file(&self, below: Value, given: Value, problems: &mut Vec<ConfigError>) -> Value {
        replaced_maps(&below, &given, "", &mut |path| {
            problems.push(ConfigError::new(&self.file, path, Problem::WrongType("a map of values")));
        });
        merge(below, given, Null::Absent)
    }

    pub(super) fn merge_set(&self, below: Value, set: Value, problems: &mut Vec<ConfigError>) -> Value {
        replaced_maps(&below, &set, "", &mut |path| {
            let problem = Problem::WrongType("a key below it, as the values have: KEY.KEY=VALUE");
            problems.push(ConfigError::new(SET, path, problem));
        });
        if set.is_null() { below } else { merge(below, set, Null::Deletes) }
    }

    /// The path of the first value of `--set` that is this text or number.
    #[must_use]
    pub fn set_path_of(&self, text: &str) -> Option<String> {
        first_path(&self.set, "", &|_, value| match value {
            Value::String(held) => held == text,
            Value::Number(held) => held.to_string() == text,
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
        })
    }

    /// The path of the first value of `--set` whose last key is this.
    pub(crate) fn set_path_with(&self, last: &str) -> Option<String> {
        first_path(&self.set, "", &|key, _| key == last)
    }
}

/// The path of the first value that is wanted, by its own key and its content.
fn first_path(value: &Value, path: &str, wanted: &dyn Fn(&str, &Value) -> bool) -> Option<String> {
    value.as_object()?.iter().find_map(|(key, value)| {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if wanted(key, value) { Some(path) } else { first_path(value, &path, wanted) }
    })
}

/// The paths at which something else replaces a map with content: templates that read below it fail. Helm
/// warns of it (`cannot overwrite table with non table`).
fn replaced_maps(below: &Value, given: &Value, path: &str, found: &mut dyn FnMut(String)) {
    let Some(old) = below.as_object().filter(|old| !old.is_empty()) else { return };
    match given {
        Value::Null => {}
        Value::Object(given) => {
            for (key, value) in given {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                replaced_maps(old.get(key).unwrap_or(&Value::Null), value, &path, found);
            }
        }
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => found(path.to_owned()),
    }
}

/// Values that the built-in templates do not read, each as a sentence. A problem is added for each that is a
/// known one, misspelt, or no boolean where one is expected. What is empty or as it is built in has no effect
/// to miss, but is refused if it is misspelt: `false` may be meant to replace a `true`.
pub(super) fn unsupported(source: &str, given: &Value, problems: &mut Vec<ConfigError>) -> Vec<String> {
    let known = yaml::read(builtin::VALUES).unwrap_or_default();
    let mut found = Vec::new();
    unread(given, &known, "", &mut found);
    not_boolean(given, &known, "", &mut |path| {
        problems.push(ConfigError::new(source, path, Problem::WrongType("true or false")));
    });
    let mut warnings = Vec::new();
    for (path, empty) in found {
        match misspelt(&path, &known) {
            Some(meant) => problems.push(ConfigError::new(source, path, Problem::Misspelt(meant))),
            None if empty => {}
            None => {
                warnings.push(format!("{source}: {path}: not supported by the built-in template, ignored"))
            }
        }
    }
    warnings
}

/// The paths of what is not a boolean where the built-in value is one.
fn not_boolean(given: &Value, known: &Value, path: &str, found: &mut dyn FnMut(String)) {
    for (key, value) in given.as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match known.get(key) {
            Some(Value::Bool(_)) if !value.is_boolean() && !value.is_null() => found(path),
            Some(known) => not_boolean(value, known, &path, found),
            None => {}
        }
    }
}

/// The paths of what is not read, each with whether its value is empty.
fn unread(given: &Value, known: &Value, path: &str, found: &mut Vec<(String, bool)>) {
    for (key, value) in given.as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let builtin = known.get(key).unwrap_or(&Value::Null);
        if READ.contains(path.as_str()) || (known.get(key) == Some(value)) {
            continue;
        }
        let below = format!("{path}.");
        let has_keys = builtin.as_object().is_some_and(|map| !map.is_empty());
        if value.is_object() && (has_keys || READ.iter().any(|read| read.starts_with(&below))) {
            unread(value, builtin, &path, found);
        } else {
            found.push((path, is_empty(value)));
        }
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_empty),
        Value::Object(map) => map.values().all(is_empty),
    }
}

/// What a path with an unknown last key most likely means: a key of the same map that is a letter off (two in
/// a long one), otherwise the path of a key elsewhere that is one letter off.
fn misspelt(path: &str, known: &Value) -> Option<String> {
    let (parent, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut all = READ.iter().flat_map(|path| ancestors(path)).map(str::to_owned).collect::<BTreeSet<_>>();
    paths(known, "", &mut all);
    let all: Vec<_> = all.iter().map(|path| path.rsplit_once('.').unwrap_or(("", path))).collect();
    if key.len() < 2 || all.iter().any(|(_, last)| *last == key) {
        return None;
    }
    let most = if key.len() < 8 { 1 } else { 2 };
    let beside = all.iter().filter(|(map, _)| *map == parent);
    let beside = beside.map(|(_, last)| (strsim::osa_distance(last, key), *last));
    if let Some((_, last)) = beside.filter(|(distance, _)| *distance <= most).min() {
        return Some(last.to_owned());
    }
    let elsewhere = all.iter().find(|(_, last)| key.len() >= 4 && strsim::osa_distance(last, key) == 1);
    elsewhere.map(|(map, last)| if map.is_empty() { (*last).to_owned() } else { format!("{map}.{last}") })
}

/// A path, and those of the maps that it is in.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| path.rsplit_once('.').map(|(map, _)| map))
}

/// The paths of all keys.
fn paths(value: &Value, path: &str, found: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        paths(value, &path, found);
        found.insert(path);
    }
}

/// Values in the syntax of Helm's `--set`: `global.tag=1.28.0,global.imagePullSecrets={a,b}`. A backslash
/// takes the meaning from the character behind it; `true`, `false`, `null` and whole numbers have their
/// types.
#[derive(Clone, Debug, PartialEq)]
pub struct SetValues(pub Value);

/// A text that is not in that syntax.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?}: expected KEY.KEY=VALUE, several with a comma between; for a list KEY={{A,B}}, not KEY[0]")]
pub struct InvalidSet(String);

impl SetValues {
    /// Several `--set` as one map, later ones over earlier ones, and the init container's image over all.
    #[must_use]
    pub fn merged(all: &[Self], init_image: Option<&str>) -> Value {
        let set =
            all.iter().map(|set| set.0.clone()).fold(Value::Null, |all, set| merge(all, set, Null::Replaces));
        // A value in the place of one of these maps stays, and is refused where the values are read.
        let is_scalar =
            |path: &str| set.pointer(path).is_some_and(|value| !value.is_object() && !value.is_null());
        match init_image {
            Some(image) if !["/global", "/global/proxy_init"].into_iter().any(is_scalar) => {
                merge(set, json!({"global": {"proxy_init": {"image": image}}}), Null::Replaces)
            }
            Some(_) | None => set,
        }
    }
}

impl FromStr for SetValues {
    type Err = InvalidSet;

    fn from_str(text: &str) -> Result<Self, InvalidSet> {
        let mut all = json!({});
        for entry in split(text, ',') {
            let (path, value) = entry.split_once('=').ok_or_else(|| InvalidSet(entry.clone()))?;
            let keys = split(path, '.');
            if keys.iter().any(|key| key.is_empty() || key.contains(['[', ']'])) {
                return Err(InvalidSet(entry.clone()));
            }
            let items = value.strip_prefix('{').and_then(|items| items.strip_suffix('}'));
            let value = match items {
                Some("") => json!([]),
                Some(items) => split(items, ',').iter().map(|item| scalar(item)).collect(),
                None => scalar(value),
            };
            let nested = keys.iter().rev().fold(value, |value, key| json!({plain(key): value}));
            all = merge(all, nested, Null::Replaces);
        }
        Ok(Self(all))
    }
}

/// The parts between separators, except those in braces or behind a backslash.
fn split(text: &str, separator: char) -> Vec<String> {
    let (mut parts, mut depth, mut escaped) = (vec![String::new()], 0_u32, false);
    for c in text.chars() {
        match c {
            _ if escaped => {}
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == separator && depth == 0 && !escaped {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts
}

fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        plain.extend(if c == '\\' { characters.next() } else { Some(c) });
    }
    plain
}

fn scalar(text: &str) -> Value {
    match text {
        "true" => json!(true),
        "false" => json!(false),
        "null" => Value::Null,
        "0" => json!(0),
        // A number with a zero before it is text, as in Helm.
        _ if text.starts_with('0') => json!(plain(text)),
        _ => text.parse::<i64>().map_or_else(|_| json!(plain(text)), |number| json!(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_has_the_syntax_of_helm() {
        for (text, expected) in [
            ("a=b", json!({"a": "b"})),
            ("a.b=1,a.c=true,d=", json!({"a": {"b": 1, "c": true}, "d": ""})),
            ("a={x,2},b={}", json!({"a": ["x", 2], "b": []})),
            (r"a\.b.c=d\,e=f", json!({"a.b": {"c": "d,e=f"}})),
            ("a=01,b=-1,c=1.28", json!({"a": "01", "b": -1, "c": "1.28"})),
        ] {
            assert_eq!(text.parse::<SetValues>(), Ok(SetValues(expected)), "{text}");
        }
        for bad in ["", "a", "=b", "a..b=c", "a[0]=b", "a=b,c"] {
            assert!(
                bad.parse::<SetValues>().unwrap_err().to_string().contains("expected KEY.KEY=VALUE"),
                "{bad}"
            );
        }
    }
}
