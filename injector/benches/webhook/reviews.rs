//! Requests as an API server sends them.

use serde_json::{Value, json};

use crate::client::post;

/// How many pods differ from each other: more than the webhook remembers.
const DIFFERENT: usize = 4000;

/// Pods of three sizes, as requests: replicas of one workload each, and pods that share nothing.
pub(crate) fn pods() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let pods = [
        ("1 container", vec![small()]),
        ("1 container, every pod different", (0..DIFFERENT).map(different).collect()),
        ("3 containers", vec![typical()]),
        ("2,000 variables", vec![large()]),
    ];
    let requests = |pods: Vec<Value>| pods.iter().map(|pod| request(&review(pod))).collect();
    pods.into_iter().map(|(name, pods)| (name, requests(pods))).collect()
}

/// A request for one container.
pub(crate) fn good() -> Vec<u8> {
    request(&review(&small()))
}

fn request(review: &Value) -> Vec<u8> {
    post("/inject?timeout=10s", "application/json", review.to_string().as_bytes())
}

/// A review of a pod.
pub(crate) fn review(pod: &Value) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "0f424a70-fb63-49d0-9645-45660b60e342",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop", "operation": "CREATE",
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
            "object": pod, "oldObject": null, "dryRun": false,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

/// A pod of a Deployment with the defaults that the API server fills in.
pub(crate) fn pod(containers: &[Value]) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "generateName": "web-6d4cf56db6-", "namespace": "shop",
            "labels": {"app": "web", "pod-template-hash": "6d4cf56db6", "sidecar.istio.io/inject": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4cf56db6",
                "uid": "d9607e19-f88f-11e6-a518-42010a800195", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "volumes": [{"name": "kube-api-access-x2x2x", "projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}],
            "containers": containers,
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300}],
            "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {},
    })
}

fn container(name: &str, variables: usize, probed: bool) -> Value {
    let env: Vec<Value> = (0..variables)
        .map(|n| json!({"name": format!("VARIABLE_{n}"), "value": format!("value {n}")}))
        .collect();
    let mut container = json!({
        "name": name, "image": "docker.io/library/nginx:1.27", "imagePullPolicy": "IfNotPresent",
        "ports": [{"containerPort": 8080, "protocol": "TCP"}], "env": env, "resources": {},
        "volumeMounts": [{"name": "kube-api-access-x2x2x", "readOnly": true,
            "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    });
    if probed {
        let probe = |path: &str| {
            json!({"httpGet": {"path": path, "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
        };
        container["livenessProbe"] = probe("/live");
        container["readinessProbe"] = probe("/ready");
    }
    container
}

/// One container.
pub(crate) fn small() -> Value {
    pod(&[container("web", 0, false)])
}

/// One container; names, labels and image are those of no other number.
fn different(number: usize) -> Value {
    let (name, volume) = (format!("web-{number}"), format!("kube-api-access-{number}"));
    let mut pod = small();
    pod["metadata"]["generateName"] = format!("{name}-6d4cf56db6-").into();
    pod["metadata"]["labels"]["app"] = name.as_str().into();
    pod["metadata"]["ownerReferences"][0]["name"] = format!("{name}-6d4cf56db6").into();
    pod["spec"]["volumes"][0]["name"] = volume.as_str().into();
    let container = &mut pod["spec"]["containers"][0];
    container["name"] = name.into();
    container["image"] = format!("docker.io/library/web:{number}").into();
    container["volumeMounts"][0]["name"] = volume.into();
    pod
}

/// Three containers with probes and 20 variables each.
fn typical() -> Value {
    pod(&["web", "worker", "exporter"].map(|name| container(name, 20, true)))
}

/// One container with 2,000 variables.
fn large() -> Value {
    pod(&[container("web", 2000, false)])
}
