//! `istio-iptables/uninject`: what the user wrote where the injected pod does not show it, so that `uninject`
//! restores it.
//!
//! It holds only what `uninject` would guess wrong: a default container that a template would set to the
//! same name, a port of a probe given by its name, a quantity that is not in canonical form, and what the
//! injection wrote or added because of its values or templates, so that `uninject` needs neither. A value
//! that has changed since is not restored, and not removed.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value, json};

use super::changes::{self, Changes, Parts};
use super::list::{self, List, annotation, metadata, name};
use super::place::{CONTAINERS, escaped, find_mut, unescaped};
use super::probes::{self, Probers};
use super::{is_istio_container, prometheus};
use crate::annotations::{self, Syntax, keys};
use crate::path::Lookup as _;
use crate::quantity::{self, Rewritten};

/// Templates set these to the first app container unless the pod has them.
const DEFAULTS: [&str; 2] = [keys::DEFAULT_CONTAINER, keys::DEFAULT_LOGS_CONTAINER];

/// The maps whose changes are noted, by the name of each in the note.
const MAPS: [&str; 3] = ["annotations", "labels", "spec"];

/// Every injection writes these, whatever its values are, or has another record of them: only the user's own
/// are noted.
const KNOWN: [(&str, &str); 9] = [
    ("annotations", keys::REVISION),
    ("annotations", keys::SCRAPE_TARGETS),
    ("labels", keys::TLS_MODE),
    ("labels", keys::CANONICAL_NAME),
    ("labels", keys::CANONICAL_REVISION),
    ("spec", "containers"),
    ("spec", "initContainers"),
    ("spec", "volumes"),
    ("spec", "imagePullSecrets"),
];

/// The API server accepts 256 KiB of annotations; a larger note would make a pod invalid.
pub(crate) const MOST_BYTES: usize = 64 * 1024;

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
    /// What templates changed in parts of the pod that are the user's.
    pub changes: Changes,
    /// Names of containers that templates added, but for Istio's: other templates may not define them.
    pub containers: Vec<String>,
    /// Containers of the pod's that templates deleted: the list, the position in it, and the container.
    pub deleted: Vec<(List, usize, Value)>,
    /// Probes and hooks that the agent has no record of, by the path of the rewritten one.
    pub probes: Probers,
    /// Containers of the pod's own that were moved: the list, the position in it, and the name.
    pub own: Vec<(List, usize, String)>,
}

/// One of [`MAPS`].
fn map<'a>(pod: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    if name == "spec" { pod.lookup(name)?.as_object() } else { metadata(pod, name) }
}

fn field<'a>(map: Option<&'a Map<String, Value>>, key: &str) -> Option<&'a Value> {
    map?.lookup(key)
}

fn is_known(name: &str, key: &str) -> bool {
    KNOWN.contains(&(name, key))
        || annotations::row(key).is_some_and(|row| row.syntax == Syntax::SetByInjection)
}

static EMPTY: Value = Value::String(String::new());

/// What the templates write of a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patched {
    /// Labels and annotations: the name of the map, the key, and the value.
    pub metadata: Vec<(&'static str, String, Value)>,
    /// The user's parts of the spec.
    pub parts: Parts,
    /// Whether all of the templates are built in.
    pub built_in: bool,
    /// Whether the pod was not injected before: what it has is the user's.
    pub first: bool,
}

impl Patched {
    /// What these patches write of the pod, which is without its earlier injection: `noted` are the changes
    /// of that one, `added` the items of a list.
    pub(crate) fn of<'a>(
        pod: &Value,
        patches: impl Iterator<Item = &'a Value> + Clone,
        noted: Option<&Changes>,
        added: impl Fn(&str) -> HashSet<&'a str>,
    ) -> Self {
        let mut metadata = Vec::new();
        for patch in patches.clone() {
            for name in ["annotations", "labels"] {
                let fields = list::metadata(patch, name).into_iter().flatten();
                metadata.extend(fields.map(|(key, value)| (name, key.clone(), value.clone())));
            }
        }
        let mut original = Cow::Borrowed(pod);
        if let Some(noted) = noted.filter(|noted| !noted.is_empty()) {
            changes::revert(original.to_mut(), noted);
        }
        let parts = changes::parts(&original, patches, added);
        Self { metadata, parts, ..Self::default() }
    }

    /// The value that the last of the templates writes.
    fn written(&self, name: &str, key: &str) -> Option<&Value> {
        let found = self.metadata.iter().rev().find(|(of, written, _)| *of == name && written == key);
        found.map(|(_, _, value)| value)
    }
}

