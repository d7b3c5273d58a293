//! Files in, files out: documents that are not changed keep every byte.

use std::time::Duration;

use serde_json::Value;
use similar::TextDiff;

use super::args::{InputArgs, OutputArgs};
use super::load::called;
use super::{Exit, Failure, Output};
use crate::object::{self, Shape};
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
        Err(error) => Err(Failure::one(Exit::NoInput, format!("{}: {error}", called(&name)))),
    };
    names(input)?.into_iter().map(read).collect()
}

/// Passes every object with a pod to `change`, and replaces it by the result. All problems are reported; with one,
/// nothing is written.
pub(super) fn rewrite(
    files: &[(String, Vec<u8>)],
    output: &OutputArgs,
    change: &mut Changer<'_>,
) -> Result<Output, Failure> {
    let mut run =
        Run { text: String::new(), notes: Vec::new(), problems: Vec::new(), diff: output.diff, change };
    for (name, bytes) in files {
        run.file(name, bytes);
    }
    let Run { text, notes, problems, .. } = run;
    if problems.is_empty() {
        Ok(Output { text, notes, refused: false, target: output.output.clone() })
    } else {
        Err(Failure::new(Exit::Data, problems))
    }
}

/// The files of the flags, directories expanded.
pub(super) fn names(input: &InputArgs) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for name in &input.filename {
        let more =
            files::expand(name).map_err(|error| Failure::one(Exit::NoInput, format!("{name}: {error}")))?;
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
    problems: Vec<String>,
    diff: bool,
    change: &'a mut Changer<'a>,
}

impl Run<'_> {
    fn file(&mut self, name: &str, bytes: &[u8]) {
        let documents = match yaml::read_documents(bytes) {
            Ok(documents) => documents,
            Err(error) => return self.problems.push(format!("{name}: {error}")),
        };
        let count = documents.len();
        for (at, document) in documents.iter().enumerate() {
            let place = if count > 1 { format!("{name}, document {}", at + 1) } else { name.to_owned() };
            let changed = self.object(&document.value, &place);
            if self.diff {
                if let Some(changed) = changed {
                    self.text.push_str(&unified_diff(&place, &document.value, &changed));
                }
                continue;
            }
            if !self.text.is_empty() && !self.text.ends_with('\n') {
                self.text.push('\n');
            }
            if !self.text.is_empty() && document.separator.is_empty() {
                self.text.push_str("---\n");
            }
            self.text.push_str(document.separator);
            match changed {
                Some(changed) => {
                    if !(self.text.is_empty() || self.text.ends_with('\n')) {
                        self.text.push('\n');
                    }
                    self.text.push_str(&yaml::write(&changed));
                }
                None => self.text.push_str(document.body),
            }
        }
    }

    /// The changed object, if it changes. The items of a List are objects of their own.
    fn object(&mut self, object: &Value, place: &str) -> Option<Value> {
        if let Some(items) = object::items(object) {
            let changed: Vec<Option<Value>> = items
                .iter()
                .enumerate()
                .map(|(at, item)| self.object(item, &format!("{place}, item {}", at + 1)))
                .collect();
            if changed.iter().all(Option::is_none) {
                return None;
            }
            let mut list = object.clone();
            let slots = list.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten();
            for (slot, new) in slots.zip(changed) {
                if let Some(new) = new {
                    *slot = new;
                }
            }
            return Some(list);
        }
        let malformed = Shape::malformed(object);
        if !malformed.is_empty() {
            let title = object::title(object);
            self.problems.extend(malformed.iter().map(|problem| format!("{place}: {title}: {problem}")));
            return None;
        }
        let shape = Shape::of(object)?;
        let mut notes = Vec::new();
        let result = (self.change)(object, shape, &mut notes);
        self.notes.extend(notes);
        match result {
            Ok(Change::Into(changed)) => Some(*changed),
            Ok(Change::None) => None,
            Err(problem) => {
                let title = object::title(object);
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
