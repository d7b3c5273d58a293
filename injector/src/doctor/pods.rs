//! Pods without a sidecar, and why: by the webhooks' selectors and the injector's own decision.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value, json};

use super::cluster::{Cluster, labels, name, text};
use super::hooks::Installation;
use super::namespaces::{enable, revisions, why_not};
use super::serving::PODS;
use super::{Context, Finding, Problem, config};
use crate::decide::webhook_selectors::{INJECTION, REVISION};
use crate::decide::{self, Called, INJECT, Policy, Reason, Rules, SYSTEM_NAMESPACES, Webhook};
use crate::pod::list::{self, all_containers};
use crate::pod::status::Status;
use crate::pod::workload::Workload;
use crate::pod::{AUTO_IMAGE, PROXY};

const AUTO: &str = "container istio-proxy has image: auto, which no injector replaced";

/// What was found about the pods of one workload.
struct Found {
    seen: String,
    cause: String,
    fix: String,
    pods: usize,
}

pub(super) fn examine(context: &mut Context<'_>) {
    let cluster = context.cluster;
    if !cluster.knows("Pod") {
        return context.diagnosis.not_checked(PODS);
    }
    let mut by_workload: BTreeMap<(String, Problem), Found> = BTreeMap::new();
    let rules = rules(cluster, context.installations);
    for pod in cluster.all("Pod") {
        let namespace = text(pod, "/metadata/namespace");
        let over = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
        let Some(of_namespace) = cluster.namespace_labels(namespace) else { continue };
        if over {
            continue;
        }
        let check = PodCheck { context, rules: &rules, pod, namespace, of_namespace };
        if let Some((problem, seen, cause)) = check.run() {
            let workload = Workload::of_pod(pod, namespace);
            let title = format!("{} {namespace}/{}", workload.kind, workload.name);
            let fix = check.fix(problem, &workload);
            let found = by_workload.entry((title, problem)).or_insert(Found { seen, cause, fix, pods: 0 });
            found.pods += 1;
        }
    }
    for ((object, problem), Found { seen, cause, fix, pods }) in by_workload {
        let object = if pods > 1 { format!("{object} ({pods} pods)") } else { object };
        context.diagnosis.found(Finding { problem, object, seen, cause, fix });
    }
}

