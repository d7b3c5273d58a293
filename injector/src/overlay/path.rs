//! Where in an object we are: built on the stack, turned into text only for an error.

use std::fmt;

use super::{MAX_DEPTH, MergeError, Problem};

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

    pub(super) fn error(&self, problem: Problem) -> MergeError {
        MergeError { path: self.to_string(), problem }
    }

    pub(super) fn check_depth(&self) -> Result<(), MergeError> {
        if self.depth > MAX_DEPTH { Err(self.error(Problem::TooDeep)) } else { Ok(()) }
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
