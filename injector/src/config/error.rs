//! Errors of a config file.

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
    /// The problem.
    pub problem: Problem,
}

/// The error of a config.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
#[non_exhaustive]
pub enum Problem {
    /// Several ConfigMaps have the key.
    #[error("key {key:?} is in {}: expected one of them", maps.join(", "))]
    AmbiguousKey { key: String, maps: Vec<String> },
    /// A key of a ConfigMap without content.
    #[error("there is nothing in it; expected {{}} for none (is the file truncated?)")]
    BlankKey,
    /// A file without content.
    #[error("the file is empty; expected {expected} (omit {flag} to use the built-in one)")]
    EmptyFile { expected: String, flag: &'static str },
    /// A field whose value is not accepted.
    #[error("{0}")]
    Field(Box<FieldError>),
    /// No ConfigMap has the key.
    #[error("{} key {key:?}", owner(.maps))]
    MissingKey { key: String, maps: usize },
    /// An object without a kind, as a truncated file has it.
    #[error("missing, expected ConfigMap (is the file truncated?)")]
    MissingKind,
    /// A key that is not known, and is one letter off a known one.
    #[error("not known; did you mean {0}?")]
    Misspelt(String),
    /// No template.
    #[error("there are none")]
    NoTemplates,
    /// Neither an injector config nor a template.
    #[error("expected an injector config (policy, templates, ...) or a pod template")]
    NotAConfig,
    /// A template that cannot be parsed.
    #[error("{0}")]
    Template(Box<gotemplate::Error>),
    /// The config cannot be read, or pods cannot be injected with it.
    #[error("{0}")]
    Unusable(String),
    /// A name without a template.
    #[error("there is no template {name:?}; there are: {}", known.join(", "))]
    UnknownTemplate { name: String, known: Vec<String> },
    /// A file of another sort than its option takes.
    #[error("it is {found}; expected {expected}{}", fix.as_deref().map(|flag| format!(": pass it with {flag}")).unwrap_or_default())]
    OtherFile { found: String, expected: &'static str, fix: Option<String> },
    /// Another type.
    #[error("expected {0}")]
    WrongType(&'static str),
    /// Not YAML.
    #[error("{0}")]
    Yaml(Box<YamlError>),
}

impl ConfigError {
    pub(super) fn new(source: &str, place: impl Into<String>, problem: Problem) -> Self {
        Self { source: source.to_owned(), place: place.into(), problem }
    }

    /// A source that cannot be used as a whole.
    pub(crate) fn unusable(source: &str, problem: String) -> Self {
        Self::new(source, "", Problem::Unusable(problem))
    }
}

fn owner(maps: &usize) -> String {
    if *maps == 1 {
        "the ConfigMap has no".to_owned()
    } else {
        format!("none of the {maps} ConfigMaps has a")
    }
}

// Not derived: `source` is a file here, not an error.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.place.is_empty() { "" } else { ": " };
        write!(f, "{}: {}{separator}{}", self.source, self.place, self.problem)
    }
}

impl std::error::Error for ConfigError {}
