//! Merges templates with the pod, and the user's own containers with the templates.

use serde_json::{Value, json};

use super::render::Overlay;
use super::{InjectError, preserve};
use crate::annotations::keys;
use crate::path::Lookup as _;
use crate::pod::ids::{self, Ids};
use crate::pod::list::{self, List, containers, find, metadata_mut, name, put, take};
use crate::pod::overrides::{self, Overrides, overlay_of};
use crate::pod::strip::Stripped;
use crate::pod::{PROXY, is_istio_container};
use crate::quantity;
use crate::schema;
use crate::strategic_merge;

/// A pod with its templates.
pub(super) struct Merged {
    /// The pod.
    pub(super) pod: Value,
    /// The names of what the templates alone have in the lists of the spec.
    pub(super) templates: Value,
    /// The user and group of the user's own proxy container.
    pub(super) asked: Ids,
}

/// Merges the templates with the pod, which is left without its content. `own` are containers of the user's
/// that the status lists.
pub(super) fn merge_templates(
    stripped: &mut Stripped,
    overlays: Vec<Overlay>,
    own: Vec<(List, Value)>,
) -> Result<Merged, InjectError> {
    let mut pod = std::mem::take(&mut stripped.pod);
    if !own.is_empty() {
        for (list, container) in own {
            let mut items = take(&mut pod, list);
            items.push(container);
            put(&mut pod, list, items);
        }
        quantity::canonical_quantities(&mut pod).map_err(|error| InjectError::Quantity(Box::new(error)))?;
    }
    let asked = list::proxy(&pod).map(ids::of_container).unwrap_or_default();
    let merge = |pod: &mut Value, name: &str, patch: Value| {
        strategic_merge::merge_over(pod, patch, &schema::POD)
            .map_err(|error| InjectError::Merge { what: format!("template {name}"), error: Box::new(error) })
    };
    let mut templates = json!({});
    for overlay in &overlays {
        merge(&mut templates, &overlay.name, outline(&overlay.patch, &OUTLINE))?;
    }
    let defined = |list| find(containers(&templates, list), PROXY).is_some();
    if defined(List::Containers) && !defined(List::InitContainers) && !is_native(&pod) {
        move_proxy(&mut pod, List::InitContainers, List::Containers);
    }
    let user = UserContainers::of(&pod, &templates);
    let mut moved = false;
    for Overlay { name, patch, .. } in overlays {
        let native = find(containers(&patch, List::InitContainers), PROXY);
        moved |= native.is_some_and(|proxy| proxy.lookup("$patch").is_none());
        if moved {
            move_proxy(&mut pod, List::Containers, List::InitContainers);
        }
        let before = (!preserve::has_directive(&patch)).then(|| preserve::names(&pod));
        merge(&mut pod, &name, patch)?;
        let lost = before.map_or_else(Vec::new, |before| preserve::lost(&before, &pod));
        if !lost.is_empty() {
            return Err(InjectError::TemplateRemovesFields { template: name, lost });
        }
    }
    let mut overrides = Overrides::default();
    for (list, container, own) in user.0 {
        reapply(&mut pod, list, &container, own.clone())?;
        // A container of the app holds what the templates put in by now; what the user wrote was noted then.
        let previous = stripped.previous.as_ref().filter(|_| !is_istio_container(&container));
        let before = previous.and_then(|previous| previous.noted(list, &container));
        overrides.push(list, before.cloned().unwrap_or(own));
    }
    if let Some(text) = overrides.to_json()
        && let Some(annotations) = metadata_mut(&mut pod, "annotations")
    {
        annotations.insert(keys::OVERRIDES.to_owned(), Value::String(text));
    }
    for list in List::BOTH {
        drop_empty_values(&mut pod, &templates, list);
    }
    Ok(Merged { pod, templates, asked })
}

/// What [`outline`] keeps, level by level.
const OUTLINE: [&[&str]; 3] =
    [&["spec"], &["containers", "initContainers", "volumes", "imagePullSecrets"], &["name"]];

/// A patch with nothing but the given keys at each level, and directives.
fn outline(patch: &Value, levels: &[&[&str]]) -> Value {
    match (patch, levels) {
        (Value::Object(fields), [keys, below @ ..]) => {
            let kept = fields
                .iter()
                .filter(|(key, _)| key.as_bytes().first() == Some(&b'$') || keys.contains(&key.as_str()));
            Value::Object(kept.map(|(key, value)| (key.clone(), outline(value, below))).collect())
        }
        (Value::Array(items), _) => items.iter().map(|item| outline(item, levels)).collect(),
        _ => patch.clone(),
    }
}

/// The user's versions of the containers that templates define.
struct UserContainers(Vec<(List, String, Value)>);

impl UserContainers {
    fn of(pod: &Value, templates: &Value) -> Self {
        let defined = List::BOTH.into_iter().flat_map(|list| {
            containers(templates, list).iter().map(move |container| (list, name(container)))
        });
        let user = defined.filter_map(|(list, container)| {
            let own = overrides::user_container(pod, list, container)?;
            Some((list, container.to_owned(), overlay_of(own)))
        });
        Self(user.collect())
    }
}

/// A variable that a template gives nothing has no value, rather than an empty one.
fn drop_empty_values(pod: &mut Value, templates: &Value, list: List) {
    for container in list::containers_mut(pod, list) {
        if find(containers(templates, list), name(container)).is_none() {
            continue;
        }
        let variables = container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten();
        for variable in variables.filter_map(Value::as_object_mut) {
            if variable.lookup("value").and_then(Value::as_str) == Some("") {
                variable.shift_remove("value");
            }
        }
    }
}

/// Whether the user's own proxy can only be an init container: `restartPolicy` is for those.
fn is_native(pod: &Value) -> bool {
    let own = find(containers(pod, List::InitContainers), PROXY);
    own.is_some_and(|proxy| proxy.lookup("restartPolicy").is_some())
}

/// What the user says about the proxy belongs where the templates have it: a native sidecar is an init
/// container.
fn move_proxy(pod: &mut Value, from: List, to: List) {
    let (moved, stay): (Vec<Value>, Vec<Value>) =
        take(pod, from).into_iter().partition(|container| name(container) == PROXY);
    put(pod, from, stay);
    if !moved.is_empty() {
        let mut items = take(pod, to);
        items.extend(moved);
        put(pod, to, items);
    }
}

/// Merges the user's version of a container with the template's.
fn reapply(pod: &mut Value, list: List, container: &str, own: Value) -> Result<(), InjectError> {
    let items = list::containers_mut(pod, list);
    let Some(item) = items.iter_mut().find(|item| name(item) == container) else { return Ok(()) };
    strategic_merge::merge_over(item, own, &schema::CONTAINER).map_err(|error| InjectError::Merge {
        what: format!("container {container}"),
        error: Box::new(error),
    })
}
