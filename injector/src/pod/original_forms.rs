//! `istio-iptables/uninject`: what the user wrote where the injected pod does not show it, so that `uninject`
//! restores it.
//!
//! It holds only what `uninject` would guess wrong: a default container that a template would set to the
//! same name, a port of a probe given by its name, a quantity that is not in canonical form, and what the
//! injection wrote because of its values or templates, so that `uninject` needs neither. A value that has
//! changed since is not restored, and not removed.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::list::{self, List, annotation, containers, find, metadata, name};
use super::{probes, prometheus};
use crate::annotations::{self, Syntax, keys};
use crate::quantity::{self, Rewritten};

/// Templates set these to the first app container unless the pod has them.
const DEFAULTS: [&str; 2] = [keys::DEFAULT_CONTAINER, keys::DEFAULT_LOGS_CONTAINER];

/// The maps whose changes are noted, by the name of each in the note.
const MAPS: [&str; 3] = ["annotations", "labels", "spec"];

/// Every injection writes these, whatever its values are, or has another record of them.
const KNOWN: [(&str, &str); 8] = [
    ("annotations", keys::REVISION),
    ("labels", keys::TLS_MODE),
    ("labels", keys::CANONICAL_NAME),
    ("labels", keys::CANONICAL_REVISION),
    ("spec", "containers"),
    ("spec", "initContainers"),
    ("spec", "volumes"),
    ("spec", "imagePullSecrets"),
];

/// The API server accepts 256 KiB of annotations; a larger note would make a pod invalid.
const MOST_BYTES: usize = 64 * 1024;

/// What the user wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OriginalForms {
    /// Keys of annotations that the pod had.
    pub annotations: Vec<String>,
    /// Names of ports, by the path of the rewritten probe or hook.
    pub ports: BTreeMap<String, String>,
    /// Quantities, by the place in the pod: a JSON pointer in which items of lists go by their name, and
    /// containers of both lists are below `/containers`.
    pub quantities: BTreeMap<String, Value>,
    /// What the injection wrote into each of [`MAPS`]: the new value, and the earlier one if there was any.
    pub written: BTreeMap<String, Map<String, Value>>,
}

/// One of [`MAPS`].
fn map<'a>(pod: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    if name == "spec" { pod.get(name)?.as_object() } else { metadata(pod, name) }
}

fn by_injection(key: &str) -> bool {
    annotations::row(key).is_some_and(|row| row.syntax == Syntax::SetByInjection)
}

impl OriginalForms {
    /// Reads the annotation; `None` if there is none or it cannot be read.
    pub(crate) fn noted(pod: &Value) -> Option<Self> {
        let noted: Value = serde_json::from_str(annotation(pod, keys::UNINJECT)?).ok()?;
        let fields = |key: &str| noted.get(key).and_then(Value::as_object).into_iter().flatten();
        let annotations = noted.get("annotations").and_then(Value::as_array).into_iter().flatten();
        Some(Self {
            annotations: annotations.filter_map(|key| key.as_str().map(str::to_owned)).collect(),
            ports: fields("ports")
                .filter_map(|(path, port)| Some((path.clone(), port.as_str()?.to_owned())))
                .collect(),
            quantities: fields("quantities").map(|(place, value)| (place.clone(), value.clone())).collect(),
            written: fields("written")
                .filter_map(|(name, written)| Some((name.clone(), written.as_object()?.clone())))
                .collect(),
        })
    }

    /// Notes where `after` differs from `before`, or from the pod before the earlier injection.
    pub(crate) fn note_written(&mut self, before: &Value, after: &Value) {
        let scraped = prometheus::merged_by_default(after);
        for name in MAPS {
            let earlier = self.written.remove(name).unwrap_or_default();
            let mut written = Map::new();
            for (key, new) in map(after, name).into_iter().flatten() {
                let had = map(before, name).and_then(|map| map.get(key)).filter(|value| !value.is_null());
                let old = match earlier.get(key) {
                    Some(noted) if noted.get(0) == had => noted.get(1),
                    Some(_) | None => had,
                };
                // What a template merges into an object of the user's is not noted.
                let merged = old.is_some() && (new.is_object() || new.is_array());
                let known = KNOWN.contains(&(name, key))
                    || by_injection(key)
                    || scraped && prometheus::is_written(key);
                if old != Some(new) && !merged && !known {
                    written.insert(key.clone(), [Some(new), old].into_iter().flatten().cloned().collect());
                }
            }
            if !written.is_empty() {
                self.written.insert(name.to_owned(), written);
            }
        }
    }

