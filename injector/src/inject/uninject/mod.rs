//! Removes an injection.
//!
//! An injected pod does not record its earlier labels, annotations and settings. Everything that an injection
//! would add again is removed: the result is the smallest pod whose injection is the same. What an injection
//! overwrites in any case is reported ([`unrecorded`]). What an injection noted for this purpose is restored.

mod unrecorded;

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use self::unrecorded::{Location, PatchedFields};
use super::{InjectError, Injector, Request, postprocess, render, wants_native_sidecar};
use crate::annotations::{self, keys};
use crate::pod::list::{self, List, all_containers, containers, containers_mut, find, name};
use crate::pod::overrides::overlay_of;
use crate::pod::status::Status;
use crate::pod::strip::{Previous, unrecorded_positions};
use crate::pod::{is_istio_container, probes, prometheus};
use crate::quantity;

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
        let Some(known) = self.with_known_templates(request.pod) else { return self.take_out(request) };
        let mut uninjected = self.take_out(Request { pod: &known, ..request })?;
        if let Some(Uninjected { pod, .. }) = &mut uninjected {
            if let (Some(own), Some(annotations)) =
                (list::annotation(request.pod, keys::TEMPLATES), list::metadata_mut(pod, "annotations"))
            {
                annotations.insert(keys::TEMPLATES.to_owned(), json!(own));
            }
            postprocess::preserve_order(pod, request.pod);
        }
        Ok(uninjected)
    }

    /// The pod as one that chooses templates of this config only, if it chooses others: the default ones
    /// stand in for those, since most write the same labels and annotations.
    fn with_known_templates(&self, pod: &Value) -> Option<Value> {
        let config = &self.settings.injector;
        let asked = list::annotation(pod, keys::TEMPLATES)?;
        let names: Vec<&str> = asked.split(',').map(str::trim).collect();
        let known: Vec<&str> = names.iter().filter(|name| config.resolve(name).is_some()).copied().collect();
        if known.len() == names.len() {
            return None;
        }
        let mut pod = pod.clone();
        list::remove_annotation(&mut pod, keys::TEMPLATES);
        if !known.is_empty()
            && let Some(annotations) = list::metadata_mut(&mut pod, "annotations")
        {
            annotations.insert(keys::TEMPLATES.to_owned(), json!(known.join(",")));
        }
        Some(pod)
    }

    fn take_out(&self, request: Request<'_>) -> Result<Option<Uninjected>, InjectError> {
        let mut stripped =
            self.stripped(&request).map_err(|problem| InjectError::Annotations(vec![problem]))?;
        let overlays = self.overlays(&request).unwrap_or_default();
        let noted = stripped.previous.as_ref().map(|one| one.forms.containers.clone()).unwrap_or_default();
        let is_noted = |container: &str| noted.iter().any(|name| name == container);
        stripped.keep_undefined(request.pod, |name| render::defines(&overlays, name) || is_noted(name));
        let Some(previous) = stripped.previous else {
            return Ok(None);
        };
        let mut left = Vec::new();
        let is_noted = list::annotation(request.pod, keys::UNINJECT).is_some();
        if self.merges_metrics(request.pod) && !is_noted {
            left.extend(prometheus::unrecorded(request.pod, self.status_port(&request)));
        }
        let mut pod = stripped.pod;
        left.extend(unrecorded_positions(&pod, &previous.forms));
        left.extend(previous.forms.revert_written(&mut pod, request.pod));
        if is_noted {
            // One of another template would conflict with that of this config.
            drop_added(&mut pod, &previous, is_noted);
        }
        drop_empty_resources(&mut pod);
        // What an injection notes about the user's containers differs with what they hold, and is not a
        // difference.
        let again = |pod: &Value| {
            let mut injected = self.inject(Request { pod, ..request })?.pod;
            list::remove_annotation(&mut injected, keys::OVERRIDES);
            list::remove_annotation(&mut injected, keys::UNINJECT);
            Ok(injected)
        };
        let mut known = None;
        let mut written = self.written(&request).unwrap_or_default();
        let restored = again(&pod).map(|reference| {
            known = Status::of(&reference);
            let same = |pod: &Value| again(pod).is_ok_and(|found| found == reference);
            restore_containers(&mut pod, &previous, &same, &mut left);
        });
        drop_added(&mut pod, &previous, is_noted);
        tidy(&mut pod, request.pod);
        match restored.and_then(|()| again(&pod)) {
            Ok(reference) => {
                let same = |pod: &Value| again(pod).is_ok_and(|found| found == reference);
                for pod in [&pod, &bare(&pod)] {
                    written.extend(self.written(&Request { pod, ..request }).unwrap_or_default());
                }
                written.spare(&previous, is_noted);
                remove_all(&mut pod, &written.set, &same);
                // A note says what was there, or that nothing was.
                if !is_noted {
                    shorten(&mut pod, &same);
                    left.extend(overwritten(&unknown(request.pod, &pod, &written, &same)));
                }
            }
            Err(error) => left.push(unknown_config(&error)),
        }
        previous.forms.restore(&mut pod);
        left.extend(remaining(&pod, request.pod, &previous));
        tidy(&mut pod, request.pod);
        let known = with_noted(known.unwrap_or_default(), &previous, is_noted);
        left.extend(previous.foreign_additions(request.pod, &pod, &known));
        postprocess::preserve_order(&mut pod, request.pod);
        Ok(Some(Uninjected { pod, left }))
    }

    /// The templates of a pod, rendered.
    fn overlays(&self, request: &Request<'_>) -> Result<Vec<render::Overlay>, InjectError> {
        let own_mesh = self.own_mesh(request, &mut Vec::new()).map_err(InjectError::Annotations)?;
        let stripped = self.stripped(request).map_err(|problem| InjectError::Annotations(vec![problem]))?;
        let names = render::select(&stripped.pod, &self.settings.injector)?;
        let native = wants_native_sidecar(request.pod, request.context.native_sidecars);
        self.render(request, &stripped, &own_mesh, &names, native)
    }

    /// What an injection writes into the pod itself: its templates, and the steps after them.
    fn written(&self, request: &Request<'_>) -> Result<PatchedFields, InjectError> {
        let overlays = self.overlays(request)?;
        let patches: Vec<&Value> = overlays.iter().map(|overlay| &overlay.patch).collect();
        let mut all = PatchedFields::by(&patches);
        if prometheus::merged(request.pod, self.status_port(request)) {
            all.deleted.push(Location::annotation(keys::SCRAPE_TARGETS));
        }
        let more = self.settings.injector.injected_annotations.keys().map(String::as_str);
        let metrics =
            [keys::PROMETHEUS_PATH, keys::PROMETHEUS_PORT, keys::PROMETHEUS_SCRAPE, keys::SECURE_PORT];
        let keys = |key| metadata_keys(request.pod, key);
        all.set.extend(
            keys("annotations")
                .iter()
                .map(String::as_str)
                .chain(metrics)
                .chain(more)
                .map(Location::annotation),
        );
        all.set.extend(keys("labels").iter().map(String::as_str).chain([keys::NETWORK]).map(Location::label));
        Ok(all)
    }
}

