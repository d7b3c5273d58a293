//! What an injection overwrites without a record: fields that templates write into the pod itself.
//!
//! A field that an injection always sets cannot be restored. [`PatchedFields`] lists those fields, so that
//! `uninject` can remove the injected values and report each field.

use gotemplate::{Field, Kind, Schema};
use serde_json::Value;

use crate::pod::original_forms::OriginalForms;
use crate::pod::strip::Previous;
use crate::schema::{self, ListMerge, list_merge, pointee};

/// One step from a value to a value in it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    /// The item of a list that has this value in this field.
    Item(&'static str, Value),
}

/// A field of a pod, or an item of one of its lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Location(Vec<Step>);

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(key) if at == 0 => f.write_str(key)?,
                // Keys of labels and annotations have dots of their own.
                Step::Field(key) if key.contains(['.', '/']) => write!(f, " {key}")?,
                Step::Field(key) => write!(f, ".{key}")?,
                Step::Item(_, Value::String(text)) => write!(f, " {text}")?,
                Step::Item(_, other) => write!(f, " {other}")?,
            }
        }
        Ok(())
    }
}

impl Location {
    /// `metadata.annotations KEY`.
    pub(super) fn annotation(key: &str) -> Self {
        Self::default().field("metadata").field("annotations").field(key)
    }

    /// `metadata.labels KEY`.
    pub(super) fn label(key: &str) -> Self {
        Self::default().field("metadata").field("labels").field(key)
    }

    /// Whether it is `other` or a field of it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    /// The volume that it is, or is a field of.
    pub(super) fn volume(&self) -> Option<&str> {
        match self.0.as_slice() {
            [_, Step::Field(key), Step::Item(_, name), ..] if key == "volumes" => name.as_str(),
            _ => None,
        }
    }

    /// Whether it is a field of a list's item that has other fields, but for its key.
    pub(super) fn is_one_of_several(&self, pod: &Value) -> bool {
        let item = Self(self.0.iter().take(3).cloned().collect());
        self.0.len() > 3 && item.find(pod).and_then(Value::as_object).is_some_and(|item| item.len() > 2)
    }

    fn field(&self, key: &str) -> Self {
        let mut location = self.clone();
        location.0.push(Step::Field(key.to_owned()));
        location
    }

    fn item(&self, key: &'static str, value: &Value) -> Self {
        let mut location = self.clone();
        location.0.push(Step::Item(key, value.clone()));
        location
    }

    pub(super) fn find<'a>(&self, pod: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(pod, |value, step| match step {
            Step::Field(key) => value.get(key),
            Step::Item(key, wanted) => value.as_array()?.iter().find(|item| item.get(*key) == Some(wanted)),
        })
    }

    fn find_mut<'a>(steps: &[Step], pod: &'a mut Value) -> Option<&'a mut Value> {
        steps.iter().try_fold(pod, |value, step| match step {
            Step::Field(key) => value.get_mut(key),
            Step::Item(key, wanted) => {
                value.as_array_mut()?.iter_mut().find(|item| item.get(*key) == Some(wanted))
            }
        })
    }

    /// Removes what is there, and maps and lists that are empty without it.
    pub(super) fn remove(&self, pod: &mut Value) {
        let mut steps = self.0.as_slice();
        while let Some((last, parents)) = steps.split_last() {
            let Some(parent) = Self::find_mut(parents, pod) else { return };
            let empty = match (last, parent) {
                (Step::Field(key), Value::Object(map)) => {
                    map.shift_remove(key);
                    map.is_empty()
                }
                (Step::Item(key, wanted), Value::Array(list)) => {
                    list.retain(|item| item.get(*key) != Some(wanted));
                    list.is_empty()
                }
                _ => false,
            };
            if !empty || parents.len() < 2 {
                return;
            }
            steps = parents;
        }
    }

    /// The pod with another value there.
    pub(super) fn changed(&self, pod: &Value) -> Value {
        let mut pod = pod.clone();
        match Self::find_mut(&self.0, &mut pod) {
            Some(Value::String(text)) => text.push('x'),
            Some(Value::Bool(flag)) => *flag = !*flag,
            Some(Value::Number(number)) => {
                *number = serde_json::Number::from(number.as_i64().unwrap_or_default().saturating_add(1));
            }
            _ => self.remove(&mut pod),
        }
        pod
    }
}

/// What patches of templates do to the pod itself, in their order. Containers that they add or change are
/// recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PatchedFields {
    /// Fields and items of lists that have a value afterwards.
    pub(super) set: Vec<Location>,
    /// What is deleted: by null or a directive.
    pub(super) deleted: Vec<Location>,
}

impl PatchedFields {
    /// Leaves out what is known without a comparison: volumes that the injection did not define, and with a
    /// note all that it says, or would.
    pub(super) fn spare(&mut self, previous: &Previous, is_noted: bool) {
        let says = |location: &Location| match location.0.as_slice() {
            [Step::Field(parent), Step::Field(name), Step::Field(key), ..] if parent == "metadata" => {
                OriginalForms::says(name, key)
                    || name == "annotations" && previous.forms.annotations.contains(key)
                    || previous.forms.has_own_field(name, key)
            }
            [Step::Field(parent), ..] => parent == "spec",
            _ => false,
        };
        let defined = |location: &Location| {
            let defined = |volume| previous.status.volumes.iter().any(|name| name == volume);
            location.volume().is_none_or(defined)
        };
        let unknown = |location: &Location| defined(location) && !(is_noted && says(location));
        self.set.retain(unknown);
        self.deleted.retain(unknown);
    }

