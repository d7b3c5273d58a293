//! Liveness and readiness probes (`/healthz`, `/readyz`) over HTTP, for kubelet; `/metrics`, for Prometheus.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use istio_iptables::text::one_line;
use nix::errno::Errno;

use super::metrics::Metrics;

/// Timeout of a client for its request, and for reading the response.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Connections at a time; others are closed.
const LIMIT: usize = 16;
/// Size of the longest request, in bytes.
const LONGEST: usize = 8 << 10;

/// Why the agent is not ready; nothing if it is.
#[derive(Clone)]
pub struct Readiness(Arc<Mutex<State>>);

struct State {
    problem: Option<String>,
    check: Option<Check>,
}

/// Something else that has to be ready: why it is not.
pub type Check = Arc<dyn Fn() -> Option<String> + Send + Sync>;

impl Default for Readiness {
    fn default() -> Self {
        let state = State { problem: Some("not installed yet".to_owned()), check: None };
        Self(Arc::new(Mutex::new(state)))
    }
}

impl Readiness {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets it.
    pub fn set(&self, problem: Option<String>) {
        self.state().problem = problem;
    }

    /// From now on this is checked, too, at each request.
    pub fn also(&self, check: Check) {
        self.state().check = Some(check);
    }

    fn get(&self) -> Option<String> {
        let state = self.state();
        state.problem.clone().or_else(|| state.check.as_ref()?())
    }
}

/// Listens; connections are served by threads until the process ends. Returns the address.
///
/// # Errors
/// The address cannot be used.
pub fn serve(address: SocketAddr, readiness: &Readiness, metrics: &Arc<Metrics>) -> io::Result<SocketAddr> {
    let listener = bind(address, TcpListener::bind)?;
    let bound = listener.local_addr()?;
    let (readiness, metrics) = (readiness.clone(), Arc::clone(metrics));
    let open = Arc::new(AtomicUsize::new(0));
    thread::Builder::new().name("probes".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else {
                // Out of file descriptors, for instance: it would fail again at once.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if open.fetch_add(1, Ordering::SeqCst) < LIMIT {
                let (readiness, metrics, open) = (readiness.clone(), Arc::clone(&metrics), Arc::clone(&open));
                let served = thread::Builder::new().spawn(move || {
                    // A client that is gone needs no response.
                    let _ = respond(stream, &readiness, &metrics);
                    open.fetch_sub(1, Ordering::SeqCst);
                });
                if served.is_ok() {
                    continue;
                }
            }
            open.fetch_sub(1, Ordering::SeqCst);
        }
    })?;
    Ok(bound)
}

/// Takes all addresses of IPv4 where all of both families are wanted and the node has no IPv6
/// (`ipv6.disable=1`).
fn bind<T>(address: SocketAddr, listen: impl Fn(SocketAddr) -> io::Result<T>) -> io::Result<T> {
    let ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    match listen(address) {
        Err(error) if is_without_ipv6(&error) && address.ip() == Ipv6Addr::UNSPECIFIED => {
            log::info!(address:%, instead:% = ipv4; "no IPv6 on this node");
            listen(ipv4)
        }
        bound => bound,
    }
}

/// The errors of `socket` where the kernel has no IPv6, and of `bind` where it has no address of that family.
fn is_without_ipv6(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EAFNOSUPPORT | Errno::EADDRNOTAVAIL))
}

fn respond(mut stream: TcpStream, readiness: &Readiness, metrics: &Metrics) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = read_request(&mut stream)?;
    let mut words = request.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (status, body) = match (method, path) {
        ("GET" | "HEAD", "/healthz") => ("200 OK", "ok".to_owned()),
        ("GET" | "HEAD", "/readyz") => match readiness.get() {
            None => ("200 OK", "ok".to_owned()),
            Some(problem) => ("503 Service Unavailable", one_line(&problem).into_owned()),
        },
        ("GET" | "HEAD", "/metrics") => {
            ("200 OK", metrics.text(readiness.get().is_none()).trim_end().to_owned())
        }
        ("GET" | "HEAD", _) => ("404 Not Found", "expected /healthz, /readyz or /metrics".to_owned()),
        _ => ("405 Method Not Allowed", "expected GET".to_owned()),
    };
    let length = body.len() + 1;
    let body = if method == "HEAD" { String::new() } else { format!("{body}\n") };
    let head = "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n";
    write!(stream, "HTTP/1.1 {status}\r\n{head}Content-Length: {length}\r\n\r\n{body}")
}

/// Reads up to the empty line.
fn read_request(stream: &mut TcpStream) -> io::Result<String> {
    let begin = Instant::now();
    let mut request = Vec::new();
    let mut buffer = [0; 1024];
    while !request.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let left = TIMEOUT.saturating_sub(begin.elapsed());
        if left.is_zero() || request.len() > LONGEST {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => request.extend(buffer.get(..length).unwrap_or_default()),
        }
    }
    Ok(String::from_utf8_lossy(&request).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn readiness_is_reported_with_its_reason() {
        let readiness = Readiness::default();
        let address = serve("127.0.0.1:0".parse().unwrap(), &readiness, &Arc::default()).unwrap();
        let ready = || get(address, "GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(ready().starts_with("HTTP/1.1 503 "), "{}", ready());
        assert!(ready().ends_with("\r\n\r\nnot installed yet\n"), "{}", ready());
        readiness.set(None);
        assert!(ready().starts_with("HTTP/1.1 200 ") && ready().ends_with("\r\n\r\nok\n"), "{}", ready());
        readiness.set(Some("a\nb".to_owned()));
        assert!(ready().starts_with("HTTP/1.1 503 ") && !ready().ends_with("a\nb\n"), "{}", ready());
        readiness.set(None);
        readiness.also(Arc::new(|| Some("pods".to_owned())));
        assert!(ready().starts_with("HTTP/1.1 503 ") && ready().ends_with("\r\n\r\npods\n"), "{}", ready());
        assert!(get(address, "GET /healthz HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
        assert!(get(address, "GET /metrics HTTP/1.1\r\n\r\n").contains("\nistio_cni_install_ready 0\n"));
        assert!(get(address, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
        assert!(get(address, "POST /readyz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    }

    /// As `socket` fails with `ipv6.disable=1`.
    fn without_ipv6(address: SocketAddr) -> io::Result<SocketAddr> {
        if address.is_ipv6() { Err(Errno::EAFNOSUPPORT.into()) } else { Ok(address) }
    }

    #[test]
    fn node_without_ipv6_is_probed_over_ipv4() {
        let bound =
            |address: &str| bind(address.parse().unwrap(), without_ipv6).map(|bound| bound.to_string());
        assert_eq!(bound("[::]:8000").unwrap(), "0.0.0.0:8000");
        assert_eq!(bound("127.0.0.1:8000").unwrap(), "127.0.0.1:8000");
        // An address that was meant is not replaced by another.
        bound("[::1]:8000").unwrap_err();
        // Do not fall back to another address because the port is in use.
        let used =
            bind("[::]:8000".parse().unwrap(), |_| -> io::Result<()> { Err(Errno::EADDRINUSE.into()) });
        assert_eq!(used.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn idle_connections_do_not_delay_probes() {
        let readiness = Readiness::default();
        let address = serve("127.0.0.1:0".parse().unwrap(), &readiness, &Arc::default()).unwrap();
        let idle: Vec<_> = (0..LIMIT - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert!(get(address, "GET /healthz HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 "));
        drop(idle);
    }
}
