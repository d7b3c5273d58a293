//! One HTTP request and its response.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HeaderMap, HeaderValue, RETRY_AFTER,
};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::connection_state::InFlightRequest;
use super::memory_budget::{MemoryBudget, OutOfBudget};
use crate::webhook::admission::{self, Admission};
use crate::webhook::metrics::Metrics;
use crate::webhook::pod_object::MAX_BODY_BYTES;
use crate::webhook::request_error::RequestError;
use crate::webhook::shutdown::Shutdown;
use crate::webhook::verdict::Verdict;
use crate::webhook::{truncate, url};

/// The readiness of the admission port over TLS, as with Istio. Not counted.
pub(in crate::webhook) const READY_PATH: &str = "/httpsReady";
/// Requests at a time, from the head to the last byte of the response. More are answered with 503 at once.
const MAX_OPEN_REQUESTS: usize = 1024;
/// Timeout of receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// What is read of a body that is too large, so that a client which sends first and reads then sees the
/// response.
const MAX_DISCARDED_BYTES: usize = 16 << 20;
/// Bodies of this size and more are reviewed outside of the threads that serve connections.
const LARGE_BODY_BYTES: usize = 16 << 10;
/// So many of those at a time, for their memory: 75 MiB each at worst.
const MAX_LARGE_REVIEWS: usize = 2;

/// HTTP around [`Admission`]: limits, timeouts, metrics and log.
#[derive(Debug)]
pub(crate) struct AdmissionService {
    admission: Arc<Admission>,
    metrics: Arc<Metrics>,
    shutdown: Shutdown,
    open: Arc<Semaphore>,
    reviews: Arc<Semaphore>,
    large_reviews: Arc<Semaphore>,
    memory: MemoryBudget,
}

impl AdmissionService {
    /// Reviews so many pods at a time.
    pub(crate) fn new(
        admission: Admission,
        metrics: Arc<Metrics>,
        shutdown: Shutdown,
        max_requests: usize,
    ) -> Self {
        Self {
            admission: Arc::new(admission),
            metrics,
            shutdown,
            open: Arc::new(Semaphore::new(MAX_OPEN_REQUESTS)),
            reviews: Arc::new(Semaphore::new(max_requests.min(Semaphore::MAX_PERMITS))),
            large_reviews: Arc::new(Semaphore::new(MAX_LARGE_REVIEWS)),
            memory: MemoryBudget::default(),
        }
    }

    pub(super) const fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Responds to any request.
    pub(super) async fn respond(
        &self,
        request: Request<Incoming>,
        in_flight: InFlightRequest,
    ) -> Response<Full<Bytes>> {
        let start = Instant::now();
        let http1 = request.version() <= Version::HTTP_11;
        let (head, body) = request.into_parts();
        let mut response = if head.method == Method::GET && head.uri.path() == READY_PATH {
            response(StatusCode::OK, "text/plain", "ok\n")
        } else {
            let _counted = Counted::new(&self.metrics.in_flight);
            let open = Arc::clone(&self.open).try_acquire_owned().ok();
            let reviewed = match &open {
                Some(_) => self.review(&head, body, start).await,
                None => Err(RequestError::Busy),
            };
            let response = match reviewed {
                Ok((body, memory)) => {
                    let response = response(StatusCode::OK, "application/json", body);
                    response.map(|body| ResponseBody { _memory: Some(memory), ..body })
                }
                Err(error) => self.reject(&error, head.uri.path(), start.elapsed()),
            };
            response.map(|body| ResponseBody { _open: open, ..body })
        };
        if http1 && self.shutdown.draining.is_cancelled() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        in_flight.responding();
        response
            .map(|body| Full::new(Bytes::from_owner(ResponseBody { _in_flight: Some(in_flight), ..body })))
    }

