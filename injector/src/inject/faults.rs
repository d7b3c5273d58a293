//! What Kubernetes would refuse of an injected pod because of its injection, and who has put it there.

use std::collections::HashSet;

use serde_json::Value;

use super::render::{Flaw, Overlay};
use crate::annotations;
use crate::pod::list;
use crate::validity::{self, EnforcedBy, Fault, Location};
use crate::yaml::UnknownField;

/// A part of an injected pod that Kubernetes does not accept, and that the pod did not have before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidField {
    /// The field, its value, what is accepted, who has set it, and what corrects it.
    pub message: String,
    /// Whether templates alone have put it there: the pod's author cannot correct it.
    pub by_config: bool,
    /// Who refuses it; otherwise the field is dropped, or does not work.
    pub refused_by: Option<EnforcedBy>,
    /// The templates that it comes from.
    pub(crate) templates: Vec<String>,
}

/// Who has set a field.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Annotation { template: String, key: String },
    Injection,
    Pod,
    Template(String),
}

impl Origin {
    fn name(&self) -> String {
        match self {
            Self::Annotation { template, key } => format!("annotation {key}, by template {template}"),
            Self::Injection => "the injector".to_owned(),
            Self::Pod => "the pod".to_owned(),
            Self::Template(name) => format!("template {name}"),
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Annotation { key, .. } => format!("correct annotation {key}"),
            Self::Injection => "exclude the pod from injection, and report this".to_owned(),
            Self::Pod => "correct the pod's own".to_owned(),
            Self::Template(name) => format!("correct template {name} or the values that it reads"),
        }
    }
}

/// The faults that `before` does not have, and that no template means.
pub(super) fn added(before: &Value, faults: Vec<Fault>, overlays: &[Overlay]) -> Vec<Fault> {
    // A pod may have a fault in each of many thousand volumes.
    let own: HashSet<_> = validity::faults(before).iter().map(Fault::identity).collect();
    let added = faults.into_iter().filter(|fault| !own.contains(&fault.identity()));
    added.filter(|fault| !overlays.iter().any(|overlay| is_meant(fault, &overlay.patch))).collect()
}

/// `emptyDir:` without a value, as Istio's templates have it: what the API server makes of it is what they
/// mean.
fn is_meant(fault: &Fault, patch: &Value) -> bool {
    let volume = fault.location.find(patch).filter(|_| fault.outcome == validity::EMPTY_DIR);
    volume.is_some_and(|volume| volume.get("emptyDir").is_some_and(Value::is_null))
}

/// A fault in words, with its origin.
pub(super) fn explain(fault: &Fault, before: &Value, injected: &Value, overlays: &[Overlay]) -> InvalidField {
    let origins = Origins { before, injected, overlays };
    let mut found: Vec<(String, Origin)> = Vec::new();
    for field in &fault.fields {
        found.push((field.clone(), origins.of(&fault.location.field(field))));
    }
    if found.is_empty() {
        found.push((String::new(), origins.of(&fault.location)));
    }
    let same = found.iter().all(|(_, origin)| found.first().is_some_and(|(_, first)| first == origin));
    let names: Vec<String> = if same {
        found.iter().take(1).map(|(_, origin)| origin.name()).collect()
    } else {
        found.iter().map(|(field, origin)| format!("{field} by {}", origin.name())).collect()
    };
    // The pod's part is what its author can change; a template is corrected for all pods.
    let blamed = found.iter().map(|(_, origin)| origin);
    let rank = |origin: &&Origin| match origin {
        Origin::Annotation { .. } => 0,
        Origin::Template(_) => 1,
        Origin::Pod => 2,
        Origin::Injection => 3,
    };
    let remedy = blamed.min_by_key(rank).map(Origin::remedy).unwrap_or_default();
    let remedy = if fault.remedy.is_empty() { remedy } else { fault.remedy.to_owned() };
    let templates = found.iter().filter_map(|(_, origin)| match origin {
        Origin::Template(name) | Origin::Annotation { template: name, .. } => Some(name.clone()),
        Origin::Injection | Origin::Pod => None,
    });
    InvalidField {
        message: format!(
            "{}: {} {}, expected {}; set by {}: {remedy}",
            fault.location,
            fault.given,
            fault.outcome,
            fault.accepted,
            names.join(", ")
        ),
        by_config: found.iter().all(|(_, origin)| matches!(origin, Origin::Template(_))),
        refused_by: fault.enforced_by,
        templates: templates.collect(),
    }
}

