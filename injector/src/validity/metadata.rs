//! Rules of annotations that the API server reads, and of owners.

use serde_json::Value;

use super::relations::{list, name};
use super::{Scope, text};
use crate::path::Lookup as _;

/// The API server's limit for the keys and values of all annotations.
const MOST_BYTES: usize = 256 * 1024;

/// Annotations are not too long together, and those with a meaning have a value that means something.
pub(super) fn annotations(scope: &mut Scope<'_, '_, '_>) {
    let object = scope.object;
    let Some(all) = object.lookup("annotations").and_then(Value::as_object) else { return };
    let bytes: usize = all.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > MOST_BYTES {
        let accepted = format!("at most {MOST_BYTES} bytes in keys and values");
        scope.report("annotations", format!("{bytes} bytes"), accepted, &[]);
    }
    for (key, value) in all {
        let accepted = value.as_str().and_then(|value| expected(scope.checker.pod, key, value));
        if let Some(accepted) = accepted {
            scope.report("annotations", format!("{key}: {value}"), accepted, &[key]);
        }
    }
}

/// What an annotation must have, if it does not.
fn expected(pod: &Value, key: &str, value: &str) -> Option<&'static str> {
    const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
    const SECCOMP: &str = "container.seccomp.security.alpha.kubernetes.io/";
    let spec = pod.lookup("spec").and_then(Value::as_object);
    if let Some(container) = key.strip_prefix(APP_ARMOR) {
        let known = ["containers", "initContainers"]
            .iter()
            .any(|key| spec.is_some_and(|spec| list(spec, key).iter().any(|one| name(one) == container)));
        let profile =
            matches!(value, "" | "runtime/default" | "unconfined") || value.starts_with("localhost/");
        let of_container = ["containers", "initContainers"].iter().find_map(|key| {
            let found = list(spec?, key).iter().find(|one| name(one) == container)?;
            found.lookup("securityContext")?.lookup("appArmorProfile")
        });
        return if !known {
            Some("the name of a container behind the slash")
        } else if !profile {
            Some("runtime/default, unconfined or localhost/PROFILE")
        } else {
            let differs = of_container.is_some_and(|own| !is_app_armor(value, own));
            differs.then_some("the profile of the container's securityContext.appArmorProfile")
        };
    }
    if key == "seccomp.security.alpha.kubernetes.io/pod" || key.starts_with(SECCOMP) {
        let local = value.strip_prefix("localhost/").is_some_and(text::relative_path);
        let known = matches!(value, "runtime/default" | "docker/default" | "unconfined");
        return (!local && !known).then_some("runtime/default, unconfined or localhost/PATH");
    }
    match key {
        "controller.kubernetes.io/pod-deletion-cost" => {
            let digits = value.strip_prefix('-').unwrap_or(value);
            let plain = digits == "0" || !digits.starts_with(['0', '+', '-']);
            (!plain || value.parse::<i32>().is_err()).then_some("an integer of 32 bits")
        }
        "scheduler.alpha.kubernetes.io/tolerations" => {
            let is_list = value.is_empty() || serde_json::from_str::<Vec<Value>>(value).is_ok();
            (!is_list).then_some("a JSON list of tolerations")
        }
        "kubernetes.io/config.mirror" => spec
            .and_then(|spec| spec.lookup("nodeName")?.as_str())
            .is_none_or(str::is_empty)
            .then_some("none without spec.nodeName"),
        _ => None,
    }
}

/// Whether an annotation names the profile of a field.
fn is_app_armor(value: &str, field: &Value) -> bool {
    let text = |key: &str| field.lookup(key).and_then(Value::as_str).unwrap_or_default();
    match value {
        "" => true,
        "runtime/default" => text("type") == "RuntimeDefault",
        "unconfined" => text("type") == "Unconfined",
        _ => {
            text("type") == "Localhost" && value.strip_prefix("localhost/") == Some(text("localhostProfile"))
        }
    }
}

/// One owner is the controller.
pub(super) fn owners(scope: &mut Scope<'_, '_, '_>) {
    let is_controller = |one: &&Value| one.lookup("controller").and_then(Value::as_bool) == Some(true);
    let count = list(scope.object, "ownerReferences").iter().filter(is_controller).count();
    if count > 1 {
        scope.report("ownerReferences", format!("{count} with controller: true"), "one of them", &[]);
    }
}
