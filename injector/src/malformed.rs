//! What is not of the shape that a pod has: it could not be read, and would be lost where it is merged.

use std::fmt;

use serde_json::Value;

/// Something in a pod that has another type than Kubernetes gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where it is.
    pub path: String,
    /// What is there, as JSON.
    pub given: String,
    /// What belongs there.
    pub expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 120;
        let cut: String = self.given.chars().take(LONGEST).collect();
        let dots = if cut.len() < self.given.len() { "..." } else { "" };
        write!(f, "{}: {cut}{dots} is not accepted, expected {}", self.path, self.expected)
    }
}

impl std::error::Error for Malformed {}

/// What a value has to be, if it is there at all: null counts as missing.
enum Form {
    /// A map; these keys are looked at.
    Map(&'static [(&'static str, Self)]),
    /// A list whose items are of this form.
    List(&'static Self),
    /// A map with a name; these keys are looked at.
    Named(&'static [(&'static str, Self)]),
    /// A single value.
    Scalar,
}

const ANY_MAP: Form = Form::Map(&[]);
const MAPS: Form = Form::List(&ANY_MAP);
const NAMED: Form = Form::List(&Form::Named(&[]));

const CONTAINERS: Form = Form::List(&Form::Named(&[
    ("args", Form::List(&Form::Scalar)),
    ("command", Form::List(&Form::Scalar)),
    ("env", NAMED),
    ("envFrom", MAPS),
    ("image", Form::Scalar),
    ("lifecycle", ANY_MAP),
    ("livenessProbe", ANY_MAP),
    ("ports", MAPS),
    ("readinessProbe", ANY_MAP),
    ("resources", ANY_MAP),
    ("securityContext", ANY_MAP),
    ("startupProbe", ANY_MAP),
    ("volumeMounts", NAMED),
]));

const METADATA: Form = Form::Map(&[("annotations", ANY_MAP), ("labels", ANY_MAP)]);

const SPEC: Form = Form::Map(&[
    ("containers", CONTAINERS),
    ("imagePullSecrets", MAPS),
    ("initContainers", CONTAINERS),
    ("securityContext", ANY_MAP),
    ("volumes", NAMED),
]);

/// Looks at the metadata and the spec of a pod. `metadata` and `spec` are the pointers to them in the object that it
/// stands in.
#[must_use]
pub fn of_pod(object: &Value, metadata: &str, spec: &str) -> Vec<Malformed> {
    let mut found = Vec::new();
    for (pointer, form) in [("/metadata", &ANY_MAP), (metadata, &METADATA), (spec, &SPEC)] {
        let keys: Vec<&str> = pointer.split('/').skip(1).collect();
        let (mut value, mut depth) = (object, 0);
        while let Some(inner) = keys.get(depth).and_then(|key| value.get(*key)) {
            value = inner;
            depth += 1;
        }
        // A map on the way that lacks the next key is none of a pod's business.
        let form = if depth == keys.len() { form } else { &ANY_MAP };
        visit(value, keys.get(..depth).unwrap_or_default().join("."), form, &mut found);
    }
    found.dedup();
    found.extend(too_long(object, &format!("{metadata}/annotations")));
    found
}

/// Annotations beyond what Kubernetes takes, keys and values together. Webhooks see them before it looks.
fn too_long(object: &Value, annotations: &str) -> Option<Malformed> {
    const MOST: usize = 256 << 10;
    let length = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    let bytes: usize = object.pointer(annotations)?.as_object()?.iter().map(length).sum();
    (bytes > MOST).then(|| Malformed {
        path: annotations.trim_start_matches('/').replace('/', "."),
        given: format!("{bytes} bytes"),
        expected: "at most 262144 bytes in all",
    })
}

fn visit(value: &Value, path: String, form: &Form, found: &mut Vec<Malformed>) {
    let expected = match (form, value) {
        (Form::Map(_) | Form::List(_) | Form::Scalar, Value::Null) => return,
        (Form::Map(keys), Value::Object(map)) => {
            for (key, form) in *keys {
                if let Some(value) = map.get(*key) {
                    visit(value, format!("{path}.{key}"), form, found);
                }
            }
            return;
        }
        (Form::Named(keys), Value::Object(map)) => {
            if map.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty()) {
                return visit(value, path, &Form::Map(keys), found);
            }
            "a map with a name"
        }
        (Form::List(form), Value::Array(items)) => {
            for (at, item) in items.iter().enumerate() {
                visit(item, format!("{path}[{at}]"), form, found);
            }
            return;
        }
        (Form::Scalar, Value::Bool(_) | Value::Number(_) | Value::String(_)) => return,
        (Form::Map(_), _) => "a map",
        (Form::Named(_), _) => "a map with a name",
        (Form::List(_), _) => "a list",
        (Form::Scalar, _) => "a single value",
    };
    found.push(Malformed { path, given: value.to_string(), expected });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(pod: &Value) -> Vec<String> {
        of_pod(pod, "/metadata", "/spec").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_of_another_type_is_named() {
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
    fn annotations_are_as_long_as_kubernetes_takes_them() {
        let annotated =
            |length: usize| json!({"metadata": {"annotations": {"a/b": "x".repeat(length - 4), "c": ""}}});
        assert_eq!(problems(&annotated(262_144)), [""; 0]);
        let expected =
            "metadata.annotations: 262145 bytes is not accepted, expected at most 262144 bytes in all";
        assert_eq!(problems(&annotated(262_145)), [expected]);
        let deployment = json!({"spec": {"template": annotated(262_145)}});
        let found = of_pod(&deployment, "/spec/template/metadata", "/spec/template/spec");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, "spec.template.metadata.annotations");
    }

    #[test]
    fn null_and_nothing_are_fine() {
        let pod = json!({"metadata": {"labels": null}, "spec": {
            "volumes": null, "containers": [{"name": "a", "args": ["b", 1], "ports": null}],
        }});
        assert_eq!(problems(&pod), [""; 0]);
        assert_eq!(problems(&json!({})), [""; 0]);
    }
}
