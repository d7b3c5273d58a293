//! Rewrites files: unchanged documents keep every byte.

use std::time::Duration;

use serde_json::Value;
use similar::TextDiff;

use super::args::OutputArgs;
use super::input::{Examined, examine, is_read, item_place, placed, unreadable};
use super::{Exit, Failure, Output};
use crate::object::{self, Shape};
use crate::yaml;
use crate::yaml::Document;

/// What happens to one object that holds a pod.
pub(super) enum Change {
    /// It becomes this.
    Into(Box<Value>),
    /// It stays.
    None,
}

/// Changes an object that holds a pod; notes are for standard error, an error has one problem a line.
pub(super) type Changer<'a> = dyn FnMut(&Value, Shape, &mut Vec<String>) -> Result<Change, String> + 'a;

/// The format of what is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
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
    let (format, target) = match output.output.as_str() {
        "json" => (OutputFormat::Json, "-"),
        "yaml" => (OutputFormat::Yaml, "-"),
        // A bare word is a format of other tools, or a file name: `./NAME` writes that file.
        format if format != "-" && !format.contains(['.', '/']) => {
            let problem = format!(
                "--output {format}: no such format, expected json, yaml or a file: for a file of this name give ./{format}"
            );
            return Err(Failure::one(Exit::Usage, problem));
        }
        file => (OutputFormat::AsRead, file),
    };
    let mut run = Run {
        text: String::new(),
        notes: Vec::new(),
        summary: Vec::new(),
        problems: Vec::new(),
        any: false,
        diff: output.diff,
        differs: false,
        format,
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

struct Run<'a> {
    text: String,
    notes: Vec<String>,
    summary: Vec<String>,
    problems: Vec<String>,
    /// Whether there was anything to read; a file of its own may be empty, as a chart renders some.
    any: bool,
    diff: bool,
    differs: bool,
    format: OutputFormat,
    done: &'static str,
    change: &'a mut Changer<'a>,
}

impl Run<'_> {
    fn file(&mut self, name: &str, bytes: &[u8]) {
        let documents = match yaml::read_documents(bytes) {
            Ok(documents) => documents,
            Err(error) => {
                self.any = true;
                return self.problems.push(unreadable(name, bytes, &error.to_string()));
            }
        };
        self.any |= documents.iter().any(|document| !document.value.is_null());
        for (place, document) in placed(name, &documents) {
            let replaced = self.format != OutputFormat::AsRead && !document.value.is_null();
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
        let value = match (changed, self.format) {
            (None, OutputFormat::Json | OutputFormat::Yaml) if !document.value.is_null() => {
                Some(&document.value)
            }
            (changed, _) => changed,
        };
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        // JSON documents follow each other without a separator.
        if self.format != OutputFormat::Json {
            if !self.text.is_empty() && document.separator.is_empty() {
                self.text.push_str("---\n");
            }
            self.text.push_str(document.separator);
        }
        let Some(value) = value else {
            if self.format != OutputFormat::Json {
                self.text.push_str(document.body);
            }
            return;
        };
        if !(self.text.is_empty() || self.text.ends_with('\n')) {
            self.text.push('\n');
        }
        let as_json = match self.format {
            OutputFormat::AsRead => document.body.trim_start().starts_with('{'),
            OutputFormat::Json => true,
            OutputFormat::Yaml => false,
        };
        let text = if as_json { format!("{value:#}\n") } else { yaml::write(value) };
        let crlf = document.body.contains("\r\n");
        self.text.push_str(&if crlf { text.replace('\n', "\r\n") } else { text });
    }

    /// The changed List, if an item changes.
    fn list(&mut self, list: &Value, items: &[Value], place: &str) -> Option<Value> {
        let change =
            |(at, item): (usize, &Value)| self.object(&object::item(list, item), &item_place(place, at));
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
        let title = object::title(object);
        let shape = match examine(object) {
            Ok(Examined::Pod(shape)) => shape,
            Ok(Examined::NoPod { reason }) => {
                self.summary.push(format!("{title}: {reason}, not changed"));
                return None;
            }
            Ok(Examined::Nothing) => return None,
            Err(problems) => {
                self.problems.extend(problems.iter().map(|problem| format!("{place}: {problem}")));
                return None;
            }
        };
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

/// The difference between two objects as YAML, in the format of `diff -u`; empty if there is none.
fn unified_diff(name: &str, before: &Value, after: &Value) -> String {
    /// Where the lines are so many that the shortest difference takes longer, a longer one is shown.
    const TIMEOUT: Duration = Duration::from_secs(5);
    let (before, after) = (yaml::write(before), yaml::write(after));
    let diff = TextDiff::configure().timeout(TIMEOUT).diff_lines(&before, &after);
    diff.unified_diff().context_radius(3).header(name, &format!("{name} (after)")).to_string()
}
