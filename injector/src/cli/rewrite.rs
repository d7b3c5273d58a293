//! Rewrites files: unchanged documents keep every byte.

use std::io;
use std::time::Duration;

use serde_json::Value;
use similar::TextDiff;

use super::args::OutputArgs;
use super::input::{Examined, Place, examine, is_read, item_place, kustomization, uncollected, unreadable};
use super::pipeline::each_in_order;
use super::{Exit, Failure, Output};
use crate::files::{Input, Spool};
use crate::object::{self, Shape};
use crate::yaml::{self, Document, Part};

/// What happens to one object that holds a pod.
pub(super) enum Change {
    /// The object becomes this one.
    Into(Box<Value>),
    /// The object stays as it is.
    None,
}

/// Changes an object that holds a pod; notes are for standard error, an error has one problem a line.
pub(super) type Changer<'a> = dyn Fn(&Value, Shape, &mut Vec<String>) -> Result<Change, String> + Sync + 'a;

/// The format of what is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
    /// Each changed document in its own, the others byte for byte.
    AsRead,
    Json,
    Yaml,
}

/// Passes every object with a pod to `change`, and replaces it by the result; `done` is what a changed one is
/// then. All problems are reported; with one, nothing is written. Two documents are changed at a time.
pub(super) fn rewrite(
    inputs: &mut [Input],
    output: &OutputArgs,
    done: &'static str,
    change: &Changer<'_>,
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
    let run = Run { diff: output.diff, format, done, change };
    let mut all = Results::default();
    let hint = kustomization(inputs);
    for input in inputs.iter_mut() {
        let file = input.called().to_owned();
        let result =
            each_in_order(input, &|part| run.document(&file, part), &mut |result| all.add(result, &run));
        result?;
    }
    if !all.any {
        let names: Vec<&str> = inputs.iter().map(Input::called).collect();
        all.problems.push(format!("{}: no document, expected objects of Kubernetes", names.join(", ")));
    }
    let Results { text, mut notes, mut summary, mut problems, differs, .. } = all;
    if !problems.is_empty() {
        problems.extend(hint);
        return Err(Failure::new(Exit::Data, problems));
    }
    notes.extend(hint.map(|hint| format!("warning: {hint}")));
    if output.quiet {
        summary.clear();
    }
    let (text, large) = text.finish().map_err(|error| uncollected(&error))?;
    Ok(Output { text, large, notes, summary, refused: output.diff && differs, target: target.to_owned() })
}

/// What is done to each document.
struct Run<'a> {
    diff: bool,
    format: OutputFormat,
    done: &'static str,
    change: &'a Changer<'a>,
}

/// What became of one document.
#[derive(Default)]
struct Rewritten {
    separator: String,
    body: String,
    joined: bool,
    /// The text instead of the body.
    replaced: Option<String>,
    notes: Vec<String>,
    summary: Vec<String>,
    problems: Vec<String>,
    /// Whether there was anything to read; a file of its own may be empty, as a chart renders some.
    any: bool,
    /// Whether the rest of the file is not read.
    ends: bool,
    differs: bool,
}

/// What became of all of them.
#[derive(Default)]
struct Results {
    text: Spool,
    notes: Vec<String>,
    summary: Vec<String>,
    problems: Vec<String>,
    any: bool,
    differs: bool,
}

impl Results {
    /// Adds a document; false if the rest of its file is not to be read.
    fn add(&mut self, one: Rewritten, run: &Run<'_>) -> Result<bool, Failure> {
        if self.problems.is_empty() && one.problems.is_empty() {
            self.write(&one, run).map_err(|error| uncollected(&error))?;
        }
        self.notes.extend(one.notes);
        self.summary.extend(one.summary);
        self.problems.extend(one.problems);
        self.any |= one.any;
        self.differs |= one.differs;
        Ok(!one.ends)
    }

