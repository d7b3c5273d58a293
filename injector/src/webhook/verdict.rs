//! The verdict on a pod: decision, injection, patch.

use std::sync::Arc;

use serde_json::{Value, json};

use super::config_store::ActiveConfig;
use super::denial::Denial;
use super::reasons::{self, RequestReason};
use super::url::Variables;
use super::{patch, pod_object};
use crate::cluster::ClusterState;
use crate::decide::{Decision, INJECT, Reason, decide};
use crate::inject::{InjectionContext, Request};
use crate::pod::list::{annotation, label};
use crate::pod::status::Status;
use crate::pod::workload::Workload;

/// What happens to a pod; `message` is a sentence, `patch` a serialized JSON patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Allowed without a change.
    Unchanged { reason: &'static RequestReason, message: String },
    /// The pod is allowed, and patched.
    Patched { reason: &'static RequestReason, message: String, patch: Vec<u8> },
    /// The pod is denied.
    Denied {
        /// Why.
        denial: Denial,
        /// The pod and its workload, for the message; empty where they could not be read.
        pod: String,
    },
}

impl Verdict {
    /// The label of metrics, log lines and audit annotations.
    #[must_use]
    pub const fn outcome(&self) -> &'static str {
        match self {
            Self::Unchanged { .. } => "skipped",
            Self::Patched { .. } => "injected",
            Self::Denied { .. } => "denied",
        }
    }

    /// The reason, as a label.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Unchanged { reason, .. } | Self::Patched { reason, .. } => reason.slug(),
            Self::Denied { denial, .. } => denial.reason().slug(),
        }
    }

    /// The reason, as a complete sentence of any length.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Unchanged { message, .. } | Self::Patched { message, .. } => message.clone(),
            Self::Denied { denial, pod } => format!("{pod}{denial}"),
        }
    }

    const fn denied(denial: Denial) -> Self {
        Self::Denied { denial, pod: String::new() }
    }
}

/// A verdict with its metadata.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reviewed {
    /// What happens to the pod.
    pub verdict: Verdict,
    /// The pod's workload, as `Kind/name`; empty where it could not be read.
    pub owner: String,
    /// For the user who created the pod; whole, however long.
    pub warnings: Vec<String>,
}

impl From<Verdict> for Reviewed {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, owner: String::new(), warnings: Vec::new() }
    }
}

/// Everything that a verdict depends on, but the pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionContext<'a> {
    /// The config.
    pub config: &'a ActiveConfig,
    /// Known facts about the cluster.
    pub cluster: &'a ClusterState,
    /// `request.namespace`.
    pub namespace: &'a str,
    /// From the URL.
    pub variables: &'a Variables,
}

impl AdmissionContext<'_> {
    /// Reviews a pod, given as JSON; and the namespace that it counts in.
    pub(super) fn review(&self, object: &str) -> (Reviewed, String) {
        let denied = |denial| (Verdict::denied(denial).into(), self.namespace.to_owned());
        if pod_object::has_too_many_values(object) {
            return denied(Denial::TooLarge);
        }
        let mut pod = match pod_object::parse(object) {
            Ok(pod) => pod,
            Err(error) => return denied(Denial::Object { problem: error.to_string() }),
        };
        let namespace = match self.namespace {
            "" => text(&pod, "namespace").unwrap_or_default().to_owned(),
            namespace => namespace.to_owned(),
        };
        if let Some(kind) = pod.get("kind").and_then(Value::as_str)
            && !matches!(kind, "" | "Pod")
        {
            let message = format!("the object is a {kind}, not a Pod");
            return (Verdict::Unchanged { reason: &reasons::NOT_A_POD, message }.into(), namespace);
        }
        let context = AdmissionContext { namespace: &namespace, ..*self };
        let reviewed = context.review_pod(&mut pod);
        (reviewed, namespace)
    }

    fn review_pod(&self, pod: &mut Value) -> Reviewed {
        let workload = Workload::of_pod(pod, self.namespace);
        let owner = match workload.name.as_str() {
            "" => format!("{}/{}", workload.kind, given_name(pod)),
            name => format!("{}/{name}", workload.kind),
        };
        let mut decision = decide(pod, self.namespace, &self.config.injector.settings.injector.rules);
        let mut warnings = std::mem::take(&mut decision.warnings);
        let verdict = if decision.inject() {
            let subject = subject(pod, &workload, self.namespace);
            self.inject(pod, &workload, &decision, &mut warnings)
                .unwrap_or_else(|denial| Verdict::Denied { denial, pod: subject })
        } else {
            warnings.extend(unexpected(pod, &decision));
            Verdict::Unchanged { reason: of_decision(&decision), message: decision.to_string() }
        };
        Reviewed { verdict, owner, warnings }
    }

    fn inject(
        &self,
        pod: &mut Value,
        workload: &Workload,
        decision: &Decision,
        warnings: &mut Vec<String>,
    ) -> Result<Verdict, Denial> {
        let context = self.injection_context()?;
        let added = add_namespace(pod, self.namespace);
        let request = Request { pod, workload, context: &context };
        let mut injected = self.config.injector.inject(request).map_err(Denial::Inject)?;
        if added {
            remove_namespace(pod);
            remove_namespace(&mut injected.pod);
        }
        warnings.append(&mut injected.warnings);
        // The author of the pod cannot correct what the config alone has wrong.
        let (denied, warned): (Vec<_>, Vec<_>) =
            injected.invalid.into_iter().partition(|one| one.by_config && one.refused_by.is_some());
        if !denied.is_empty() {
            return Err(Denial::Invalid(denied.into_iter().map(|one| one.message).collect()));
        }
        warnings.extend(warned.into_iter().map(|one| one.message));
        let operations = patch::between(pod, &injected.pod);
        if operations.is_empty() {
            let message = format!("{decision}; it is injected already");
            return Ok(Verdict::Unchanged { reason: &reasons::UNCHANGED, message });
        }
        // Strings, numbers and maps with string keys: serializing them does not fail.
        let patch = serde_json::to_vec(&operations).unwrap_or_default();
        // A call for a pod that others changed since, or an injection of an injected workload.
        let reason = if Status::of(pod).is_some() { &reasons::INJECTED_AGAIN } else { of_decision(decision) };
        Ok(Verdict::Patched { reason, message: decision.to_string(), patch })
    }

    fn injection_context(&self) -> Result<InjectionContext, Denial> {
        let ids = match self.cluster.namespaces.get(self.namespace) {
            Some(Ok(ids)) => *ids,
            Some(Err(problem)) => {
                let (name, problem) = (self.namespace.to_owned(), problem.clone());
                return Err(Denial::Namespace { name, problem });
            }
            None if self.cluster.namespaces_required => {
                return Err(Denial::UnknownNamespace { name: self.namespace.to_owned() });
            }
            None => crate::pod::ids::Ids::default(),
        };
        let native_sidecars = self.cluster.native_sidecars;
        let proxy_configs = Arc::clone(&self.cluster.proxy_configs);
        Ok(InjectionContext { ids, native_sidecars, environment: self.variables.clone(), proxy_configs })
    }
}

