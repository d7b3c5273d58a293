//! What is wrong with a config file.

use std::fmt;

/// A config, values or mesh config that cannot be used: one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, or what stands for it.
    pub source: String,
    /// The key, or line and column; empty for the whole.
    pub place: String,
    /// What was found and what is accepted.
    pub problem: String,
}

impl ConfigError {
    pub(super) fn new(source: &str, place: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { source: source.to_owned(), place: place.into(), problem: problem.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.source)?;
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for ConfigError {}
