//! Failed calls as the cluster reports them: Events, and conditions of ReplicaSets and Deployments.

use std::collections::BTreeMap;
use std::time::SystemTime;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::cluster::{Cluster, list, text, title};
use super::hooks::Installation;
use super::{Context, Finding, Problem, serving};
use crate::decide::Labels as _;
use crate::decide::webhook_selectors::{INJECTION, REVISION, SUFFIX};

/// Texts, what they come from, and what to do about them; `{ns}`, `{service}`, `{selector}` and
/// `{configuration}` are filled in.
struct KnownMessage {
    texts: &'static [&'static str],
    cause: &'static str,
    fix: &'static str,
}

const RESTART: &str = "kubectl -n {ns} rollout restart deployment {service}";
const LOOK: &str =
    "kubectl -n {ns} get pods,endpointslices -l {selector}; kubectl -n {ns} logs -l {selector} --tail=50";
const FIREWALL: &str = "let the control plane reach TCP port 15017 of the nodes and pods (a private GKE cluster: gcloud compute \
                        firewall-rules update NAME --allow tcp:10250,tcp:443,tcp:15017; pods on a network that the control plane \
                        does not route: run the injector with hostNetwork)";

/// The first that occurs in a message counts.
const KNOWN_MESSAGES: [KnownMessage; 10] = [
    KnownMessage {
        texts: &["certificate signed by unknown authority"],
        cause: "the caBundle is empty, or not that of the certificate that is served",
        fix: RESTART,
    },
    KnownMessage {
        texts: &["certificate has expired or is not yet valid"],
        cause: "the certificate that is served, or its CA, is not valid at this time",
        fix: RESTART,
    },
    KnownMessage {
        texts: &["certificate is not valid for any names"],
        cause: "the certificate that is served has no name",
        fix: RESTART,
    },
    KnownMessage {
        texts: &["certificate is valid for"],
        cause: "the certificate that is served is for other names than {service}.{ns}.svc",
        fix: RESTART,
    },
    KnownMessage {
        texts: &["no endpoints available"],
        cause: "no replica of the injector was ready",
        fix: LOOK,
    },
    KnownMessage {
        texts: &["no such host"],
        cause: "the Service did not exist, or the API server asked its own name server because it calls through a proxy",
        fix: "kubectl -n {ns} get service {service}",
    },
    KnownMessage {
        texts: &["not found"],
        cause: "the Service, or the path on which the webhook is called, did not exist",
        fix: "kubectl get mutatingwebhookconfiguration {configuration} -o jsonpath='{.webhooks[*].clientConfig.service}'",
    },
    KnownMessage {
        texts: &["Service Unavailable"],
        cause: "a proxy responded instead of the injector: the API server's no_proxy does not cover .svc",
        fix: "on each control plane node, add .svc to no_proxy in /etc/kubernetes/manifests/kube-apiserver.yaml",
    },
    KnownMessage { texts: &["connection refused"], cause: REFUSED, fix: LOOK },
    // The address that is called ends with ?timeout=: the word alone is not a sign of a timeout.
    KnownMessage {
        texts: &["context deadline exceeded", "i/o timeout", "handshake timeout", "Client.Timeout"],
        cause: LATE,
        fix: LOOK,
    },
];

const REFUSED: &str = "nothing listened on the port: the injector was starting or stopping, or the Service goes to another port";
const LATE: &str = "the call timed out, and no replica of the injector is ready";
const BLOCKED: &str = "the injector is ready, but the API server does not reach it: a firewall between control plane and nodes does \
                       not let TCP port 15017 through, or the control plane has no route to the network of pods";
const FOREIGN: &str = "may not be set for init containers without restartPolicy=Always";

