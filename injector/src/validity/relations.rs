//! Rules that depend on several fields.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::containers::NOT_STARTED;
use super::{EnforcedBy, NO_CLAIM, NO_VOLUME, Remedy, Scope, is_zero, text};
use crate::path::{Lookup as _, at};
use crate::quantity::nanos;

pub(super) fn list<'v>(object: &'v Map<String, Value>, key: &str) -> &'v [Value] {
    object.lookup(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn name(item: &Value) -> &str {
    item.lookup("name").and_then(Value::as_str).unwrap_or_default()
}

const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// A pod has a container that is no init container.
pub(super) fn containers(scope: &mut Scope<'_, '_, '_>) {
    if list(scope.object, "containers").is_empty() {
        scope.report(
            "containers",
            "none",
            "a container beside native sidecars and other init containers",
            &[],
        );
        scope.remedy(Remedy::Always(
            "for a gateway, choose its template by annotation inject.istio.io/templates",
        ));
    }
}

/// Containers of all lists have different names.
pub(super) fn names(scope: &mut Scope<'_, '_, '_>) {
    let mut seen = HashMap::new();
    for key in LISTS {
        for container in list(scope.object, key).iter().map(name).filter(|name| !name.is_empty()) {
            if let Some(other) = seen.insert(container, key) {
                let given = format!("two containers are named {container}, in {other} and {key}");
                scope.report("", given, "another name for each container of a pod", &[other, key]);
            }
        }
    }
}

/// Regular containers do not share a port of the node.
pub(super) fn host_ports(scope: &mut Scope<'_, '_, '_>) {
    let mut seen = HashSet::new();
    let on_host = scope.is_true("hostNetwork");
    for container in list(scope.object, "containers") {
        for port in container.lookup("ports").and_then(Value::as_array).into_iter().flatten() {
            let text = |key: &str, default| port.lookup(key).and_then(Value::as_str).unwrap_or(default);
            let Some(number) = port.lookup("hostPort").and_then(Value::as_i64).filter(|port| *port != 0)
            else {
                continue;
            };
            let own = port.lookup("containerPort").and_then(Value::as_i64).unwrap_or_default();
            let given = format!("hostPort {number} of container {}", name(container));
            if !seen.insert((number, text("protocol", "TCP"), text("hostIP", ""))) {
                scope.report("", given, "another hostPort for each port of a pod", &["containers"]);
            } else if on_host && own != number {
                let accepted = format!("its containerPort {own}, with hostNetwork");
                scope.report("", given, accepted, &["containers"]);
            }
        }
    }
}

/// What containers mount is among the volumes.
pub(super) fn mounts(scope: &mut Scope<'_, '_, '_>) {
    let mut volumes: Vec<&str> = list(scope.object, "volumes").iter().map(name).collect();
    volumes.sort_unstable();
    for key in LISTS {
        for (index, container) in list(scope.object, key).iter().enumerate() {
            for (mounts, path) in [("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")] {
                let items = container.lookup(mounts).and_then(Value::as_array);
                for (at, mount) in items.into_iter().flatten().enumerate() {
                    let volume = name(mount);
                    if volume.is_empty() || volumes.binary_search(&volume).is_ok() {
                        continue;
                    }
                    let place = scope.place.field(key);
                    let place = place.item(container, "name", index);
                    let place = place.field(mounts);
                    let place = place.item(mount, path, at);
                    let mut scope = Scope { checker: scope.checker, object: scope.object, place: &place };
                    scope.report("name", format!("{volume:?}"), "the name of one", &[]);
                    scope.enforced_by(Some(EnforcedBy::ApiServer), NO_VOLUME);
                    scope.remedy(Remedy::OfSetter("add the volume to spec.volumes"));
                }
            }
        }
    }
}

/// `dnsPolicy: None` needs name servers.
pub(super) fn dns_policy(scope: &mut Scope<'_, '_, '_>) {
    let servers = scope.get("dnsConfig").and_then(|config| config.lookup("nameservers")).is_none_or(is_zero);
    if scope.text("dnsPolicy") == "None" && servers {
        scope.report("dnsConfig", "no nameservers", "at least one, with dnsPolicy: None", &[]);
    }
}

/// What the namespaces of the node exclude.
pub(super) fn host_namespaces(scope: &mut Scope<'_, '_, '_>) {
    if scope.is_true("shareProcessNamespace") && scope.is_true("hostPID") {
        let fields = ["shareProcessNamespace", "hostPID"];
        scope.report("", "shareProcessNamespace and hostPID are true", "one of them", &fields);
    }
    let own_users = scope.get("hostUsers").and_then(Value::as_bool) == Some(false);
    for key in ["hostNetwork", "hostPID", "hostIPC"] {
        if own_users && scope.is_true(key) {
            let given = format!("hostUsers is false and {key} is true");
            scope.report("", given, "one of them", &["hostUsers", key]);
        }
    }
}

/// Settings of a namespace that the pod shares with the node are the node's.
pub(super) fn sysctls(scope: &mut Scope<'_, '_, '_>) {
    const OF_IPC: [&str; 4] = ["kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue."];
    let of_node = [("hostNetwork", &["net."][..]), ("hostIPC", &OF_IPC[..])];
    let names: Vec<&str> = scope
        .get("securityContext")
        .map(|context| {
            context.lookup("sysctls").and_then(Value::as_array).into_iter().flatten().map(name).collect()
        })
        .unwrap_or_default();
    let found: Vec<(String, &str)> = of_node
        .into_iter()
        .filter(|(key, _)| scope.is_true(key))
        .filter_map(|(key, prefixes)| {
            let is_of_node =
                |given: &&&str| prefixes.iter().any(|prefix| given.replace('/', ".").starts_with(prefix));
            names.iter().find(is_of_node).map(|given| ((*given).to_owned(), key))
        })
        .collect();
    for (given, key) in found {
        let accepted = format!("no sysctl of the node, with {key}: true");
        scope.report("securityContext", format!("sysctl {given:?}"), accepted, &["sysctls"]);
    }
}

/// Groups of the pod.
pub(super) fn groups(scope: &mut Scope<'_, '_, '_>) {
    let groups = scope.get("supplementalGroups").and_then(Value::as_array);
    let bad = groups
        .into_iter()
        .flatten()
        .find(|id| !id.as_i64().is_some_and(|id| (0..=i64::from(i32::MAX)).contains(&id)));
    if let Some(bad) = bad.map(ToString::to_string) {
        scope.report("supplementalGroups", bad, format!("0-{}", i32::MAX), &[]);
    }
}

/// A profile of the node has a name, others have none. The API server accepts an empty one of seccomp.
pub(super) fn profile(scope: &mut Scope<'_, '_, '_>) {
    let local = scope.text("type") == "Localhost";
    let seccomp = scope.place.is_in("seccompProfile");
    let profile = scope.get("localhostProfile").and_then(Value::as_str).map(str::to_owned);
    match profile.as_deref() {
        _ if scope.text("type").is_empty() => {}
        None if local => scope.absent("localhostProfile", "the name of a profile, with type Localhost"),
        Some("") if local && !seccomp => {
            scope.absent("localhostProfile", "the name of a profile, with type Localhost");
        }
        Some("") if local => {
            scope.report("localhostProfile", "\"\"", "the name of a profile, with type Localhost", &[]);
            scope.enforced_by(Some(EnforcedBy::Kubelet), NOT_STARTED);
        }
        Some(_) if !local => scope.report("localhostProfile", "set", "none without type Localhost", &[]),
        _ => {}
    }
}

/// What a toleration's operator and effect exclude.
pub(super) fn toleration(scope: &mut Scope<'_, '_, '_>) {
    let operator = scope.text("operator");
    if scope.text("key").is_empty() && operator != "Exists" {
        let given = format!("{operator:?}");
        scope.report("operator", given, "Exists, without a key", &[]);
    } else if operator == "Exists" && !scope.text("value").is_empty() {
        let given = format!("{:?}", scope.text("value"));
        scope.report("value", given, "none with operator Exists", &[]);
    } else if matches!(operator, "" | "Equal") && !text::label_value(scope.text("value")) {
        let given = format!("{:?}", scope.text("value"));
        scope.report("value", given, "the value of a label", &[]);
    }
    if scope.get("tolerationSeconds").is_some() && scope.text("effect") != "NoExecute" {
        let given = format!("{:?}", scope.text("effect"));
        scope.report("effect", given, "NoExecute, with tolerationSeconds", &[]);
    }
}

/// The values that a selector's operator takes.
pub(super) fn requirement(scope: &mut Scope<'_, '_, '_>) {
    let count = scope.get("values").and_then(Value::as_array).map_or(0, Vec::len);
    let (passes, accepted) = match scope.text("operator") {
        "In" | "NotIn" => (count > 0, "at least one value"),
        "Exists" | "DoesNotExist" => (count == 0, "no values"),
        "Gt" | "Lt" => (count == 1, "one value"),
        _ => return,
    };
    let values = scope.get("values").and_then(Value::as_array).into_iter().flatten();
    if let Some(bad) = values.filter_map(Value::as_str).find(|value| !text::label_value(value)) {
        let given = format!("{bad:?}");
        scope.report("values", given, "values of labels", &[]);
    } else if !passes {
        let accepted = format!("{accepted}, with operator {}", scope.text("operator"));
        scope.report("values", format!("{count} values"), accepted, &[]);
    }
}

/// What only a container that runs beside the app can have.
pub(super) fn init_container(scope: &mut Scope<'_, '_, '_>) {
    // Another word is a fault of its own.
    let ends = matches!(scope.text("restartPolicy"), "" | "Never" | "OnFailure");
    if !ends || !scope.place.is_in("initContainers") {
        return;
    }
    for key in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
        if scope.get(key).is_some() {
            let given = match scope.text("restartPolicy") {
                "" => "set, without restartPolicy".to_owned(),
                policy => format!("set, with restartPolicy {policy}"),
            };
            scope.report(key, given, "none in an init container, unless it has restartPolicy: Always", &[]);
        }
    }
}

