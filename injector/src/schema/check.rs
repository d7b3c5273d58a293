//! Type check of pods: rejects, for example, a list where a map is expected; a merge would drop it silently.

use gotemplate::{Field, Kind, Schema};
use serde_json::Value;

use crate::path::{Lookup as _, Path, at, cut};

use super::{CONTAINER, OBJECT_META, POD_SPEC, pointee};

/// Something in a pod that has another type than Kubernetes gives it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {} is not accepted, expected {expected}", cut(.given))]
pub struct Malformed {
    /// Where it is.
    pub path: String,
    /// What is there, as JSON.
    pub given: String,
    /// What belongs there.
    pub expected: &'static str,
}

/// The fields that injection reads. Others are not looked at: a newer Kubernetes may have other types for
/// them.
const READ: [(&Schema, &[&str]); 3] = [
    (&OBJECT_META, &["annotations", "labels"]),
    (&POD_SPEC, &["containers", "imagePullSecrets", "initContainers", "securityContext", "volumes"]),
    (
        &CONTAINER,
        &[
            "args",
            "command",
            "env",
            "envFrom",
            "image",
            "lifecycle",
            "livenessProbe",
            "ports",
            "readinessProbe",
            "resources",
            "securityContext",
            "startupProbe",
            "volumeMounts",
        ],
    ),
];

/// Checks the metadata and the spec of a pod. `metadata` and `spec` are the JSON pointers to them in
/// `object`.
pub(crate) fn pod(object: &Value, metadata: &str, spec: &str) -> Vec<Malformed> {
    const MAP: Kind = Kind::Map(&Kind::Any);
    let mut found = Vec::new();
    for (pointer, kind) in
        [("/metadata", MAP), (metadata, Kind::Struct(&OBJECT_META)), (spec, Kind::Struct(&POD_SPEC))]
    {
        let keys: Vec<&str> = pointer.split('/').skip(1).collect();
        let (mut value, mut depth) = (object, 0);
        while let Some(inner) = keys.get(depth).and_then(|key| value.lookup(key)) {
            value = inner;
            depth += 1;
        }
        // An object on the way may lack the next key, but must be an object.
        let kind = if depth == keys.len() { kind } else { MAP };
        let prefix = keys.get(..depth).unwrap_or_default().join(".");
        let root = Path::root();
        visit(value, if prefix.is_empty() { root } else { root.field(&prefix) }, kind, &mut found);
    }
    found.dedup();
    found.extend(too_long(object, &format!("{metadata}/annotations")));
    found
}

/// Annotations beyond what Kubernetes takes, keys and values together. Webhooks see them before it looks.
fn too_long(object: &Value, annotations: &str) -> Option<Malformed> {
    const MOST: usize = 256 << 10;
    let length = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    let bytes: usize = at(object, annotations)?.as_object()?.iter().map(length).sum();
    (bytes > MOST).then(|| Malformed {
        path: annotations.trim_start_matches('/').replace('/', "."),
        given: format!("{bytes} bytes"),
        expected: "at most 262144 bytes in all",
    })
}

/// Treats null as absent, except in lists of objects with a name.
fn visit(value: &Value, path: Path<'_>, kind: Kind, found: &mut Vec<Malformed>) {
    let expected = match (pointee(kind), value) {
        (Kind::Struct(of), Value::Object(fields)) => {
            if !has_name(of) || matches!(fields.lookup("name"), Some(Value::String(name)) if !name.is_empty())
            {
                for field in read(of) {
                    if let Some(value) = fields.lookup(field.key) {
                        visit(value, path.field(field.key), field.kind, found);
                    }
                }
                return;
            }
            "a map with a name"
        }
        (Kind::Struct(of), _) if has_name(of) => "a map with a name",
        (_, Value::Null) | (Kind::Map(_), Value::Object(_)) => return,
        (Kind::List(of), Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                visit(item, path.item(at), *of, found);
            }
            return;
        }
        (Kind::Struct(_) | Kind::Map(_), _) => "a map",
        (Kind::List(_), _) => "a list",
        (_, Value::Bool(_) | Value::Number(_) | Value::String(_)) => return,
        _ => "a single value",
    };
    found.push(Malformed { path: path.to_string(), given: value.to_string(), expected });
}

/// The fields of a struct that injection reads.
fn read(of: &'static Schema) -> impl Iterator<Item = &'static Field> {
    let keys = READ.iter().find(|(schema, _)| std::ptr::eq(*schema, of)).map_or(&[][..], |(_, keys)| keys);
    keys.iter().filter_map(|key| of.by_key(key))
}

/// Whether a value of this type needs a name.
fn has_name(of: &Schema) -> bool {
    of.by_key("name").is_some_and(|name| !name.omit_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(object: &Value) -> Vec<String> {
        pod(object, "/metadata", "/spec").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn wrong_types_are_reported_with_their_path() {
        for (pod, expected) in [
            (json!({"metadata": "x"}), r#"metadata: "x" is not accepted, expected a map"#),
            (
                json!({"metadata": {"annotations": [1]}}),
                "metadata.annotations: [1] is not accepted, expected a map",
            ),
            (json!({"metadata": {"labels": 1}}), "metadata.labels: 1 is not accepted, expected a map"),
            (json!({"spec": []}), "spec: [] is not accepted, expected a map"),
            (
                json!({"spec": {"volumes": {"a": 1}}}),
                r#"spec.volumes: {"a":1} is not accepted, expected a list"#,
            ),
            (
                json!({"spec": {"initContainers": "y"}}),
                r#"spec.initContainers: "y" is not accepted, expected a list"#,
            ),
            (json!({"spec": {"containers": {}}}), "spec.containers: {} is not accepted, expected a list"),
            (
                json!({"spec": {"containers": [null]}}),
                "spec.containers[0]: null is not accepted, expected a map with a name",
            ),
            (
                json!({"spec": {"containers": [{"name": "a", "env": [{"value": "b"}]}]}}),
                r#"spec.containers[0].env[0]: {"value":"b"} is not accepted, expected a map with a name"#,
            ),
        ] {
            assert_eq!(problems(&pod), [expected]);
        }
    }

    #[test]
    fn annotations_over_256_kib_are_reported() {
        let annotated =
            |length: usize| json!({"metadata": {"annotations": {"a/b": "x".repeat(length - 4), "c": ""}}});
        assert_eq!(problems(&annotated(262_144)), [""; 0]);
        let expected =
            "metadata.annotations: 262145 bytes is not accepted, expected at most 262144 bytes in all";
        assert_eq!(problems(&annotated(262_145)), [expected]);
        let deployment = json!({"spec": {"template": annotated(262_145)}});
        let found = pod(&deployment, "/spec/template/metadata", "/spec/template/spec");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "spec.template.metadata.annotations");
    }

    #[test]
    fn null_and_absent_fields_pass() {
        let pod = json!({"metadata": {"labels": null}, "spec": {
            "volumes": null, "containers": [{"name": "a", "args": ["b", 1], "ports": null}],
        }});
        assert_eq!(problems(&pod), [""; 0]);
        assert_eq!(problems(&json!({})), [""; 0]);
    }
}