    /// Takes back what the injection wrote and nothing has changed since.
    pub(crate) fn revert_written(&self, pod: &mut Value) {
        for (name, written) in &self.written {
            let parent = if name == "spec" { Some(&mut *pod) } else { pod.get_mut("metadata") };
            let Some(map) = parent.and_then(|parent| parent.get_mut(name)?.as_object_mut()) else { continue };
            map.retain(|key, value| {
                let noted = written.get(key).filter(|noted| noted.get(0) == Some(value));
                let old = noted.and_then(|noted| noted.get(1));
                if let Some(old) = old {
                    value.clone_from(old);
                }
                noted.is_none() || old.is_some()
            });
        }
    }

    /// The default containers of a pod that was not injected, where templates would choose the same:
    /// `patches` renders them for the pod without its own.
    pub(crate) fn default_containers(pod: &Value, patches: impl Fn(Value) -> Vec<Value>) -> Vec<String> {
        let own: Vec<&str> = DEFAULTS.into_iter().filter(|key| annotation(pod, key).is_some()).collect();
        if own.is_empty() {
            return Vec::new();
        }
        let mut bare = pod.clone();
        for key in &own {
            list::remove_annotation(&mut bare, key);
        }
        let patches = patches(bare);
        let chosen = |key: &str| patches.iter().rev().find_map(|patch| annotation(patch, key));
        own.into_iter().filter(|key| chosen(key) == annotation(pod, key)).map(str::to_owned).collect()
    }

    /// Adds quantities of `pod` that were written otherwise.
    pub(crate) fn add_quantities(&mut self, pod: &Value, rewritten: Vec<Rewritten>) {
        let named = rewritten.into_iter().map(|one| (by_name(pod, &one.pointer), one.given));
        self.quantities.extend(named);
    }

    /// Puts back what has not changed since.
    pub(crate) fn restore(&self, pod: &mut Value) {
        probes::restore_names(pod, &self.ports);
        for (place, given) in &self.quantities {
            let Some(current) = find_mut(pod, place) else { continue };
            let canonical = quantity::canonical(&quantity::text(given)).ok();
            if canonical.is_some() && canonical.as_deref() == current.as_str() {
                current.clone_from(given);
            }
        }
    }

    /// The annotation's text; `None` where nothing is to be noted.
    pub(crate) fn to_json(&self, pod: &Value) -> Option<String> {
        let mut all = Map::new();
        let own = metadata(pod, "annotations");
        let present = |key: &&String| own.is_some_and(|own| own.contains_key(key.as_str()));
        let annotations: Vec<&String> = self.annotations.iter().filter(present).collect();
        if !annotations.is_empty() {
            all.insert("annotations".to_owned(), json!(annotations));
        }
        if !self.ports.is_empty() {
            all.insert("ports".to_owned(), json!(self.ports));
        }
        if !self.quantities.is_empty() {
            all.insert("quantities".to_owned(), json!(self.quantities));
        }
        if !self.written.is_empty() {
            all.insert("written".to_owned(), json!(self.written));
        }
        let text = (!all.is_empty()).then(|| Value::Object(all).to_string());
        text.filter(|text| text.len() <= MOST_BYTES)
    }
}

/// The pointer with names in place of the indices of lists: injection adds items and orders them.
fn by_name(pod: &Value, pointer: &str) -> String {
    let mut named = String::with_capacity(pointer.len());
    let mut value = Some(pod);
    for step in pointer.split('/').skip(1) {
        let below = value.and_then(|value| match value {
            Value::Array(items) => items.get(step.parse::<usize>().ok()?),
            Value::Object(fields) => fields.get(&unescaped(step)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        });
        named.push('/');
        match (value, below.map(name)) {
            (Some(Value::Array(_)), Some(item)) if !item.is_empty() => named.push_str(&escaped(item)),
            _ => named.push_str(step),
        }
        value = below;
    }
    // Injection moves the user's proxy from one list to the other.
    match List::BOTH.iter().find_map(|list| named.strip_prefix("/spec/")?.strip_prefix(list.key())) {
        Some(below) if below.starts_with('/') => format!("{CONTAINERS}{below}"),
        _ => named,
    }
}

/// The place of a container, whichever list it is in.
const CONTAINERS: &str = "/containers";

fn find_mut<'a>(pod: &'a mut Value, place: &str) -> Option<&'a mut Value> {
    if let Some((container, below)) = place
        .strip_prefix(CONTAINERS)
        .and_then(|below| below.strip_prefix('/'))
        .map(|below| below.split_at(below.find('/').unwrap_or(below.len())))
    {
        let container = unescaped(container);
        let list = List::BOTH.into_iter().find(|list| find(containers(pod, *list), &container).is_some())?;
        let found = list::containers_mut(pod, list).iter_mut().find(|item| name(item) == container)?;
        return below_mut(found, below);
    }
    below_mut(pod, place)
}

