//! Objects that hold a pod, and where in them it is.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::annotations;
use crate::path::{Lookup as _, at};
use crate::schema::check::{self, Malformed};

/// Where the pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// In the template of the job's template. Metadata is taken from the job's template, as Istio does.
    CronJob,
    /// The object itself.
    Pod,
    /// In `template`, of a PodTemplate.
    PodTemplate,
    /// In `spec.template`.
    Template,
}

impl Shape {
    /// The shape of an object, if it holds a pod.
    #[must_use]
    pub fn of(object: &Value) -> Option<Self> {
        let shape = Self::of_kind(object)?;
        at(object, shape.spec())?.is_object().then_some(shape)
    }

    /// What in an object is not of the shape that its kind has; nothing for a kind without a pod.
    #[must_use]
    pub fn malformed(object: &Value) -> Vec<Malformed> {
        Self::of_kind(object)
            .map_or_else(Vec::new, |shape| check::pod(object, shape.metadata(), shape.spec()))
    }

    fn of_kind(object: &Value) -> Option<Self> {
        let text = |key: &str| object.lookup(key).and_then(Value::as_str).unwrap_or_default();
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        match (text("kind"), group) {
            ("Pod", "") => Some(Self::Pod),
            ("DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet", "apps" | "extensions")
            | ("ReplicationController", "")
            | ("Job", "batch")
            | ("DeploymentConfig", "" | "apps.openshift.io") => Some(Self::Template),
            ("CronJob", "batch") => Some(Self::CronJob),
            ("PodTemplate", "") => Some(Self::PodTemplate),
            _ => None,
        }
    }

    const fn metadata(self) -> &'static str {
        match self {
            Self::CronJob => "/spec/jobTemplate/metadata",
            Self::Pod => "/metadata",
            Self::PodTemplate => "/template/metadata",
            Self::Template => "/spec/template/metadata",
        }
    }

    const fn spec(self) -> &'static str {
        match self {
            Self::CronJob => "/spec/jobTemplate/spec/template/spec",
            Self::Pod => "/spec",
            Self::PodTemplate => "/template/spec",
            Self::Template => "/spec/template/spec",
        }
    }

    /// The pod: an object with `metadata` and `spec`.
    #[must_use]
    pub fn pod(self, object: &Value) -> Value {
        if self == Self::Pod {
            return object.clone();
        }
        let parts = [("metadata", self.metadata()), ("spec", self.spec())];
        let found = parts.into_iter().filter_map(|(key, pointer)| Some((key, at(object, pointer)?.clone())));
        found.map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// The containers of the pod: regular ones first.
    pub(crate) fn containers(self, object: &Value) -> impl Iterator<Item = &Value> {
        let lists = ["containers", "initContainers"].into_iter();
        let spec = at(object, self.spec());
        lists.filter_map(move |list| spec?.lookup(list)?.as_array()).flatten()
    }

    /// The object with another pod in it.
    #[must_use]
    pub fn with(self, object: &Value, mut pod: Value) -> Value {
        if self == Self::Pod {
            return pod;
        }
        let mut object = without(object, &[self.metadata(), self.spec()]);
        for (key, pointer) in [("metadata", self.metadata()), ("spec", self.spec())] {
            let parent =
                pointer.strip_suffix(key).and_then(|path| object.pointer_mut(path.trim_end_matches('/')));
            if let Some(parent) = parent.and_then(Value::as_object_mut) {
                match pod.get_mut(key).map(Value::take) {
                    Some(value) => parent.insert(key.to_owned(), value),
                    None => parent.shift_remove(key),
                };
            }
        }
        object
    }
}

/// A copy without what is at the pointers: null is in its place.
fn without(value: &Value, pointers: &[&str]) -> Value {
    let Value::Object(fields) = value else { return value.clone() };
    let copy = |(key, value): (&String, &Value)| {
        let below: Vec<&str> = pointers
            .iter()
            .filter_map(|pointer| pointer.strip_prefix('/')?.strip_prefix(key.as_str()))
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .collect();
        let value = match below.as_slice() {
            [] => value.clone(),
            below if below.contains(&"") => Value::Null,
            below => without(value, below),
        };
        (key.clone(), value)
    };
    Value::Object(fields.iter().map(copy).collect())
}

/// Labels and annotations about injection in places where Istio does not read them, each as a sentence.
#[must_use]
pub fn unread(object: &Value, shape: Shape) -> Vec<String> {
    const PLACE: &str = "/spec/jobTemplate/spec/template/metadata";
    if shape != Shape::CronJob {
        return Vec::new();
    }
    let mut unread = Vec::new();
    for (map, word) in [("annotations", "annotation"), ("labels", "label")] {
        let keys =
            at(object, PLACE).and_then(|metadata| metadata.get(map)?.as_object()).into_iter().flatten();
        unread.extend(keys.filter(|(key, _)| annotations::row(key).is_some()).map(|(key, _)| {
            format!(
                "{word} {key} in spec.jobTemplate.spec.template.metadata.{map} is ignored, as Istio ignores it; expected in \
                 spec.jobTemplate.metadata.{map}"
            )
        }));
    }
    unread
}

