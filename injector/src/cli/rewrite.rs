//! Files in, files out: documents that are not changed keep every byte.

use std::time::Duration;

use serde_json::Value;
use similar::TextDiff;

use super::args::{InputArgs, OutputArgs};
use super::load::called;
use super::{Exit, Failure, Output};
use crate::config::ProxyConfig;
use crate::object::{self, Shape};
use crate::pod::list;
use crate::yaml::Document;
use crate::{files, yaml};

/// What happens to one object that holds a pod.
pub(super) enum Change {
    /// It becomes this.
    Into(Box<Value>),
    /// It stays.
    None,
}

/// Changes an object that holds a pod; notes are for standard error, an error has one problem a line.
pub(super) type Changer<'a> = dyn FnMut(&Value, Shape, &mut Vec<String>) -> Result<Change, String> + 'a;

/// The files of the flags, each with its content.
pub(super) fn read(input: &InputArgs) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let read = |name: String| match files::read(&name) {
        Ok(bytes) => Ok((called(&name).to_owned(), bytes)),
        Err(error) => {
            Err(Failure::one(Exit::NoInput, format!("{}: {}", called(&name), files::plain(&error))))
        }
    };
    names(input)?.into_iter().map(read).collect()
}

/// The format of what is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    /// Each changed document in its own, the others byte for byte.
    AsRead,
    Json,
    Yaml,
}

/// Passes every object with a pod to `change`, and replaces it by the result; `done` is what a changed one is then. All
/// problems are reported; with one, nothing is written.
pub(super) fn rewrite(
    files: &[(String, Vec<u8>)],
    output: &OutputArgs,
    done: &'static str,
    change: &mut Changer<'_>,
) -> Result<Output, Failure> {
    let (written, target) = match output.output.as_str() {
        "json" => (Written::Json, "-"),
        "yaml" => (Written::Yaml, "-"),
        // A bare word is a format of other tools, or a file name: `./NAME` writes that file.
        format if format != "-" && !format.contains(['.', '/']) => {
            let problem = format!(
                "--output {format}: no such format, expected json, yaml or a file: for a file of this name give ./{format}"
            );
            return Err(Failure::one(Exit::Usage, problem));
        }
        file => (Written::AsRead, file),
    };
    let mut run = Run {
        text: String::new(),
        notes: Vec::new(),
        summary: Vec::new(),
        problems: Vec::new(),
        any: false,
        diff: output.diff,
        differs: false,
        written,
        done,
        change,
    };
    for (name, bytes) in files {
        run.file(name, bytes);
    }
    if !run.any {
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        run.problems.push(format!("{}: no document, expected objects of Kubernetes", names.join(", ")));
    }
    let Run { text, notes, mut summary, problems, differs, .. } = run;
    if !problems.is_empty() {
        return Err(Failure::new(Exit::Data, problems));
    }
    if output.quiet {
        summary.clear();
    }
    Ok(Output { text, notes, summary, refused: output.diff && differs, target: target.to_owned() })
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
        let more = files::expand(name, input.recursive)
            .map_err(|error| Failure::one(Exit::NoInput, format!("{name}: {}", files::plain(&error))))?;
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

struct Run<'a> {
    text: String,
    notes: Vec<String>,
    summary: Vec<String>,
    problems: Vec<String>,
    /// Whether there was anything to read; a file of its own may be empty, as a chart renders some.
    any: bool,
    diff: bool,
    differs: bool,
    written: Written,
    done: &'static str,
    change: &'a mut Changer<'a>,
}

