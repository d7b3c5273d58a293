//! Validation of an injected pod after a successful injection.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{InjectError, Injected, Injector};
use crate::annotations::keys;
use crate::path::{Lookup as _, at};
use crate::pod::exempt::Exempt;
use crate::pod::ids::Ids;
use crate::pod::init_options::{InitOptions, without_proxy};
use crate::pod::list::{self, List, annotation};
use crate::pod::workload::Workload;
use crate::pod::{AUTO_IMAGE, PROXY};

impl Injector {
    /// Apps that escape capture because they pass for the proxy.
    pub(super) fn check_users(
        &self,
        injected: &mut Injected,
        init: Option<&InitOptions>,
        ids: Ids,
    ) -> Result<(), InjectError> {
        let (by_user, by_group) = exempt_apps(&injected.pod, init, ids);
        match by_user {
            Some(error) if self.options.reject_proxy_uid => return Err(error),
            Some(error) => injected.warnings.push(error.to_string()),
            None => {}
        }
        injected.warnings.extend(by_group);
        Ok(())
    }
}

/// Apps of an injected pod that escape capture because they pass for the proxy: by their user, and by their
/// group.
pub(crate) fn exempt_apps(
    pod: &Value,
    init: Option<&InitOptions>,
    ids: Ids,
) -> (Option<InjectError>, Vec<String>) {
    if list::proxy(pod).is_none() {
        return (None, Vec::new());
    }
    let exempt = Exempt::of(pod, init, ids);
    let by_user = exempt.by_user(pod);
    let error = by_user.first().map(|&(_, uid)| {
        let containers = by_user.iter().filter(|(_, other)| *other == uid);
        InjectError::ProxyUid { containers: containers.map(|(name, _)| name.clone()).collect(), uid }
    });
    let by_group = exempt.by_group(pod).into_iter();
    let by_group = by_group.filter(|(name, _)| !by_user.iter().any(|(other, _)| name == other));
    let words = by_group.map(|(name, gid)| {
        format!(
            "container {name} runs as group {gid}, the proxy's own: its outbound traffic is not captured; expected \
             another runAsGroup"
        )
    });
    (error, words.collect())
}

/// Two containers of one name, which `pod` has in `given`, too.
pub(super) fn no_duplicates(pod: &Value, given: &Value) -> Result<(), InjectError> {
    for container in list::duplicates(pod) {
        let paths = list::places(given, container);
        if paths.len() > 1 {
            return Err(InjectError::DuplicateContainer { container: container.to_owned(), paths });
        }
    }
    Ok(())
}

/// Errors and warnings about the result; `own` are the names of the pod's own containers.
pub(super) fn check_result(
    injected: &mut Injected,
    names: &[String],
    own: &HashSet<String>,
) -> Result<(), InjectError> {
    // Templates that disagree on where the proxy runs get a warning below, as they are not the pod's fault.
    if let Some(container) = list::duplicates(&injected.pod).into_iter().find(|name| *name != PROXY) {
        let paths = list::places(&injected.pod, container);
        let (is_own, container) = (own.contains(container), container.to_owned());
        return Err(if is_own {
            InjectError::ContainerNameConflict { container, paths }
        } else {
            InjectError::ContainerInBothLists { container, paths, templates: names.to_vec() }
        });
    }
    check_unique(&injected.pod, names, own)?;
    for list in List::BOTH {
        for container in list::containers(&injected.pod, list) {
            match container.lookup("image").and_then(Value::as_str) {
                Some(AUTO_IMAGE) => {
                    return Err(InjectError::AutoImage {
                        container: list::name(container).to_owned(),
                        list: list.key(),
                        templates: names.to_vec(),
                    });
                }
                None | Some("") if list::name(container) == PROXY => {
                    injected.warnings.push(format!(
                        "spec.{} has a container istio-proxy without an image: one of the templates {} names it there, \
                         another one elsewhere",
                        list.key(),
                        names.join(", ")
                    ));
                }
                _ => {}
            }
        }
    }
    if let Some(container) = without_proxy(&injected.pod) {
        injected.warnings.push(format!(
            "spec.initContainers has {container}, and no container of the pod is istio-proxy with an image: what is captured \
             has no destination; expected one in the templates {}",
            names.join(", ")
        ));
    }
    Ok(())
}

/// Kubernetes rejects a pod with two volumes of one name, or with two mounts at one path of a container.
fn check_unique(pod: &Value, names: &[String], own: &HashSet<String>) -> Result<(), InjectError> {
    let given = |key: &'static str| annotation(pod, key).map(|_| key);
    if let Some((_, volume)) = repeated(list::items(pod, "volumes"), "name") {
        return Err(InjectError::DuplicateVolume {
            volume: list::name(volume).to_owned(),
            annotation: given(keys::USER_VOLUME),
            templates: names.to_vec(),
        });
    }
    for container in list::all_containers(pod) {
        let mounts = container.lookup("volumeMounts").and_then(Value::as_array);
        if let Some((first, second)) = repeated(mounts.map_or(&[], Vec::as_slice), "mountPath") {
            let name = list::name(container);
            return Err(InjectError::DuplicateMountPath {
                container: name.to_owned(),
                path: second.lookup("mountPath").and_then(Value::as_str).unwrap_or_default().to_owned(),
                volumes: format!("{} and {}", list::name(first), list::name(second)),
                annotation: given(keys::USER_VOLUME_MOUNT).filter(|_| name == PROXY),
                templates: if own.contains(name) { Vec::new() } else { names.to_vec() },
            });
        }
    }
    Ok(())
}

/// The first two items with the same value of `key`.
fn repeated<'a>(items: &'a [Value], key: &str) -> Option<(&'a Value, &'a Value)> {
    let mut seen = HashMap::with_capacity(items.len());
    items.iter().find_map(|item| Some((seen.insert(item.lookup(key)?.as_str()?, item)?, item)))
}

/// A Windows pod is injected if it requests injection, as by Istio, and cannot run.
pub(super) fn windows(pod: &Value) -> Option<String> {
    let windows = |system: Option<&Value>| system.and_then(Value::as_str) == Some("windows");
    let field = if windows(at(pod, "/spec/os/name")) {
        "spec.os.name"
    } else if windows(at(pod, "/spec/nodeSelector").and_then(|labels| labels.lookup("kubernetes.io/os"))) {
        "spec.nodeSelector kubernetes.io/os"
    } else {
        return None;
    };
    Some(format!(
        "{field} is windows: the injected containers are for Linux, and do not start on such a node; expected label {}: \"false\"",
        keys::INJECT
    ))
}

/// The pod of a Job completes when all its containers have: a proxy that is not an init container never does.
pub(super) fn endless_job(pod: &Value, workload: &Workload) -> Option<String> {
    let proxy = list::find(list::containers(pod, List::Containers), PROXY);
    let is_job = matches!(workload.kind.as_str(), "CronJob" | "Job");
    (is_job && proxy.is_some()).then(|| {
        format!(
            "the proxy is not a native sidecar: it runs on after the containers of the {}, which never completes; expected \
             annotation {}: \"true\" (nodes of Kubernetes 1.29 or later), or an app that calls the agent's /quitquitquit",
            workload.kind,
            keys::NATIVE_SIDECAR
        )
    })
}