/// Rejections by others than the injector.
const REJECTED: [KnownMessage; 6] = [
    KnownMessage {
        texts: &["violates PodSecurity"],
        cause: "the Pod Security level of the namespace rejects the pod; istio-init needs NET_ADMIN and NET_RAW",
        fix: "let Istio's CNI plugin set the rules (pilot.cni.enabled: true in the values), which needs no istio-init; or: kubectl \
              label namespace {pods} pod-security.kubernetes.io/enforce=privileged --overwrite",
    },
    KnownMessage {
        texts: &["exceeded quota", "failed quota"],
        cause: "the resources of the pod, the sidecar's included, exceed a ResourceQuota",
        fix: "kubectl -n {pods} describe resourcequota   # raise it, or annotate the pod: sidecar.istio.io/proxyCPU, proxyMemory, \
              proxyCPULimit, proxyMemoryLimit",
    },
    KnownMessage {
        texts: &["usage per Container", "usage per Pod", "to request ratio per"],
        cause: "the resources of a container, maybe the sidecar's, are outside of a LimitRange",
        fix: "kubectl -n {pods} describe limitrange   # change it, or annotate the pod: sidecar.istio.io/proxyCPU, proxyMemory, \
              proxyCPULimit, proxyMemoryLimit",
    },
    KnownMessage {
        texts: &["unable to validate against any security context constraint"],
        cause: "no SecurityContextConstraints that the pods' ServiceAccount may use admits the pod; istio-init needs NET_ADMIN, NET_RAW \
                and user 0",
        fix: "let Istio's CNI plugin set the rules (pilot.cni.enabled: true in the values), which needs no istio-init, and install with \
              --platform openshift, which takes users from the namespace's range",
    },
    KnownMessage {
        texts: &["ValidatingAdmissionPolicy "],
        cause: "the ValidatingAdmissionPolicy of the message rejects the pods; it also applies to injected containers and volumes",
        fix: "kubectl get validatingadmissionpolicies,validatingadmissionpolicybindings   # docs/injection.md, Policies: what each kind finds \
              in injected pods, and the setting that helps",
    },
    KnownMessage {
        texts: &["admission webhook \""],
        cause: "the webhook of the message rejects the pods; it also applies to injected containers and volumes",
        fix: "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations   # docs/injection.md, Policies: what each kind of \
              policy finds in injected pods, and the setting that helps",
    },
];

/// A message about a workload.
struct Message<'a> {
    object: String,
    namespace: &'a str,
    text: &'a str,
    /// When it was last reported.
    at: &'a str,
    /// Whether it is about pods that are not created, whatever the reason.
    not_created: bool,
}

impl Message<'_> {
    /// As much of it as a report needs.
    fn start(&self) -> String {
        self.text.chars().take(400).collect()
    }
}

pub(super) fn examine(context: &mut Context<'_>) {
    if !context.cluster.knows("Event") {
        context.diagnosis.not_checked("Events: none among the objects");
    }
    let mut found: BTreeMap<(Problem, String), (Finding, usize)> = BTreeMap::new();
    let requested =
        |message: &Message<'_>| message.namespace.is_empty() || context.is_requested(message.namespace);
    for message in messages(context.cluster).into_iter().filter(requested) {
        let finding = read(context, &message).or_else(|| rejected(context, &message));
        if let Some(mut finding) = finding {
            if let Some(age) = age(message.at, context.options.now) {
                finding.seen = format!("{age} ago: {}", finding.seen);
            }
            let key = (finding.problem, finding.cause.clone());
            found.entry(key).or_insert((finding, 0)).1 += 1;
        }
    }
    for (mut finding, count) in found.into_values() {
        if count > 1 {
            finding.object = format!("{} and {} more", finding.object, count - 1);
        }
        context.diagnosis.found(finding);
    }
}

/// Messages of the present, each once: events remain for an hour after the problem is solved.
fn messages<'a>(cluster: &Cluster<'a>) -> Vec<Message<'a>> {
    let mut all: Vec<Message<'a>> = Vec::new();
    for event in cluster.all("Event") {
        let about = ["/involvedObject", "/regarding"].into_iter().find_map(|pointer| event.pointer(pointer));
        let field = |key: &str| about.map(|about| text(about, key)).unwrap_or_default();
        let (kind, namespace, name) = (field("/kind"), field("/namespace"), field("/name"));
        let object = about.map_or_else(String::new, |_| format!("{kind} {namespace}/{name}"));
        let first = |pointers: &[&str]| {
            pointers
                .iter()
                .map(|pointer| text(event, pointer))
                .find(|text| !text.is_empty())
                .unwrap_or_default()
        };
        let at = first(&["/series/lastObservedTime", "/lastTimestamp", "/eventTime"]);
        let not_created = text(event, "/reason") == "FailedCreate";
        let text = first(&["/message", "/note"]);
        if !text.is_empty() && !has_its_pods(cluster, kind, namespace, name) {
            all.push(Message { object, namespace, text, at, not_created });
        }
    }
    // Deployments repeat the messages of their ReplicaSets.
    for kind in ["ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job", "ReplicationController"] {
        for object in cluster.all(kind) {
            let failed = list(object, "/status/conditions").iter().filter(|condition| is_failure(condition));
            for condition in failed {
                let (message, at) = (text(condition, "/message"), text(condition, "/lastTransitionTime"));
                if !all.iter().any(|known| known.text.contains(message)) {
                    let namespace = text(object, "/metadata/namespace");
                    all.push(Message {
                        object: title(object),
                        namespace,
                        text: message,
                        at,
                        not_created: true,
                    });
                }
            }
        }
    }
    all
}

