//! What Kubernetes would refuse of an injected pod because of its injection, and who has put it there.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::causes::{Cause, Causes, is_switch};
use super::findings::{Finding, TemplateFlaw};
use super::render::{Flaw, Overlay};
use crate::annotations::keys;
use crate::config::ValuesFrom;
use crate::pod::list;
use crate::validity::{self, EnforcedBy, Fault, Location, Remedy};

/// A part of an injected pod that Kubernetes does not accept, and that the pod did not have before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidField {
    /// The field, its value, what is accepted, who has set it, and what corrects it.
    pub message: String,
    /// Whether a pod with nothing of its own has it, too: the pod's author cannot correct it.
    pub by_config: bool,
    /// Who refuses it; otherwise the field is dropped, or does not work.
    pub refused_by: Option<EnforcedBy>,
    /// The templates that it comes from.
    pub(crate) templates: Vec<String>,
    /// The message without the fields: the same fault may be in another list of containers.
    pub(crate) fault: String,
}

/// Who has set a field.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    Config(&'static str),
    Injection,
    Pod,
    Template(String),
}

impl Origin {
    fn name(&self) -> String {
        match self {
            Self::Config(part) => (*part).to_owned(),
            Self::Injection => "the injector".to_owned(),
            Self::Pod => "the pod".to_owned(),
            Self::Template(name) => format!("template {name}"),
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Config(part) => format!("correct {part}"),
            Self::Injection => "exclude the pod from injection, and report this".to_owned(),
            Self::Pod => "correct the pod's own".to_owned(),
            Self::Template(name) => format!("correct template {name} or the values that it reads"),
        }
    }
}

/// The faults that `before` does not have, and that no template means. A pod may have a fault in each of many
/// thousand volumes.
pub(super) fn added(before: &Value, faults: Vec<Fault>, overlays: &[Overlay]) -> Vec<Fault> {
    let own: HashSet<_> = validity::faults(before).iter().map(Fault::identity).collect();
    // `emptyDir:` without a value, as Istio's templates have it: what the API server makes of it is what they
    // mean.
    let volumes = overlays.iter().flat_map(|overlay| list::items(&overlay.patch, "volumes"));
    let meant: HashSet<&str> =
        volumes.filter(|volume| volume.get("emptyDir").is_some_and(Value::is_null)).map(list::name).collect();
    let is_meant = |fault: &Fault| {
        fault.outcome == validity::EMPTY_DIR
            && fault.location.volume().is_some_and(|name| meant.contains(name))
    };
    let added = faults.into_iter().filter(|fault| !own.contains(&fault.identity()));
    added.filter(|fault| !is_meant(fault)).collect()
}

/// A finding in words: where it is, and all the rest, which may be the same of several places.
struct Explained {
    places: Vec<String>,
    rest: String,
    by_config: bool,
    refused_by: Option<EnforcedBy>,
    templates: Vec<String>,
}

impl Explained {
    fn into_field(self) -> InvalidField {
        let Self { places, rest, by_config, refused_by, templates } = self;
        let message = format!("{}: {rest}", places.join(", "));
        InvalidField { message, by_config, refused_by, templates, fault: rest }
    }

    /// Whether another is the same of another place; then it is taken up.
    fn takes(&mut self, other: &mut Self) -> bool {
        let is_same =
            (&self.rest, self.by_config, self.refused_by) == (&other.rest, other.by_config, other.refused_by);
        if is_same {
            self.places.append(&mut other.places);
            self.templates.append(&mut other.templates);
        }
        is_same
    }
}

/// A finding in words, with its origin.
fn explain(finding: &Finding, cause: &Cause, origins: &Origins<'_>) -> Explained {
    match finding {
        Finding::Fault(fault) => explain_fault(fault, cause, origins),
        Finding::Flaw(flaw) => explain_flaw(flaw, cause, origins),
    }
}

fn explain_fault(fault: &Fault, cause: &Cause, origins: &Origins<'_>) -> Explained {
    let found = origins.of_fault(fault, cause);
    let mut templates = cause.templates.clone();
    templates.extend(found.iter().filter_map(|(_, origin)| match origin {
        Origin::Template(name) => Some(name.clone()),
        Origin::Config(_) | Origin::Injection | Origin::Pod => None,
    }));
    let (name, remedy) = match broken_by(&found, fault, cause, origins) {
        Some(template) => {
            templates.push(template.to_owned());
            let origin = Origin::Template(template.to_owned());
            (format!("set by the pod, and wrong with {}", origin.name()), origin.remedy())
        }
        None => {
            let whole = fault.remedy != Remedy::Usual;
            because(cause, named(&found), remedy(&found, fault, cause), whole)
        }
    };
    let set = found.iter().filter(|(_, origin)| matches!(origin, Origin::Template(_)));
    let set = set.filter_map(|(field, _)| origins.set_value(&fault.location, field)).next();
    Explained {
        places: vec![fault.location.to_string()],
        rest: format!("{}, expected {}; {name}: {remedy}{}", shown(fault), fault.accepted, with_value(set)),
        by_config: cause.by_config,
        refused_by: fault.enforced_by,
        templates,
    }
}

