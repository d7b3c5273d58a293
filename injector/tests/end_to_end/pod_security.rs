//! Pods in namespaces that enforce a Pod Security Standard, as the API server's own admission judges them.

use serde_json::json;

use crate::api::until;
use crate::control_plane::Cluster;
use crate::installation::{Installation, is_injected, pod};
use crate::replica::Replica;

pub(crate) fn only_pods_for_the_plugin_are_admitted(cluster: &Cluster) {
    for cni in [true, false] {
        let mut installation = Installation::new(cluster, &["--set", &format!("pilot.cni.enabled={cni}")]);
        let replica = Replica::start(&installation, 1);
        let ready = installation.injected_namespace("ready");
        installation.until_injecting(&ready);
        for level in ["baseline", "restricted"] {
            let namespace = format!("{}-{level}", installation.revision);
            let enforce = "pod-security.kubernetes.io/enforce";
            installation
                .namespace(&namespace, &json!({"istio.io/rev": installation.revision, enforce: level}));
            let mut pod = pod(&namespace);
            pod["spec"]["securityContext"] = json!({"runAsNonRoot": true, "runAsUser": 1000});
            pod["spec"]["containers"][0]["securityContext"] = json!({
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"},
            });
            let mut plain = pod.clone();
            plain["metadata"]["labels"] = json!({"sidecar.istio.io/inject": "false"});
            assert!(cluster.api.dry_run(&plain).is_ok(), "the pod itself satisfies {level}");
            // The API server learns of the namespace in its own time: before that the pod is not injected.
            let mut answer = None;
            until("the namespace's pods are injected", || {
                answer = Some(cluster.api.dry_run(&pod));
                answer.as_ref().is_some_and(|answer| answer.as_ref().map_or(true, is_injected))
            });
            match answer.expect("an answer") {
                Ok(admitted) => {
                    assert!(cni, "{level}");
                    let init = admitted["spec"]["initContainers"].as_array().expect("init containers");
                    assert_eq!(init[0]["name"], "istio-validation");
                }
                Err(rejected) => {
                    assert!(!cni && rejected.code == 403, "{level}: {rejected:?}");
                    assert!(rejected.message.contains("istio-init"), "{rejected:?}");
                }
            }
        }
        drop(replica);
    }
}
