//! Selects templates and renders them for a pod.

use std::ops::Range;

use serde_json::{Value, json};

use super::{InjectError, preserve};
use crate::annotations::keys;
use crate::config::InjectorConfig;
use crate::path::{Lookup as _, Path};
use crate::pod::annotations::AnnotationError;
use crate::pod::list::{self, List, annotation, containers, find};
use crate::quantity;
use crate::schema;
use crate::template::Data;
use crate::yaml::{self, Problem, UnknownField, YamlError};
use gotemplate::{Limits, Reads, Rendered, Span};

/// The most templates of a pod, as each is rendered.
const MOST: usize = 50;

/// What a template says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Overlay {
    /// The template.
    pub(super) name: String,
    /// The output of the template, as a patch for a pod.
    pub(super) patch: Value,
    /// What its output loses or lacks.
    pub(super) flaws: Vec<Flaw>,
}

/// An overlay, and what it was made of.
pub(super) struct Rendering {
    /// The overlay.
    pub(super) overlay: Overlay,
    /// What the template has read.
    pub(super) reads: Reads,
    /// The length of the text.
    pub(super) bytes: usize,
}

/// What the output of a template loses or lacks, though it can be read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Flaw {
    /// A field that pods do not have is dropped.
    Unknown(UnknownField),
    /// The first of two values of one key is dropped.
    DuplicateKey { key: String, line: usize },
    /// Two items of a list have one name, and become one.
    DuplicateItem { path: String, name: String },
    /// A value that the template reads is not set.
    NoValue { path: String },
}

/// Whether a template has a container of this name.
pub(super) fn defines(overlays: &[Overlay], container: &str) -> bool {
    let lists = overlays.iter().flat_map(|overlay| List::BOTH.map(|list| containers(&overlay.patch, list)));
    lists.into_iter().any(|list| find(list, container).is_some())
}

/// Whether a template has the whole of a container, and does not only add to one of the app's.
pub(super) fn provides(overlays: &[Overlay], container: &str) -> bool {
    let lists = overlays.iter().flat_map(|overlay| List::BOTH.map(|list| containers(&overlay.patch, list)));
    let has_image =
        |one: &Value| one.get("image").and_then(Value::as_str).is_some_and(|image| !image.is_empty());
    lists.into_iter().any(|list| find(list, container).is_some_and(has_image))
}

/// The templates of a pod, aliases expanded.
pub(super) fn select(pod: &Value, config: &InjectorConfig) -> Result<Vec<String>, InjectError> {
    let asked: Vec<String> = match annotation(pod, keys::TEMPLATES) {
        Some(text) => {
            let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
            if names.len() > MOST {
                return Err(InjectError::Annotations(vec![AnnotationError::TooMany {
                    key: keys::TEMPLATES,
                    given: text.to_owned(),
                    names: names.len(),
                    most: MOST,
                }]));
            }
            names
        }
        None => config.default_templates.clone(),
    };
    let mut names = Vec::new();
    for name in asked {
        let Some(more) = config.resolve(&name) else {
            let known = config.known_names().into_iter().map(str::to_owned).collect();
            return Err(InjectError::UnknownTemplate { name, known });
        };
        names.extend(more);
    }
    Ok(names)
}

