//! What `manifests` prints, as the API server judges it.

use serde_json::{Value, json};

use crate::api::{Rejected, path, until};
use crate::control_plane::Cluster;
use crate::installation::{Installation, manifests, pod};
use crate::replica::Replica;

const FLAGS: [&[&str]; 5] = [
    &[],
    &["--validating-policy", "--failure-policy", "ignore"],
    &["--platform", "openshift", "--replicas", "5"],
    &["--cert-manager", "--init-image", "registry.example.com/init:1"],
    &["--enable-namespaces-by-default", "--validating-policy"],
];

pub(crate) fn every_object_passes_strict_validation(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &[]);
    let (namespace, revision) = (installation.namespace.clone(), installation.revision.clone());
    // Dry runs: the default revision's names may be in use here.
    for names in [&["--revision", revision.as_str()][..], &["--replace-istiod"]] {
        for flags in FLAGS {
            for object in manifests(&[&["--namespace", &namespace], names, flags].concat()) {
                // A resource of cert-manager's API, which is not part of Kubernetes.
                if object["apiVersion"] == "cert-manager.io/v1" {
                    continue;
                }
                let applied = cluster.api.apply(&object, "&dryRun=All");
                assert!(applied.is_ok(), "{flags:?}: {object:#}: {applied:?}");
            }
        }
    }
    for platform in ["kubernetes", "gke", "k3s", "microk8s", "openshift"] {
        for object in manifests(&["--cni", "--namespace", &namespace, "--platform", platform]) {
            // A resource of OpenShift's API.
            if object["kind"] != "SecurityContextConstraints" {
                let applied = cluster.api.apply(&object, "&dryRun=All");
                assert!(applied.is_ok(), "{platform}: {object:#}: {applied:?}");
            }
        }
    }
    installation.apply(
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": namespace}}),
    );
}

/// Asserts that validation is strict, and CEL is compiled, here.
pub(crate) fn invalid_objects_are_rejected(cluster: &Cluster) {
    let installation = Installation::new(cluster, &["--validating-policy"]);
    let broken = |kind: &str, pointer: &str, value: Value, expected: &str| {
        let mut object = installation.object(kind).clone();
        *object.pointer_mut(pointer).unwrap_or_else(|| panic!("{kind}: {pointer}")) = value;
        let rejected = cluster.api.apply(&object, "&dryRun=All").expect_err(kind);
        assert!(rejected.message.contains(expected), "{kind}: {rejected:?}");
    };
    broken("Deployment", "/spec/strategy", json!({"typo": 1}), "typo");
    broken(
        "ValidatingAdmissionPolicy",
        "/spec/validations/0/expression",
        json!("object.spec.("),
        "compilation failed",
    );
    broken(
        "ValidatingAdmissionPolicy",
        "/spec/validations/0/expression",
        json!("object.spec.nosuch == 1 && 1"),
        "expected type",
    );
    broken(
        "MutatingWebhookConfiguration",
        "/webhooks/0/namespaceSelector/matchExpressions/0/operator",
        json!("Is"),
        "Is",
    );
}

pub(crate) fn the_validating_policy_denies_image_auto(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &["--validating-policy"]);
    let namespace = format!("{}-plain", installation.revision);
    installation.namespace(&namespace, &json!({}));
    let mut auto = pod(&namespace);
    auto["spec"]["containers"][0]["name"] = json!("istio-proxy");
    assert!(cluster.api.dry_run(&auto).is_ok(), "another image is allowed");
    for list in ["containers", "initContainers"] {
        let mut auto = pod(&namespace);
        auto["spec"][list] = json!([{"name": "istio-proxy", "image": "auto"}]);
        if list == "initContainers" {
            auto["spec"]["initContainers"][0]["restartPolicy"] = json!("Always");
        }
        // The policy is in force some time after it was stored.
        until("the policy is in force", || cluster.api.dry_run(&auto).is_err());
        let rejected = cluster.api.dry_run(&auto).expect_err("denied");
        assert!(
            rejected.code == 422 && rejected.message.contains("image: auto is still there"),
            "{rejected:?}"
        );
    }
}

