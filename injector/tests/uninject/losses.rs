//! What differs between a pod and the one that `uninject` returns.

use serde_json::{Value, json};

/// Fields of which `after` differs from `before`, each as it is named to the user. Empty maps and lists are
/// none.
pub(super) fn lost(before: &Value, after: &Value) -> Vec<String> {
    let mut lost = Vec::new();
    for key in ["labels", "annotations"] {
        let of = |pod: &Value| pod["metadata"][key].as_object().cloned().unwrap_or_default();
        let (before, after) = (of(before), of(after));
        let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
        let differs = keys.filter(|key| before.get(*key) != after.get(*key));
        // Other spellings of one key are named by it.
        lost.extend(differs.map(|key| {
            key.replace("prometheus/io", "prometheus.io").replace("prometheus_io_", "prometheus.io/")
        }));
    }
    let (before, after) = (&before["spec"], &after["spec"]);
    let keys = |spec: &Value| spec.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut all = keys(before);
    all.extend(keys(after).into_iter().filter(|key| before.get(key).is_none()));
    for key in all {
        match (&before[&key], &after[&key]) {
            (one, other) if without_empty(&json!([one])) == without_empty(&json!([other])) => {}
            (Value::Array(one), Value::Array(other))
                if one.iter().chain(other).any(|item| item.get("name").is_some()) =>
            {
                lost.extend(items(&key, one, other));
            }
            (one, other) => {
                lost.push(if one.is_object() { first_field(&key, one, other) } else { format!("spec.{key}") })
            }
        }
    }
    lost
}

fn first_field(key: &str, one: &Value, other: &Value) -> String {
    let mut fields = one.as_object().unwrap().keys();
    let inner = fields.find(|field| one[*field] != other[*field]);
    inner.map_or_else(|| format!("spec.{key}"), |field| format!("spec.{key}.{field}"))
}

/// Items that differ or moved.
fn items(key: &str, before: &[Value], after: &[Value]) -> Vec<String> {
    let name = |item: &Value| item["name"].as_str().unwrap().to_owned();
    let names = |items: &[Value]| items.iter().map(name).collect::<Vec<_>>();
    let (had, has) = (names(before), names(after));
    let mut lost: Vec<String> = Vec::new();
    for item in before {
        let found = after.iter().find(|other| name(other) == name(item));
        if found.map(without_empty) != Some(without_empty(item)) {
            lost.push(if key.ends_with("ontainers") {
                format!("container {}", name(item))
            } else {
                format!("spec.{key} {}", name(item))
            });
        }
    }
    lost.extend(has.iter().filter(|name| !had.contains(name)).map(|name| {
        if key.ends_with("ontainers") { format!("container {name}") } else { format!("spec.{key} {name}") }
    }));
    // The order of volumes means nothing.
    let own = |names: &[String]| {
        names.iter().filter(|name| !name.starts_with("istio-")).cloned().collect::<Vec<_>>()
    };
    let same = had.iter().all(|name| has.contains(name)) && has.len() == had.len();
    if same && had != has && key.ends_with("ontainers") {
        lost.push(if own(&had) == own(&has) { "container istio-".to_owned() } else { format!("spec.{key}") });
    }
    lost
}

/// Empty lists and maps count as absent.
pub(super) fn without_empty(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().map(|(key, value)| (key.clone(), without_empty(value)));
            Value::Object(kept.filter(|(_, value)| *value != json!([]) && *value != json!({})).collect())
        }
        Value::Array(items) => {
            let kept = items.iter().map(without_empty);
            Value::Array(
                kept.filter(|value| *value != json!([]) && *value != json!({}) && !value.is_null()).collect(),
            )
        }
        other => other.clone(),
    }
}

/// As the API server stores it.
pub(super) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}
