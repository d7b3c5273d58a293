//! Pods that a CNI plugin captures satisfy the restricted Pod Security Standard if they did before injection: every field of the
//! standard, baseline's included, for the built-in templates and for Istio's own (`CONFORMANCE_DATA`).
#![allow(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod builtin;

use builtin::{with, workload};
use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{Injector, Options, Placement, Request, functions};

/// Values of a field that the standard accepts.
#[derive(Clone, Copy)]
enum Accepts {
    /// The field is missing, `null`, empty, or one of these.
    Unset(&'static [&'static str]),
    /// The field is one of these.
    Set(&'static [&'static str]),
}

use Accepts::{Set, Unset};

/// Fields of the pod's spec and of each of its containers, `*` for every item of a list: baseline.
const BASELINE_POD: [(&str, Accepts); 11] = [
    ("hostNetwork", Unset(&["false"])),
    ("hostPID", Unset(&["false"])),
    ("hostIPC", Unset(&["false"])),
    ("volumes/*/hostPath", Unset(&[])),
    ("securityContext/windowsOptions/hostProcess", Unset(&["false"])),
    ("securityContext/appArmorProfile/type", Unset(&["RuntimeDefault", "Localhost"])),
    ("securityContext/seLinuxOptions/type", Unset(SELINUX_TYPES)),
    ("securityContext/seLinuxOptions/user", Unset(&[])),
    ("securityContext/seLinuxOptions/role", Unset(&[])),
    ("securityContext/seccompProfile/type", Unset(&["RuntimeDefault", "Localhost"])),
    ("securityContext/sysctls/*/name", Unset(SYSCTLS)),
];
const BASELINE_CONTAINER: [(&str, Accepts); 20] = [
    ("securityContext/windowsOptions/hostProcess", Unset(&["false"])),
    ("securityContext/privileged", Unset(&["false"])),
    ("securityContext/capabilities/add/*", Unset(CAPABILITIES)),
    ("ports/*/hostPort", Unset(&["0"])),
    ("livenessProbe/httpGet/host", Unset(&[])),
    ("livenessProbe/tcpSocket/host", Unset(&[])),
    ("readinessProbe/httpGet/host", Unset(&[])),
    ("readinessProbe/tcpSocket/host", Unset(&[])),
    ("startupProbe/httpGet/host", Unset(&[])),
    ("startupProbe/tcpSocket/host", Unset(&[])),
    ("lifecycle/postStart/httpGet/host", Unset(&[])),
    ("lifecycle/postStart/tcpSocket/host", Unset(&[])),
    ("lifecycle/preStop/httpGet/host", Unset(&[])),
    ("lifecycle/preStop/tcpSocket/host", Unset(&[])),
    ("securityContext/appArmorProfile/type", Unset(&["RuntimeDefault", "Localhost"])),
    ("securityContext/seLinuxOptions/type", Unset(SELINUX_TYPES)),
    ("securityContext/seLinuxOptions/user", Unset(&[])),
    ("securityContext/seLinuxOptions/role", Unset(&[])),
    ("securityContext/procMount", Unset(&["Default"])),
    ("securityContext/seccompProfile/type", Unset(&["RuntimeDefault", "Localhost"])),
];
/// The same beyond baseline: restricted. Volumes, and fields that the pod sets for its containers, are in [`restricted`].
const RESTRICTED_CONTAINER: [(&str, Accepts); 2] = [
    ("securityContext/allowPrivilegeEscalation", Set(&["false"])),
    ("securityContext/capabilities/add/*", Unset(&["NET_BIND_SERVICE"])),
];
/// Beyond baseline, for the container or else for the pod.
const RESTRICTED_EITHER: [(&str, Accepts); 2] = [
    ("securityContext/runAsNonRoot", Set(&["true"])),
    ("securityContext/seccompProfile/type", Set(&["RuntimeDefault", "Localhost"])),
];

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
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
const VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

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