    fn reject(&self, error: &RequestError, path: &str, duration: Duration) -> Response<ResponseBody> {
        let (code, reason) = (error.reason().status(), error.reason().slug());
        self.metrics.rejected(reason, duration);
        let (path, message) = (truncate::word(path), truncate::message(&error.to_string()));
        let (path, detail) = (path.as_str(), message.as_str());
        log::warn!(reason, path, code, detail, ms = milliseconds(duration); "request rejected");
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = response(status, "text/plain; charset=utf-8", format!("{message}\n"));
        match status {
            StatusCode::METHOD_NOT_ALLOWED => {
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }

    /// The body of the response, with its memory.
    async fn review(
        &self,
        head: &Parts,
        body: Incoming,
        start: Instant,
    ) -> Result<(Vec<u8>, OwnedSemaphorePermit), RequestError> {
        check_head(head)?;
        let deadline = url::deadline(head.uri.query().unwrap_or_default(), start)?;
        if !self.admission.is_configured() {
            return Err(RequestError::NoConfig);
        }
        let (body, memory) = self.read(head, body, deadline).await?;
        let Ok(permits) = timeout_at(deadline, self.review_permits(body.len())).await else {
            return Err(RequestError::Busy);
        };
        if Instant::now() >= deadline {
            return Err(RequestError::DeadlineExceeded);
        }
        let review_start = Instant::now();
        let content_type = head.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let request = admission::Request { path: head.uri.path(), content_type, body: &body };
        let reviewed = if body.len() < LARGE_BODY_BYTES {
            catch_panic(|| self.admission.review(&request))
        } else {
            self.review_in_background(&request, body.clone(), (permits, memory)).await
        };
        let duration = review_start.elapsed();
        let reviewed = reviewed.unwrap_or_else(|| {
            self.metrics.panics.inc();
            Err(RequestError::Panic)
        })?;
        let memory = self.memory.reserve(reviewed.body.len(), deadline).await?;
        self.metrics.reviewed(&reviewed.verdict, duration, start.elapsed());
        log_review(&reviewed, start.elapsed());
        Ok((reviewed.body, memory))
    }

    /// Reads the body whole, within its time and its memory.
    async fn read(
        &self,
        head: &Parts,
        mut body: Incoming,
        deadline: Instant,
    ) -> Result<(Bytes, OwnedSemaphorePermit), RequestError> {
        let until = deadline.min(Instant::now() + BODY_TIMEOUT);
        let announced = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
        if let Some(length) = announced.filter(|length| *length > MAX_BODY_BYTES) {
            // A client that waits for permission to send does not get it.
            if !head.headers.contains_key(EXPECT) && length <= MAX_DISCARDED_BYTES {
                discard(&mut body, until).await;
            }
            return Err(RequestError::TooLarge);
        }
        let memory = self.memory.reserve(announced.unwrap_or(MAX_BODY_BYTES), until).await?;
        let late =
            || if until == deadline { RequestError::DeadlineExceeded } else { RequestError::BodyTimeout };
        let collected = timeout_at(until, Limited::new(&mut body, MAX_BODY_BYTES).collect()).await;
        match collected.map_err(|_| late())? {
            Ok(collected) => Ok((collected.to_bytes(), memory)),
            Err(error) if error.is::<hyper::Error>() => Err(RequestError::BodyIncomplete),
            Err(_) => {
                discard(&mut body, until).await;
                Err(RequestError::TooLarge)
            }
        }
    }

    /// The semaphores are never closed.
    async fn review_permits(&self, length: usize) -> [Option<OwnedSemaphorePermit>; 2] {
        let large = match length {
            0..LARGE_BODY_BYTES => None,
            _ => Arc::clone(&self.large_reviews).acquire_owned().await.ok(),
        };
        [large, Arc::clone(&self.reviews).acquire_owned().await.ok()]
    }

    /// The review goes on when the client is gone, and keeps its permits until it is finished.
    async fn review_in_background(
        &self,
        request: &admission::Request<'_>,
        body: Bytes,
        permits: impl Send + 'static,
    ) -> Option<Result<admission::Response, RequestError>> {
        let admission = Arc::clone(&self.admission);
        let (path, content_type) = (request.path.to_owned(), request.content_type.map(str::to_owned));
        let review = move || {
            let _permits = permits;
            let content_type = content_type.as_deref();
            let request = admission::Request { path: &path, content_type, body: &body };
            catch_panic(|| admission.review(&request))
        };
        tokio::task::spawn_blocking(review).await.ok().flatten()
    }
}

impl From<OutOfBudget> for RequestError {
    fn from(_: OutOfBudget) -> Self {
        Self::Busy
    }
}

/// Path, method and encoding.
fn check_head(head: &Parts) -> Result<(), RequestError> {
    let path = head.uri.path();
    if path != "/inject" && !path.starts_with("/inject/") {
        return Err(RequestError::Path { path: truncate::word(path) });
    }
    if head.method != Method::POST {
        return Err(RequestError::Method { given: head.method.to_string() });
    }
    match encoding(&head.headers) {
        Some(given) => Err(RequestError::ContentEncoding { given }),
        None => Ok(()),
    }
}

/// How the body is encoded, if it is.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let is_plain =
        |given: &HeaderValue| given.is_empty() || given.as_bytes().eq_ignore_ascii_case(b"identity");
    let given = headers.get_all(CONTENT_ENCODING).iter().find(|given| !is_plain(given))?;
    Some(truncate::word(&String::from_utf8_lossy(given.as_bytes())))
}

async fn discard(body: &mut Incoming, until: Instant) {
    let mut discarded = 0;
    while discarded < MAX_DISCARDED_BYTES {
        match timeout_at(until, body.frame()).await {
            Ok(Some(Ok(frame))) => discarded += frame.data_ref().map_or(0, Bytes::len),
            Ok(Some(Err(_)) | None) | Err(_) => return,
        }
    }
}

/// Nothing if the program itself failed: one pod that causes it must not take the webhook away from others.
/// Where panics abort, the process ends instead.
fn catch_panic<T>(review: impl FnOnce() -> T) -> Option<T> {
    // What reviews share are swapped pointers: nothing half-done is seen after a panic.
    catch_unwind(AssertUnwindSafe(review)).ok()
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

/// The body of a response, and what is released when its last byte is sent.
#[derive(Default)]
struct ResponseBody {
    bytes: Vec<u8>,
    _memory: Option<OwnedSemaphorePermit>,
    _open: Option<OwnedSemaphorePermit>,
    _in_flight: Option<InFlightRequest>,
}

impl AsRef<[u8]> for ResponseBody {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn response(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Vec<u8>>,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody { bytes: body.into(), ..ResponseBody::default() });
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// One line for each verdict.
fn log_review(response: &admission::Response, duration: Duration) {
    let admission::Response { verdict, uid, namespace, owner, message, .. } = response;
    let level = if matches!(verdict, Verdict::Denied { .. }) { log::Level::Warn } else { log::Level::Info };
    log::log!(
        level,
        outcome = verdict.outcome(),
        reason = verdict.reason(),
        namespace = namespace.as_str(),
        owner = owner.as_str(),
        uid = uid.as_str(),
        ms = milliseconds(duration),
        detail = message.as_str();
        "pod reviewed"
    );
}

/// To a microsecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_yields_nothing() {
        assert_eq!(catch_panic(|| 1), Some(1));
        assert_eq!(catch_panic(|| -> u8 { panic!("on purpose") }), None);
    }
}
