//! Decisions of Istio's injector, one file for each part. What is expected was found with Istio's own code.

mod custom;
mod details;
mod mesh_traffic;
mod openshift;
mod proxy_config;
mod proxy_configs;

/// The first difference between two values, order of keys included.
fn difference(path: &str, one: &serde_json::Value, other: &serde_json::Value) -> Option<String> {
    use serde_json::Value;
    let texts = (one.to_string(), other.to_string());
    if texts.0 == texts.1 {
        return None;
    }
    let inner = match (one, other) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            a.iter().zip(b.values()).find_map(|((key, a), b)| difference(&format!("{path}/{key}"), a, b))
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let mut pairs = a.iter().zip(b).enumerate();
            pairs.find_map(|(at, (a, b))| difference(&format!("{path}/{at}"), a, b))
        }
        _ => None,
    };
    inner.or_else(|| Some(format!("{path}: {one} became {other}")))
}
