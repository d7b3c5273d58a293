//! A client that waits for each response.

use std::path::Path;
use std::time::{Duration, Instant};

use hyper::Request;
use serde_json::{Value, json};
use sidecar_injector::cluster::{Client, client};

/// Why a request was rejected.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    pub(crate) code: u16,
    pub(crate) message: String,
}

pub(crate) type Response = Result<Value, Rejected>;

pub(crate) struct Api {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

const APPLY: &str = "application/apply-patch+yaml";
const MERGE: &str = "application/merge-patch+json";

/// Kind, plural, and whether it is namespaced.
const KINDS: &[(&str, &str, bool)] = &[
    ("ClusterRole", "clusterroles", false),
    ("ClusterRoleBinding", "clusterrolebindings", false),
    ("ConfigMap", "configmaps", true),
    ("DaemonSet", "daemonsets", true),
    ("Deployment", "deployments", true),
    ("EndpointSlice", "endpointslices", true),
    ("Event", "events", true),
    ("HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("LimitRange", "limitranges", true),
    ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    ("Namespace", "namespaces", false),
    ("NetworkPolicy", "networkpolicies", true),
    ("Node", "nodes", false),
    ("Pod", "pods", true),
    ("PodDisruptionBudget", "poddisruptionbudgets", true),
    ("ReplicaSet", "replicasets", true),
    ("ResourceQuota", "resourcequotas", true),
    ("Role", "roles", true),
    ("RoleBinding", "rolebindings", true),
    ("Secret", "secrets", true),
    ("Service", "services", true),
    ("ServiceAccount", "serviceaccounts", true),
    ("SubjectAccessReview", "subjectaccessreviews", false),
    ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", false),
    ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false),
];

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The path of the collection that an object belongs to.
pub(crate) fn collection(object: &Value) -> String {
    let (version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
    let (_, plural, namespaced) =
        KINDS.iter().find(|(known, ..)| *known == kind).unwrap_or_else(|| panic!("unknown kind {kind}"));
    let group = if version.contains('/') { "apis" } else { "api" };
    match namespaced {
        true => format!("/{group}/{version}/namespaces/{}/{plural}", text(object, "/metadata/namespace")),
        false => format!("/{group}/{version}/{plural}"),
    }
}

pub(crate) fn path(object: &Value) -> String {
    format!("{}/{}", collection(object), name(object))
}

impl Api {
    pub(crate) fn new(kubeconfig: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let client = runtime.block_on(client(Some(kubeconfig))).expect("a client");
        Self { client, runtime }
    }

    fn request(&self, method: &str, path: &str, content: &str, body: Vec<u8>) -> Result<String, Rejected> {
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        let request = request.body(body).expect("a request");
        self.runtime.block_on(self.client.request_text(request)).map_err(|error| match error {
            kube::Error::Api(status) => Rejected { code: status.code, message: status.message.clone() },
            other => Rejected { code: 0, message: format!("{other:?}") },
        })
    }

    fn send(&self, method: &str, path: &str, content: &str, body: &Value) -> Response {
        let text = self.request(method, path, content, body.to_string().into_bytes())?;
        Ok(serde_json::from_str(&text).expect("JSON"))
    }

    pub(crate) fn text(&self, path: &str) -> Result<String, Rejected> {
        self.request("GET", path, "application/json", Vec::new())
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        Ok(serde_json::from_str(&self.text(path)?).expect("JSON"))
    }

    pub(crate) fn create(&self, object: &Value) -> Response {
        self.send("POST", &collection(object), "application/json", object)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, "application/json", body)
    }

    /// Admission of a pod, whose object is not stored.
    pub(crate) fn dry_run(&self, object: &Value) -> Response {
        let path = format!("{}?dryRun=All&fieldValidation=Strict", collection(object));
        self.send("POST", &path, "application/json", object)
    }

    /// Server-side, with strict field validation.
    pub(crate) fn apply(&self, object: &Value, more: &str) -> Response {
        let query = format!("fieldManager=end-to-end&force=true&fieldValidation=Strict{more}");
        self.send("PATCH", &format!("{}?{query}", path(object)), APPLY, object)
    }

    pub(crate) fn put(&self, path: &str, object: &Value) -> Response {
        self.send("PUT", path, "application/json", object)
    }

    pub(crate) fn replace(&self, object: &Value) -> Response {
        self.put(&path(object), object)
    }

    pub(crate) fn merge(&self, object: &Value, patch: &Value) -> Response {
        self.send("PATCH", &path(object), MERGE, patch)
    }

    /// One that does not exist is deleted already.
    pub(crate) fn delete(&self, object: &Value) {
        let options = json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0});
        match self.send("DELETE", &path(object), "application/json", &options) {
            Ok(_) | Err(Rejected { code: 404, .. }) => {}
            Err(rejected) => panic!("{}: {rejected:?}", path(object)),
        }
    }
}

/// Waits at most a minute.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "a minute has passed, and not yet: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
