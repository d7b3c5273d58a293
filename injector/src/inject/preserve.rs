//! A template adds to a pod: it removes a container or a volume only with a patch directive.
//!
//! In a strategic merge, `null` deletes. In a template it is usually what remains of a list or map whose
//! items were all conditional (`initContainers:` with interception mode `NONE`), or of a file that was
//! truncated after `spec:`. Kubernetes and Istio then delete the pod's own items, even its app containers. No
//! template intends that; one that does can use `$patch: delete`. So `null` is ignored here for everything
//! that templates add to.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::path::Lookup as _;
use crate::pod::list::{items, name};

/// The lists of a pod spec whose items stay.
const LISTS: [&str; 3] = ["containers", "initContainers", "volumes"];

/// Removes nulls that have no effect from a template's patch.
pub(super) fn drop_empty(patch: &mut Value) {
    let of_spec = LISTS.iter().copied().chain(["imagePullSecrets"]);
    for (parent, keys) in [
        ("/metadata", ["labels", "annotations"].to_vec()),
        ("/spec", of_spec.collect()),
        ("", ["metadata", "spec"].to_vec()),
    ] {
        if let Some(parent) = patch.pointer_mut(parent).and_then(Value::as_object_mut) {
            parent.retain(|key, value| !value.is_null() || !keys.contains(&key.as_str()));
        }
    }
}

/// What a patch would change of what says which object a pod is, like `metadata.name to "other"`. A pod may
/// lack its namespace, which is then that of its workload.
pub(super) fn identity(pod: &Value, namespace: &str, patch: &Value) -> Vec<String> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let (own, new) = (pod.lookup("metadata"), patch.lookup("metadata"));
    let of_pod = |key: &str| match text(own.and_then(|own| own.lookup(key))) {
        own if own.is_empty() && key == "namespace" => namespace.to_owned(),
        own => own,
    };
    let metadata = ["name", "generateName", "namespace"].map(|key| (new, "metadata.", key, of_pod(key)));
    let types = [("kind", "Pod"), ("apiVersion", "v1")];
    let types = types.map(|(key, fixed)| (Some(patch), "", key, fixed.to_owned()));
    let changed = metadata.into_iter().chain(types).filter_map(|(new, parent, key, own)| {
        let value = new?.lookup(key)?;
        (text(Some(value)) != own).then(|| format!("{parent}{key} to {value}"))
    });
    changed.collect()
}

/// The names in each of the lists of a pod that templates add to.
pub(super) fn names(pod: &Value) -> [Vec<String>; 3] {
    LISTS.map(|list| items(pod, list).iter().map(|item| name(item).to_owned()).collect())
}

/// What `after` lacks of the names `before`, like `spec.containers app`.
pub(super) fn lost(before: &[Vec<String>; 3], after: &Value) -> Vec<String> {
    let mut lost = Vec::new();
    for (list, before) in LISTS.iter().zip(before) {
        let stays: HashSet<&str> = items(after, list).iter().map(name).collect();
        let gone = before.iter().filter(|name| !stays.contains(name.as_str()));
        lost.extend(gone.map(|name| format!("spec.{list} {name}")));
    }
    lost
}

/// Whether the patch has a directive that can remove a container or a volume.
pub(super) fn has_directive(patch: &Value) -> bool {
    let has = |map: &Map<String, Value>| map.keys().any(|key| key.as_bytes().first() == Some(&b'$'));
    let maps = [Some(patch), patch.lookup("spec")].into_iter().flatten();
    maps.chain(LISTS.iter().flat_map(|list| items(patch, list))).filter_map(Value::as_object).any(has)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_in_place_of_what_templates_add_to_is_ignored() {
        let mut patch = json!({"metadata": null, "spec": null});
        drop_empty(&mut patch);
        assert_eq!(patch, json!({}));
        let mut patch = json!({
            "metadata": {"labels": null, "annotations": null, "name": "x"},
            "spec": {"containers": null, "initContainers": null, "volumes": null, "imagePullSecrets": null, "dnsPolicy": null},
        });
        drop_empty(&mut patch);
        assert_eq!(patch, json!({"metadata": {"name": "x"}, "spec": {"dnsPolicy": null}}));
        for mut other in [json!(null), json!([]), json!({"spec": []})] {
            let before = other.clone();
            drop_empty(&mut other);
            assert_eq!(other, before);
        }
    }

    #[test]
    fn what_is_removed_is_reported_unless_a_directive_removes_it() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "volumes": [{"name": "v"}]}});
        let after = json!({"spec": {"containers": [{"name": "b"}, {"name": "c"}]}});
        let all = ["spec.containers a", "spec.volumes v"].map(str::to_owned).to_vec();
        for silent in [json!({}), json!({"spec": "text"}), json!({"metadata": {"labels": {"$x": "y"}}})] {
            assert!(!has_directive(&silent), "{silent}");
        }
        for patch in [
            json!({"$patch": "replace"}),
            json!({"spec": {"$retainKeys": ["containers"]}}),
            json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}),
        ] {
            assert!(has_directive(&patch), "{patch}");
        }
        assert_eq!(lost(&names(&pod), &after), all);
        assert!(lost(&names(&pod), &pod).is_empty());
    }
}
