//! One request and its answer. No I/O.

use std::sync::Arc;

use super::live::Live;

/// A request, as it came.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The path of the URL, without the query.
    pub path: &'a str,
    /// `Content-Type`.
    pub content_type: Option<&'a str>,
    /// The body, whole.
    pub body: &'a [u8],
}

/// What became of a request; the names are what metrics and log lines say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Outcome {
    /// The pod gets a patch.
    Injected,
    /// The pod stays as it is.
    Skipped,
    /// The pod is refused.
    Denied,
    /// The request is no review.
    Invalid,
}

impl Outcome {
    /// The name for scripts and metrics.
    #[must_use]
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Injected => "injected",
            Self::Skipped => "skipped",
            Self::Denied => "denied",
            Self::Invalid => "invalid",
        }
    }
}

/// What is worth a log line and a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What became of it.
    pub outcome: Outcome,
    /// Why, as a word from a closed list: the deciding step's [`slug`](crate::decide::Reason::slug), or the sort of error.
    pub reason: &'static str,
    /// Why, as a sentence.
    pub message: String,
    /// `request.uid`.
    pub uid: String,
    /// The pod's namespace.
    pub namespace: String,
    /// The workload it belongs to, as `Kind/name`.
    pub owner: String,
    /// Whether the answer came from the cache.
    pub cached: bool,
}

/// An answer in HTTP's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Content-Type` of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// For log and metrics.
    pub record: Record,
}

/// Answers requests.
#[derive(Debug)]
pub struct Admission {
    live: Arc<Live>,
}

impl Admission {
    /// An admission with a cache of so many bytes; 0 switches it off.
    #[must_use]
    pub fn new(live: Arc<Live>, _cache_bytes: usize) -> Self {
        Self { live }
    }

    /// Answers one request.
    #[must_use]
    pub fn answer(&self, _asked: &Asked<'_>) -> Answer {
        let _ = self.live.active();
        let record = Record {
            outcome: Outcome::Invalid,
            reason: "path",
            message: String::new(),
            uid: String::new(),
            namespace: String::new(),
            owner: String::new(),
            cached: false,
        };
        Answer { status: 404, content_type: "text/plain", body: Vec::new(), record }
    }
}
