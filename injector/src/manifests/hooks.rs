//! The webhook configuration: Istio's selectors, and excluded namespaces.

use serde_json::{Map, Value, json};

use super::certificates;
use super::names::Names;
use super::options::{Certificates, Options};
use crate::decide::{SYSTEM_NAMESPACES, selectors};

/// Without `caBundle`: applying it again keeps what the injector has written.
pub(super) fn configuration(options: &Options, names: &Names) -> Value {
    // The cluster's own pods, and the injector's, must come up while no injector runs.
    let mut except = SYSTEM_NAMESPACES.to_vec();
    if !except.contains(&options.namespace.as_str()) {
        except.push(options.namespace.as_str());
    }
    let selectors = selectors::of_revision(options.revision.as_str(), options.by_default, &except);
    let webhooks: Vec<Value> = selectors.into_iter().map(|webhook| filled(webhook, options, names)).collect();
    let mut metadata = names.cluster_metadata(&names.injector());
    if options.certificates == Certificates::CertManager
        && let Some(metadata) = metadata.as_object_mut()
    {
        let annotations: Map<_, _> = [certificates::annotation(options, names)].into_iter().collect();
        metadata.insert("annotations".to_owned(), Value::Object(annotations));
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": metadata, "webhooks": webhooks,
    })
}

fn filled(mut webhook: Value, options: &Options, names: &Names) -> Value {
    let rest = json!({
        "admissionReviewVersions": ["v1", "v1beta1"],
        "clientConfig": {"service": {
            "name": names.injector(), "namespace": options.namespace.as_str(), "path": "/inject", "port": 443,
        }},
        "failurePolicy": options.failure_policy.as_str(),
        "matchPolicy": "Equivalent",
        "reinvocationPolicy": "IfNeeded",
        "rules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*",
        }],
        "sideEffects": "None",
        "timeoutSeconds": 10,
    });
    if let (Some(webhook), Value::Object(rest)) = (webhook.as_object_mut(), rest) {
        webhook.extend(rest);
    }
    webhook
}
