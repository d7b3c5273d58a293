//! Fields of which an object has one, such as a variable's `value` and `valueFrom` or a volume's source: a
//! strategic merge of two kinds would leave both. Kubernetes' own merge does so; this is a step before it.

use std::collections::HashMap;

use gotemplate::{Kind, Schema};
use serde_json::{Map, Value};

use crate::path::Lookup as _;
use crate::schema::{ListMerge, is_alternative, list_merge, pointee};

/// Removes from `original` every object that `patch` has with another of these fields; its name stays.
pub(crate) fn drop_replaced(original: &mut Value, patch: &Value, of: &'static Schema) {
    if let (Value::Object(original), Value::Object(patch)) = (original, patch) {
        object(original, patch, of);
    }
}

fn object(original: &mut Map<String, Value>, patch: &Map<String, Value>, of: &'static Schema) {
    if replaces(original, patch, of) {
        original.retain(|key, _| key == "name");
        return;
    }
    for (key, patch) in patch {
        let (Some(field), Some(original)) = (of.by_key(key), original.get_mut(key)) else { continue };
        match (pointee(field.kind), original, patch) {
            (Kind::Struct(of), Value::Object(original), Value::Object(patch)) => object(original, patch, of),
            (Kind::List(item), Value::Array(original), Value::Array(patch)) => {
                if let (ListMerge::Key(key), Kind::Struct(of)) = (list_merge(field), pointee(*item)) {
                    items(original, patch, key, of);
                }
            }
            _ => {}
        }
    }
}

fn items(original: &mut [Value], patch: &[Value], key: &str, of: &'static Schema) {
    let patched: HashMap<&str, &Value> =
        patch.iter().filter_map(|item| Some((item.lookup(key)?.as_str()?, item))).collect();
    for item in original {
        let found = item.lookup(key).and_then(Value::as_str).and_then(|name| patched.get(name));
        if let (Value::Object(item), Some(Value::Object(patch))) = (item, found.copied()) {
            object(item, patch, of);
        }
    }
}

/// Whether the patch sets one of the alternatives, and the original another one that would stay.
fn replaces(original: &Map<String, Value>, patch: &Map<String, Value>, of: &'static Schema) -> bool {
    let set = |(key, value): &(&String, &Value)| !value.is_null() && is_alternative(of, key);
    // A null in the patch removes the original's by itself.
    patch.iter().any(|field| set(&field))
        && original.iter().any(|field| set(&field) && !patch.contains_key(field.0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::CONTAINER;

    #[test]
    fn objects_with_another_kind_of_source_are_dropped() {
        let field = json!({"fieldRef": {"fieldPath": "metadata.name"}});
        let mut original = json!({
            "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": field}, {"name": "C", "value": "1"}],
            "livenessProbe": {"httpGet": {"port": 1}, "periodSeconds": 3}, "readinessProbe": {"httpGet": {"port": 1}},
            "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
        });
        let secret = json!({"secretKeyRef": {"name": "s", "key": "k"}});
        let patch = json!({
            "env": [{"name": "A", "valueFrom": field}, {"name": "B", "valueFrom": secret}, {"name": "C", "value": "2"}],
            "livenessProbe": {"exec": {"command": ["y"]}}, "readinessProbe": {"httpGet": {"path": "/"}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
        });
        drop_replaced(&mut original, &patch, &CONTAINER);
        assert_eq!(
            original,
            json!({
                "env": [{"name": "A"}, {"name": "B", "valueFrom": {}}, {"name": "C", "value": "1"}],
                "livenessProbe": {}, "readinessProbe": {"httpGet": {"port": 1}}, "lifecycle": {"preStop": {}},
            })
        );
    }
}
