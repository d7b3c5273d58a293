//! Rules of containers that depend on several fields, and those of kubelet.

use serde_json::Value;

use super::{EnforcedBy, Scope, images};
use crate::quantity;

/// The pod is created, and this container does not start.
pub(super) const NOT_STARTED: &str = "keeps kubelet from starting the container";

/// An image is a reference that kubelet can parse.
pub(super) fn image(scope: &mut Scope<'_, '_, '_>) {
    let image = scope.text("image");
    // Blanks around it are refused by the API server already.
    if image.is_empty() || image.trim() != image || images::reference(image) {
        return;
    }
    let given = format!("{image:?}");
    scope.report("image", given, "[REGISTRY/]PATH[:TAG][@DIGEST], the path in lower case", &[]);
    scope.enforced_by(Some(EnforcedBy::Kubelet), NOT_STARTED);
}

/// The API server accepts any medium of an `emptyDir`; kubelet mounts these.
pub(super) fn medium(scope: &mut Scope<'_, '_, '_>) {
    let medium = scope.text("medium");
    if !(medium.is_empty() || medium == "Memory" || medium.starts_with("HugePages")) {
        let given = format!("{medium:?}");
        scope.report("medium", given, "Memory or HugePages", &[]);
        scope.enforced_by(Some(EnforcedBy::Kubelet), NOT_STARTED);
    }
}

/// Probes and hooks call ports by names that the container has.
pub(super) fn probed_ports(scope: &mut Scope<'_, '_, '_>) {
    let ports = scope.get("ports").and_then(Value::as_array);
    let known = |name: &str| {
        ports.is_some_and(|ports| ports.iter().any(|port| port.get("name").is_some_and(|own| own == name)))
    };
    let unknown = |probe: &Value| {
        let action = ["httpGet", "tcpSocket"].into_iter().find_map(|kind| probe.get(kind))?;
        let port = action.get("port")?.as_str()?;
        // A number in quotes is refused by the API server.
        (!known(port) && port.parse::<u16>().is_err()).then(|| format!("port {port:?}"))
    };
    let mut found: Vec<(&str, String)> = Vec::new();
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        found.extend(scope.get(key).and_then(unknown).map(|port| (key, port)));
    }
    for key in ["postStart", "preStop"] {
        let hook = scope.get("lifecycle").and_then(|hooks| hooks.get(key));
        found.extend(hook.and_then(unknown).map(|port| ("lifecycle", format!("{port} of {key}"))));
    }
    for (key, given) in found {
        scope.report(key, given, "the name of one of the container's ports", &[]);
        scope.enforced_by(None, "cannot be called");
    }
}

/// Only a privileged container mounts for the node.
pub(super) fn propagation(scope: &mut Scope<'_, '_, '_>) {
    let privileged =
        scope.get("securityContext").and_then(|own| own.get("privileged")?.as_bool()) == Some(true);
    let mounts = scope.get("volumeMounts").and_then(Value::as_array);
    let both = |mount: &Value| mount.get("mountPropagation").is_some_and(|own| own == "Bidirectional");
    if !privileged && mounts.is_some_and(|mounts| mounts.iter().any(both)) {
        let given = "mountPropagation Bidirectional";
        scope.report("volumeMounts", given, "privileged: true in its securityContext, or None", &[]);
    }
}

/// The units of a resource that a variable or file takes.
pub(super) fn divisor(scope: &mut Scope<'_, '_, '_>) {
    const CPU: &[&str] = &["1m", "1"];
    const BYTES: &[&str] =
        &["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let Some(divisor) = scope.get("divisor").map(quantity::text) else { return };
    let accepted = if scope.text("resource").ends_with(".cpu") { CPU } else { BYTES };
    let canonical = quantity::canonical(&divisor).unwrap_or_default();
    if quantity::nanos(&divisor) != Some(0) && !accepted.contains(&canonical.as_str()) {
        scope.report("divisor", format!("{divisor:?}"), accepted.join(", "), &[]);
    }
}