pub(super) fn render(name: &str, config: &InjectorConfig, data: &Data<'_>) -> Result<Rendering, InjectError> {
    let Some(template) = config.templates.get(name) else {
        return Err(InjectError::UnknownTemplate { name: name.to_owned(), known: Vec::new() });
    };
    let rendered = template
        .template
        .render(data.value(), Limits::default())
        .map_err(|error| InjectError::Render(Box::new(error)))?;
    let bad = |error: YamlError| {
        let at = error.line.checked_sub(1);
        let line = at.and_then(|at| rendered.text.lines().nth(at)).unwrap_or_default().trim().to_owned();
        InjectError::Yaml { template: name.to_owned(), error: Box::new(error), line, values: String::new() }
    };
    let read =
        if template.spec_only { read_legacy(&rendered.text) } else { yaml::read_overlay(&rendered.text) };
    let yaml::Overlay { value: mut patch, spans, unknown, duplicate } = match read {
        Ok(read) => read,
        // What a value of the pod has broken is that value's fault, not the template's.
        Err(error) => return Err(breaking(name, &rendered).unwrap_or_else(|| bad(error))),
    };
    contained(name, &rendered, &spans)?;
    let mut flaws: Vec<Flaw> = unknown.into_iter().map(Flaw::Unknown).collect();
    if let Some(YamlError { line, problem: Problem::DuplicateKey(key), .. }) = duplicate {
        flaws.push(Flaw::DuplicateKey { key, line });
    }
    if rendered.text.contains(NO_VALUE) {
        no_values(&patch, &Path::root(), &mut flaws);
    }
    duplicates(&patch, &mut flaws);
    preserve::drop_empty(&mut patch);
    quantity::canonical_quantities(&mut patch).map_err(|error| InjectError::Quantity(Box::new(error)))?;
    let overlay = Overlay { name: name.to_owned(), patch, flaws };
    Ok(Rendering { overlay, bytes: rendered.text.len(), reads: rendered.reads })
}

/// What Go prints for a value that is not set.
const NO_VALUE: &str = "<no value>";

/// Finds the texts of a patch in which a value that is not set was printed.
fn no_values(value: &Value, path: &Path<'_>, flaws: &mut Vec<Flaw>) {
    match value {
        Value::String(text) if text.contains(NO_VALUE) => {
            flaws.push(Flaw::NoValue { path: path.to_string() });
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(at, item)| no_values(item, &path.item(at), flaws));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(key, value)| no_values(value, &path.field(key), flaws));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Finds containers of one name in a list: other duplicates are refused later.
fn duplicates(patch: &Value, flaws: &mut Vec<Flaw>) {
    for key in List::BOTH.map(List::key) {
        let items = list::items(patch, key).iter().filter(|item| item.lookup("$patch").is_none());
        let mut seen = Vec::new();
        for name in items.map(list::name).filter(|name| !name.is_empty()) {
            if seen.contains(&name) {
                flaws.push(Flaw::DuplicateItem { path: format!("spec.{key}"), name: name.to_owned() });
            }
            seen.push(name);
        }
    }
}

/// A template of the 1.0 era describes a pod spec, and was read with coercion: a number becomes its text.
fn read_legacy(text: &str) -> Result<yaml::Overlay, YamlError> {
    let mut spec = yaml::read(text)?;
    yaml::coerce(&mut spec, &schema::POD_SPEC);
    let (value, spans) = (json!({ "spec": spec }), yaml::scalar_spans(text)?);
    Ok(yaml::Overlay { value, spans, unknown: Vec::new(), duplicate: yaml::duplicate_key(text) })
}

/// No value of the pod may reach beyond the scalar it is printed in.
fn contained(name: &str, rendered: &Rendered<'_>, scalars: &[Range<usize>]) -> Result<(), InjectError> {
    let outside = |span: &&Span<'_>| {
        span.start < span.end && !yaml::within_one_scalar(scalars, &(span.start..span.end))
    };
    rendered.spans.iter().find(outside).map_or(Ok(()), |span| Err(escapes(name, span)))
}

/// What a value of the pod has broken, if one has: it reaches beyond its scalar, or holds what ends or begins
/// one.
fn breaking(name: &str, rendered: &Rendered<'_>) -> Option<InjectError> {
    if let Ok(scalars) = yaml::scalar_spans(&rendered.text) {
        return contained(name, rendered, &scalars).err();
    }
    const BEGIN: [char; 11] = ['{', '[', '&', '*', '!', '#', '|', '>', '%', '@', '`'];
    let breaks = |span: &&Span<'_>| {
        let text = rendered.text.get(span.start..span.end).unwrap_or_default();
        text.contains(['"', '\'']) || text.contains(char::is_control) || text.starts_with(BEGIN)
    };
    rendered.spans.iter().find(breaks).map(|span| escapes(name, span))
}

fn escapes(name: &str, span: &Span<'_>) -> InjectError {
    InjectError::ValueChangesStructure {
        template: name.to_owned(),
        origin: format!("{} {}", span.origin.kind, span.origin.key),
    }
}
