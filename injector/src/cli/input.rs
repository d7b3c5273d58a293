//! Input of the commands: files, their documents, and which of them contain a pod.

use serde_json::Value;

use super::args::InputArgs;
use super::{Exit, Failure};
use crate::config::ProxyConfig;
use crate::files;
use crate::object::{self, Shape};
use crate::pod::list;
use crate::yaml::Document;

/// The files of the flags, each with its content.
pub(super) fn read(input: &InputArgs) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let read = |name: String| match files::read(&name) {
        Ok(bytes) => Ok((files::called(&name).to_owned(), bytes)),
        Err(error) => Err(Failure::reading(&name, &error)),
    };
    names(input)?.into_iter().map(read).collect()
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

/// Whether anything depends on what a document says: others are passed through.
pub(super) fn is_read(object: &Value) -> bool {
    match object::items(object) {
        Some(items) => items.iter().any(|item| is_read(&object::item(object, item))),
        None => {
            Shape::of(object).is_some() || !Shape::malformed(object).is_empty() || ProxyConfig::is_one(object)
        }
    }
}

/// The documents of a file, each with its place for messages.
pub(super) fn placed<'d, 't>(
    name: &str,
    documents: &'d [Document<'t>],
) -> impl Iterator<Item = (String, &'d Document<'t>)> {
    let several = documents.len() > 1;
    documents.iter().enumerate().map(move |(at, document)| {
        let place = if several { format!("{name}, document {}", at + 1) } else { name.to_owned() };
        (place, document)
    })
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

/// What is wrong with a file that is not YAML: a chart's template, JSON, or just that.
pub(super) fn unreadable(name: &str, bytes: &[u8], error: &str) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.contains("{{") && text.contains("}}") {
        return format!("{name}: {error}; it has template actions ({{{{ ... }}}}): run helm template first");
    }
    match serde_json::from_str::<Value>(&text) {
        Err(json) if text.trim_start().starts_with(['{', '[']) => format!("{name}: not valid JSON: {json}"),
        _ => format!("{name}: {error}"),
    }
}

/// The name or image that helm has yet to fill in.
fn template_action(object: &Value, shape: Shape) -> Option<String> {
    let is_action = |value: &Value| value.as_str().is_some_and(|text| text.contains("{{"));
    if object.pointer("/metadata/name").is_some_and(is_action) {
        return Some("metadata.name".to_owned());
    }
    let pod = shape.pod(object);
    let mut found = list::all_containers(&pod)
        .filter(|one| one.get("image").is_some_and(is_action) || one.get("name").is_some_and(is_action));
    found.next().map(|container| format!("container {}", list::name(container)))
}
