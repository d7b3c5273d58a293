//! One connection, from its first byte to its last.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::crowd::Place;
use super::request::Door;
use crate::webhook::shutdown::Ending;

/// For a handshake; and, after it, for the head of a request from its first byte on, and for the first request.
const PATIENCE: Duration = Duration::from_secs(10);
/// For the next request. Longer than the 90 s after which API servers close idle connections themselves, so that
/// none is closed just when it is used.
const IDLE: Duration = Duration::from_secs(120);
/// Between two questions whether the other end of an HTTP/2 connection still lives, and for the answer.
const PING: Duration = Duration::from_secs(15);
/// Between two looks at a connection.
const LOOK: Duration = Duration::from_secs(1);
/// For the head of a request.
const HEAD_BYTES: u32 = 64 << 10;
/// Requests at once on one HTTP/2 connection.
const STREAMS: u32 = 250;

/// What is known of a connection's life. Times are milliseconds since it began.
#[derive(Debug)]
pub(super) struct Pulse {
    began: Instant,
    working: AtomicU32,
    served: AtomicBool,
    quiet_since: AtomicU64,
    /// When the head of the next request began to arrive; 0 is never.
    head_since: AtomicU64,
    dismissed: AtomicBool,
    dismissal: Notify,
}

impl Default for Pulse {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            working: AtomicU32::new(0),
            served: AtomicBool::new(false),
            quiet_since: AtomicU64::new(0),
            head_since: AtomicU64::new(0),
            dismissed: AtomicBool::new(false),
            dismissal: Notify::new(),
        }
    }
}

impl Pulse {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn heard(&self) {
        if self.working.load(Ordering::Relaxed) == 0 && self.head_since.load(Ordering::Relaxed) == 0 {
            self.head_since.store(self.now().max(1), Ordering::Relaxed);
        }
    }

    fn request_begins(self: &Arc<Self>) -> Working {
        self.working.fetch_add(1, Ordering::Relaxed);
        self.served.store(true, Ordering::Relaxed);
        self.head_since.store(0, Ordering::Relaxed);
        Working(Arc::clone(self))
    }

    /// How long nothing has been worked on; nothing if something is, or if it is on its way out.
    pub(super) fn idle(&self) -> Option<Duration> {
        let busy = self.working.load(Ordering::Relaxed) > 0 || self.dismissed.load(Ordering::Relaxed);
        (!busy).then(|| self.since(&self.quiet_since))
    }

    fn since(&self, time: &AtomicU64) -> Duration {
        Duration::from_millis(self.now().saturating_sub(time.load(Ordering::Relaxed)))
    }

    /// Asks the connection to close.
    pub(super) fn dismiss(&self) {
        self.dismissed.store(true, Ordering::Relaxed);
        self.dismissal.notify_one();
    }

    /// Whether nobody is expected to send anything useful any more.
    fn is_over(&self, http2: bool) -> bool {
        let Some(idle) = self.idle() else { return false };
        let head = self.head_since.load(Ordering::Relaxed);
        // HTTP/2 has bytes between requests too.
        let slow_head = !http2 && head > 0 && self.since(&self.head_since) > PATIENCE;
        slow_head || idle > if self.served.load(Ordering::Relaxed) { IDLE } else { PATIENCE }
    }
}

/// A request on a connection, from head to answer.
struct Working(Arc<Pulse>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.quiet_since.store(self.0.now(), Ordering::Relaxed);
        self.0.working.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Shakes hands, then serves until either side has had enough.
pub(super) async fn run(stream: TcpStream, tls: TlsAcceptor, door: Arc<Door>, place: Place, ending: Ending) {
    let handshake = tokio::select! {
        handshake = tokio::time::timeout(PATIENCE, tls.accept(stream)) => handshake,
        () = place.pulse.dismissal.notified() => return,
    };
    let Ok(Ok(stream)) = handshake else {
        door.metrics().handshake_failures.inc();
        if let Ok(Err(error)) = handshake {
            log::debug!(detail = error.to_string().as_str(); "TLS handshake failed");
        }
        return;
    };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let pulse = Arc::clone(&place.pulse);
    let io = TokioIo::new(Listening { stream, pulse: Arc::clone(&pulse) });
    let service = service_fn({
        let (pulse, ending) = (Arc::clone(&pulse), ending.clone());
        move |request| {
            let (working, door, ending) = (pulse.request_begins(), Arc::clone(&door), ending.clone());
            async move {
                let answer = door.answer(request, &ending).await;
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

/// Heads are timed by `Pulse`, which tells a slow head from an idle connection.
fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(HEAD_BYTES as usize);
    builder
}

fn http2_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_BYTES);
    builder
}

/// Drives a connection, and ends it when its time has come: gracefully first, then at once.
async fn keep<C, E>(connection: C, end: impl Fn(Pin<&mut C>), pulse: &Pulse, http2: bool, mut ending: Ending)
where
    C: Future<Output = Result<(), E>>,
{
    let mut connection = pin!(connection);
    let mut asked_to_end = None;
    let mut look = tokio::time::interval(LOOK);
    loop {
        let first = asked_to_end.is_none();
        tokio::select! {
            _ = connection.as_mut() => return,
            () = ending.stopping(), if first => asked_to_end = Some(Instant::now()),
            () = pulse.dismissal.notified(), if first => asked_to_end = Some(Instant::now()),
            _ = look.tick() => match asked_to_end {
                Some(since) if pulse.idle_or_dismissed() && since.elapsed() > PATIENCE => return,
                Some(_) => {}
                None if pulse.is_over(http2) => asked_to_end = Some(Instant::now()),
                None => {}
            },
        }
        if first && asked_to_end.is_some() {
            end(connection.as_mut());
        }
    }
}

impl Pulse {
    fn idle_or_dismissed(&self) -> bool {
        self.working.load(Ordering::Relaxed) == 0
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

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
