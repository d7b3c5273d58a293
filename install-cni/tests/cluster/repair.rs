//! What the agent does about pods that have started without capture, with the rights of the manifest.

use std::collections::BTreeSet;

use netlab::Namespace;
use netlab::process::run;
use serde_json::{Value, json};

use crate::agent::{Installation, NODE};
use crate::control_plane::Cluster;
use crate::node::{Node, until};
use crate::pod_events::{events, writes};

/// An agent with this setting of `REPAIR`, and no other writes.
fn installation<'c>(cluster: &'c Cluster, action: &str) -> Installation<'c> {
    Installation::with(cluster, &json!({"REPAIR": action, "POD_EVENTS": "false", "GUARD": "off"}))
}

fn pod(installation: &Installation<'_>, name: &str) -> Option<Value> {
    installation.cluster.api.get(&format!("/api/v1/namespaces/default/pods/{name}")).ok()
}

fn repairs(node: &Node, action: &str, result: &str) -> u64 {
    let name = format!("istio_cni_repair_pods_repaired_total{{type=\"{action}\",result=\"{result}\"}} ");
    let text = node.get("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
}

/// An agent that knows its pods, of which the runtime's records name two without capture: `late`, and a
/// former `again`, whose successor of the same name is to be left alone.
fn two_late_pods(installation: &mut Installation<'_>) -> (Node, [Namespace; 2], String) {
    let late = installation.pod("late", NODE);
    let former = installation.pod("again", NODE);
    installation.delete_pod("again");
    until("the former pod is gone", || pod(installation, "again").is_none());
    let again = installation.pod("again", NODE);
    assert_ne!(former, again);
    let node = installation.start();
    node.is_ready();
    installation.until_watched(&node, "late", &late);
    installation.until_watched(&node, "again", &again);
    let namespaces = [Namespace::with_loopback(), Namespace::with_loopback()];
    let [of_late, of_former] = &namespaces;
    node.record("again", &former, &of_former.path());
    node.record("late", &late, &of_late.path());
    (node, namespaces, again)
}

/// The verbs on pods that the manifest's role has beside those that read.
fn granted(installation: &Installation<'_>) -> BTreeSet<(String, String)> {
    let rules = installation.object("ClusterRole")["rules"].as_array().unwrap();
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        rule[key].as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let all = rules.iter().flat_map(|rule| {
        let verbs = texts(rule, "verbs");
        let of_resource = move |resource: String| {
            let resource = resource.replace('/', " ");
            let resource = if resource.contains(' ') { resource } else { format!("{resource} ") };
            verbs.clone().into_iter().map(move |verb| (resource.clone(), verb))
        };
        texts(rule, "resources").into_iter().flat_map(of_resource)
    });
    all.filter(|(_, verb)| !["get", "list", "watch"].contains(&verb.as_str())).collect()
}

pub(crate) fn pod_gets_the_label(cluster: &Cluster) {
    let mut installation = installation(cluster, "label");
    let (node, _namespaces, _) = two_late_pods(&mut installation);
    until("it is labelled", || repairs(&node, "label", "success") == 1);
    let labels = |name: &str| pod(&installation, name).unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels("late")["cni.istio.io/uninitialized"], "true");
    assert_eq!(
        labels("again").get("cni.istio.io/uninitialized"),
        None,
        "a pod of the same name is another one"
    );
    drop(node);
    assert_eq!(writes(&installation), granted(&installation), "each right is used, and no other");
    assert_eq!(writes(&installation), [("pods ".to_owned(), "patch".to_owned())].into());
}

pub(crate) fn only_the_broken_pod_is_deleted(cluster: &Cluster) {
    let mut installation = installation(cluster, "delete");
    let (node, _namespaces, again) = two_late_pods(&mut installation);
    until("it is deleted", || repairs(&node, "delete", "success") == 1);
    // No kubelet confirms its end.
    let is_ended =
        |pod: Option<Value>| pod.is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string());
    assert!(is_ended(pod(&installation, "late")));
    let left = pod(&installation, "again").expect("a pod of the same name is another one");
    assert_eq!(left["metadata"]["uid"], json!(again));
    assert!(left["metadata"].get("deletionTimestamp").is_none(), "{left}");
    drop(node);
    assert_eq!(writes(&installation), granted(&installation), "each right is used, and no other");
    assert_eq!(writes(&installation), [("pods ".to_owned(), "delete".to_owned())].into());
}

