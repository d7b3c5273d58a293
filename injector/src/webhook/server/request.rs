//! One request and its answer, in HTTP's terms.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderName, HeaderValue,
    RETRY_AFTER,
};
use hyper::{Method, Request, Response, StatusCode, Version};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::body::{self, Held, Unread};
use super::memory::{Memory, Share};
use super::pulse::{Pulse, Unsent};
use super::{deadline, draining};
use crate::webhook::admit::{Admission, Answer, Asked, Record};
use crate::webhook::live::Live;
use crate::webhook::metrics::Metrics;
use crate::webhook::said;
use crate::webhook::shutdown::Ending;
use crate::webhook::verdict::Outcome;

/// Where health is asked about over TLS, as with Istio. Not counted.
pub(in crate::webhook) const READY_PATH: &str = "/httpsReady";
/// A body of this size and more is worked on beside the threads that serve connections.
const LARGE: usize = 16 << 10;
/// So many of those at a time, for their memory: 75 MiB each at worst.
const LARGE_AT_ONCE: usize = 2;

/// What stands between HTTP and admission.
#[derive(Debug)]
pub struct Door {
    admission: Arc<Admission>,
    live: Arc<Live>,
    metrics: Arc<Metrics>,
    places: Arc<Semaphore>,
    large: Arc<Semaphore>,
    memory: Memory,
}

/// Why a request did not get as far as admission.
#[derive(Debug)]
struct Rejection {
    status: StatusCode,
    reason: &'static str,
    message: String,
    header: Option<(HeaderName, &'static str)>,
}

impl Rejection {
    fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: message.into(), header: None }
    }

    fn later(reason: &'static str, message: &'static str) -> Self {
        let header = Some((RETRY_AFTER, "1"));
        Self { header, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, reason, message) }
    }
}

impl From<Unread> for Rejection {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::TooLarge => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "expected a body of at most 6 MiB\n")
            }
            Unread::Late => {
                Self::new(StatusCode::REQUEST_TIMEOUT, "slow-body", "the body did not arrive in time\n")
            }
            Unread::NoMemory => Self::later("busy", "too many large or slow bodies or answers at once\n"),
            Unread::Gone => Self::new(StatusCode::BAD_REQUEST, "broken-off", "the body is not complete\n"),
        }
    }
}

/// Counts up while it exists.
struct Counted<'a>(&'a Gauge);

impl<'a> Counted<'a> {
    fn new(gauge: &'a Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Door {
    /// Lets so many requests through at a time.
    #[must_use]
    pub fn new(admission: Admission, live: Arc<Live>, metrics: Arc<Metrics>, requests: usize) -> Self {
        let places = Arc::new(Semaphore::new(requests.min(Semaphore::MAX_PERMITS)));
        let (large, memory) = (Arc::new(Semaphore::new(LARGE_AT_ONCE)), Memory::default());
        Self { admission: Arc::new(admission), live, metrics, places, large, memory }
    }

    pub(super) const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Answers a request, whatever it is.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        ending: &Ending,
        pulse: &Arc<Pulse>,
    ) -> Response<Full<Bytes>> {
        let began = Instant::now();
        let http1 = request.version() <= Version::HTTP_11;
        let mut response = if request.method() == Method::GET && request.uri().path() == READY_PATH {
            reply(StatusCode::OK, "text/plain", "ok\n")
        } else {
            let _counted = Counted::new(&self.metrics.in_flight);
            let path = request.uri().path().to_owned();
            let answer = self.admit(request, began, pulse).await;
            answer.unwrap_or_else(|rejection| self.reject(rejection, &path, began.elapsed()))
        };
        if http1 && draining(ending) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let unsent = pulse.sends();
        response.map(|leaving| Full::new(Bytes::from_owner(Leaving { _unsent: Some(unsent), ..leaving })))
    }

    fn reject(&self, rejection: Rejection, path: &str, whole: Duration) -> Response<Leaving> {
        let Rejection { status, reason, message, header } = rejection;
        self.metrics.rejected(reason, whole);
        let (code, path) = (status.as_u16(), said::word(path));
        let path = path.as_str();
        log::warn!(reason, path, code, detail = message.trim_end(), ms = millis(whole); "request rejected");
        let mut response = reply(status, "text/plain; charset=utf-8", message);
        if let Some((name, value)) = header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }

    async fn admit(
        &self,
        request: Request<Incoming>,
        began: Instant,
        pulse: &Arc<Pulse>,
    ) -> Result<Response<Leaving>, Rejection> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if path != "/inject" && !path.starts_with("/inject/") {
            return Err(Rejection::new(StatusCode::NOT_FOUND, "path", "expected POST /inject\n"));
        }
        if head.method != Method::POST {
            let header = Some((ALLOW, "POST"));
            let rejection =
                Rejection::new(StatusCode::METHOD_NOT_ALLOWED, "method", "expected POST /inject\n");
            return Err(Rejection { header, ..rejection });
        }
        if let Some(rejection) = encoded(&head.headers) {
            return Err(rejection);
        }
        let deadline = deadline::of(head.uri.query().unwrap_or_default(), began)
            .map_err(|message| Rejection::new(StatusCode::BAD_REQUEST, "timeout", message))?;
        if !self.live.is_configured() {
            return Err(Rejection::later("no-config", "no injector config has been read yet\n"));
        }
        let too_late = || {
            let message = "the deadline passed before the request was worked on\n";
            Rejection::new(StatusCode::GATEWAY_TIMEOUT, "deadline", message)
        };
        let expects = head.headers.contains_key(EXPECT);
        let (body, turn) = match body::read(&self.memory, body, expects, deadline, pulse).await {
            Err(Unread::Late) if Instant::now() >= deadline => return Err(too_late()),
            result => result?,
        };
        let place = timeout_at(deadline, self.place(body.bytes.len())).await;
        let Ok(Some(place)) = place else {
            return Err(Rejection::later("busy", "too many requests at once\n"));
        };
        if Instant::now() >= deadline {
            return Err(too_late());
        }
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let asked = Work { path: path.to_owned(), content_type: content_type.map(str::to_owned), body };
        let started = Instant::now();
        let answer = self.work(asked, place).await?;
        let worked = started.elapsed();
        let memory = timeout_at(deadline, self.memory.answer(answer.body.len(), pulse)).await;
        let memory = memory.map_err(|_| Unread::NoMemory)?.map_err(Unread::from)?;
        self.metrics.answered(&answer.record, worked, began.elapsed());
        tell(&answer.record, began.elapsed());
        let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let reply = reply(status, answer.content_type, answer.body);
        Ok(reply.map(|leaving| Leaving { _held: Some((memory, turn)), ..leaving }))
    }

    /// Waits for its turn. The semaphores are never closed.
    async fn place(&self, length: usize) -> Option<Place> {
        let large = match length {
            0..LARGE => None,
            _ => Some(Arc::clone(&self.large).acquire_owned().await.ok()?),
        };
        let any = Arc::clone(&self.places).acquire_owned().await.ok()?;
        Some(Place { _any: any, _large: large })
    }

    /// Runs the engine: at once, or beside, if it may take long.
    async fn work(&self, work: Work, place: Place) -> Result<Answer, Rejection> {
        let admission = Arc::clone(&self.admission);
        let answer = if work.body.bytes.len() < LARGE {
            let answer = guarded(|| work.run(&admission));
            drop(place);
            answer
        } else {
            let beside = tokio::task::spawn_blocking(move || {
                let answer = guarded(|| work.run(&admission));
                drop(place);
                answer
            });
            beside.await.ok().flatten()
        };
        answer.ok_or_else(|| {
            self.metrics.panics.inc();
            let message = "the injector failed; its log says where\n";
            Rejection::new(StatusCode::INTERNAL_SERVER_ERROR, "panic", message)
        })
    }
}

/// Why a body that is compressed is not read.
fn encoded(headers: &HeaderMap) -> Option<Rejection> {
    let is_plain =
        |given: &HeaderValue| given.is_empty() || given.as_bytes().eq_ignore_ascii_case(b"identity");
    let given = headers.get_all(CONTENT_ENCODING).iter().find(|given| !is_plain(given))?;
    let given = said::word(&String::from_utf8_lossy(given.as_bytes()));
    let message = format!("Content-Encoding: {given:?} is not accepted, expected a body as it is\n");
    Some(Rejection::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-encoding", message))
}

/// The right to work.
struct Place {
    _any: OwnedSemaphorePermit,
    _large: Option<OwnedSemaphorePermit>,
}

/// The body of an answer, and what goes when its last byte is sent.
#[derive(Default)]
struct Leaving {
    bytes: Vec<u8>,
    _held: Option<(Share, OwnedSemaphorePermit)>,
    _unsent: Option<Unsent>,
}

impl AsRef<[u8]> for Leaving {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What the engine works on.
struct Work {
    path: String,
    content_type: Option<String>,
    body: Held,
}

impl Work {
    fn run(&self, admission: &Admission) -> Answer {
        admission.answer(&Asked {
            path: &self.path,
            content_type: self.content_type.as_deref(),
            body: &self.body.bytes,
        })
    }
}

/// Nothing if the program itself failed: one pod that does that must not take the others' webhook away. Where panics
/// abort, the process ends instead.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    // What the engine shares between requests are swapped pointers and a cache behind a lock: nothing half-done is
    // seen after a panic.
    catch_unwind(AssertUnwindSafe(work)).ok()
}

fn reply(status: StatusCode, content_type: &'static str, body: impl Into<Vec<u8>>) -> Response<Leaving> {
    let mut response = Response::new(Leaving { bytes: body.into(), ..Leaving::default() });
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// One line per decision.
fn tell(record: &Record, took: Duration) {
    let Record { outcome, reason, message, uid, namespace, owner, cached } = record;
    let level = match outcome {
        Outcome::Injected | Outcome::Skipped => log::Level::Info,
        Outcome::Denied | Outcome::Invalid => log::Level::Warn,
    };
    log::log!(
        level,
        outcome = outcome.slug(),
        reason,
        namespace = namespace.as_str(),
        owner = owner.as_str(),
        uid = uid.as_str(),
        cached,
        ms = millis(took),
        detail = message.as_str();
        "request answered"
    );
}

/// To a microsecond.
fn millis(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_answer_that_is_missing() {
        assert_eq!(guarded(|| 1), Some(1));
        assert_eq!(guarded(|| -> u8 { panic!("on purpose") }), None);
    }
}
