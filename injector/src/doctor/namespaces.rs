//! The labels of namespaces.

use serde_json::{Map, Value};

use super::cluster::{name, namespace_labels, title};
use super::hooks::{self, Installation};
use super::{Context, Diagnosis, Finding, Problem};
use crate::decide::webhook_selectors::{INJECTION, REVISION, SUFFIX};
use crate::decide::{Called, Labels as _, SYSTEM_NAMESPACES, Webhooks};

const NOT_CALLED: &str = "no webhook is called for its pods: they come up without a sidecar";

pub(super) fn examine(context: &mut Context<'_>) {
    let cluster = context.cluster;
    if !cluster.knows("Namespace") {
        return context.diagnosis.not_checked("Namespaces: none among the objects");
    }
    let requested = &context.options.namespaces;
    for name in requested.iter().filter(|name| cluster.namespace_labels(name).is_none()) {
        context.diagnosis.not_checked(format!("namespace {name}: not among the objects"));
    }
    for namespace in cluster.all("Namespace") {
        // Nothing is created in it any more.
        if namespace.pointer("/metadata/deletionTimestamp").is_some() {
            if requested.iter().any(|requested| requested == name(namespace)) {
                let note = format!("namespace {}: it is being deleted", name(namespace));
                context.diagnosis.not_checked(note);
            }
        } else if ordinary(name(namespace), context.installations) && context.is_requested(name(namespace)) {
            one(namespace, !requested.is_empty(), context.webhooks, &mut context.diagnosis);
        }
    }
    if requested.is_empty() {
        selects_nothing(context);
    }
}

/// Whether any pod of a namespace can be injected.
fn ordinary(namespace: &str, installations: &[Installation<'_>]) -> bool {
    !SYSTEM_NAMESPACES.contains(&namespace)
        && !installations
            .iter()
            .any(|installation| installation.service.is_some_and(|service| service.namespace == namespace))
}

fn one(namespace: &Value, requested: bool, webhooks: &Webhooks, diagnosis: &mut Diagnosis) {
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
            format!(
                "kubectl label namespace {own} {INJECTION}-   # or {REVISION}-, whichever is not intended"
            ),
        );
    }
    let kept = match webhooks.called(&labels, &Map::new()) {
        Called::By(..) => return,
        Called::ByNone(kept) => kept,
    };
    match (injection, revision) {
        (Some("disabled"), _) if !requested => found(
            Problem::NamespaceDisabled,
            format!("it has {INJECTION}=disabled"),
            "its pods are not injected, not even those that request it".to_owned(),
            enable,
        ),
        (Some("enabled"), _) => found(
            Problem::UnknownRevision,
            format!("it has {INJECTION}=enabled, and no webhook of the default revision selects it"),
            format!("no webhook matches its pods; installed: {}", revisions(webhooks)),
            known(webhooks).first().map_or_else(
                || hooks::install(" --replace-istiod"),
                |known| format!("kubectl label namespace {own} {INJECTION}- {REVISION}={known} --overwrite"),
            ),
        ),
        (Some(value), _) if value != "disabled" => {
            found(
                Problem::LabelValue,
                format!("it has {INJECTION}={value}"),
                "only enabled switches injection on; any other value switches it off".to_owned(),
                enable.clone(),
            );
            if requested {
                found(Problem::NotSelected, why_not(&kept), NOT_CALLED.to_owned(), enable);
            }
        }
        (None, Some(revision)) => found(
            Problem::UnknownRevision,
            format!("it has {REVISION}={revision}, and no webhook of that revision selects it"),
            format!("no webhook matches its pods; installed: {}", revisions(webhooks)),
            known(webhooks).first().map_or_else(
                || hooks::install(&format!(" --revision {revision}")),
                |known| format!("kubectl label namespace {own} {REVISION}={known} --overwrite"),
            ),
        ),
        _ if requested => found(Problem::NotSelected, why_not(&kept), NOT_CALLED.to_owned(), enable),
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

fn selects_nothing(context: &mut Context<'_>) {
    let (cluster, webhooks) = (context.cluster, context.webhooks);
    for installation in context.installations {
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
            context.diagnosis.found(Finding {
                problem: Problem::SelectsNothing,
                object: installation.title(),
                seen: "its selectors match no namespace and no pod".to_owned(),
                cause: "no namespace and no pod selects it".to_owned(),
                fix: format!("kubectl label namespace NAMESPACE {label} --overwrite"),
            });
        }
    }
}
