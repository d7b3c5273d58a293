//! Why a request is no review: it gets plain text and a status instead of one.

use std::fmt;

use super::LARGEST_BODY;
use super::bounds::LONGEST_UID;

/// Why a request is no review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `Content-Type` is not JSON.
    ContentType {
        /// What it is.
        given: Option<String>,
    },
    /// The body is empty.
    Empty,
    /// The path has a `%` that starts no escape, or its escapes are no text, or a control character.
    Escape {
        /// The path.
        path: String,
    },
    /// The body is not JSON, or cut off.
    Json {
        /// Where and why.
        problem: String,
    },
    /// The body is larger than [`LARGEST_BODY`].
    Large {
        /// Its bytes.
        length: usize,
    },
    /// The uid of the request is longer than [`LONGEST_UID`].
    LongUid {
        /// Its bytes.
        length: usize,
    },
    /// The review has no request.
    NoRequest,
    /// The request has no uid.
    NoUid,
    /// The body is JSON, and something else.
    NotReview {
        /// What is wrong with it.
        problem: String,
    },
    /// There is nothing at this path.
    Path {
        /// The path.
        path: String,
    },
    /// The body is not UTF-8.
    Utf8 {
        /// Up to which byte it is.
        valid: usize,
    },
    /// A part of the path that is no variable.
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

impl Fault {
    /// The status in HTTP's terms.
    #[must_use]
    pub const fn status(&self) -> u16 {
        match self {
            Self::Path { .. } => 404,
            Self::Large { .. } => 413,
            Self::ContentType { .. } => 415,
            Self::Empty
            | Self::Escape { .. }
            | Self::Json { .. }
            | Self::LongUid { .. }
            | Self::NoRequest
            | Self::NoUid
            | Self::NotReview { .. }
            | Self::Utf8 { .. }
            | Self::Variable { .. }
            | Self::Version { .. } => 400,
        }
    }

    /// The name for scripts and metrics.
    #[must_use]
    pub const fn slug(&self) -> &'static str {
        match self {
            Self::ContentType { .. } => "content-type",
            Self::Empty => "empty",
            Self::Escape { .. } => "escape",
            Self::Json { .. } => "json",
            Self::Large { .. } => "too-large",
            Self::LongUid { .. } => "long-uid",
            Self::NoRequest => "no-request",
            Self::NoUid => "no-uid",
            Self::NotReview { .. } => "not-a-review",
            Self::Path { .. } => "path",
            Self::Utf8 { .. } => "utf-8",
            Self::Variable { .. } => "environment",
            Self::Version { .. } => "version",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const REVIEW: &str = "an AdmissionReview of admission.k8s.io/v1 or admission.k8s.io/v1beta1";
        match self {
            Self::ContentType { given: Some(given) } => {
                write!(f, "Content-Type: {given:?} is not accepted, expected application/json")
            }
            Self::ContentType { given: None } => {
                f.write_str("there is no Content-Type, expected application/json")
            }
            Self::Empty => write!(f, "the body is empty, expected {REVIEW}"),
            Self::Escape { path } => {
                write!(
                    f,
                    "path {path:?}: its %-escapes cannot be read, expected UTF-8 text without control characters"
                )
            }
            Self::Json { problem } => write!(f, "the body is not JSON: {problem}; expected {REVIEW}"),
            Self::Large { length } => {
                write!(f, "the body has {length} bytes, expected at most {LARGEST_BODY}")
            }
            Self::LongUid { length } => write!(
                f,
                "request.uid of the AdmissionReview has {length} bytes, expected at most {LONGEST_UID}"
            ),
            Self::NoRequest => f.write_str("the AdmissionReview has no request"),
            Self::NoUid => f.write_str("request.uid of the AdmissionReview is missing or empty"),
            Self::NotReview { problem } => write!(f, "the body is no review: {problem}; expected {REVIEW}"),
            Self::Path { path } => write!(
                f,
                "there is nothing at {path:?}, expected /inject or /inject/<key>/<value>/..., for example \
                 /inject/cluster/east"
            ),
            Self::Utf8 { valid } => write!(f, "the body is not UTF-8 after byte {valid}; expected {REVIEW}"),
            Self::Variable { key, problem } => write!(
                f,
                "path: {key:?} {problem}; expected /inject/<key>/<value>/... with keys of letters, digits, _, - and ."
            ),
            Self::Version { given } => write!(f, "apiVersion {given:?} is not accepted, expected {REVIEW}"),
        }
    }
}

impl std::error::Error for Fault {}
