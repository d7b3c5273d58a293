//! The rights of the injector's ServiceAccount: those that it uses, and no others.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::api::until;
use crate::control_plane::Cluster;
use crate::installation::Installation;
use crate::replica::Replica;

const MINE: &str = "NAMESPACE";
const NAME: &str = "NAME";

/// Verb, group, resource, namespace and name; whether it is allowed.
const TABLE: &[(&str, &str, &str, &str, &str, bool)] = &[
    ("watch", "", "nodes", "", "", true),
    ("patch", "", "nodes", "", "", false),
    ("list", "", "pods", "", "", false),
    ("create", "", "pods", MINE, "", false),
    ("list", "", "secrets", MINE, "", false),
    ("get", "", "secrets", MINE, "other", false),
    ("get", "", "secrets", "kube-system", "NAME-tls", false),
    ("get", "", "secrets", MINE, "NAME-tls", true),
    ("update", "", "secrets", MINE, "NAME-tls", true),
    ("delete", "", "secrets", MINE, "NAME-tls", false),
    ("watch", "", "configmaps", MINE, NAME, true),
    ("get", "", "configmaps", MINE, "other", false),
    ("update", "", "configmaps", MINE, NAME, false),
    ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", NAME, true),
    ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "other", false),
    ("delete", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", NAME, false),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", "", false),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", "", "", false),
    ("escalate", "rbac.authorization.k8s.io", "clusterroles", "", "", false),
];

pub(crate) fn the_service_account_may_do_no_more(cluster: &Cluster) {
    let installation = Installation::new(cluster, &[]);
    for (verb, group, resource, namespace, name, expected) in TABLE {
        let filled =
            |text: &str| text.replace(MINE, &installation.namespace).replace(NAME, &installation.name());
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
            "spec": {"user": installation.user(), "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": {"verb": verb, "group": group, "resource": resource,
                    "namespace": filled(namespace), "name": filled(name)}},
        });
        let allowed = || cluster.api.create(&review).expect("a review")["status"]["allowed"] == true;
        if *expected {
            until(&format!("{verb} {resource} {name} is allowed"), allowed);
        } else {
            assert!(!allowed(), "{verb} {resource} {name} in {namespace:?}");
        }
    }
}

/// As the audit log shows, over a life of the injector: first start, certificate, caBundle repaired, config
/// changed.
pub(crate) fn every_granted_verb_is_used(cluster: &Cluster) {
    if !cluster.is_own() {
        return println!(
            "every_granted_verb_is_used: NOT CHECKED: the audit log of this cluster is not at hand"
        );
    }
    for flags in [&[][..], &["--platform", "openshift"]] {
        let installation = Installation::new(cluster, flags);
        let replica = Replica::start(&installation, 1);
        until("the caBundle is written", || {
            installation.ca_bundles().iter().all(|bundle| !bundle.is_empty())
        });
        // A second replica reads the Secret that is there by now.
        let second = Replica::start(&installation, 2);
        let used = uses(cluster, &installation);
        assert!(used.iter().all(|(.., code)| *code != 403), "{used:?}");
        let used: BTreeSet<_> = used.into_iter().map(|(resource, verb, _)| (resource, verb)).collect();
        let granted: BTreeSet<_> =
            ["ClusterRole", "Role"].iter().flat_map(|kind| grants(installation.object(kind))).collect();
        let resources = |all: &BTreeSet<(String, String)>| -> BTreeSet<String> {
            all.iter().map(|(resource, _)| resource.clone()).collect()
        };
        assert_eq!(resources(&granted), resources(&used), "{flags:?}");
        assert!(used.is_subset(&granted), "{flags:?}: {used:?}");
        drop((replica, second));
    }
}

/// Resource and verb.
fn grants(role: &Value) -> Vec<(String, String)> {
    let texts = |rule: &Value, key: &str| -> Vec<String> {
        let list = rule[key].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let rules = role["rules"].as_array().expect("rules");
    let each = rules.iter().flat_map(|rule| {
        let verbs = texts(rule, "verbs");
        texts(rule, "resources")
            .into_iter()
            .flat_map(move |resource| verbs.clone().into_iter().map(move |verb| (resource.clone(), verb)))
    });
    each.collect()
}

/// Resource, verb and status.
fn uses(cluster: &Cluster, installation: &Installation<'_>) -> BTreeSet<(String, String, u64)> {
    let entries = cluster.audited(&installation.user());
    let text = |entry: &Value, pointer: &str| {
        entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let each = entries.iter().map(|entry| {
        let code = entry.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default();
        (text(entry, "/objectRef/resource"), text(entry, "/verb"), code)
    });
    each.collect()
}