/// Whether a workload has the pods that it wants by now, or is gone. One whose kind was not read is not known
/// to.
fn has_its_pods(cluster: &Cluster<'_>, kind: &str, namespace: &str, name: &str) -> bool {
    let counted =
        matches!(kind, "DaemonSet" | "Job" | "ReplicaSet" | "ReplicationController" | "StatefulSet");
    if !counted || !cluster.knows(kind) {
        return false;
    }
    let Some(object) = cluster.find(kind, namespace, name) else { return true };
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_u64);
    let (has, wants) = match kind {
        "DaemonSet" => (number("/status/currentNumberScheduled"), number("/status/desiredNumberScheduled")),
        "Job" => {
            let ended = list(object, "/status/conditions").iter().any(|condition| {
                text(condition, "/status") == "True"
                    && matches!(text(condition, "/type"), "Complete" | "Failed")
            });
            (number("/status/active"), Some(u64::from(!ended)))
        }
        _ => (number("/status/replicas"), number("/spec/replicas").or(Some(1))),
    };
    has.unwrap_or(0) >= wants.unwrap_or(0)
}

/// `12 min`, of an RFC 3339 time.
fn age(at: &str, now: SystemTime) -> Option<String> {
    let at: Timestamp = at.parse().ok()?;
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    let seconds = now.saturating_sub(u64::try_from(at.as_second()).ok()?);
    Some(match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h", seconds / 3600),
    })
}

/// A pod of an injected namespace that the API server or another webhook rejects.
fn rejected(context: &Context<'_>, message: &Message<'_>) -> Option<Finding> {
    let labels = context.cluster.namespace_labels(message.namespace)?;
    let injected = labels.label(INJECTION) == Some("enabled") || labels.label(REVISION).is_some();
    if !message.not_created || !(injected || context.is_named(message.namespace)) {
        return None;
    }
    let known = REJECTED.iter().find(|known| known.texts.iter().any(|text| message.text.contains(text)));
    let (cause, fix) = known.map_or(
        (
            "the API server, or another webhook, rejects the pods; the message says why",
            "kubectl -n {pods} get events",
        ),
        |known| (known.cause, known.fix),
    );
    Some(Finding {
        problem: Problem::PodDenied,
        object: message.object.clone(),
        seen: message.start(),
        cause: cause.to_owned(),
        fix: fix.replace("{pods}", message.namespace),
    })
}

fn is_failure(condition: &Value) -> bool {
    text(condition, "/status") == "True" && text(condition, "/reason") == "FailedCreate"
}

fn read(context: &Context<'_>, message: &Message<'_>) -> Option<Finding> {
    let (object, seen, message) = (message.object.clone(), message.start(), message.text);
    if message.contains(FOREIGN) {
        return Some(Finding {
            problem: Problem::PodDenied,
            object,
            seen,
            cause: "another mutating webhook rewrote the pod and removed restartPolicy: Always of the native sidecar".to_owned(),
            fix: "kubectl get mutatingwebhookconfigurations   # update the other one, or annotate the pod: \
                  sidecar.istio.io/nativeSidecar: \"false\""
                .to_owned(),
        });
    }
    if !message.contains(SUFFIX) {
        return None;
    }
    if let Some((_, reason)) = message.split_once("denied the request: ") {
        return Some(Finding {
            problem: Problem::PodDenied,
            object,
            cause: format!("the injector denies the pod: {reason}"),
            seen,
            fix: "sidecar-injector check -f FILE   # checks the workload's file in the same way, before it is applied".to_owned(),
        });
    }
    let named = |one: &&Installation<'_>| one.service.is_some_and(|called| message.contains(&called.host()));
    let installation = context.installations.iter().find(named).or_else(|| context.installations.first());
    let called = installation.and_then(|one| one.service);
    let ready = called.and_then(|called| serving::ready(context.cluster, called));
    let (cause, fix) = KNOWN_MESSAGES
        .iter()
        .find(|known| known.texts.iter().any(|text| message.contains(text)))
        .map_or(("the call failed; the message says how", LOOK), |known| match (known.cause, ready) {
            (LATE, Some(true)) => (BLOCKED, FIREWALL),
            (cause, _) => (cause, known.fix),
        });
    Some(Finding {
        problem: Problem::CallFailed,
        object,
        seen,
        cause: filled(cause, installation, context.cluster),
        fix: filled(fix, installation, context.cluster),
    })
}

fn filled(text: &str, installation: Option<&Installation<'_>>, cluster: &Cluster<'_>) -> String {
    let service = installation.and_then(|installation| installation.service);
    let (namespace, name) = service
        .map_or(("istio-system", "istio-sidecar-injector"), |service| (service.namespace, service.name));
    let configuration =
        installation.map_or("istio-sidecar-injector", |one| super::cluster::name(one.configuration));
    let selector = cluster.find("Service", namespace, name).map(serving::selected_labels);
    let selector = selector.unwrap_or_else(|| "istio=sidecar-injector".to_owned());
    let text = text.replace("{ns}", namespace).replace("{service}", name);
    text.replace("{configuration}", configuration).replace("{selector}", &selector)
}