    /// What these patches of pods write.
    pub(super) fn by(patches: &[&Value]) -> Self {
        let mut written = Self::default();
        for patch in patches {
            written.fields(patch, &schema::POD, &Location::default());
        }
        written
    }

    /// Adds what another one has.
    pub(super) fn extend(&mut self, other: Self) {
        other.set.into_iter().for_each(|location| push(&mut self.set, location));
        other.deleted.into_iter().for_each(|location| push(&mut self.deleted, location));
    }

    fn fields(&mut self, patch: &Value, of: &Schema, at: &Location) {
        for (key, value) in patch.as_object().into_iter().flatten() {
            if let Some((_, key)) = key.split_once('/').filter(|_| key.starts_with('$')) {
                // `$deleteFromPrimitiveList/x`
                push(&mut self.deleted, at.field(key));
            } else if key.starts_with('$') {
                push(&mut self.deleted, at.clone());
            } else {
                self.field(value, of.by_key(key), &at.field(key));
            }
        }
    }

    fn field(&mut self, value: &Value, field: Option<&'static Field>, at: &Location) {
        let kind = field.map(|field| pointee(field.kind));
        match (value, kind, field.map(list_merge)) {
            (Value::Null, ..) => push(&mut self.deleted, at.clone()),
            (Value::Object(map), Some(Kind::Struct(_) | Kind::Map(_)), _) if map.is_empty() => {}
            (_, Some(Kind::Struct(of)), _) => self.fields(value, of, at),
            (Value::Object(map), Some(Kind::Map(_)), _) => {
                for (key, value) in map {
                    self.field(value, None, &at.field(key));
                }
            }
            (Value::Array(items), Some(Kind::List(of)), Some(ListMerge::Key(key))) => {
                self.items(items, key, *of, at);
            }
            _ => push(&mut self.set, at.clone()),
        }
    }

    fn items(&mut self, items: &[Value], merge_key: &'static str, of: Kind, at: &Location) {
        let containers = matches!(at.0.as_slice(), [_, Step::Field(key)] if key.ends_with("ontainers"));
        for item in items {
            let this = item.get(merge_key).map(|value| at.item(merge_key, value));
            match (this, item.get("$patch")) {
                (this, Some(_)) => push(&mut self.deleted, this.unwrap_or_else(|| at.clone())),
                (Some(this), None) if !containers => self.item(item, merge_key, of, &this),
                _ => {}
            }
        }
    }

    /// The item as a whole, then what the patch writes into it.
    fn item(&mut self, item: &Value, merge_key: &str, of: Kind, at: &Location) {
        push(&mut self.set, at.clone());
        let Kind::Struct(of) = pointee(of) else { return };
        let fields = item.as_object().into_iter().flatten().filter(|(key, _)| *key != merge_key);
        for (key, value) in fields {
            if value.is_object() || value.is_array() {
                push(&mut self.set, at.field(key));
            } else {
                self.field(value, of.by_key(key), &at.field(key));
            }
        }
    }
}

/// `metadata.labels a, b`: the locations, those of one map or list together.
pub(super) fn by_parent(all: &[&Location]) -> Vec<String> {
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for location in all.iter().map(ToString::to_string) {
        let (parent, own) = location.split_once(' ').unwrap_or((&location, ""));
        match groups.iter_mut().find(|(other, _)| other == parent) {
            Some((_, group)) => group.push(own.to_owned()),
            None => groups.push((parent.to_owned(), vec![own.to_owned()])),
        }
    }
    groups
        .iter()
        .map(|(parent, group)| format!("{parent} {}", group.join(", ")).trim_end().to_owned())
        .collect()
}

fn push(found: &mut Vec<Location>, location: Location) {
    if !found.contains(&location) {
        found.push(location);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_patches_write_are_listed_once() {
        let first = json!({
            "metadata": {"labels": {"a.b/c": "d"}, "annotations": {}},
            "spec": {
                "containers": [{"name": "istio-proxy"}], "volumes": [{"name": "v"}], "dnsPolicy": null,
                "dnsConfig": {"searches": ["s"]}, "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}], "tolerations": [{"key": "k"}],
                "newer": {"x": 1},
            },
        });
        let second = json!({"spec": {
            "volumes": [{"name": "v"}, {"name": "w"}, {"name": "gone", "$patch": "delete"}],
            "containers": [{"name": "app"}, {"$patch": "replace"}],
        }});
        let written = PatchedFields::by(&[&first, &second]);
        let text = |all: &[Location]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            text(&written.set),
            [
                "metadata.labels a.b/c",
                "spec.volumes v",
                "spec.dnsConfig.searches",
                "spec.hostAliases 10.0.0.1",
                "spec.hostAliases 10.0.0.1.hostnames",
                "spec.tolerations",
                "spec.newer",
                "spec.volumes w",
            ]
        );
        assert_eq!(text(&written.deleted), ["spec.dnsPolicy", "spec.volumes gone", "spec.containers"]);
    }

    #[test]
    fn what_is_removed_leaves_no_empty_parent_behind() {
        let mut pod =
            json!({"spec": {"dnsConfig": {"searches": ["s"]}, "volumes": [{"name": "v"}, {"name": "w"}]}});
        let patch = json!({"spec": {"dnsConfig": {"searches": []}, "volumes": [{"name": "v"}]}});
        for location in PatchedFields::by(&[&patch]).set {
            assert!(location.find(&pod).is_some());
            assert_ne!(location.changed(&pod), pod);
            location.remove(&mut pod);
        }
        assert_eq!(pod, json!({"spec": {"volumes": [{"name": "w"}]}}));
    }
}
