//! Error reports: what failed, the tool's output, and the fix.

use std::fmt;
use std::io;

use crate::exit::Exit;

/// Why a run could not do what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The failure, in one line.
    pub what: String,
    /// Details: the tool's output, the offending line.
    pub details: Vec<String>,
    /// The likely cause and the fix.
    pub hint: Option<String>,
    /// Kernel modules whose absence is the cause; none if it is another one.
    pub missing_modules: Vec<&'static str>,
}

impl Failure {
    /// A failure without further details.
    #[must_use]
    pub fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self { exit, what: what.into(), details: Vec::new(), hint: None, missing_modules: Vec::new() }
    }

    /// Standard output is closed, or cannot take all of a report.
    #[must_use]
    pub fn no_output(error: &io::Error) -> Self {
        Self::new(Exit::CannotCreate, format!("cannot write to standard output: {error}"))
    }

    /// Adds what else is known; empty lines are not.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        self.details
            .extend(detail.lines().map(str::trim_end).filter(|line| !line.is_empty()).map(str::to_owned));
        self
    }

    /// Adds what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says that kernel modules are missing.
    #[must_use]
    pub fn missing(mut self, modules: Vec<&'static str>) -> Self {
        self.missing_modules = modules;
        self
    }

    /// One line per thought, for logs in which a line is a record.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        let details = self.details.iter().map(|detail| format!("  {detail}"));
        let hint = self.hint.iter().map(|hint| format!("what to do: {hint}"));
        std::iter::once(self.what.clone()).chain(details).chain(hint)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.lines().collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Failure {}
