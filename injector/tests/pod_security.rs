//! Pods that a CNI plugin captures satisfy the restricted Pod Security Standard if they did before injection:
//! every field of the standard, baseline's included, for the built-in templates and for Istio's own
//! (`CONFORMANCE_DATA`).

use crate::builtin::{with, workload};
use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{InjectionContext, Injector, Options, Request, functions};
use sidecar_injector::pod::security::{FIELDS, Level, Scope, Violation, violations};

fn found(pod: &Value, level: Level) -> Vec<String> {
    let shown = |one: &Violation| format!("{}: {}", one.container.as_deref().unwrap_or("pod"), one.path);
    violations(pod, level).iter().map(shown).collect()
}

fn baseline(pod: &Value) -> Vec<String> {
    found(pod, Level::Baseline)
}

fn restricted(pod: &Value) -> Vec<String> {
    found(pod, Level::Restricted)
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
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

/// A pod that satisfies the standard by its container's security context: nothing of it counts for containers
/// that are added.
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
    let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
    injector.inject(Request { pod, workload: &workload(), context: &context }).unwrap().pod
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
fn only_requested_privileges_are_granted() {
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
        "*" if path == "volumes/*" => json!({"name": "x", "nfs": {}}),
        "hostPath" => json!({"path": "/"}),
        "hostPort" => json!(80),
        "hostNetwork" | "hostPID" | "hostIPC" | "hostProcess" | "privileged" | "allowPrivilegeEscalation" => {
            json!(true)
        }
        "runAsNonRoot" => json!(false),
        "runAsUser" => json!(0),
        _ => json!("other"),
    };
    let injected = inject(&built_in(true), &by_container(), true);
    let level_of = |level: Level| if level == Level::Baseline { baseline } else { restricted };
    for (level, scope, path, _) in FIELDS {
        if scope == Scope::Pod {
            let mut pod = injected.clone();
            set(&mut pod["spec"], path, &refused(path));
            let found = level_of(level)(&pod);
            assert!(found.contains(&format!("pod: {path}")), "{path}: {found:?}");
            assert!(level == Level::Restricted || found.len() == 1, "{path}: {found:?}");
            continue;
        }
        for (list, name) in [("containers", "web"), ("initContainers", "istio-proxy")] {
            let mut pod = injected.clone();
            let all = pod["spec"][list].as_array_mut().unwrap();
            let container = all.iter_mut().find(|one| one["name"] == name).unwrap();
            set(container, path, &refused(path));
            let found = level_of(level)(&pod);
            assert!(found.contains(&format!("{name}: {path}")), "{path}: {found:?}");
        }
    }
    let mut pod = injected.clone();
    pod["spec"]["ephemeralContainers"] = json!([{"name": "debug", "securityContext": {"privileged": true}}]);
    assert_eq!(baseline(&pod), ["debug: securityContext/privileged"]);
    let mut pod = injected.clone();
    pod["metadata"]["annotations"]["container.apparmor.security.beta.kubernetes.io/web"] =
        json!("unconfined");
    assert_eq!(baseline(&pod).len(), 1);
    let mut pod = injected.clone();
    pod["spec"]["volumes"] = json!([{"name": "x", "nfs": {}}]);
    assert_eq!(restricted(&pod), ["pod: volumes/*"]);
    for (pointer, value) in [("drop", json!(["NET_RAW"])), ("drop", json!([]))] {
        let mut pod = injected.clone();
        pod["spec"]["containers"][0]["securityContext"]["capabilities"][pointer] = value;
        assert_eq!(restricted(&pod), ["web: securityContext/capabilities/drop/*"]);
    }
    let mut pod = injected;
    pod["spec"]["containers"][0]["securityContext"]["runAsUser"] = json!(0);
    assert_eq!(restricted(&pod), ["web: securityContext/runAsUser"]);
}
