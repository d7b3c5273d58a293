//! Findings about webhook configurations.

use serde_json::Value;

use super::cluster::{Cluster, list, name, text, title};
use super::{Diagnosis, Finding, Problem};
use crate::decide::webhook_selectors::SUFFIX;
use crate::decide::{Webhooks, is_for_pods};

/// Fewer seconds are not enough on a slow network.
const SHORT: u64 = 5;
/// Kubernetes' default.
const USUAL: u64 = 10;

/// A webhook configuration that injects.
#[derive(Debug)]
pub(super) struct Installation<'a> {
    pub(super) configuration: &'a Value,
    /// The webhooks of the configuration, for injection.
    pub(super) webhooks: Vec<&'a Value>,
    /// As in the label `istio.io/rev`.
    pub(super) revision: &'a str,
    /// The Service that it calls.
    pub(super) service: Option<ServiceRef<'a>>,
}

/// The Service that a webhook calls.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ServiceRef<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) port: u64,
}

impl ServiceRef<'_> {
    /// The name that the certificate must have.
    pub(super) fn host(&self) -> String {
        format!("{}.{}.svc", self.name, self.namespace)
    }
}

impl<'a> Installation<'a> {
    fn new(configuration: &'a Value) -> Option<Self> {
        let all = list(configuration, "/webhooks").iter();
        let webhooks: Vec<&Value> = all.filter(|webhook| text(webhook, "/name").ends_with(SUFFIX)).collect();
        let service = service(webhooks.first()?);
        let revision = match text(configuration, "/metadata/labels/istio.io~1rev") {
            "" => "default",
            revision => revision,
        };
        Some(Self { configuration, webhooks, revision, service })
    }

    /// One for each Service that its webhooks call.
    pub(super) fn by_service(&self) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for webhook in &self.webhooks {
            let service = service(webhook);
            match all.iter_mut().find(|one| one.service == service) {
                Some(one) => one.webhooks.push(webhook),
                None => all.push(Self { webhooks: vec![webhook], service, ..*self }),
            }
        }
        all
    }

    pub(super) fn title(&self) -> String {
        title(self.configuration)
    }

    /// The suffix of names for the revision.
    pub(super) fn suffix(&self) -> String {
        if self.revision == "default" { String::new() } else { format!("-{}", self.revision) }
    }

    /// The command that restarts the injector, which then writes what is its own.
    pub(super) fn restart(&self) -> String {
        self.service.map_or_else(String::new, |service| {
            format!("kubectl -n {} rollout restart deployment {}", service.namespace, service.name)
        })
    }

    /// The command that installs it again.
    pub(super) fn install(&self) -> String {
        let namespace =
            self.service.map_or(String::new(), |service| format!(" --namespace {}", service.namespace));
        let revision = match self.revision {
            "default" => " --replace-istiod".to_owned(),
            name => format!(" --revision {name}"),
        };
        install(&format!("{namespace}{revision}"))
    }

    pub(super) fn fails_closed(&self) -> bool {
        self.webhooks.iter().any(|webhook| text(webhook, "/failurePolicy") != "Ignore")
    }
}

/// The command that installs what `names` says. Without the flags of an installation it would reset image and
/// config.
pub(super) fn install(names: &str) -> String {
    format!(
        "sidecar-injector manifests{names} FLAGS | kubectl apply -f -   # FLAGS: those of the installation, such as --image, \
         --init-image, --set"
    )
}

fn service(webhook: &Value) -> Option<ServiceRef<'_>> {
    webhook.pointer("/clientConfig/service").map(|service| ServiceRef {
        namespace: text(service, "/namespace"),
        name: text(service, "/name"),
        port: service.get("port").and_then(Value::as_u64).unwrap_or(443),
    })
}

pub(super) fn installations<'a>(cluster: &Cluster<'a>, diagnosis: &mut Diagnosis) -> Vec<Installation<'a>> {
    let configurations = cluster.all("MutatingWebhookConfiguration");
    let installations: Vec<_> = configurations.filter_map(Installation::new).collect();
    if !cluster.knows("MutatingWebhookConfiguration") {
        diagnosis.not_checked(
            "MutatingWebhookConfigurations: none among the objects, so nothing that depends on them is checked. A cluster without \
             them injects no pod",
        );
    } else if installations.is_empty() {
        diagnosis.found(Finding {
            problem: Problem::WebhookMissing,
            object: "MutatingWebhookConfiguration istio-sidecar-injector".to_owned(),
            seen: format!("no MutatingWebhookConfiguration has a webhook whose name ends with {SUFFIX}"),
            cause: "no webhook matches: no pod is ever injected".to_owned(),
            fix: install(" --revision NAME"),
        });
    }
    installations
}

