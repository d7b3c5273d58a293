//! Rules of resources: requests, limits, and what kinds of resources need.

use serde_json::{Map, Value};

use super::relations::{list, name};
use super::{Remedy, Scope, text};
use crate::path::Lookup as _;
use crate::quantity::nanos;

pub(super) fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn amount(resources: &Map<String, Value>, kind: &str, resource: &str) -> Option<i128> {
    match resources.lookup(kind)?.lookup(resource)? {
        Value::String(text) => nanos(text),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            nanos(&other.to_string())
        }
    }
}

const NANO: i128 = 1_000_000_000;
const HUGE_PAGES: &str = "hugepages-";

/// Kubernetes' own resources, of which nodes promise more than they have.
fn is_shared(resource: &str) -> bool {
    !resource.starts_with(HUGE_PAGES) && (!resource.contains('/') || resource.contains("kubernetes.io/"))
}

/// A request is at most the limit; resources that are not shared have equal ones, in whole units.
pub(super) fn requests(scope: &mut Scope<'_, '_, '_>) {
    let object = scope.object;
    for kind in ["requests", "limits"] {
        let all = object.lookup(kind).and_then(Value::as_object);
        for (resource, given) in all.into_iter().flatten() {
            let Some(own) = amount(object, kind, resource) else { continue };
            if own < 0 {
                scope.report(kind, format!("{resource} {}", shown(given)), "0 or more", &[]);
            } else if let Some(accepted) = whole_units(resource, own) {
                scope.report(kind, format!("{resource} {}", shown(given)), accepted, &[]);
            } else if kind == "requests" {
                over_limit(scope, resource, own, given);
            }
        }
    }
    huge_pages(scope);
}

/// What the pod itself needs beside its containers is not negative.
pub(super) fn overhead(scope: &mut Scope<'_, '_, '_>) {
    let all = scope.get("overhead").and_then(Value::as_object).into_iter().flatten();
    let negative = |(key, given): (&String, &Value)| {
        let less = nanos(&shown(given)).is_some_and(|own| own < 0);
        less.then(|| format!("{key} {}", shown(given)))
    };
    let found: Vec<String> = all.filter_map(negative).collect();
    let keys = scope.get("overhead").and_then(Value::as_object).into_iter().flatten().map(|(key, _)| key);
    let valid = found.is_empty() && keys.clone().all(|key| text::resource(key));
    if valid && keys.count() > 0 && scope.text("runtimeClassName").is_empty() {
        scope.report("overhead", "set", "that of the RuntimeClass, none without runtimeClassName", &[]);
    }
    for given in found {
        scope.report("overhead", given, "0 or more", &[]);
    }
}

/// The units in which a resource is given out, if an amount has others.
fn whole_units(resource: &str, own: i128) -> Option<String> {
    if let Some(size) = resource.strip_prefix(HUGE_PAGES) {
        let whole = nanos(size).is_some_and(|size| size > 0 && own % size == 0);
        return (!whole).then(|| format!("a multiple of {size}"));
    }
    (!is_shared(resource) && own % NANO != 0).then(|| "a whole number".to_owned())
}

fn over_limit(scope: &mut Scope<'_, '_, '_>, resource: &str, own: i128, given: &Value) {
    let shared = is_shared(resource);
    let limit = amount(scope.object, "limits", resource);
    if limit.map_or(!shared, |limit| own > limit || !shared && own != limit) {
        let most = scope.get("limits").and_then(|limits| limits.lookup(resource)).map(shown);
        let accepted = match most {
            Some(most) if shared => format!("at most the limit, {most}"),
            Some(most) => format!("the limit, {most}"),
            None => "a limit of the same amount".to_owned(),
        };
        let given = format!("request of {resource} {}", shown(given));
        scope.report("", given, accepted, &["requests", "limits"]);
    }
}

/// Huge pages are given to containers that have a processor or memory.
fn huge_pages(scope: &mut Scope<'_, '_, '_>) {
    let kinds = ["requests", "limits"].into_iter().filter_map(|kind| scope.get(kind)?.as_object());
    let names: Vec<&str> = kinds.flat_map(Map::keys).map(String::as_str).collect();
    let huge = names.iter().find(|name| name.starts_with(HUGE_PAGES));
    if let Some(huge) = huge.filter(|_| !names.iter().any(|name| matches!(*name, "cpu" | "memory"))) {
        let given = format!("{huge} without cpu and memory");
        scope.report("", given, "cpu or memory beside huge pages", &["requests", "limits"]);
    }
}