impl OriginalForms {
    /// Reads the annotation; `None` if there is none or it cannot be read.
    pub(crate) fn noted(pod: &Value) -> Option<Self> {
        let noted: Value = serde_json::from_str(annotation(pod, keys::UNINJECT)?).ok()?;
        let fields = |key: &str| noted.lookup(key).and_then(Value::as_object).into_iter().flatten();
        let values = |key: &str| fields(key).map(|(place, value)| (place.clone(), value.clone())).collect();
        let names = |key: &str| -> Vec<String> {
            let names = noted.lookup(key).and_then(Value::as_array).into_iter().flatten();
            names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
        };
        let placed = |key: &str| {
            let all = noted.lookup(key).and_then(Value::as_array).into_iter().flatten();
            all.filter_map(placed)
        };
        Some(Self {
            annotations: names("annotations"),
            containers: names("containers"),
            deleted: placed("deleted").filter(|(_, _, container)| !name(container).is_empty()).collect(),
            own: placed("own")
                .filter_map(|(list, at, container)| Some((list, at, container.as_str()?.to_owned())))
                .collect(),
            ports: fields("ports")
                .filter_map(|(path, port)| Some((path.clone(), port.as_str()?.to_owned())))
                .collect(),
            quantities: values("quantities"),
            changes: values("changes"),
            probes: values("probes"),
            written: fields("written")
                .filter_map(|(name, written)| Some((name.clone(), written.as_object()?.clone())))
                .collect(),
        })
    }

    /// Notes where `after` differs from `before`, or from the pod before the earlier injection. `patches`
    /// are those of the templates, `parts` what they write into.
    pub(crate) fn note_written(&mut self, before: &Value, after: &Value, patched: &Patched) {
        let merges = prometheus::merged_by_default(after);
        let unrecorded = patched.first && !prometheus::is_recorded(before, after);
        for name in MAPS {
            let earlier = self.written.remove(name).unwrap_or_default();
            let (old_map, new_map) = (map(before, name), map(after, name));
            let gone = old_map.into_iter().flat_map(Map::keys).filter(|key| field(new_map, key).is_none());
            let noted = earlier.keys().filter(|key| field(new_map, key).or(field(old_map, key)).is_none());
            let mut written = Map::new();
            for key in new_map.into_iter().flat_map(Map::keys).chain(gone).chain(noted) {
                // A text that is null is empty.
                let present = |value: &&Value| name != "spec" || !value.is_null();
                let text = |value| if Value::is_null(value) { &EMPTY } else { value };
                let [new, had] = [new_map, old_map].map(|map| field(map, key).filter(present).map(text));
                let merged_metrics = merges && prometheus::is_written(key);
                // Another template may write another value of what each writes; that of metrics is what is
                // there without their merging.
                let own = patched.written(name, key).filter(|_| !patched.built_in);
                let known = (is_known(name, key) || merged_metrics) && own.is_none();
                let old = match earlier.lookup(key) {
                    // The pod has what the merging wrote.
                    Some(noted) if merged_metrics => noted.get(1),
                    Some(noted) if noted.get(0).filter(|value| !value.is_null()) == had => noted.get(1),
                    None if known && !patched.first => None,
                    Some(_) | None => had,
                };
                let again = || old.is_some() && name != "spec" && patched.written(name, key).is_some();
                // What a template merges into an object or list of the user's is in `changes`.
                let merged = || old.is_some() && new.is_some_and(|new| new.is_object() || new.is_array());
                let new = own.filter(|_| merged_metrics).or(new);
                // Of what each writes, the user's own is noted.
                let scraped = name != "spec" && prometheus::is_scraped(key);
                let noted = if known && !scraped {
                    old.is_some() && name != "spec" && KNOWN.contains(&(name, key))
                } else {
                    !known && (old != new || again()) || scraped && (unrecorded || earlier.contains_key(key))
                };
                if noted && !merged() {
                    let entry = [Some(new.unwrap_or(&Value::Null)), old].into_iter().flatten().cloned();
                    written.insert(key.clone(), entry.collect());
                }
            }
            if !written.is_empty() {
                // A second injection finds the keys in another order.
                written.sort_keys();
                self.written.insert(name.to_owned(), written);
            }
        }
        self.changes = changes::between(&patched.parts, after, &self.ports, &self.probes);
    }

    /// Takes back what the injection wrote and nothing has changed since, as `injected` or `pod`, which is
    /// without its merged metrics, shows. Reports what has been changed.
    pub(crate) fn revert_written(&self, pod: &mut Value, injected: &Value) -> Vec<String> {
        for (name, written) in &self.written {
            let injected = map(injected, name);
            let parent = if name == "spec" { Some(&mut *pod) } else { pod.get_mut("metadata") };
            let Some(map) = parent.and_then(|parent| parent.get_mut(name)?.as_object_mut()) else { continue };
            for (key, noted) in written {
                let new = noted.get(0).filter(|new| !new.is_null());
                let is_new = |value: Option<&Value>| match (value, new) {
                    (Some(value), Some(new)) => changes::covers(value, new),
                    (value, new) => value.is_none() && new.is_none(),
                };
                let as_written = is_new(map.lookup(key))
                    || name != "spec" && prometheus::is_scraped(key) && is_new(field(injected, key));
                match noted.get(1) {
                    _ if !as_written => {}
                    Some(old) => drop(map.insert(key.clone(), old.clone())),
                    None => drop(map.shift_remove(key)),
                }
            }
        }
        changes::revert(pod, &self.changes)
    }

