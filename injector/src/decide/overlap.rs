//! Webhook configurations that are called for the same pods, by the labels that select a revision.

use serde_json::{Map, Value, json};

use super::webhook::Webhooks;
use crate::annotations::keys::{INJECT, NAMESPACE_INJECTION, REVISION};

impl Webhooks {
    /// The configurations of `others` that are called where one of these is, each with the first labels for
    /// which both are.
    pub(crate) fn overlaps<'a>(&self, others: &'a Self, revision: &str) -> Vec<(&'a str, String)> {
        let named = if revision.is_empty() { "default" } else { revision };
        let label = |key: &str, value: &str| Map::from_iter([(key.to_owned(), json!(value))]);
        let none = Map::<String, Value>::new;
        let samples = [
            (label(REVISION, named), none(), format!("{REVISION}={named} on the namespace")),
            (none(), label(REVISION, named), format!("{REVISION}={named} on the pod")),
            (
                label(NAMESPACE_INJECTION, "enabled"),
                none(),
                format!("{NAMESPACE_INJECTION}=enabled on the namespace"),
            ),
            (none(), label(INJECT, "true"), format!("{INJECT}=true on the pod")),
            (none(), none(), "no label on namespace and pod".to_owned()),
        ];
        let mut found: Vec<(&str, String)> = Vec::new();
        for (namespace, pod, labels) in samples {
            if self.all_called(&namespace, &pod).next().is_none() {
                continue;
            }
            for other in others.all_called(&namespace, &pod).map(|webhook| webhook.configuration.as_str()) {
                if !found.iter().any(|(known, _)| *known == other) {
                    found.push((other, labels.clone()));
                }
            }
        }
        found
    }
}