/// What the configs say, by webhook configuration. One that cannot be read is reported for the ConfigMap.
fn rules<'a>(cluster: &Cluster<'_>, installations: &[Installation<'a>]) -> HashMap<&'a str, Rules> {
    let each = installations.iter().filter_map(|installation| {
        let rules = match config::map(cluster, installation) {
            Some(map) => config::settings(cluster, installation, map).ok()?.injector.rules,
            None => Rules { policy: Policy::Enabled, never: Vec::new(), always: Vec::new() },
        };
        Some((name(installation.configuration), rules))
    });
    each.collect()
}

struct PodCheck<'a, 'b> {
    context: &'b Context<'a>,
    rules: &'b HashMap<&'a str, Rules>,
    pod: &'a Value,
    namespace: &'a str,
    of_namespace: Map<String, Value>,
}

/// Problem, what was seen, and the cause.
type Verdict = Option<(Problem, String, String)>;

impl PodCheck<'_, '_> {
    fn run(&self) -> Verdict {
        if SYSTEM_NAMESPACES.contains(&self.namespace) {
            return self.of_system();
        }
        let labels = labels(self.pod, "/metadata/labels");
        let called = self.context.webhooks.called(&self.of_namespace, &labels);
        if left_over(self.pod) {
            let cause = match &called {
                Called::By(webhook, _) => format!(
                    "{} is called for such a pod now: it was created before, or while the injector was unavailable and failurePolicy was Ignore",
                    webhook.name
                ),
                Called::ByNone(kept) => why_not(kept),
            };
            return Some((Problem::ImageAuto, AUTO.to_owned(), cause));
        }
        if list::proxy(self.pod).is_some() || Status::of(self.pod).is_some() {
            return self.of_ended_job();
        }
        match called {
            Called::By(webhook, _) => self.of_called(&webhook),
            Called::ByNone(kept) => self.of_not_called(&kept),
        }
    }

    /// A Job whose own containers have ended, and whose proxy runs on.
    fn of_ended_job(&self) -> Verdict {
        let owners = super::cluster::list(self.pod, "/metadata/ownerReferences");
        let statuses = super::cluster::list(self.pod, "/status/containerStatuses");
        let (proxy, own): (Vec<&Value>, Vec<&Value>) =
            statuses.iter().partition(|one| list::name(one) == PROXY);
        let ended = |one: &&Value| one.pointer("/state/terminated").is_some();
        let stuck = !own.is_empty() && own.iter().all(ended) && proxy.iter().any(|one| !ended(one));
        (stuck && owners.iter().any(|owner| text(owner, "/kind") == "Job")).then(|| {
            let cause =
                "istio-proxy is not a native sidecar: it runs on, and the Job never completes".to_owned();
            (Problem::JobNeverEnds, "all containers but istio-proxy have ended".to_owned(), cause)
        })
    }

    /// System pods have no sidecar; a request for one is odd.
    fn of_system(&self) -> Verdict {
        let requested =
            [list::label(self.pod, INJECT), list::annotation(self.pod, INJECT)].contains(&Some("true"));
        let cause = format!(
            "namespace {} belongs to the cluster itself: its pods are never injected",
            self.namespace
        );
        if left_over(self.pod) {
            return Some((Problem::ImageAuto, AUTO.to_owned(), cause));
        }
        requested.then(|| (Problem::RequestIgnored, format!("{INJECT} is \"true\""), cause))
    }

    /// A webhook would be called, and there is no sidecar.
    fn of_called(&self, webhook: &Webhook) -> Verdict {
        let mut installations = self.context.installations.iter();
        let installation =
            installations.find(|installation| name(installation.configuration) == webhook.configuration)?;
        let decision =
            decide::decide(self.pod, self.namespace, self.rules.get(webhook.configuration.as_str())?);
        let seen = "it has no sidecar".to_owned();
        if !decision.inject() {
            let problem = match decision.reason()?.reason {
                Reason::UnknownPolicy => return None, // reported once, for the ConfigMap
                Reason::HostNetwork => Problem::HostNetwork,
                Reason::Pod => Problem::OptedOut,
                Reason::StaticPod
                | Reason::SystemNamespace
                | Reason::NeverSelector
                | Reason::AlwaysSelector
                | Reason::Policy
                | Reason::Webhook => Problem::Excluded,
            };
            return Some((problem, seen, decision.to_string()));
        }
        let created = |object: &Value| text(object, "/metadata/creationTimestamp").to_owned();
        let (pod, webhook_since) = (created(self.pod), created(installation.configuration));
        // Times of Kubernetes have one form, which sorts as text. They are in seconds, and API servers learn
        // of a webhook some time after it was created.
        if !pod.is_empty() && pod <= webhook_since {
            let cause = format!(
                "it was created at {pod}, before the webhook ({webhook_since}) was in force: pods are injected when they are created"
            );
            return Some((Problem::OlderThanWebhook, seen, cause));
        }
        let cause = format!(
            "{} is called for such a pod, and the injector injects it: it was created before its namespace was labelled, or while the \
             injector was unavailable and failurePolicy was Ignore",
            webhook.name
        );
        Some((Problem::SidecarMissing, seen, cause))
    }

    fn of_not_called(&self, kept: &[(Webhook, Vec<String>)]) -> Verdict {
        let label = list::label(self.pod, INJECT);
        if label == Some("false") {
            let mut without = labels(self.pod, "/metadata/labels");
            without.shift_remove(INJECT);
            let otherwise =
                matches!(self.context.webhooks.called(&self.of_namespace, &without), Called::By(..));
            let cause = "the selectors exclude such pods: the injector is not called".to_owned();
            return otherwise.then(|| (Problem::OptedOut, format!("its label {INJECT} is \"false\""), cause));
        }
        if label == Some("true") {
            return Some((Problem::RequestIgnored, format!("its label {INJECT} is \"true\""), why_not(kept)));
        }
        if let Some(revision) = list::label(self.pod, REVISION) {
            let seen = format!("its label {REVISION} is {revision:?}, and no webhook is called");
            return Some((
                Problem::UnknownRevision,
                seen,
                format!("installed: {}", revisions(self.context.webhooks)),
            ));
        }
        let annotation = list::annotation(self.pod, INJECT) == Some("true");
        annotation.then(|| {
            let cause = format!(
                "the annotation has an effect only if a webhook is called, and selectors match labels; {}",
                why_not(kept)
            );
            (Problem::RequestIgnored, format!("its annotation {INJECT} is \"true\""), cause)
        })
    }

    fn fix(&self, problem: Problem, workload: &Workload) -> String {
        let namespace = self.namespace;
        let again = match workload.kind.as_str() {
            kind @ ("DaemonSet" | "Deployment" | "StatefulSet") => {
                format!("kubectl -n {namespace} rollout restart {} {}", kind.to_lowercase(), workload.name)
            }
            _ => format!(
                "kubectl -n {namespace} delete pod {}   # its owner creates it again; apply a bare pod again",
                name(self.pod)
            ),
        };
        let called = matches!(
            self.context.webhooks.called(&self.of_namespace, &labels(self.pod, "/metadata/labels")),
            Called::By(..)
        );
        if !called
            && matches!(problem, Problem::RequestIgnored | Problem::ImageAuto | Problem::UnknownRevision)
        {
            if !self.a_label_helps() {
                return format!(
                    "put the workload into another namespace: no label makes a webhook be called in {namespace}"
                );
            }
            return format!("{} && {again}", enable(namespace, self.context.webhooks));
        }
        if problem == Problem::JobNeverEnds {
            return "annotate the pod template: sidecar.istio.io/nativeSidecar: \"true\" (nodes of Kubernetes 1.29 or later)".to_owned();
        }
        if problem == Problem::OptedOut {
            return format!("in the pod template, remove {INJECT}; then {again}");
        }
        if problem == Problem::HostNetwork {
            return "in the pod template, remove hostNetwork, if the sidecar is needed".to_owned();
        }
        if problem == Problem::Excluded { self.config_command() } else { again }
    }

    /// Whether a webhook would be called if the namespace were labelled.
    fn a_label_helps(&self) -> bool {
        let pod = labels(self.pod, "/metadata/labels");
        let revisions = self.context.webhooks.all.iter().filter_map(|webhook| webhook.revision.as_deref());
        let wanted = revisions.map(|revision| (REVISION, revision)).chain([(INJECTION, "enabled")]);
        let called = wanted.map(|(key, value)| {
            let mut labelled = self.of_namespace.clone();
            labelled.shift_remove(INJECTION);
            labelled.insert(key.to_owned(), json!(value));
            matches!(self.context.webhooks.called(&labelled, &pod), Called::By(..))
        });
        !SYSTEM_NAMESPACES.contains(&self.namespace) && called.into_iter().any(|called| called)
    }

    fn config_command(&self) -> String {
        let maps = self
            .context
            .installations
            .iter()
            .find_map(|installation| config::map(self.context.cluster, installation));
        maps.map_or_else(String::new, |map| {
            format!("kubectl -n {} edit configmap {}", text(map, "/metadata/namespace"), name(map))
        })
    }
}

fn left_over(pod: &Value) -> bool {
    all_containers(pod)
        .any(|container| list::name(container) == PROXY && text(container, "/image") == AUTO_IMAGE)
}
