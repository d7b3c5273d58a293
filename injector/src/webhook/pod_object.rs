//! `request.object`: how much of it is accepted, and how it is read.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// The body limit: the largest request body, in bytes. Objects in etcd are smaller.
pub const MAX_BODY_BYTES: usize = 6 << 20;
/// The longest uid, in bytes: it is part of each response. Those of Kubernetes have 36.
pub(crate) const MAX_UID_BYTES: usize = 256;
/// The most values of a pod: maps, lists and their items. A value takes up to 1.5 KB during the injection.
/// Pods that fit into etcd have fewer.
pub(crate) const MAX_POD_VALUES: usize = 50_000;

const MANAGED_FIELDS: &str = "managedFields";

/// Reads an object without `metadata.managedFields`, which neither templates nor the patch use (as in Istio).
///
/// # Errors
///
/// What is not an object, or nested too deep.
pub fn parse(json: &str) -> serde_json::Result<Value> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let object = Object { omitted: None, metadata: true }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(object)
}

/// A map without one of its keys.
struct Object {
    omitted: Option<&'static str>,
    /// Whether its `metadata` is one without `managedFields`.
    metadata: bool,
}

impl<'de> DeserializeSeed<'de> for Object {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Object {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        if self.metadata { Err(E::invalid_type(serde::de::Unexpected::Unit, &self)) } else { Ok(Value::Null) }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if self.omitted == Some(key.as_str()) {
                access.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = if self.metadata && key == "metadata" {
                access.next_value_seed(Self { omitted: Some(MANAGED_FIELDS), metadata: false })?
            } else {
                access.next_value()?
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Whether an object has more than [`MAX_POD_VALUES`], `managedFields` left out. They are counted by their
/// separators.
pub(crate) fn has_too_many_values(json: &str) -> bool {
    // Each takes two bytes at least, with its separator.
    json.len() >= 2 * MAX_POD_VALUES && count_values(json) - count_managed_fields(json) > MAX_POD_VALUES
}

fn count_managed_fields(json: &str) -> usize {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        #[serde(borrow)]
        managed_fields: &'a RawValue,
    }
    let head: Result<Head<'_>, _> = serde_json::from_str(json);
    head.map_or(0, |head| count_values(head.metadata.managed_fields.get()))
}

fn count_values(json: &str) -> usize {
    let (mut values, mut quoted, mut escaped) = (1, false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = quoted,
            b'"' => quoted = !quoted,
            b',' | b'[' | b'{' if !quoted => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn separators_in_strings_do_not_count() {
        for (json, expected) in
            [("7", 1), ("[1,2]", 3), (r#"{"a":{"b":[1,{"c":2}]},"d":3}"#, 7), (r#"["a,b","\"[,","\\",1]"#, 5)]
        {
            assert_eq!(count_values(json), expected, "{json}");
        }
    }

    #[test]
    fn the_limit_leaves_managed_fields_out() {
        let list = |values: usize| format!("[{}1]", "1,".repeat(values - 2));
        assert!(!has_too_many_values(&list(MAX_POD_VALUES)));
        assert!(has_too_many_values(&list(MAX_POD_VALUES + 1)));
        let managed =
            |fields: usize| json!({"metadata": {"managedFields": vec![0; fields]}, "a": vec![0; 9]});
        assert!(!has_too_many_values(&managed(2 * MAX_POD_VALUES).to_string()));
    }

    #[test]
    fn managed_fields_of_the_object_itself_are_omitted() {
        let object = json!({
            "metadata": {"name": "a", "managedFields": [{"time": "x"}]},
            "spec": {"managedFields": 1, "metadata": {"managedFields": 2}},
            "managedFields": 3,
        });
        let mut expected = object.clone();
        expected["metadata"] = json!({"name": "a"});
        assert_eq!(parse(&object.to_string()).unwrap(), expected);
        for odd in [json!({}), json!({"metadata": null})] {
            assert_eq!(parse(&odd.to_string()).unwrap(), odd);
        }
        for bad in ["null", "7", "[]", "{", "{} {}", "\"x\"", r#"{"metadata":[1]}"#] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
