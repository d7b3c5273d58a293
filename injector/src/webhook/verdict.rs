//! What becomes of a pod: the decision, the injection, the patch.

use serde_json::{Value, json};

use super::bounds::has_too_many_values;
use super::key::{Key, Parts};
use super::live::{Active, Surroundings};
use super::patch;
use super::refusal::{Code, Refusal};
use super::variables::Variables;
use crate::decide::{Decision, INJECT, Reason, decide};
use crate::inject::{Placement, Request};
use crate::pod::list::{annotation, label};
use crate::pod::workload::Workload;

/// What became of a request; the names are what metrics and log lines say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The pod gets a patch.
    Injected,
    /// The pod stays as it is.
    #[default]
    Skipped,
    /// The pod is refused.
    Denied,
    /// The request is no review.
    Invalid,
}

impl Outcome {
    /// The name for scripts and metrics.
    #[must_use]
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Skipped => "skipped",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
        }
    }
}

/// What becomes of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// In a word.
    pub outcome: Outcome,
    /// Why, as a word.
    pub reason: &'static str,
    /// Why, as a sentence; whole, however long.
    pub message: String,
    /// The pod's workload, as `Kind/name`.
    pub owner: String,
    /// With a refusal.
    pub code: Option<Code>,
    /// The steps to the injected pod, as JSON; `None` if there are none.
    pub patch: Option<String>,
    /// What the user may not expect; whole, however long.
    pub warnings: Vec<String>,
}

impl Verdict {
    /// What its texts take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let patch = self.patch.as_ref().map_or(0, String::capacity);
        let warnings: usize = self.warnings.iter().map(|text| text.capacity() + size_of::<String>()).sum();
        size_of::<Self>() + self.message.capacity() + self.owner.capacity() + patch + warnings
    }

    /// A request that is not about the creation of a pod.
    #[must_use]
    pub fn skipped(reason: &'static str, message: String) -> Self {
        Self { outcome: Outcome::Skipped, reason, message, ..Self::default() }
    }

    fn refused(refusal: &Refusal, title: &str) -> Self {
        Self {
            outcome: Outcome::Denied,
            reason: refusal.slug(),
            message: format!("{title}{refusal}"),
            code: Some(refusal.code()),
            ..Self::default()
        }
    }
}

/// Everything that a verdict depends on, but the pod.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances<'a> {
    /// The config.
    pub active: &'a Active,
    /// What the cluster says.
    pub surroundings: &'a Surroundings,
    /// The pod's namespace.
    pub namespace: &'a str,
    /// What the URL says.
    pub variables: &'a Variables,
}