fn is_accepted(values: &[&Value], accepts: Accepts) -> bool {
    let word = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let among = |value: &Value, list: &[&str]| list.contains(&word(value).as_str());
    match accepts {
        Unset(list) => values.iter().all(|value| value.is_null() || **value == "" || among(value, list)),
        Set(list) => !values.is_empty() && values.iter().all(|value| among(value, list)),
    }
}

fn violated(place: &str, value: &Value, table: &[(&str, Accepts)]) -> Vec<String> {
    let bad = table.iter().filter(|(path, accepts)| !is_accepted(&at(value, path), *accepts));
    bad.map(|(path, _)| format!("{place}: {path}")).collect()
}

fn containers(pod: &Value) -> impl Iterator<Item = (String, &Value)> {
    LISTS
        .into_iter()
        .flat_map(move |list| at(&pod["spec"], &format!("{list}/*")))
        .map(|container| (container["name"].as_str().unwrap_or_default().to_owned(), container))
}

fn baseline(pod: &Value) -> Vec<String> {
    let mut found = violated("pod", &pod["spec"], &BASELINE_POD);
    for (key, value) in pod["metadata"]["annotations"].as_object().into_iter().flatten() {
        let accepted =
            value == "runtime/default" || value.as_str().is_some_and(|value| value.starts_with("localhost/"));
        if key.starts_with(APP_ARMOR) && !accepted {
            found.push(format!("pod: annotation {key}"));
        }
    }
    found.extend(
        containers(pod).flat_map(|(name, container)| violated(&name, container, &BASELINE_CONTAINER)),
    );
    found
}

fn restricted(pod: &Value) -> Vec<String> {
    let mut found = baseline(pod);
    for volume in at(&pod["spec"], "volumes/*") {
        let types: Vec<&String> = volume.as_object().unwrap().keys().filter(|key| *key != "name").collect();
        // Without a type it is an emptyDir.
        if !types.iter().all(|key| VOLUMES.contains(&key.as_str())) {
            found.push(format!("pod: volumes/{}", volume["name"]));
        }
    }
    let spec = &pod["spec"];
    if at(spec, "securityContext/runAsUser") == [&json!(0)] {
        found.push("pod: securityContext/runAsUser".to_owned());
    }
    for (name, container) in containers(pod) {
        found.extend(violated(&name, container, &RESTRICTED_CONTAINER));
        if !at(container, "securityContext/capabilities/drop/*").contains(&&json!("ALL")) {
            found.push(format!("{name}: securityContext/capabilities/drop"));
        }
        if at(container, "securityContext/runAsUser") == [&json!(0)] {
            found.push(format!("{name}: securityContext/runAsUser"));
        }
        for (path, accepts) in RESTRICTED_EITHER {
            let own = at(container, path);
            let counted = if own.is_empty() { at(spec, path) } else { own };
            if !is_accepted(&counted, accepts) {
                found.push(format!("{name}: {path}"));
            }
        }
    }
    found
}

/// A pod that satisfies the standard by the pod's security context, as far as it can.
fn by_pod() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "securityContext": {"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "web", "image": "web:1", "ports": [{"containerPort": 8080}],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}},
                "readinessProbe": {"tcpSocket": {"port": 8080}},
                "startupProbe": {"grpc": {"port": 9090}},
                "lifecycle": {"preStop": {"httpGet": {"path": "/stop", "port": 8080}}},
            }],
        },
    })
}

/// The same by its container's: nothing of it counts for containers that are added.
fn by_container() -> Value {
    let mut pod = by_pod();
    let own = pod["spec"].as_object_mut().unwrap().shift_remove("securityContext").unwrap();
    let context = pod["spec"]["containers"][0]["securityContext"].as_object_mut().unwrap();
    context.extend(own.as_object().unwrap().clone());
    pod
}

fn injector(sources: Sources, values: &Value) -> Injector {
    let values = Some(Source { name: "values".to_owned(), text: values.to_string() });
    let settings = Sources { values, ..sources }.load(&functions(|_| None)).unwrap();
    Injector::new(settings, Options::default())
}

