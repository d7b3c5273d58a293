//! Input of the commands: files, their documents, and which of them contain a pod.

use std::io;

use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::args::InputArgs;
use super::{Exit, Failure};
use crate::config::ProxyConfig;
use crate::files::{self, Input};
use crate::object::{self, Shape};
use crate::pod::list;
use crate::yaml::{Part, PartError, Parts};

/// The files of the flags, each of which can be read.
pub(super) fn open(input: &InputArgs) -> Result<Vec<Input>, Failure> {
    let open = |name: String| Input::new(&name).map_err(|error| Failure::reading(&name, &error));
    names(input)?.into_iter().map(open).collect()
}

/// Passes each document of a file to `visit`, until it returns false.
/// Errors: the file cannot be read. A document that cannot be split off is passed as a problem, and is the
/// last one.
pub(super) fn each_part(
    input: &mut Input,
    visit: &mut dyn FnMut(Result<Part, String>) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let name = input.called().to_owned();
    let failed = |error: &io::Error| Failure::reading(&name, error);
    let mut parts = Parts::new(input.open().map_err(|error| failed(&error))?);
    loop {
        let part = match parts.next_part() {
            Ok(None) => return Ok(()),
            Ok(Some(part)) => Ok(part),
            Err(PartError::Io(error)) => return Err(failed(&error)),
            Err(PartError::Document { number, error }) => {
                Err(unreadable(&named(&name, number, number > 1), "", &error.to_string()))
            }
        };
        let last = part.is_err();
        if !visit(part)? || last {
            return Ok(());
        }
    }
}

/// The files of the flags, directories expanded.
pub(super) fn names(input: &InputArgs) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for name in &input.filename {
        if name.starts_with("http://") || name.starts_with("https://") {
            let problem =
                format!("{name}: a URL, expected a file: curl -fsSL {name} | sidecar-injector ... -f -");
            return Err(Failure::one(Exit::NoInput, problem));
        }
        let more = files::expand(name, input.recursive).map_err(|error| Failure::reading(name, &error))?;
        if more.is_empty() {
            return Err(Failure::one(
                Exit::NoInput,
                format!("{name}: no .yaml, .yml or .json file in this directory"),
            ));
        }
        names.extend(more);
    }
    Ok(names)
}

/// What is lost where a kustomization changes the files beside it: nothing of it is applied here.
pub(super) fn kustomization(inputs: &mut [Input]) -> Option<String> {
    /// The keys of a kustomization that change no other file.
    const WITHOUT_EFFECT: [&str; 4] = ["apiVersion", "kind", "metadata", "resources"];
    let changes = |input: &mut Input| {
        let mut changes = false;
        let _ = each_part(input, &mut |part| {
            let document = part.ok().and_then(|mut part| part.read().ok());
            let value = document.map(|document| document.value).unwrap_or_default();
            let mut keys = value.as_object().into_iter().flat_map(Map::keys);
            changes |= keys.any(|key| !WITHOUT_EFFECT.contains(&key.as_str()));
            Ok(true)
        });
        changes
    };
    let mut all =
        inputs.iter_mut().filter(|input| matches!(input.base(), "kustomization.yaml" | "kustomization.yml"));
    let folder = all.find_map(|input| changes(input).then(|| input.folder().to_owned()))?;
    Some(format!(
        "{folder}: its kustomization is not applied: run kubectl kustomize first: kubectl kustomize {folder} | sidecar-injector ... -f -"
    ))
}

/// Whether anything depends on what a document says: others are passed through.
pub(super) fn is_read(object: &Value) -> bool {
    match object::items(object) {
        Some(items) => items.iter().any(|item| is_read(&object::item(object, item))),
        None => {
            Shape::of(object).is_some() || !Shape::malformed(object).is_empty() || ProxyConfig::is_one(object)
        }
    }
}

/// The output cannot be collected.
pub(super) fn uncollected(error: &io::Error) -> Failure {
    Failure::one(Exit::CannotCreate, format!("output: {}", files::plain(error)))
}

/// A document for messages: the file, and where it has several the number.
fn named(file: &str, number: usize, several: bool) -> String {
    if several { format!("{file}, document {number}") } else { file.to_owned() }
}

/// The places of a document for messages.
pub(super) struct Place {
    /// File and number.
    pub(super) name: String,
    /// With the line of the file in which it begins.
    pub(super) line: String,
}

impl Place {
    pub(super) fn new(file: &str, part: &Part) -> Self {
        let name = named(file, part.number, part.several);
        let is_empty = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let line = part.line + part.body.lines().take_while(is_empty).count();
        let line = if part.several { format!("{name} (line {line})") } else { name.clone() };
        Self { name, line }
    }
}

/// The place of an item of the List at `place`.
pub(super) fn item_place(place: &str, index: usize) -> String {
    format!("{place}, item {}", index + 1)
}

/// What an object of a file is; a List's items are examined one by one.
pub(super) enum Examined {
    Pod(Shape),
    NoPod {
        reason: &'static str,
    },
    /// An empty document.
    Nothing,
}

/// Examines an object that is not a List.
/// Errors: why no command takes it.
pub(super) fn examine(object: &Value) -> Result<Examined, Vec<String>> {
    let title = object::title(object);
    let malformed = Shape::malformed(object);
    if !malformed.is_empty() {
        return Err(malformed.iter().map(|problem| format!("{title}: {problem}")).collect());
    }
    if object.get("kind").and_then(Value::as_str).is_none_or(str::is_empty) {
        if object.is_null() {
            return Ok(Examined::Nothing);
        }
        let found = if object.is_object() { "an object without kind" } else { "no object" };
        return Err(vec![format!("{found}, expected objects of Kubernetes, each with apiVersion and kind")]);
    }
    let Some(shape) = Shape::of(object) else {
        // Such as an Argo Rollout: istioctl passes it through, too.
        let reason = if object::has_containers(object) {
            "the pods of this kind are injected by the webhook only"
        } else {
            "no pod"
        };
        return Ok(Examined::NoPod { reason });
    };
    match template_action(object, shape) {
        Some(field) => Err(vec![format!("{title}: {field} has a template action: run helm template first")]),
        None => Ok(Examined::Pod(shape)),
    }
}

/// What is wrong with a document that is not YAML: a chart's template, JSON, or just that.
pub(super) fn unreadable(place: &str, text: &str, error: &str) -> String {
    if text.contains("{{") && text.contains("}}") {
        return format!("{place}: {error}; it has template actions ({{{{ ... }}}}): run helm template first");
    }
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(json) if text.trim_start().starts_with(['{', '[']) => format!("{place}: not valid JSON: {json}"),
        _ => format!("{place}: {error}"),
    }
}

/// The name or image that helm has yet to fill in.
fn template_action(object: &Value, shape: Shape) -> Option<String> {
    let is_action = |value: &Value| value.as_str().is_some_and(|text| text.contains("{{"));
    if object.pointer("/metadata/name").is_some_and(is_action) {
        return Some("metadata.name".to_owned());
    }
    let mut found = shape
        .containers(object)
        .filter(|one| one.get("image").is_some_and(is_action) || one.get("name").is_some_and(is_action));
    found.next().map(|container| format!("container {}", list::name(container)))
}