/// The pod is replaced between the agent's decision and its request: its watch is behind.
pub(crate) fn pod_that_was_replaced_meanwhile_is_not_changed(cluster: &Cluster) {
    for action in ["label", "delete"] {
        let mut installation = installation(cluster, action);
        let former = installation.pod("replaced", NODE);
        let mut role = installation.object("ClusterRole").clone();
        let verbs = role.pointer_mut("/rules/0/verbs").and_then(Value::as_array_mut).unwrap();
        verbs.retain(|verb| verb != "watch");
        installation.apply(&role);
        let node = installation.start();
        node.is_ready();
        until("the watch fails", || node.has_logged("cannot watch resource \\\"pods\\\""));
        installation.delete_pod("replaced");
        until("it is gone", || pod(&installation, "replaced").is_none());
        let successor = installation.pod("replaced", NODE);
        let netns = Namespace::with_loopback();
        node.record("replaced", &former, &netns.path());
        until("the API server refuses", || {
            repairs(&node, action, "fail") >= 1 || repairs(&node, action, "success") >= 1
        });
        let left = pod(&installation, "replaced").expect("the other pod is there");
        assert_eq!(left["metadata"]["uid"], json!(successor));
        assert!(left["metadata"].get("deletionTimestamp").is_none(), "{left}");
        assert_eq!(left["metadata"]["labels"].get("cni.istio.io/uninitialized"), None);
        assert_eq!(repairs(&node, action, "success"), 0, "{action}");
        until(action, || node.has_logged("cannot be repaired: "));
    }
}

pub(crate) fn permission_of_an_action_that_is_missing_is_named(cluster: &Cluster) {
    for (action, verb) in [("label", "patch"), ("delete", "delete")] {
        let mut installation = installation(cluster, action);
        let mut role = installation.object("ClusterRole").clone();
        let rules = role["rules"].as_array_mut().unwrap();
        for rule in rules.iter_mut() {
            rule["verbs"].as_array_mut().unwrap().retain(|found| found != verb);
        }
        rules.retain(|rule| rule["verbs"].as_array().is_some_and(|verbs| !verbs.is_empty()));
        installation.apply(&role);
        let (node, _namespaces, _) = two_late_pods(&mut installation);
        until("the permission is named", || node.has_logged(&format!("cannot {verb} resource \\\"pods\\\"")));
        assert!(pod(&installation, "late").unwrap()["metadata"].get("deletionTimestamp").is_none());
    }
}

/// The condition and the event of a repair are the guard's rights; the repair itself needs none.
pub(crate) fn repair_from_outside_needs_no_right_on_pods(cluster: &Cluster) {
    // The only user that is mapped in the user namespace of the control plane.
    let capture = json!({"uid": 0, "gid": 0});
    let settings = json!({"REPAIR": "repair", "GUARD": "off", "BACKEND": "nftables", "CAPTURE": capture});
    let mut installation = Installation::with(cluster, &settings);
    let uid = installation.pod("late", NODE);
    let node = installation.start();
    node.is_ready();
    installation.until_watched(&node, "late", &uid);
    let netns = Namespace::with_loopback();
    let status = r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"]}"#;
    let annotations = json!({"sidecar.istio.io/status": status, "kubernetes.io/config.source": "api"});
    node.record_with("late", &uid, &netns.path(), &json!({"io.kubernetes.cri.pod-annotations": annotations}));
    until("it is captured", || repairs(&node, "repair", "success") == 1);
    assert!(netns.run(|| run("nft", &["list", "tables"])).contains("istio-proxy-nat"));
    until("the event", || {
        events(&installation, &uid).iter().any(|event| event["reason"] == "CaptureRulesAdded")
    });
    until("the condition", || {
        writes(&installation).contains(&("pods status".to_owned(), "patch".to_owned()))
    });
    drop(node);
    let written = writes(&installation);
    assert!(written.iter().all(|(resource, _)| resource != "pods "), "{written:?}");
}
