//! Pod-level resources (`spec.resources`), raised on request by those of the injected containers.

use serde_json::{Map, Value, json};

use super::list::{self, annotation, name};
use crate::annotations::keys;
use crate::path::Lookup as _;
use crate::quantity::{nanos, of_nanos};
use crate::validity::{request, requested};

const KINDS: [&str; 2] = ["requests", "limits"];

/// Raises the pod's requests and limits by those of the containers that `is_added` accepts, if the pod asks
/// for it; notes what they were. A container without a limit counts with its request.
pub(crate) fn raise(pod: &mut Value, is_added: impl Fn(&str) -> bool) {
    if annotation(pod, keys::RAISE_POD_RESOURCES) != Some("true") {
        return;
    }
    let Some(spec) = pod.lookup("spec").and_then(Value::as_object) else { return };
    let Some(original) = spec.lookup("resources").filter(|own| own.is_object()).cloned() else { return };
    let mut raised = original.clone();
    for kind in KINDS {
        let amounts = raised.get_mut(kind).and_then(Value::as_object_mut).into_iter().flatten();
        for (resource, amount) in amounts {
            let Some(own) = amount.as_str().and_then(nanos) else { continue };
            let more: i128 =
                running(spec).filter(|one| is_added(name(one))).map(|one| needed(one, kind, resource)).sum();
            let least = requested(spec, &|container| request(container, resource));
            let new = (own + more).max(if kind == "requests" { least } else { 0 });
            if new != own {
                *amount = json!(of_nanos(new));
            }
        }
    }
    if raised == original {
        return;
    }
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("resources".to_owned(), raised);
    }
    if let Some(annotations) = list::metadata_mut(pod, "annotations") {
        annotations.insert(keys::ORIGINAL_POD_RESOURCES.to_owned(), json!(original.to_string()));
    }
}

/// Puts back what [`raise`] has noted; without an injection only the note is removed.
pub(crate) fn restore(pod: &mut Value, was_injected: bool) {
    let Some(Value::String(noted)) = list::remove_annotation(pod, keys::ORIGINAL_POD_RESOURCES) else {
        return;
    };
    let Ok(Value::Object(noted)) = serde_json::from_str(&noted) else { return };
    if !was_injected {
        return;
    }
    let Some(own) = pod.pointer_mut("/spec/resources").and_then(Value::as_object_mut) else { return };
    for kind in KINDS {
        if let Some(amounts) = noted.lookup(kind) {
            own.insert(kind.to_owned(), amounts.clone());
        }
    }
}

/// The containers that run beside each other.
fn running(spec: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let of = |key: &str| spec.lookup(key).and_then(Value::as_array).into_iter().flatten();
    let sidecars = of("initContainers")
        .filter(|one| one.lookup("restartPolicy").and_then(Value::as_str) == Some("Always"));
    of("containers").chain(sidecars)
}

fn needed(container: &Value, kind: &str, resource: &str) -> i128 {
    let own = |kind: &str| nanos(container.lookup("resources")?.lookup(kind)?.lookup(resource)?.as_str()?);
    own(kind).or_else(|| own("requests")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raised_resources_are_restored() {
        let pod = json!({
            "metadata": {"annotations": {(keys::RAISE_POD_RESOURCES): "true"}},
            "spec": {
                "containers": [{"name": "app", "resources": {"requests": {"cpu": "100m"}}}],
                "initContainers": [{"name": "istio-proxy", "restartPolicy": "Always",
                                    "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "2"}}}],
                "resources": {"requests": {"cpu": "0.1", "memory": "1Gi"}, "limits": {"cpu": "1"}},
            },
        });
        let mut raised = pod.clone();
        raise(&mut raised, |name| name == "istio-proxy");
        assert_eq!(
            raised["spec"]["resources"],
            json!({"requests": {"cpu": "200m", "memory": "1152Mi"}, "limits": {"cpu": "3"}})
        );
        restore(&mut raised, true);
        assert_eq!(raised, pod);
        let mut plain = pod;
        list::remove_annotation(&mut plain, keys::RAISE_POD_RESOURCES);
        let before = plain.clone();
        raise(&mut plain, |_| true);
        assert_eq!(plain, before);
    }
}
