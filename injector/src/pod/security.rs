//! Pod Security Standards: every field of `baseline` and `restricted`, in one table.

use std::fmt;

use serde_json::Value;

use super::is_istio_container;
use super::list::name;

/// The label of a namespace with the level that its pods must meet.
pub(crate) const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// A level that rejects pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Prevents known privilege escalations.
    Baseline,
    /// Baseline, and hardening.
    Restricted,
}

impl Level {
    /// As in the label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a field is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In the pod's spec.
    Pod,
    /// In each container.
    Container,
    /// In the container, or else in the pod's spec.
    Either,
}

/// Values that a level accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// The field is missing, `null`, empty, or one of these.
    Unset(&'static [&'static str]),
    /// The field is one of these.
    Set(&'static [&'static str]),
    /// The field is not this one.
    Not(&'static str),
    /// The list has this one.
    Has(&'static str),
    /// The object has these keys, and `name`, alone.
    Keys(&'static [&'static str]),
}

use Accepts::{Has, Keys, Not, Set, Unset};
use Level::{Baseline, Restricted};
use Scope::{Container, Either, Pod};

/// One field: the level from which on it counts, where it is, its path with `*` for every item of a list,
/// what is accepted.
pub type Field = (Level, Scope, &'static str, Accepts);

const FALSE: Accepts = Unset(&["false"]);
const PROFILE: &[&str] = &["RuntimeDefault", "Localhost"];
const SELINUX_TYPES: &[&str] = &["container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
const SYSCTLS: &[&str] = &[
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];
const CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Without a type a volume is an `emptyDir`.
const VOLUMES: &[&str] = &[
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// All fields.
pub const FIELDS: [Field; 39] = [
    (Baseline, Pod, "hostNetwork", FALSE),
    (Baseline, Pod, "hostPID", FALSE),
    (Baseline, Pod, "hostIPC", FALSE),
    (Baseline, Pod, "volumes/*/hostPath", Unset(&[])),
    (Baseline, Pod, "securityContext/windowsOptions/hostProcess", FALSE),
    (Baseline, Pod, "securityContext/appArmorProfile/type", Unset(PROFILE)),
    (Baseline, Pod, "securityContext/seLinuxOptions/type", Unset(SELINUX_TYPES)),
    (Baseline, Pod, "securityContext/seLinuxOptions/user", Unset(&[])),
    (Baseline, Pod, "securityContext/seLinuxOptions/role", Unset(&[])),
    (Baseline, Pod, "securityContext/seccompProfile/type", Unset(PROFILE)),
    (Baseline, Pod, "securityContext/sysctls/*/name", Unset(SYSCTLS)),
    (Baseline, Container, "securityContext/windowsOptions/hostProcess", FALSE),
    (Baseline, Container, "securityContext/privileged", FALSE),
    (Baseline, Container, "securityContext/capabilities/add/*", Unset(CAPABILITIES)),
    (Baseline, Container, "ports/*/hostPort", Unset(&["0"])),
    (Baseline, Container, "livenessProbe/httpGet/host", Unset(&[])),
    (Baseline, Container, "livenessProbe/tcpSocket/host", Unset(&[])),
    (Baseline, Container, "readinessProbe/httpGet/host", Unset(&[])),
    (Baseline, Container, "readinessProbe/tcpSocket/host", Unset(&[])),
    (Baseline, Container, "startupProbe/httpGet/host", Unset(&[])),
    (Baseline, Container, "startupProbe/tcpSocket/host", Unset(&[])),
    (Baseline, Container, "lifecycle/postStart/httpGet/host", Unset(&[])),
    (Baseline, Container, "lifecycle/postStart/tcpSocket/host", Unset(&[])),
    (Baseline, Container, "lifecycle/preStop/httpGet/host", Unset(&[])),
    (Baseline, Container, "lifecycle/preStop/tcpSocket/host", Unset(&[])),
    (Baseline, Container, "securityContext/appArmorProfile/type", Unset(PROFILE)),
    (Baseline, Container, "securityContext/seLinuxOptions/type", Unset(SELINUX_TYPES)),
    (Baseline, Container, "securityContext/seLinuxOptions/user", Unset(&[])),
    (Baseline, Container, "securityContext/seLinuxOptions/role", Unset(&[])),
    (Baseline, Container, "securityContext/procMount", Unset(&["Default"])),
    (Baseline, Container, "securityContext/seccompProfile/type", Unset(PROFILE)),
    (Restricted, Pod, "volumes/*", Keys(VOLUMES)),
    (Restricted, Pod, "securityContext/runAsUser", Not("0")),
    (Restricted, Container, "securityContext/allowPrivilegeEscalation", Set(&["false"])),
    (Restricted, Container, "securityContext/capabilities/add/*", Unset(&["NET_BIND_SERVICE"])),
    (Restricted, Container, "securityContext/capabilities/drop/*", Has("ALL")),
    (Restricted, Container, "securityContext/runAsUser", Not("0")),
    (Restricted, Either, "securityContext/runAsNonRoot", Set(&["true"])),
    (Restricted, Either, "securityContext/seccompProfile/type", Set(PROFILE)),
];

/// The lists of containers.
const LISTS: [&str; 3] = ["containers/*", "initContainers/*", "ephemeralContainers/*"];
/// The beginning of the annotations that have one profile of AppArmor for each container.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

/// A field that a level does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The container's name; `None` for the pod.
    pub container: Option<String>,
    /// The field's path.
    pub path: String,
    /// The problem.
    problem: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.container {
            Some(name) => write!(f, "container {name}: ")?,
            None => f.write_str("pod: ")?,
        }
        write!(f, "{}: {}", self.path.replace("/*", "").replace('/', "."), self.problem)
    }
}

/// The level that a namespace enforces, unless every pod satisfies it.
pub(crate) fn enforced(namespace: &Value) -> Option<Level> {
    let label = namespace.pointer("/metadata/labels")?.get(ENFORCE)?.as_str()?;
    [Baseline, Restricted].into_iter().find(|level| level.name() == label)
}

/// What a level does not accept of a pod as the API server gets it: of the pod itself, and of the containers
/// that injection adds.
pub(crate) fn of_injection(pod: &Value, level: Level) -> Vec<String> {
    let is_own = |one: &Violation| one.container.as_deref().is_none_or(is_istio_container);
    violations(pod, level).iter().filter(|one| is_own(one)).map(ToString::to_string).collect()
}

/// What a level does not accept of a pod.
#[must_use]
pub fn violations(pod: &Value, level: Level) -> Vec<Violation> {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let mut found = Vec::new();
    let of_level = |scopes: &'static [Scope]| {
        FIELDS.iter().filter(move |(from, scope, ..)| *from <= level && scopes.contains(scope))
    };
    for (_, _, path, accepts) in of_level(&[Pod]) {
        let problem = accepts.problem(&at(spec, path));
        found.extend(problem.map(|problem| Violation { container: None, path: (*path).to_owned(), problem }));
    }
    let annotations = pod.pointer("/metadata/annotations").and_then(Value::as_object);
    for (key, value) in annotations.into_iter().flatten().filter(|(key, _)| key.starts_with(APP_ARMOR)) {
        let text = value.as_str().unwrap_or_default();
        if text != "runtime/default" && !text.starts_with("localhost/") {
            let problem = format!("{value} is not accepted, expected runtime/default or localhost/PROFILE");
            found.push(Violation { container: None, path: format!("annotation {key}"), problem });
        }
    }
    for container in LISTS.iter().flat_map(|list| at(spec, list)) {
        for (_, scope, path, accepts) in of_level(&[Container, Either]) {
            let own = at(container, path);
            let counted = if own.is_empty() && *scope == Either { at(spec, path) } else { own };
            found.extend(accepts.problem(&counted).map(|problem| Violation {
                container: Some(name(container).to_owned()),
                path: (*path).to_owned(),
                problem,
            }));
        }
    }
    // What baseline rejects is not said twice.
    let mut unique: Vec<Violation> = Vec::new();
    for one in found.into_iter().rev() {
        if !unique.iter().any(|other| other.container == one.container && other.path == one.path) {
            unique.push(one);
        }
    }
    unique.reverse();
    unique
}

