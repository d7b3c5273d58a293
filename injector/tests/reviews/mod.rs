//! Reviews as the API server sends them, and the responses to them.
#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    dead_code,
    reason = "for tests only, each of which uses a part of it"
)]

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sidecar_injector::cluster::ClusterState;
use sidecar_injector::inject::Injector;
use sidecar_injector::webhook::admission::{Admission, Request, Response};
use sidecar_injector::webhook::config_store::ConfigStore;
use sidecar_injector::webhook::request_error::RequestError;

/// `request.uid` of [`review`].
pub(crate) const UID: &str = "3bd1ef21-6b4e-4b35-a0e1-36a2a4ad3a4c";

/// The volume that the API server gives the pods of [`sent`].
pub(crate) const TOKEN: &str = "kube-api-access-nfkgr";

/// Proxies are native sidecars, namespaces define nothing.
pub(crate) fn cluster_state() -> ClusterState {
    ClusterState { native_sidecars: true, ..ClusterState::default() }
}

pub(crate) fn config_store(injector: Injector) -> Arc<ConfigStore> {
    Arc::new(ConfigStore::new(injector, cluster_state()))
}

/// An admission with this config.
pub(crate) fn admission(injector: Injector) -> Admission {
    Admission::new(config_store(injector))
}

/// A pod, given as a template, as the API server sends it once a ReplicaSet has made it.
pub(crate) fn sent(template: &Value) -> Value {
    let mut pod = template.clone();
    pod["kind"] = json!("Pod");
    pod["apiVersion"] = json!("v1");
    let metadata = &mut pod["metadata"];
    metadata["generateName"] = json!("web-667dfdc6c7-");
    metadata["namespace"] = json!("shop");
    metadata["labels"]["pod-template-hash"] = json!("667dfdc6c7");
    metadata["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-667dfdc6c7",
        "uid": "0f79c5d8-e91a-402a-a1ca-391f624e4c49", "controller": true, "blockOwnerDeletion": true}]);
    metadata["managedFields"] = json!([{"manager": "kube-controller-manager", "operation": "Update",
        "apiVersion": "v1", "time": "2026-11-21T04:34:56Z", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:generateName": {}}}}]);
    let spec = &mut pod["spec"];
    let token = json!({"name": TOKEN, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}});
    push(spec, "volumes", token);
    for container in spec["containers"].as_array_mut().unwrap() {
        let mount = json!({"name": TOKEN, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"});
        push(container, "volumeMounts", mount);
        container["resources"] = json!({});
        container["terminationMessagePath"] = json!("/dev/termination-log");
    }
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("serviceAccountName", json!("default")),
        ("schedulerName", json!("default-scheduler")),
        (
            "tolerations",
            json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}]),
        ),
    ] {
        spec[key] = value;
    }
    pod["status"] = json!({});
    pod
}

fn push(object: &mut Value, list: &str, item: Value) {
    if object[list].is_null() {
        object[list] = json!([]);
    }
    object[list].as_array_mut().unwrap().push(item);
}

/// A review of version v1 about the creation of a pod.
pub(crate) fn review(pod: &Value) -> Value {
    let pods = json!({"group": "", "version": "v1", "resource": "pods"});
    let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
    json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": UID, "kind": kind, "resource": pods, "requestKind": kind, "requestResource": pods,
        "namespace": "shop", "operation": "CREATE",
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
        "object": pod, "oldObject": null, "dryRun": false,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }})
}

/// Sends a body to `/inject`.
pub(crate) fn send_bytes(admission: &Admission, body: &[u8]) -> Result<Response, RequestError> {
    admission.review(&Request { path: "/inject", content_type: Some("application/json"), body })
}

/// Sends a review to `/inject`.
pub(crate) fn send(admission: &Admission, review: &Value) -> Response {
    send_bytes(admission, review.to_string().as_bytes()).unwrap_or_else(|error| panic!("{error}"))
}

/// `response` of the review.
pub(crate) fn response(response: &Response) -> Value {
    serde_json::from_slice::<Value>(&response.body).unwrap()["response"].take()
}

/// The operations of the patch, none if there is none.
pub(crate) fn operations(reviewed: &Response) -> Value {
    let response = response(reviewed);
    match response["patch"].as_str() {
        Some(patch) => {
            assert_eq!(response["patchType"], "JSONPatch");
            serde_json::from_slice(&STANDARD.decode(patch).unwrap()).unwrap()
        }
        None => {
            assert_eq!(response.get("patchType"), None);
            json!([])
        }
    }
}

/// The pod after the API server has applied the patch.
pub(crate) fn patched(pod: &Value, reviewed: &Response) -> Value {
    let patch: json_patch::Patch = serde_json::from_value(operations(reviewed)).unwrap();
    let mut pod = pod.clone();
    json_patch::patch(&mut pod, &patch).unwrap_or_else(|error| panic!("{error}\n{patch}"));
    pod
}
