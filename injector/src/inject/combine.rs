//! Templates over the pod, the user's own containers over the templates.

use serde_json::{Value, json};

use super::render::Overlay;
use super::{InjectError, keep};
use crate::overlay;
use crate::pod::ids::{self, Ids};
use crate::pod::list::{self, List, containers, find, metadata_mut, name, put, take};
use crate::pod::overrides::{self, Overrides, overlay_of};
use crate::pod::undo::{Previous, Undone};
use crate::pod::{PROXY, is_istio_s};
use crate::quantity;
use crate::schema;

/// A pod with its templates.
pub(super) struct Combined {
    /// The pod.
    pub(super) pod: Value,
    /// What the templates alone say.
    pub(super) templates: Value,
    /// The user and group that the user's own proxy container asks for.
    pub(super) asked: Ids,
}

/// `adopted` are containers of an earlier injection that count as the user's.
pub(super) fn combine(
    undone: &Undone,
    overlays: &[Overlay],
    adopted: &[(List, Value)],
) -> Result<Combined, InjectError> {
    let mut user_s = undone.pod.clone();
    quantity::canonical_quantities(&mut user_s).map_err(|error| InjectError::Quantity(Box::new(error)))?;
    let mut templates = json!({});
    let mut pod = user_s.clone();
    for (list, container) in adopted {
        for target in [&mut user_s, &mut pod] {
            let mut items = take(target, *list);
            items.push(container.clone());
            put(target, *list, items);
        }
    }
    for overlay in overlays {
        let merge = |pod: &Value| {
            overlay::merge(pod, &overlay.patch, &schema::POD).map_err(|error| InjectError::Merge {
                what: format!("template {}", overlay.name),
                error: Box::new(error),
            })
        };
        templates = merge(&templates)?;
        if find(containers(&templates, List::InitContainers), PROXY).is_some() {
            move_proxy(&mut pod);
        }
        let merged = merge(&pod)?;
        let lost = keep::lost(&pod, &merged, &overlay.patch);
        if !lost.is_empty() {
            return Err(InjectError::Loses { template: overlay.name.clone(), lost });
        }
        pod = merged;
    }
    let mut overrides = Overrides::default();
    for list in List::BOTH {
        reapply(&mut pod, &user_s, &templates, list, undone.previous.as_ref(), adopted, &mut overrides)?;
    }
    if let Some(text) = overrides.to_json()
        && let Some(annotations) = metadata_mut(&mut pod, "annotations")
    {
        annotations.insert(overrides::ANNOTATION.to_owned(), Value::String(text));
    }
    for list in List::BOTH {
        drop_empty_values(&mut pod, &templates, list);
    }
    quantity::canonical_quantities(&mut pod).map_err(|error| InjectError::Quantity(Box::new(error)))?;
    let asked = list::proxy(&user_s).map(ids::of_container).unwrap_or_default();
    Ok(Combined { pod, templates, asked })
}

/// A variable that a template gives nothing has no value, rather than an empty one.
fn drop_empty_values(pod: &mut Value, templates: &Value, list: List) {
    for container in list::containers_mut(pod, list) {
        if find(containers(templates, list), name(container)).is_none() {
            continue;
        }
        let variables = container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten();
        for variable in variables.filter_map(Value::as_object_mut) {
            if variable.get("value").and_then(Value::as_str) == Some("") {
                variable.shift_remove("value");
            }
        }
    }
}

/// A native sidecar is an init container, and so is what the user says about it.
fn move_proxy(pod: &mut Value) {
    let (moved, stay): (Vec<Value>, Vec<Value>) =
        take(pod, List::Containers).into_iter().partition(|container| name(container) == PROXY);
    put(pod, List::Containers, stay);
    if !moved.is_empty() {
        let mut init = take(pod, List::InitContainers);
        init.extend(moved);
        put(pod, List::InitContainers, init);
    }
}

/// Lays the user's containers over the templates' of the same name, and notes them.
fn reapply(
    pod: &mut Value,
    user_s: &Value,
    templates: &Value,
    list: List,
    previous: Option<&Previous>,
    adopted: &[(List, Value)],
    noted: &mut Overrides,
) -> Result<(), InjectError> {
    for container in containers(templates, list).iter().map(name) {
        let Some(own) = overrides::user_s(user_s, list, container) else {
            continue;
        };
        let own = overlay_of(own);
        let mut items = take(pod, list);
        if let Some(item) = items.iter_mut().find(|item| name(item) == container) {
            *item = overlay::merge(item, &own, &schema::CONTAINER).map_err(|error| InjectError::Merge {
                what: format!("container {container}"),
                error: Box::new(error),
            })?;
        }
        put(pod, list, items);
        if adopted.iter().any(|(_, item)| name(item) == container) {
            continue;
        }
        // A container of the app holds what the templates put in by now; what the user wrote was noted then.
        let before =
            previous.filter(|_| !is_istio_s(container)).and_then(|previous| previous.noted(list, container));
        noted.push(list, before.cloned().unwrap_or(own));
    }
    Ok(())
}
