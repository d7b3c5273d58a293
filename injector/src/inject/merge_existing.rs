//! Additions of others to the containers of an earlier injection survive a new one.

use std::collections::HashSet;

use serde_json::Value;

use super::{InjectError, Injected};
use crate::overlay;
use crate::pod::list::{self, List, containers, containers_mut, name};
use crate::pod::status::Status;
use crate::pod::strip::Previous;
use crate::pod::{PROXY, env, probes};
use crate::schema;

/// Merges each fresh container with the existing one: a field or list item that only the old one has stays. A proxy that the
/// same templates had added, and that has got more arguments since, counts as the user's: there
/// the old one wins.
pub(super) fn merge_existing(
    injected: &mut Injected,
    previous: &Previous,
    status: &Status,
) -> Result<(), InjectError> {
    for (list, old) in &previous.containers {
        let container = name(old).to_owned();
        for fresh in
            containers_mut(&mut injected.pod, *list).iter_mut().filter(|item| name(item) == container)
        {
            let customized =
                container == PROXY && previous.status == *status && has_more_arguments(old, fresh);
            let (under, over) = if customized { (&*fresh, old) } else { (old, &*fresh) };
            let mut merged = overlay::merge(under, over, &schema::CONTAINER).map_err(|error| {
                InjectError::Merge { what: format!("container {container}"), error: Box::new(error) }
            })?;
            if customized {
                injected.warnings.push(format!(
                    "container {container} was injected before and has got more arguments since: it is not changed; to render it again, \
                     run uninject first"
                ));
                overwrite_probes(&mut merged, fresh);
            }
            *fresh = merged;
        }
    }
    drop_stale_volumes(&mut injected.pod, previous, status);
    Ok(())
}

/// Whether the old one has every argument of the fresh one, in order, and more. Other arguments alone say nothing: they
/// follow from annotations and values, which may have changed since.
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
    for container in List::BOTH.into_iter().flat_map(|list| containers(pod, list)) {
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
