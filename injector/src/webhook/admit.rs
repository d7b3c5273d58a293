//! One request and its answer. No I/O.

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::cache::Cache;
use super::canonical::Canonical;
use super::fault::Fault;
use super::live::Live;
use super::review::{Audit, Response, Review, Status};
use super::verdict::{Circumstances, Outcome, Verdict};
use super::{LARGEST_BODY, said, variables};

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

/// What is worth a log line and a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What became of it.
    pub outcome: Outcome,
    /// Why, as a word from a closed list: the deciding step's [`slug`](crate::decide::Reason::slug), `unchanged` for a pod that
    /// is as it should be already, or the sort of error.
    pub reason: &'static str,
    /// Why, as a sentence.
    pub message: String,
    /// `request.uid`; this and the following names are cut where they are too long for a line.
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
    cache: Option<Cache>,
}

impl Admission {
    /// An admission with a cache of so many bytes; 0 switches it off.
    #[must_use]
    pub fn new(live: Arc<Live>, cache_bytes: usize) -> Self {
        Self { live, cache: Cache::new(cache_bytes) }
    }

    /// Answers one request.
    #[must_use]
    pub fn answer(&self, asked: &Asked<'_>) -> Answer {
        self.reviewed(asked).unwrap_or_else(|fault| refuse(&fault))
    }

    fn reviewed(&self, asked: &Asked<'_>) -> Result<Answer, Fault> {
        let variables = variables::parse(asked.path)?;
        if asked.body.len() > LARGEST_BODY {
            return Err(Fault::Large { length: asked.body.len() });
        }
        if asked.body.is_empty() {
            return Err(Fault::Empty);
        }
        if !asked.content_type.is_some_and(is_json) {
            return Err(Fault::ContentType { given: asked.content_type.map(str::to_owned) });
        }
        let review = Review::parse(asked.body)?;
        if let Some(foreign) = review.request.foreign() {
            let verdict = Verdict::skipped(foreign.slug, foreign.message);
            return Ok(write(&review, &verdict, &review.request.namespace, false, |text| text.into()));
        }
        let object = review.request.object.map_or("null", RawValue::get);
        let others = variables.iter().map(|(_, value)| value.as_str());
        let canonical = Canonical::of(object, others.chain([&*review.request.namespace]));
        let own = canonical.namespace.as_deref().unwrap_or_default();
        let namespace = match &*review.request.namespace {
            "" => own,
            namespace => namespace,
        };
        let (active, surroundings) = (self.live.active(), self.live.surroundings());
        let circumstances =
            Circumstances { active: &active, surroundings: &surroundings, namespace, variables: &variables };
        let (verdict, cached) = self.verdict(&circumstances, &canonical.text);
        Ok(write(&review, &verdict, namespace, cached, |text| canonical.restore(text)))
    }

    /// The verdict on a pod, and whether it was reached before.
    fn verdict(&self, circumstances: &Circumstances<'_>, pod: &str) -> (Arc<Verdict>, bool) {
        let Some(cache) = &self.cache else {
            return (Arc::new(circumstances.verdict(pod)), false);
        };
        let key = circumstances.key(pod);
        if let Some(verdict) = cache.find(&key) {
            return (verdict, true);
        }
        let verdict = Arc::new(circumstances.verdict(pod));
        cache.keep(key, Arc::clone(&verdict));
        (verdict, false)
    }
}

/// `application/json`, with or without parameters.
fn is_json(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

fn write<'v>(
    review: &Review<'_>,
    verdict: &'v Verdict,
    namespace: &str,
    cached: bool,
    restore: impl Fn(&'v str) -> Cow<'v, str>,
) -> Answer {
    let message = said::message(&restore(&verdict.message));
    let warnings: Vec<Cow<'_, str>> = verdict.warnings.iter().map(|text| restore(text)).collect();
    let patch = verdict.patch.as_ref().map(|patch| STANDARD.encode(restore(patch).as_bytes()));
    let response = Response {
        uid: &review.request.uid,
        allowed: verdict.code.is_none(),
        status: verdict.code.map(|code| Status { code: code.status, reason: code.reason, message: &message }),
        patch_type: patch.as_ref().map(|_| "JSONPatch"),
        patch,
        audit_annotations: Audit { decision: verdict.outcome.slug(), reason: verdict.reason },
        warnings: said::warnings(warnings.iter().map(AsRef::as_ref)),
    };
    let body = response.write(review.version);
    let record = Record {
        outcome: verdict.outcome,
        reason: verdict.reason,
        message,
        uid: said::word(&review.request.uid),
        namespace: said::word(namespace),
        owner: said::word(&restore(&verdict.owner)),
        cached,
    };
    Answer { status: 200, content_type: "application/json", body, record }
}

fn refuse(fault: &Fault) -> Answer {
    let message = said::message(&fault.to_string());
    let body = format!("{message}\n").into_bytes();
    let record = Record {
        outcome: Outcome::Invalid,
        reason: fault.slug(),
        message,
        uid: String::new(),
        namespace: String::new(),
        owner: String::new(),
        cached: false,
    };
    Answer { status: fault.status(), content_type: "text/plain; charset=utf-8", body, record }
}
