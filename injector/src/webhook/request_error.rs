//! Why a request gets plain text and an HTTP status instead of a review.

use std::fmt;

use super::pod_object::{MAX_BODY_BYTES, MAX_UID_BYTES};

/// Why a request gets plain text and an HTTP status instead of a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The client ended the body before it was complete.
    BodyIncomplete,
    /// The body took too long to arrive.
    BodyTimeout,
    /// Too many requests at once, or too much memory in their bodies and responses.
    Busy,
    /// `Content-Encoding` is not `identity`.
    ContentEncoding {
        /// What it is.
        given: String,
    },
    /// `Content-Type` is not JSON.
    ContentType {
        /// What it is.
        given: Option<String>,
    },
    /// The deadline passed before the review began.
    DeadlineExceeded,
    /// The body is empty.
    Empty,
    /// The path has invalid percent escapes, or a control character among them.
    Escape {
        /// The path.
        path: String,
    },
    /// The body is not JSON, or truncated.
    Json {
        /// Where and why.
        problem: String,
    },
    /// `request.uid` is longer than [`MAX_UID_BYTES`].
    LongUid {
        /// Its bytes.
        length: usize,
    },
    /// The method is not POST.
    Method {
        /// What it is.
        given: String,
    },
    /// No injector config is loaded yet.
    NoConfig,
    /// The review has no request.
    NoRequest,
    /// The request has no uid.
    NoUid,
    /// The body is JSON, but not an `AdmissionReview`.
    NotReview {
        /// What is wrong with it.
        problem: String,
    },
    /// The review failed with a panic.
    Panic,
    /// Nothing is served at this path.
    Path {
        /// The path.
        path: String,
    },
    /// `timeout` of the query is not a positive duration.
    Timeout {
        /// What it is.
        given: String,
    },
    /// The body is larger than [`MAX_BODY_BYTES`].
    TooLarge,
    /// The body is not UTF-8.
    Utf8 {
        /// Up to which byte it is.
        valid: usize,
    },
    /// A part of the path that is not a variable.
    Variable {
        /// The part.
        key: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A review of another version.
    Version {
        /// Its `apiVersion`.
        given: String,
    },
}

impl RequestError {
    /// The HTTP status.
    #[must_use]
    pub const fn status(&self) -> u16 {
        self.status_and_reason().0
    }

    /// The label of metrics and log lines.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        self.status_and_reason().1
    }

    const fn status_and_reason(&self) -> (u16, &'static str) {
        match self {
            Self::BodyIncomplete => (400, "body-incomplete"),
            Self::BodyTimeout => (408, "body-timeout"),
            Self::Busy => (503, "busy"),
            Self::ContentEncoding { .. } => (415, "content-encoding"),
            Self::ContentType { .. } => (415, "content-type"),
            Self::DeadlineExceeded => (504, "deadline"),
            Self::Empty => (400, "empty"),
            Self::Escape { .. } => (400, "escape"),
            Self::Json { .. } => (400, "json"),
            Self::LongUid { .. } => (400, "long-uid"),
            Self::Method { .. } => (405, "method"),
            Self::NoConfig => (503, "no-config"),
            Self::NoRequest => (400, "no-request"),
            Self::NoUid => (400, "no-uid"),
            Self::NotReview { .. } => (400, "not-a-review"),
            Self::Panic => (500, "panic"),
            Self::Path { .. } => (404, "path"),
            Self::Timeout { .. } => (400, "timeout"),
            Self::TooLarge => (413, "too-large"),
            Self::Utf8 { .. } => (400, "utf-8"),
            Self::Variable { .. } => (400, "environment"),
            Self::Version { .. } => (400, "version"),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REVIEW: &str = "expected an AdmissionReview of admission.k8s.io/v1 or admission.k8s.io/v1beta1";
        match self {
            Self::BodyIncomplete => f.write_str("the body is incomplete: the client ended it"),
            Self::BodyTimeout => f.write_str("the body did not arrive in time: expected it within 10 s"),
            Self::Busy => f.write_str("too many requests at once, or too large ones: try again"),
            Self::ContentEncoding { given } => {
                write!(f, "Content-Encoding: {given:?}: expected a body without encoding")
            }
            Self::ContentType { given: Some(given) } => {
                write!(f, "Content-Type: {given:?}: expected application/json")
            }
            Self::ContentType { given: None } => {
                f.write_str("missing header Content-Type: expected application/json")
            }
            Self::DeadlineExceeded => f.write_str("the deadline passed before the review began"),
            Self::Empty => write!(f, "the body is empty: {REVIEW}"),
            Self::Escape { path } => write!(
                f,
                "path {path:?}: invalid percent escapes: expected UTF-8 text without control characters"
            ),
            Self::Json { problem } => write!(f, "the body is not JSON: {problem}: {REVIEW}"),
            Self::LongUid { length } => {
                write!(f, "request.uid has {length} bytes: expected at most {MAX_UID_BYTES}")
            }
            Self::Method { given } => write!(f, "method {given}: expected POST /inject"),
            Self::NoConfig => f.write_str("no injector config is loaded yet: try again"),
            Self::NoRequest => f.write_str("missing field request of the AdmissionReview"),
            Self::NoUid => f.write_str("missing or empty field request.uid of the AdmissionReview"),
            Self::NotReview { problem } => {
                write!(f, "the body is not an AdmissionReview: {problem}: {REVIEW}")
            }
            Self::Panic => f.write_str("internal error: the log of the injector has the details"),
            Self::Path { path } => write!(
                f,
                "path {path:?} is not served: expected /inject or /inject/<key>/<value>/..., for example \
                 /inject/cluster/east"
            ),
            Self::Timeout { given } => {
                write!(f, "timeout={given}: expected a positive duration such as 5s or 500ms")
            }
            Self::TooLarge => write!(f, "the body is too large: expected at most {MAX_BODY_BYTES} bytes"),
            Self::Utf8 { valid } => write!(f, "the body is not UTF-8 after byte {valid}: {REVIEW}"),
            Self::Variable { key, problem } => write!(
                f,
                "path: {key:?} {problem}: expected /inject/<key>/<value>/... with keys of letters, digits, _, - and ."
            ),
            Self::Version { given } => write!(f, "apiVersion {given:?}: {REVIEW}"),
        }
    }
}

impl std::error::Error for RequestError {}