    fn write(&mut self, one: &Rewritten, run: &Run<'_>) -> io::Result<()> {
        if run.diff {
            return self.text.push(one.replaced.as_deref().unwrap_or_default());
        }
        // JSON texts follow each other without a separator.
        let follows = one.joined && run.format == OutputFormat::AsRead;
        if !(self.text.at_line_start() || follows) {
            self.text.push("\n")?;
        }
        if run.format != OutputFormat::Json {
            if !self.text.is_empty() && one.separator.is_empty() && !follows {
                self.text.push("---\n")?;
            }
            self.text.push(&one.separator)?;
        }
        let Some(replaced) = &one.replaced else {
            return if run.format == OutputFormat::Json { Ok(()) } else { self.text.push(&one.body) };
        };
        if !self.text.at_line_start() {
            self.text.push("\n")?;
        }
        self.text.push(replaced)
    }
}

impl Run<'_> {
    fn document(&self, file: &str, part: Result<Part, String>) -> Rewritten {
        let mut result = Rewritten { any: true, ..Rewritten::default() };
        let mut part = match part {
            Ok(part) => part,
            Err(problem) => {
                result.problems.push(problem);
                return result;
            }
        };
        let place = Place::new(file, &part);
        result.joined = part.joined;
        let document = match part.read() {
            Ok(document) => document,
            Err(error) => {
                result.problems.push(unreadable(&place.name, &part.body, &error.to_string()));
                result.ends = true;
                return result;
            }
        };
        result.any = !document.value.is_null();
        let replaced = self.format != OutputFormat::AsRead && result.any;
        if let Some(duplicate) = document.duplicate.as_ref().filter(|_| replaced || is_read(&document.value))
        {
            result.problems.push(format!("{}: {duplicate}", place.name));
            return result;
        }
        let surprises = document.surprises.iter();
        result.notes.extend(surprises.map(|surprise| format!("warning: {}: {surprise}", place.line)));
        let changed = self.object(&document.value, &place.line, &mut result);
        if self.diff {
            result.replaced = changed.map(|changed| unified_diff(&place.name, &document.value, &changed));
            result.differs = result.replaced.as_ref().is_some_and(|diff| !diff.is_empty());
        } else {
            result.replaced = self.replacement(&document, changed.as_ref());
            (result.separator, result.body) = (document.separator, document.body);
        }
        result
    }

    /// The text in place of a document's, if it has another one.
    fn replacement(&self, document: &Document, changed: Option<&Value>) -> Option<String> {
        let same =
            (self.format != OutputFormat::AsRead && !document.value.is_null()).then_some(&document.value);
        let value = changed.or(same)?;
        let as_json = match self.format {
            OutputFormat::AsRead => document.body.trim_start().starts_with('{'),
            OutputFormat::Json => true,
            OutputFormat::Yaml => false,
        };
        let text = if as_json { format!("{value:#}\n") } else { yaml::write(value) };
        let crlf = document.body.contains("\r\n");
        Some(if crlf { text.replace('\n', "\r\n") } else { text })
    }

    /// The changed List, if an item changes.
    fn list(&self, list: &Value, items: &[Value], place: &str, result: &mut Rewritten) -> Option<Value> {
        let change = |(at, item): (usize, &Value)| {
            self.object(&object::item(list, item), &item_place(place, at), result)
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
    fn object(&self, object: &Value, place: &str, result: &mut Rewritten) -> Option<Value> {
        if let Some(items) = object::items(object) {
            return self.list(object, items, place, result);
        }
        let title = object::title(object);
        let shape = match examine(object) {
            Ok(Examined::Pod(shape)) => shape,
            Ok(Examined::NoPod { reason }) => {
                result.summary.push(format!("{title}: {reason}, not changed"));
                return None;
            }
            Ok(Examined::Nothing) => return None,
            Err(problems) => {
                result.problems.extend(problems.iter().map(|problem| format!("{place}: {problem}")));
                return None;
            }
        };
        match (self.change)(object, shape, &mut result.notes) {
            Ok(Change::Into(changed)) => {
                result.summary.push(format!("{title}: {}", self.done));
                Some(*changed)
            }
            Ok(Change::None) => {
                result.summary.push(format!("{title}: not changed"));
                None
            }
            Err(problem) => {
                result.problems.extend(problem.lines().map(|line| format!("{place}: {title}: {line}")));
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
