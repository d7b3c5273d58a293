//! The labels of namespaces.

use serde_json::{Map, Value};

use super::cluster::{Cluster, name, namespace_labels, title};
use super::hooks::Installation;
use super::{Diagnosis, Finding, Options, Problem};
use crate::decide::selectors::{INJECTION, REVISION, SUFFIX};
use crate::decide::{Called, Labels as _, SYSTEM_NAMESPACES, Webhooks};

const NOT_CALLED: &str = "no webhook is called for its pods: they come up without a sidecar";

pub(super) fn examine(
    cluster: &Cluster<'_>,
    installations: &[Installation<'_>],
    webhooks: &Webhooks,
    options: &Options,
    diagnosis: &mut Diagnosis,
) {
    if !cluster.knows("Namespace") {
        return diagnosis.not_checked("Namespaces: none among the objects");
    }
    for asked in &options.namespaces {
        if !cluster.all("Namespace").any(|namespace| name(namespace) == asked) {
            diagnosis.not_checked(format!("namespace {asked}: not among the objects"));
        }
    }
    for namespace in cluster.all("Namespace").filter(|namespace| ordinary(name(namespace), installations)) {
        let asked = options.namespaces.iter().any(|asked| asked == name(namespace));
        if asked || options.namespaces.is_empty() {
            one(namespace, asked, webhooks, diagnosis);
        }
    }
    if options.namespaces.is_empty() {
        selects_nothing(cluster, installations, webhooks, diagnosis);
    }
}

/// Whether pods of a namespace can be injected at all.
fn ordinary(namespace: &str, installations: &[Installation<'_>]) -> bool {
    !SYSTEM_NAMESPACES.contains(&namespace)
        && !installations
            .iter()
            .any(|installation| installation.service.is_some_and(|service| service.namespace == namespace))
}

fn one(namespace: &Value, asked: bool, webhooks: &Webhooks, diagnosis: &mut Diagnosis) {
    let labels = namespace_labels(namespace);
    let own = name(namespace);
    let (injection, revision) = (labels.label(INJECTION), labels.label(REVISION));
    let mut found = |problem: Problem, seen: String, cause: String, fix: String| {
        diagnosis.found(Finding { problem, object: title(namespace), seen, cause, fix });
    };
    let enable = enable(own, webhooks);
    if let (Some(injection), Some(revision)) = (injection, revision) {
        found(
            Problem::BothLabels,
            format!("it has {INJECTION}={injection} and {REVISION}={revision}"),
            format!("{INJECTION} wins: {REVISION} has no effect"),
            format!("kubectl label namespace {own} {INJECTION}-   # or {REVISION}-, whichever is not meant"),
        );
    }
    let kept = match webhooks.called(&labels, &Map::new()) {
        Called::By(_) => return,
        Called::ByNone(kept) => kept,
    };
    match (injection, revision) {
        (Some("disabled"), _) if !asked => found(
            Problem::NamespaceDisabled,
            format!("it has {INJECTION}=disabled"),
            "its pods are not injected, not even those that request it".to_owned(),
            enable,
        ),
        (Some("enabled"), _) => found(
            Problem::UnknownRevision,
            format!("it has {INJECTION}=enabled, and no webhook of the default revision selects it"),
            format!("no webhook matches its pods; installed: {}", revisions(webhooks)),
            "sidecar-injector manifests --replace-istiod | kubectl apply -f -".to_owned(),
        ),
        (Some(value), _) if value != "disabled" => {
            found(
                Problem::LabelValue,
                format!("it has {INJECTION}={value}"),
                "only enabled switches injection on; any other value switches it off".to_owned(),
                enable.clone(),
            );
            if asked {
                found(Problem::NotSelected, why_not(&kept), NOT_CALLED.to_owned(), enable);
            }
        }
        (None, Some(revision)) => found(
            Problem::UnknownRevision,
            format!("it has {REVISION}={revision}, and no webhook of that revision selects it"),
            format!("no webhook matches its pods; installed: {}", revisions(webhooks)),
            known(webhooks).first().map_or_else(
                || format!("sidecar-injector manifests --revision {revision} | kubectl apply -f -"),
                |known| format!("kubectl label namespace {own} {REVISION}={known} --overwrite"),
            ),
        ),
        _ if asked => found(Problem::NotSelected, why_not(&kept), NOT_CALLED.to_owned(), enable),
        _ => {}
    }
}

/// What keeps the webhooks from being called, each by its first unmet requirement.
pub(super) fn why_not(kept: &[(crate::decide::Webhook, Vec<String>)]) -> String {
    let each = kept.iter().map(|(webhook, unmet)| {
        let name = webhook.name.trim_end_matches(SUFFIX).trim_end_matches('.');
        format!("{name}: {}", unmet.join(", "))
    });
    format!("no webhook selects it ({})", each.collect::<Vec<_>>().join("; "))
}

/// The command that labels a namespace so that an installed revision injects its pods.
pub(super) fn enable(namespace: &str, webhooks: &Webhooks) -> String {
    match known(webhooks).as_slice() {
        [first, rest @ ..] if *first != "default" && !rest.contains(&"default") => {
            format!("kubectl label namespace {namespace} {INJECTION}- {REVISION}={first} --overwrite")
        }
        _ => format!("kubectl label namespace {namespace} {INJECTION}=enabled --overwrite"),
    }
}

fn known(webhooks: &Webhooks) -> Vec<&str> {
    let mut known: Vec<&str> =
        webhooks.all.iter().filter_map(|webhook| webhook.revision.as_deref()).collect();
    known.sort_unstable();
    known.dedup();
    known
}

pub(super) fn revisions(webhooks: &Webhooks) -> String {
    match known(webhooks).as_slice() {
        [] => "no revision".to_owned(),
        known => format!("revision {}", known.join(", ")),
    }
}

fn selects_nothing(
    cluster: &Cluster<'_>,
    installations: &[Installation<'_>],
    webhooks: &Webhooks,
    diagnosis: &mut Diagnosis,
) {
    for installation in installations {
        let configuration = name(installation.configuration);
        let calls = |labels: &Map<String, Value>, pod: &Map<String, Value>| {
            webhooks.all_called(labels, pod).any(|webhook| webhook.configuration == configuration)
        };
        let any = cluster.all("Namespace").any(|namespace| {
            let labels = namespace_labels(namespace);
            let mut pods = cluster.within("Pod", name(namespace));
            calls(&labels, &Map::new())
                || pods.any(|pod| calls(&labels, &super::cluster::labels(pod, "/metadata/labels")))
        });
        if !any {
            let label = match installation.revision {
                "default" => format!("{INJECTION}=enabled"),
                revision => format!("{REVISION}={revision}"),
            };
            diagnosis.found(Finding {
                problem: Problem::SelectsNothing,
                object: installation.title(),
                seen: "its selectors match no namespace and no pod".to_owned(),
                cause: "no namespace and no pod selects it".to_owned(),
                fix: format!("kubectl label namespace NAMESPACE {label}"),
            });
        }
    }
}
