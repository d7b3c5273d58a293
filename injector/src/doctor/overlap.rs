//! Pods that two webhook configurations match: the second one injects again, or differently.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::cluster::{labels, name, namespace_labels, text};
use super::hooks::Installation;
use super::{Context, Finding, Problem};
use crate::decide::webhook_selectors::{INJECTION, REVISION};
use crate::decide::{INJECT, Labels as _};
use crate::object;

pub(super) fn examine(context: &mut Context<'_>) {
    let mut pairs: BTreeMap<Vec<&str>, BTreeSet<&str>> = BTreeMap::new();
    for namespace in context.cluster.all("Namespace") {
        let of_namespace = namespace_labels(namespace);
        let asking: Map<String, Value> = [(INJECT.to_owned(), json!("true"))].into_iter().collect();
        let pods = context.cluster.within("Pod", name(namespace)).map(|pod| labels(pod, "/metadata/labels"));
        for pod in pods.chain([Map::new(), asking]) {
            let called = context.webhooks.all_called(&of_namespace, &pod);
            let called: BTreeSet<&str> = called.map(|webhook| webhook.configuration.as_str()).collect();
            if called.len() > 1 {
                pairs.entry(called.into_iter().collect()).or_default().insert(name(namespace));
            }
        }
    }
    for (configurations, namespaces) in pairs {
        let names: Vec<&str> = namespaces.into_iter().collect();
        let fix = fix(context, &configurations, &names);
        context.diagnosis.found(Finding {
            problem: Problem::Overlap,
            object: format!("MutatingWebhookConfiguration {}", configurations.join(", ")),
            seen: format!("all of them are called for pods of namespace {}", names.join(", ")),
            cause: "pods are injected twice, in the order of the names; the last one wins".to_owned(),
            fix,
        });
    }
}

/// How to choose one. A configuration is not deleted by itself: its installation makes it again, or is left
/// without.
fn fix(context: &Context<'_>, configurations: &[&str], namespaces: &[&str]) -> String {
    let named = |configuration: &&str| {
        context.installations.iter().find(|one| name(one.configuration) == *configuration)
    };
    let installations: Vec<&Installation<'_>> = configurations.iter().filter_map(named).collect();
    let described = installations.iter().map(|one| {
        let owner = object::owner(one.configuration).unwrap_or_else(|| "an unknown owner".to_owned());
        format!("{} (revision {}) belongs to {owner}", name(one.configuration), one.revision)
    });
    let described = described.collect::<Vec<_>>().join(", ");
    let tag = installations.iter().find_map(|one| {
        let tag = text(one.configuration, "/metadata/labels/istio.io~1tag");
        (!tag.is_empty()).then(|| format!("istioctl tag remove {tag}"))
    });
    let revisions: BTreeSet<&str> = installations.iter().map(|one| one.revision).collect();
    // A label would begin injection in a namespace that has none.
    let labelled = |namespace: &&&str| {
        let labels = context.cluster.namespace_labels(namespace);
        labels.is_some_and(|labels| [INJECTION, REVISION].iter().any(|key| labels.label(key).is_some()))
    };
    let labelled: Vec<&str> = namespaces.iter().filter(labelled).copied().collect();
    let selecting = revisions.iter().find(|revision| {
        !labelled.is_empty() && labelled.iter().all(|namespace| selects_one(context, namespace, revision))
    });
    match (selecting, tag) {
        (Some(revision), tag) => {
            let tag = tag.map(|tag| format!("; {tag} removes the tag")).unwrap_or_default();
            format!(
                "kubectl label namespace {} {REVISION}={revision} {INJECTION}- --overwrite   # or another revision: {described}{tag}",
                labelled.join(" ")
            )
        }
        (None, Some(tag)) => format!("{tag}   # no other label selects one of them: {described}"),
        (None, None) => format!("install one of them with a revision of its own: {described}"),
    }
}

/// Whether one configuration is called for the pods of a namespace with the label of a revision instead of
/// its own.
fn selects_one(context: &Context<'_>, namespace: &str, revision: &str) -> bool {
    let mut labels = context.cluster.namespace_labels(namespace).unwrap_or_default();
    labels.shift_remove(INJECTION);
    labels.insert(REVISION.to_owned(), json!(revision));
    let pod = Map::new();
    let called = context.webhooks.all_called(&labels, &pod);
    called.map(|webhook| webhook.configuration.as_str()).collect::<BTreeSet<_>>().len() == 1
}
