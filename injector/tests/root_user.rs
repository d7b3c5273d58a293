//! Injected containers that run as user 0, in pods that forbid it with `runAsNonRoot`: kubelet refuses to
//! start a container whose own or inherited `runAsNonRoot` is true and whose user is 0.

use crate::builtin::{deployment, inject, injector, with};
use serde_json::{Value, json};
use sidecar_injector::config::{Source, Sources};
use sidecar_injector::inject::{Injector, Options, functions};

const PLACES: [&str; 2] = ["initContainers", "containers"];

/// As kubelet: the containers that it refuses to start.
fn not_started(pod: &Value) -> Vec<String> {
    let of_pod = &pod["spec"]["securityContext"];
    let own = |container: &Value, key: &str| match &container["securityContext"][key] {
        Value::Null => of_pod[key].clone(),
        other => other.clone(),
    };
    let all = PLACES.into_iter().filter_map(|list| pod["spec"][list].as_array()).flatten();
    let refused =
        all.filter(|one| own(one, "runAsNonRoot") == json!(true) && own(one, "runAsUser") == json!(0));
    refused.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

fn non_root(annotations: &Value) -> Value {
    let mut pod = with(&deployment(), annotations);
    pod["spec"]["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 1000});
    pod
}

/// A config whose containers say nothing of `runAsNonRoot`.
fn custom() -> Injector {
    let root = json!({"runAsUser": 0, "capabilities": {"add": ["NET_ADMIN"]}});
    let template = json!({"spec": {
        "initContainers": [{"name": "istio-init", "image": "i", "args": ["istio-iptables", "-m", "TPROXY"], "securityContext": root}],
        "containers": [{"name": "istio-proxy", "image": "p", "securityContext": root}],
    }});
    let text =
        json!({"policy": "enabled", "defaultTemplates": ["own"], "templates": {"own": template.to_string()}});
    let config = Some(Source { name: "config".to_owned(), text: text.to_string() });
    let sources = Sources { config, ..Sources::default() };
    Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default())
}

#[test]
fn injected_containers_of_user_0_start_in_a_pod_that_runs_as_non_root() {
    for (name, annotations) in [
        ("TPROXY", json!({"sidecar.istio.io/interceptionMode": "TPROXY"})),
        (
            "TPROXY, classic",
            json!({"sidecar.istio.io/interceptionMode": "TPROXY", "sidecar.istio.io/nativeSidecar": "false"}),
        ),
        ("REDIRECT", json!({})),
        ("low ports", json!({"sidecar.istio.io/capNetBindService": "true"})),
    ] {
        for (config, injector) in [("built-in", injector()), ("custom", custom())] {
            let injected = inject(&injector, &non_root(&annotations)).unwrap();
            assert_eq!(not_started(&injected.pod), [""; 0], "{name}, {config}");
            assert_eq!(injected.invalid, [], "{name}, {config}");
            assert_eq!(injected.pod["spec"]["securityContext"]["runAsNonRoot"], true, "{name}, {config}");
            let again = inject(&injector, &injected.pod).unwrap();
            assert_eq!(again.pod.to_string(), injected.pod.to_string(), "{name}, {config}");
        }
    }
}

fn with_proxy(pod: &Value, security: &Value) -> Value {
    let mut pod = pod.clone();
    let proxy = json!({"name": "istio-proxy", "image": "auto", "securityContext": security});
    pod["spec"]["containers"].as_array_mut().unwrap().push(proxy);
    pod
}

/// The user's own `runAsNonRoot: true` wins over the template's, so the pod cannot start: that is reported.
#[test]
fn own_run_as_non_root_of_the_proxy_is_reported_where_it_needs_user_0() {
    let tproxy = json!({"sidecar.istio.io/interceptionMode": "TPROXY"});
    for native in ["true", "false"] {
        for security in [json!({"runAsNonRoot": true}), json!({"runAsNonRoot": true, "runAsUser": 1234})] {
            let mut pod = with_proxy(&with(&deployment(), &tproxy), &security);
            pod["metadata"]["annotations"]["sidecar.istio.io/nativeSidecar"] = json!(native);
            let injected = inject(&injector(), &pod).unwrap();
            assert_eq!(not_started(&injected.pod), ["istio-proxy"]);
            assert_eq!(injected.invalid.len(), 1, "{:?}", injected.invalid);
            let message = &injected.invalid[0].message;
            for part in [
                "[istio-proxy].securityContext.runAsNonRoot: true, with runAsUser 0 keeps kubelet from starting the container",
                "set by the pod",
                "interceptionMode",
            ] {
                assert!(message.contains(part), "{security}: {message}");
            }
            assert_eq!(message.matches("remove").count(), 1, "{message}");
        }
    }
    // Where it runs as another user, nothing is wrong.
    let injected = inject(&injector(), &with_proxy(&deployment(), &json!({"runAsNonRoot": true}))).unwrap();
    assert_eq!((not_started(&injected.pod), injected.invalid), (vec![], vec![]));
}

#[test]
fn own_run_as_non_root_of_the_init_container_is_reported() {
    let mut pod = deployment();
    pod["spec"]["initContainers"] =
        json!([{"name": "istio-init", "image": "auto", "securityContext": {"runAsNonRoot": true}}]);
    let injected = inject(&injector(), &pod).unwrap();
    assert_eq!(not_started(&injected.pod), ["istio-init"]);
    let message = &injected.invalid[0].message;
    assert!(
        message.contains("spec.initContainers[istio-init].securityContext.runAsNonRoot: true"),
        "{message}"
    );
}

/// A template that contradicts itself is an error of the config.
#[test]
fn template_with_user_0_and_run_as_non_root_is_reported_as_the_config_s() {
    let template = json!({"spec": {"containers": [
        {"name": "istio-proxy", "image": "p", "securityContext": {"runAsUser": 0, "runAsNonRoot": true}}]}});
    let text = json!({"policy": "enabled", "templates": {"sidecar": template.to_string()}});
    let config = Some(Source { name: "config".to_owned(), text: text.to_string() });
    let sources = Sources { config, ..Sources::default() };
    let injector = Injector::new(sources.load(&functions(|_| None)).unwrap(), Options::default());
    let problems = injector.problems();
    assert!(problems.len() == 1 && problems[0].contains("runAsNonRoot"), "{problems:?}");
}

/// What the app has wrong itself is not the injection's.
#[test]
fn app_that_kubelet_refuses_anyway_is_not_reported() {
    let mut pod = non_root(&json!({}));
    pod["spec"]["containers"][0]["securityContext"] = json!({"runAsUser": 0});
    assert_eq!(inject(&injector(), &pod).unwrap().invalid, []);
}