/// `Deployment "namespace/name"`, as messages name an object.
#[must_use]
pub fn title(object: &Value) -> String {
    let text = |pointer: &str| at(object, pointer).and_then(Value::as_str).unwrap_or_default();
    let name = match (text("/metadata/name"), text("/metadata/generateName")) {
        ("", generated) => generated,
        (name, _) => name,
    };
    match text("/metadata/namespace") {
        "" => format!("{} {name:?}", text("/kind")),
        namespace => format!("{} {:?}", text("/kind"), format!("{namespace}/{name}")),
    }
}

/// What an object says about its owner: a Helm release, a manager, or who has written its fields.
#[must_use]
pub fn owner(object: &Value) -> Option<String> {
    let text = |map: &str, key: &str| {
        let metadata = object.lookup("metadata")?;
        metadata.get(map)?.lookup(key)?.as_str().map(str::to_owned)
    };
    if let Some(release) = text("annotations", "meta.helm.sh/release-name") {
        return Some(format!("Helm release {release}"));
    }
    if let Some(manager) = text("labels", "app.kubernetes.io/managed-by") {
        return Some(format!("an installation that {manager} manages"));
    }
    if let Some(component) = text("labels", "operator.istio.io/component") {
        return Some(format!("Istio's component {component}"));
    }
    if text("labels", "istio").as_deref() == Some("sidecar-injector") {
        return Some("an installation of sidecar-injector".to_owned());
    }
    let managers = at(object, "/metadata/managedFields").and_then(Value::as_array);
    let mut names = managers.into_iter().flatten().filter_map(|entry| entry.lookup("manager")?.as_str());
    names.next().map(|name| format!("what {name} has written"))
}

/// The items of a List, or of a list of one kind with pods, such as a PodList.
pub fn items(object: &Value) -> Option<&Vec<Value>> {
    let items = object.lookup("items")?.as_array()?;
    let kind = object.lookup("kind").and_then(Value::as_str)?;
    (kind == "List" || Shape::of_kind(&item_kind(object)).is_some()).then_some(items)
}

/// What an item of a list of one kind leaves out, as API servers send them.
fn item_kind(list: &Value) -> Value {
    let kind = list.lookup("kind").and_then(Value::as_str).and_then(|kind| kind.strip_suffix("List"));
    json!({"apiVersion": list.lookup("apiVersion"), "kind": kind})
}

/// An item, with the kind that its list has where it has none itself.
pub(crate) fn item<'a>(list: &Value, item: &'a Value) -> Cow<'a, Value> {
    if item.lookup("kind").is_some() || list.lookup("kind").and_then(Value::as_str) == Some("List") {
        return Cow::Borrowed(item);
    }
    let mut whole = item_kind(list);
    if let (Some(whole), Some(item)) = (whole.as_object_mut(), item.as_object()) {
        whole.extend(item.iter().map(|(key, value)| (key.clone(), value.clone())));
    }
    Cow::Owned(whole)
}

/// Whether an object of an unknown kind has a pod somewhere: containers with images.
pub(crate) fn has_containers(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            let containers = value.as_array().filter(|_| key == "containers");
            containers.is_some_and(|all| all.iter().any(|one| one.lookup("image").is_some()))
                || has_containers(value)
        }),
        Value::Array(items) => items.iter().any(has_containers),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_goes_out_and_in_again() {
        let spec = json!({"containers": []});
        for (object, shape) in [
            (json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}), Shape::Pod),
            (
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {"spec": spec}}}),
                Shape::Template,
            ),
            (
                json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": {
                    "spec": {"template": {"metadata": {}, "spec": spec}}, "metadata": {"labels": {"a": "1"}}}}}),
                Shape::CronJob,
            ),
            (
                json!({"apiVersion": "v1", "kind": "PodTemplate", "template": {"metadata": {}, "spec": spec}}),
                Shape::PodTemplate,
            ),
        ] {
            assert_eq!(Shape::of(&object), Some(shape));
            assert_eq!(shape.with(&object, shape.pod(&object)), object);
        }
    }

    #[test]
    fn items_of_a_list_of_one_kind_have_its_kind() {
        let list = json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": [{"metadata": {"name": "a"}}]});
        let items = items(&list).unwrap();
        assert_eq!(title(&item(&list, &items[0])), "Deployment \"a\"");
        for kind in ["ServiceList", "DeploymentLister", "", "List"] {
            let other = json!({"apiVersion": "apps/v1", "kind": kind, "items": []});
            assert_eq!(super::items(&other).is_some(), kind == "List", "{kind}");
        }
    }

    #[test]
    fn metadata_that_the_pod_has_no_more_goes() {
        let cron = |template: Value| json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"jobTemplate": template}});
        let spec = json!({"template": {"spec": {"containers": []}}});
        let injected = cron(json!({"spec": spec, "metadata": {"labels": {"a": "1"}}}));
        let plain = cron(json!({"spec": spec}));
        assert_eq!(Shape::CronJob.with(&injected, Shape::CronJob.pod(&plain)), plain);
    }

    #[test]
    fn others_hold_no_pod() {
        for object in [
            json!({"apiVersion": "v1", "kind": "Service", "spec": {"template": {"spec": {}}}}),
            json!({"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"template": {"spec": {}}}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {}}),
            json!(7),
        ] {
            assert_eq!(Shape::of(&object), None, "{object}");
        }
    }
}