/// Claims of a container are claims of the pod.
pub(super) fn claims(scope: &mut Scope<'_, '_, '_>) {
    let claims = scope.get("resources").and_then(|resources| resources.lookup("claims")?.as_array());
    let known = at(scope.checker.pod, "/spec/resourceClaims").and_then(Value::as_array);
    let known: Vec<&str> = known.into_iter().flatten().map(name).collect();
    let unknown = claims.into_iter().flatten().map(name).find(|claim| !known.contains(claim));
    if let Some(claim) = unknown {
        scope.report("resources", format!("claim {claim:?}"), "the name of one", &[]);
        scope.enforced_by(Some(EnforcedBy::ApiServer), NO_CLAIM);
    }
}

/// Whether kubelet refuses to start a container: as user 0 where its own `runAsNonRoot`, or else the pod's,
/// is true.
pub(crate) fn breaks_non_root(pod: &Value, container: &Map<String, Value>) -> bool {
    let own = container.lookup("securityContext");
    let of_pod = pod.lookup("spec").and_then(|spec| spec.lookup("securityContext"));
    let either = |key: &str| {
        let of = |context: Option<&'_ Value>| {
            context.and_then(|all| all.lookup(key)).filter(|one| !one.is_null()).cloned()
        };
        of(own).or_else(|| of(of_pod))
    };
    let windows = at(pod, "/spec/os/name").and_then(Value::as_str) == Some("windows");
    !windows
        && either("runAsNonRoot") == Some(Value::Bool(true))
        && either("runAsUser").and_then(|user| user.as_i64()) == Some(0)
}

