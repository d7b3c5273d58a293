//! What is wrong with a config file.

use std::fmt;

use crate::path::FieldError;
use crate::yaml::YamlError;

/// A config, values or mesh config that cannot be used: one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The file, or the name of another source.
    pub source: String,
    /// The key, or line and column; empty for the whole.
    pub place: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong with a config.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// Several ConfigMaps have the key.
    AmbiguousKey {
        /// The key.
        key: String,
        /// The ConfigMaps.
        maps: Vec<String>,
    },
    /// A key of a ConfigMap without content.
    BlankKey,
    /// A file without content.
    EmptyFile {
        /// What it is to hold.
        expected: String,
        /// The option that names it.
        flag: &'static str,
    },
    /// A field whose value is not accepted.
    Field(Box<FieldError>),
    /// No ConfigMap has the key.
    MissingKey {
        /// The key.
        key: String,
        /// How many ConfigMaps there are.
        maps: usize,
    },
    /// An object without a kind, as a truncated file has it.
    MissingKind,
    /// No template at all.
    NoTemplates,
    /// Neither an injector config nor a template.
    NotAConfig,
    /// A template that cannot be parsed.
    Template(Box<gotemplate::Error>),
    /// It cannot be read, or pods cannot be injected with it.
    Unusable(String),
    /// A name without a template.
    UnknownTemplate {
        /// The name.
        name: String,
        /// The templates.
        known: Vec<String>,
    },
    /// Another type.
    WrongType(&'static str),
    /// Not YAML.
    Yaml(Box<YamlError>),
}

impl ConfigError {
    pub(super) fn new(source: &str, place: impl Into<String>, problem: Problem) -> Self {
        Self { source: source.to_owned(), place: place.into(), problem }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AmbiguousKey { key, maps } => {
                write!(f, "key {key:?} is in {}: expected one of them", maps.join(", "))
            }
            Self::BlankKey => {
                f.write_str("there is nothing in it; expected {} for none (has the file been cut off?)")
            }
            Self::EmptyFile { expected, flag } => {
                write!(f, "the file is empty; expected {expected} (leave {flag} out for what is built in)")
            }
            Self::Field(error) => error.fmt(f),
            Self::MissingKey { key, maps: 1 } => write!(f, "the ConfigMap has no key {key:?}"),
            Self::MissingKey { key, maps } => write!(f, "none of the {maps} ConfigMaps has a key {key:?}"),
            Self::MissingKind => {
                f.write_str("there is none, expected ConfigMap (has the file been cut off?)")
            }
            Self::NoTemplates => f.write_str("there are none"),
            Self::NotAConfig => {
                f.write_str("expected an injector config (policy, templates, ...) or a pod template")
            }
            Self::Template(error) => error.fmt(f),
            Self::Unusable(text) => f.write_str(text),
            Self::UnknownTemplate { name, known } => {
                write!(f, "there is no template {name:?}; there are: {}", known.join(", "))
            }
            Self::WrongType(expected) => write!(f, "expected {expected}"),
            Self::Yaml(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.source)?;
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        self.problem.fmt(f)
    }
}

impl std::error::Error for ConfigError {}
