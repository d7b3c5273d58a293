//! The API server calls the webhook again for a pod that others changed since.

use serde_json::{Value, json};

use crate::control_plane::Cluster;
use crate::installation::{Installation, is_injected, pod};
use crate::replica::Replica;

/// What the API server's defaults make of an injected pod is no reason for another patch.
pub(crate) fn a_second_call_has_an_empty_patch(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &[]);
    let namespace = installation.injected_namespace("shop");
    let replica = Replica::start(&installation, 1);
    installation.until_injecting(&namespace);
    let mut probed = pod(&namespace);
    probed["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/", "port": 80}});
    probed["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80}]);
    for native in ["true", "false"] {
        let mut first = probed.clone();
        first["metadata"]["annotations"] = json!({"sidecar.istio.io/nativeSidecar": native});
        let before = replica.logged("pod reviewed").len();
        let mut injected = cluster.api.dry_run(&first).expect("a pod");
        assert!(is_injected(&injected));
        let reviews = replica.logged("pod reviewed").split_off(before);
        let outcomes: Vec<&Value> = reviews.iter().map(|review| &review["reason"]).collect();
        if let Ok(path) = std::env::var("DUMP_INJECTED") {
            std::fs::write(format!("{path}-{native}.json"), injected.to_string()).expect("written");
        }
        assert!(outcomes[1..].iter().all(|reason| **reason == "unchanged"), "{outcomes:?}");
        // Called for its own result, as a reinvocation.
        let metadata = injected["metadata"].as_object_mut().expect("metadata");
        metadata
            .retain(|key, _| matches!(key.as_str(), "annotations" | "labels" | "namespace" | "generateName"));
        let before = replica.logged("pod reviewed").len();
        cluster.api.dry_run(&injected).expect("a pod");
        for review in replica.logged("pod reviewed").split_off(before) {
            assert_eq!(review["reason"], "unchanged", "{review}");
        }
    }
}
