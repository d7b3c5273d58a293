//! The config file into [`RawOptions`]: one JSON object, keys as on the command line.

use std::fmt;

use clap::error::{ContextKind, ContextValue};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::command::command;
use super::error::UsageError;
use super::options::Key;
use super::raw::{OptionValue, Origin, RawOptions};
use super::spec::Kind;

/// The members of an object in their order, duplicates too: a map would drop them silently.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one JSON object whose keys are long flag names")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// Adds the values of the document; existing values take precedence. `source` is its name in errors.
pub(super) fn read(source: &str, text: &str, raw: &mut RawOptions, errors: &mut Vec<UsageError>) {
    let mut complain = |problem: String| {
        errors.push(UsageError::Document { source: source.to_owned(), problem });
    };
    if text.trim().is_empty() {
        return complain("it is empty; expected one JSON object whose keys are long flag names".to_owned());
    }
    let Members(members) = match serde_json::from_str(text) {
        Ok(members) => members,
        Err(error) if error.is_data() => return complain(error.to_string()),
        Err(error) => {
            return complain(format!("{error}; expected one JSON object whose keys are long flag names"));
        }
    };
    let mut seen = Vec::new();
    for (name, value) in members {
        let Some(key) = Key::by_name(&name) else {
            let hint = similar(&name).map_or_else(
                || {
                    "keys are the long flag names without dashes, or the variable's name where there is no flag"
                        .to_owned()
                },
                |key| format!("did you mean {}?", key.spec().name),
            );
            complain(format!("unknown key {name:?}; {hint}"));
            continue;
        };
        if key == Key::Config {
            complain("a config file cannot name another one (key \"config\")".to_owned());
        } else if seen.contains(&key) {
            complain(format!("the key {name:?} is given twice"));
        } else {
            seen.push(key);
            match text_of(key.spec().kind, &value) {
                Ok(text) => raw.set_if_stronger(key, OptionValue { text, origin: Origin::Document(key) }),
                Err(expected) => {
                    complain(format!("the value of {name:?} is {}; expected {expected}", shown(&value)))
                }
            }
        }
    }
}

/// The key whose flag the parser of the command line takes to be meant.
fn similar(name: &str) -> Option<Key> {
    let error = command().try_get_matches_from(["istio-iptables".to_owned(), format!("--{name}")]).err()?;
    let ContextValue::String(flag) = error.get(ContextKind::SuggestedArg)? else { return None };
    Key::by_name(flag.trim_start_matches('-'))
}

/// The text that a flag would have had, or what would have been right.
fn text_of(kind: Kind, value: &Value) -> Result<String, &'static str> {
    match (kind, value) {
        (_, Value::String(text)) => Ok(text.clone()),
        (Kind::Boolean, Value::Bool(truth)) => Ok(truth.to_string()),
        (Kind::Number | Kind::List, Value::Number(number)) => Ok(number.to_string()),
        (Kind::List, Value::Array(items)) => items
            .iter()
            .map(|item| match item {
                Value::String(text) => Ok(text.clone()),
                Value::Number(number) => Ok(number.to_string()),
                Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                    Err("a list of strings and numbers")
                }
            })
            .collect::<Result<Vec<_>, _>>()
            .map(|items| items.join(",")),
        (Kind::Boolean, _) => Err("true or false"),
        (Kind::List, _) => Err("a list, or a string with commas"),
        (Kind::Number, _) => Err("a number"),
        (Kind::Text, _) => Err("a string"),
    }
}

/// A value in an error, truncated to a readable length.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
