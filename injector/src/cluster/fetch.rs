//! The objects that `doctor` checks.

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::core::Request;
use kube::{Client, Resource as _};
use serde_json::{Map, Value, json};

use apiclient::{RequestFailed, ask, get};

/// A page of a list.
const PAGE: u32 = 500;
const PROXY_CONFIG: &str = "ProxyConfig";
/// The keys of a Secret that are kept: no private ones.
const PUBLIC: [&str; 2] = ["ca.crt", "tls.crt"];

/// A list: objects of one kind, of one namespace or of all.
pub(super) struct List {
    kind: ApiResource,
    namespace: Option<String>,
    params: ListParams,
}

/// Reads webhook configurations, policies and namespaces of the cluster, the injector's own objects, and the
/// API servers' pods where they can be seen; an empty list of a kind of which there is none. Lists that
/// cannot be read are named beside the objects. Of Secrets, only those with certificates are read, and only
/// their certificates are kept.
pub async fn fetch(client: &Client, namespace: &str) -> (Vec<Value>, Vec<String>) {
    let (mut objects, mut notes) = read_all(client, lists(namespace)).await;
    owners(client, &mut objects, &mut notes).await;
    (objects, notes)
}

/// The pods of one more namespace or of all, and the ConfigMaps with CAs, which show whether a control plane
/// serves it.
pub async fn fetch_pods(client: &Client, namespace: Option<&str>) -> (Vec<Value>, Vec<String>) {
    let kinds = ["Pod", "ConfigMap"];
    let (mut objects, notes) =
        read_all(client, kinds.map(|kind| list_of("", "v1", kind, namespace)).into()).await;
    objects.retain(|object| {
        let name = object.pointer("/metadata/name").and_then(Value::as_str);
        object.get("kind") != Some(&json!("ConfigMap"))
            || matches!(name, Some("istio-ca-root-cert" | "kube-root-ca.crt"))
    });
    (objects, notes)
}

/// A pod, its Namespace and the webhook configurations that may be called for pods; and what, except the pod,
/// cannot be read.
pub type FetchedPod = (Value, Option<Value>, Result<Vec<Value>, String>);

/// Reads a pod, and what decides about it.
///
/// # Errors
///
/// The pod cannot be read.
pub async fn fetch_pod(client: &Client, namespace: &str, name: &str) -> Result<FetchedPod, String> {
    let kind = list_of("", "v1", "Pod", Some(namespace)).kind;
    let pod = get(client, &kind, Some(namespace), name).await;
    let pod = pod.map_err(|failed| format!("pod {namespace}/{name}: {}", failed.problem))?;
    let kind_of_namespace = list_of("", "v1", "Namespace", None).kind;
    let own = get(client, &kind_of_namespace, None, namespace).await.ok();
    Ok((titled(pod, &kind), own, webhook_configurations(client).await))
}

/// All MutatingWebhookConfigurations.
pub(super) async fn webhook_configurations(client: &Client) -> Result<Vec<Value>, String> {
    let list = list_of("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", None);
    read(client, &list).await.map_err(|failed| failed.problem)
}

/// The pods of these namespaces, else of all; and what prescribes their sidecars: webhook configurations,
/// ProxyConfig resources where there are any, and namespaces where they count.
pub async fn fetch_sidecars(
    client: &Client,
    namespaces: &[&str],
    openshift: bool,
) -> (Vec<Value>, Vec<String>) {
    let mut lists: Vec<List> = namespaces.iter().map(|name| list_of("", "v1", "Pod", Some(*name))).collect();
    if lists.is_empty() {
        lists.push(list_of("", "v1", "Pod", None));
    }
    lists.push(list_of("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", None));
    lists.push(list_of("networking.istio.io", "v1beta1", PROXY_CONFIG, None));
    // Of OpenShift for their ranges of users; requested ones have to exist.
    let needed = openshift || !namespaces.is_empty();
    lists.extend(needed.then(|| list_of("", "v1", "Namespace", None)));
    read_all(client, lists).await
}