/// The `--set` that a template has printed.
fn with_value(path: Option<String>) -> String {
    path.map(|path| format!("; --set {path} has this value")).unwrap_or_default()
}

/// Who has set which field.
fn named(found: &[(&str, Origin)]) -> String {
    let same = found.iter().all(|(_, origin)| found.first().is_some_and(|(_, first)| first == origin));
    let names: Vec<String> = if same {
        found.iter().take(1).map(|(_, origin)| format!("set by {}", origin.name())).collect()
    } else {
        found.iter().map(|(field, origin)| format!("{field} set by {}", origin.name())).collect()
    };
    names.join(", ")
}

fn remedy(found: &[(&str, Origin)], fault: &Fault, cause: &Cause) -> String {
    // The pod's part is what its author can change; a template is corrected for all pods, and the later one
    // adds to the earlier.
    let rank = |(_, origin): &&(&str, Origin)| match origin {
        Origin::Template(name) if cause.templates.last().is_some_and(|last| last != name) => 1,
        Origin::Template(_) => 0,
        Origin::Config(_) | Origin::Pod => 2,
        Origin::Injection => 3,
    };
    match fault.remedy {
        Remedy::Usual => found.iter().min_by_key(rank).map(|(_, origin)| origin.remedy()).unwrap_or_default(),
        Remedy::OfSetter(text) | Remedy::Always(text) => text.to_owned(),
    }
}

/// The template that makes wrong what the pod alone has set, and had right without it.
fn broken_by<'a>(
    found: &[(&str, Origin)],
    fault: &Fault,
    cause: &'a Cause,
    origins: &Origins<'a>,
) -> Option<&'a str> {
    let is_of_pod = found.iter().all(|(_, origin)| *origin == Origin::Pod);
    let by_pod = !cause.annotations.is_empty() || cause.container.is_some();
    if !is_of_pod || by_pod || matches!(fault.remedy, Remedy::Always(_)) {
        return None;
    }
    match (cause.templates.last(), origins.overlays) {
        (Some(template), _) => Some(template),
        (None, [only]) => Some(&only.name),
        (None, _) => None,
    }
}

/// What is there, and what comes of it, if anything is.
fn shown(fault: &Fault) -> String {
    format!("{} {}", fault.given, fault.outcome).trim_end().to_owned()
}

/// Who has set it and what corrects it, where what the pod has is the cause. A remedy that is `whole` says
/// what else corrects it.
fn because(cause: &Cause, name: String, remedy: String, whole: bool) -> (String, String) {
    if cause.by_config {
        return (name, remedy);
    }
    let words = |keys: &[&String]| {
        let keys: Vec<String> = keys.iter().map(|key| format!("annotation {key}")).collect();
        keys.join(" and ")
    };
    let (switches, values): (Vec<_>, Vec<_>) = cause.annotations.iter().partition(|key| is_switch(key));
    if !values.is_empty() {
        let values = words(&values);
        return (name.replacen("set by ", &format!("set by {values}, by "), 1), format!("correct {values}"));
    }
    if !switches.is_empty() {
        let switches = words(&switches);
        let remedy = if whole { remedy } else { format!("{remedy}, or remove {switches}") };
        return (format!("{name}, with {switches}"), remedy);
    }
    match &cause.container {
        Some(container) => {
            let own = format!("the pod's own container {container}");
            (format!("{name}, with {own}"), format!("correct {own}"))
        }
        None => (name, remedy),
    }
}

/// The most findings that are explained.
const MOST: usize = 20;

