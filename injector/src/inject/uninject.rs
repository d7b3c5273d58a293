//! Taking an injection out again.
//!
//! Nothing in an injected pod says which labels, annotations and settings it had before. What can be taken away without
//! a difference to an injection is taken away: the result is the smallest pod that is injected to the same.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{InjectError, Injector, Request, finish};
use crate::annotations::{self, keys};
use crate::pod::list::{List, containers, containers_mut, find, name};
use crate::pod::status::Status;
use crate::pod::strip::Previous;
use crate::pod::{is_istio_container, probes, prometheus};

/// A pod without its injection.
#[derive(Clone, Debug, PartialEq)]
pub struct Uninjected {
    /// The pod.
    pub pod: Value,
    /// What is, or may be, not as it was.
    pub left: Vec<String>,
}

impl Injector {
    /// Takes an injection out; `None` if the pod was never injected.
    ///
    /// # Errors
    ///
    /// An annotation that says what to restore, and cannot be read.
    pub fn uninject(&self, request: Request<'_>) -> Result<Option<Uninjected>, InjectError> {
        request.check_shape()?;
        let stripped = self.stripped(&request).map_err(|problem| InjectError::Annotations(vec![problem]))?;
        let Some(previous) = stripped.previous else {
            return Ok(None);
        };
        let mut left = Vec::new();
        if prometheus::hides_port_and_path(request.pod, self.status_port(&request)) {
            left.push(
                "prometheus.io/port and prometheus.io/path: beside prometheus.istio.io/scrape-targets, an injection does not \
                 note them; if the pod had them, write them again"
                    .to_owned(),
            );
        }
        let mut pod = stripped.pod;
        for list in List::BOTH {
            for container in
                containers_mut(&mut pod, list).iter_mut().filter(|item| is_istio_container(name(item)))
            {
                drop_if_empty(container, "resources");
            }
        }
        // What an injection notes about the user's containers differs with what they hold, and is no difference.
        let again = |pod: &Value| {
            let mut injected = self.inject(Request { pod, ..request })?.pod;
            crate::pod::list::remove_annotation(&mut injected, keys::OVERRIDES);
            Ok(injected)
        };
        let mut known = None;
        let restored = again(&pod).map(|reference| {
            known = Status::of(&reference);
            let same = |pod: &Value| again(pod).is_ok_and(|found| found == reference);
            restore_containers(&mut pod, &previous, &same, &mut left);
        });
        drop_named(&mut pod, "volumes", &previous.status.volumes);
        drop_named(&mut pod, "imagePullSecrets", &previous.status.image_pull_secrets);
        tidy(&mut pod, request.pod);
        match restored.and_then(|()| again(&pod)) {
            Ok(reference) => {
                let same = |pod: &Value| again(pod).is_ok_and(|found| found == reference);
                for parent in ["/metadata/labels", "/metadata/annotations", "/spec/securityContext"] {
                    smallest(&mut pod, parent, &same);
                }
            }
            Err(error) => left.push(unknown_config(&error)),
        }
        left.extend(remaining(&pod, request.pod));
        tidy(&mut pod, request.pod);
        left.extend(previous.foreign_additions(request.pod, &pod, &known.unwrap_or_default()));
        finish::preserve_order(&mut pod, request.pod);
        Ok(Some(Uninjected { pod, left }))
    }
}

/// The app's own containers become what they were, unless they were changed since.
fn restore_containers(
    pod: &mut Value,
    previous: &Previous,
    same: &dyn Fn(&Value) -> bool,
    left: &mut Vec<String>,
) {
    for list in List::BOTH {
        for noted in previous.overrides.list(list).iter().filter(|noted| !is_istio_container(name(noted))) {
            let mut candidate = pod.clone();
            for container in
                containers_mut(&mut candidate, list).iter_mut().filter(|item| name(item) == name(noted))
            {
                container.clone_from(noted);
                drop_if_empty(container, "resources");
            }
            if same(&candidate) {
                *pod = candidate;
            } else {
                left.push(format!("container {}: changed since it was injected, kept as it is", name(noted)));
            }
        }
    }
}

/// Takes away what the injection brought, unless the pod's own containers use it.
fn drop_named(pod: &mut Value, key: &str, names: &[String]) {
    let mut goes: HashSet<&str> = names.iter().map(String::as_str).collect();
    if key == "volumes" {
        for container in List::BOTH.into_iter().flat_map(|list| containers(pod, list)) {
            let mounts = container.get("volumeMounts").and_then(Value::as_array);
            for mount in mounts.into_iter().flatten() {
                goes.remove(name(mount));
            }
        }
    }
    let list = pod.pointer_mut("/spec").and_then(|spec| spec.get_mut(key)?.as_array_mut());
    if let Some(list) = list {
        list.retain(|item| !goes.contains(name(item)));
    }
}

