//! Rules of resources: requests, limits, and what kinds of resources need.

use serde_json::{Map, Value};

use super::Scope;
use crate::quantity::nanos;

pub(super) fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn amount(resources: &Map<String, Value>, kind: &str, resource: &str) -> Option<i128> {
    match resources.get(kind)?.get(resource)? {
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
        let all = object.get(kind).and_then(Value::as_object);
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
        let most = scope.get("limits").and_then(|limits| limits.get(resource)).map(shown);
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
