//! Pod Security Standards, as far as injected containers can violate them.

use serde_json::Value;

use super::is_istio_container;
use super::list::{all_containers, name};

/// The label of a namespace with the level that its pods must meet.
pub(crate) const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// The capabilities that `baseline` allows to add.
const ALLOWED: [&str; 13] = [
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

/// The level that a namespace enforces, unless every pod satisfies it.
pub(crate) fn enforced(namespace: &Value) -> Option<&str> {
    let labels = namespace.pointer("/metadata/labels")?;
    labels.get(ENFORCE)?.as_str().filter(|level| matches!(*level, "baseline" | "restricted"))
}

/// What of Istio's containers violates `baseline` or `restricted`.
pub(crate) fn violations(pod: &Value, level: &str) -> Vec<String> {
    let own = all_containers(pod).filter(|container| is_istio_container(name(container)));
    own.flat_map(|container| {
        let found = of_container(pod, container, level == "restricted");
        found.into_iter().map(|problem| format!("container {}: {problem}", name(container)))
    })
    .collect()
}

fn of_container(pod: &Value, container: &Value, restricted: bool) -> Vec<String> {
    let mut found = Vec::new();
    let own = |pointer: &str| container.pointer(&format!("/securityContext/{pointer}"));
    let either =
        |pointer: &str| own(pointer).or_else(|| pod.pointer(&format!("/spec/securityContext/{pointer}")));
    let names = |pointer: &str| -> Vec<&str> {
        own(pointer).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let allowed: &[&str] = if restricted { &["NET_BIND_SERVICE"] } else { &ALLOWED };
    let added = names("capabilities/add").into_iter().filter(|name| !allowed.contains(name));
    let added: Vec<&str> = added.collect();
    if !added.is_empty() {
        found.push(format!("adds capabilities {}", added.join(", ")));
    }
    if own("privileged") == Some(&Value::Bool(true)) {
        found.push("is privileged".to_owned());
    }
    if !restricted {
        return found;
    }
    let demands = [
        (
            "allowPrivilegeEscalation is not false",
            own("allowPrivilegeEscalation") == Some(&Value::Bool(false)),
        ),
        ("does not drop ALL capabilities", names("capabilities/drop").contains(&"ALL")),
        ("runAsNonRoot is not true", either("runAsNonRoot") == Some(&Value::Bool(true))),
        ("runs as user 0", either("runAsUser").and_then(Value::as_u64) != Some(0)),
        (
            "seccompProfile is not RuntimeDefault or Localhost",
            matches!(
                either("seccompProfile/type").and_then(Value::as_str),
                Some("RuntimeDefault" | "Localhost")
            ),
        ),
    ];
    found.extend(demands.into_iter().filter(|(_, met)| !met).map(|(problem, _)| problem.to_owned()));
    found
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
        let found = violations(&pod(json!({}), init.clone()), "baseline");
        assert_eq!(found, ["container istio-init: adds capabilities NET_ADMIN"]);
        assert_eq!(violations(&pod(json!({}), init), "restricted").len(), 4);
        let good = json!({"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false, "runAsNonRoot": true});
        let profile = json!({"seccompProfile": {"type": "RuntimeDefault"}});
        assert_eq!(violations(&pod(profile, good.clone()), "restricted"), Vec::<String>::new());
        assert_eq!(violations(&pod(json!({}), good), "restricted").len(), 1);
        for (label, level) in [("baseline", Some("baseline")), ("privileged", None), ("", None)] {
            assert_eq!(enforced(&json!({"metadata": {"labels": {ENFORCE: label}}})), level);
        }
    }
}