/// Templates read the namespace from the pod, where it may be missing; whether it was added.
fn add_namespace(pod: &mut Value, namespace: &str) -> bool {
    let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) else {
        return false;
    };
    let missing = !namespace.is_empty() && !metadata.contains_key("namespace");
    if missing {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    missing
}

fn remove_namespace(pod: &mut Value) {
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("namespace");
    }
}

fn of_decision(decision: &Decision) -> &'static RequestReason {
    match decision.reason().map(|step| step.reason) {
        Some(Reason::HostNetwork) => &reasons::HOST_NETWORK,
        Some(Reason::StaticPod) => &reasons::STATIC_POD,
        Some(Reason::SystemNamespace) => &reasons::SYSTEM_NAMESPACE,
        Some(Reason::UnknownPolicy) => &reasons::UNKNOWN_POLICY,
        Some(Reason::Pod) => &reasons::POD,
        Some(Reason::NeverSelector) => &reasons::NEVER_SELECTOR,
        Some(Reason::AlwaysSelector) => &reasons::ALWAYS_SELECTOR,
        // Only `check` evaluates the selectors of webhooks, and the last step is the policy.
        Some(Reason::Policy | Reason::Webhook) | None => &reasons::POLICY,
    }
}

/// A string of `metadata`, unless it is empty.
fn text<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    let value = pod.get("metadata").and_then(|metadata| metadata.get(key)?.as_str());
    value.filter(|text| !text.is_empty())
}

/// The name of a pod; its prefix, before the API server has generated a name.
fn given_name(pod: &Value) -> &str {
    text(pod, "name").or_else(|| text(pod, "generateName")).unwrap_or_default()
}

/// `pod "shop/web-5d8-" of Deployment web: `.
fn subject(pod: &Value, workload: &Workload, namespace: &str) -> String {
    let pod = format!("pod {:?}", format!("{namespace}/{}", given_name(pod)));
    match workload.kind.as_str() {
        "" | "Pod" => format!("{pod}: "),
        kind => format!("{pod} of {kind} {}: ", workload.name),
    }
}

/// The webhook is only called where injection is wanted: a pod that is not injected gets a warning, unless
/// the pod asks for that itself or the config makes it plain.
fn unexpected(pod: &Value, decision: &Decision) -> Option<String> {
    let asks = label(pod, INJECT).or_else(|| annotation(pod, INJECT)) == Some("true");
    let unexpected = match decision.reason().map(|step| step.reason) {
        Some(Reason::HostNetwork | Reason::StaticPod) => asks,
        Some(Reason::SystemNamespace | Reason::UnknownPolicy) => true,
        Some(
            Reason::AlwaysSelector | Reason::NeverSelector | Reason::Pod | Reason::Policy | Reason::Webhook,
        )
        | None => false,
    };
    unexpected.then(|| decision.to_string())
}
