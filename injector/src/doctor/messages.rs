//! Failed calls as the cluster reports them: Events, and conditions of ReplicaSets and Deployments.

use std::collections::BTreeMap;

use serde_json::Value;

use super::cluster::{Cluster, list, text, title};
use super::hooks::Installation;
use super::{Diagnosis, Finding, Problem, serving};
use crate::decide::selectors::SUFFIX;

/// Texts, what they come from, and what to do about them; `{ns}`, `{service}` and `{configuration}` are filled in.
struct Known {
    texts: &'static [&'static str],
    cause: &'static str,
    fix: &'static str,
}

const RESTART: &str = "kubectl -n {ns} rollout restart deployment {service}";
const LOOK: &str = "kubectl -n {ns} get pods,endpointslices -l istio=sidecar-injector; kubectl -n {ns} logs -l istio=sidecar-injector --tail=50";
const FIREWALL: &str = "let the control plane reach TCP port 15017 of the nodes and pods (a private GKE cluster: gcloud compute \
                        firewall-rules update NAME --allow tcp:10250,tcp:443,tcp:15017; pods on a network that the control plane \
                        does not route: run the injector with hostNetwork)";

/// The first that occurs in a message counts.
const KNOWN: [Known; 10] = [
    Known {
        texts: &["certificate signed by unknown authority"],
        cause: "the caBundle is empty, or not that of the certificate that is served",
        fix: RESTART,
    },
    Known {
        texts: &["certificate has expired or is not yet valid"],
        cause: "the certificate that is served, or its CA, is not valid at this time",
        fix: RESTART,
    },
    Known {
        texts: &["certificate is not valid for any names"],
        cause: "the certificate that is served has no name",
        fix: RESTART,
    },
    Known {
        texts: &["certificate is valid for"],
        cause: "the certificate that is served is for other names than {service}.{ns}.svc",
        fix: RESTART,
    },
    Known { texts: &["no endpoints available"], cause: "no replica of the injector was ready", fix: LOOK },
    Known {
        texts: &["no such host"],
        cause: "the Service was not there, or the API server asked its own name server because it calls by way of a proxy",
        fix: "kubectl -n {ns} get service {service}",
    },
    Known {
        texts: &["not found"],
        cause: "the Service, or the path on which the webhook is called, was not there",
        fix: "kubectl get mutatingwebhookconfiguration {configuration} -o jsonpath='{.webhooks[*].clientConfig.service}'",
    },
    Known {
        texts: &["Service Unavailable"],
        cause: "a proxy responded instead of the injector: the API server's no_proxy does not cover .svc",
        fix: "on each control plane node, add .svc to no_proxy in /etc/kubernetes/manifests/kube-apiserver.yaml",
    },
    Known { texts: &["connection refused"], cause: REFUSED, fix: LOOK },
    // The address that is called ends with ?timeout=: the word alone is no sign of a timeout.
    Known {
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

pub(super) fn examine(cluster: &Cluster<'_>, installations: &[Installation<'_>], diagnosis: &mut Diagnosis) {
    if !cluster.knows("Event") {
        diagnosis.not_checked("Events: none among the objects");
    }
    let mut found: BTreeMap<(Problem, String), (Finding, usize)> = BTreeMap::new();
    for (object, message) in messages(cluster) {
        if let Some(finding) = read(cluster, installations, object, message) {
            let key = (finding.problem, finding.cause.clone());
            found.entry(key).or_insert((finding, 0)).1 += 1;
        }
    }
    for (mut finding, count) in found.into_values() {
        if count > 1 {
            finding.object = format!("{} and {} more", finding.object, count - 1);
        }
        diagnosis.found(finding);
    }
}

/// Messages with the object that they are about, each once.
fn messages<'a>(cluster: &Cluster<'a>) -> Vec<(String, &'a str)> {
    let mut all = Vec::new();
    for event in cluster.all("Event") {
        let about = ["/involvedObject", "/regarding"].into_iter().find_map(|pointer| event.pointer(pointer));
        let about = about.map_or_else(String::new, |about| {
            format!("{} {}/{}", text(about, "/kind"), text(about, "/namespace"), text(about, "/name"))
        });
        let message = [text(event, "/message"), text(event, "/note")];
        all.extend(
            message.into_iter().filter(|message| !message.is_empty()).map(|message| (about.clone(), message)),
        );
    }
    // Deployments repeat the messages of their ReplicaSets.
    for kind in ["ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Job"] {
        for object in cluster.all(kind) {
            let failed = list(object, "/status/conditions").iter().filter(|condition| is_failure(condition));
            for condition in failed {
                let message = text(condition, "/message");
                if !all.iter().any(|(_, known)| known.contains(message)) {
                    all.push((title(object), message));
                }
            }
        }
    }
    all
}

fn is_failure(condition: &Value) -> bool {
    text(condition, "/status") == "True" && text(condition, "/reason") == "FailedCreate"
}

fn read(
    cluster: &Cluster<'_>,
    installations: &[Installation<'_>],
    object: String,
    message: &str,
) -> Option<Finding> {
    let seen: String = message.chars().take(400).collect();
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
    let installation =
        installations.iter().find(|one| called_in(one, message)).or_else(|| installations.first());
    let ready = installation.and_then(|one| one.service).and_then(|called| serving::ready(cluster, called));
    let (cause, fix) = KNOWN
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
        cause: filled(cause, installation),
        fix: filled(fix, installation),
    })
}

fn called_in(installation: &Installation<'_>, message: &str) -> bool {
    installation.service.is_some_and(|called| message.contains(&called.host()))
}

fn filled(text: &str, installation: Option<&Installation<'_>>) -> String {
    let service = installation.and_then(|installation| installation.service);
    let (namespace, name) = service
        .map_or(("istio-system", "istio-sidecar-injector"), |service| (service.namespace, service.name));
    let configuration =
        installation.map_or("istio-sidecar-injector", |one| super::cluster::name(one.configuration));
    text.replace("{ns}", namespace).replace("{service}", name).replace("{configuration}", configuration)
}
