//! JSON objects as libcni reads them, which is written in Go: of a key that is repeated the last value
//! counts; a field of a struct is found whatever the case of its key, and `null` leaves it as it is.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Invalid;
use crate::go_json;

const NO_OBJECT: &str = "not a JSON object";

/// Of keys that libcni reads since 1.2 or 1.3.
const EARLIER: &str = "with which earlier versions of libcni load the file: correct it, or remove the file";

/// Keys and values, in the order in which they are read.
#[derive(Debug)]
pub(super) struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Parses the whole text of a file, without lone surrogates.
    pub(super) fn of_file(text: &'a str) -> Result<Self, Invalid> {
        let object = match text.trim_start().chars().next() {
            None => return Err(Invalid::new("empty")),
            Some('{') => serde_json::from_str(text).map_err(|error| Invalid::new(error.to_string()))?,
            Some(_) => return Err(Invalid::new(NO_OBJECT)),
        };
        go_json::require(text).map_err(Invalid::new)?;
        Ok(object)
    }

    /// Parses a value of such a text, whose limits are checked already.
    pub(super) fn parse(text: &'a str) -> Result<Self, Invalid> {
        serde_json::from_str(text).map_err(|_| Invalid::new(NO_OBJECT))
    }

    /// The value of a key of a map.
    pub(super) fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// The text of a key of a map.
    pub(super) fn string(&self, key: &str) -> Result<Option<String>, Invalid> {
        let read = self.get(key).map(|value| serde_json::from_str(value.get()));
        read.transpose().map_err(|_| Invalid::new(format!("{key}: not a string")))
    }

    /// The value of a boolean key of a list, which may be a string.
    pub(super) fn flag(&self, key: &str) -> Result<bool, Invalid> {
        let Some(value) = self.get(key).map(RawValue::get) else { return Ok(false) };
        let text: String = serde_json::from_str(value).unwrap_or_default();
        match serde_json::from_str(value).ok() {
            Some(flag) => Ok(flag),
            None if text.eq_ignore_ascii_case("true") => Ok(true),
            None if text.eq_ignore_ascii_case("false") => Ok(false),
            None => {
                let problem = format!("{key}: {value} is not accepted, expected true or false");
                Err(if key == "disableCheck" {
                    Invalid::new(problem)
                } else {
                    Invalid::used(problem, EARLIER)
                })
            }
        }
    }

    /// The key `cniVersions` of a list.
    pub(super) fn versions(&self) -> Result<Vec<String>, Invalid> {
        const KEY: &str = "cniVersions";
        let Some(value) = self.get(KEY).map(RawValue::get) else { return Ok(Vec::new()) };
        let is_version = |text: &String| {
            text.split('.').count() <= 3 && text.split('.').all(|part| part.parse::<i64>().is_ok())
        };
        let versions: Option<Vec<String>> = serde_json::from_str(value).ok();
        versions.filter(|versions| versions.iter().all(is_version)).ok_or_else(|| {
            Invalid::used(format!("{KEY}: {value} is not accepted, expected a list of versions"), EARLIER)
        })
    }

    /// As a map that is written again: each key once, sorted.
    pub(super) fn as_map(&self) -> Self {
        let map: BTreeMap<&String, &'a RawValue> = self.0.iter().map(|(key, value)| (key, *value)).collect();
        Self(map.into_iter().map(|(key, value)| (key.clone(), value)).collect())
    }

    /// The values of a field of a struct, each of which has to be of its type.
    pub(super) fn values<T: DeserializeOwned>(&self, field: &str, kind: &str) -> Result<Vec<T>, Invalid> {
        let named = self.0.iter().filter(|(key, _)| go_json::is_field(key, field));
        let set = named.filter(|(_, value)| value.get() != "null");
        let read = set.map(|(_, value)| serde_json::from_str(value.get()));
        read.collect::<Result<_, _>>().map_err(|_| Invalid::new(format!("{field}: not {kind}")))
    }

    /// The text of a field of a struct.
    pub(super) fn text(&self, field: &str) -> Result<Option<String>, Invalid> {
        Ok(self.values(field, "a string")?.pop())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Object<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Vec<(String, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(pairs)
            }
        }
        deserializer.deserialize_map(Pairs).map(Self)
    }
}

fn of_field<'a>(field: &str, value: &'a RawValue) -> Result<Object<'a>, Invalid> {
    Object::parse(value.get()).map_err(|error| Invalid::new(format!("{field}: {error}")))
}

/// Refuses what has fields that libcni cannot read.
pub(super) fn require_fields(plugin: &Object<'_>) -> Result<(), Invalid> {
    type Texts = Option<Vec<Option<String>>>;
    for field in ["cniVersion", "name", "type"] {
        plugin.text(field)?;
    }
    plugin.values::<BTreeMap<String, Option<bool>>>("capabilities", "an object of booleans")?;
    for result in plugin.values::<Box<RawValue>>("prevResult", "an object")? {
        of_field("prevResult", &result)?;
    }
    for ipam in plugin.values::<Box<RawValue>>("ipam", "an object")? {
        of_field("ipam", &ipam)?.text("type")?;
    }
    for dns in plugin.values::<Box<RawValue>>("dns", "an object")? {
        let dns = of_field("dns", &dns)?;
        dns.text("domain")?;
        for field in ["nameservers", "search", "options"] {
            dns.values::<Texts>(field, "a list of strings")?;
        }
    }
    Ok(())
}
