//! `sidecar.istio.io/status`: what an injection added to a pod.

use serde_json::{Value, json};

use super::is_istio_container;
use super::list::{List, annotation, name};
use crate::annotations::keys;
use crate::path::Lookup as _;

/// What an earlier injection added, by its own record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// Names in `spec.containers`.
    pub containers: Vec<String>,
    /// Names in `spec.initContainers`.
    pub init_containers: Vec<String>,
    /// Names in `spec.volumes`.
    pub volumes: Vec<String>,
    /// Names in `spec.imagePullSecrets`.
    pub image_pull_secrets: Vec<String>,
    /// The control plane's revision.
    pub revision: String,
}

impl Status {
    /// Reads the annotation; `None` if there is none or it cannot be read, as if the pod was never injected.
    pub(crate) fn of(pod: &Value) -> Option<Self> {
        let parsed: Value = serde_json::from_str(annotation(pod, keys::STATUS)?).ok()?;
        let names = |key: &str| -> Vec<String> {
            let list = parsed.lookup(key).and_then(Value::as_array);
            list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        parsed.is_object().then(|| Self {
            containers: names("containers"),
            init_containers: names("initContainers"),
            volumes: names("volumes"),
            image_pull_secrets: names("imagePullSecrets"),
            revision: parsed.lookup("revision").and_then(Value::as_str).unwrap_or_default().to_owned(),
        })
    }

    /// What the templates alone define, in their order.
    pub(crate) fn of_templates(template_pod: &Value, revision: &str) -> Self {
        let names = |key: &str| -> Vec<String> {
            let list =
                template_pod.lookup("spec").and_then(|spec| spec.lookup(key)).and_then(Value::as_array);
            list.into_iter().flatten().map(|item| name(item).to_owned()).collect()
        };
        Self {
            containers: names("containers"),
            init_containers: names("initContainers"),
            volumes: names("volumes"),
            image_pull_secrets: names("imagePullSecrets"),
            revision: if revision.is_empty() { "default" } else { revision }.to_owned(),
        }
    }

    /// Whether the container of this list came with the injection.
    pub(crate) fn lists(&self, list: List, container: &str) -> bool {
        let names = match list {
            List::Containers => &self.containers,
            List::InitContainers => &self.init_containers,
        };
        names.iter().any(|name| name == container)
    }

    /// The containers of templates that are not Istio's.
    pub(crate) fn own_containers(&self) -> impl Iterator<Item = &String> {
        self.init_containers.iter().chain(&self.containers).filter(|name| !is_istio_container(name))
    }

    /// The annotation's text; an empty list is null.
    pub(crate) fn to_json(&self) -> String {
        let list = |names: &[String]| {
            if names.is_empty() { Value::Null } else { json!(names) }
        };
        json!({
            "initContainers": list(&self.init_containers),
            "containers": list(&self.containers),
            "volumes": list(&self.volumes),
            "imagePullSecrets": list(&self.image_pull_secrets),
            "revision": self.revision,
        })
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let template = json!({"spec": {
            "initContainers": [{"name": "istio-init"}], "volumes": [{"name": "v"}],
        }});
        let status = Status::of_templates(&template, "");
        let text = status.to_json();
        assert_eq!(
            text,
            r#"{"initContainers":["istio-init"],"containers":null,"volumes":["v"],"imagePullSecrets":null,"revision":"default"}"#
        );
        let pod = json!({"metadata": {"annotations": {(keys::STATUS): text}}});
        assert_eq!(Status::of(&pod), Some(status));
    }

    #[test]
    fn unreadable_status_is_ignored() {
        for text in ["", "{", "[]", "7"] {
            let pod = json!({"metadata": {"annotations": {(keys::STATUS): text}}});
            assert_eq!(Status::of(&pod), None, "{text}");
        }
    }
}
