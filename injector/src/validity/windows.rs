//! Rules of the operating system: what pods of Windows and of Linux can have.

use serde_json::Value;

use super::relations::list;
use super::{Scope, is_zero, text};

/// What a pod of Windows cannot have in its spec. The first two count where they are true.
const SPEC: [&str; 5] = ["hostPID", "hostIPC", "hostUsers", "shareProcessNamespace", "resources"];
/// What a pod of Windows, or one of its containers, cannot have in its security context.
const SECURITY: [&str; 15] = [
    "allowPrivilegeEscalation",
    "appArmorProfile",
    "capabilities",
    "fsGroup",
    "fsGroupChangePolicy",
    "privileged",
    "procMount",
    "readOnlyRootFilesystem",
    "runAsGroup",
    "runAsUser",
    "seLinuxOptions",
    "seccompProfile",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "sysctls",
];

fn is(pod: &Value, system: &str) -> bool {
    pod.pointer("/spec/os/name").is_some_and(|name| name == system)
}

/// A pod of Windows has no fields of Linux.
pub(super) fn spec(scope: &mut Scope<'_, '_, '_>) {
    let is_false = |key: &str| key.len() == "hostPID".len() && !scope.is_true(key);
    refuse(scope, &SPEC.into_iter().filter(|key| !is_false(key)).collect::<Vec<_>>());
}

/// The security context of a pod of Windows, or of one of its containers.
pub(super) fn security(scope: &mut Scope<'_, '_, '_>) {
    refuse(scope, &SECURITY);
}

fn refuse(scope: &mut Scope<'_, '_, '_>, keys: &[&str]) {
    if !is(scope.checker.pod, "windows") {
        return;
    }
    let given = keys.iter().copied().filter(|key| {
        let value = scope.get(key);
        value.is_some_and(|value| value.is_number() || !is_zero(value))
    });
    let given: Vec<&str> = given.collect();
    if !given.is_empty() {
        scope.report("", given.join(" and "), "none of it with spec.os.name windows", &given);
    }
}

/// Options of Windows: what a user's name is, and that no pod of Linux has them.
pub(super) fn options(scope: &mut Scope<'_, '_, '_>) {
    const MOST_BYTES: usize = 64 * 1024;
    if is(scope.checker.pod, "linux") {
        scope.report("", "set", "none with spec.os.name linux", &[]);
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

/// All containers of a pod are processes of the node, or none is; then it has the node's network.
pub(super) fn host_process(scope: &mut Scope<'_, '_, '_>) {
    let of =
        |object: &Value| object.get("securityContext")?.get("windowsOptions")?.get("hostProcess")?.as_bool();
    let of_pod = scope.checker.pod.get("spec").and_then(of);
    let all: Vec<Option<bool>> =
        ["containers", "initContainers"].iter().flat_map(|key| list(scope.object, key)).map(of).collect();
    let on_host = all.iter().filter(|own| own.or(of_pod) == Some(true)).count();
    if of_pod.is_some() && all.iter().any(|own| own.is_some() && *own != of_pod) {
        let accepted = "the same hostProcess in the pod and its containers";
        scope.report(
            "",
            "hostProcess differs",
            accepted,
            &["securityContext", "containers", "initContainers"],
        );
    } else if on_host > 0 && on_host < all.len() {
        let given = format!("hostProcess in {on_host} of {} containers", all.len());
        scope.report("", given, "it in all of them", &["containers", "initContainers"]);
    }
    if on_host > 0 && !scope.is_true("hostNetwork") {
        scope.report("hostNetwork", "false", "true, with hostProcess", &[]);
    }
}
