//! What is wrong with the options, and what is only odd about them, for the person who must change them.

use std::borrow::Cow;
use std::fmt;

use crate::cli::Origin;

/// What would have been right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What is accepted.
    pub what: Cow<'static, str>,
    /// What was probably meant.
    pub hint: Option<Cow<'static, str>>,
}

impl Expected {
    /// Just what is accepted.
    pub(super) fn new(what: impl Into<Cow<'static, str>>) -> Self {
        Self { what: what.into(), hint: None }
    }

    /// What is accepted, and what was probably meant.
    pub(super) fn hint(self, hint: impl Into<Cow<'static, str>>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Options that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// Options that contradict each other.
    Contradiction {
        /// Those.
        options: Vec<Origin>,
        /// Why they cannot stand together.
        reason: &'static str,
    },
    /// A list that is given but holds nothing.
    EmptyList {
        /// The option.
        origin: Origin,
        /// The text.
        given: String,
        /// What it would do, and what to write instead.
        reason: &'static str,
    },
    /// A list that is too long.
    TooMany {
        /// The option.
        origin: Origin,
        /// How many it has.
        given: usize,
        /// How many it may have.
        most: usize,
        /// Why.
        reason: &'static str,
    },
    /// Something this version cannot do.
    Unavailable {
        /// The option.
        origin: Origin,
        /// What is missing and what to do.
        reason: &'static str,
    },
    /// A file that the options need cannot be read.
    Unreadable {
        /// The file.
        file: &'static str,
        /// Why.
        reason: String,
        /// What needs it, and how to do without.
        needed: &'static str,
    },
    /// A value that does not parse.
    Value {
        /// The option.
        origin: Origin,
        /// The value, or the item of a list.
        given: String,
        /// What would have been right.
        expected: Expected,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Contradiction { options, reason } => write!(f, "{}: {reason}", all(options)),
            Self::EmptyList { origin, given, reason } => {
                write!(f, "{origin}: {given:?} is an empty list; {reason}")
            }
            Self::TooMany { origin, given, most, reason } => {
                write!(f, "{origin}: {given} items, at most {most} are possible: {reason}")
            }
            Self::Unavailable { origin, reason } => write!(f, "{origin}: {reason}"),
            Self::Unreadable { file, reason, needed } => {
                write!(f, "{file} cannot be read ({reason}); {needed}")
            }
            Self::Value { origin, given, expected: Expected { what, hint } } => {
                write!(f, "{origin}: {given:?} is not accepted, expected {what}")?;
                hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
            }
        }
    }
}

impl std::error::Error for ConfigError {}

fn all(options: &[Origin]) -> String {
    let names: Vec<String> = options.iter().map(Origin::to_string).collect();
    names.join(" and ")
}

/// Options that can be followed but are probably not what was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A list of empty items only.
    EmptyList {
        /// The option.
        origin: Origin,
        /// The text.
        given: String,
    },
    /// A range with bits set behind its prefix.
    HostBits {
        /// The option.
        origin: Origin,
        /// The range as written.
        given: String,
        /// The range that counts.
        used: String,
    },
    /// An option without effect.
    NoEffect {
        /// The option.
        origin: Origin,
        /// Why.
        reason: &'static str,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyList { origin, given } => {
                write!(f, "{origin}: {given:?} holds no item and counts as unset")
            }
            Self::HostBits { origin, given, used } => {
                write!(f, "{origin}: {given} has bits set behind its prefix; {used} counts")
            }
            Self::NoEffect { origin, reason } => write!(f, "{origin} has no effect: {reason}"),
        }
    }
}
