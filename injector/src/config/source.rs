//! A config file that was read.

/// A file, by name and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its name, for messages.
    pub name: String,
    /// Its content.
    pub text: String,
}
