//! Pods that two webhook configurations match: the second one injects again, or differently.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::cluster::{labels, name, namespace_labels};
use super::{Context, Finding, Problem};
use crate::decide::INJECT;

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
        let Some(last) = configurations.last() else { continue };
        let names: Vec<&str> = namespaces.into_iter().collect();
        context.diagnosis.found(Finding {
            problem: Problem::Overlap,
            object: format!("MutatingWebhookConfiguration {}", configurations.join(", ")),
            seen: format!("all of them are called for pods of namespace {}", names.join(", ")),
            cause: "pods are injected twice, in the order of the names; the last one wins".to_owned(),
            fix: format!("kubectl delete mutatingwebhookconfiguration {last}   # or another one: keep the one that is meant"),
        });
    }
}
