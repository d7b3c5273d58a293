//! Why a pod may not come in.

use std::fmt;

use super::bounds::MOST_VALUES;
use crate::inject::InjectError;

/// Why a pod may not come in.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// It cannot be injected.
    Inject(InjectError),
    /// What its namespace prescribes cannot be read.
    Namespace {
        /// The namespace.
        name: String,
        /// Why.
        problem: String,
    },
    /// Its namespace has only just been made.
    UnknownNamespace {
        /// The namespace.
        name: String,
    },
    /// It is no object, or cannot be read.
    Object {
        /// Why.
        problem: String,
    },
    /// It has more than [`MOST_VALUES`].
    TooLarge,
}

/// A refusal in HTTP's and in Kubernetes' terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// HTTP status.
    pub status: u16,
    /// `metav1.StatusReason`.
    pub reason: &'static str,
}

const BAD_REQUEST: Code = Code { status: 400, reason: "BadRequest" };
const FORBIDDEN: Code = Code { status: 403, reason: "Forbidden" };
const INVALID: Code = Code { status: 422, reason: "Invalid" };
const TOO_LARGE: Code = Code { status: 413, reason: "RequestEntityTooLarge" };
const UNAVAILABLE: Code = Code { status: 503, reason: "ServiceUnavailable" };
const INTERNAL: Code = Code { status: 500, reason: "InternalError" };

impl Refusal {
    /// 422 for what is to be fixed in the pod or its namespace, 403 for what a rule forbids, 400 for what cannot be read, 413
    /// for what is too large to be looked at,
    /// 500 for what is to be fixed in the injector's config, 503 for what will be otherwise in a moment.
    #[must_use]
    pub const fn code(&self) -> Code {
        match self {
            Self::Object { .. } => BAD_REQUEST,
            Self::TooLarge => TOO_LARGE,
            Self::UnknownNamespace { .. } => UNAVAILABLE,
            Self::Inject(InjectError::ProxyUid { .. }) => FORBIDDEN,
            Self::Inject(
                InjectError::Capture { by_config: true, .. }
                | InjectError::Loses { .. }
                | InjectError::Merge { .. }
                | InjectError::Render(_)
                | InjectError::Yaml { .. },
            ) => INTERNAL,
            Self::Namespace { .. }
            | Self::Inject(
                InjectError::Annotations(_)
                | InjectError::AutoImage { .. }
                | InjectError::Capture { by_config: false, .. }
                | InjectError::Clash { .. }
                | InjectError::Duplicate { .. }
                | InjectError::Escapes { .. }
                | InjectError::Malformed(_)
                | InjectError::Quantity(_)
                | InjectError::UnknownTemplate { .. },
            ) => INVALID,
        }
    }

    /// The name for scripts and metrics.
    #[must_use]
    pub const fn slug(&self) -> &'static str {
        match self {
            Self::Namespace { .. } => "namespace",
            Self::UnknownNamespace { .. } => "unknown-namespace",
            Self::Object { .. } => "object",
            Self::TooLarge => "too-large",
            Self::Inject(error) => match error {
                InjectError::Annotations(_) => "annotations",
                InjectError::AutoImage { .. } => "auto-image",
                InjectError::Capture { .. } => "capture",
                InjectError::Clash { .. } => "clash",
                InjectError::Duplicate { .. } => "duplicate",
                InjectError::Escapes { .. } => "escapes",
                InjectError::Loses { .. } => "loses",
                InjectError::Malformed(_) => "malformed",
                InjectError::Merge { .. } => "merge",
                InjectError::ProxyUid { .. } => "proxy-uid",
                InjectError::Quantity(_) => "quantity",
                InjectError::Render(_) => "render",
                InjectError::UnknownTemplate { .. } => "unknown-template",
                InjectError::Yaml { .. } => "yaml",
            },
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inject(error) => error.fmt(f),
            Self::Namespace { name, problem } => write!(f, "namespace {name}: {problem}"),
            Self::UnknownNamespace { name } => {
                write!(
                    f,
                    "namespace {name} has not been heard of yet, nor which users its pods may have: try again"
                )
            }
            Self::TooLarge => {
                write!(
                    f,
                    "request.object has more than {MOST_VALUES} values, managedFields left out: too large a pod"
                )
            }
            Self::Object { problem } => write!(f, "request.object cannot be read: {problem}"),
        }
    }
}

impl std::error::Error for Refusal {}