/// What a template's output loses or lacks.
pub(super) fn flaw(template: &str, flaw: &Flaw, pod: &Value) -> InvalidField {
    let message = match flaw {
        Flaw::Unknown(field) => return unknown_field(template, field, pod),
        Flaw::DuplicateKey { key, line } => format!(
            "template {template}: its output has the key {key:?} twice in one map, in line {line} for the second time: what the \
             first one had is dropped; expected each key once: merge the two"
        ),
        Flaw::NoValue { path } => format!(
            "{path}: <no value>: a value that template {template} reads is not set; expected the value, or a default in the \
             template"
        ),
    };
    InvalidField { message, by_config: true, refused_by: None, templates: vec![template.to_owned()] }
}

/// A field of a template's output that pods do not have.
fn unknown_field(template: &str, field: &UnknownField, pod: &Value) -> InvalidField {
    let key = annotation_with(pod, &field.key);
    let (origin, remedy) = match key {
        Some(key) => {
            (format!("annotation {key}, by template {template}"), format!("correct annotation {key}"))
        }
        None => (format!("template {template}"), "correct its name, or remove it".to_owned()),
    };
    let hint = field.similar.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
    InvalidField {
        message: format!(
            "{}: no field of a pod in Kubernetes {}, it is dropped{hint}; set by {origin}: {remedy}",
            field.path,
            crate::schema::KUBERNETES
        ),
        by_config: key.is_none(),
        refused_by: None,
        templates: vec![template.to_owned()],
    }
}

struct Origins<'a> {
    before: &'a Value,
    injected: &'a Value,
    overlays: &'a [Overlay],
}

impl Origins<'_> {
    /// Who has set what is at this place; where nothing is, who has set what lacks it.
    fn of(&self, location: &Location) -> Origin {
        let mut at = Some(location.clone());
        while let Some(location) = at {
            let here = location.find(self.injected);
            let own = location.find(self.before);
            if own.is_some() && own == here {
                return Origin::Pod;
            }
            let set = self.overlays.iter().rev().find(|overlay| location.find(&overlay.patch).is_some());
            if let Some(overlay) = set {
                let template = overlay.name.clone();
                return match here.and_then(|value| annotation_of(self.before, value)) {
                    Some(key) => Origin::Annotation { template, key: key.to_owned() },
                    None => Origin::Template(template),
                };
            }
            if own.is_some() {
                return Origin::Pod;
            }
            if here.is_some() {
                return Origin::Injection;
            }
            at = location.parent();
        }
        Origin::Injection
    }
}

/// The annotation that a value is from: one that templates read, and whose text has it.
fn annotation_of<'p>(pod: &'p Value, value: &Value) -> Option<&'p str> {
    match value {
        Value::String(text) => annotation_with(pod, text),
        Value::Number(number) => annotation_with(pod, &number.to_string()),
        Value::Object(fields) => {
            let name = fields.get("name").and_then(|name| annotation_of(pod, name));
            name.or_else(|| {
                fields.values().filter(|value| value.is_string()).find_map(|value| annotation_of(pod, value))
            })
        }
        Value::Null | Value::Bool(_) | Value::Array(_) => None,
    }
}

fn annotation_with<'p>(pod: &'p Value, text: &str) -> Option<&'p str> {
    const SHORTEST: usize = 3;
    let all = list::metadata(pod, "annotations").into_iter().flatten();
    let has = |value: &Value| {
        value.as_str().is_some_and(|value| value == text || text.len() >= SHORTEST && value.contains(text))
    };
    let mut from = all.filter(|(key, value)| {
        annotations::row(key).is_some_and(|row| row.syntax != annotations::Syntax::SetByInjection)
            && has(value)
    });
    from.next().map(|(key, _)| key.as_str())
}
