//! Templates that pods choose, beside the built-in ones: `uninject` needs none of them.

use serde_json::{Value, json};
use sidecar_injector::config::{BUILTIN_CONFIG, Source, Sources};
use sidecar_injector::inject::{Injector, Options, functions};

use super::{injected, uninjected};
use crate::builtin::{deployment, injector, native, with};

/// Names and texts.
const CHOSEN: [(&str, &str); 8] = [
    (
        "named",
        r#"{"spec": {"containers": [{"name": "web", "livenessProbe": {"httpGet": {"port": "http"}},
            "readinessProbe": {"tcpSocket": {"port": "http"}}, "lifecycle": {"preStop": {"httpGet": {"port": "http"}}}}]}}"#,
    ),
    ("deletes", r#"{"spec": {"containers": [{"name": "extra", "$patch": "delete"}]}}"#),
    ("deletes-first", r#"{"spec": {"initContainers": [{"name": "setup", "$patch": "delete"}]}}"#),
    (
        "replaces",
        r#"{"spec": {"containers": [{"name": "web", "$patch": "replace"}, {"name": "other", "image": "o"}]}}"#,
    ),
    ("probes", r#"{"spec": {"containers": [{"name": "web", "livenessProbe": {"tcpSocket": {"port": 5}}}]}}"#),
    (
        "adds",
        r#"{"metadata": {"labels": {"extra": "1"}}, "spec": {
            "containers": [{"name": "helper", "image": "h:1"}], "volumes": [{"name": "helper", "emptyDir": {}}],
            "initContainers": [{"name": "first", "image": "f:1"}]}}"#,
    ),
    (
        "overrides",
        r#"{"metadata": {
            "labels": {"security.istio.io/tlsMode": "disabled", "service.istio.io/canonical-name": "other", "istio.io/rev": "own"},
            "annotations": {"kubectl.kubernetes.io/default-container": "helper", "prometheus.io/port": "9", "istio.io/rev": "own"}},
          "spec": {
            "containers": [{"name": "helper", "image": "h:1"}, {"name": "web", "image": "web:9", "env": [{"name": "A", "value": "b"}]}],
            "initContainers": [{"name": "istio-proxy", "image": "own:1", "resources": {"limits": {"cpu": "3"}}}],
            "volumes": [{"name": "istio-data", "configMap": {"name": "own"}}]}}"#,
    ),
    (
        "whole",
        r#"{"metadata": {"labels": {"security.istio.io/tlsMode": "istio", "service.istio.io/canonical-name": "web"},
                         "annotations": {"istio.io/rev": "own"}},
            "spec": {"containers": [{"name": "istio-proxy", "image": "p:1"}, {"name": "helper", "image": "h:1"}]}}"#,
    ),
];

fn with_chosen() -> Injector {
    use std::fmt::Write as _;
    let mut text = BUILTIN_CONFIG.to_owned();
    for (name, template) in CHOSEN {
        write!(text, "\n  {name}: |\n    {}\n", template.replace('\n', " ")).unwrap();
    }
    let config = Some(Source { name: "config".to_owned(), text });
    Injector::new(
        Sources { config, ..Sources::default() }.load(&functions(|_| None)).unwrap(),
        Options::default(),
    )
}

#[test]
fn what_chosen_templates_brought_in_is_taken_out_without_them() {
    let with_chosen = with_chosen();
    for names in ["sidecar,adds", "sidecar, overrides", "whole", "sidecar,adds,overrides", "sidecar,named"] {
        for more in [json!({}), json!({"own": "1", "prometheus.io/scrape": "true"})] {
            let mut annotations = json!({"inject.istio.io/templates": names});
            annotations.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let mut pod = with(&deployment(), &annotations);
            pod["spec"]["containers"][0]["resources"] = json!({});
            let injected = injected(&with_chosen, &pod, &native());
            let again = super::injected(&with_chosen, &injected, &native());
            assert_eq!(again.to_string(), injected.to_string(), "{names}");
            for injector in [&injector(), &with_chosen] {
                let uninjected = uninjected(injector, &injected, &native());
                assert_eq!(uninjected.pod, pod, "{names}");
                let left: Vec<&String> = uninjected
                    .left
                    .iter()
                    .filter(|left| left.contains("stays") || left.contains("removed"))
                    .collect();
                assert_eq!(left, [""; 0], "{names}");
            }
        }
    }
}

