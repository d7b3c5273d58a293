//! Roles: read what reviews depend on, write the certificate's Secret and the caBundle.

use serde_json::{Value, json};

use super::names::Names;
use super::options::{Certificates, Options};

const READ: [&str; 3] = ["get", "list", "watch"];

pub(super) fn objects(options: &Options, names: &Names) -> Vec<Value> {
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": names.metadata(options, &names.injector()),
    });
    let mut everywhere = vec![rule("", "nodes", &[], &READ), rule("", "namespaces", &[], &READ)];
    // Lists and watches of one name are allowed when the request selects it by metadata.name.
    let mut here = vec![rule("", "configmaps", &[names.injector(), names.mesh()], &READ)];
    if options.certificates == Certificates::SelfSigned {
        everywhere.push(rule(
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations",
            &[names.injector()],
            &["get", "list", "watch", "patch"],
        ));
        here.push(rule("", "secrets", &[names.secret()], &["get", "list", "watch", "update"]));
        // An object that does not exist yet has no name to be allowed by.
        here.push(rule("", "secrets", &[], &["create"]));
    }
    let in_cluster = names.in_cluster(options);
    vec![
        account,
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": names.cluster_metadata(&in_cluster), "rules": everywhere,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": names.cluster_metadata(&in_cluster),
            "roleRef": role("ClusterRole", &in_cluster), "subjects": [subject(options, names)],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": names.metadata(options, &names.injector()), "rules": here,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": names.metadata(options, &names.injector()),
            "roleRef": role("Role", &names.injector()), "subjects": [subject(options, names)],
        }),
    ]
}

/// A rule for the objects of these names, or for all.
fn rule(group: &str, resource: &str, names: &[String], verbs: &[&str]) -> Value {
    let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    if let (false, Some(rule)) = (names.is_empty(), rule.as_object_mut()) {
        rule.insert("resourceNames".to_owned(), json!(names));
    }
    rule
}

fn role(kind: &str, name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name})
}

fn subject(options: &Options, names: &Names) -> Value {
    json!({"kind": "ServiceAccount", "name": names.injector(), "namespace": options.namespace.as_str()})
}
