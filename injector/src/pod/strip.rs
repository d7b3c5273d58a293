//! Removes an earlier injection from a pod, so that it can be injected again.
//!
//! Labels, annotations and volumes stay: the templates do not change existing ones. Containers of the
//! injection are removed, the user's own versions of them are restored, and so are probes and Prometheus
//! annotations. The removed parts are kept ([`Previous`]): additions of other programs to those containers
//! survive the new injection.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::annotations::AnnotationError;
use super::injected_fields::InjectedFields;
use super::list::{List, find, name, put, take};
use super::original_forms::OriginalForms;
use super::overrides::Overrides;
use super::status::Status;
use super::{AUTO_IMAGE, PROXY, env, is_istio_container, list, pod_resources, probes, prometheus};
use crate::annotations::keys;

/// A pod without its earlier injection.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stripped {
    /// The pod as it was, but for labels, annotations and volumes.
    pub pod: Value,
    /// What was removed, if the pod was injected.
    pub previous: Option<Previous>,
}

/// What an earlier injection had added.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Previous {
    /// The status annotation of the injection.
    pub status: Status,
    /// The user's versions of its containers.
    pub overrides: Overrides,
    /// What it noted about the fields of its containers.
    pub fields: Option<InjectedFields>,
    /// What it noted about how the user wrote it.
    pub forms: OriginalForms,
    /// The containers of the injection, as they were in the pod.
    pub containers: Vec<(List, Value)>,
    /// The containers that the templates now define in the other list.
    pub moved: Vec<Moved>,
}

/// A container of an earlier injection whose list is another one now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moved {
    /// Where it is now.
    pub list: List,
    /// As it was in the pod.
    pub container: Value,
    /// What it has beyond the templates: null or an object.
    pub additions: Value,
}

/// Takes an earlier injection out. `status_port` is the one that the mesh config names, `merges` whether
/// metrics of this pod are merged.
///
/// Overrides count with or without an injection that noted them, as in Istio: a pod that carries them is the
/// pod that it is after the first injection.
/// Errors: an annotation that says what to restore, and cannot be read.
pub(crate) fn strip(injected: &Value, status_port: i64, merges: bool) -> Result<Stripped, AnnotationError> {
    let mut pod = injected.clone();
    let overrides = Overrides::of(injected)?;
    let status = Status::of(injected);
    let was_injected = status.is_some();
    if was_injected {
        if let Some(mut originals) = list::proxy(&pod).map(probes::noted) {
            // What is noted for `uninject` is all that the agent's record leaves out.
            originals.extend(OriginalForms::noted(injected).unwrap_or_default().probes);
            probes::restore(&mut pod, &originals);
        }
        prometheus::restore(&mut pod, status_port, merges);
    }
    pod_resources::restore(&mut pod, was_injected);
    let mut previous = Previous {
        status: status.unwrap_or_default(),
        overrides,
        fields: InjectedFields::noted(injected),
        forms: OriginalForms::noted(injected).unwrap_or_default(),
        containers: Vec::new(),
        moved: Vec::new(),
    };
    for list in List::BOTH {
        let (gone, stay) =
            take(&mut pod, list).into_iter().partition(|container| previous.was_added(list, container));
        put(&mut pod, list, stay);
        previous.containers.extend(gone.into_iter().map(|container: Value| (list, container)));
    }
    if was_injected {
        // A proxy of the user's own, where no template defines one.
        if let Some(proxy) = list::proxy_mut(&mut pod) {
            env::remove(proxy, probes::VARIABLE);
            env::remove(proxy, prometheus::VARIABLE);
        }
    }
    previous.restore_user_containers(&mut pod);
    if was_injected {
        previous.forms.restore_deleted(&mut pod);
        previous.forms.restore_places(&mut pod);
    }
    for (_, container) in &mut previous.containers {
        env::remove(container, probes::VARIABLE);
        env::remove(container, prometheus::VARIABLE);
    }
    list::remove_annotation(&mut pod, keys::STATUS);
    list::remove_annotation(&mut pod, keys::OVERRIDES);
    list::remove_annotation(&mut pod, keys::INJECTED_FIELDS);
    list::remove_annotation(&mut pod, keys::UNINJECT);
    list::remove_annotation(&mut pod, keys::CAPTURE_OPTIONS);
    if was_injected {
        previous.forms.restore(&mut pod);
    }
    Ok(Stripped { pod, previous: was_injected.then_some(previous) })
}