/// The selectors of all installations; one that cannot be read is a finding.
pub(super) fn webhooks(installations: &[Installation<'_>], diagnosis: &mut Diagnosis) -> Webhooks {
    let mut webhooks = Webhooks::default();
    for installation in installations {
        match Webhooks::parse(std::slice::from_ref(installation.configuration)) {
            Ok(own) => webhooks.all.extend(own.all),
            Err(problem) => diagnosis.found(Finding {
                problem: Problem::SelectorUnreadable,
                object: installation.title(),
                seen: problem,
                cause: "the API server rejects such a selector, or it selects other pods than intended"
                    .to_owned(),
                fix: format!(
                    "kubectl edit mutatingwebhookconfiguration {}",
                    name(installation.configuration)
                ),
            }),
        }
    }
    webhooks
}

pub(super) fn examine(installation: &Installation<'_>, diagnosis: &mut Diagnosis) {
    let own = name(installation.configuration);
    let names = |wanted: &dyn Fn(&Value) -> bool| named(installation, wanted);
    let patch = |field: &str, value: &str| {
        let each = (0..list(installation.configuration, "/webhooks").len())
            .map(|at| format!(r#"{{"op":"add","path":"/webhooks/{at}/{field}","value":{value}}}"#));
        let patch = each.collect::<Vec<_>>().join(",");
        format!("kubectl patch mutatingwebhookconfiguration {own} --type=json -p '[{patch}]'")
    };
    calls(installation, diagnosis);
    let ignoring = names(&|webhook| text(webhook, "/failurePolicy") == "Ignore");
    if !ignoring.is_empty() {
        diagnosis.found(Finding {
            problem: Problem::FailurePolicyIgnore,
            object: installation.title(),
            seen: format!("failurePolicy is Ignore (webhooks {ignoring})"),
            cause: "while the injector does not respond, pods are admitted without a sidecar and without a warning"
                .to_owned(),
            fix: patch("failurePolicy", "\"Fail\""),
        });
    }
    let timeout = |webhook: &Value| webhook.get("timeoutSeconds").and_then(Value::as_u64).unwrap_or(USUAL);
    let hurried = names(&|webhook| timeout(webhook) < SHORT);
    if !hurried.is_empty() {
        let least = installation.webhooks.iter().map(|webhook| timeout(webhook)).min().unwrap_or(USUAL);
        diagnosis.found(Finding {
            problem: Problem::TimeoutShort,
            object: installation.title(),
            seen: format!("timeoutSeconds is {least} (webhooks {hurried})"),
            cause: "a slow connection alone may take that long; Kubernetes' own default is 10".to_owned(),
            fix: patch("timeoutSeconds", "10"),
        });
    }
}

/// The short names of the webhooks that match.
fn named(installation: &Installation<'_>, wanted: &dyn Fn(&Value) -> bool) -> String {
    let matching = installation.webhooks.iter().filter(|webhook| wanted(webhook));
    let names = matching.map(|webhook| text(webhook, "/name").trim_end_matches(SUFFIX).trim_end_matches('.'));
    names.collect::<Vec<_>>().join(", ")
}

/// What the webhooks are called for, and where.
fn calls(installation: &Installation<'_>, diagnosis: &mut Diagnosis) {
    let names = |wanted: &dyn Fn(&Value) -> bool| named(installation, wanted);
    let own = name(installation.configuration);
    let mut found = |problem: Problem, names: String, seen: &str, cause: &str, fix: String| {
        if !names.is_empty() {
            let seen = format!("{seen} (webhooks {names})");
            diagnosis.found(Finding {
                problem,
                object: installation.title(),
                seen,
                cause: cause.to_owned(),
                fix,
            });
        }
    };
    found(
        Problem::WebhookRules,
        names(&|webhook| !is_for_pods(webhook)),
        "its rules do not match the creation of pods",
        "the API server does not call it for pods, which come up without a sidecar",
        installation.install(),
    );
    let served = |webhook: &Value| {
        let path = text(webhook, "/clientConfig/service/path");
        webhook.pointer("/clientConfig/service").is_none()
            || path == "/inject"
            || path.starts_with("/inject/")
    };
    found(
        Problem::WebhookPath,
        names(&|webhook| !served(webhook)),
        "clientConfig.service.path is not /inject",
        "the injector serves no other path: every call fails (404)",
        installation.install(),
    );
    found(
        Problem::MatchConditions,
        names(&|webhook| !list(webhook, "/matchConditions").is_empty()),
        "it has matchConditions, which are not evaluated here",
        "the API server calls it only for pods that meet them: pods may come up without a sidecar",
        format!(
            "kubectl get mutatingwebhookconfiguration {own} -o jsonpath='{{.webhooks[*].matchConditions}}'"
        ),
    );
}