impl Circumstances<'_> {
    /// The key of the verdict on a pod.
    #[must_use]
    pub fn key(&self, pod: &str) -> Key {
        let ids = self.surroundings.namespaces.get(self.namespace);
        let parts = Parts::default()
            .and(self.active.generation.to_le_bytes())
            .and([self.surroundings.native_sidecars, self.surroundings.prescribed].map(u8::from))
            .and(ids.map_or_else(String::new, |ids| format!("{ids:?}")))
            .and(self.namespace);
        let parts = self.variables.iter().fold(parts, |parts, (key, value)| parts.and(key).and(value));
        parts.and(pod).key()
    }

    /// Looks at a pod, as JSON, and injects it.
    #[must_use]
    pub fn verdict(&self, pod: &str) -> Verdict {
        if has_too_many_values(pod) {
            return Verdict::refused(&Refusal::TooLarge, "");
        }
        let mut pod: Value = match serde_json::from_str(pod) {
            Ok(pod @ Value::Object(_)) => pod,
            Ok(_) => {
                let problem = "it is no map, expected a Pod".to_owned();
                return Verdict::refused(&Refusal::Object { problem }, "");
            }
            Err(error) => {
                return Verdict::refused(&Refusal::Object { problem: error.to_string() }, "");
            }
        };
        if let Some(kind) = pod.get("kind").and_then(Value::as_str)
            && !matches!(kind, "" | "Pod")
        {
            return Verdict::skipped("not-a-pod", format!("the object is a {kind}, not a Pod"));
        }
        if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.shift_remove("managedFields");
        }
        let workload = Workload::of_pod(&pod, self.namespace);
        let decision = decide(&pod, self.namespace, &self.active.injector.settings.injector.rules);
        let mut verdict = if decision.inject() {
            let title = title(&pod, &workload, self.namespace);
            self.inject(pod, &workload, &decision)
                .unwrap_or_else(|refusal| Verdict::refused(&refusal, &title))
        } else {
            Verdict {
                warnings: unexpected(&pod, &decision),
                ..Verdict::skipped(slug(&decision), decision.to_string())
            }
        };
        verdict.warnings.splice(0..0, decision.warnings);
        verdict.owner = format!("{}/{}", workload.kind, workload.name);
        verdict
    }

    fn inject(&self, mut pod: Value, workload: &Workload, decision: &Decision) -> Result<Verdict, Refusal> {
        let place = self.place()?;
        let lent = lend_namespace(&mut pod, self.namespace);
        let request = Request { pod: &pod, workload, place: &place };
        let mut injected = self.active.injector.inject(request).map_err(Refusal::Inject)?;
        if lent {
            take_namespace(&mut pod);
            take_namespace(&mut injected.pod);
        }
        let operations = patch::between(&pod, &injected.pod);
        let mut verdict = Verdict { warnings: injected.warnings, ..Verdict::default() };
        if operations.is_empty() {
            verdict.reason = "unchanged";
            verdict.message = format!("{decision}; it is as it should be already");
        } else {
            verdict.outcome = Outcome::Injected;
            verdict.reason = slug(decision);
            verdict.message = decision.to_string();
            // Texts, numbers and maps with text for keys: nothing that JSON cannot say.
            verdict.patch = serde_json::to_string(&operations).ok();
        }
        Ok(verdict)
    }

    fn place(&self) -> Result<Placement, Refusal> {
        let ids = match self.surroundings.namespaces.get(self.namespace) {
            Some(Ok(ids)) => *ids,
            Some(Err(problem)) => {
                let (name, problem) = (self.namespace.to_owned(), problem.clone());
                return Err(Refusal::Namespace { name, problem });
            }
            None if self.surroundings.prescribed => {
                return Err(Refusal::UnknownNamespace { name: self.namespace.to_owned() });
            }
            None => crate::pod::ids::Ids::default(),
        };
        let native_sidecars = self.surroundings.native_sidecars;
        Ok(Placement { ids, native_sidecars, environment: self.variables.clone() })
    }
}

/// Templates read the namespace from the pod, which may leave it to the request.
fn lend_namespace(pod: &mut Value, namespace: &str) -> bool {
    let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) else {
        return false;
    };
    let lends = !namespace.is_empty() && !metadata.contains_key("namespace");
    if lends {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    lends
}

fn take_namespace(pod: &mut Value) {
    if let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove("namespace");
    }
}

fn slug(decision: &Decision) -> &'static str {
    decision.reason().map_or("", |step| step.reason.slug())
}

/// `pod "shop/web-5d8-" of Deployment web: `.
fn title(pod: &Value, workload: &Workload, namespace: &str) -> String {
    let text = |key: &str| {
        let value = pod.get("metadata").and_then(|metadata| metadata.get(key)?.as_str());
        value.filter(|text| !text.is_empty())
    };
    let name = text("name").or_else(|| text("generateName")).unwrap_or_default();
    let pod = format!("pod {:?}", format!("{namespace}/{name}"));
    match workload.kind.as_str() {
        "" | "Pod" => format!("{pod}: "),
        kind => format!("{pod} of {kind} {}: ", workload.name),
    }
}

/// The webhook is only called where somebody wants injection: that it does not happen has to be said, unless the pod says
/// so itself or it follows from what everybody can read in the config.
fn unexpected(pod: &Value, decision: &Decision) -> Vec<String> {
    let asks = label(pod, INJECT).or_else(|| annotation(pod, INJECT)) == Some("true");
    let unexpected = match decision.reason().map(|step| step.reason) {
        Some(Reason::HostNetwork) => asks,
        Some(Reason::SystemNamespace | Reason::UnknownPolicy) => true,
        Some(
            Reason::AlwaysSelector | Reason::NeverSelector | Reason::Pod | Reason::Policy | Reason::Webhook,
        )
        | None => false,
    };
    if unexpected { vec![decision.to_string()] } else { Vec::new() }
}
