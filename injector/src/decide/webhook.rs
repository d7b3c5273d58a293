//! The selectors in front of the injector: whether the API server calls a webhook for a pod at all.

use serde_json::{Map, Value, json};

use super::label_selector::Selector;
use super::webhook_selectors;
use crate::annotations::keys;
use crate::path::text;

/// One webhook of a `MutatingWebhookConfiguration`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    /// The name of its configuration.
    pub configuration: String,
    /// The webhook's own name.
    pub name: String,
    /// On the labels of the namespace.
    pub namespace_selector: Selector,
    /// On the labels of the pod.
    pub object_selector: Selector,
    /// The revision it calls, if its configuration says.
    pub revision: Option<String>,
    /// The names of its conditions in CEL, which are not evaluated.
    pub conditions: Vec<String>,
}

/// Every webhook that may inject; those of other programs are passed over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Webhooks {
    /// In the order in which the API server knows them.
    pub all: Vec<Webhook>,
}

/// Which webhook is called for a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Called {
    /// One webhook, and others after it: each injects.
    By(Webhook, Vec<Webhook>),
    /// None; for each webhook, what keeps it from being called.
    ByNone(Vec<(Webhook, Vec<String>)>),
}

impl Webhooks {
    /// Reads `MutatingWebhookConfiguration` objects: one, several, or a List. Other kinds are passed over.
    ///
    /// # Errors
    ///
    /// The webhook and the selector that cannot be read.
    pub fn parse(documents: &[Value]) -> Result<Self, String> {
        let mut all = Vec::new();
        for document in documents {
            match document.get("kind").and_then(Value::as_str) {
                Some("List" | "MutatingWebhookConfigurationList") => {
                    let items = document.get("items").and_then(Value::as_array);
                    all.extend(Self::parse(items.map_or(&[], Vec::as_slice))?.all);
                }
                Some("MutatingWebhookConfiguration") => all.extend(read(document)?),
                _ => {}
            }
        }
        Ok(Self { all })
    }

    /// Whether any of the documents is, or holds, a `MutatingWebhookConfiguration`.
    pub(crate) fn are_in(documents: &[Value]) -> bool {
        documents.iter().any(|document| match document.get("kind").and_then(Value::as_str) {
            Some("List" | "MutatingWebhookConfigurationList") => {
                document.get("items").and_then(Value::as_array).is_some_and(|items| Self::are_in(items))
            }
            kind => kind == Some("MutatingWebhookConfiguration"),
        })
    }

    /// The webhooks that an installation of this revision has; the empty revision is the default one.
    ///
    /// # Errors
    ///
    /// Never in practice: the selectors are ours.
    pub fn of_revision(revision: &str, by_default: bool) -> Result<Self, String> {
        let named = if revision.is_empty() { "default" } else { revision };
        let suffix = if revision.is_empty() { String::new() } else { format!("-{revision}") };
        Self::parse(&[json!({
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": format!("istio-sidecar-injector{suffix}"), "labels": {(keys::REVISION): named}},
            "webhooks": webhook_selectors::of_revision(revision, by_default, &[]),
        })])
    }

    /// Every webhook that the API server calls for a pod with these labels, in a namespace with those.
    pub fn all_called(
        &self,
        namespace: &Map<String, Value>,
        pod: &Map<String, Value>,
    ) -> impl Iterator<Item = &Webhook> {
        self.all.iter().filter(|webhook| {
            webhook.namespace_selector.matches(namespace) && webhook.object_selector.matches(pod)
        })
    }

    /// The webhooks that the API server calls for a pod with these labels, in a namespace with those.
    #[must_use]
    pub fn called(&self, namespace: &Map<String, Value>, pod: &Map<String, Value>) -> Called {
        let mut all = self.all_called(namespace, pod).cloned();
        if let Some(first) = all.next() {
            return Called::By(first, all.collect());
        }
        let unmet = |webhook: &Webhook| -> Vec<String> {
            let of_namespace = webhook.namespace_selector.unmet(namespace).into_iter();
            let of_pod = webhook.object_selector.unmet(pod).into_iter();
            let of_namespace = of_namespace.map(|text| format!("namespace: {text}"));
            of_namespace.chain(of_pod.map(|text| format!("pod: {text}"))).collect()
        };
        Called::ByNone(self.all.iter().map(|webhook| (webhook.clone(), unmet(webhook))).collect())
    }
}

fn read(document: &Value) -> Result<Vec<Webhook>, String> {
    let configuration = text(document, "/metadata/name");
    let revision =
        document.pointer("/metadata/labels/istio.io~1rev").and_then(Value::as_str).map(str::to_owned);
    let list = document.get("webhooks").and_then(Value::as_array);
    let injects = |webhook: &&Value| {
        text(webhook, "/name").ends_with(webhook_selectors::SUFFIX) && is_for_pods(webhook)
    };
    let webhooks = list.into_iter().flatten().filter(injects);
    webhooks
        .map(|webhook| {
            let name = text(webhook, "/name").to_owned();
            let selector = |key: &str| {
                Selector::parse(webhook.get(key).unwrap_or(&Value::Null))
                    .map_err(|problem| format!("{configuration}, webhook {name}, {key}: {problem}"))
            };
            let namespace_selector = selector("namespaceSelector")?;
            let object_selector = selector("objectSelector")?;
            let revision = revision.clone();
            let conditions = webhook.get("matchConditions").and_then(Value::as_array);
            let conditions = conditions.into_iter().flatten();
            let conditions = conditions.map(|condition| text(condition, "/name").to_owned()).collect();
            Ok(Webhook {
                configuration: configuration.to_owned(),
                name,
                namespace_selector,
                object_selector,
                revision,
                conditions,
            })
        })
        .collect()
}

/// Whether a webhook is called when a pod is created. One without rules counts: saved objects are often cut
/// down.
#[must_use]
pub fn is_for_pods(webhook: &Value) -> bool {
    let Some(rules) = webhook.get("rules").and_then(Value::as_array) else {
        return true;
    };
    const ACCEPTED: [(&str, &[&str]); 4] = [
        ("apiGroups", &["", "*"]),
        ("apiVersions", &["v1", "*"]),
        ("operations", &["CREATE", "*"]),
        ("resources", &["pods", "*", "*/*"]),
    ];
    // What a rule lacks was cut off.
    let accepts = |rule: &Value, key: &str, accepted: &[&str]| {
        let values = rule.get(key).and_then(Value::as_array);
        values.is_none_or(|values| {
            values.iter().filter_map(Value::as_str).any(|value| accepted.contains(&value))
        })
    };
    rules.iter().any(|rule| {
        rule.get("scope").and_then(Value::as_str) != Some("Cluster")
            && ACCEPTED.iter().all(|(key, accepted)| accepts(rule, key, accepted))
    })
}
