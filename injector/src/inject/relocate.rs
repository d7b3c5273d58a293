//! Containers of an earlier injection that the templates now define in the other list, as when the proxy becomes a
//! native sidecar.

use std::collections::{HashMap, HashSet};

use gotemplate::Kind;
use serde_json::{Map, Value};

use super::render::Overlay;
use super::{Injector, Request};
use crate::pod::list::{List, containers, containers_mut, find, name};
use crate::pod::strip::{Previous, Stripped};
use crate::pod::{env, probes, prometheus};
use crate::schema::{self, ListMerge, list_merge, pointee};

impl Injector {
    /// Those of which all counts as the user's, as in Istio: this config would have put something else there, so nothing
    /// identifies what was the user's. Of the others, only what they have beyond what the earlier injection had added
    /// is left, as additions to the container in its new place.
    pub(super) fn relocated(
        &self,
        request: &Request<'_>,
        stripped: &mut Stripped,
        overlays: &[Overlay],
        native: bool,
    ) -> Vec<(List, Value)> {
        let mut all =
            stripped.previous.as_ref().map_or_else(Vec::new, |previous| elsewhere(previous, overlays));
        if all.is_empty() {
            return all;
        }
        let Ok(mut before) = self.assemble(Request { pod: &stripped.pod, ..*request }, !native) else {
            return all;
        };
        let mut additions = Vec::new();
        all.retain(|(list, container)| {
            let items = containers_mut(&mut before.pod, *list);
            let Some(reference) = items.iter_mut().find(|item| name(item) == name(container)) else {
                return true;
            };
            env::remove(reference, probes::VARIABLE);
            env::remove(reference, prometheus::VARIABLE);
            let more =
                additions_to(container, reference, Kind::Struct(&schema::CONTAINER), ListMerge::Atomic);
            if let Some(Value::Object(mut more)) = more.clone() {
                more.insert("name".to_owned(), Value::String(name(container).to_owned()));
                additions.push((other(*list), Value::Object(more)));
            }
            more.is_none()
        });
        if let Some(previous) = &mut stripped.previous {
            previous.containers.extend(additions);
        }
        all
    }
}

const fn other(list: List) -> List {
    match list {
        List::Containers => List::InitContainers,
        List::InitContainers => List::Containers,
    }
}

fn elsewhere(previous: &Previous, overlays: &[Overlay]) -> Vec<(List, Value)> {
    let defined = |list: List, container: &str| {
        overlays.iter().any(|overlay| find(containers(&overlay.patch, list), container).is_some())
    };
    let all = previous.containers.iter().filter(|(list, container)| {
        let container = name(container);
        previous.overrides.find(container).is_none()
            && defined(other(*list), container)
            && !defined(*list, container)
    });
    all.cloned().collect()
}

/// What `value` has beyond `reference`, null if nothing; `None` unless it has all of that. The API server adds to a
/// container, too: what goes without saying.
fn additions_to(value: &Value, reference: &Value, kind: Kind, merge: ListMerge) -> Option<Value> {
    match (value, reference, pointee(kind), merge) {
        (Value::Object(value), Value::Object(reference), Kind::Struct(of), _) => {
            if !reference.keys().all(|key| value.contains_key(key)) {
                return None;
            }
            let mut more = Map::new();
            for (key, value) in value {
                let field = of.by_key(key);
                let (kind, merge) =
                    field.map_or((Kind::Any, ListMerge::Atomic), |field| (field.kind, list_merge(field)));
                let extra = reference.get(key).map_or_else(
                    || Some(value.clone()),
                    |reference| additions_to(value, reference, kind, merge),
                )?;
                if !extra.is_null() {
                    more.insert(key.clone(), extra);
                }
            }
            Some(if more.is_empty() { Value::Null } else { Value::Object(more) })
        }
        (Value::Array(value), Value::Array(reference), Kind::List(of), ListMerge::Key(key)) => {
            let given: HashSet<_> = value.iter().map(|item| item.get(key)).collect();
            // Of several items with one key the first counts.
            let known: HashMap<_, _> = reference.iter().rev().map(|item| (item.get(key), item)).collect();
            if !known.keys().all(|key| given.contains(key)) {
                return None;
            }
            let mut more = Vec::new();
            for item in value {
                let Some(reference) = known.get(&item.get(key)) else {
                    more.push(item.clone());
                    continue;
                };
                if let Value::Object(mut extra) = additions_to(item, reference, *of, ListMerge::Atomic)? {
                    extra.insert(key.to_owned(), item.get(key).cloned().unwrap_or_default());
                    more.push(Value::Object(extra));
                }
            }
            Some(if more.is_empty() { Value::Null } else { Value::Array(more) })
        }
        _ => (value == reference).then_some(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_beyond() {
        let of = |value: Value, reference: Value| {
            additions_to(&value, &reference, Kind::Struct(&schema::CONTAINER), ListMerge::Atomic)
        };
        let reference = json!({"args": ["a"], "env": [{"name": "A", "value": "1"}], "readinessProbe": {"periodSeconds": 2}});
        assert_eq!(of(reference.clone(), reference.clone()), Some(Value::Null));
        let more = json!({
            "args": ["a"], "env": [{"name": "B"}, {"name": "A", "value": "1"}], "tty": true,
            "readinessProbe": {"periodSeconds": 2, "successThreshold": 1},
        });
        let expected =
            json!({"env": [{"name": "B"}], "tty": true, "readinessProbe": {"successThreshold": 1}});
        assert_eq!(of(more, reference.clone()), Some(expected));
        for other in [
            json!({"args": ["a", "b"], "env": [{"name": "A", "value": "1"}], "readinessProbe": {"periodSeconds": 2}}),
            json!({"args": ["a"], "env": [{"name": "A", "value": "2"}], "readinessProbe": {"periodSeconds": 2}}),
            json!({"args": ["a"], "env": [], "readinessProbe": {"periodSeconds": 2}}),
            json!({"args": ["a"], "env": [{"name": "A", "value": "1"}]}),
        ] {
            assert_eq!(of(other, reference.clone()), None);
        }
    }
}
