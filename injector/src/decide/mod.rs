//! Decides whether to inject a pod, and why: each step reports its input and result.

mod label_selector;
mod overlap;
mod webhook;
pub mod webhook_selectors;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value;

use crate::annotations::is_instead_of_inject;
use crate::path::at;
use crate::pod::list;

pub use label_selector::{Labels, Selector};
pub use webhook::{Called, Webhook, Webhooks, is_for_pods};

pub use crate::annotations::keys::INJECT;

/// Namespaces that are never injected.
pub const SYSTEM_NAMESPACES: [&str; 4] =
    ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// The annotation of what the API server shows of a static pod, which kubelet runs from a file of its node.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What the injector config says about pods that do not decide for themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What happens when nothing else decides.
    pub policy: Policy,
    /// Pods that are not injected; empty selectors match nothing.
    pub never: Vec<Selector>,
    /// Pods that are injected; empty selectors match nothing.
    pub always: Vec<Selector>,
}

/// `policy` of the injector config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Policy {
    /// No pod unless its labels or annotations request it.
    Disabled,
    /// Every pod unless something else decides.
    Enabled,
    /// Another text: no pod is injected, whatever its labels say.
    Unknown(String),
}

impl Policy {
    /// Reads `policy`.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "disabled" => Self::Disabled,
            "enabled" => Self::Enabled,
            other => Self::Unknown(other.to_owned()),
        }
    }
}

/// The steps of a decision, in the order in which they are taken. The name is what scripts and metrics see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The selectors of the webhook configurations, in front of everything else.
    Webhook,
    /// `spec.hostNetwork`.
    HostNetwork,
    /// A static pod, of which the API server has a copy only.
    StaticPod,
    /// The namespace is one of [`SYSTEM_NAMESPACES`].
    SystemNamespace,
    /// The policy is invalid.
    UnknownPolicy,
    /// The pod decides for itself.
    Pod,
    /// `neverInjectSelector`.
    NeverSelector,
    /// `alwaysInjectSelector`.
    AlwaysSelector,
    /// The policy.
    Policy,
}

impl Reason {
    /// The name for scripts and metrics.
    #[must_use]
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::HostNetwork => "host-network",
            Self::StaticPod => "static-pod",
            Self::SystemNamespace => "system-namespace",
            Self::UnknownPolicy => "unknown-policy",
            Self::Pod => "pod",
            Self::NeverSelector => "never-selector",
            Self::AlwaysSelector => "always-selector",
            Self::Policy => "policy",
        }
    }
}

/// One step: what was looked at and what was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which step.
    pub reason: Reason,
    /// What was found, as a sentence.
    pub found: String,
    /// The verdict, if this step decided.
    pub verdict: Option<bool>,
}

/// The record of a decision. The last step decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The steps that were taken.
    pub steps: Vec<Step>,
    /// Warnings.
    pub warnings: Vec<String>,
}

impl Decision {
    /// Whether the pod is injected.
    #[must_use]
    pub fn inject(&self) -> bool {
        self.steps.last().and_then(|step| step.verdict).unwrap_or(false)
    }

    /// The step that decided.
    #[must_use]
    pub fn reason(&self) -> Option<&Step> {
        self.steps.last()
    }

    fn passed(mut self, reason: Reason, found: impl Into<String>) -> Self {
        self.steps.push(Step { reason, found: found.into(), verdict: None });
        self
    }

    fn decided(mut self, reason: Reason, found: impl Into<String>, verdict: bool) -> Self {
        self.steps.push(Step { reason, found: found.into(), verdict: Some(verdict) });
        self
    }
}

/// The verdict and the step that led to it, in one line.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.inject() { "injected" } else { "not injected" };
        match self.reason() {
            Some(step) => write!(f, "{verdict}: {}", step.found),
            None => f.write_str(verdict),
        }
    }
}