fn below_mut<'a>(value: &'a mut Value, place: &str) -> Option<&'a mut Value> {
    place.split('/').skip(1).try_fold(value, |value, step| {
        let step = unescaped(step);
        match value {
            Value::Object(fields) => fields.get_mut(&step),
            Value::Array(items) => {
                let named = items.iter().position(|item| name(item) == step);
                items.get_mut(named.or_else(|| step.parse().ok())?)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    })
}

fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"annotations": {(keys::DEFAULT_CONTAINER): "web", (keys::DEFAULT_LOGS_CONTAINER): "log"}},
            "spec": {
                "containers": [
                    {"name": "istio-proxy"},
                    {"name": "web", "resources": {"limits": {"cpu": "1000m", "example.com/gpu": 2}, "requests": {"cpu": "1"}}},
                ],
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1024Mi"}}],
            },
        })
    }

    fn noted(pod: &Value) -> (Value, OriginalForms) {
        let mut canonical = pod.clone();
        let rewritten = quantity::canonicalize(&mut canonical).unwrap();
        let chosen = json!({"metadata": {"annotations": {
            (keys::DEFAULT_CONTAINER): "web", (keys::DEFAULT_LOGS_CONTAINER): "web"}}});
        let annotations = OriginalForms::default_containers(pod, |bare| {
            assert_eq!(metadata(&bare, "annotations"), Some(&Map::new()));
            vec![chosen.clone(), json!({"metadata": {}})]
        });
        let mut forms = OriginalForms { annotations, ..OriginalForms::default() };
        forms.add_quantities(pod, rewritten);
        (canonical, forms)
    }

    #[test]
    fn only_what_a_guess_would_get_wrong_is_noted() {
        let (canonical, forms) = noted(&pod());
        let text = forms.to_json(&canonical).unwrap();
        assert_eq!(
            text,
            concat!(
                r#"{"annotations":["kubectl.kubernetes.io/default-container"],"quantities":"#,
                r#"{"/containers/web/resources/limits/cpu":"1000m","/containers/web/resources/limits/example.com~1gpu":2,"#,
                r#""/spec/volumes/v/emptyDir/sizeLimit":"1024Mi"}}"#
            )
        );
        let annotated = json!({"metadata": {"annotations": {(keys::UNINJECT): text}}});
        assert_eq!(OriginalForms::noted(&annotated), Some(forms));
        assert_eq!(noted(&canonical).1.quantities, BTreeMap::new());
        assert_eq!(OriginalForms::default().to_json(&canonical), None);
        for text in ["", "{", "7"] {
            let pod = json!({"metadata": {"annotations": {(keys::UNINJECT): text}}});
            assert!(OriginalForms::noted(&pod).is_none_or(|noted| noted == OriginalForms::default()));
        }
    }

    #[test]
    fn changed_values_stay_and_others_are_restored() {
        let (mut canonical, forms) = noted(&pod());
        let mut changed = canonical.clone();
        forms.restore(&mut canonical);
        assert_eq!(canonical, pod());
        changed["spec"]["containers"].as_array_mut().unwrap().reverse();
        changed["spec"]["containers"][0]["resources"]["limits"]["cpu"] = json!("2");
        changed["spec"]["initContainers"] = changed["spec"]["containers"].take();
        forms.restore(&mut changed);
        let limits = &changed["spec"]["initContainers"][0]["resources"]["limits"];
        assert_eq!(*limits, json!({"cpu": "2", "example.com/gpu": 2}));
    }

    #[test]
    fn a_note_that_is_too_long_is_not_written() {
        let long = (0..2000).map(|at| (format!("/spec/containers/{at:040}/resources"), json!("1000m")));
        let forms = OriginalForms { quantities: long.collect(), ..OriginalForms::default() };
        assert_eq!(forms.to_json(&json!({})), None);
    }
}
