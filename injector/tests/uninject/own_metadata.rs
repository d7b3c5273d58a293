//! Labels and annotations of the user's that are as an injection writes them, or that it overwrites.

use serde_json::{Map, Value, json};
use sidecar_injector::inject::InjectionContext;

use super::losses::sorted;
use super::{INJECTORS, injected, uninjected};

fn pod(labels: &Value, annotations: &Value) -> Value {
    let mut pod = json!({"metadata": {"labels": {"app": "web"}, "annotations": annotations}, "spec": {
        "containers": [{"name": "web", "image": "i", "ports": [{"containerPort": 8080}]}]}});
    pod["metadata"]["labels"].as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    if annotations == &json!({}) {
        pod["metadata"].as_object_mut().unwrap().shift_remove("annotations");
    }
    pod
}

/// Each is removed from the injected pod again, and the pod is the one that was injected.
fn assert_restored(pod: &Value) {
    for native_sidecars in [true, false] {
        let context = InjectionContext { native_sidecars, ..InjectionContext::default() };
        let once = injected(&INJECTORS[0], pod, &context);
        let twice = injected(&INJECTORS[0], &once, &context);
        assert_eq!(twice.to_string(), once.to_string());
        for again in [once, sorted(&twice)] {
            let out = uninjected(&INJECTORS[0], &again, &context);
            assert_eq!(out.pod, *pod, "{:?}", out.left);
            let wrong = ["stays", "add them again", "records their values"];
            let is_wrong = |left: &String| wrong.iter().any(|text| left.contains(text));
            // Without a note nothing says that there was none to write.
            let is_noted = again["metadata"]["annotations"].get("istio-iptables/uninject").is_some();
            assert!(!is_noted || !out.left.iter().any(is_wrong), "{:?}", out.left);
        }
    }
}

const LABELS: [(&str, &[&str]); 3] = [
    ("security.istio.io/tlsMode", &["istio", "disabled", ""]),
    ("service.istio.io/canonical-name", &["web", "own", ""]),
    ("service.istio.io/canonical-revision", &["latest", "v2"]),
];

#[test]
fn labels_that_are_as_an_injection_writes_them_come_back() {
    for (key, values) in LABELS {
        for value in values {
            assert_restored(&pod(&json!({key: value}), &json!({})));
        }
    }
    let all: Map<String, Value> =
        LABELS.iter().map(|(key, values)| ((*key).to_owned(), json!(values[0]))).collect();
    assert_restored(&pod(&Value::Object(all), &json!({})));
}

#[test]
fn annotations_that_are_as_an_injection_writes_them_come_back() {
    for annotations in [
        json!({"istio.io/rev": "default"}),
        json!({"istio.io/rev": "canary"}),
        json!({"prometheus.io/scrape": "true", "prometheus.io/port": "15020", "prometheus.io/path": "/stats/prometheus"}),
        json!({"prometheus.io/port": "15020"}),
        json!({"prometheus.io/path": ""}),
        json!({"prometheus.io/scrape": "false"}),
        json!({"prometheus_io_port": "8080", "prometheus.io/path": ""}),
        json!({"prometheus/io/path": "/metrics", "prometheus.io/scrape": "true"}),
        json!({"prometheus_io_port": "8080", "prometheus.io/port": "9090"}),
        json!({"prometheus.istio.io/scrape-targets": "8080, 9100:/x", "prometheus.io/port": "8080"}),
        json!({"prometheus.istio.io/scrape-targets": "8080:/metrics"}),
        json!({"prometheus.istio.io/merge-metrics": "false", "prometheus.io/scrape": "true", "prometheus.io/port": "15020",
               "prometheus.io/path": "/stats/prometheus"}),
    ] {
        assert_restored(&pod(&json!({}), &annotations));
    }
}

/// Of most pods nothing of this is noted.
#[test]
fn what_the_injected_pod_shows_is_not_noted() {
    for (labels, annotations) in [
        (json!({}), json!({})),
        (json!({"version": "v1"}), json!({"prometheus.io/scrape": "true", "prometheus.io/port": "8080"})),
        (json!({}), json!({"prometheus.io/path": "/metrics", "prometheus.istio.io/merge-metrics": "true"})),
    ] {
        let once = injected(&INJECTORS[0], &pod(&labels, &annotations), &InjectionContext::default());
        assert_eq!(once["metadata"]["annotations"].get("istio-iptables/uninject"), None);
    }
}

/// What was changed since the injection stays.
#[test]
fn own_metadata_that_has_changed_since_stays() {
    let context = InjectionContext::default();
    let own = pod(&json!({"security.istio.io/tlsMode": "istio"}), &json!({"prometheus_io_port": "8080"}));
    let mut once = injected(&INJECTORS[0], &own, &context);
    once["metadata"]["labels"]["security.istio.io/tlsMode"] = json!("disabled");
    once["metadata"]["annotations"]["prometheus.io/port"] = json!("9090");
    let out = uninjected(&INJECTORS[0], &once, &context).pod;
    assert_eq!(out["metadata"]["labels"]["security.istio.io/tlsMode"], "disabled");
    assert_eq!(out["metadata"]["annotations"]["prometheus.io/port"], "9090");
}