/// Decides about a pod (or pod template) in a namespace. The first step with a decision wins.
#[must_use]
pub fn decide(pod: &Value, namespace: &str, rules: &Rules) -> Decision {
    let start = Decision { steps: Vec::new(), warnings: Vec::new() };
    let on_host = at(pod, "/spec/hostNetwork") == Some(&Value::Bool(true));
    if on_host {
        let found = "spec.hostNetwork is true: capture would change the network of the node";
        return start.decided(Reason::HostNetwork, found, false);
    }
    let decision = start.passed(Reason::HostNetwork, "spec.hostNetwork is not true");
    if list::annotation(pod, MIRROR).is_some() {
        let found = format!(
            "annotation {MIRROR}: kubelet runs the pod from a file of its node, not from this object"
        );
        return decision.decided(Reason::StaticPod, found, false);
    }
    if SYSTEM_NAMESPACES.contains(&namespace) {
        let found = format!("namespace {namespace} belongs to the cluster itself");
        return decision.decided(Reason::SystemNamespace, found, false);
    }
    let found = match namespace {
        "" => "no namespace is given".to_owned(),
        namespace => format!("namespace {namespace} is an ordinary one"),
    };
    let decision = decision.passed(Reason::SystemNamespace, found);
    if let Policy::Unknown(text) = &rules.policy {
        let found = format!("policy {text:?} of the injector config is neither enabled nor disabled");
        return decision.decided(Reason::UnknownPolicy, found, false);
    }
    match by_label_or_annotation(pod, decision) {
        Ok(decided) => decided,
        Err(open) => by_rules(pod, rules, open),
    }
}

/// By the label of the pod, else by its annotation.
fn by_label_or_annotation(pod: &Value, mut decision: Decision) -> Result<Decision, Decision> {
    let Some((what, value)) = given(pod) else {
        decision.warnings.extend(misspelt(pod));
        return Err(decision.passed(Reason::Pod, format!("no label or annotation {INJECT}")));
    };
    let given = format!("{what} {INJECT} is {value:?}");
    match value {
        "true" => Ok(decision.decided(Reason::Pod, given, true)),
        "false" => Ok(decision.decided(Reason::Pod, given, false)),
        "" => Err(decision.passed(Reason::Pod, format!("{given}, which is ignored"))),
        _ => {
            decision.warnings.push(format!("{given}: ignored, expected \"true\" or \"false\""));
            Err(decision.passed(Reason::Pod, format!("{given}, which is neither \"true\" nor \"false\"")))
        }
    }
}

/// The label or the annotation [`INJECT`] of the pod, which of them that is, and its value.
fn given(pod: &Value) -> Option<(&'static str, &str)> {
    let label = list::label(pod, INJECT).map(|value| ("label", value));
    label.or_else(|| list::annotation(pod, INJECT).map(|value| ("annotation", value)))
}

/// A key that is written instead of [`INJECT`], in a sentence.
pub(crate) fn misspelt(pod: &Value) -> Option<String> {
    if given(pod).is_some() {
        return None;
    }
    let found = [("label", "labels"), ("annotation", "annotations")].into_iter().find_map(|(what, map)| {
        let mut keys = list::metadata(pod, map)?.keys();
        keys.find(|key| is_instead_of_inject(what, key)).map(|key| (what, key))
    });
    found.map(|(what, key)| format!("{what} {key} has no effect: expected label {INJECT}"))
}

fn by_rules(pod: &Value, rules: &Rules, mut decision: Decision) -> Decision {
    let labels = list::metadata(pod, "labels");
    for (reason, name, selectors, verdict) in [
        (Reason::NeverSelector, "neverInjectSelector", &rules.never, false),
        (Reason::AlwaysSelector, "alwaysInjectSelector", &rules.always, true),
    ] {
        let hit = selectors.iter().position(|selector| !selector.is_empty() && selector.matches(&labels));
        decision = match hit {
            Some(at) => {
                return decision.decided(reason, format!("{name}[{at}] matches the pod's labels"), verdict);
            }
            None => decision.passed(reason, format!("{name} does not match")),
        };
    }
    let enabled = rules.policy == Policy::Enabled;
    let found = format!("policy of the injector config is {}", if enabled { "enabled" } else { "disabled" });
    decision.decided(Reason::Policy, found, enabled)
}