/// What a container requests of a resource; without a request, its limit is one.
pub(crate) fn request(container: &Value, resource: &str) -> i128 {
    of_container(container, "requests", resource)
        .or_else(|| of_container(container, "limits", resource))
        .unwrap_or_default()
}

fn of_container(container: &Value, kind: &str, resource: &str) -> Option<i128> {
    amount(container.lookup("resources")?.as_object()?, kind, resource)
}

/// The containers request at most what the pod does, and none has a higher limit.
pub(super) fn pod_resources(scope: &mut Scope<'_, '_, '_>) {
    let Some(resources) = scope.object.lookup("resources").and_then(Value::as_object) else { return };
    let of = |kind: &str| resources.lookup(kind).and_then(Value::as_object);
    let unrequested = |resource: &&String| !of("requests").is_some_and(|own| own.contains_key(*resource));
    for resource in of("requests").into_iter().flat_map(Map::keys) {
        pod_request(scope, resources, "requests", resource);
    }
    // Without a request of the pod, its limit is the bound.
    for resource in of("limits").into_iter().flat_map(Map::keys).filter(unrequested) {
        pod_request(scope, resources, "limits", resource);
    }
    for (resource, given) in of("limits").into_iter().flatten() {
        let most = amount(resources, "limits", resource).unwrap_or_default();
        let over = |one: &&Value| of_container(one, "limits", resource).is_some_and(|limit| limit > most);
        let parts: Vec<String> = list(scope.object, "containers")
            .iter()
            .filter(over)
            .map(|container| named(container, "limits", resource))
            .collect();
        if !parts.is_empty() {
            let accepted = format!("at least the limit of each container ({})", parts.join(", "));
            scope.report("resources", format!("limit of {resource} {}", shown(given)), accepted, &[]);
            scope.remedy(Remedy::Always(RAISE));
        }
    }
}

/// What runs together requests at most the pod's request or limit.
fn pod_request(scope: &mut Scope<'_, '_, '_>, resources: &Map<String, Value>, kind: &str, resource: &str) {
    let spec = scope.object;
    let of = |container: &Value| request(container, resource);
    if requested(spec, &of) <= amount(resources, kind, resource).unwrap_or_default() {
        return;
    }
    let sidecar = |one: &&Value| one.lookup("restartPolicy").and_then(Value::as_str) == Some("Always");
    let all = list(spec, "containers").iter().chain(list(spec, "initContainers").iter().filter(sidecar));
    let parts: Vec<String> = all
        .filter(|container| of(container) > 0)
        .map(|container| {
            let own = of_container(container, "requests", resource).map_or("limits", |_| "requests");
            named(container, own, resource)
        })
        .collect();
    let accepted = format!("at least what its containers request together ({})", parts.join(", "));
    let given = resources.lookup(kind).and_then(|own| own.lookup(resource)).map(shown).unwrap_or_default();
    let word = kind.trim_end_matches('s');
    scope.report("resources", format!("{word} of {resource} {given}"), accepted, &[]);
    scope.remedy(Remedy::Always(RAISE));
}

/// A container and what it has of a resource.
fn named(container: &Value, kind: &str, resource: &str) -> String {
    let own = container.lookup("resources").and_then(|own| own.lookup(kind)?.lookup(resource));
    format!("{} {}", name(container), own.map(shown).unwrap_or_default())
}

/// What corrects the pod's resources.
const RAISE: &str =
    "raise those of the pod, or set annotation istio-iptables/raise-pod-level-resources: \"true\"";

/// What the scheduler counts: the sum of what runs together, or one init container if that is more.
pub(crate) fn requested(spec: &Map<String, Value>, of: &dyn Fn(&Value) -> i128) -> i128 {
    let mut sidecars = 0;
    let mut most = 0;
    for container in list(spec, "initContainers") {
        if container.lookup("restartPolicy").and_then(Value::as_str) == Some("Always") {
            sidecars += of(container);
            most = most.max(sidecars);
        } else {
            most = most.max(sidecars + of(container));
        }
    }
    let regular: i128 = list(spec, "containers").iter().map(of).sum();
    most.max(sidecars + regular)
}
