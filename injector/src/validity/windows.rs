//! Windows options, and fields that Windows pods must not set.

use serde_json::Value;

use super::relations::list;
use super::{Remedy, Scope, is_zero, text};
use crate::path::{Lookup as _, at};

/// Options of Windows: what a user's name is, and that no pod of Linux has them.
pub(super) fn options(scope: &mut Scope<'_, '_, '_>) {
    const MOST_BYTES: usize = 64 * 1024;
    if at(scope.checker.pod, "/spec/os/name").is_some_and(|name| name == "linux") {
        scope.report("", "set", "none with spec.os.name linux", &[]);
    }
    // The pod has the same as its containers, and these the same as each other.
    if scope.is_true("hostProcess") && host_processes(scope.checker.pod).contains(&false) {
        scope.report("hostProcess", "true", "the same in all containers of the pod", &[]);
    }
    let given = |key: &str| scope.get(key).and_then(Value::as_str).map(str::to_owned);
    let name = given("gmsaCredentialSpecName").filter(|name| !text::dns_subdomain(name));
    let spec = given("gmsaCredentialSpec").filter(|spec| spec.is_empty() || spec.len() > MOST_BYTES);
    let user = given("runAsUserName").filter(|user| !user_name(user));
    if let Some(name) = name {
        scope.report("gmsaCredentialSpecName", format!("{name:?}"), "the name of a GMSACredentialSpec", &[]);
    }
    if let Some(spec) = spec {
        let given = format!("{} bytes", spec.len());
        scope.report("gmsaCredentialSpec", given, "1 byte to 64 KiB", &[]);
    }
    if let Some(user) = user {
        let accepted = "[DOMAIN\\]USER, the user at most 104 characters other than \"/\\:;|=,+*?<>@[]";
        scope.report("runAsUserName", format!("{user:?}"), accepted, &[]);
    }
}

/// Linux-only fields, which Kubernetes rejects in a pod with `spec.os.name: windows`.
pub(super) fn spec(scope: &mut Scope<'_, '_, '_>) {
    if !is_windows(scope) {
        return;
    }
    let mut fields = present(scope, &["hostUsers", "shareProcessNamespace", "resources"]);
    fields.extend(["hostPID", "hostIPC"].into_iter().filter(|key| scope.is_true(key)));
    of_linux(scope, &fields);
}

/// Linux-only fields of the pod's security context.
pub(super) fn pod_security(scope: &mut Scope<'_, '_, '_>) {
    if !is_windows(scope) {
        return;
    }
    let fields = [
        "appArmorProfile",
        "fsGroup",
        "fsGroupChangePolicy",
        "runAsGroup",
        "runAsUser",
        "seLinuxChangePolicy",
        "seLinuxOptions",
        "seccompProfile",
        "supplementalGroupsPolicy",
    ];
    let mut found = present(scope, &fields);
    let lists = ["supplementalGroups", "sysctls"];
    found.extend(lists.into_iter().filter(|key| scope.get(key).is_some_and(|list| !is_zero(list))));
    of_linux(scope, &found);
}

/// Linux-only fields of a container's security context.
pub(super) fn security(scope: &mut Scope<'_, '_, '_>) {
    if !is_windows(scope) {
        return;
    }
    let fields = [
        "allowPrivilegeEscalation",
        "appArmorProfile",
        "capabilities",
        "privileged",
        "procMount",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsUser",
        "seLinuxOptions",
        "seccompProfile",
    ];
    let found = present(scope, &fields);
    of_linux(scope, &found);
}

fn is_windows(scope: &Scope<'_, '_, '_>) -> bool {
    at(scope.checker.pod, "/spec/os/name").is_some_and(|name| name == "windows")
}

fn present(scope: &Scope<'_, '_, '_>, fields: &[&'static str]) -> Vec<&'static str> {
    fields.iter().copied().filter(|key| scope.get(key).is_some()).collect()
}

fn of_linux(scope: &mut Scope<'_, '_, '_>, fields: &[&'static str]) {
    if !fields.is_empty() {
        let accepted = "no field of Linux, with spec.os.name windows";
        scope.report("", fields.join(", "), accepted, fields);
        scope.remedy(Remedy::Always("exclude pods of Windows by label sidecar.istio.io/inject: \"false\""));
    }
}

fn user_name(name: &str) -> bool {
    let (domain, user) = name.split_once('\\').map_or((None, name), |(domain, user)| (Some(domain), user));
    let letters =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let label =
        |part: &str| letters(part) && part.len() <= 63 && !part.starts_with('-') && !part.ends_with('-');
    let net_bios = |domain: &str| {
        (1..=15).contains(&domain.chars().count())
            && !domain.starts_with('.')
            && !domain.contains(|c| "/:*?\"<>|".contains(c))
    };
    let of_domain = |domain: &str| domain.len() < 256 && (net_bios(domain) || domain.split('.').all(label));
    !name.chars().any(|c| c.is_ascii_control())
        && domain.is_none_or(of_domain)
        && (1..=104).contains(&user.len())
        && !user.chars().all(|c| matches!(c, '.' | ' '))
        && !user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c))
}

/// Processes of the node have the node's network.
pub(super) fn host_network(scope: &mut Scope<'_, '_, '_>) {
    if host_processes(scope.checker.pod).contains(&true) && !scope.is_true("hostNetwork") {
        scope.report("hostNetwork", "false", "true, with hostProcess", &[]);
    }
}

/// Whether each container is a process of the node.
fn host_processes(pod: &Value) -> Vec<bool> {
    let Some(spec) = pod.lookup("spec").and_then(Value::as_object) else { return Vec::new() };
    let of = |context: Option<&Value>| context?.lookup("windowsOptions")?.lookup("hostProcess")?.as_bool();
    let of_pod = of(spec.lookup("securityContext"));
    let all = ["containers", "initContainers"].iter().flat_map(|key| list(spec, key));
    all.map(|one| of(one.lookup("securityContext")).or(of_pod) == Some(true)).collect()
}