/// Containers that may not run as user 0 do not.
pub(super) fn non_root(scope: &mut Scope<'_, '_, '_>) {
    if !breaks_non_root(scope.checker.pod, scope.object) {
        return;
    }
    let place = scope.place.field("securityContext");
    let own = scope.get("securityContext").and_then(|context| context.lookup("runAsNonRoot")?.as_bool());
    let given =
        if own == Some(true) { "true, with runAsUser 0" } else { "true in the pod, with runAsUser 0" };
    let mut scope = Scope { checker: scope.checker, object: scope.object, place: &place };
    scope.report("runAsNonRoot", given, "false where a container runs as user 0", &[]);
    scope.remedy(Remedy::OfSetter(
        "set it to false in this container, or remove what needs user 0, such as interceptionMode TPROXY or capNetBindService",
    ));
    scope.enforced_by(Some(EnforcedBy::Kubelet), NOT_STARTED);
}

/// A variable has a value, or a source.
pub(super) fn variable(scope: &mut Scope<'_, '_, '_>) {
    if !scope.text("value").is_empty() && scope.get("valueFrom").is_some() {
        scope.report("", "value and valueFrom", "one of value, valueFrom", &["value", "valueFrom"]);
    }
}

/// What mounts need of their other fields, and of their container.
pub(super) fn read_only(scope: &mut Scope<'_, '_, '_>) {
    let recursive = scope.text("recursiveReadOnly");
    if matches!(recursive, "Enabled" | "IfPossible") && !scope.is_true("readOnly") {
        let given = format!("{recursive:?}");
        scope.report("recursiveReadOnly", given, "Disabled, or readOnly: true beside it", &[]);
    } else if matches!(recursive, "Enabled" | "IfPossible")
        && !matches!(scope.text("mountPropagation"), "" | "None")
    {
        let given = format!("{recursive:?} and {:?}", scope.text("mountPropagation"));
        let fields = ["recursiveReadOnly", "mountPropagation"];
        scope.report("", given, "mountPropagation None, with recursiveReadOnly", &fields);
    }
}

