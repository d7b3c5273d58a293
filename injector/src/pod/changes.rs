//! What templates change in parts of the pod that are the user's: for the note that `uninject` reads.
//!
//! A part is an object or a list of the spec, a container, a volume or a pull secret. Each change is noted by
//! its place: a JSON pointer in which `[name=web]` is the item of a list with this merge key, and containers
//! of both lists are below `/containers`. Its value is `[new]` for what a template added, `[new, old]` for
//! what it replaced, `[null, old]` for what it deleted, and `true` for what is as it was.

use std::collections::{BTreeMap, HashMap, HashSet};

use gotemplate::{Field, Kind};
use serde_json::{Value, json};

use super::is_istio_container;
use super::list::{self, name};
use super::place::{self, escaped};
use super::probes::{self, Probers};
use crate::path::Lookup as _;
use crate::schema::{self, ListMerge, list_merge, pointee};

/// By place.
pub(crate) type Changes = BTreeMap<String, Value>;

/// The parts of a pod that templates write into, as they were before, by place.
pub(crate) type Parts = BTreeMap<String, Value>;

/// The list that a pod may have thousands of items in.
const VOLUMES: &str = "/spec/volumes/";

/// Lists of which each item is a part.
const BY_ITEM: [&str; 4] = ["containers", "initContainers", "volumes", "imagePullSecrets"];

/// The parts of `pod` that these patches of pods write into. `added` are the items of a list that an earlier
/// injection added.
pub(crate) fn parts<'a>(
    pod: &Value,
    patches: impl Iterator<Item = &'a Value>,
    added: impl Fn(&str) -> HashSet<&'a str>,
) -> Parts {
    let mut parts = Parts::new();
    for (key, patched) in patches.filter_map(|patch| patch.lookup("spec")?.as_object()).flatten() {
        if !BY_ITEM.contains(&key.as_str()) {
            let own = pod.lookup("spec").and_then(|spec| spec.lookup(key));
            if let Some(own) = own.filter(|own| own.is_object() || own.is_array()) {
                parts.insert(format!("/spec/{}", escaped(key)), own.clone());
            }
            continue;
        }
        let patched = patched.as_array().map_or(&[][..], Vec::as_slice);
        let all = patched.iter().any(|item| item.lookup("$patch").is_some());
        let patched: HashSet<&str> = patched.iter().map(name).collect();
        let added = added(key);
        for item in list::items(pod, key) {
            let name = name(item);
            if (all || patched.contains(name)) && !added.contains(name) && !is_istio_container(name) {
                parts.insert(item_place(key, name), item.clone());
            }
        }
    }
    parts
}

/// The place of an item of a list of the spec.
pub(crate) fn item_place(list: &str, item: &str) -> String {
    match list {
        "containers" | "initContainers" => format!("/containers/{}", escaped(item)),
        _ => format!("/spec/{list}/{}", place::item("name", &json!(item))),
    }
}

/// What differs in these parts of a pod, whose rewritten probes had `names` of ports and these `actions`.
pub(crate) fn between(
    parts: &Parts,
    after: &Value,
    names: &BTreeMap<String, String>,
    actions: &Probers,
) -> Changes {
    let mut changes = Changes::new();
    if parts.is_empty() {
        return changes;
    }
    let mut after = after.clone();
    let mut originals = list::proxy(&after).map(probes::noted).unwrap_or_default();
    originals.extend(actions.clone());
    probes::restore(&mut after, &originals);
    probes::restore_names(&mut after, names);
    // Looking each up in its list takes long where a pod has thousands.
    let volumes = list::items(&after, "volumes").iter().rev().map(|item| (name(item), item));
    let volumes: HashMap<&str, &Value> = volumes.collect();
    for (place, old) in parts {
        let is_volume = place.starts_with(VOLUMES) && place.matches('/').count() == 3;
        let new = if is_volume { volumes.get(name(old)).copied() } else { place::find(&after, place) };
        if new.is_none() && place.starts_with(place::CONTAINERS) {
            // A container that is gone is noted with its position.
            continue;
        }
        let before = changes.len();
        compare(place, Some(old), new, part_type(place), &mut changes);
        let is_item = place.starts_with("/spec/") && place.matches('/').count() > 2;
        if is_item && changes.len() == before {
            changes.insert(place.clone(), Value::Bool(true));
        }
    }
    changes
}

