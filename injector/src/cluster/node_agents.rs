//! Problems that would prevent a node agent of `istio-cni` from working, found before it is installed.

use kube::Client;
use kube::api::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::fetch::{list_of, read};
use crate::manifests::node_agent::{NAME, POD_LABEL};
use crate::object;
use crate::path::text;
use crate::pod::security;
use apiclient::{RequestFailed, get};

/// Other agents that install a plugin `istio-cni` on the same nodes, and a namespace that rejects the agent's
/// pods.
///
/// # Errors
///
/// What cannot be read.
pub async fn obstacles(client: &Client, namespace: &str) -> Result<Vec<String>, String> {
    let list = list_of("apps", "v1", "DaemonSet", None);
    let all = read(client, &list).await.map_err(|failed| format!("daemonsets: {}", failed.problem))?;
    let mut found: Vec<String> = all.iter().filter(|one| is_rival(one, namespace)).map(rival).collect();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
    match get(client, &kind, None, namespace).await {
        Ok(object) => found.extend(security::enforced(&object).map(|level| {
            let key = security::ENFORCE;
            format!(
                "Namespace {namespace:?}: {key}={level} rejects the agent's pods, which need hostPath volumes, NET_ADMIN and \
                 SYS_ADMIN: use another namespace"
            )
        })),
        Err(RequestFailed { code: 404, .. }) => {}
        Err(failed) => return Err(format!("Namespace {namespace:?}: {}", failed.problem)),
    }
    Ok(found)
}

fn is_rival(set: &Value, namespace: &str) -> bool {
    let (key, value) = POD_LABEL;
    let labels = set.pointer("/spec/template/metadata/labels");
    labels.and_then(|labels| labels.get(key)) == Some(&json!(value))
        && (text(set, "/metadata/namespace"), text(set, "/metadata/name")) != (namespace, NAME)
}

fn rival(set: &Value) -> String {
    let owner = object::owner(set).unwrap_or_else(|| "an unknown owner".to_owned());
    format!(
        "{}: it installs a plugin istio-cni on the same nodes, and belongs to {owner}: remove it first",
        object::title(set)
    )
}
