//! Places in a pod that do not depend on positions in lists: JSON pointers in which `[ip=10.0.0.1]` is the
//! item of a list with this field. An item may also go by its name alone, and containers of both lists are
//! below `/containers`.

use std::borrow::Cow;

use serde_json::Value;

use super::list::{self, List, containers, name};

/// The place of a container, whichever list it is in.
pub(crate) const CONTAINERS: &str = "/containers";

/// A step to the item of a list.
pub(crate) fn item(key: &str, wanted: &Value) -> String {
    escaped(&format!("[{key}={}]", text_of(wanted)))
}

fn text_of(value: &Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed)
}

/// What is at a place.
pub(crate) fn find<'a>(pod: &'a Value, place: &str) -> Option<&'a Value> {
    let (from, below) = match container(pod, place) {
        Some((list, at, below)) => (containers(pod, list).get(at)?, below),
        None => (pod, place),
    };
    below.split('/').skip(1).try_fold(from, |value, step| {
        let step = unescaped(step);
        match value {
            Value::Object(fields) => fields.get(&step),
            Value::Array(items) => items.get(position(items, &step)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    })
}

/// What is at a place, to be changed.
pub(crate) fn find_mut<'a>(pod: &'a mut Value, place: &str) -> Option<&'a mut Value> {
    let (from, below) = match container(pod, place) {
        Some((list, at, below)) => (list::containers_mut(pod, list).get_mut(at)?, below),
        None => (pod, place),
    };
    below.split('/').skip(1).try_fold(from, |value, step| {
        let step = unescaped(step);
        match value {
            Value::Object(fields) => fields.get_mut(&step),
            Value::Array(items) => {
                let at = position(items, &step)?;
                items.get_mut(at)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    })
}

/// Sets the value at a place, or removes it. Returns whether the parent exists.
pub(crate) fn set(pod: &mut Value, place: &str, value: Option<Value>) -> bool {
    let Some((parent, step)) = place.rsplit_once('/') else { return false };
    let step = unescaped(step);
    match (find_mut(pod, parent), value) {
        (Some(Value::Object(fields)), Some(value)) => {
            fields.insert(step, value);
        }
        (Some(Value::Object(fields)), None) => {
            fields.shift_remove(&step);
        }
        (Some(Value::Array(items)), value) => match (position(items, &step), value) {
            (Some(at), Some(value)) => items.splice(at..=at, [value]).for_each(drop),
            (Some(at), None) => drop(items.remove(at)),
            (None, Some(value)) => items.push(value),
            (None, None) => {}
        },
        _ => return false,
    }
    true
}

/// The list and position of the container that a place is in, and the rest of the place.
fn container<'p>(pod: &Value, place: &'p str) -> Option<(List, usize, &'p str)> {
    let rest = place.strip_prefix(CONTAINERS)?.strip_prefix('/')?;
    let (wanted, below) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let wanted = unescaped(wanted);
    List::BOTH.into_iter().find_map(|list| {
        let at = containers(pod, list).iter().position(|item| name(item) == wanted)?;
        Some((list, at, below))
    })
}

fn position(items: &[Value], step: &str) -> Option<usize> {
    let by_key = step.strip_prefix('[').and_then(|step| step.strip_suffix(']')?.split_once('='));
    match by_key {
        Some((key, wanted)) => items.iter().position(|item| match item.get(key) {
            Some(given) => text_of(given) == wanted,
            None => false,
        }),
        None => items.iter().position(|item| name(item) == step).or_else(|| step.parse().ok()),
    }
}

/// A place as it is shown to users: `container web: env A value`.
pub(crate) fn text(place: &str) -> String {
    let mut steps = place.split('/').skip(1).map(|step| {
        let step = unescaped(step);
        let item = step.strip_prefix('[').and_then(|step| step.strip_suffix(']')?.split_once('='));
        item.map_or(step.clone(), |(_, wanted)| wanted.to_owned())
    });
    let first = steps.next().unwrap_or_default();
    let second = steps.next().unwrap_or_default();
    let rest = steps.collect::<Vec<_>>().join(" ");
    match first.as_str() {
        "containers" => format!("container {second}: {rest}"),
        _ => format!("{first}.{second} {rest}"),
    }
    .trim_end_matches([' ', ':'])
    .to_owned()
}

pub(crate) fn escaped(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

pub(crate) fn unescaped(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn places_do_not_depend_on_positions() {
        let mut pod = json!({"spec": {
            "initContainers": [{"name": "a/b", "ports": [{"containerPort": 1}, {"containerPort": 80, "name": "http"}]}],
            "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x"]}],
        }});
        let port = "/containers/a~1b/ports/[containerPort=80]";
        assert_eq!(find(&pod, &format!("{port}/name")), Some(&json!("http")));
        assert_eq!(text(&format!("{port}/name")), "container a/b: ports 80 name");
        assert!(set(&mut pod, port, None));
        assert_eq!(find(&pod, port), None);
        let alias = format!("/spec/hostAliases/{}", item("ip", &json!("10.0.0.2")));
        assert_eq!(text(&alias), "spec.hostAliases 10.0.0.2");
        assert!(set(&mut pod, &alias, Some(json!({"ip": "10.0.0.2"}))));
        assert!(!set(&mut pod, "/spec/none/key", Some(json!(1))));
        assert_eq!(
            pod,
            json!({"spec": {
                "initContainers": [{"name": "a/b", "ports": [{"containerPort": 1}]}],
                "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x"]}, {"ip": "10.0.0.2"}],
            }})
        );
    }
}
