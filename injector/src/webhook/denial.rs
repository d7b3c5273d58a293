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
        self.code_and_reason().0
    }

    /// The label of metrics, log lines and audit annotations.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        self.code_and_reason().1
    }

    const fn code_and_reason(&self) -> (Code, &'static str) {
        match self {
            Self::Namespace { .. } => (INVALID, "namespace"),
            Self::UnknownNamespace { .. } => (UNAVAILABLE, "unknown-namespace"),
            Self::Object { .. } => (BAD_REQUEST, "object"),
            Self::TooLarge => (TOO_LARGE, "too-large"),
            Self::Inject(error) => match error {
                InjectError::Annotations(_) => (INVALID, "annotations"),
                InjectError::AutoImage { .. } => (INVALID, "auto-image"),
                InjectError::Capture { by_config: true, .. } => (INTERNAL, "capture"),
                InjectError::Capture { by_config: false, .. } => (INVALID, "capture"),
                InjectError::Clash { .. } => (INVALID, "clash"),
                InjectError::Duplicate { .. } => (INVALID, "duplicate"),
                InjectError::Escapes { .. } => (INVALID, "escapes"),
                InjectError::Loses { .. } => (INTERNAL, "loses"),
                InjectError::Malformed(_) => (INVALID, "malformed"),
                InjectError::Merge { .. } => (INTERNAL, "merge"),
                InjectError::ProxyUid { .. } => (FORBIDDEN, "proxy-uid"),
                InjectError::Quantity(_) => (INVALID, "quantity"),
                InjectError::Render(_) => (INTERNAL, "render"),
                InjectError::RepeatedMount { .. } => (INVALID, "repeated-mount"),
                InjectError::RepeatedVolume { .. } => (INVALID, "repeated-volume"),
                InjectError::UnknownTemplate { .. } => (INVALID, "unknown-template"),
                InjectError::VolumeClash { .. } => (INVALID, "volume-clash"),
                InjectError::Yaml { .. } => (INTERNAL, "yaml"),
            },
        }
    }
}
