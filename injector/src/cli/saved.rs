//! Saved objects of a cluster: many of them, in files as large as clusters are.

use std::fmt;
use std::io;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::args::InputArgs;
use super::load::called;
use super::rewrite::names;
use super::{Exit, Failure};
use crate::{files, yaml};

/// The largest file: pods take about 3 KiB each.
const LARGEST: u64 = 1 << 30;
/// Copies of an object, and the managers of its fields: up to half of it, and never read.
const DROPPED: [&str; 2] = ["managedFields", "kubectl.kubernetes.io/last-applied-configuration"];

/// The objects of all files.
pub(super) fn read(filenames: &[String]) -> Result<Vec<Value>, Failure> {
    let mut objects = Vec::new();
    for name in names(&InputArgs { filename: filenames.to_vec() })? {
        let bytes = files::read_at_most(&name, LARGEST).map_err(|error| {
            let large = error.kind() == io::ErrorKind::FileTooLarge;
            let exit = if large { Exit::Data } else { Exit::NoInput };
            let hint = if large { ": save large clusters in parts" } else { "" };
            Failure::one(exit, format!("{}: {error}{hint}", called(&name)))
        })?;
        let values = parse(&bytes)
            .map_err(|problem| Failure::one(Exit::Data, format!("{}: {problem}", called(&name))))?;
        for value in values {
            if let Value::Array(items) = value {
                objects.extend(items); // as jq prints the items of a List
            } else {
                objects.push(value);
            }
        }
    }
    Ok(objects)
}

/// JSON is read without the bounds that YAML needs; YAML may begin like JSON.
fn parse(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let text = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes).trim_ascii_start();
    if text.starts_with(b"{") || text.starts_with(b"[") {
        let documents = serde_json::Deserializer::from_slice(text).into_iter::<Kept>();
        let json: Result<_, _> = documents.map(|one| one.map(|Kept(value)| value)).collect();
        return json.or_else(|error| parse_yaml(bytes).map_err(|_| error.to_string()));
    }
    parse_yaml(bytes)
}

fn parse_yaml(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let documents = yaml::read_documents(bytes).map_err(|error| {
        let large = bytes.len() > yaml::MAX_BYTES;
        format!("{error}{}", if large { " of YAML; JSON (-o json) may be larger" } else { "" })
    })?;
    Ok(documents.into_iter().map(|document| document.value).collect())
}

/// JSON without [`DROPPED`].
struct Kept(Value);

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Keeping).map(Self)
    }
}

struct Keeping;

impl<'de> Visitor<'de> for Keeping {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if DROPPED.contains(&key.as_str()) {
                access.next_value::<IgnoredAny>()?;
            } else {
                map.insert(key, access.next_value::<Kept>()?.0);
            }
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Kept(value)) = access.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn everything_is_read_but_managed_fields() {
        let metadata = json!({"name": "a", "annotations": {"x": "y"}});
        let object =
            json!({"kind": "Pod", "metadata": metadata, "list": [1, -2, 0.5, true, null, "\u{e9}\n", []]});
        let mut saved = object.clone();
        saved["metadata"]["managedFields"] = json!([{"fieldsV1": {"f:metadata": {}}}]);
        saved["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json!("{}");
        assert_eq!(parse(saved.to_string().as_bytes()), Ok(vec![object.clone()]));
        let two = format!("\u{feff} \n{saved:#}\n{saved}");
        assert_eq!(parse(two.as_bytes()), Ok(vec![object.clone(), object]), "one file after the other");
    }

    #[test]
    fn yaml_may_begin_like_json() {
        assert_eq!(parse(b"{kind: Pod, list: [a]}"), Ok(vec![json!({"kind": "Pod", "list": ["a"]})]));
        assert_eq!(parse(b"[{kind: Pod}]\n---\nkind: Job\n").map(|all| all.len()), Ok(2));
        let error = parse(br#"{"kind": "Pod", "#).expect_err("cut off");
        assert!(error.contains("EOF"), "{error}");
    }

    #[test]
    fn depth_is_bounded() {
        let error = parse(format!("{{\"a\":{}", "[".repeat(1_000_000)).as_bytes()).expect_err("deep");
        assert!(error.contains("recursion limit"), "{error}");
    }
}
