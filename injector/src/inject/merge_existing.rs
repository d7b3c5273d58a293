//! Reinvocation: what other webhooks added to the containers of an earlier injection survives a new one.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Value, json};

use super::{InjectError, Injected};
use crate::pod::list::{self, all_containers, containers_mut, find, name};
use crate::pod::status::Status;
use crate::pod::strip::Previous;
use crate::pod::{PROXY, env, probes};
use crate::schema;
use crate::strategic_merge;

/// Merges each fresh container with the existing one: a field or list item that only the old one has stays. A
/// proxy that the same templates had added, and that has got more arguments since, counts as the user's:
/// there the old one wins. `before` is the pod as it came; of its fields, those win that others changed since
/// the injection.
pub(super) fn merge_existing(
    injected: &mut Injected,
    before: &Value,
    previous: &Previous,
    status: &Status,
) -> Result<(), InjectError> {
    let stayed = previous.containers.iter().map(|(list, old)| (*list, old, None));
    let moved = previous.moved.iter().map(|moved| (moved.list, &moved.container, Some(&moved.additions)));
    for (list, old, additions) in stayed.chain(moved) {
        let container = name(old).to_owned();
        for fresh in containers_mut(&mut injected.pod, list).iter_mut().filter(|item| name(item) == container)
        {
            // A container that has moved to the other list is not the one that is noted.
            let noted = previous.fields.as_ref().filter(|fields| fields.has(&container));
            let noted = noted.zip(find(list::containers(before, list), &container));
            let customized = noted.is_none()
                && container == PROXY
                && (additions.is_some() || previous.status == *status)
                && has_more_arguments(old, fresh);
            let mut old = additions.filter(|_| !customized).unwrap_or(old).clone();
            if !customized {
                probes::drop_other_handlers(&mut old, fresh);
            }
            let (under, over) = if customized { (&*fresh, &old) } else { (&old, &*fresh) };
            let mut merged = under.clone();
            strategic_merge::merge_ports_apart(&mut merged, over.clone(), &schema::CONTAINER).map_err(
                |error| InjectError::Merge { what: format!("container {container}"), error: Box::new(error) },
            )?;
            if customized {
                injected.warnings.push(format!(
                    "container {container} was injected before and has got more arguments since: it is not changed; to render it again, \
                     run uninject first"
                ));
                overwrite_probes(&mut merged, fresh);
            }
            drop_zeros(&old, &mut merged);
            if let Some((fields, current)) = noted {
                fields.keep_changes(&mut merged, fresh, current);
            }
            *fresh = merged;
        }
    }
    drop_stale_volumes(&mut injected.pod, previous, status);
    Ok(())
}

/// Fields that the API server does not store when they are zero: added again, they would be a patch without
/// effect.
const OMITTED: [&str; 8] = [
    "failureThreshold",
    "hostPort",
    "initialDelaySeconds",
    "periodSeconds",
    "readOnly",
    "successThreshold",
    "timeoutSeconds",
    "value",
];

fn drop_zeros(old: &Value, fresh: &mut Value) {
    let zero = |value: &Value| *value == json!(0) || *value == json!("") || *value == json!(false);
    if let (Some(before), Some(fields)) = (old.as_object(), fresh.as_object_mut()) {
        fields.retain(|key, value| {
            before.contains_key(key) || !OMITTED.contains(&key.as_str()) || !zero(value)
        });
    }
    each_pair(old, fresh, &mut drop_zeros);
}

/// Keeps what only the old volume has: defaults of the API server, and what other webhooks added to a volume
/// of the same kind.
pub(super) fn keep_volumes(pod: &mut Value, before: &Value, previous: &Status) {
    let old = before.pointer("/spec/volumes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let old = by_name(old);
    let added: HashSet<&str> = previous.volumes.iter().map(String::as_str).collect();
    let fresh = pod.pointer_mut("/spec/volumes").and_then(Value::as_array_mut);
    for volume in fresh.into_iter().flatten().filter(|volume| added.contains(name(volume))) {
        let keys =
            |volume: &Value| volume.as_object().map(|fields| fields.keys().cloned().collect::<BTreeSet<_>>());
        if let Some(old) = old.get(name(volume)).filter(|old| keys(old) == keys(volume)) {
            keep_fields(old, volume);
        }
    }
}

fn keep_fields(old: &Value, fresh: &mut Value) {
    if let (Some(before), Some(fields)) = (old.as_object(), fresh.as_object_mut()) {
        for (key, value) in before {
            fields.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    each_pair(old, fresh, &mut keep_fields);
}

/// The first item of each name.
fn by_name(items: &[Value]) -> HashMap<&str, &Value> {
    items.iter().rev().map(|item| (name(item), item)).collect()
}

/// The values that two have in common: of maps by key, of lists by name, or by position in lists of one
/// length.
fn each_pair(old: &Value, fresh: &mut Value, visit: &mut dyn FnMut(&Value, &mut Value)) {
    match (old, fresh) {
        (Value::Object(old), Value::Object(fresh)) => {
            for (key, value) in fresh {
                if let Some(old) = old.get(key) {
                    visit(old, value);
                }
            }
        }
        (Value::Array(old), Value::Array(fresh)) => {
            let same_length = old.len() == fresh.len();
            let old_by_name = by_name(old);
            for (at, value) in fresh.iter_mut().enumerate() {
                let of_name = Some(name(value)).filter(|name| !name.is_empty());
                let of_name = of_name.and_then(|name| old_by_name.get(name).copied());
                let by_place = || old.get(at).filter(|one| same_length && name(one).is_empty());
                if let Some(old) = of_name.or_else(by_place) {
                    visit(old, value);
                }
            }
        }
        _ => {}
    }
}

/// Whether the old one has every argument of the fresh one, in order, and more. Other arguments alone prove
/// nothing: they follow from annotations and values, which may have changed since.
fn has_more_arguments(old: &Value, fresh: &Value) -> bool {
    let arguments =
        |container: &Value| container.get("args").and_then(Value::as_array).cloned().unwrap_or_default();
    let (all, own) = (arguments(old), arguments(fresh));
    let mut rest = all.iter();
    let same = |key: &str| old.get(key) == fresh.get(key);
    all.len() > own.len()
        && same("image")
        && same("command")
        && own.iter().all(|argument| rest.any(|other| other == argument))
}

fn overwrite_probes(merged: &mut Value, fresh: &Value) {
    env::remove(merged, probes::VARIABLE);
    if let Some(text) = env::value(fresh, probes::VARIABLE) {
        env::push(merged, probes::VARIABLE, text);
    }
}

/// Volumes that the earlier injection added, this one does not, and no container mounts.
fn drop_stale_volumes(pod: &mut Value, previous: &Previous, status: &Status) {
    let now: HashSet<&String> = status.volumes.iter().collect();
    let mut stale: HashSet<&str> =
        previous.status.volumes.iter().filter(|volume| !now.contains(volume)).map(String::as_str).collect();
    for container in all_containers(pod) {
        let mounts = container.get("volumeMounts").and_then(Value::as_array);
        for mount in mounts.into_iter().flatten() {
            stale.remove(name(mount));
        }
    }
    if stale.is_empty() {
        return;
    }
    if let Some(volumes) =
        list::object_mut(pod, "spec").and_then(|spec| spec.get_mut("volumes")?.as_array_mut())
    {
        volumes.retain(|volume| !stale.contains(name(volume)));
    }
}
