//! The monitoring port: `/healthz`, `/readyz`, `/metrics`. Plain HTTP.

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
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpStream};

use super::health::Health;
use super::metrics::Metrics;
use super::server::{self, Crowd, Pulse, Seldom};

/// Connections at a time: a few probes and scrapers. When there are more, the one that has been silent longest goes.
const CONNECTIONS: usize = 64;
/// For the head of a request. Those who ask here are near.
const HEAD: Duration = Duration::from_secs(2);
/// For one connection: one request, one answer.
const PATIENCE: Duration = Duration::from_secs(10);
const PLAIN: &str = "text/plain; charset=utf-8";

/// What is told there.
#[derive(Debug)]
pub struct Monitoring {
    /// For `/readyz`.
    pub health: Health,
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
}

/// Serves until it is dropped: health is asked about to the very end.
pub async fn serve(listener: TcpListener, monitoring: Arc<Monitoring>) {
    let crowd =
        Arc::new(Crowd::new(CONNECTIONS, Gauge::default(), monitoring.metrics.monitoring_evicted.clone()));
    let mut seldom = Seldom::default();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                server::failed(&error, "monitoring", &crowd, &mut seldom).await;
                continue;
            }
        };
        let (place, monitoring) = (crowd.room().await, Arc::clone(&monitoring));
        tokio::spawn(async move {
            let conversation = converse(stream, Arc::clone(&place.pulse), monitoring);
            tokio::select! {
                // Who is too slow is cut off.
                _ = tokio::time::timeout(PATIENCE, conversation) => {}
                () = place.pulse.dismissed() => {}
            }
        });
    }
}

async fn converse(stream: TcpStream, pulse: Arc<Pulse>, monitoring: Arc<Monitoring>) {
    let service = service_fn(move |request| {
        let (working, monitoring) = (pulse.request_begins(), Arc::clone(&monitoring));
        async move {
            let answer = monitoring.answer(&request).await;
            drop(working);
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD).keep_alive(false).max_buf_size(16 << 10);
    // A client that goes away is its own affair.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

impl Monitoring {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, PLAIN, "expected GET\n".to_owned());
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/healthz" => reply(StatusCode::OK, PLAIN, "ok\n".to_owned()),
            "/readyz" => {
                let (ready, text) = self.health.ready().await;
                let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                reply(status, PLAIN, text)
            }
            "/metrics" => {
                let accept = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
                let (content_type, text) = self.metrics.text(accept.unwrap_or_default());
                reply(StatusCode::OK, content_type, text)
            }
            _ => reply(StatusCode::NOT_FOUND, PLAIN, "expected /healthz, /readyz or /metrics\n".to_owned()),
        }
    }
}

fn reply(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
