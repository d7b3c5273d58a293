//! What an injected pod needs to come up: a namespace that allows its containers, and a control plane.

use serde_json::{Map, Value};

use super::cluster::{Cluster, list, name, namespace_labels, text, title};
use super::hooks::Installation;
use super::{Diagnosis, Finding, Options, Problem, config};
use crate::decide::{Called, Webhooks};
use crate::pod::security;

/// The ConfigMap with the root certificate that a control plane writes into every namespace.
const ROOT: &str = "istio-ca-root-cert";

pub(super) fn examine(
    cluster: &Cluster<'_>,
    installations: &[Installation<'_>],
    webhooks: &Webhooks,
    options: &Options,
    diagnosis: &mut Diagnosis,
) {
    for installation in installations {
        let Some((sample, settings)) = config::sample(cluster, installation) else { continue };
        let address =
            settings.mesh.proxy().get("discoveryAddress").and_then(Value::as_str).unwrap_or_default();
        let mut volumes = list(&sample, "/spec/volumes").iter();
        let needs_root = volumes.any(|volume| text(volume, "/configMap/name") == ROOT);
        if needs_root {
            discovery(cluster, installation, address, diagnosis);
        }
        let own = name(installation.configuration);
        for namespace in cluster.all("Namespace") {
            let asked =
                options.namespaces.is_empty() || options.namespaces.iter().any(|one| one == name(namespace));
            let called = webhooks.called(&namespace_labels(namespace), &Map::new());
            if !asked || !matches!(called, Called::By(webhook) if webhook.configuration == own) {
                continue;
            }
            if needs_root {
                root(cluster, namespace, diagnosis);
            }
            pod_security(namespace, &sample, diagnosis);
        }
    }
}

/// The Service of the control plane.
fn discovery(
    cluster: &Cluster<'_>,
    installation: &Installation<'_>,
    address: &str,
    diagnosis: &mut Diagnosis,
) {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let labels: Vec<&str> = host.split('.').collect();
    let [service, namespace, "svc", ..] = labels.as_slice() else { return };
    if cluster.within("Service", namespace).next().is_none()
        || cluster.find("Service", namespace, service).is_some()
    {
        return;
    }
    diagnosis.found(Finding {
        problem: Problem::ControlPlaneMissing,
        object: format!("Service {namespace}/{service}"),
        seen: format!("the mesh config has discoveryAddress {address}, and that Service does not exist"),
        cause: format!(
            "proxies get no configuration, and pods stay in Init or not ready. The injector ({}) is no control plane: an istiod \
             is needed beside it",
            installation.title()
        ),
        fix: format!("kubectl -n {namespace} get services   # install istiod, or correct discoveryAddress"),
    });
}

/// The root certificate, where the ConfigMaps of the namespace were read.
fn root(cluster: &Cluster<'_>, namespace: &Value, diagnosis: &mut Diagnosis) {
    let own = name(namespace);
    if cluster.within("ConfigMap", own).next().is_none() || cluster.find("ConfigMap", own, ROOT).is_some() {
        return;
    }
    diagnosis.found(Finding {
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
    let violations = security::violations(sample, level);
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
