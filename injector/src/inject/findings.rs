//! What an injection brings that Kubernetes would refuse, or that is lost; and what makes it the same one in
//! another injection.

use super::render::Flaw;
use crate::validity::Fault;

/// What is wrong with an injected pod because of its injection.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Finding {
    /// Kubernetes does not accept it.
    Fault(Fault),
    /// The output of a template loses or lacks it.
    Flaw(TemplateFlaw),
}

/// What a template's output loses or lacks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TemplateFlaw {
    pub(super) template: String,
    pub(super) flaw: Flaw,
}

impl Finding {
    /// What it is in every injection that has it.
    pub(super) fn identity(&self) -> String {
        match self {
            Self::Fault(fault) => fault.identity(),
            Self::Flaw(TemplateFlaw { template, flaw }) => match flaw {
                Flaw::Unknown(field) => format!("{template}: unknown {}", field.path),
                // Its line may be another.
                Flaw::DuplicateKey { key, .. } => format!("{template}: key {key}"),
                Flaw::DuplicateItem { path, name } => format!("{template}: item {path} {name}"),
                Flaw::NoValue { path } => format!("{template}: value {path}"),
            },
        }
    }
}
