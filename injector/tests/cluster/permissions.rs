//! What a service account has to be allowed: no request is made beyond it.

use serde_json::json;
use sidecar_injector::cluster::{Part, Wanted};

use crate::fake::{Asked, Fake, Store};
use crate::replica::{HOOKS, NAME, NAMESPACE, Replica, SECRET, hooks, injector_config, self_signed, until};

const READ: &[&str] = &["get", "list", "watch"];

/// As in a ClusterRole (without a namespace) or a Role.
struct Rule {
    resource: &'static str,
    namespace: Option<&'static str>,
    /// The only ones; all, when there are none.
    names: &'static [&'static str],
    verbs: &'static [&'static str],
}

const fn rule(
    resource: &'static str,
    namespace: Option<&'static str>,
    names: &'static [&'static str],
    verbs: &'static [&'static str],
) -> Rule {
    Rule { resource, namespace, names, verbs }
}

/// The ClusterRole and the Role that are installed.
const RULES: [Rule; 6] = [
    rule("nodes", None, &[], READ),
    rule("namespaces", None, &[], READ),
    rule("mutatingwebhookconfigurations", None, &[NAME], &["get", "list", "watch", "patch"]),
    rule("configmaps", Some(NAMESPACE), &[NAME, "istio"], READ),
    rule("secrets", Some(NAMESPACE), &["istio-sidecar-injector-tls"], &["get", "list", "watch", "update"]),
    rule("secrets", Some(NAMESPACE), &[], &["create"]),
];

/// Whether a rule allows the request. Lists and watches count as being of one name where a field selector says so.
fn allowed(asked: &Asked) -> bool {
    let (path, query) = asked.path.split_once('?').unwrap_or((&asked.path, ""));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let parts = &parts[if parts[0] == "api" { 2 } else { 3 }..];
    let (namespace, parts) = match parts {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        parts => (None, parts),
    };
    let selected = query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector=metadata.name%3D"));
    let name = parts.get(1).copied().or(selected);
    let verb = match asked.method.as_str() {
        "GET" if query.contains("watch=true") => "watch",
        "GET" if parts.len() == 1 => "list",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        other => other,
    };
    RULES.iter().any(|rule| {
        rule.resource == parts[0]
            && rule.namespace == namespace
            && rule.verbs.contains(&verb)
            && (rule.names.is_empty() || name.is_some_and(|name| rule.names.contains(&name)))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_than_is_installed() {
    let fake = Fake::start().await;
    fake.put("kubectl", hooks());
    fake.put("kubectl", injector_config());
    let serving = std::sync::Arc::default();
    let config = Some(format!("{NAMESPACE}/{NAME}").parse().expect("a name"));
    let wanted = Wanted { config, nodes: true, namespaces: true, ..self_signed(&serving, &[NAME]) };
    let replica = Replica::start(&fake, wanted).await;
    until("all is well", || {
        let status = replica.status();
        let parts = [
            &status.config,
            &status.certificate,
            &status.nodes,
            &status.namespaces,
            &status.ca_bundles[NAME],
        ];
        parts.iter().all(|part| **part == Part::Good)
    })
    .await;

    // The same after trouble, and with everything to be done again.
    fake.change(Store::forget);
    fake.disconnect();
    let mut damaged = fake.object(SECRET).expect("the Secret");
    damaged["data"]["tls.crt"] = json!("");
    fake.put("kubectl", damaged);
    fake.put("kubectl", hooks());
    until("mended", || fake.count("PUT", "/secrets/", 200) == 1 && replica.status().ca_bundle_writes == 2)
        .await;
    fake.delete(SECRET);
    until("made again", || fake.count("POST", "/secrets", 201) == 2).await;
    fake.delete(HOOKS);
    until("missed", || matches!(replica.status().ca_bundles[NAME], Part::Waiting(_))).await;
    replica.end().await;

    let asked = fake.asked();
    let beyond: Vec<_> = asked.iter().filter(|asked| !allowed(asked)).collect();
    assert!(beyond.is_empty(), "{beyond:#?}");
    let refused = |method: &str, path: &str| {
        !allowed(&Asked {
            method: method.to_owned(),
            path: path.to_owned(),
            content_type: String::new(),
            status: 200,
        })
    };
    assert!(
        refused("DELETE", "/api/v1/nodes/a") && refused("GET", "/api/v1/namespaces/istio-system/secrets")
    );
}