/// The type of a value, and how a list of it merges.
type Type = Option<(Kind, ListMerge)>;

fn type_of(field: &'static Field) -> Type {
    Some((pointee(field.kind), list_merge(field)))
}

fn part_type(place: &str) -> Type {
    let Some(below) = place.strip_prefix("/spec/") else {
        return Some((Kind::Struct(&schema::CONTAINER), ListMerge::Atomic));
    };
    let (key, item) = below.split_once('/').map_or((below, None), |(key, item)| (key, Some(item)));
    let of = type_of(schema::POD_SPEC.by_key(key)?);
    match (of, item) {
        (Some((Kind::List(of), _)), Some(_)) => Some((*of, ListMerge::Atomic)),
        _ => of,
    }
}

fn compare(place: &str, old: Option<&Value>, new: Option<&Value>, of: Type, into: &mut Changes) {
    match (old, new, of) {
        (None, None, _) => {}
        (Some(old), Some(new), _) if old == new => {}
        (Some(Value::Object(old)), Some(Value::Object(new)), of) => {
            let schema = if let Some((Kind::Struct(schema), _)) = of { Some(schema) } else { None };
            for key in old.keys().chain(new.keys().filter(|key| !old.contains_key(*key))) {
                let of = schema.and_then(|schema| type_of(schema.by_key(key)?));
                compare(&format!("{place}/{}", escaped(key)), old.lookup(key), new.lookup(key), of, into);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new)), Some((Kind::List(of), ListMerge::Key(key))))
            if in_order(old, new, key) =>
        {
            for item in new {
                let Some(wanted) = item.lookup(key) else { continue };
                let before = old.iter().find(|old| old.lookup(key) == Some(wanted));
                let place = format!("{place}/{}", place::item(key, wanted));
                compare(&place, before, Some(item), Some((*of, ListMerge::Atomic)), into);
            }
        }
        _ => {
            let entry = [Some(new.unwrap_or(&Value::Null)), old].into_iter().flatten().cloned().collect();
            into.insert(place.to_owned(), Value::Array(entry));
        }
    }
}

/// Whether both lists have one item a key, and the new one all items of the old one in their order.
fn in_order(old: &[Value], new: &[Value], key: &str) -> bool {
    let unique = |items: &[Value]| {
        let keys: Option<HashSet<String>> =
            items.iter().map(|item| item.lookup(key).map(ToString::to_string)).collect();
        keys.is_some_and(|keys| keys.len() == items.len())
    };
    let mut rest = new.iter();
    unique(old) && unique(new) && old.iter().all(|old| rest.any(|new| new.lookup(key) == old.lookup(key)))
}

/// Takes changes back. Reports those where the pod has been changed since.
pub(crate) fn revert(pod: &mut Value, changes: &Changes) -> Vec<String> {
    let changed = changes.iter().filter(|(place, entry)| !revert_one(pod, place, entry));
    changed.map(|(place, _)| format!("{}: changed since it was injected, kept", place::text(place))).collect()
}

fn revert_one(pod: &mut Value, place: &str, entry: &Value) -> bool {
    let (new, old) = (entry.get(0).filter(|new| !new.is_null()), entry.get(1));
    match (place::find(pod, place), new) {
        _ if entry.is_boolean() => true,
        (Some(current), _) if Some(current) == old => true,
        (None, Some(_)) => old.is_none(),
        (Some(_), None) => false,
        (Some(current), Some(new)) => {
            covers(current, new) && {
                place::set(pod, place, old.cloned());
                true
            }
        }
        (None, None) => old.is_none_or(|old| place::set(pod, place, Some(old.clone()))),
    }
}

/// Whether `current` is `written`, but for fields that the API server has added.
pub(crate) fn covers(current: &Value, written: &Value) -> bool {
    match (current, written) {
        (Value::Object(current), Value::Object(written)) => {
            (current.is_empty() || !written.is_empty())
                && written
                    .iter()
                    .all(|(key, value)| current.lookup(key).is_some_and(|own| covers(own, value)))
        }
        (Value::Array(current), Value::Array(written)) => {
            current.len() == written.len()
                && current.iter().zip(written).all(|(current, written)| covers(current, written))
        }
        _ => current == written,
    }
}
