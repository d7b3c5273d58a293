//! Why a request gets plain text and an HTTP status instead of a review.

use super::pod_object::{MAX_BODY_BYTES, MAX_UID_BYTES};
use super::reasons::{self, RequestReason};

const REVIEW: &str = "expected an AdmissionReview of admission.k8s.io/v1 or admission.k8s.io/v1beta1";

/// Why a request gets plain text and an HTTP status instead of a review.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each one is")]
pub enum RequestError {
    #[error("the body is incomplete: the client ended it")]
    BodyIncomplete,
    #[error("the body did not arrive in time: expected it within 10 s")]
    BodyTimeout,
    /// Too many requests at once, or too much memory in their bodies and responses.
    #[error("too many requests at once, or too large ones: try again")]
    Busy,
    #[error("Content-Encoding: {given:?}: expected a body without encoding")]
    ContentEncoding { given: String },
    #[error("{}: expected application/json", content_type(given.as_deref()))]
    ContentType { given: Option<String> },
    #[error("the deadline passed before the review began")]
    DeadlineExceeded,
    #[error("the body is empty: {REVIEW}")]
    Empty,
    #[error("path {path:?}: invalid percent escapes: expected UTF-8 text without control characters")]
    Escape { path: String },
    #[error("the body is not JSON: {problem}: {REVIEW}")]
    Json { problem: String },
    #[error("request.uid has {length} bytes: expected at most {MAX_UID_BYTES}")]
    LongUid { length: usize },
    #[error("method {given}: expected POST /inject")]
    Method { given: String },
    #[error("no injector config is loaded yet: try again")]
    NoConfig,
    #[error("missing field request of the AdmissionReview")]
    NoRequest,
    #[error("missing or empty field request.uid of the AdmissionReview")]
    NoUid,
    #[error("the body is not an AdmissionReview: {problem}: {REVIEW}")]
    NotReview { problem: String },
    /// The review failed with a panic.
    #[error("internal error: the log of the injector has the details")]
    Panic,
    #[error(
        "path {path:?} is not served: expected /inject or /inject/<key>/<value>/..., for example /inject/cluster/east"
    )]
    Path { path: String },
    #[error("timeout={given}: expected a positive duration such as 5s or 500ms")]
    Timeout { given: String },
    #[error("the body is too large: expected at most {MAX_BODY_BYTES} bytes")]
    TooLarge,
    #[error("the body is not UTF-8 after byte {valid}: {REVIEW}")]
    Utf8 { valid: usize },
    #[error(
        "path: {key:?} {problem}: expected /inject/<key>/<value>/... with keys of letters, digits, _, - and ."
    )]
    Variable { key: String, problem: &'static str },
    #[error("apiVersion {given:?}: {REVIEW}")]
    Version { given: String },
}

fn content_type(given: Option<&str>) -> String {
    given.map_or_else(|| "missing header Content-Type".to_owned(), |given| format!("Content-Type: {given:?}"))
}

impl RequestError {
    /// The HTTP status, and the label of metrics and log lines.
    #[must_use]
    pub const fn reason(&self) -> &'static RequestReason {
        match self {
            Self::BodyIncomplete => &reasons::BODY_INCOMPLETE,
            Self::BodyTimeout => &reasons::BODY_TIMEOUT,
            Self::Busy => &reasons::BUSY,
            Self::ContentEncoding { .. } => &reasons::CONTENT_ENCODING,
            Self::ContentType { .. } => &reasons::CONTENT_TYPE,
            Self::DeadlineExceeded => &reasons::DEADLINE,
            Self::Empty => &reasons::EMPTY,
            Self::Escape { .. } => &reasons::ESCAPE,
            Self::Json { .. } => &reasons::JSON,
            Self::LongUid { .. } => &reasons::LONG_UID,
            Self::Method { .. } => &reasons::METHOD,
            Self::NoConfig => &reasons::NO_CONFIG,
            Self::NoRequest => &reasons::NO_REQUEST,
            Self::NoUid => &reasons::NO_UID,
            Self::NotReview { .. } => &reasons::NOT_A_REVIEW,
            Self::Panic => &reasons::PANIC,
            Self::Path { .. } => &reasons::PATH,
            Self::Timeout { .. } => &reasons::TIMEOUT,
            Self::TooLarge => &reasons::BODY_TOO_LARGE,
            Self::Utf8 { .. } => &reasons::UTF_8,
            Self::Variable { .. } => &reasons::ENVIRONMENT,
            Self::Version { .. } => &reasons::VERSION,
        }
    }
}
