//! What the service account may do, and what the agent says where it may not.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::agent::{Installation, NODE};
use crate::control_plane::Cluster;

/// Resource, verb and status of the agent's requests.
fn uses(installation: &Installation<'_>) -> BTreeSet<(String, String, u64)> {
    let text = |entry: &Value, pointer: &str| {
        entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let entries = installation.cluster.audited(&installation.user());
    let each = entries.iter().map(|entry| {
        let code = entry.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default();
        (text(entry, "/objectRef/resource"), text(entry, "/verb"), code)
    });
    each.collect()
}

pub(crate) fn every_right_is_used_and_no_other(cluster: &Cluster) {
    let mut installation = Installation::new(cluster);
    let here = installation.pod("here", NODE);
    let elsewhere = installation.pod("elsewhere", "node-2");
    let node = installation.start();
    node.is_ready();
    installation.until_watched(&node, "here", &here);
    let late = installation.pod("late", NODE);
    installation.until_watched(&node, "late", &late);
    // Pods of other nodes are not watched.
    let before = installation.reads();
    node.captured("elsewhere", &elsewhere);
    assert_eq!(installation.reads(), before + 1);
    assert!(node.refused("gone", "u-0").contains("pod default/gone does not exist"));
    drop(node);
    let verbs = installation.object("ClusterRole")["rules"][0]["verbs"].as_array().unwrap().clone();
    let used = uses(&installation);
    let granted: BTreeSet<&str> = verbs.iter().filter_map(Value::as_str).collect();
    let found: BTreeSet<&str> = used.iter().map(|(_, verb, _)| verb.as_str()).collect();
    assert_eq!(found, granted, "{used:?}");
    assert!(
        used.iter().all(|(resource, _, code)| resource == "pods" && matches!(code, 200 | 404)),
        "{used:?}"
    );
}

pub(crate) fn permission_that_is_missing_is_named(cluster: &Cluster) {
    for missing in ["get", "list", "watch"] {
        let mut installation = Installation::new(cluster);
        let mut role = installation.object("ClusterRole").clone();
        let verbs = role.pointer_mut("/rules/0/verbs").and_then(Value::as_array_mut).unwrap();
        verbs.retain(|verb| verb != missing);
        assert_eq!(verbs.len(), 2);
        installation.apply(&role);
        let here = installation.pod("here", NODE);
        let node = installation.start();
        let named = format!("cannot {missing} resource \\\"pods\\\"");
        match missing {
            "list" => {
                node.is_not_ready("pods of node node-1 are not known yet: ");
                node.is_not_ready("cannot list resource \"pods\"");
                // A pod is read from the API server, and starts.
                node.captured("here", &here);
            }
            "watch" => {
                // What was listed is known. It is outdated from then on, which the log says.
                crate::node::until("the log names the permission", || node.has_logged(&named));
                node.is_ready();
                node.captured("here", &here);
            }
            _ => {
                node.is_ready();
                // It was listed.
                node.captured("here", &here);
                let problem = node.refused("gone", "u-0");
                assert!(problem.contains("missing permission to get pods"), "{problem}");
                crate::node::until("the log names the permission", || node.has_logged(&named));
            }
        }
    }
}

/// What the API server's admission makes of the DaemonSet's pod.
pub(crate) fn pod_of_the_agent_has_its_token(cluster: &Cluster) {
    let mut installation = Installation::new(cluster);
    let pod = installation.agent_pod("second");
    let mounts = pod["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
    let mount =
        mounts.iter().find(|mount| mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount");
    let name = &mount.expect("the token is mounted")["name"];
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == *name).unwrap();
    let sources = volume["projected"]["sources"].as_array().unwrap();
    assert!(sources.iter().any(|source| source.get("serviceAccountToken").is_some()), "{sources:?}");
    assert_eq!(pod["spec"]["priorityClassName"], "system-node-critical");
    // Another pod of the account has none, unless it asks for it.
    let mut other = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "other", "namespace": installation.namespace},
        "spec": {"serviceAccountName": pod["spec"]["serviceAccountName"], "containers": [{"name": "a", "image": "b"}]}
    });
    other = cluster.api.dry_run(&other).unwrap();
    assert_eq!(other["spec"]["containers"][0].get("volumeMounts"), None);
}
