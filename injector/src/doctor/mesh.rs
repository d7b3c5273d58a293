//! What an injected pod needs to start: a namespace that allows its containers, and a control plane.

use serde_json::{Map, Value};

use super::cluster::{list, name, namespace_labels, text, title};
use super::hooks::Installation;
use super::{Context, Diagnosis, Finding, Problem, config};
use crate::decide::Called;
use crate::pod::security;

/// The ConfigMap with the root certificate that a control plane writes into every namespace.
const ROOT: &str = "istio-ca-root-cert";

pub(super) fn examine(context: &mut Context<'_>) {
    for installation in context.installations {
        let Some((sample, settings)) = config::sample(context.cluster, installation) else { continue };
        let address =
            settings.mesh.proxy().get("discoveryAddress").and_then(Value::as_str).unwrap_or_default();
        let mut volumes = list(&sample, "/spec/volumes").iter();
        let needs_root = volumes.any(|volume| text(volume, "/configMap/name") == ROOT);
        if needs_root {
            discovery(context, installation, address);
        }
        let own = name(installation.configuration);
        for namespace in context.cluster.all("Namespace") {
            let called = context.webhooks.called(&namespace_labels(namespace), &Map::new());
            let selected = matches!(called, Called::By(webhook, _) if webhook.configuration == own);
            if !selected || !context.is_requested(name(namespace)) {
                continue;
            }
            if needs_root {
                root(context, namespace);
            }
            pod_security(namespace, &sample, &mut context.diagnosis);
        }
    }
}

/// The Service of the control plane.
fn discovery(context: &mut Context<'_>, installation: &Installation<'_>, address: &str) {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let labels: Vec<&str> = host.split('.').collect();
    let [service, namespace, "svc", ..] = labels.as_slice() else { return };
    if !context.cluster.lacks("Service", namespace, service) {
        return;
    }
    context.diagnosis.found(Finding {
        problem: Problem::ControlPlaneMissing,
        object: format!("Service {namespace}/{service}"),
        seen: format!("the mesh config has discoveryAddress {address}, and that Service does not exist"),
        cause: format!(
            "proxies get no configuration, and pods stay in Init or not ready. The injector ({}) is no control plane: an istiod \
             is needed, too",
            installation.title()
        ),
        fix: format!("kubectl -n {namespace} get services   # install istiod, or correct discoveryAddress"),
    });
}

/// The root certificate, where the ConfigMaps of the namespace were read.
fn root(context: &mut Context<'_>, namespace: &Value) {
    if !context.cluster.lacks("ConfigMap", name(namespace), ROOT) {
        return;
    }
    context.diagnosis.found(Finding {
        problem: Problem::ControlPlaneMissing,
        object: title(namespace),
        seen: format!("it has no ConfigMap {ROOT}"),
        cause:
            "a control plane writes it into every namespace; pods that mount it stay in Init (FailedMount)"
                .to_owned(),
        fix: "kubectl -n istio-system get pods -l app=istiod   # install istiod, or see its log".to_owned(),
    });
}

fn pod_security(namespace: &Value, sample: &Value, diagnosis: &mut Diagnosis) {
    let Some(level) = security::enforced(namespace) else { return };
    let violations = security::of_injection(sample, level);
    if violations.is_empty() {
        return;
    }
    let own = name(namespace);
    diagnosis.found(Finding {
        problem: Problem::PodSecurity,
        object: title(namespace),
        seen: format!("{}={level}, and an injected pod violates it: {}", security::ENFORCE, violations.join("; ")),
        cause: "Kubernetes rejects every injected pod of the namespace".to_owned(),
        fix: format!(
            "let Istio's CNI plugin set the rules (pilot.cni.enabled: true in the values), which needs no istio-init; or: \
             kubectl label namespace {own} {}=privileged --overwrite",
            security::ENFORCE
        ),
    });
}
