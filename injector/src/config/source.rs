//! A config file that was read.

/// A file, by name and content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The name of the file, for messages.
    pub name: String,
    /// The content of the file.
    pub text: String,
}
