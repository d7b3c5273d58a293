//! ProxyConfig resources, in Istio's order: root namespace, namespace, annotation, workload.

use std::sync::Arc;

use serde_json::{Value, json};
use sidecar_injector::cli::{self, Environment};
use sidecar_injector::cluster::ClusterState;
use sidecar_injector::config::{ProxyConfig, ProxyConfigs};
use sidecar_injector::inject::{InjectionContext, Request};
use sidecar_injector::webhook::admission::Admission;

use super::proxy_config::proxy_config;
use crate::builtin::{deployment, injector, with, workload};
use crate::reviews::{config_store, patched, review, send, sent};

fn resource(age: u8, spec: &Value) -> ProxyConfig {
    let metadata = json!({"name": "any", "creationTimestamp": format!("2026-01-02T03:04:{age:02}Z")});
    ProxyConfig::of_object(&json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn configs(all: &[(&str, u8, Value)]) -> Arc<ProxyConfigs> {
    Arc::new(
        all.iter().map(|(namespace, age, spec)| ((*namespace).to_owned(), resource(*age, spec))).collect(),
    )
}

fn injected(pod: &Value, all: &[(&str, u8, Value)]) -> Value {
    let context = InjectionContext {
        native_sidecars: true,
        proxy_configs: configs(all),
        ..InjectionContext::default()
    };
    let (injector, workload) = (injector(), workload());
    let inject =
        |pod: &Value| injector.inject(Request { pod, workload: &workload, context: &context }).unwrap().pod;
    let once = inject(pod);
    assert_eq!(inject(&once).to_string(), once.to_string());
    once
}

fn metadata(all: &Value) -> Value {
    json!({"environmentVariables": all})
}

#[test]
fn the_narrower_resource_wins_and_variables_are_merged() {
    let selected = json!({"selector": {"matchLabels": {"app": "web"}}, "environmentVariables": {"A": "4"}});
    let all = [
        ("istio-system", 1, metadata(&json!({"A": "1", "B": "1", "C": "1", "D": "1"}))),
        ("shop", 1, metadata(&json!({"A": "2", "B": "2", "C": "2"}))),
        ("shop", 1, selected),
        ("elsewhere", 1, metadata(&json!({"A": "9", "E": "9"}))),
    ];
    let pod = with(&deployment(), &json!({"proxy.istio.io/config": "proxyMetadata: {A: '3', B: '3'}"}));
    let expected = json!({"proxyMetadata": {"A": "4", "B": "3", "C": "2", "D": "1"}});
    assert_eq!(proxy_config(&injected(&pod, &all)), expected);
}

#[test]
fn the_oldest_resource_that_matches_counts() {
    let all = [
        ("shop", 2, json!({"concurrency": 2})),
        ("shop", 1, json!({"concurrency": 1})),
        ("shop", 0, json!({"selector": {"matchLabels": {"app": "other"}}, "concurrency": 7})),
        ("shop", 0, json!({"selector": {"matchLabels": {}}, "concurrency": 8})),
        ("istio-system", 0, json!({"selector": {"matchLabels": {"app": "web"}}, "concurrency": 9})),
    ];
    assert_eq!(proxy_config(&injected(&deployment(), &all)), json!({"concurrency": 1}));
}

#[test]
fn the_image_type_of_a_resource_counts() {
    let pod = injected(&deployment(), &[("shop", 1, json!({"image": {"imageType": "distroless"}}))]);
    let init = pod["spec"]["initContainers"].as_array().unwrap();
    let proxy = init.iter().find(|item| item["name"] == "istio-proxy").unwrap();
    assert!(proxy["image"].as_str().unwrap().ends_with("-distroless"), "{}", proxy["image"]);
}

#[test]
fn what_a_resource_sets_is_reported_in_errors() {
    let context = InjectionContext {
        proxy_configs: configs(&[("shop", 1, metadata(&json!({"ISTIO_META_DNS_CAPTURE": "bogus"})))]),
        ..InjectionContext::default()
    };
    let request = Request { pod: &deployment(), workload: &workload(), context: &context };
    let error = injector().inject(request).unwrap_err().to_string();
    assert!(error.contains("a ProxyConfig resource: environmentVariables.ISTIO_META_DNS_CAPTURE"), "{error}");
}

#[test]
fn invalid_resources_are_refused() {
    for (spec, named) in [
        (json!({"concurrency": -1}), "spec.concurrency: -1"),
        (json!({"environmentVariables": {"A": 1}}), "spec.environmentVariables.A: 1"),
        (json!({"image": {"imageType": 1}}), "spec.image.imageType: 1"),
        (json!({"selector": {"matchLabels": []}}), "spec.selector.matchLabels: []"),
    ] {
        let error = ProxyConfig::of_object(&json!({"spec": spec})).unwrap_err().to_string();
        assert!(error.starts_with(named), "{error}");
    }
}

#[test]
fn the_webhook_reads_those_of_the_cluster() {
    let store = config_store(injector());
    let proxy_configs = configs(&[("shop", 1, json!({"concurrency": 3}))]);
    store.set_cluster_state(ClusterState { native_sidecars: true, proxy_configs, ..ClusterState::default() });
    let pod = sent(&deployment());
    let answer = send(&Admission::new(store), &review(&pod));
    assert_eq!(proxy_config(&patched(&pod, &answer)), json!({"concurrency": 3}));
}

#[test]
fn resources_among_the_files_apply_to_their_pods() {
    let resource = "apiVersion: networking.istio.io/v1beta1\nkind: ProxyConfig\nmetadata: {name: p, namespace: shop}\nspec: ";
    let pod = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\nspec: {containers: [{name: a, image: a}]}\n";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("all.yaml");
    let run = |spec: &str| {
        std::fs::write(&file, format!("{resource}{spec}\n{pod}")).unwrap();
        let arguments = ["sidecar-injector", "inject", "-f", file.to_str().unwrap()];
        cli::run(arguments.map(Into::into), &Environment::default())
    };
    let text = run("{concurrency: 5}").unwrap().text;
    assert!(text.contains("\"concurrency\":5"), "{text}");
    let failure = run("{concurrency: many}").unwrap_err().to_string();
    assert!(failure.contains("all.yaml: ProxyConfig \"shop/p\": spec.concurrency: \"many\""), "{failure}");
}
