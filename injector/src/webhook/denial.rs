//! Why a pod is denied.

use super::pod_object::MAX_POD_VALUES;
use super::reasons::{self, RequestReason};
use crate::inject::InjectError;

/// Why a pod is denied.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Denial {
    /// The pod cannot be injected.
    #[error(transparent)]
    Inject(InjectError),
    /// What templates put into it is not valid in Kubernetes.
    #[error("the injected pod is not valid: {}", .0.join("; "))]
    Invalid(Vec<String>),
    /// The annotations of its namespace cannot be read.
    #[error("namespace {name}: {problem}")]
    Namespace { name: String, problem: String },
    /// The request's object is not an object, or cannot be read.
    #[error("request.object cannot be read: {problem}")]
    Object { problem: String },
    /// The pod has more than [`MAX_POD_VALUES`].
    #[error("request.object is too large: expected at most {MAX_POD_VALUES} values, without managedFields")]
    TooLarge,
    /// The namespace of the pod was created a moment ago and is not known yet.
    #[error("namespace {name} is not known yet, nor the users that its pods may run as: try again")]
    UnknownNamespace { name: String },
}

/// `code` and `reason` of a `metav1.Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// HTTP status.
    pub status: u16,
    /// `metav1.StatusReason`.
    pub reason: &'static str,
}

impl Denial {
    /// 400 for what cannot be read, 403 for what a rule forbids, 413 for what is too large, 422 for an error
    /// in the pod or its namespace, 500 for one in the config, 503 for what passes in a moment.
    #[must_use]
    pub const fn code(&self) -> Code {
        let status = self.reason().status();
        let reason = match status {
            400 => "BadRequest",
            403 => "Forbidden",
            413 => "RequestEntityTooLarge",
            422 => "Invalid",
            503 => "ServiceUnavailable",
            _ => "InternalError",
        };
        Code { status, reason }
    }

    /// The label of metrics, log lines and audit annotations.
    #[must_use]
    pub const fn reason(&self) -> &'static RequestReason {
        match self {
            Self::Invalid(_) => &reasons::INVALID_POD,
            Self::Namespace { .. } => &reasons::NAMESPACE,
            Self::UnknownNamespace { .. } => &reasons::UNKNOWN_NAMESPACE,
            Self::Object { .. } => &reasons::OBJECT,
            Self::TooLarge => &reasons::POD_TOO_LARGE,
            Self::Inject(error) => match error {
                InjectError::Annotations(_) => &reasons::ANNOTATIONS,
                InjectError::AutoImage { .. } => &reasons::AUTO_IMAGE,
                InjectError::Capture { by_config: true, .. } => &reasons::CAPTURE_OF_CONFIG,
                InjectError::Capture { by_config: false, .. } => &reasons::CAPTURE,
                InjectError::ContainerInBothLists { .. } => &reasons::INVALID_POD,
                InjectError::ContainerNameConflict { .. } => &reasons::CONTAINER_NAME_CONFLICT,
                InjectError::DuplicateContainer { .. } => &reasons::DUPLICATE_CONTAINER,
                InjectError::DuplicateMountPath { .. } => &reasons::DUPLICATE_MOUNT_PATH,
                InjectError::DuplicateVolume { .. } => &reasons::DUPLICATE_VOLUME,
                InjectError::Malformed(_) => &reasons::MALFORMED,
                InjectError::Merge { .. } => &reasons::MERGE,
                InjectError::ProxyUid { .. } => &reasons::PROXY_UID,
                InjectError::Quantity(_) => &reasons::QUANTITY,
                InjectError::Render(_) => &reasons::RENDER,
                InjectError::TemplateChangesIdentity { .. } => &reasons::TEMPLATE_CHANGES_IDENTITY,
                InjectError::TemplateRemovesFields { .. } => &reasons::TEMPLATE_REMOVES_FIELDS,
                InjectError::UnknownTemplate { .. } => &reasons::UNKNOWN_TEMPLATE,
                InjectError::ValueChangesStructure { .. } => &reasons::VALUE_CHANGES_STRUCTURE,
                InjectError::VolumeNameConflict { .. } => &reasons::VOLUME_NAME_CONFLICT,
                InjectError::Yaml { .. } => &reasons::YAML,
            },
        }
    }
}