/// What the templates define, with what the note says that others defined.
fn with_noted(mut known: Status, previous: &Previous, is_noted: bool) -> Status {
    let containers = &previous.forms.containers;
    known.containers.extend(containers.iter().cloned());
    known.init_containers.extend(containers.iter().cloned());
    if is_noted {
        known.volumes.extend(previous.status.volumes.iter().cloned());
        known.image_pull_secrets.extend(previous.status.image_pull_secrets.iter().cloned());
    }
    known
}

fn overwritten(unknown: &[String]) -> Option<String> {
    (!unknown.is_empty()).then(|| {
        format!(
            "{}: an injection overwrites them and does not record what was there before; if the pod had its own, add them again",
            unknown.join("; ")
        )
    })
}

/// The pod without settings, for templates that write only those that a pod does not have.
fn bare(pod: &Value) -> Value {
    let mut pod = pod.clone();
    if let Some(spec) = list::object_mut(&mut pod, "spec") {
        spec.retain(|key, _| List::BOTH.iter().any(|list| list.key() == key));
    }
    pod
}

/// The fields that an injection overwrites: those that were removed, and those of which another value would
/// make no difference.
fn unknown(
    injected: &Value,
    pod: &Value,
    written: &PatchedFields,
    same: &dyn Fn(&Value) -> bool,
) -> Vec<String> {
    let overwritten = |location: &&Location| match location.find(pod) {
        Some(_) => same(&location.changed(pod)),
        None => location.find(injected).is_some(),
    };
    let mut unknown: Vec<&Location> = Vec::new();
    for location in written.set.iter().filter(overwritten).chain(&written.deleted) {
        if !unknown.iter().any(|other| location.is_within(other)) {
            unknown.push(location);
        }
    }
    unrecorded::by_parent(&unknown)
}

