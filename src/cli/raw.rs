//! Options as text, with their origin.

use std::collections::BTreeMap;
use std::fmt;

use super::options::Key;

/// The sub-command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubCommand {
    /// Make the rules (also without a sub-command).
    #[default]
    Apply,
    /// Remove what an earlier run added.
    Cleanup,
}

impl SubCommand {
    /// All of them, in the order of `--help`.
    pub const ALL: [Self; 2] = [Self::Apply, Self::Cleanup];

    /// The word on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Cleanup => "cleanup",
        }
    }

    /// One sentence for `--help`.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Apply => "Write the rules that the options ask for (the default)",
            Self::Cleanup => "Remove what an earlier run added; the same as --cleanup-only",
        }
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The config file.
    Document(Key),
    /// The command line.
    Flag(Key),
    /// The environment variable of this name.
    Variable(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document(key) => write!(f, "config key {}", key.spec().name),
            Self::Flag(key) => key.fmt(f),
            Self::Variable(name) => write!(f, "variable {name}"),
        }
    }
}

/// A value as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The text; lists are separated by commas whatever they came from.
    pub text: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// The options before anything is read into them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawOptions {
    /// The sub-command.
    pub command: SubCommand,
    values: BTreeMap<Key, Given>,
}

impl RawOptions {
    /// The given value of `key`, if any. The text may be empty.
    #[must_use]
    pub fn given(&self, key: Key) -> Option<&Given> {
        self.values.get(&key)
    }

    /// Everything that was given, in the order of the table.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &Given)> {
        self.values.iter().map(|(key, given)| (*key, given))
    }

    /// Takes a value unless one of higher precedence is there already.
    pub(super) fn offer(&mut self, key: Key, given: Given) {
        self.values.entry(key).or_insert(given);
    }
}
