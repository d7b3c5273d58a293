//! What an injection brings that Kubernetes would refuse, or that is lost; and what makes it the same one in
//! another injection.

use super::render::Flaw;
use crate::validity::{Fault, Location};

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

/// What a finding is in every injection that has it: a pod may have many thousand of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Identity {
    Fault((Location, String)),
    Flaw { template: String, flaw: String },
}

impl Finding {
    pub(super) fn identity(&self) -> Identity {
        match self {
            Self::Fault(fault) => Identity::Fault(fault.identity()),
            Self::Flaw(TemplateFlaw { template, flaw }) => {
                let flaw = match flaw {
                    Flaw::Unknown(field) => format!("unknown {}", field.path),
                    // Its line may be another.
                    Flaw::DuplicateKey { key, .. } => format!("key {key}"),
                    Flaw::DuplicateItem { path, name } => format!("item {path} {name}"),
                    Flaw::NoValue { path } => format!("value {path}"),
                };
                Identity::Flaw { template: template.clone(), flaw }
            }
        }
    }
}
