//! The admission port: TCP, TLS, HTTP, independent of the meaning of requests.
//!
//! `ConnectionLimiter` limits the connections, `Workers` are the threads that serve them, `connection` serves
//! one of them, `connection_state` decides when it is closed, `service` responds to one request,
//! `memory_budget` limits the memory for bodies.

mod connection;
mod connection_state;
mod memory_budget;
mod service;
mod workers;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::version::{TLS12, TLS13};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;

pub(super) use service::{AdmissionService, READY_PATH};
pub(super) use workers::Workers;

use super::options::Listen;
use super::shutdown::Shutdown;
use crate::certs::CertResolver;
use crate::certs::serving_cert::provider;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;
/// The pause after an error because of which nothing can be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Listens on an address.
pub(super) fn bind(listen: Listen) -> io::Result<TcpListener> {
    match bind_to(listen.address) {
        // A machine without IPv6 has all its addresses in the other family.
        Err(_) if listen.any_family => {
            bind_to(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), listen.address.port()))
        }
        result => result,
    }
}

fn bind_to(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart in the same place does not wait for connections of the time before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, with the certificate that is served at the moment of a handshake.
/// Errors: when the provider of cryptography lacks a version of the protocol, which a test excludes.
pub(super) fn tls_acceptor(serving: Arc<CertResolver>) -> Result<TlsAcceptor, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&TLS13, &TLS12])?
        .with_no_client_auth()
        .with_cert_resolver(serving);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// Accepts connections until `shutdown` stops it, then waits for the last one. The caller bounds the wait.
pub(super) async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    service: Arc<AdmissionService>,
    max_connections: usize,
    workers: Workers,
    shutdown: Shutdown,
) {
    let limiter = ConnectionLimiter::new(max_connections);
    let mut throttle = LogThrottle::default();
    let connections = TaskTracker::new();
    let http = connection::http_builder();
    let spawn = |stream: std::net::TcpStream, permit: Option<OwnedSemaphorePermit>| {
        // Without it small responses wait for more; if it cannot be set, they do.
        let _ = stream.set_nodelay(true);
        let (worker, connection) = workers.least_busy();
        let (tls, http, service) = (tls.clone(), http.clone(), Arc::clone(&service));
        let stopping = shutdown.stopping.clone();
        let serving = async move {
            let metrics = Arc::clone(service.metrics());
            metrics.accepted.inc();
            metrics.connections.inc();
            // Only the worker's own runtime waits for it.
            if let Ok(stream) = TcpStream::from_std(stream) {
                connection::serve(stream, tls, http, service, stopping).await;
            }
            metrics.connections.dec();
            drop((permit, connection));
        };
        connections.spawn_on(serving, worker);
    };
    loop {
        let accepted = tokio::select! {
            () = shutdown.stopping.cancelled() => break,
            accepted = limiter.accept(&listener) => accepted,
        };
        match accepted {
            Ok((stream, permit)) => {
                if let Ok(stream) = stream.into_std() {
                    spawn(stream, Some(permit));
                }
            }
            Err(error) => pause_accepting(&error, "admission", &mut throttle).await,
        }
    }
    accept_backlog(listener, |stream| spawn(stream, None)).await;
    connections.close();
    connections.wait().await;
}

/// Connections that the kernel has accepted already are served too.
async fn accept_backlog(listener: TcpListener, spawn: impl Fn(std::net::TcpStream)) {
    let Ok(listener) = listener.into_std() else { return };
    for _ in 0..BACKLOG {
        match accept_now(&listener) {
            Ok(stream) => spawn(stream),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// A connection that the kernel has already; the runtime may not know of it yet.
fn accept_now(listener: &std::net::TcpListener) -> io::Result<std::net::TcpStream> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The connection limit (`--max-connections`): further connections wait in the kernel's queue.
#[derive(Debug)]
pub(super) struct ConnectionLimiter(Arc<Semaphore>);

impl ConnectionLimiter {
    pub(super) fn new(max_connections: usize) -> Self {
        Self(Arc::new(Semaphore::new(max_connections.min(Semaphore::MAX_PERMITS))))
    }

    /// The next connection, once there is room for it; it counts until the permit is dropped.
    pub(super) async fn accept(
        &self,
        listener: &TcpListener,
    ) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let permit = Arc::clone(&self.0).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, _) = listener.accept().await?;
        Ok((stream, permit))
    }
}

/// Pauses where nothing can be accepted; other errors are about one connection that is gone again.
pub(super) async fn pause_accepting(error: &io::Error, port: &'static str, throttle: &mut LogThrottle) {
    if !matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)) {
        return;
    }
    if let Some(times) = throttle.record(Instant::now()) {
        log::warn!(detail = error.to_string().as_str(), port, times; "cannot accept connections");
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

/// Lets one log line through every few seconds, and counts the others.
#[derive(Debug, Default)]
pub(super) struct LogThrottle {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogThrottle {
    const INTERVAL: Duration = Duration::from_secs(5);

    /// The number of events since the last line, if another line is due.
    fn record(&mut self, now: Instant) -> Option<u64> {
        self.suppressed += 1;
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < Self::INTERVAL) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_are_accepted_before_the_runtime_knows_of_them() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // What blocks keeps the runtime from polling.
        let clients = [(); 3].map(|()| std::net::TcpStream::connect(address).unwrap().local_addr().unwrap());
        let backlog = listener.into_std().unwrap();
        for client in clients {
            assert_eq!(accept_now(&backlog).unwrap().peer_addr().unwrap(), client);
        }
        assert_eq!(accept_now(&backlog).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_first_line_and_one_in_each_interval() {
        let (begin, mut throttle) = (Instant::now(), LogThrottle::default());
        let logged = [0, 50, 100, 4999, 5000, 5001, 9999, 60_000, 60_050]
            .map(|ms| throttle.record(begin + Duration::from_millis(ms)));
        assert_eq!(logged, [Some(1), None, None, None, Some(4), None, None, Some(3), None]);
    }
}
