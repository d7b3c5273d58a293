//! The API server calls the webhook again for a pod that others changed since.

use serde_json::{Value, json};

use crate::api::until;
use crate::control_plane::Cluster;
use crate::installation::{Installation, is_injected, pod};
use crate::later_webhook::{self, MIRROR};
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
        let before = replica.reviews().len();
        let mut injected = cluster.api.dry_run(&first).expect("a pod");
        assert!(is_injected(&injected));
        let reviews = replica.reviews().split_off(before);
        let outcomes: Vec<&Value> = reviews.iter().map(|review| &review["reason"]).collect();
        if let Ok(path) = std::env::var("DUMP_INJECTED") {
            std::fs::write(format!("{path}-{native}.json"), injected.to_string()).expect("written");
        }
        assert!(outcomes[1..].iter().all(|reason| **reason == "unchanged"), "{outcomes:?}");
        // Called for its own result, as a reinvocation.
        let metadata = injected["metadata"].as_object_mut().expect("metadata");
        metadata
            .retain(|key, _| matches!(key.as_str(), "annotations" | "labels" | "namespace" | "generateName"));
        let before = replica.reviews().len();
        cluster.api.dry_run(&injected).expect("a pod");
        for review in replica.reviews().split_off(before) {
            assert_eq!(review["reason"], "unchanged", "{review}");
        }
    }
}

/// A mirror of images, an autoscaler: called after the injector, which is then called again, and they are
/// not.
pub(crate) fn changes_of_a_later_webhook_are_kept(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &[]);
    let namespace = installation.injected_namespace("mirrored");
    let replica = Replica::start(&installation, 1);
    installation.until_injecting(&namespace);
    let later = later_webhook::start(cluster, &format!("z-{}", installation.revision), &namespace);
    installation.apply(&later);
    let is_mirrored =
        |container: &Value| container["image"].as_str().is_some_and(|image| image.starts_with(MIRROR));
    // The API server learns of the configuration in its own time.
    until("the other webhook is called", || {
        let created = installation.create_pod(&namespace).expect("a pod");
        is_mirrored(&created["spec"]["containers"][0])
    });
    for native in ["true", "false"] {
        let mut pod = pod(&namespace);
        pod["metadata"]["annotations"] = json!({"sidecar.istio.io/nativeSidecar": native});
        let before = replica.reviews().len();
        let created = cluster.api.dry_run(&pod).expect("a pod");
        assert_eq!(replica.reviews().len(), before + 2, "called again");
        let lists =
            ["containers", "initContainers"].map(|list| created["spec"][list].as_array().expect("a list"));
        let names: Vec<&Value> = lists.into_iter().flatten().map(|container| &container["name"]).collect();
        assert_eq!(names.len(), 3, "{names:?}");
        for container in lists.into_iter().flatten() {
            assert!(is_mirrored(container), "{}: {}", container["name"], container["image"]);
            assert_eq!(container["resources"], json!({"requests": {"cpu": "7m"}}), "{}", container["name"]);
        }
    }
}