impl Accepts {
    /// What is wrong with the values of a field.
    fn problem(self, values: &[&Value]) -> Option<String> {
        let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let is_bad = |value: &Value| match self {
            Unset(list) => !value.is_null() && value != "" && !list.contains(&word(value).as_str()),
            Set(list) => !list.contains(&word(value).as_str()),
            Not(one) => word(value) == one,
            Keys(list) => {
                let mut keys = value.as_object().into_iter().flat_map(serde_json::Map::keys);
                keys.any(|key| key != "name" && !list.contains(&key.as_str()))
            }
            Has(_) => false,
        };
        let bad: Vec<String> = values.iter().filter(|value| is_bad(value)).map(|value| word(value)).collect();
        let is_missing = match self {
            Set(_) => values.is_empty(),
            Has(one) => !values.iter().any(|value| **value == one),
            Unset(_) | Not(_) | Keys(_) => false,
        };
        let expected = match self {
            Unset([]) => "nothing".to_owned(),
            Unset(list) | Set(list) => list.join(", "),
            Not(one) => format!("anything but {one}"),
            Keys(list) => format!("a volume of type {}", list.join(", ")),
            Has(one) => one.to_owned(),
        };
        if is_missing {
            return Some(format!("missing, expected {expected}"));
        }
        (!bad.is_empty()).then(|| format!("{} not accepted, expected {expected}", bad.join(", ")))
    }
}

/// All values at a path.
fn at<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    path.split('/').fold(vec![value], |found, key| {
        let inner = |value: &'a Value| -> Vec<&'a Value> {
            match key {
                "*" => value.as_array().into_iter().flatten().collect(),
                key => value.get(key).into_iter().collect(),
            }
        };
        found.into_iter().flat_map(inner).collect()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn injected_containers_are_held_against_the_level() {
        let pod = |security: Value, own: Value| {
            json!({"spec": {"securityContext": security, "containers": [{"name": "app"}],
                "initContainers": [{"name": "istio-init", "securityContext": own}]}})
        };
        let init = json!({"capabilities": {"add": ["NET_ADMIN", "CHOWN"], "drop": ["ALL"]}, "allowPrivilegeEscalation": false,
            "runAsUser": 0, "runAsNonRoot": false});
        let found = of_injection(&pod(json!({}), init.clone()), Baseline);
        assert!(
            matches!(found.as_slice(), [one] if one.starts_with("container istio-init: securityContext.capabilities.add: NET_ADMIN not accepted")),
            "{found:?}"
        );
        assert_eq!(of_injection(&pod(json!({}), init), Restricted).len(), 4);
        let good = json!({"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false, "runAsNonRoot": true});
        let profile = json!({"seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(of_injection(&pod(profile, good.clone()), Restricted), Vec::<String>::new());
        assert_eq!(of_injection(&pod(json!({}), good), Restricted).len(), 1);
        for (label, level) in [("baseline", Some(Baseline)), ("privileged", None), ("", None)] {
            assert_eq!(enforced(&json!({"metadata": {"labels": {ENFORCE: label}}})), level);
        }
    }
}