impl Stripped {
    /// Puts containers back that the status lists, that are not Istio's, and that no template of the pod
    /// defines: any client can write a status, and an app container is never removed because of one. Whether
    /// there are any.
    pub(crate) fn keep_undefined(&mut self, injected: &Value, defined: impl Fn(&str) -> bool) -> bool {
        let Some(previous) = &mut self.previous else { return false };
        let foreign = |(_, container): &(List, Value)| {
            let container = name(container);
            !is_istio_container(container) && !defined(container)
        };
        let (kept, added): (Vec<_>, Vec<_>) = previous.containers.drain(..).partition(foreign);
        previous.containers = added;
        let some = !kept.is_empty();
        for list in List::BOTH {
            let back = kept.iter().filter(|(of, _)| *of == list).map(|(_, container)| container.clone());
            let mut back = back.peekable();
            if back.peek().is_none() {
                continue;
            }
            // Each at its position; the user's other containers keep their order.
            let order = list::containers(injected, list).iter().map(name).enumerate();
            let order: HashMap<&str, usize> = order.rev().map(|(at, name)| (name, at)).collect();
            let place = |item: &Value| order.get(name(item)).copied();
            let mut items = Vec::new();
            for item in take(&mut self.pod, list) {
                while let Some(earlier) = back.next_if(|container| place(container) < place(&item)) {
                    items.push(earlier);
                }
                items.push(item);
            }
            items.extend(back);
            put(&mut self.pod, list, items);
        }
        if some {
            previous.forms.restore(&mut self.pod);
        }
        some
    }
}

impl Previous {
    /// Whether the injection made this container. One of the user's, which a template only added to, is not.
    fn was_added(&self, list: List, container: &Value) -> bool {
        let container = name(container);
        self.status.lists(list, container)
            && (is_istio_container(container) || self.overrides.find(container).is_none())
    }

    /// Puts the user's versions of Istio's containers back, where the pod has none.
    fn restore_user_containers(&self, pod: &mut Value) {
        for list in List::BOTH {
            let istio_s = |container: &&Value| is_istio_container(name(container));
            for container in self.overrides.list(list).iter().filter(istio_s) {
                if !list::places(pod, name(container)).is_empty() {
                    continue;
                }
                let mut original = container.clone();
                if let Some(original) = original.as_object_mut() {
                    original.entry("image").or_insert_with(|| json!(AUTO_IMAGE));
                }
                let proxy = name(container) == PROXY;
                let (home, at) =
                    if proxy { self.home(pod, &original) } else { (list, list::containers(pod, list).len()) };
                let mut items = take(pod, home);
                items.insert(at.min(items.len()), original);
                put(pod, home, items);
            }
        }
    }

    /// The list in which the user wrote the proxy, and its position. A native sidecar of their own restarts
    /// always; else the ports of the app containers, listed in the proxy's environment, show whether and
    /// where it was among them. Of several positions the last one: users write the proxy behind their own
    /// containers.
    fn home(&self, pod: &Value, proxy: &Value) -> (List, usize) {
        let ports = |container: &Value| -> Vec<Value> {
            let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
            ports.map(|port| json!([port.get("name"), port.get("containerPort")])).collect()
        };
        let apps: Vec<Vec<Value>> = list::containers(pod, List::Containers).iter().map(ports).collect();
        let own = ports(proxy);
        let given = self.containers.iter().find(|(_, container)| name(container) == PROXY);
        let listed = given.and_then(|(_, container)| env::value(container, "ISTIO_META_POD_PORTS"));
        let listed = listed.and_then(|text| serde_json::from_str::<Value>(text).ok());
        let listed = listed.map(|listed| ports(&json!({"ports": listed})));
        let among = |at: &usize| {
            let all = apps.iter().take(*at).chain([&own]).chain(apps.iter().skip(*at)).flatten();
            listed.as_ref().is_some_and(|listed| listed.iter().eq(all))
        };
        let apart = || listed.as_ref().is_some_and(|listed| listed.iter().eq(apps.iter().flatten()));
        let native = proxy.get("restartPolicy").and_then(Value::as_str) == Some("Always");
        match (0..=apps.len()).rev().find(among) {
            Some(at) if !native => (List::Containers, at),
            None if !native && !apart() => (List::Containers, apps.len()),
            _ => (List::InitContainers, list::containers(pod, List::InitContainers).len()),
        }
    }