/// A readiness probe stops nothing.
pub(super) fn readiness_probe(scope: &mut Scope<'_, '_, '_>) {
    if let Some(given) = scope.get("terminationGracePeriodSeconds").map(ToString::to_string) {
        scope.report("terminationGracePeriodSeconds", given, "none in a readinessProbe", &[]);
    }
}

/// A hook does not sleep longer than the pod has time.
pub(super) fn sleep(scope: &mut Scope<'_, '_, '_>) {
    let seconds = scope.get("sleep").and_then(|sleep| sleep.lookup("seconds")?.as_i64()).unwrap_or_default();
    let grace = at(scope.checker.pod, "/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        // The API server makes 1 of a negative one.
        .map_or(30, |grace| if grace < 0 { 1 } else { grace });
    if seconds > grace {
        let accepted = format!("at most terminationGracePeriodSeconds, {grace}");
        scope.report("sleep", format!("{seconds} seconds"), accepted, &[]);
    }
}

/// What privileges exclude.
pub(super) fn privileged(scope: &mut Scope<'_, '_, '_>) {
    if scope.get("allowPrivilegeEscalation").and_then(Value::as_bool) != Some(false) {
        return;
    }
    if scope.is_true("privileged") {
        let fields = ["privileged", "allowPrivilegeEscalation"];
        scope.report("", "privileged, with allowPrivilegeEscalation false", "one of them", &fields);
    }
    let added = scope.get("capabilities").and_then(|all| all.lookup("add")?.as_array());
    let admin = added.is_some_and(|added| added.iter().any(|one| one == "CAP_SYS_ADMIN"));
    if admin {
        let fields = ["capabilities", "allowPrivilegeEscalation"];
        scope.report("", "CAP_SYS_ADMIN, with allowPrivilegeEscalation false", "one of them", &fields);
    }
}

/// The limit of an `emptyDir` is not negative.
pub(super) fn size_limit(scope: &mut Scope<'_, '_, '_>) {
    let limit = scope.text("sizeLimit");
    if nanos(limit).is_some_and(|limit| limit < 0) {
        let given = format!("{limit:?}");
        scope.report("sizeLimit", given, "0 or more", &[]);
    }
}