    /// Whether the note says what was there before: all but what every injection writes.
    pub(crate) fn says(name: &str, key: &str) -> bool {
        !is_known(name, key) && !prometheus::is_written(key)
    }

    /// Whether the note says what the pod had there itself.
    pub(crate) fn has_own_field(&self, name: &str, key: &str) -> bool {
        self.written
            .get(name)
            .and_then(|written| written.lookup(key))
            .is_some_and(|noted| noted.get(1).is_some())
    }

    /// Whether this item of a list of the spec is the user's, although a template defines it, too.
    pub(crate) fn has_own(&self, list: &str, item: &str) -> bool {
        let place = changes::item_place(list, item);
        let mut from = self.changes.range(place.clone()..);
        from.next().is_some_and(|(found, _)| *found == place || found.starts_with(&format!("{place}/")))
    }

    /// The default containers of a pod that was not injected, where templates would choose the same, or none:
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
        let is_guessed = |key: &&str| chosen(key).is_none() || chosen(key) == annotation(pod, key);
        own.into_iter().filter(is_guessed).map(str::to_owned).collect()
    }

    /// Of the containers of a pod that was not injected, those with names of Istio's, which an injection
    /// moves, and all where templates have changed the order of the others.
    pub(crate) fn moved_places(
        before: Vec<(List, usize, String)>,
        after: &Value,
    ) -> Vec<(List, usize, String)> {
        let app = |name: &&str| !is_istio_container(name);
        let had: HashSet<&str> = before.iter().map(|(_, _, name)| name.as_str()).filter(app).collect();
        let same_order = List::BOTH.into_iter().all(|list| {
            let then = before.iter().filter(|(of, _, _)| *of == list).map(|(_, _, name)| name.as_str());
            let now = list::containers(after, list).iter().map(name).filter(|name| had.contains(name));
            then.filter(app).eq(now)
        });
        let is_moved = |name: &str| !same_order || is_istio_container(name);
        let moved: Vec<bool> = before.iter().map(|(_, _, name)| is_moved(name)).collect();
        before.into_iter().zip(moved).filter(|(_, moved)| *moved).map(|(place, _)| place).collect()
    }

    /// Puts the pod's own containers that an injection has moved where they were.
    pub(crate) fn restore_places(&self, pod: &mut Value) {
        let mut own = Vec::new();
        for (list, at, container) in &self.own {
            for from in List::BOTH {
                let mut items = list::take(pod, from);
                if let Some(found) = items.iter().position(|item| name(item) == container) {
                    own.push((*list, *at, items.remove(found)));
                }
                list::put(pod, from, items);
            }
        }
        for (list, at, container) in own {
            let mut items = list::take(pod, list);
            items.insert(at.min(items.len()), container);
            list::put(pod, list, items);
        }
    }

    /// Adds quantities of `pod` that were written otherwise.
    pub(crate) fn add_quantities(&mut self, pod: &Value, rewritten: Vec<Rewritten>) {
        let named = rewritten.into_iter().map(|one| (by_name(pod, &one.pointer), one.given));
        self.quantities.extend(named);
    }

    /// Puts the containers back that templates deleted, unless the pod has others of their names by now.
    pub(crate) fn restore_deleted(&self, pod: &mut Value) {
        for (list, at, container) in &self.deleted {
            if list::places(pod, name(container)).is_empty() {
                let mut items = list::take(pod, *list);
                items.insert((*at).min(items.len()), container.clone());
                list::put(pod, *list, items);
            }
        }
    }

    /// Puts back what has not changed since.
    pub(crate) fn restore(&self, pod: &mut Value) {
        probes::restore(pod, &self.probes);
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
        if !self.changes.is_empty() {
            all.insert("changes".to_owned(), json!(self.changes));
        }
        if !self.containers.is_empty() {
            all.insert("containers".to_owned(), json!(self.containers));
        }
        if !self.deleted.is_empty() {
            let deleted = self.deleted.iter().map(|(list, at, container)| json!([list.key(), at, container]));
            all.insert("deleted".to_owned(), deleted.collect());
        }
        if !self.own.is_empty() {
            let own = self.own.iter().map(|(list, at, container)| json!([list.key(), at, container]));
            all.insert("own".to_owned(), own.collect());
        }
        if !self.probes.is_empty() {
            all.insert("probes".to_owned(), json!(self.probes));
        }
        (!all.is_empty()).then(|| Value::Object(all).to_string())
    }
}

/// A list, a position in it, and what is there.
fn placed(noted: &Value) -> Option<(List, usize, Value)> {
    let list = List::BOTH.into_iter().find(|list| noted.get(0).is_some_and(|key| key == list.key()))?;
    Some((list, usize::try_from(noted.get(1)?.as_u64()?).ok()?, noted.get(2)?.clone()))
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
}
