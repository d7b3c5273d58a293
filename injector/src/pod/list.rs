//! Reading and changing the lists of containers and the maps of a pod.

use std::collections::HashSet;

use serde_json::{Map, Value};

use crate::path::Lookup as _;

/// Which of the two lists of containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum List {
    /// `spec.containers`.
    Containers,
    /// `spec.initContainers`.
    InitContainers,
}

impl List {
    /// Containers and init containers, app containers first.
    pub(crate) const BOTH: [Self; 2] = [Self::Containers, Self::InitContainers];

    /// The key of the list in a pod spec.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Containers => "containers",
            Self::InitContainers => "initContainers",
        }
    }
}

/// The items of a list of the spec, none if it is missing.
pub(crate) fn items<'a>(pod: &'a Value, list: &str) -> &'a [Value] {
    pod.lookup("spec").and_then(|spec| spec.lookup(list)?.as_array()).map_or(&[], Vec::as_slice)
}

/// The containers of a list, none if it is missing.
pub(crate) fn containers(pod: &Value, list: List) -> &[Value] {
    items(pod, list.key())
}

/// The containers of both lists, app containers first.
pub(crate) fn all_containers(pod: &Value) -> impl Iterator<Item = &Value> {
    List::BOTH.into_iter().flat_map(|list| containers(pod, list))
}

/// The containers of a list, to be changed; nothing if the list is missing.
pub(crate) fn containers_mut(pod: &mut Value, list: List) -> &mut [Value] {
    pod.get_mut("spec")
        .and_then(|spec| spec.get_mut(list.key()))
        .and_then(Value::as_array_mut)
        .map_or(&mut [], Vec::as_mut_slice)
}

/// Removes the whole list; [`put`] restores it.
pub(crate) fn take(pod: &mut Value, list: List) -> Vec<Value> {
    match pod.get_mut("spec").and_then(|spec| spec.get_mut(list.key())) {
        Some(Value::Array(items)) => std::mem::take(items),
        _ => Vec::new(),
    }
}

/// Puts a list in place; an empty one only where a list is already.
pub(crate) fn put(pod: &mut Value, list: List, items: Vec<Value>) {
    let Some(spec) = object_mut(pod, "spec") else {
        return;
    };
    if items.is_empty() && !spec.contains_key(list.key()) {
        return;
    }
    spec.insert(list.key().to_owned(), Value::Array(items));
}

#[cfg(test)]
thread_local! {
    /// How often this thread has called [`name`]: a measure of work that does not depend on the machine.
    pub(crate) static NAMES_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The `name` of a container, volume or variable.
pub(crate) fn name(item: &Value) -> &str {
    #[cfg(test)]
    NAMES_READ.set(NAMES_READ.get() + 1);
    // It is mostly the first key, and hashing takes longer than a few comparisons.
    let found = item.as_object().and_then(|fields| fields.iter().find(|(key, _)| *key == "name"));
    found.and_then(|(_, name)| name.as_str()).unwrap_or_default()
}

/// The first item of this name.
pub(crate) fn find<'a>(items: &'a [Value], wanted: &str) -> Option<&'a Value> {
    items.iter().find(|item| name(item) == wanted)
}

/// The paths of all containers of this name.
pub(crate) fn places(pod: &Value, wanted: &str) -> Vec<String> {
    let mut places = Vec::new();
    for list in List::BOTH {
        let all = containers(pod, list).iter().enumerate().filter(|(_, item)| name(item) == wanted);
        places.extend(all.map(|(at, _)| format!("spec.{}[{at}]", list.key())));
    }
    places
}

/// All containers, each with its list and its position there.
pub(crate) fn positions(pod: &Value) -> Vec<(List, usize, Value)> {
    let of = |list| containers(pod, list).iter().cloned().enumerate().map(move |(at, item)| (list, at, item));
    List::BOTH.into_iter().flat_map(of).collect()
}

/// The names of all containers, each with its list and its position there.
pub(crate) fn name_places(pod: &Value) -> Vec<(List, usize, String)> {
    let of = |list| containers(pod, list).iter().enumerate().map(move |(at, item)| (list, at, name(item)));
    let all = List::BOTH.into_iter().flat_map(of);
    all.map(|(list, at, name)| (list, at, name.to_owned())).collect()
}

/// The names that containers before them in the pod have already.
pub(crate) fn duplicates(pod: &Value) -> Vec<&str> {
    let mut seen = HashSet::new();
    all_containers(pod).map(name).filter(|name| !seen.insert(*name)).collect()
}

/// The proxy: a regular container, otherwise a native sidecar.
pub(crate) fn proxy(pod: &Value) -> Option<&Value> {
    List::BOTH.into_iter().find_map(|list| find(containers(pod, list), super::PROXY))
}

/// The proxy, to be changed: a regular container, otherwise a native sidecar.
pub(crate) fn proxy_mut(pod: &mut Value) -> Option<&mut Value> {
    let list = List::BOTH.into_iter().find(|list| find(containers(pod, *list), super::PROXY).is_some())?;
    containers_mut(pod, list).iter_mut().find(|item| name(item) == super::PROXY)
}

/// The object under `key`, made if it is missing or null.
pub(crate) fn object_mut<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let slot = value.as_object_mut()?.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut()
}

/// `metadata.annotations` or `metadata.labels`, made if missing.
pub(crate) fn metadata_mut<'a>(pod: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    object_mut(pod, "metadata")?;
    object_mut(pod.get_mut("metadata")?, key)
}

/// An annotation.
pub(crate) fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    metadata(pod, "annotations")?.lookup(key)?.as_str()
}

/// A label.
pub(crate) fn label<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    metadata(pod, "labels")?.lookup(key)?.as_str()
}

/// `metadata.annotations` or `metadata.labels`.
pub(crate) fn metadata<'a>(pod: &'a Value, key: &str) -> Option<&'a Map<String, Value>> {
    pod.lookup("metadata")?.lookup(key)?.as_object()
}

/// Labels and annotations that are null become what Kubernetes reads there: the empty text.
pub(crate) fn no_null_texts(pod: &mut Value) {
    for key in ["labels", "annotations"] {
        let map = pod.get_mut("metadata").and_then(|metadata| metadata.get_mut(key)?.as_object_mut());
        for text in map.into_iter().flat_map(Map::values_mut).filter(|value| value.is_null()) {
            *text = Value::String(String::new());
        }
    }
}

/// Takes an annotation away, and the map with it when nothing is left.
pub(crate) fn remove_annotation(pod: &mut Value, key: &str) -> Option<Value> {
    let annotations = pod.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()?;
    annotations.shift_remove(key)
}