fn inject(injector: &Injector, pod: &Value, native_sidecars: bool) -> Value {
    let place = Placement { native_sidecars, ..Placement::default() };
    injector.inject(Request { pod, workload: &workload(), place: &place }).unwrap().pod
}

fn built_in(cni: bool) -> Injector {
    injector(Sources::default(), &json!({"pilot": {"cni": {"enabled": cni}}}))
}

/// Istio's own config with the plugin, if it is here.
fn istio_s(seccomp: &Value) -> Option<Injector> {
    let data = std::path::PathBuf::from(std::env::var_os("CONFORMANCE_DATA")?).join("istio");
    let read = |name: &str| std::fs::read_to_string(data.join(name)).unwrap();
    let source = |name: &str| Some(Source { name: name.to_owned(), text: read(name) });
    let mut values: Value = serde_json::from_str(&read("inject-values.json")).unwrap();
    values["pilot"]["cni"]["enabled"] = json!(true);
    values["global"]["proxy"]["seccompProfile"] = seccomp.clone();
    let (config, mesh) = (source("inject-config.yaml"), source("mesh-config.yaml"));
    Some(injector(Sources { config, mesh, ..Sources::default() }, &values))
}

/// Annotations that do not ask for a privilege.
fn variants() -> Vec<Value> {
    vec![
        json!({}),
        json!({"traffic.sidecar.istio.io/excludeOutboundPorts": "5432", "status.sidecar.istio.io/port": "15030"}),
        json!({"sidecar.istio.io/rewriteAppHTTPProbers": "false"}),
        json!({"proxy.istio.io/config": "proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true', ISTIO_DUAL_STACK: 'true'}"}),
        json!({"proxy.istio.io/config": "holdApplicationUntilProxyStarts: true"}),
        json!({"sidecar.istio.io/interceptionMode": "NONE"}),
        json!({"sidecar.istio.io/userVolume": "{\"extra\": {\"emptyDir\": {}}}"}),
        json!({"sidecar.istio.io/bootstrapOverride": "custom"}),
    ]
}

fn stay_restricted(injector: &Injector, pods: &[Value]) {
    for pod in pods {
        assert_eq!(restricted(pod), [""; 0], "before");
        for annotations in variants() {
            for native in [true, false] {
                let injected = inject(injector, &with(pod, &annotations), native);
                let count = containers(&injected).count();
                assert!(count >= 2, "{annotations}: nothing was injected");
                assert_eq!(restricted(&injected), [""; 0], "{annotations}, native sidecar: {native}");
            }
        }
    }
}

#[test]
fn restricted_pods_stay_restricted() {
    stay_restricted(&built_in(true), &[by_pod(), by_container()]);
}

#[test]
fn restricted_pods_stay_restricted_with_istio_s_templates() {
    let Some(plain) = istio_s(&json!({})) else {
        println!("NOT CHECKED: set CONFORMANCE_DATA to the folder with istio/");
        return;
    };
    stay_restricted(&plain, &[by_pod()]);
    // Istio's values have no profile: its containers take the pod's.
    let missing = restricted(&inject(&plain, &by_container(), true));
    let profile = |name: &str| format!("{name}: securityContext/seccompProfile/type");
    assert_eq!(missing, ["istio-validation", "istio-proxy"].map(profile));
    let profile = istio_s(&json!({"type": "RuntimeDefault"})).unwrap();
    stay_restricted(&profile, &[by_pod(), by_container()]);
}

#[test]
fn gateways_are_restricted() {
    let gateway = with(
        &json!({"spec": {"containers": [{"name": "istio-proxy", "image": "auto"}]}}),
        &json!({"inject.istio.io/templates": "gateway"}),
    );
    let injected = inject(&built_in(true), &gateway, true);
    assert_eq!(restricted(&injected), [""; 0], "{injected:#}");
}