/// Takes away every key of a map that makes no difference.
fn smallest(pod: &mut Value, parent: &str, same: &dyn Fn(&Value) -> bool) {
    let keys: Vec<String> =
        pod.pointer(parent).and_then(Value::as_object).into_iter().flat_map(Map::keys).cloned().collect();
    for key in keys {
        let mut candidate = pod.clone();
        if let Some(map) = candidate.pointer_mut(parent).and_then(Value::as_object_mut) {
            map.shift_remove(&key);
        }
        if same(&candidate) {
            *pod = candidate;
        } else if parent.ends_with("annotations") {
            shortest(pod, &key, same);
        }
    }
}

/// Takes away the items at the end of a list in an annotation that make no difference: templates append to such lists.
fn shortest(pod: &mut Value, key: &str, same: &dyn Fn(&Value) -> bool) {
    loop {
        let shorter = crate::pod::list::annotation(pod, key).and_then(without_last);
        let mut candidate = pod.clone();
        let Some(slot) = candidate.pointer_mut("/metadata/annotations").and_then(|all| all.get_mut(key))
        else {
            return;
        };
        let Some(shorter) = shorter else { return };
        *slot = Value::String(shorter);
        if !same(&candidate) {
            return;
        }
        *pod = candidate;
    }
}

/// `a,b` without `b`; `[{..}, {..}]` without its last object.
fn without_last(text: &str) -> Option<String> {
    match text.trim_end().strip_suffix(']') {
        Some(open) => Some(format!("{}]", open.get(..open.rfind(", {")?)?)),
        None => Some(text.rsplit_once(',')?.0.trim_end().to_owned()),
    }
}

/// What stays although an injection probably put it there, and what cannot be known.
fn remaining(pod: &Value, injected: &Value) -> Vec<String> {
    let mut left = Vec::new();
    for path in probes::rewritten_paths(pod) {
        left.push(format!(
            "the probe or hook at {path}: its original is not noted in the proxy's environment"
        ));
    }
    for list in List::BOTH {
        for container in containers(pod, list) {
            let before = find(containers(injected, list), name(container));
            if before.is_some_and(|before| before != container) && has_named_ports(container) {
                left.push(format!(
                    "container {}: ports of probes are numbers now, where they may have been names",
                    name(container)
                ));
            }
        }
    }
    for key in ["labels", "annotations"] {
        for (key, _) in crate::pod::list::metadata(pod, key).into_iter().flatten() {
            let ours = annotations::row(key).is_some_and(|row| {
                matches!(row.syntax, annotations::Syntax::Written)
                    || key.starts_with("service.istio.io/canonical")
            });
            if ours || key == keys::TLS_MODE {
                left.push(format!("{key}: this config would not have put it there, so it stays"));
            }
        }
    }
    left
}

fn has_named_ports(container: &Value) -> bool {
    let ports = container.get("ports").and_then(Value::as_array);
    ports.into_iter().flatten().any(|port| !name(port).is_empty())
}

fn drop_if_empty(value: &mut Value, key: &str) {
    let empty = match value.get(key) {
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        _ => false,
    };
    if empty && let Some(object) = value.as_object_mut() {
        object.shift_remove(key);
    }
}

/// Without an injection to compare with, the pod's own content is unknown.
fn unknown_config(error: &InjectError) -> String {
    let error = error.to_string();
    format!(
        "labels and annotations: the pod cannot be injected with this config, so nothing says which are its own ({})",
        error.lines().next().unwrap_or_default()
    )
}

/// Takes away maps and lists that hold nothing any more, but did.
fn tidy(pod: &mut Value, injected: &Value) {
    let lists = ["volumes", "initContainers", "imagePullSecrets", "securityContext"];
    for (parent, keys) in [("/metadata", &["labels", "annotations"][..]), ("/spec", &lists[..])] {
        for key in keys {
            let before = injected.pointer(parent).and_then(|parent| parent.get(key));
            let was_empty = before.is_some_and(|before| *before == json!({}) || *before == json!([]));
            if let Some(parent) = pod.pointer_mut(parent).filter(|_| !was_empty) {
                drop_if_empty(parent, key);
            }
        }
    }
    if injected.get("metadata") != Some(&json!({})) {
        drop_if_empty(pod, "metadata");
    }
}
