//! Why a pod is denied.

use super::pod_object::MAX_POD_VALUES;
use crate::inject::InjectError;

/// Why a pod is denied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Denial {
    /// It cannot be injected.
    #[error(transparent)]
    Inject(InjectError),
    /// The annotations of its namespace cannot be read.
    #[error("namespace {name}: {problem}")]
    Namespace { name: String, problem: String },
    /// It is not an object, or cannot be read.
    #[error("request.object cannot be read: {problem}")]
    Object { problem: String },
    /// It has more than [`MAX_POD_VALUES`].
    #[error("request.object is too large: expected at most {MAX_POD_VALUES} values, without managedFields")]
    TooLarge,
    /// Its namespace was created a moment ago and is not known yet.
    #[error("namespace {name} is not known yet, nor the users that its pods may run as: try again")]
    UnknownNamespace { name: String },
}

/// HTTP status and `metav1.StatusReason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// HTTP status.
    pub status: u16,
    /// `metav1.StatusReason`.
    pub reason: &'static str,
}

const BAD_REQUEST: Code = Code { status: 400, reason: "BadRequest" };
const FORBIDDEN: Code = Code { status: 403, reason: "Forbidden" };
const TOO_LARGE: Code = Code { status: 413, reason: "RequestEntityTooLarge" };
const INVALID: Code = Code { status: 422, reason: "Invalid" };
const INTERNAL: Code = Code { status: 500, reason: "InternalError" };
const UNAVAILABLE: Code = Code { status: 503, reason: "ServiceUnavailable" };

impl Denial {
    /// 400 for what cannot be read, 403 for what a rule forbids, 413 for what is too large, 422 for an error
    /// in the pod or its namespace, 500 for one in the config, 503 for what passes in a moment.
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

    /// The label of metrics, log lines and audit annotations.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
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
