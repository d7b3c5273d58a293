//! What a verdict depends on besides the pod: the URL, the cluster, and other requests not.

use std::sync::Arc;

use serde_json::json;
use sidecar_injector::cluster::ClusterState;
use sidecar_injector::pod::ids::Ids;
use sidecar_injector::webhook::admission::{Admission, Request};

use super::denied;
use crate::builtin::{deployment, injector};
use crate::reviews::{cluster_state, config_store, patched, review, send, sent};

#[test]
fn the_url_and_the_cluster_state_count() {
    let namespaces = [
        ("shop".to_owned(), Ok(Ids { uid: Some(1_000_629_999), gid: Some(1_000_639_999) })),
        ("odd".to_owned(), Err("annotation x: not readable".to_owned())),
    ];
    let store = config_store(injector());
    store.set_cluster_state(ClusterState {
        native_sidecars: false,
        namespaces: namespaces.into(),
        namespaces_required: true,
        ..ClusterState::default()
    });
    let admission = Admission::new(store);
    let pod = sent(&deployment());
    let body = review(&pod).to_string();
    let at = |path| Request { path, content_type: Some("application/json"), body: body.as_bytes() };
    let answer = admission.review(&at("/inject/cluster/east--slash--1/net/n")).unwrap();
    let patched = patched(&pod, &answer);
    let proxy = &patched["spec"]["containers"][1];
    assert_eq!(
        (&proxy["name"], &proxy["securityContext"]["runAsUser"]),
        (&json!("istio-proxy"), &json!(1_000_629_999))
    );
    let env = proxy["env"].as_array().unwrap();
    let value =
        |name: &str| env.iter().find(|variable| variable["name"] == name).map(|one| one["value"].clone());
    assert_eq!(value("ISTIO_META_CLUSTER_ID"), Some(json!("east/1")));
    assert_eq!(value("ISTIO_META_NETWORK"), Some(json!("n")));
    // The network is a label, too: Kubernetes would refuse each pod.
    let (code, _, message) = denied(&admission.review(&at("/inject/net/n--slash--1")).unwrap());
    assert!(code == 500 && message.contains("topology.istio.io/network: \"n/1\""), "{message}");
    assert!(message.contains("correct the network: value global.network, or the webhook's URL"), "{message}");
    let mut odd = review(&pod);
    odd["request"]["namespace"] = json!("odd");
    let (code, _, message) = denied(&send(&admission, &odd));
    assert!(code == 422 && message.contains("namespace odd: annotation x: not readable"), "{message}");
    odd["request"]["namespace"] = json!("new");
    let (code, _, message) = denied(&send(&admission, &odd));
    assert!(code == 503 && message.contains("namespace new is not known yet"), "{message}");
    odd["request"]["object"]["spec"]["hostNetwork"] = json!(true);
    assert_eq!(send(&admission, &odd).verdict.outcome(), "skipped");
}

#[test]
fn a_new_config_and_a_new_cluster_state_count_at_once() {
    let store = config_store(injector());
    let admission = Admission::new(Arc::clone(&store));
    let review = review(&sent(&deployment()));
    let before = send(&admission, &review);
    assert_eq!(send(&admission, &review), before);
    let mut canary = injector();
    canary.options.revision = "canary".to_owned();
    store.replace(canary);
    let replaced = send(&admission, &review);
    assert_ne!(replaced, before);
    store.set_cluster_state(ClusterState { native_sidecars: false, ..cluster_state() });
    assert_ne!(send(&admission, &review), replaced);
    store.set_cluster_state(cluster_state());
    assert_eq!(send(&admission, &review), replaced);
}
