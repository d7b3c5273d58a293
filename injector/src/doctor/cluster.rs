//! The saved objects, by kind, namespace and name.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use crate::decide::{Selector, webhook_selectors};
pub(super) use crate::path::text;

/// Every object by its kind, the items of Lists rather than the Lists.
#[derive(Debug, Default)]
pub(super) struct Cluster<'a> {
    kinds: HashMap<&'a str, Vec<&'a Value>>,
}

impl<'a> Cluster<'a> {
    pub(super) fn new(objects: &'a [Value]) -> Self {
        let mut cluster = Self::default();
        objects.iter().for_each(|object| cluster.add(object));
        cluster
    }

    fn add(&mut self, object: &'a Value) {
        let kind = text(object, "/kind");
        match (object.get("items").and_then(Value::as_array), kind.strip_suffix("List")) {
            (Some(items), Some(of)) => {
                // A list of one kind says that this kind was looked for, even where there is none.
                if !of.is_empty() {
                    self.kinds.entry(of).or_default();
                }
                items.iter().for_each(|item| self.add(item));
            }
            _ if kind.is_empty() => {} // no object
            _ => self.kinds.entry(kind).or_default().push(object),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.kinds.values().map(Vec::len).sum()
    }

    pub(super) fn all(&self, kind: &str) -> impl Iterator<Item = &'a Value> + use<'a, '_> {
        self.kinds.get(kind).into_iter().flatten().copied()
    }

    /// Whether a kind is among what was read: an object of it, or a list of it. Else nothing is known about a
    /// missing one.
    pub(super) fn knows(&self, kind: &str) -> bool {
        self.kinds.contains_key(kind)
    }

    pub(super) fn within(&self, kind: &str, namespace: &str) -> impl Iterator<Item = &'a Value> {
        self.all(kind).filter(move |object| text(object, "/metadata/namespace") == namespace)
    }

    pub(super) fn find(&self, kind: &str, namespace: &str, wanted: &str) -> Option<&'a Value> {
        self.within(kind, namespace).find(|object| name(object) == wanted)
    }

    /// Whether one is missing in a namespace that has others of its kind; with none of them, they were not
    /// read.
    pub(super) fn lacks(&self, kind: &str, namespace: &str, wanted: &str) -> bool {
        self.within(kind, namespace).next().is_some() && self.find(kind, namespace, wanted).is_none()
    }

    /// Labels of a namespace, with the one that the API server adds.
    pub(super) fn namespace_labels(&self, wanted: &str) -> Option<Map<String, Value>> {
        self.all("Namespace").find(|object| name(object) == wanted).map(namespace_labels)
    }
}

pub(super) fn namespace_labels(namespace: &Value) -> Map<String, Value> {
    let mut labels = labels(namespace, "/metadata/labels");
    labels.entry(webhook_selectors::NAME).or_insert_with(|| json!(name(namespace)));
    labels
}

pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// `Kind namespace/name`.
pub(super) fn title(object: &Value) -> String {
    let kind = text(object, "/kind");
    match text(object, "/metadata/namespace") {
        "" => format!("{kind} {}", name(object)),
        namespace => format!("{kind} {namespace}/{}", name(object)),
    }
}

pub(super) fn labels(object: &Value, pointer: &str) -> Map<String, Value> {
    object.pointer(pointer).and_then(Value::as_object).cloned().unwrap_or_default()
}

pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A Service's selector: labels, all of which must be there. An empty one selects nothing.
pub(super) fn service_selects(service: &Value, labels: &Map<String, Value>) -> bool {
    let selector = json!({"matchLabels": service.pointer("/spec/selector")});
    Selector::parse(&selector).is_ok_and(|selector| !selector.is_empty() && selector.matches(labels))
}

/// The words of a container's command line.
pub(super) fn command_line(container: &Value) -> impl Iterator<Item = &str> {
    list(container, "/command").iter().chain(list(container, "/args")).filter_map(Value::as_str)
}
