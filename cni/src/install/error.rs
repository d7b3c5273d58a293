//! Errors on the node: the file, the problem, and a fix if there is one.

use std::fmt;
use std::io;
use std::path::Path;

use istio_iptables::text::path_shown;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallError(String);

impl InstallError {
    /// A problem in words.
    #[must_use]
    pub fn new(problem: impl Into<String>) -> Self {
        Self(problem.into())
    }

    /// A failed operation on a file.
    #[must_use]
    pub fn io(what: &str, path: &Path, error: &io::Error) -> Self {
        Self(format!("cannot {what} {}: {error}", path_shown(path)))
    }
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for InstallError {}
