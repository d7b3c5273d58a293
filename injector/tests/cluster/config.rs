//! ConfigMaps.

use serde_json::json;
use sidecar_injector::cluster::{Part, Wanted};

use crate::fake::Fake;
use crate::replica::{NAME, NAMESPACE, Replica, config_map, injector_config, mesh_config, nothing, until};

const KEY: &str = "namespaces/istio-system/configmaps/istio-sidecar-injector";

fn wanted() -> Wanted {
    Wanted { config: Some(format!("{NAMESPACE}/{NAME}").parse().expect("a name")), ..nothing() }
}

fn changed(marker: &str) -> serde_json::Value {
    let mut map = injector_config();
    map["data"]["values"] = json!(format!("{{\"marker\": {marker:?}}}"));
    map
}

#[tokio::test(flavor = "multi_thread")]
async fn waited_for_then_followed() {
    let fake = Fake::start().await;
    let replica = Replica::start(&fake, wanted()).await;
    until("it says what is missing", || {
        replica.has_said("istio-system/istio-sidecar-injector does not exist")
    })
    .await;
    assert_eq!(replica.status().waiting().len(), 1, "not ready");
    assert_eq!(replica.live.active().generation, 1);

    fake.put("kubectl", injector_config());
    until("ready", || replica.status().config == Part::Good).await;
    assert!(replica.status().waiting().is_empty());
    assert_eq!(replica.live.active().generation, 2);

    fake.put("kubectl", mesh_config("rootNamespace: elsewhere"));
    until("the mesh config counts", || replica.live.active().generation == 3).await;
    fake.put("kubectl", changed("a"));
    until("a change counts", || replica.live.active().generation == 4).await;
    replica.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_then_mended() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    fake.put("kubectl", mesh_config(""));
    let replica = Replica::start(&fake, wanted()).await;
    until("ready", || replica.live.active().generation == 2).await;

    fake.put("kubectl", config_map(NAME, json!({"config": "templates: [", "values": "{}"})));
    let stale =
        |part: &str| matches!(replica.status().config, Part::Stale(problem) if problem.contains(part));
    until("the problem is told", || stale("ConfigMap istio-system/istio-sidecar-injector (key config)"))
        .await;
    assert!(replica.has_said("the last good state stays in force"));
    fake.put("kubectl", config_map(NAME, json!({"values": "{}"})));
    until("a missing key is told", || stale("has no key \"config\"")).await;
    assert_eq!(replica.live.active().generation, 2, "the last good one stays");
    assert!(replica.status().waiting().is_empty(), "and is served");

    fake.put("kubectl", changed("b"));
    until("mended", || replica.live.active().generation == 3).await;
    until("and said so", || replica.status().config == Part::Good && replica.has_said("is good again")).await;

    fake.delete(KEY);
    until("a deletion is told", || stale("was deleted")).await;
    assert_eq!(replica.live.active().generation, 3);
    fake.put("kubectl", changed("c"));
    until("made again", || replica.live.active().generation == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_expire_and_connections_break() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    let replica = Replica::start(&fake, wanted()).await;
    until("ready", || replica.live.active().generation == 2).await;

    // Expired while connected: the next watch is told 410.
    fake.disconnect();
    fake.change(crate::fake::Store::forget);
    fake.put("kubectl", changed("a"));
    until("listed again", || replica.live.active().generation == 3).await;

    // 410 as an answer, not as an event; and a few other answers.
    fake.fail("GET", "watch=true", 410, 2);
    fake.fail("GET", "configmaps", 500, 3);
    fake.disconnect();
    fake.put("kubectl", changed("b"));
    until("listed again", || replica.live.active().generation == 4).await;
    until("all of that was met", || {
        fake.count("GET", "watch=true", 410) == 2 && fake.count("GET", "configmaps", 500) == 3
    })
    .await;
    fake.put("kubectl", changed("c"));
    until("followed again", || replica.live.active().generation == 5).await;
    replica.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_goes_away_and_comes_back() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    let replica = Replica::start(&fake, wanted()).await;
    until("ready", || replica.live.active().generation == 2).await;
    let before = replica.live.active();

    fake.stop().await;
    until("it says so", || matches!(replica.status().config, Part::Stale(_))).await;
    assert!(replica.status().waiting().is_empty(), "it goes on with what it has");
    assert_eq!(replica.live.active().generation, before.generation);

    fake.put("kubectl", changed("a"));
    fake.restart().await;
    until("it catches up", || replica.live.active().generation == 3 && replica.status().config == Part::Good)
        .await;
    replica.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_loaded_twice() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    let replica = Replica::start(&fake, wanted()).await;
    until("ready", || replica.live.active().generation == 2).await;
    let lists = fake.count("GET", "limit=", 200);
    fake.change(crate::fake::Store::forget);
    fake.disconnect();
    until("both were listed again", || fake.count("GET", "limit=", 200) >= lists + 2).await;
    let mut labelled = injector_config();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    fake.put("kubectl", labelled);
    fake.put("kubectl", changed("a"));
    until("the change was loaded", || replica.live.active().generation > 2).await;
    assert_eq!(replica.live.active().generation, 3, "what did not change was not");
}

#[tokio::test(flavor = "multi_thread")]
async fn forbidden() {
    let fake = Fake::start().await;
    fake.fail("GET", "configmaps", 403, usize::MAX);
    let replica = Replica::start(&fake, wanted()).await;
    until("it says so", || replica.has_said("forbidden: made to fail (it takes a role that allows this)"))
        .await;
    assert_eq!(replica.status().waiting().len(), 1);
    fake.heal();
    fake.put("kubectl", injector_config());
    until("ready once it is allowed", || replica.status().waiting().is_empty()).await;
    replica.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_that_end_at_once_are_no_endless_loop() {
    let fake = Fake::start().await;
    fake.put("kubectl", injector_config());
    fake.cut_watches(true);
    let replica = Replica::start(&fake, wanted()).await;
    until("it says so", || replica.has_said("the API server ends the watch at once")).await;
    until("the first one is loaded", || replica.live.active().generation == 2).await;
    fake.put("kubectl", changed("a"));
    until("lists still tell what changed", || replica.live.active().generation == 3).await;
    // Every watch was followed by a pause and a list.
    let (lists, watches) = (fake.count("GET", "limit=", 200), fake.count("GET", "watch=true", 200));
    assert!(watches <= lists, "{watches} watches, {lists} lists");
    fake.cut_watches(false);
    until("it recovers", || replica.status().config == Part::Good).await;
    replica.end().await;
}