/// What a template deletes is noted, and comes back: by `uninject`, and for a second injection, which is the
/// same then.
#[test]
fn containers_that_chosen_templates_delete_come_back() {
    let with_chosen = with_chosen();
    let mut pod = with(&deployment(), &json!({}));
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    containers.insert(0, json!({"name": "extra", "image": "e", "resources": {"limits": {"cpu": "1000m"}}}));
    containers.push(json!({"name": "last", "image": "l", "livenessProbe": {"httpGet": {"port": 80}}}));
    pod["spec"]["initContainers"] = json!([{"name": "setup", "image": "s"}]);
    for names in
        ["sidecar,deletes", "deletes-first,sidecar", "sidecar,deletes,deletes-first", "sidecar,replaces"]
    {
        pod["metadata"]["annotations"] = json!({"inject.istio.io/templates": names});
        let once = injected(&with_chosen, &pod, &native());
        let twice = injected(&with_chosen, &once, &native());
        assert_eq!(twice.to_string(), once.to_string(), "{names}");
        for injector in [&injector(), &with_chosen] {
            let uninjected = uninjected(injector, &once, &native());
            assert_eq!(uninjected.pod, pod, "{names}");
            assert!(!uninjected.left.iter().any(|left| left.contains("kept")), "{:?}", uninjected.left);
        }
    }
}

/// No template defines the proxy: it is the pod's own.
#[test]
fn a_proxy_of_the_pod_s_own_keeps_nothing_of_an_injection() {
    let mut pod = with(&deployment(), &json!({"inject.istio.io/templates": "probes"}));
    let proxy = json!({"name": "istio-proxy", "image": "my/p:1", "env": [{"name": "A", "value": "b"}]});
    pod["spec"]["containers"].as_array_mut().unwrap().push(proxy);
    let injected = injected(&with_chosen(), &pod, &native());
    for injector in [&injector(), &with_chosen()] {
        assert_eq!(uninjected(injector, &injected, &native()).pod, pod);
    }
}

/// Any client can write a status.
#[test]
fn an_app_container_that_a_status_lists_stays() {
    let mut pod = with(&deployment(), &json!({"inject.istio.io/templates": "other"}));
    pod["metadata"]["annotations"]["sidecar.istio.io/status"] =
        json!(r#"{"containers":["web","istio-proxy"]}"#);
    let uninjected = uninjected(&injector(), &pod, &native());
    let names: Vec<&Value> =
        uninjected.pod["spec"]["containers"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["web"]);
    assert!(uninjected.left.iter().any(|left| left.contains("web stays")), "{:?}", uninjected.left);
}

/// The agent's record of a probe leaves out what is empty, and what it does not know.
#[test]
fn probes_come_back_as_they_were_written() {
    for probe in [
        json!({"httpGet": {"port": 80, "scheme": ""}}),
        json!({"httpGet": {"port": "http", "path": "", "httpHeaders": []}, "periodSeconds": 3}),
        json!({"httpGet": {"port": 80, "httpHeaders": null}}),
        json!({"httpGet": {"port": 80, "newer": 1}}),
        json!({"tcpSocket": {"port": 80, "host": ""}}),
        json!({"grpc": {"port": 80, "service": ""}}),
        json!({"httpGet": {"port": 80, "scheme": "HTTPS", "path": "/a"}}),
    ] {
        let mut pod = deployment();
        pod["spec"]["containers"][0]["livenessProbe"] = probe.clone();
        if probe.get("grpc").is_none() {
            pod["spec"]["containers"][0]["lifecycle"] =
                json!({"preStop": {"httpGet": probe["httpGet"], "tcpSocket": probe["tcpSocket"]}});
        }
        let once = injected(&injector(), &pod, &native());
        assert_eq!(injected(&injector(), &once, &native()).to_string(), once.to_string(), "{probe}");
        let uninjected = uninjected(&injector(), &once, &native());
        assert_eq!(uninjected.pod["spec"]["containers"][0]["livenessProbe"], probe);
    }
}