/// What needs a privilege, with the plugin too, and nothing else does.
#[test]
fn privileges_that_are_asked_for_are_the_only_ones() {
    let cni = built_in(true);
    let of = |level: fn(&Value) -> Vec<String>, annotations: &Value| {
        level(&inject(&cni, &with(&by_pod(), annotations), true))
    };
    let tproxy = json!({"sidecar.istio.io/interceptionMode": "TPROXY"});
    assert_eq!(of(baseline, &tproxy), ["istio-proxy: securityContext/capabilities/add/*"], "marks packets");
    let bind = json!({"sidecar.istio.io/capNetBindService": "true"});
    assert_eq!(of(baseline, &bind), [""; 0]);
    let root = ["istio-proxy: securityContext/runAsUser", "istio-proxy: securityContext/runAsNonRoot"];
    assert_eq!(of(restricted, &bind), root);
    let init = inject(&built_in(false), &by_pod(), true);
    assert_eq!(baseline(&init), ["istio-init: securityContext/capabilities/add/*"]);
}

/// Sets a field, `*` being the only item of a list.
fn set(value: &mut Value, path: &str, new: &Value) {
    let Some((key, rest)) = path.split_once('/') else {
        value[path] = new.clone();
        return;
    };
    if let Some(rest) = rest.strip_prefix("*/").or_else(|| (rest == "*").then_some("")) {
        let mut item = json!({});
        if rest.is_empty() {
            item = new.clone()
        } else {
            set(&mut item, rest, new)
        }
        value[key] = json!([item]);
    } else {
        if !value[key].is_object() {
            value[key] = json!({});
        }
        set(&mut value[key], rest, new);
    }
}

/// Each field of the standard, with a value that it does not accept, is found, so the tests above can fail.
#[test]
fn every_field_is_examined() {
    let refused = |path: &str| match path.rsplit('/').next().unwrap() {
        "hostPath" => json!({"path": "/"}),
        "hostPort" => json!(80),
        "hostNetwork" | "hostPID" | "hostIPC" | "hostProcess" | "privileged" | "allowPrivilegeEscalation" => {
            json!(true)
        }
        "runAsNonRoot" => json!(false),
        _ => json!("other"),
    };
    let injected = inject(&built_in(true), &by_container(), true);
    for (path, _) in BASELINE_POD {
        let mut pod = injected.clone();
        set(&mut pod["spec"], path, &refused(path));
        assert_eq!(baseline(&pod), [format!("pod: {path}")]);
    }
    let container = BASELINE_CONTAINER.iter().map(|(path, _)| (path, baseline as fn(&Value) -> Vec<String>));
    let more = RESTRICTED_CONTAINER
        .iter()
        .chain(&RESTRICTED_EITHER)
        .map(|(path, _)| (path, restricted as fn(&Value) -> _));
    for (path, level) in container.chain(more) {
        for (list, name) in [("containers", "web"), ("initContainers", "istio-proxy")] {
            let mut pod = injected.clone();
            let all = pod["spec"][list].as_array_mut().unwrap();
            let found = all.iter_mut().find(|one| one["name"] == name).unwrap();
            set(found, path, &refused(path));
            assert!(level(&pod).contains(&format!("{name}: {path}")), "{path}: {:?}", level(&pod));
        }
    }
    let mut pod = injected.clone();
    pod["metadata"]["annotations"][format!("{APP_ARMOR}web")] = json!("unconfined");
    assert_eq!(baseline(&pod).len(), 1);
    let mut pod = injected.clone();
    pod["spec"]["volumes"] = json!([{"name": "x", "nfs": {}}]);
    assert_eq!(restricted(&pod), ["pod: volumes/\"x\""]);
    for (pointer, value) in [("drop", json!(["NET_RAW"])), ("drop", json!([]))] {
        let mut pod = injected.clone();
        pod["spec"]["containers"][0]["securityContext"]["capabilities"][pointer] = value;
        assert_eq!(restricted(&pod), ["web: securityContext/capabilities/drop"]);
    }
    let mut pod = injected;
    pod["spec"]["containers"][0]["securityContext"]["runAsUser"] = json!(0);
    assert_eq!(restricted(&pod), ["web: securityContext/runAsUser"]);
}
