//! What a service account has to be allowed: no request is made beyond it.

use serde_json::{Value, json};
use sidecar_injector::cluster::{ClusterOptions, Part};
use sidecar_injector::config::{BUILTIN_CONFIG, BUILTIN_MESH, BUILTIN_VALUES};
use sidecar_injector::manifests::{Certificates, FailurePolicy, Options, Platform, Texts, objects};

use super::fake::{Fake, Received, Store};
use super::replica::{HOOKS, NAME, NAMESPACE, Replica, SECRET, hooks, injector_config, self_signed, until};

/// The ClusterRole and the Role that are installed.
fn roles() -> Vec<Value> {
    let options = Options {
        namespace: NAMESPACE.parse().expect("a namespace"),
        revision: "".parse().expect("no revision"),
        image: "injector".parse().unwrap(),
        replicas: 2.try_into().expect("replicas"),
        failure_policy: FailurePolicy::Fail,
        by_default: false,
        certificates: Certificates::SelfSigned,
        platform: Platform::Openshift,
        validating_policy: false,
        texts: Texts {
            config: BUILTIN_CONFIG.to_owned(),
            values: BUILTIN_VALUES.to_owned(),
            mesh: BUILTIN_MESH.to_owned(),
        },
    };
    let roles = |object: &Value| object["kind"] == "ClusterRole" || object["kind"] == "Role";
    objects(&options).expect("rendered").into_iter().filter(roles).collect()
}

/// Whether a rule allows the request. Lists and watches count as being of one name where a field selector
/// names one.
fn allowed(roles: &[Value], received: &Received) -> bool {
    let (path, query) = received.path.split_once('?').unwrap_or((&received.path, ""));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let parts = &parts[if parts[0] == "api" { 2 } else { 3 }..];
    let (namespace, parts) = match parts {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
        parts => (None, parts),
    };
    let selected = query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector=metadata.name%3D"));
    let name = parts.get(1).copied().or(selected);
    let verb = match received.method.as_str() {
        "GET" if query.contains("watch=true") => "watch",
        "GET" if parts.len() == 1 => "list",
        "GET" => "get",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        other => other,
    };
    let holds = |list: &Value, value: &str| list.as_array().is_some_and(|list| list.contains(&json!(value)));
    roles.iter().filter(|role| role["metadata"]["namespace"].as_str() == namespace).any(|role| {
        role["rules"].as_array().expect("rules").iter().any(|rule| {
            let names = &rule["resourceNames"];
            holds(&rule["resources"], parts[0])
                && holds(&rule["verbs"], verb)
                && (names.is_null() || name.is_some_and(|name| holds(names, name)))
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_exceeds_the_installed_roles() {
    let fake = Fake::start().await;
    fake.put("kubectl", hooks());
    fake.put("kubectl", injector_config());
    let serving = std::sync::Arc::default();
    let config = Some(format!("{NAMESPACE}/{NAME}").parse().expect("a name"));
    let wanted = ClusterOptions {
        config,
        nodes: true,
        namespaces: true,
        proxy_configs: true,
        ..self_signed(&serving, &[NAME])
    };
    let replica = Replica::start(&fake, wanted).await;
    until("all is well", || {
        let status = replica.status();
        let parts = [
            &status.config,
            &status.certificate,
            &status.nodes,
            &status.namespaces,
            &status.proxy_configs,
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

    let (received, roles) = (fake.received(), roles());
    let beyond: Vec<_> = received.iter().filter(|received| !allowed(&roles, received)).collect();
    assert!(beyond.is_empty(), "{beyond:#?}");
    let refused = |method: &str, path: &str| {
        let received = Received {
            method: method.to_owned(),
            path: path.to_owned(),
            content_type: String::new(),
            status: 200,
        };
        !allowed(&roles, &received)
    };
    assert!(refused("DELETE", "/api/v1/nodes/a"));
    for unnamed in ["secrets", "configmaps"] {
        assert!(refused("GET", &format!("/api/v1/namespaces/{NAMESPACE}/{unnamed}")));
    }
}