/// All findings in words, those first that deny a pod; of many, that there are more.
#[cold]
pub(super) fn explain_all(findings: &[Finding], causes: &Causes, origins: &Origins<'_>) -> Vec<InvalidField> {
    let refused = |finding: &Finding| matches!(finding, Finding::Fault(fault) if fault.enforced_by.is_some());
    let more = findings.len().saturating_sub(MOST);
    let (mut explained, mut count): (Vec<Explained>, _) = (Vec::new(), 0);
    // Of a few, the order is that of the pod.
    for denying in [true, false] {
        for finding in findings {
            let cause = causes.of_finding(finding);
            let is_first = more == 0 || cause.by_config && refused(finding);
            if is_first != denying || count == MOST {
                continue;
            }
            count += 1;
            let mut next = explain(finding, &cause, origins);
            if !explained.iter_mut().any(|one| one.takes(&mut next)) {
                explained.push(next);
            }
        }
    }
    let mut fields: Vec<InvalidField> = explained.into_iter().map(Explained::into_field).collect();
    if more > 0 {
        fields.push(InvalidField {
            message: format!("{more} more faults of this pod are not shown"),
            by_config: false,
            refused_by: None,
            templates: Vec::new(),
            fault: String::new(),
        });
    }
    fields
}

/// What a template's output loses or lacks, in words.
fn explain_flaw(
    TemplateFlaw { template, flaw }: &TemplateFlaw,
    cause: &Cause,
    origins: &Origins<'_>,
) -> Explained {
    let by = |remedy: &str| because(cause, format!("set by template {template}"), remedy.to_owned(), false);
    let (place, rest) = match flaw {
        Flaw::Unknown(field) => {
            let (origin, remedy) = by("correct its name, or remove it");
            let hint = field.similar.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            let set = origins.values.set_path_with(&field.key);
            let set = set.map(|path| format!("; it is in --set {path}")).unwrap_or_default();
            let kubernetes = crate::schema::KUBERNETES;
            (
                field.path.clone(),
                format!(
                    "no field of a pod in Kubernetes {kubernetes}, it is dropped{hint}; {origin}: {remedy}{set}"
                ),
            )
        }
        Flaw::DuplicateKey { key, line } => (
            format!("template {template}"),
            format!(
                "its output has the key {key:?} twice in one map, in line {line} for the second time: what the first one had is \
                 dropped; expected each key once: merge the two"
            ),
        ),
        Flaw::DuplicateItem { path, name } => {
            let (origin, remedy) = by("give each a name of its own, or merge the two");
            (
                path.clone(),
                format!(
                    "{name:?} twice, and the second is merged into the first; expected another name for each item; {origin}: \
                     {remedy}"
                ),
            )
        }
        Flaw::NoValue { path } => (
            path.clone(),
            format!(
                "<no value>: a value that template {template} reads is not set; expected the value, or a default in the template"
            ),
        ),
    };
    let templates = vec![template.clone()];
    Explained { places: vec![place], rest, by_config: cause.by_config, refused_by: None, templates }
}

/// An injection, to look up in who has set what.
pub(super) struct Origins<'a> {
    pub(super) before: &'a Value,
    pub(super) injected: &'a Value,
    pub(super) overlays: &'a [Overlay],
    pub(super) injected_annotations: &'a Map<String, Value>,
    pub(super) values: &'a ValuesFrom,
}

impl Origins<'_> {
    /// Who has set the fields of a fault, or else its place.
    fn of_fault<'f>(&self, fault: &'f Fault, cause: &Cause) -> Vec<(&'f str, Origin)> {
        let mut found: Vec<(&str, Origin)> = Vec::new();
        for field in &fault.fields {
            found.push((field, self.of(&fault.location.field(field))));
        }
        if found.is_empty() {
            found.push(("", self.of(&fault.location)));
        }
        // A later template may have taken away what this one needs.
        if let ([(_, Origin::Template(one))], Some(last)) = (found.as_mut_slice(), cause.templates.last()) {
            one.clone_from(last);
        }
        found
    }

    /// The `--set` with the value that is at a place, or in its field.
    fn set_value(&self, location: &Location, field: &str) -> Option<String> {
        let place = if field.is_empty() { location.clone() } else { location.field(field) };
        let value = place.find(self.injected)?;
        self.values.set_path_of(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

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
                return Origin::Template(overlay.name.clone());
            }
            if own.is_some() {
                return Origin::Pod;
            }
            if here.is_some() {
                return self.of_injection(&location);
            }
            at = location.parent();
        }
        Origin::Injection
    }

    /// The part of the config that injection itself follows.
    fn of_injection(&self, location: &Location) -> Origin {
        let annotation = location.metadata("annotations");
        if annotation.is_some_and(|key| self.injected_annotations.contains_key(key)) {
            return Origin::Config("injectedAnnotations of the injector config");
        }
        if location.metadata("labels") == Some(keys::NETWORK) {
            return Origin::Config("the network: value global.network, or the webhook's URL");
        }
        Origin::Injection
    }
}