/// Adds the objects whose pods could not be created, as they are now: events report the past.
async fn owners(client: &Client, objects: &mut Vec<Value>, notes: &mut Vec<String>) {
    const MOST: usize = 100;
    let text = |event: &Value, key: &str| -> String {
        event.get("involvedObject").and_then(|about| about.get(key)?.as_str()).unwrap_or_default().to_owned()
    };
    let mut about: Vec<[String; 3]> = Vec::new();
    for event in objects.iter().filter(|object| object.get("kind") == Some(&json!("Event"))) {
        let one = ["kind", "namespace", "name"].map(|key| text(event, key));
        if WORKLOADS.iter().any(|(_, kind)| one[0] == *kind) && !about.contains(&one) {
            about.push(one);
        }
    }
    for [wanted, namespace, name] in about.into_iter().take(MOST) {
        let Some((group, kind)) = WORKLOADS.iter().find(|(_, kind)| wanted == *kind) else { continue };
        let list = list_of(group, "v1", kind, Some(&namespace));
        match get(client, &list.kind, Some(&namespace), &name).await {
            Ok(object) => objects.push(titled(object, &list.kind)),
            // Known not to exist.
            Err(RequestFailed { code: 404, .. }) => {
                objects.push(
                    json!({"apiVersion": list.kind.api_version, "kind": format!("{kind}List"), "items": []}),
                );
            }
            Err(failed) => {
                return notes.push(format!("{} cannot be read: {}", list.kind.plural, failed.problem));
            }
        }
    }
}

/// Group and kind of what makes pods.
const WORKLOADS: [(&str, &str); 5] = [
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
    ("apps", "DaemonSet"),
    ("batch", "Job"),
    ("", "ReplicationController"),
];

async fn read_all(client: &Client, lists: Vec<List>) -> (Vec<Value>, Vec<String>) {
    let (mut objects, mut notes) = (Vec::new(), Vec::new());
    for list in lists {
        match read(client, &list).await {
            // An empty list differs from one that was not read.
            Ok(found) if found.is_empty() && list.params.label_selector.is_none() => {
                let kind = format!("{}List", list.kind.kind);
                objects.push(json!({"apiVersion": list.kind.api_version, "kind": kind, "items": []}));
            }
            Ok(found) => objects.extend(found),
            // Istio's kinds are not in every cluster.
            Err(RequestFailed { code: 404, .. }) if list.kind.kind == PROXY_CONFIG => {}
            Err(RequestFailed { code: 0, problem }) => {
                notes.push(problem); // and would be for every other kind
                return (objects, notes);
            }
            Err(failed) => {
                let place =
                    list.namespace.as_deref().map(|name| format!(" of namespace {name}")).unwrap_or_default();
                notes.push(format!("{}{place} cannot be read: {}", list.kind.plural, failed.problem));
            }
        }
    }
    (objects, notes)
}

pub(super) fn list_of(group: &str, version: &str, kind: &str, namespace: Option<&str>) -> List {
    List {
        kind: ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind)),
        namespace: namespace.map(str::to_owned),
        params: ListParams::default().limit(PAGE),
    }
}

fn lists(namespace: &str) -> Vec<List> {
    let of = list_of;
    let own = Some(namespace);
    let mut events = of("", "v1", "Event", None);
    events.params = events.params.fields("reason=FailedCreate");
    let mut secrets = of("", "v1", "Secret", own);
    secrets.params = secrets.params.fields("type=kubernetes.io/tls");
    let mut api_servers = of("", "v1", "Pod", Some("kube-system"));
    api_servers.params = api_servers.params.labels("component=kube-apiserver");
    vec![
        of("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", None),
        of("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", None),
        of("", "v1", "Namespace", None),
        of("", "v1", "Service", own),
        of("discovery.k8s.io", "v1", "EndpointSlice", own),
        of("apps", "v1", "Deployment", own),
        of("autoscaling", "v2", "HorizontalPodAutoscaler", own),
        of("", "v1", "Pod", own),
        of("", "v1", "ConfigMap", own),
        of("networking.k8s.io", "v1", "NetworkPolicy", own),
        of("rbac.authorization.k8s.io", "v1", "RoleBinding", own),
        events,
        secrets,
        api_servers,
    ]
}

pub(super) async fn read(client: &Client, list: &List) -> Result<Vec<Value>, RequestFailed> {
    let url = DynamicObject::url_path(&list.kind, list.namespace.as_deref());
    let (mut objects, mut params) = (Vec::new(), list.params.clone());
    loop {
        let mut page: Value = ask(async {
            let request = Request::new(&url).list(&params).map_err(kube::Error::BuildRequest)?;
            client.request(request).await
        })
        .await?;
        let items = page.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take);
        objects.extend(items.unwrap_or_default().into_iter().map(|item| titled(item, &list.kind)));
        match page.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(more) if !more.is_empty() => params.continue_token = Some(more.to_owned()),
            _ => return Ok(objects),
        }
    }
}

/// Adds kind and version, which items of a list lack; removes private keys.
fn titled(item: Value, kind: &ApiResource) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), json!(kind.api_version));
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
