//! ConfigMaps.

use serde_json::json;
use sidecar_injector::cluster::{ClusterOptions, Part};

use super::fake::Fake;
use super::replica::{NAME, NAMESPACE, Replica, config_map, injector_config, mesh_config, nothing, until};
use super::state::node;

const KEY: &str = "namespaces/istio-system/configmaps/istio-sidecar-injector";

fn wanted() -> ClusterOptions {
    ClusterOptions { config: Some(format!("{NAMESPACE}/{NAME}").parse().expect("a name")), ..nothing() }
}

fn changed(marker: &str) -> serde_json::Value {
    let mut map = injector_config();
    map["data"]["values"] = json!(format!("{{\"marker\": {marker:?}}}"));
    map
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_is_waited_for_and_watched() {
    let fake = Fake::start().await;
    let replica = Replica::start(&fake, wanted()).await;
    until("the missing one is logged", || {
        replica.has_logged("istio-system/istio-sidecar-injector does not exist")
    })
    .await;
    assert_eq!(replica.status().waiting().len(), 1, "not ready");
    assert_eq!(replica.store.active().generation, 1);

    fake.put("kubectl", injector_config());
    until("ready", || replica.status().config == Part::Good).await;
    assert!(replica.status().waiting().is_empty());
    assert_eq!(replica.store.active().generation, 2);

    fake.put("kubectl", mesh_config("rootNamespace: elsewhere"));
    until("the mesh config counts", || replica.store.active().generation == 3).await;
    fake.put("kubectl", changed("a"));
    until("a change counts", || replica.store.active().generation == 4).await;
    replica.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_config_map_is_rejected_until_it_is_fixed() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    fake.put("kubectl", mesh_config(""));
    let replica = Replica::start(&fake, wanted()).await;
    until("ready", || replica.store.active().generation == 2).await;

    fake.put("kubectl", config_map(NAME, json!({"config": "templates: [", "values": "{}"})));
    let stale =
        |part: &str| matches!(replica.status().config, Part::Stale(problem) if problem.contains(part));
    until("the problem is reported", || stale("ConfigMap istio-system/istio-sidecar-injector (key config)"))
        .await;
    assert!(replica.has_logged("the last valid state stays active"));
    fake.put("kubectl", config_map(NAME, json!({"values": "{}"})));
    until("a missing key is reported", || stale("has no key \"config\"")).await;
    // The built-in values have an image that no node can pull.
    fake.put("kubectl", config_map(NAME, json!({"config": injector_config()["data"]["config"]})));
    until("missing values are reported", || stale("has no key \"values\"")).await;
    assert_eq!(replica.store.active().generation, 2, "the last valid one stays active");
    assert!(replica.status().waiting().is_empty(), "and is served");

    fake.put("kubectl", changed("b"));
    until("mended", || replica.store.active().generation == 3).await;
    until("logged", || replica.status().config == Part::Good && replica.has_logged("available again")).await;

    fake.delete(KEY);
    until("a deletion is reported", || stale("was deleted")).await;
    assert_eq!(replica.store.active().generation, 3);
    fake.put("kubectl", changed("c"));
    until("made again", || replica.store.active().generation == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_versions_and_broken_connections_are_recovered() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    let replica = Replica::start(&fake, wanted()).await;
    until("ready", || replica.store.active().generation == 2).await;

    // Expired while connected: the next watch gets 410.
    fake.disconnect();
    fake.change(super::fake::Store::forget);
    fake.put("kubectl", changed("a"));
    until("listed again", || replica.store.active().generation == 3).await;

    // 410 as an answer, not as an event; and another answer. More of them would take minutes, by the backoff.
    fake.fail("GET", "watch=true", 410, 1);
    fake.fail("GET", "configmaps", 500, 1);
    fake.disconnect();
    fake.put("kubectl", changed("b"));
    until("listed again", || replica.store.active().generation == 4).await;
    until("all of that was met", || {
        fake.count("GET", "watch=true", 410) == 1 && fake.count("GET", "configmaps", 500) == 1
    })
    .await;
    fake.put("kubectl", changed("c"));
    until("followed again", || replica.store.active().generation == 5).await;
    replica.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_without_a_response_are_started_again() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    // Both watches wait for a third one.
    fake.gate("GET", "watch=true", 3);
    let replica = Replica::start(&fake, wanted()).await;
    until("listed", || replica.store.active().generation == 2).await;
    fake.put("kubectl", changed("a"));
    until("listed again", || replica.store.active().generation == 3).await;
    assert!(replica.has_logged("no response within 30 s"));
    fake.put("kubectl", changed("b"));
    until("followed again", || replica.store.active().generation == 4).await;
    replica.end().await;
}

/// Without a change a watch is as silent as a list that has stalled.
#[tokio::test(flavor = "multi_thread")]
async fn stalled_lists_are_read_again_and_silent_watches_go_on() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    fake.put("kubelet", node("one", "v1.34.0"));
    let silent = Replica::start(&fake, ClusterOptions { nodes: true, ..nothing() }).await;
    let watches = || {
        let all = fake.received();
        all.iter().filter(|one| one.path.contains("/nodes?") && one.path.contains("watch=true")).count()
    };
    until("watched", || watches() == 1).await;
    // Both lists: of the config and of the values.
    fake.stall("GET", "/configmaps?", 2);
    let replica = Replica::start(&fake, wanted()).await;
    until("read again", || replica.store.active().generation == 2).await;
    assert!(replica.has_logged("its response stops: no data for 30 s"));
    fake.put("kubelet", node("one", "v1.32.0"));
    until("not native", || !silent.store.cluster_state().native_sidecars).await;
    assert_eq!(watches(), 1);
    replica.end().await;
    silent.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_outage_is_survived() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    let replica = Replica::start(&fake, wanted()).await;
    until("ready", || replica.store.active().generation == 2).await;
    let before = replica.store.active();

    fake.stop().await;
    until("logged", || matches!(replica.status().config, Part::Stale(_))).await;
    assert!(replica.status().waiting().is_empty(), "the last valid config stays active");
    assert_eq!(replica.store.active().generation, before.generation);

    fake.put("kubectl", changed("a"));
    fake.restart().await;
    until("it catches up", || {
        replica.store.active().generation == 3 && replica.status().config == Part::Good
    })
    .await;
    replica.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchanged_config_is_not_loaded_again() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    let replica = Replica::start(&fake, wanted()).await;
    until("ready", || replica.store.active().generation == 2).await;
    let lists = fake.count("GET", "limit=", 200);
    fake.change(super::fake::Store::forget);
    fake.disconnect();
    until("both were listed again", || fake.count("GET", "limit=", 200) >= lists + 2).await;
    let mut labelled = injector_config();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    fake.put("kubectl", labelled);
    fake.put("kubectl", changed("a"));
    until("the change was loaded", || replica.store.active().generation > 2).await;
    assert_eq!(replica.store.active().generation, 3, "what did not change was not");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_config_map_is_logged_and_retried() {
    let fake = Fake::start().await;
    fake.fail("GET", "configmaps", 403, usize::MAX);
    let replica = Replica::start(&fake, wanted()).await;
    until("logged", || replica.has_logged("forbidden: made to fail (a role must allow it)")).await;
    assert_eq!(replica.status().waiting().len(), 1);
    fake.heal();
    fake.put("kubectl", injector_config());
    until("ready once it is allowed", || replica.status().waiting().is_empty()).await;
    replica.end().await;
}
