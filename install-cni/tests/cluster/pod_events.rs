//! What the guard writes about a pod whose rules another program has changed.

use std::collections::BTreeSet;

use netlab::Namespace;
use netlab::process::run;
use serde_json::{Value, json};

use crate::agent::{Installation, NODE};
use crate::control_plane::Cluster;
use crate::node::{Node, until};

/// The events about a pod.
pub(crate) fn events(installation: &Installation<'_>, uid: &str) -> Vec<Value> {
    let list = installation.cluster.api.get("/api/v1/namespaces/default/events").unwrap();
    let of_pod = |event: &&Value| event["involvedObject"]["uid"] == uid;
    list["items"].as_array().unwrap().iter().filter(of_pod).cloned().collect()
}

fn condition(installation: &Installation<'_>, name: &str) -> Option<Value> {
    let pod = installation.cluster.api.get(&format!("/api/v1/namespaces/default/pods/{name}")).unwrap();
    let conditions = pod["status"]["conditions"].as_array()?.clone();
    conditions.into_iter().find(|found| found["type"] == "istio-iptables/TrafficCaptured")
}

/// A pod that is captured and guarded.
fn guarded(installation: &mut Installation<'_>, name: &str) -> (Node, Namespace, String) {
    let uid = installation.pod(name, NODE);
    let node = installation.start();
    node.is_ready();
    installation.until_watched(&node, name, &uid);
    let netns = Namespace::with_loopback();
    node.capture(name, &uid, &netns.path());
    until("the pod is guarded", || node.get("/metrics").contains("istio_cni_guarded_pods 1\n"));
    (node, netns, uid)
}

/// Resource, verb and status of the agent's requests beside those that read pods.
pub(crate) fn writes(installation: &Installation<'_>) -> BTreeSet<(String, String)> {
    let text = |entry: &Value, pointer: &str| {
        entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let entries = installation.cluster.audited(&installation.user());
    let each = entries.iter().filter(|entry| entry["stage"] == "ResponseComplete").map(|entry| {
        let of_status = text(entry, "/objectRef/subresource");
        (format!("{} {of_status}", text(entry, "/objectRef/resource")), text(entry, "/verb"))
    });
    each.filter(|(_, verb)| !["get", "list", "watch"].contains(&verb.as_str())).collect()
}

pub(crate) fn changed_rules_are_reported(cluster: &Cluster) {
    let mut installation = Installation::new(cluster);
    let (node, netns, uid) = guarded(&mut installation, "changed");
    assert_eq!(condition(&installation, "changed"), None);
    netns.run(|| run("nft", &["flush", "ruleset"]));
    until("the event", || !events(&installation, &uid).is_empty());
    let event = events(&installation, &uid).remove(0);
    assert_eq!((&event["reason"], &event["type"]), (&json!("CaptureRulesRepaired"), &json!("Warning")));
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("changed by nft (pid ") && message.ends_with("; repaired"), "{message}");
    assert_eq!((&event["count"], &event["source"]["host"]), (&json!(1), &json!(NODE)));
    until("the condition", || condition(&installation, "changed").is_some());
    let found = condition(&installation, "changed").unwrap();
    assert_eq!((&found["status"], &found["reason"]), (&json!("True"), &json!("CaptureRulesRepaired")));
    assert_eq!(found["message"], event["message"]);
    // Further changes are counted in the same event.
    for _ in 0..2 {
        netns.run(|| run("nft", &["flush", "ruleset"]));
        until("the repair", || netns.run(|| run("nft", &["list", "tables"])).contains("istio-proxy-nat"));
    }
    until("they are counted", || events(&installation, &uid)[0]["count"].as_u64() >= Some(2));
    assert_eq!(events(&installation, &uid).len(), 1);
    drop(node);
    // Every right that the manifest has for this is used, and no other.
    let used = writes(&installation);
    let right = |resource: &str, verb: &str| (resource.to_owned(), verb.to_owned());
    let granted = [right("events ", "create"), right("events ", "patch"), right("pods status", "patch")];
    assert_eq!(used, granted.into());
}

pub(crate) fn missing_permissions_are_named(cluster: &Cluster) {
    let mut installation = Installation::with(cluster, &json!({"POD_EVENTS": "false", "GUARD": "report"}));
    assert_eq!(installation.object("ClusterRole")["rules"].as_array().unwrap().len(), 1);
    let (node, netns, uid) = guarded(&mut installation, "silent");
    netns.run(|| run("nft", &["flush", "ruleset"]));
    until("drift", || node.has_logged("drift: "));
    assert!(!node.has_logged("events and conditions"));
    drop(node);
    assert!(events(&installation, &uid).is_empty() && writes(&installation).is_empty());
    drop(installation);

    let mut installation = Installation::with(cluster, &json!({"GUARD": "report"}));
    let mut role = installation.object("ClusterRole").clone();
    role["rules"].as_array_mut().unwrap().truncate(1);
    installation.apply(&role);
    let (node, netns, _) = guarded(&mut installation, "denied");
    netns.run(|| run("nft", &["flush", "ruleset"]));
    until("the missing permission", || node.has_logged("cannot create resource \\\"events\\\""));
    until("the other one", || node.has_logged("cannot patch resource \\\"pods/status\\\""));
}
