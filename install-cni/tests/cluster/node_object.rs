//! What the agent reads of its Node object and changes there, if it is asked for that.

use istio_cni::install::pods::TAINT;
use serde_json::{Value, json};

use crate::agent::Installation;
use crate::control_plane::Cluster;
use crate::node::until;

const OTHER: &str = "example.com/reserved";
const OLD: &str = "containerd://1.7.28";

fn taints() -> Value {
    json!([
        {"key": OTHER, "value": "x", "effect": "NoSchedule"},
        {"key": TAINT, "effect": "NoSchedule"},
        {"key": TAINT, "value": "true", "effect": "NoExecute"}
    ])
}

/// How often the agent's account has used a verb on nodes.
fn requests(installation: &Installation<'_>, verb: &str) -> usize {
    let entries = installation.cluster.audited(&installation.user());
    entries.iter().filter(|entry| entry["objectRef"]["resource"] == "nodes" && entry["verb"] == verb).count()
}

pub(crate) fn taint_is_removed_only_if_asked_for(cluster: &Cluster) {
    let mut installation = Installation::new(cluster);
    installation.node(&taints(), OLD);
    let node = installation.start();
    node.is_ready();
    drop(node);
    assert!(installation.taints().contains(&TAINT.to_owned()));
    assert_eq!((requests(&installation, "get"), requests(&installation, "patch")), (0, 0));
    drop(installation);

    let mut installation = Installation::with(cluster, &json!({"REMOVE_TAINT": "true"}));
    installation.node(&taints(), OLD);
    let node = installation.start();
    until("the taint is removed", || !installation.taints().contains(&TAINT.to_owned()));
    assert!(installation.taints().contains(&OTHER.to_owned()), "{:?}", installation.taints());
    until("that is logged", || node.has_logged("taint of the node removed"));
    node.is_ready();
    assert_eq!(requests(&installation, "patch"), 1);
}

pub(crate) fn container_runtime_decides(cluster: &Cluster) {
    for (runtime, drop_in) in [("containerd://2.1.4-k3s1", true), (OLD, false), ("docker://28.0.0", false)] {
        let mut installation = Installation::with(cluster, &json!({"DROP_IN": "auto"}));
        installation.node(&json!([]), runtime);
        let node = installation.start();
        node.is_ready();
        let has_entry = |name: &str| node.configuration(name).is_some_and(|text| text.contains("istio-cni"));
        assert_eq!(has_entry("a/50-istio-cni.conf"), drop_in, "{runtime}");
        assert_eq!(has_entry("10-a.conflist"), !drop_in, "{runtime}");
        until(runtime, || node.has_logged(runtime));
        assert_eq!(requests(&installation, "get"), 1);
    }
}

pub(crate) fn missing_rights_on_nodes_are_named(cluster: &Cluster) {
    let mut installation = Installation::with(cluster, &json!({"DROP_IN": "auto", "REMOVE_TAINT": "true"}));
    installation.node(&taints(), "containerd://2.1.4");
    let mut role = installation.object("ClusterRole").clone();
    role["rules"].as_array_mut().unwrap().truncate(1);
    installation.apply(&role);
    let node = installation.start();
    node.is_ready();
    for part in
        ["the list is edited, as the container runtime is not known: ", "taint of the node not removed: "]
    {
        until(part, || node.has_logged(part));
    }
    until("the permission is named", || node.has_logged("cannot get resource \\\"nodes\\\""));
    assert!(node.configuration("10-a.conflist").unwrap().contains("istio-cni"));
    // What can be read, and not changed.
    role["rules"]
        .as_array_mut()
        .unwrap()
        .push(json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}));
    installation.apply(&role);
    drop(node);
    let node = installation.start();
    let denied = "cannot patch resource \\\"nodes\\\"";
    until(denied, || node.has_logged(denied));
    node.is_ready();
}
