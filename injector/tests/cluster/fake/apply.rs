//! Server-side apply, for objects whose lists of objects are maps by `name`.

use serde_json::{Map, Value, json};

use super::store::Refusal;

/// Notes that a manager wrote: `fields` is what it owns by applying.
pub(super) fn owned(object: &mut Value, manager: &str, operation: &str, fields: Value) {
    let metadata = &mut object["metadata"];
    let mut entries = metadata["managedFields"].take().as_array().cloned().unwrap_or_default();
    let time = format!("2026-01-01T00:00:{:02}Z", entries.len() % 60);
    entries.retain(|entry| entry["manager"] != manager);
    entries.push(json!({
        "manager": manager, "operation": operation, "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields,
    }));
    // The newest is the last, by their times.
    for (number, entry) in entries.iter_mut().enumerate() {
        entry["time"] = json!(format!("2026-01-01T00:00:{number:02}Z"));
    }
    metadata["managedFields"] = json!(entries);
}

/// The object after the patch.
pub(super) fn apply(
    old: Option<&Value>,
    patch: &Value,
    manager: &str,
    force: bool,
) -> Result<Value, Refusal> {
    let given = &patch["metadata"];
    let Some(old) = old else {
        return match &given["uid"] {
            Value::Null => checked(patch.clone()),
            uid => Err((
                409,
                format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                ),
            )),
        };
    };
    for field in ["uid", "resourceVersion"] {
        if !given[field].is_null() && given[field] != old["metadata"][field] {
            return Err((409, format!("Precondition failed: {field}")));
        }
    }
    let fields = fields_of(patch);
    let mut merged = old.clone();
    let mut changed = Vec::new();
    merge(&mut merged, patch, "", &mut changed);
    if !force {
        let entries = old["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let others: Vec<_> = entries.iter().filter(|entry| entry["manager"] != manager).collect();
        let held = |path: &String| others.iter().any(|entry| entry["fieldsV1"].get(path).is_some());
        if let Some(path) = changed.iter().find(|path| held(path)) {
            return Err((409, format!("Apply failed with 1 conflict: {path}")));
        }
    }
    owned(&mut merged, manager, "Apply", fields);
    checked(merged)
}

/// Whether nothing was changed but times.
pub(super) fn same(old: &Value, new: &Value) -> bool {
    let without = |object: &Value| {
        let mut object = object.clone();
        for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
            entry["time"] = Value::Null;
        }
        object
    };
    without(old) == without(new)
}

fn merge(into: &mut Value, patch: &Value, path: &str, changed: &mut Vec<String>) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                let path = format!("{path}.{key}");
                if path != ".metadata" {
                    merge(into.entry(key.clone()).or_insert(Value::Null), value, &path, changed);
                }
            }
        }
        (Value::Array(into), Value::Array(patch)) if patch.iter().all(|item| item.get("name").is_some()) => {
            for item in patch {
                let at = into.iter().position(|old| old["name"] == item["name"]).unwrap_or_else(|| {
                    into.push(json!({}));
                    into.len() - 1
                });
                merge(&mut into[at], item, &format!("{path}[{}]", item["name"]), changed);
            }
        }
        (into, patch) => {
            if into != patch {
                changed.push(path.to_owned());
            }
            into.clone_from(patch);
        }
    }
}

/// The leaves of a patch, by path, as [`merge`] names them.
fn fields_of(patch: &Value) -> Value {
    let mut fields = Vec::new();
    leaves(patch, "", &mut fields);
    json!(fields.into_iter().map(|path| (path, json!({}))).collect::<Map<_, _>>())
}

fn leaves(patch: &Value, path: &str, fields: &mut Vec<String>) {
    match patch {
        Value::Object(map) => {
            for (key, value) in map.iter().filter(|(key, _)| *key != "metadata") {
                leaves(value, &format!("{path}.{key}"), fields);
            }
        }
        Value::Array(items) => {
            for item in items {
                leaves(item, &format!("{path}[{}]", item["name"]), fields);
            }
        }
        _ => fields.push(path.to_owned()),
    }
}

/// What the API server validates of webhook configurations.
pub(super) fn checked(object: Value) -> Result<Value, Refusal> {
    for hook in object["webhooks"].as_array().into_iter().flatten() {
        for field in ["sideEffects", "admissionReviewVersions"] {
            if hook[field].is_null() {
                return Err((422, format!("webhooks[{}].{field}: Required value", hook["name"])));
            }
        }
        let config = &hook["clientConfig"];
        if config["service"].is_null() == config["url"].is_null() {
            return Err((
                422,
                format!("webhooks[{}].clientConfig: exactly one of url or service is required", hook["name"]),
            ));
        }
    }
    Ok(object)
}