/// Removes every field that makes no difference; few do, so they are tried together first.
fn remove_all(pod: &mut Value, locations: &[Location], same: &dyn Fn(&Value) -> bool) {
    let mounted = mounted_volumes(pod);
    // A volume that the pod mounts stays, with a source.
    let removable = |one: &&Location| {
        let mounted = one.volume().is_some_and(|volume| mounted.contains(volume));
        one.find(pod).is_some() && (!mounted || one.is_one_of_several(pod))
    };
    let present: Vec<Location> = locations.iter().filter(removable).cloned().collect();
    if present.is_empty() {
        return;
    }
    let mut candidate = pod.clone();
    for location in &present {
        location.remove(&mut candidate);
    }
    if same(&candidate) {
        *pod = candidate;
    } else if present.len() > 1 {
        let (first, second) = present.split_at(present.len() / 2);
        remove_all(pod, first, same);
        remove_all(pod, second, same);
    }
}

fn metadata_keys(pod: &Value, key: &str) -> Vec<String> {
    list::metadata(pod, key).into_iter().flat_map(Map::keys).cloned().collect()
}

fn drop_empty_resources(pod: &mut Value) {
    for list in List::BOTH {
        for container in containers_mut(pod, list).iter_mut().filter(|item| is_istio_container(name(item))) {
            drop_if_empty(container, "resources");
        }
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
            if find(containers(pod, list), name(noted)).is_some_and(|now| as_noted(now) == *noted) {
                continue;
            }
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
                left.push(format!("container {}: changed since it was injected, kept", name(noted)));
            }
        }
    }
}

/// A container as [`Previous::overrides`] notes it.
fn as_noted(container: &Value) -> Value {
    let mut pod = json!({"spec": {"containers": [container]}});
    // Quantities of an injected pod can be read.
    let _ = quantity::canonicalize(&mut pod);
    containers(&pod, List::Containers).first().map(overlay_of).unwrap_or_default()
}

/// Takes away the volumes and pull secrets that the injection added. Without a note, a volume that the pod
/// mounts may be its own.
fn drop_added(pod: &mut Value, previous: &Previous, is_noted: bool) {
    let mounted = if is_noted { HashSet::new() } else { mounted_volumes(pod) };
    for list in ["volumes", "imagePullSecrets"] {
        let added = previous.added(list);
        let items = pod.pointer_mut("/spec").and_then(|spec| spec.get_mut(list)?.as_array_mut());
        if let Some(items) = items {
            let mounted = |item: &str| list == "volumes" && mounted.contains(item);
            items.retain(|item| !added.contains(name(item)) || mounted(name(item)));
        }
    }
}

fn mounted_volumes(pod: &Value) -> HashSet<String> {
    let mounts =
        all_containers(pod).filter_map(|container| container.get("volumeMounts")?.as_array()).flatten();
    mounts.map(|mount| name(mount).to_owned()).collect()
}

/// Takes away the items at the ends of lists in annotations that make no difference: templates append to such
/// lists.
fn shorten(pod: &mut Value, same: &dyn Fn(&Value) -> bool) {
    for key in metadata_keys(pod, "annotations") {
        shortest(pod, &key, same);
    }
}

fn shortest(pod: &mut Value, key: &str, same: &dyn Fn(&Value) -> bool) {
    loop {
        let shorter = list::annotation(pod, key).and_then(without_last);
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
fn remaining(pod: &Value, injected: &Value, previous: &Previous) -> Vec<String> {
    let mut left = Vec::new();
    for path in probes::rewritten_paths(pod) {
        left.push(format!(
            "the probe or hook at {path}: its original is not recorded in the proxy's environment"
        ));
    }
    let is_noted = list::annotation(injected, keys::UNINJECT).is_some();
    for list in List::BOTH.into_iter().filter(|_| !is_noted) {
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
    for name in ["labels", "annotations"] {
        let fields = list::metadata(pod, name).into_iter().flatten();
        for (key, _) in fields.filter(|(key, _)| !previous.forms.has_own_field(name, key)) {
            let ours = annotations::row(key).is_some_and(|row| {
                matches!(row.syntax, annotations::Syntax::SetByInjection)
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
