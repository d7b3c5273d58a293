//! The monitoring port over plain HTTP: liveness and readiness probes (`/healthz`, `/readyz`) and `/metrics`.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};

use super::health::Health;
use super::metrics::Metrics;
use super::server::{ConnectionLimiter, LogThrottle, pause_accepting};

/// Connections at a time: a few probes and scrapers.
const MAX_CONNECTIONS: usize = 256;
/// For the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// For one connection: one request, one response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
const PLAIN: &str = "text/plain; charset=utf-8";

/// What is served there.
#[derive(Debug)]
pub(super) struct Monitoring {
    /// For `/readyz`.
    pub health: Health,
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
}

/// Serves until it is dropped: health is reported to the end of the shutdown.
pub(super) async fn serve(listener: TcpListener, monitoring: Arc<Monitoring>) {
    let limiter = ConnectionLimiter::new(MAX_CONNECTIONS);
    let mut throttle = LogThrottle::default();
    loop {
        match limiter.accept(&listener).await {
            Ok((stream, permit)) => {
                let connection = serve_connection(stream, Arc::clone(&monitoring));
                tokio::spawn(async move {
                    let _permit = permit;
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
                });
            }
            Err(error) => pause_accepting(&error, "monitoring", &mut throttle).await,
        }
    }
}

async fn serve_connection(stream: TcpStream, monitoring: Arc<Monitoring>) {
    let service = service_fn(move |request| {
        let monitoring = Arc::clone(&monitoring);
        async move { Ok::<_, Infallible>(monitoring.respond(&request).await) }
    });
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(16 << 10);
    // Clients repeat a request whose connection breaks.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

impl Monitoring {
    async fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = response(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "expected GET\n".to_owned());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/healthz" => response(StatusCode::OK, PLAIN, "ok\n".to_owned()),
            "/readyz" => {
                let (ready, text) = self.health.ready().await;
                let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                response(status, PLAIN, text)
            }
            "/metrics" => {
                let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
                let (content_type, text) = self.metrics.text(accept.unwrap_or_default());
                response(StatusCode::OK, content_type, text)
            }
            _ => {
                response(StatusCode::NOT_FOUND, PLAIN, "expected /healthz, /readyz or /metrics\n".to_owned())
            }
        }
    }
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
