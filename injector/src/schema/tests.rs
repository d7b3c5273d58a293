//! The table against the schema of a Kubernetes release: `make schema` installs it, and builds this test
//! with the feature `release-schema`; without that there is no such test, and none is skipped.

use std::collections::BTreeSet;

use gotemplate::{Kind, Schema};
use serde_json::Value;

use super::{KUBERNETES, POD, pointee};

/// Fields that the table has beyond the release: shared structs, other versions.
const EXTRA: &[(&str, &str)] = &[
    ("v1.Container", "targetContainerName"),
    ("v1.PodSpec", "workloadRef"),
    ("v1.TypedObjectReference", "namespace"),
    ("v1.ResourceRequirements", "claims"),
    ("v1.ConfigMapVolumeSource", "defaultMode"),
    ("v1.ConfigMapVolumeSource", "defaultUser"),
    ("v1.DownwardAPIVolumeSource", "defaultMode"),
    ("v1.DownwardAPIVolumeSource", "defaultUser"),
];

struct Comparison<'a> {
    definitions: &'a Value,
    seen: BTreeSet<(String, &'static str)>,
    differences: Vec<String>,
}

fn reference(of: &Value) -> Option<&str> {
    let own = of.get("$ref").and_then(Value::as_str);
    let all = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| of.get(key)?.as_array()).flatten();
    own.or_else(|| all.filter_map(|one| one.get("$ref")?.as_str()).next())?.rsplit('/').next()
}

impl Comparison<'_> {
    fn compare(&mut self, name: &str, table: &'static Schema) {
        if !self.seen.insert((name.to_owned(), table.name)) {
            return;
        }
        let Some(fields) = self.definitions[name]["properties"].as_object() else { return };
        for (key, of) in fields {
            let Some(field) = table.by_key(key) else {
                self.differences.push(format!("{}: {key} of {name} is missing", table.name));
                continue;
            };
            let merge = of.get("x-kubernetes-patch-merge-key").and_then(Value::as_str);
            if field.merge.filter(|key| *key != "set") != merge {
                self.differences.push(format!("{}: {key} merges by {merge:?}", table.name));
            }
            let kind = pointee(field.kind);
            let inner = if let Kind::List(of) = kind { pointee(*of) } else { kind };
            if let (Kind::Struct(inner), Some(name)) =
                (inner, reference(of).or_else(|| of.get("items").and_then(reference)))
            {
                self.compare(name, inner);
            }
        }
        let shared = table.name == "v1.VolumeSource";
        for field in table.fields.iter().filter(|field| !shared && !fields.contains_key(field.key)) {
            if !EXTRA.contains(&(table.name, field.key)) {
                self.differences.push(format!("{}: {name} has no {}", table.name, field.key));
            }
        }
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test reads the schema")]
fn table_has_the_fields_of_the_release() {
    let file = std::env::var("KUBERNETES_SCHEMA").unwrap();
    assert!(file.contains(&format!("v{KUBERNETES}.")), "{file}: expected the schema of {KUBERNETES}");
    let text = std::fs::read_to_string(&file).unwrap();
    let schema: Value = serde_json::from_str(&text).unwrap();
    let definitions = &schema["$defs"];
    let mut comparison = Comparison { definitions, seen: BTreeSet::new(), differences: Vec::new() };
    comparison.compare("io.k8s.api.core.v1.Pod", &POD);
    assert!(comparison.seen.len() > 80, "only {} types are compared", comparison.seen.len());
    assert_eq!(comparison.differences, [""; 0]);
}
