//! One connection, from its first byte to its last.

use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::crowd::Place;
use super::pulse::{PATIENCE, Pulse};
use super::request::Door;
use crate::webhook::shutdown::Ending;

/// Between two questions whether the other end of an HTTP/2 connection still lives, and for the answer.
const PING: Duration = Duration::from_secs(15);
/// Between two looks at a connection.
const LOOK: Duration = Duration::from_secs(1);
/// For the head of a request.
const HEAD_BYTES: u32 = 64 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 100;
/// What may arrive on an HTTP/2 connection, and on one of its streams, before it is read.
const WINDOWS: [u32; 2] = [256 << 10, 128 << 10];

/// Shakes hands, then serves until either side has had enough.
pub(super) async fn run(stream: TcpStream, tls: TlsAcceptor, door: Arc<Door>, place: Place, ending: Ending) {
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(PATIENCE, tls.accept(stream)) => handshake,
        () = place.pulse.dismissed() => return,
    };
    let Ok(Ok(stream)) = handshake else {
        door.metrics().handshake_failures.inc();
        if let Ok(Err(error)) = handshake {
            tell(&error);
        }
        return;
    };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let pulse = Arc::clone(&place.pulse);
    let io = TokioIo::new(Listening { stream, pulse: Arc::clone(&pulse) });
    let service = service_fn({
        let (pulse, ending) = (Arc::clone(&pulse), ending.clone());
        move |request| {
            let (pulse, working) = (Arc::clone(&pulse), pulse.request_begins());
            let (door, ending) = (Arc::clone(&door), ending.clone());
            async move {
                let answer = door.answer(request, &ending, &pulse).await;
                drop(working);
                Ok::<_, std::convert::Infallible>(answer)
            }
        }
    });
    if http2 {
        let connection = http2_builder().serve_connection(io, service);
        keep(connection, http2::Connection::graceful_shutdown, &pulse, true, ending).await;
    } else {
        let connection = http1_builder().serve_connection(io, service);
        keep(connection, http1::Connection::graceful_shutdown, &pulse, false, ending).await;
    }
}

/// Why there was no handshake. Whoever does not trust our certificate is a reason to look; port scanners are not.
fn tell(error: &std::io::Error) {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let detail = error.to_string();
    if let Some(rustls::Error::AlertReceived(_)) = inner {
        let hint = "compare the caBundle of the webhook configuration with the CA of the certificate";
        log::warn!(detail = detail.as_str(), hint; "a client refused the TLS handshake");
    } else {
        log::debug!(detail = detail.as_str(); "TLS handshake failed");
    }
}

/// Heads are timed by `Pulse`, which tells a slow head from an idle connection.
fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD_BYTES as usize);
    builder
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let [connection, stream] = WINDOWS;
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .initial_connection_window_size(connection)
        .initial_stream_window_size(stream)
        .max_header_list_size(HEAD_BYTES);
    builder
}

/// Drives a connection, and ends it when its time has come: gracefully first, then at once.
async fn keep<C, E>(connection: C, end: impl Fn(Pin<&mut C>), pulse: &Pulse, http2: bool, mut ending: Ending)
where
    C: Future<Output = Result<(), E>>,
{
    let mut connection = pin!(connection);
    let mut asked: Option<Instant> = None;
    let mut ended = false;
    let mut look = tokio::time::interval(LOOK);
    loop {
        let first = asked.is_none();
        tokio::select! {
            _ = connection.as_mut() => return,
            () = pulse.is_cut() => {
                log::warn!("a client does not read its answers, and others need their memory: it is cut off");
                return;
            }
            () = ending.stopping(), if first => asked = Some(Instant::now()),
            () = pulse.dismissed(), if first => asked = Some(Instant::now()),
            () = pulse.answered(), if !first && !ended => {}
            _ = look.tick() => {
                if pulse.is_clogged() {
                    log::warn!("a client does not read its answers: it is cut off");
                    return;
                }
                if first && pulse.is_over(http2) {
                    asked = Some(Instant::now());
                }
            }
        }
        let Some(since) = asked else { continue };
        // An answer that was late has its time to be written too.
        let quiet = pulse.quiet().map_or(Duration::ZERO, |quiet| quiet.min(since.elapsed()));
        if ended && quiet > PATIENCE {
            return;
        }
        // Ended before its first request, a connection would drop one that is on its way.
        if !ended && (pulse.has_served() || since.elapsed() >= LOOK) {
            ended = true;
            end(connection.as_mut());
        }
    }
}

/// Notes when something is heard.
struct Listening {
    stream: TlsStream<TcpStream>,
    pulse: Arc<Pulse>,
}

impl AsyncRead for Listening {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.pulse.heard();
        }
        result
    }
}

impl AsyncWrite for Listening {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    /// Answers are not copied into one buffer with their heads then, and so keep their memory until they are written.
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
