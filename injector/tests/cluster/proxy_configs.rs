//! ProxyConfig resources.

use serde_json::{Value, json};
use sidecar_injector::cluster::{ClusterOptions, Part};
use sidecar_injector::config::{ProxyConfig, ProxyConfigs};

use super::fake::Fake;
use super::replica::{Replica, nothing, until};

fn resource(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "networking.istio.io/v1beta1", "kind": "ProxyConfig",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": "2026-01-02T03:04:05Z"}, "spec": spec})
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_configs_of_all_namespaces_are_watched() {
    let fake = Fake::start().await;
    let (shop, other) = (json!({"concurrency": 2}), json!({"environmentVariables": {"A": "1"}}));
    fake.put("kubectl", resource("shop", "same", &shop));
    fake.put("kubectl", resource("other", "same", &other));
    let replica = Replica::start(&fake, ClusterOptions { proxy_configs: true, ..nothing() }).await;
    until("known", || replica.status().proxy_configs == Part::Good).await;
    let expected = |all: &[(&str, &Value)]| -> ProxyConfigs {
        let read = |spec: &Value| ProxyConfig::of_object(&resource("", "same", spec)).expect("valid");
        all.iter().map(|(namespace, spec)| ((*namespace).to_owned(), read(spec))).collect()
    };
    let known = || (*replica.store.cluster_state().proxy_configs).clone();
    assert_eq!(known(), expected(&[("shop", &shop), ("other", &other)]));
    let more = json!({"image": {"imageType": "distroless"}});
    fake.put("kubectl", resource("shop", "same", &more));
    until("changed", || known() == expected(&[("shop", &more), ("other", &other)])).await;
    fake.delete("namespaces/other/proxyconfigs/same");
    until("deleted", || known() == expected(&[("shop", &more)])).await;
    fake.put("kubectl", resource("shop", "same", &json!({"concurrency": -1})));
    until("an invalid one does not count", || known() == ProxyConfigs::default()).await;
    assert!(replica.has_logged("shop/same: spec.concurrency: -1 is not accepted, expected 0 or more"));
    replica.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_the_kind_has_none() {
    let fake = Fake::start().await;
    fake.fail("GET", "/proxyconfigs", 404, 1);
    fake.put("kubectl", resource("shop", "first", &json!({"concurrency": 2})));
    let replica = Replica::start(&fake, ClusterOptions { proxy_configs: true, ..nothing() }).await;
    until("ready", || replica.status().proxy_configs == Part::Good).await;
    let known = || *replica.store.cluster_state().proxy_configs != ProxyConfigs::default();
    until("installed later", known).await;
    replica.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_configs_that_may_not_be_read_do_not_block_readiness() {
    let fake = Fake::start().await;
    fake.fail("GET", "/proxyconfigs", 403, usize::MAX);
    let replica = Replica::start(&fake, ClusterOptions { proxy_configs: true, ..nothing() }).await;
    until("ready", || replica.status().waiting().is_empty()).await;
    let problem = replica.status().proxy_configs;
    assert!(matches!(&problem, Part::Stale(problem) if problem.contains("forbidden")), "{problem:?}");
}
