//! JSON objects as libcni reads them, which is written in Go: of a key that is repeated the last value counts; a field of a struct is
//! found whatever the case of its key, and `null` leaves it as it is.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::Invalid;

/// Keys and values, in the order in which they are read.
#[derive(Debug)]
pub(super) struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Object<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, Invalid> {
        serde_json::from_str(text).map_err(|error| Invalid::new(error.to_string()))
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

    /// As a map that is written again: each key once, sorted.
    pub(super) fn as_map(&self) -> Self {
        let map: BTreeMap<&String, &'a RawValue> = self.0.iter().map(|(key, value)| (key, *value)).collect();
        Self(map.into_iter().map(|(key, value)| (key.clone(), value)).collect())
    }

    /// The values of a field of a struct, each of which has to be of its type.
    pub(super) fn values<T: DeserializeOwned>(&self, field: &str, kind: &str) -> Result<Vec<T>, Invalid> {
        let named = self.0.iter().filter(|(key, _)| key.eq_ignore_ascii_case(field));
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
