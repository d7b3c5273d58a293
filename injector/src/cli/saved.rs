//! Saved objects of a cluster, in large files.

use serde_json::Value;

use super::args::InputArgs;
use super::input::names;
use super::{Exit, Failure};
use crate::{files, yaml};

/// The largest file: pods take about 3 KiB each.
const LARGEST: u64 = 1 << 30;
/// Copies of an object, and the managers of its fields: up to half of it, and never read.
const DROPPED: [&str; 2] = ["managedFields", "kubectl.kubernetes.io/last-applied-configuration"];

/// The objects of all files.
pub(super) fn read(filenames: &[String]) -> Result<Vec<Value>, Failure> {
    let mut objects = Vec::new();
    for name in names(&InputArgs { filename: filenames.to_vec(), recursive: false })? {
        let bytes = files::read_at_most(&name, LARGEST).map_err(|error| {
            let mut failure = Failure::reading(&name, &error);
            let is_large = failure.exit == Exit::Data;
            let hint = if is_large { ": save large clusters in parts" } else { "" };
            failure.problems.iter_mut().for_each(|problem| problem.push_str(hint));
            failure
        })?;
        let values = parse(&bytes)
            .map_err(|problem| Failure::one(Exit::Data, format!("{}: {problem}", files::called(&name))))?;
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
        let documents = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
        return match documents.collect::<Result<Vec<_>, _>>() {
            Ok(mut values) => {
                values.iter_mut().for_each(drop_copies);
                Ok(values)
            }
            Err(error) => parse_yaml(bytes).map_err(|_| error.to_string()),
        };
    }
    parse_yaml(bytes)
}

fn parse_yaml(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let documents = yaml::read_documents(bytes).map_err(|error| {
        let large = matches!(error.problem, yaml::Problem::DocumentTooLong { .. });
        format!("{error}{}", if large { "; JSON (-o json) may be larger" } else { "" })
    })?;
    Ok(documents.into_iter().map(|document| document.value).collect())
}

/// Takes [`DROPPED`] out, at any depth.
fn drop_copies(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|key, _| !DROPPED.contains(&key.as_str()));
            fields.values_mut().for_each(drop_copies);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_copies),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
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
