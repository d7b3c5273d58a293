//! The objects that `doctor` checks.

use hyper::Request;
use kube::Client;
use serde_json::{Map, Value, json};

use super::client::{RequestFailed, ask};

/// A page of a list.
const PAGE: usize = 500;
/// The keys of a Secret that are kept: no private ones.
const PUBLIC: [&str; 2] = ["ca.crt", "tls.crt"];

/// One kind of objects.
struct Kind {
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    /// The namespace, or all of the cluster.
    namespace: Option<String>,
    /// As in a URL.
    selector: &'static str,
}

/// Reads webhook configurations, policies and namespaces of the cluster, the injector's own objects, and the API
/// servers' pods where they can be seen; an empty list of a kind of which there is none. Lists that cannot be read are
/// named beside the objects. Of Secrets, only those with certificates are read, and only their certificates are kept.
pub async fn fetch(client: &Client, namespace: &str) -> (Vec<Value>, Vec<String>) {
    let (mut objects, mut notes) = (Vec::new(), Vec::new());
    for kind in kinds(namespace) {
        match list(client, &kind).await {
            // An empty list differs from one that was not read.
            Ok(found) if found.is_empty() && !kind.selector.contains("labelSelector") => {
                let list = format!("{}List", kind.kind);
                objects.push(json!({"apiVersion": kind.version, "kind": list, "items": []}));
            }
            Ok(found) => objects.extend(found),
            Err(RequestFailed { code: 0, problem }) => {
                notes.push(problem); // and would be for every other kind
                return (objects, notes);
            }
            Err(failed) => {
                let place =
                    kind.namespace.as_deref().map(|name| format!(" of namespace {name}")).unwrap_or_default();
                notes.push(format!("{}{place} cannot be read: {}", kind.plural, failed.problem));
            }
        }
    }
    (objects, notes)
}

fn kinds(namespace: &str) -> Vec<Kind> {
    let of = |version, kind, plural, namespace: Option<&str>, selector| Kind {
        version,
        kind,
        plural,
        namespace: namespace.map(str::to_owned),
        selector,
    };
    let own = Some(namespace);
    let admission = "admissionregistration.k8s.io/v1";
    vec![
        of(admission, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", None, ""),
        of(admission, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", None, ""),
        of("v1", "Namespace", "namespaces", None, ""),
        of("v1", "Service", "services", own, ""),
        of("discovery.k8s.io/v1", "EndpointSlice", "endpointslices", own, ""),
        of("apps/v1", "Deployment", "deployments", own, ""),
        of("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", own, ""),
        of("v1", "Pod", "pods", own, ""),
        of("v1", "ConfigMap", "configmaps", own, ""),
        of("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", own, ""),
        of("v1", "Event", "events", None, "&fieldSelector=reason%3DFailedCreate"),
        of("v1", "Secret", "secrets", own, "&fieldSelector=type%3Dkubernetes.io%2Ftls"),
        of("v1", "Pod", "pods", Some("kube-system"), "&labelSelector=component%3Dkube-apiserver"),
    ]
}

async fn list(client: &Client, kind: &Kind) -> Result<Vec<Value>, RequestFailed> {
    let group = if kind.version.contains('/') { "apis" } else { "api" };
    let place = kind.namespace.as_ref().map(|name| format!("namespaces/{name}/")).unwrap_or_default();
    let base = format!("/{group}/{}/{place}{}?limit={PAGE}{}", kind.version, kind.plural, kind.selector);
    let (mut objects, mut token) = (Vec::new(), String::new());
    loop {
        let path =
            if token.is_empty() { base.clone() } else { format!("{base}&continue={}", escaped(&token)) };
        let request = Request::get(path)
            .body(Vec::new())
            .map_err(|error| RequestFailed { code: 0, problem: format!("namespace name: {error}") })?;
        let mut page: Value = ask(client.request(request)).await?;
        let items = page.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
        objects.extend(items.unwrap_or_default().into_iter().map(|item| titled(item, kind)));
        match page.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(more) if !more.is_empty() => more.clone_into(&mut token),
            _ => return Ok(objects),
        }
    }
}

/// Adds kind and version, which items of a list lack; removes private keys.
fn titled(item: Value, kind: &Kind) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), json!(kind.version));
    object.insert("kind".to_owned(), json!(kind.kind));
    if let Value::Object(fields) = item {
        object.extend(fields);
    }
    if kind.kind == "Secret" {
        object.retain(|field, _| {
            matches!(field.as_str(), "apiVersion" | "kind" | "metadata" | "type" | "data")
        });
        if let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) {
            data.retain(|key, _| PUBLIC.contains(&key.as_str()));
        }
        // What kubectl last applied is a copy of the Secret.
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("annotations");
        }
    }
    Value::Object(object)
}

/// For a URL's query.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte))
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}
