//! Rules of containers that depend on several fields, and those of kubelet.

use serde_json::Value;

use super::{EnforcedBy, Scope, images, is_zero, text};
use crate::path::{Lookup as _, at};
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
        ports.is_some_and(|ports| ports.iter().any(|port| port.lookup("name").is_some_and(|own| own == name)))
    };
    let unknown = |probe: &Value| {
        let action = ["httpGet", "tcpSocket"].into_iter().find_map(|kind| probe.lookup(kind))?;
        let port = action.lookup("port")?.as_str()?;
        // A number in quotes is refused by the API server.
        (!known(port) && port.parse::<u16>().is_err()).then(|| format!("port {port:?}"))
    };
    let mut found: Vec<(&str, String)> = Vec::new();
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        found.extend(scope.get(key).and_then(unknown).map(|port| (key, port)));
    }
    for key in ["postStart", "preStop"] {
        let hook = scope.get("lifecycle").and_then(|hooks| hooks.lookup(key));
        found.extend(hook.and_then(unknown).map(|port| ("lifecycle", format!("{port} of {key}"))));
    }
    for (key, given) in found {
        scope.report(key, given, "the name of one of the container's ports", &[]);
        scope.enforced_by(None, "cannot be called");
    }
}

/// A key that no ConfigMap and no Secret has: the API server does not look, and kubelet does not find it.
pub(super) fn item_key(scope: &mut Scope<'_, '_, '_>) {
    let key = scope.text("key");
    if !key.is_empty() && !text::config_key(key) {
        let given = format!("{key:?}");
        scope.report("key", given, "letters, digits, -, _ and .", &[]);
        scope.enforced_by(Some(EnforcedBy::Kubelet), NOT_STARTED);
    }
}

/// Only a privileged container mounts for the node.
pub(super) fn propagation(scope: &mut Scope<'_, '_, '_>) {
    let privileged =
        scope.get("securityContext").and_then(|own| own.lookup("privileged")?.as_bool()) == Some(true);
    let mounts = scope.get("volumeMounts").and_then(Value::as_array);
    let both = |mount: &Value| mount.lookup("mountPropagation").is_some_and(|own| own == "Bidirectional");
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

/// Rules of restarts belong to a policy of the container.
pub(super) fn restart_rules(scope: &mut Scope<'_, '_, '_>) {
    let rules = scope.get("restartPolicyRules").is_some_and(|rules| !is_zero(rules));
    if rules && scope.text("restartPolicy").is_empty() {
        scope.absent("restartPolicy", "a value, with restartPolicyRules");
    }
}

/// A container of a pod that is not restarted is not restarted by a resize.
pub(super) fn resize(scope: &mut Scope<'_, '_, '_>) {
    let never = at(scope.checker.pod, "/spec/restartPolicy").is_some_and(|policy| policy == "Never");
    let policies = scope.get("resizePolicy").and_then(Value::as_array);
    let restarts =
        |one: &Value| one.lookup("restartPolicy").is_some_and(|policy| policy == "RestartContainer");
    if never && policies.is_some_and(|all| all.iter().any(restarts)) {
        let accepted = "NotRequired, with restartPolicy Never of the pod";
        scope.report("resizePolicy", "RestartContainer", accepted, &[]);
    }
}

/// An unmasked `/proc` needs user namespaces.
pub(super) fn proc_mount(scope: &mut Scope<'_, '_, '_>) {
    let users = at(scope.checker.pod, "/spec/hostUsers").and_then(Value::as_bool);
    if scope.text("procMount") == "Unmasked" && users != Some(false) {
        scope.report("procMount", "Unmasked", "Default, or hostUsers: false in the pod", &[]);
    }
}

/// A volume is a file system or a block device of a container, and only a claim can be a device.
pub(super) fn devices(scope: &mut Scope<'_, '_, '_>) {
    if scope.get("volumeDevices").is_none() {
        return;
    }
    let names = |key: &str| -> Vec<String> {
        let items = scope.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.lookup("name")?.as_str().map(str::to_owned)).collect()
    };
    let mounted = names("volumeMounts");
    for device in names("volumeDevices") {
        if mounted.contains(&device) {
            let given = format!("volume {device:?} in volumeDevices and volumeMounts");
            scope.report("", given, "one of them", &["volumeDevices", "volumeMounts"]);
        }
        let is_claim = |volume: &Value| {
            ["persistentVolumeClaim", "ephemeral"].iter().any(|kind| volume.lookup(kind).is_some())
        };
        if volume(scope.checker.pod, &device).is_some_and(|volume| !is_claim(volume)) {
            let given = format!("volume {device:?}");
            scope.report("volumeDevices", given, "a persistentVolumeClaim or ephemeral volume", &[]);
        }
    }
}

/// Devices have paths of their own, and no user namespace.
pub(super) fn device_paths(scope: &mut Scope<'_, '_, '_>) {
    if scope.get("volumeDevices").is_none() {
        return;
    }
    let paths = |key: &str, path: &str| -> Vec<String> {
        let items = scope.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(|item| item.lookup(path)?.as_str().map(str::to_owned)).collect()
    };
    let devices = paths("volumeDevices", "devicePath");
    if let Some(path) = paths("volumeMounts", "mountPath").iter().find(|path| devices.contains(path)) {
        let given = format!("path {path:?} in volumeDevices and volumeMounts");
        scope.report("", given, "another path for each", &["volumeDevices", "volumeMounts"]);
    }
    let own_users = at(scope.checker.pod, "/spec/hostUsers").and_then(Value::as_bool) == Some(false);
    if own_users && !devices.is_empty() {
        scope.report("volumeDevices", "set", "none with hostUsers: false of the pod", &[]);
    }
}

/// A variable is read from a file of an `emptyDir`.
pub(super) fn file_key(scope: &mut Scope<'_, '_, '_>) {
    let name = scope.text("volumeName");
    let found = volume(scope.checker.pod, name);
    if !name.is_empty() && found.is_none_or(|volume| volume.lookup("emptyDir").is_none()) {
        let given = format!("{name:?}");
        scope.report("volumeName", given, "the name of an emptyDir volume of the pod", &[]);
    }
}

fn volume<'p>(pod: &'p Value, name: &str) -> Option<&'p Value> {
    let volumes = at(pod, "/spec/volumes").and_then(Value::as_array)?;
    volumes.iter().find(|volume| volume.lookup("name").is_some_and(|own| own == name))
}
