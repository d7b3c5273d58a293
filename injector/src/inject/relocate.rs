//! Containers of an earlier injection that the templates now define in the other list, as when the proxy
//! becomes a native sidecar.

use std::collections::HashMap;

use gotemplate::Kind;
use serde_json::{Map, Value};

use super::render::Overlay;
use super::{Injector, Plan, Request};
use crate::path::Lookup as _;
use crate::pod::list::{List, containers, containers_mut, find, name};
use crate::pod::strip::{Moved, Previous, Stripped};
use crate::pod::{env, is_istio_container, probes, prometheus};
use crate::schema::{self, ListMerge, list_merge, pointee};

impl Injector {
    /// Records them as moved, with their additions to what the templates give in the former list. Returns
    /// those that are the user's: the status lists them, but no template would have put them there.
    pub(super) fn relocate(
        &self,
        request: &Request<'_>,
        stripped: &mut Stripped,
        overlays: &[Overlay],
        native: bool,
    ) -> Vec<(List, Value)> {
        let all = stripped.previous.as_ref().map_or_else(Vec::new, |previous| elsewhere(previous, overlays));
        if all.is_empty() {
            return all;
        }
        let mut before = self.assemble(Plan::new(Request { pod: &stripped.pod, ..*request }, !native));
        let (mut moved, mut own) = (Vec::new(), Vec::new());
        for (list, container) in all {
            let items = before.as_mut().ok().map(|before| containers_mut(&mut before.injected.pod, list));
            let reference =
                items.and_then(|items| items.iter_mut().find(|item| name(item) == name(&container)));
            let additions = match reference {
                Some(reference) => {
                    env::remove(reference, probes::VARIABLE);
                    env::remove(reference, prometheus::VARIABLE);
                    let of = Kind::Struct(&schema::CONTAINER);
                    additions_to(&container, reference, of, ListMerge::Atomic)
                }
                None if is_istio_container(name(&container)) => container.clone(),
                None => {
                    own.push((list, container));
                    continue;
                }
            };
            moved.push(Moved { list: other(list), container, additions });
        }
        if let Some(previous) = &mut stripped.previous {
            previous.moved = moved;
        }
        own
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

/// The fields and list items of `value` that `reference` lacks, whatever the values of the others; null if
/// there are none.
fn additions_to(value: &Value, reference: &Value, kind: Kind, merge: ListMerge) -> Value {
    match (value, reference, pointee(kind), merge) {
        (Value::Object(value), Value::Object(reference), Kind::Struct(of), _) => {
            let mut more = Map::new();
            for (key, value) in value {
                let field = of.by_key(key);
                let (kind, merge) =
                    field.map_or((Kind::Any, ListMerge::Atomic), |field| (field.kind, list_merge(field)));
                let reference = reference.lookup(key);
                let extra = reference
                    .map_or_else(|| value.clone(), |reference| additions_to(value, reference, kind, merge));
                if !extra.is_null() {
                    more.insert(key.clone(), extra);
                }
            }
            if more.is_empty() { Value::Null } else { Value::Object(more) }
        }
        (Value::Array(value), Value::Array(reference), Kind::List(of), ListMerge::Key(key)) => {
            // Of several items with one key the first counts.
            let known: HashMap<_, _> = reference.iter().rev().map(|item| (item.lookup(key), item)).collect();
            let mut more = Vec::new();
            for item in value {
                let Some(reference) = known.get(&item.lookup(key)) else {
                    more.push(item.clone());
                    continue;
                };
                if let Value::Object(mut extra) = additions_to(item, reference, *of, ListMerge::Atomic) {
                    extra.insert(key.to_owned(), item.lookup(key).cloned().unwrap_or_default());
                    more.push(Value::Object(extra));
                }
            }
            if more.is_empty() { Value::Null } else { Value::Array(more) }
        }
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn additions_are_fields_and_items_that_the_reference_lacks() {
        let of = |value: Value, reference: &Value| {
            additions_to(&value, reference, Kind::Struct(&schema::CONTAINER), ListMerge::Atomic)
        };
        let reference = json!({"args": ["a"], "env": [{"name": "A", "value": "1"}], "readinessProbe": {"periodSeconds": 2}});
        assert_eq!(of(reference.clone(), &reference), Value::Null);
        let more = json!({
            "args": ["a"], "env": [{"name": "B"}, {"name": "A", "value": "1"}], "tty": true,
            "readinessProbe": {"periodSeconds": 2, "successThreshold": 1},
        });
        let expected =
            json!({"env": [{"name": "B"}], "tty": true, "readinessProbe": {"successThreshold": 1}});
        assert_eq!(of(more, &reference), expected);
        for other in [
            json!({"args": ["a", "b"], "env": [{"name": "A", "value": "1"}]}),
            json!({"args": ["a"], "env": [{"name": "A", "value": "2"}], "readinessProbe": {"periodSeconds": 3}}),
            json!({"args": ["a"], "env": []}),
        ] {
            assert_eq!(of(other, &reference), Value::Null);
        }
    }
}