/// `kubectl apply` compares with what it last applied, without the defaults that the API server adds.
pub(crate) fn applying_again_changes_nothing(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &["--validating-policy"]);
    // Controllers would run it.
    if cluster.is_own() {
        installation.apply(&installation.object("Deployment").clone());
    }
    let stored = |object: &&Value| cluster.api.get(&path(object)).is_ok();
    let objects: Vec<&Value> = installation.objects.iter().filter(stored).collect();
    let versions = || -> Vec<Value> {
        let version = |object: &&Value| {
            cluster.api.get(&path(object)).expect("the object")["metadata"]["resourceVersion"].clone()
        };
        objects.iter().map(version).collect()
    };
    let list = tempfile::NamedTempFile::new().expect("a file");
    let items = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(list.path(), items.to_string()).expect("written");
    let apply = || {
        // Validation is a test of its own, and needs schemas that an API server has some time after its
        // start.
        let mut kubectl = cluster.kubectl();
        let output = kubectl.args(["apply", "--validate=false", "-f"]).arg(list.path()).output();
        let output = output.expect("kubectl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    apply();
    let before = versions();
    let again = apply();
    assert_eq!(versions(), before);
    // kubectl's patch always replaces a budget's selector.
    let quiet = |line: &str| line.ends_with(" unchanged") || line.starts_with("poddisruptionbudget");
    let changed: Vec<&str> = again.lines().filter(|line| !quiet(line)).collect();
    assert!(changed.is_empty() && again.lines().count() > 10, "{changed:#?}");
}

pub(crate) fn uninstalling_spares_the_namespace(cluster: &Cluster) {
    let installation = Installation::new(cluster, &["--validating-policy"]);
    let replica = Replica::start(&installation, 1);
    let (namespace, revision) = (&installation.namespace, &installation.revision);
    let kubeconfig = cluster.kubeconfig.to_str().expect("a path");
    let deleted = manifests(&[
        "--namespace",
        namespace,
        "--revision",
        revision,
        "--validating-policy",
        "--uninstall",
        "--kubeconfig",
        kubeconfig,
    ]);
    assert!(deleted.iter().any(|object| object["kind"] == "Secret"), "the CA's");
    deleted.iter().for_each(|object| cluster.api.delete(object));
    drop(replica);
    let exists = |object: &Value| match cluster.api.get(&path(object)) {
        Ok(_) => true,
        Err(Rejected { code: 404, .. }) => false,
        Err(rejected) => panic!("{rejected:?}"),
    };
    let left: Vec<&Value> =
        installation.objects.iter().chain(&deleted).filter(|object| exists(object)).collect();
    assert!(left.is_empty(), "{left:#?}");
    let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    assert_eq!(cluster.api.get(&path(&own)).expect("the namespace")["status"]["phase"], "Active");
}

/// istiod's objects of the same revision have the names of the installation's.
pub(crate) fn uninstalling_deletes_no_object_of_istiod(cluster: &Cluster) {
    let mut installation = Installation::new(cluster, &[]);
    let (namespace, revision) = (installation.namespace.clone(), installation.revision.clone());
    let labels =
        json!({"istio.io/rev": revision, "operator.istio.io/component": "Pilot", "release": "istiod"});
    let taken = ["ConfigMap", "MutatingWebhookConfiguration"];
    let all = installation.objects.clone();
    let (istiod, own): (Vec<Value>, Vec<Value>) =
        all.into_iter().partition(|object| taken.contains(&object["kind"].as_str().unwrap_or_default()));
    for object in &istiod {
        let mut object = object.clone();
        object["metadata"]["labels"] = labels.clone();
        installation.apply(&object);
    }
    let stored = |objects: &[Value]| -> Vec<Value> {
        objects.iter().filter_map(|object| cluster.api.get(&path(object)).ok()).collect()
    };
    let before = stored(&istiod);
    let kubeconfig = cluster.kubeconfig.to_str().expect("a path");
    let flags =
        ["--namespace", &namespace, "--revision", &revision, "--uninstall", "--kubeconfig", kubeconfig];
    manifests(&flags).iter().for_each(|object| cluster.api.delete(object));
    assert_eq!((before.len(), stored(&istiod)), (3, before));
    assert_eq!(stored(&own), [Value::Null; 0]);
}
