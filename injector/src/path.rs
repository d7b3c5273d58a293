//! JSON paths, and errors of fields. Paths are built on the stack, turned into text only for an error.

use std::fmt;

use gotemplate::is_same_name;
use serde_json::{Map, Value};

/// A place in an object, as a chain of steps up to the root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'a> {
    up: Option<&'a Self>,
    step: Step<'a>,
    depth: usize,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Item(usize),
}

impl<'a> Path<'a> {
    /// The object itself.
    pub(crate) const fn root() -> Self {
        Self { up: None, step: Step::Root, depth: 0 }
    }

    /// The field `name` below this place.
    pub(crate) const fn field(&'a self, name: &'a str) -> Self {
        Self { up: Some(self), step: Step::Field(name), depth: self.depth + 1 }
    }

    /// The list item `index` below this place.
    pub(crate) const fn item(&'a self, index: usize) -> Self {
        Self { up: Some(self), step: Step::Item(index), depth: self.depth + 1 }
    }

    /// As a JSON pointer.
    pub(crate) fn pointer(&self) -> String {
        let mut pointer = self.up.map(Self::pointer).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Field(name) => {
                pointer.push('/');
                pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
            }
            Step::Item(index) => pointer.push_str(&format!("/{index}")),
        }
        pointer
    }

    /// The number of steps from the root.
    pub(crate) const fn depth(&self) -> usize {
        self.depth
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.up {
            up.fmt(f)?;
        }
        match self.step {
            Step::Root => Ok(()),
            Step::Field(name) => {
                let first = self.up.is_none_or(|up| matches!(up.step, Step::Root));
                write!(f, "{}{name}", if first { "" } else { "." })
            }
            Step::Item(index) => write!(f, "[{index}]"),
        }
    }
}

/// Finds a field by comparing keys: most objects are small, and hashing a key takes longer than comparing a
/// few.
pub(crate) trait Lookup {
    /// The value of the field `key`; `None` also for what is no object.
    fn lookup(&self, key: &str) -> Option<&Value>;
}

impl Lookup for Map<String, Value> {
    fn lookup(&self, key: &str) -> Option<&Value> {
        const SMALL: usize = 12;
        if self.len() > SMALL {
            return self.get(key);
        }
        self.iter().find(|(own, _)| is_same_name(own, key)).map(|(_, value)| value)
    }
}

impl Lookup for Value {
    fn lookup(&self, key: &str) -> Option<&Value> {
        self.as_object()?.lookup(key)
    }
}

/// [`Value::pointer`] for pointers without escapes and without items of lists: it copies no part of the
/// pointer.
pub(crate) fn at<'a>(value: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(value, |value, key| value.lookup(key))
}

/// The text at a pointer; empty where there is none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What JSON calls the type of `value`.
pub(crate) const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A field whose value is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}{}{given} is not accepted, expected {expected}", if path.is_empty() { "" } else { ": " })]
pub struct FieldError {
    /// The field, like `defaultConfig.concurrency`; empty for the whole.
    pub path: String,
    /// The value of the field, as a message shows it.
    pub given: String,
    /// What is accepted.
    pub expected: String,
}

impl FieldError {
    /// A value that is not accepted: JSON, cut where it is long.
    pub(crate) fn new(path: &str, given: &Value, expected: &str) -> Self {
        let text = given.to_string();
        let given = if given.is_string() { text } else { cut(&text) };
        Self { path: path.to_owned(), given, expected: expected.to_owned() }
    }

    /// The error of a field below `parent`.
    pub(crate) fn below(self, parent: &str) -> Self {
        let path = if self.path.is_empty() { parent.to_owned() } else { format!("{parent}.{}", self.path) };
        Self { path, ..self }
    }
}

/// JSON as a message shows it.
pub(crate) fn cut(text: &str) -> String {
    const LONGEST: usize = 120;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
