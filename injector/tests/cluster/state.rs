//! Nodes and namespaces.

use std::sync::Arc;

use serde_json::{Value, json};
use sidecar_injector::cluster::{Cluster, ClusterOptions, ClusterState, Part};
use sidecar_injector::pod::ids::Ids;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::fake::Fake;
use super::replica::{Replica, connect, nothing, until};

pub(crate) fn node(name: &str, version: &str) -> Value {
    let words = [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    let mut info: serde_json::Map<_, _> = words.iter().map(|word| ((*word).to_owned(), json!(""))).collect();
    info.insert("kubeletVersion".to_owned(), json!(version));
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"nodeInfo": info}})
}

fn namespace(name: &str, range: Option<&str>) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    if let Some(range) = range {
        let annotations =
            json!({"openshift.io/sa.scc.uid-range": range, "openshift.io/sa.scc.supplemental-groups": range});
        object["metadata"]["annotations"] = annotations;
    }
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_are_native_once_all_nodes_support_them() {
    let fake = Fake::start().await;
    // More than a page of a list.
    for number in 0..501 {
        fake.put("kubelet", node(&format!("new-{number}"), "v1.34.1+k3s1"));
    }
    fake.put("kubelet", node("old", "v1.32.4-gke.100"));
    let replica = Replica::start(&fake, ClusterOptions { nodes: true, ..nothing() }).await;
    until("known", || replica.status().nodes == Part::Good).await;
    let native = || replica.store.cluster_state().native_sidecars;
    assert!(!native());
    assert!(replica.has_logged("node old runs Kubernetes \"v1.32.4-gke.100\", older than 1.33"));
    fake.put("kubelet", node("old", "v1.33.0"));
    until("native", native).await;
    fake.put("kubelet", node("older", "v1.30.0"));
    until("no longer", || !native()).await;
    fake.delete("nodes/older");
    until("native again", native).await;

    fake.fail("GET", "/nodes", 500, 2);
    fake.disconnect();
    until("logged", || matches!(replica.status().nodes, Part::Stale(_))).await;
    assert!(native(), "what was known last stays");
    until("and recovers", || replica.status().nodes == Part::Good).await;
    replica.end().await;
}

/// Once the webhook is ready, admission requests are answered with the current cluster state, not with the
/// initial one.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_state_is_published_before_its_parts_are_ready() {
    let parts =
        [ClusterOptions { nodes: true, ..nothing() }, ClusterOptions { namespaces: true, ..nothing() }];
    for wanted in parts {
        let fake = Fake::start().await;
        fake.put("kubelet", node("old", "v1.32.4"));
        fake.put("admin", namespace("ranged", Some("1000650000/10000")));
        let (cluster, status) = Cluster::new(connect(&fake).await, wanted, Arc::new(|_| {}));
        let (published, mut first) = mpsc::unbounded_channel();
        let publish = move |_| published.send(status.borrow().waiting().len()).expect("the test waits");
        let initial = ClusterState { native_sidecars: true, ..ClusterState::default() };
        let stop = CancellationToken::new();
        let task = tokio::spawn(cluster.run(initial, publish, |_| Ok(0), stop.clone()));
        assert_eq!(first.recv().await, Some(1), "still waited for");
        stop.cancel();
        task.await.expect("ends without a panic");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_cannot_be_read_do_not_block_readiness() {
    let fake = Fake::start().await;
    fake.fail("GET", "/nodes", 403, usize::MAX);
    let replica = Replica::start(&fake, ClusterOptions { nodes: true, ..nothing() }).await;
    until("ready", || replica.status().waiting().is_empty()).await;
    assert!(!replica.store.cluster_state().native_sidecars, "what runs everywhere");
    assert!(matches!(replica.status().nodes, Part::Stale(problem) if problem.contains("forbidden")));
}

#[tokio::test(flavor = "multi_thread")]
async fn user_ranges_of_namespaces_are_watched() {
    let fake = Fake::start().await;
    fake.put("openshift", namespace("shop", Some("1000620000/10000")));
    fake.put("openshift", namespace("plain", None));
    fake.fail("GET", "/namespaces", 403, 1);
    let wanted = ClusterOptions { nodes: true, namespaces: true, ..nothing() };
    let replica = Replica::start(&fake, wanted).await;
    until("waits for them", || replica.has_logged("forbidden")).await;
    until("known", || replica.status().namespaces == Part::Good).await;
    let ids = |name: &str| replica.store.cluster_state().namespaces.get(name).cloned();
    let last = |last: i64| Some(Ok(Ids { uid: Some(last), gid: Some(last) }));
    assert_eq!(ids("shop"), last(1_000_629_999));
    assert!(ids("plain").expect("known").expect_err("no ranges").contains("openshift.io/sa.scc.uid-range"));

    // Nodes and namespaces change at once: neither forgets the other.
    for number in 0..50_i64 {
        fake.put("openshift", namespace("shop", Some(&format!("1000/{}", number + 1))));
        fake.put("kubelet", node("one", if number % 2 == 0 { "v1.32.0" } else { "v1.33.0" }));
    }
    until("both are up to date", || {
        ids("shop") == last(1049) && replica.store.cluster_state().native_sidecars
    })
    .await;
    fake.delete("namespaces/shop");
    until("gone", || ids("shop").is_none()).await;
    replica.end().await;
}