    /// What the status lists although no template defines it, with what happens to it: `known` is what the
    /// templates define. Containers stay, volumes and secrets that are not in `after` were removed.
    pub(crate) fn foreign_additions(&self, before: &Value, after: &Value, known: &Status) -> Vec<String> {
        let mut found = Vec::new();
        for (key, listed) in [
            ("containers", &self.status.containers),
            ("initContainers", &self.status.init_containers),
            ("volumes", &self.status.volumes),
            ("imagePullSecrets", &self.status.image_pull_secrets),
        ] {
            let items = if key == "volumes" { &known.volumes } else { &known.image_pull_secrets };
            let items: HashSet<&str> = items.iter().map(String::as_str).collect();
            let defined = |wanted: &str| match key {
                "volumes" | "imagePullSecrets" => items.contains(wanted),
                _ => {
                    is_istio_container(wanted) || List::BOTH.into_iter().any(|list| known.lists(list, wanted))
                }
            };
            let names = |pod| -> HashSet<&str> { list::items(pod, key).iter().map(name).collect() };
            let (had, has) = (names(before), names(after));
            for wanted in listed.iter().filter(|wanted| had.contains(wanted.as_str()) && !defined(wanted)) {
                let stays = has.contains(wanted.as_str());
                if stays && !key.ends_with("ontainers") || self.overrides.find(wanted).is_some() {
                    continue;
                }
                found.push(format!(
                    "{wanted} {} spec.{key}: annotation {} says that an injection added it, though no template of this pod \
                     defines it",
                    if stays { "stays in" } else { "is removed from" },
                    keys::STATUS
                ));
            }
        }
        found
    }

    /// The items of a list of the spec that the injection added.
    pub(crate) fn added(&self, list: &str) -> HashSet<&str> {
        let added = match list {
            "volumes" => self.status.volumes.as_slice(),
            "imagePullSecrets" => &self.status.image_pull_secrets,
            _ => &[],
        };
        added.iter().map(String::as_str).filter(|item| !self.forms.has_own(list, item)).collect()
    }

    /// Whether the user has a version of this container: what was noted then still wins now.
    pub(crate) fn noted(&self, list: List, container: &str) -> Option<&Value> {
        find(self.overrides.list(list), container)
    }
}

/// Istio's containers that the user customized: an injection moves them, and without a note does not record
/// from where.
pub(crate) fn unrecorded_positions(restored: &Value, forms: &OriginalForms) -> Vec<String> {
    let mut all = Vec::new();
    for list in List::BOTH {
        let containers = list::containers(restored, list);
        if list == List::Containers && containers.len() == 1 {
            continue;
        }
        let is_noted = |container: &str| forms.own.iter().any(|(_, _, own)| own == container);
        let unrecorded = |container: &str| is_istio_container(container) && !is_noted(container);
        for (at, container) in
            containers.iter().map(name).enumerate().filter(|(_, container)| unrecorded(container))
        {
            all.push(format!(
                "container {container}: its position in the pod is not recorded; it is spec.{}[{at}] now",
                list.key()
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn injected() -> Value {
        json!({
            "metadata": {"annotations": {(keys::STATUS): r#"{"containers":["istio-proxy","app"],"initContainers":["istio-init"]}"#,
                keys::OVERRIDES: concat!(
                    r#"{"containers":[{"name":"istio-proxy","ports":[{"containerPort":7}],"resources":{}},"#,
                    r#"{"name":"app","image":"old"}]}"#
                ),
            }},
            "spec": {
                "containers": [
                    {"name": "first", "ports": [{"containerPort": 1}]},
                    {"name": "app", "image": "new", "ports": [{"containerPort": 9}], "livenessProbe": {"httpGet": {"path": "/app-health/app/livez", "port": 15020}}},
                    {"name": "istio-proxy", "image": "proxyv2", "env": [
                        {"name": "ISTIO_META_POD_PORTS", "value": r#"[{"containerPort":1},{"containerPort":7},{"containerPort":9}]"#},
                        {"name": "ISTIO_KUBE_APP_PROBERS", "value": r#"{"/app-health/app/livez":{"tcpSocket":{"port":1}}}"#},
                    ]},
                ],
                "initContainers": [{"name": "user"}, {"name": "istio-init"}],
            },
        })
    }

    #[test]
    fn the_user_s_pod_comes_back() {
        let stripped = strip(&injected(), 15020, true).unwrap();
        assert_eq!(
            stripped.pod,
            json!({
                "metadata": {"annotations": {}},
                "spec": {
                    "containers": [
                        {"name": "first", "ports": [{"containerPort": 1}]},
                        {"name": "istio-proxy", "ports": [{"containerPort": 7}], "resources": {}, "image": "auto"},
                        {"name": "app", "image": "new", "ports": [{"containerPort": 9}], "livenessProbe": {"tcpSocket": {"port": 1}}},
                    ],
                    "initContainers": [{"name": "user"}],
                },
            })
        );
        let previous = stripped.previous.unwrap();
        let names: Vec<&str> = previous.containers.iter().map(|(_, container)| name(container)).collect();
        assert_eq!(names, ["istio-proxy", "istio-init"]);
        assert!(env::value(&previous.containers[0].1, probes::VARIABLE).is_none());
    }
}
