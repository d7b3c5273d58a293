//! One connection: TLS handshake, HTTP, timeouts.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::LogThrottle;
use super::connection_state::{CLIENT_TIMEOUT, ConnectionState};
use super::service::AdmissionService;

/// How often deadlines are checked: a request brings the next one forward.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// What a connection has at a shutdown to send its first request, which may be on its way.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two HTTP/2 pings, and for the response to one.
const PING_INTERVAL: Duration = Duration::from_secs(15);
/// The largest request head, and what HTTP/1.1 buffers of a connection.
const MAX_HEAD_BYTES: u32 = 32 << 10;
/// Requests at once on one HTTP/2 connection.
const MAX_STREAMS: u32 = 100;
/// What may arrive on an HTTP/2 connection, all its streams together, before it is read. Times the
/// connections, this is memory that unread requests take.
const WINDOW_BYTES: u32 = 64 << 10;

/// HTTP/1.1 and HTTP/2. The time between requests is limited by [`ConnectionState`], for both alike.
pub(super) fn http_builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(MAX_HEAD_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL)
        .max_concurrent_streams(MAX_STREAMS)
        .initial_connection_window_size(WINDOW_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .max_header_list_size(MAX_HEAD_BYTES);
    builder
}

/// Serves a connection until the client, a timeout or the shutdown ends it.
pub(super) async fn serve(
    stream: TcpStream,
    tls: TlsAcceptor,
    http: auto::Builder<TokioExecutor>,
    service: Arc<AdmissionService>,
    stopping: CancellationToken,
) {
    let client = stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |address| address.to_string());
    let stream = match timeout(CLIENT_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            service.metrics().handshake_failures.inc();
            return log_handshake_failure(&error, &client);
        }
        Err(_) => {
            service.metrics().handshake_failures.inc();
            return;
        }
    };
    let state = ConnectionState::new(Instant::now());
    let service = service_fn(|request| {
        let (service, in_flight) = (Arc::clone(&service), state.begin_request());
        async move { Ok::<_, Infallible>(service.respond(request, in_flight).await) }
    });
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let mut graceful_shutdown = pin!(async {
        stopping.cancelled().await;
        // Shut down before its first request, a connection would drop it.
        let _ = timeout(FIRST_REQUEST_TIMEOUT, state.first_request()).await;
    });
    let mut is_shutting_down = false;
    loop {
        tokio::select! {
            // What has arrived is read before deadlines count: a busy server is late itself.
            biased;
            // Clients repeat a request whose connection breaks.
            _ = connection.as_mut() => return,
            () = graceful_shutdown.as_mut(), if !is_shutting_down => {
                is_shutting_down = true;
                connection.as_mut().graceful_shutdown();
            }
            () = sleep_until(state.deadline().min(Instant::now() + CHECK_INTERVAL)) => {}
        }
        let now = Instant::now();
        if state.deadline() <= now {
            if state.has_unread_response(now) {
                log::warn!(client = client.as_str(); "connection closed: the client does not read its responses");
            }
            return;
        }
    }
}

/// An API server with an old caBundle tries for every pod.
static REJECTED: Mutex<LogThrottle> = Mutex::new(LogThrottle { last: None, suppressed: 0 });

/// A client that does not trust our certificate has to be looked at; a port scanner does not.
fn log_handshake_failure(error: &std::io::Error, client: &str) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let detail = error.to_string();
    if let Some(rustls::Error::AlertReceived(_)) = inner {
        let hint = "compare the caBundle of the webhook configuration with the CA of the certificate";
        let times = REJECTED.lock().ok().and_then(|mut throttle| throttle.record(Instant::now()));
        if let Some(times) = times {
            log::warn!(client, detail = detail.as_str(), hint, times; "TLS handshake rejected by the client");
        }
    } else {
        log::debug!(client, detail = detail.as_str(); "TLS handshake failed");
    }
}