impl Run<'_> {
    fn file(&mut self, name: &str, bytes: &[u8]) {
        let documents = match yaml::read_documents(bytes) {
            Ok(documents) => documents,
            Err(error) => {
                self.any = true;
                return self.problems.push(format!("{name}: {}", unreadable(bytes, &error.to_string())));
            }
        };
        self.any |= documents.iter().any(|document| !document.value.is_null());
        let count = documents.len();
        for (at, document) in documents.iter().enumerate() {
            let place = if count > 1 { format!("{name}, document {}", at + 1) } else { name.to_owned() };
            let replaced = self.written != Written::AsRead && !document.value.is_null();
            if let Some(duplicate) =
                document.duplicate.as_ref().filter(|_| replaced || is_read(&document.value))
            {
                self.problems.push(format!("{name}: {duplicate}"));
                continue;
            }
            let surprises = document.surprises.iter();
            self.notes.extend(surprises.map(|surprise| format!("warning: {place}: {surprise}")));
            let changed = self.object(&document.value, &place);
            if self.diff {
                if let Some(changed) = changed {
                    let diff = unified_diff(&place, &document.value, &changed);
                    self.differs |= !diff.is_empty();
                    self.text.push_str(&diff);
                }
                continue;
            }
            self.write(document, changed.as_ref());
        }
    }

    fn write(&mut self, document: &Document<'_>, changed: Option<&Value>) {
        let value = match (changed, self.written) {
            (None, Written::Json | Written::Yaml) if !document.value.is_null() => Some(&document.value),
            (changed, _) => changed,
        };
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        // JSON documents follow each other without a separator.
        if self.written != Written::Json {
            if !self.text.is_empty() && document.separator.is_empty() {
                self.text.push_str("---\n");
            }
            self.text.push_str(document.separator);
        }
        let Some(value) = value else {
            if self.written != Written::Json {
                self.text.push_str(document.body);
            }
            return;
        };
        if !(self.text.is_empty() || self.text.ends_with('\n')) {
            self.text.push('\n');
        }
        let as_json = match self.written {
            Written::AsRead => document.body.trim_start().starts_with('{'),
            Written::Json => true,
            Written::Yaml => false,
        };
        let text = if as_json { format!("{value:#}\n") } else { yaml::write(value) };
        let crlf = document.body.contains("\r\n");
        self.text.push_str(&if crlf { text.replace('\n', "\r\n") } else { text });
    }

    /// The changed List, if an item changes.
    fn list(&mut self, list: &Value, items: &[Value], place: &str) -> Option<Value> {
        let change = |(at, item): (usize, &Value)| {
            self.object(&object::item(list, item), &format!("{place}, item {}", at + 1))
        };
        let changed: Vec<Option<Value>> = items.iter().enumerate().map(change).collect();
        if changed.iter().all(Option::is_none) {
            return None;
        }
        let mut list = list.clone();
        let slots = list.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten();
        for (slot, new) in slots.zip(changed) {
            if let Some(new) = new {
                *slot = new;
            }
        }
        Some(list)
    }

    /// The changed object, if it changes. The items of a List are objects of their own.
    fn object(&mut self, object: &Value, place: &str) -> Option<Value> {
        if let Some(items) = object::items(object) {
            return self.list(object, items, place);
        }
        let malformed = Shape::malformed(object);
        if !malformed.is_empty() {
            let title = object::title(object);
            self.problems.extend(malformed.iter().map(|problem| format!("{place}: {title}: {problem}")));
            return None;
        }
        if object.get("kind").and_then(Value::as_str).is_none_or(str::is_empty) {
            if !object.is_null() {
                let found = if object.is_object() { "an object without kind" } else { "no object" };
                self.problems.push(format!(
                    "{place}: {found}, expected objects of Kubernetes, each with apiVersion and kind"
                ));
            }
            return None;
        }
        let title = object::title(object);
        let Some(shape) = Shape::of(object) else {
            // Such as an Argo Rollout: istioctl passes it through, too.
            let why = if object::has_containers(object) {
                "the pods of this kind are injected by the webhook only"
            } else {
                "no pod"
            };
            self.summary.push(format!("{title}: {why}, not changed"));
            return None;
        };
        if let Some(field) = template_action(object, shape) {
            self.problems
                .push(format!("{place}: {title}: {field} has a template action: run helm template first"));
            return None;
        }
        let mut notes = Vec::new();
        let result = (self.change)(object, shape, &mut notes);
        self.notes.extend(notes);
        match result {
            Ok(Change::Into(changed)) => {
                self.summary.push(format!("{title}: {}", self.done));
                Some(*changed)
            }
            Ok(Change::None) => {
                self.summary.push(format!("{title}: not changed"));
                None
            }
            Err(problem) => {
                self.problems.extend(problem.lines().map(|line| format!("{place}: {title}: {line}")));
                None
            }
        }
    }
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

/// What is wrong with a file that is no YAML: a chart's template, JSON, or just that.
fn unreadable(bytes: &[u8], error: &str) -> String {
    let text = String::from_utf8_lossy(bytes);
    if text.contains("{{") && text.contains("}}") {
        return format!("{error}; it has template actions ({{{{ ... }}}}): run helm template first");
    }
    match serde_json::from_str::<Value>(&text) {
        Err(json) if text.trim_start().starts_with(['{', '[']) => format!("not valid JSON: {json}"),
        _ => error.to_owned(),
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

/// The difference between two objects as YAML, in the format of `diff -u`; empty if there is none.
fn unified_diff(name: &str, before: &Value, after: &Value) -> String {
    /// Where the lines are so many that the shortest difference takes longer, a longer one is shown.
    const TIMEOUT: Duration = Duration::from_secs(5);
    let (before, after) = (yaml::write(before), yaml::write(after));
    let diff = TextDiff::configure().timeout(TIMEOUT).diff_lines(&before, &after);
    diff.unified_diff().context_radius(3).header(name, &format!("{name} (after)")).to_string()
}
