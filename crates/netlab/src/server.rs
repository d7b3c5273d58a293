//! Servers that report to each client how its connection or datagram arrived.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::socket::{Backlog, Shutdown, listen, shutdown};

use crate::response::{Outcome, Response};
use crate::socket::{self, Binding};
use crate::user::{self, CLOSE_REQUEST, RESET_REQUEST, User};

/// How long a connection may be silent before the server ends it: longer than any test.
const PATIENCE: Duration = Duration::from_secs(600);

/// One thing to listen on.
#[derive(Clone, Copy, Debug)]
pub enum Listen {
    /// TCP, on any address of both families; of IPv4 alone on a kernel without IPv6.
    Tcp(u16),
    /// Same, also for connections to addresses that are not the host's.
    TcpTransparent(u16),
    /// TCP on one address; on `::` for both families where `net.ipv6.bindv6only` is 0.
    TcpAt(SocketAddr),
    /// UDP on one address, so that the response leaves from it.
    Udp(SocketAddr),
    /// UDP on one address; each question is passed on to the second address, as a DNS proxy does, from the
    /// very port that the caller used if the caller shares it. What the server there says comes back with
    /// `proxy+` before it.
    UdpForward(SocketAddr, SocketAddr),
}

/// Running threads; they end when this is dropped.
#[derive(Debug)]
pub struct Server {
    stop: Arc<AtomicBool>,
    sockets: Vec<OwnedFd>,
}

impl User {
    /// Serves until the returned value is dropped.
    pub fn serve(&self, name: &'static str, listen: &[Listen]) -> Server {
        Server::start(self, name, listen)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for socket in &self.sockets {
            // A UDP socket without a peer is an error to the kernel, which wakes its reader all the same.
            let _ = shutdown(socket.as_raw_fd(), Shutdown::Both);
        }
    }
}

impl Server {
    /// Listens on everything, or panics: when this returns, callers are served.
    pub fn start(user: &User, name: &'static str, listen: &[Listen]) -> Self {
        let mut server = Self { stop: Arc::new(AtomicBool::new(false)), sockets: Vec::new() };
        for &one in listen {
            for address in addresses(one) {
                let (ready, is_ready) = mpsc::channel();
                let (user, stop) = (user.clone(), Arc::clone(&server.stop));
                let spawned = thread::Builder::new().name(format!("{name} at {address}"));
                spawned.spawn(move || run(&user, name, one, address, &stop, &ready)).expect("start a server");
                let socket = is_ready
                    .recv()
                    .unwrap_or_else(|_| panic!("{name} cannot listen: see the message of its thread"));
                server.sockets.push(socket);
            }
        }
        server
    }
}

fn addresses(listen: Listen) -> Vec<SocketAddr> {
    match listen {
        Listen::Tcp(port) | Listen::TcpTransparent(port) => {
            let v6 = socket::kernel_has_ipv6().then(|| (Ipv6Addr::UNSPECIFIED, port).into());
            [(Ipv4Addr::UNSPECIFIED, port).into()].into_iter().chain(v6).collect()
        }
        Listen::TcpAt(address) | Listen::Udp(address) | Listen::UdpForward(address, _) => vec![address],
    }
}

fn run(
    user: &User,
    name: &'static str,
    listen: Listen,
    address: SocketAddr,
    stop: &AtomicBool,
    ready: &mpsc::Sender<OwnedFd>,
) {
    match listen {
        Listen::Tcp(_) | Listen::TcpAt(_) => {
            user.switch_thread();
            let bound = match listen {
                Listen::TcpAt(_) => TcpListener::bind(address),
                Listen::Tcp(_) | Listen::TcpTransparent(_) | Listen::Udp(_) | Listen::UdpForward(..) => {
                    socket::listen(address)
                }
            };
            let listener = bound.unwrap_or_else(|e| panic!("{name} at {address}: {e}"));
            is_ready(listener.as_fd(), ready);
            accept_until(&listener, name, stop);
        }
        Listen::TcpTransparent(_) => {
            user.namespace().enter();
            // As root: the right to be transparent is gone once the thread is the proxy.
            let listener = socket::listen(address).unwrap_or_else(|e| panic!("{name} at {address}: {e}"));
            socket::allow_transparent(&listener);
            user.switch_thread();
            is_ready(listener.as_fd(), ready);
            accept_until(&listener, name, stop);
        }
        Listen::Udp(_) | Listen::UdpForward(..) => {
            user.switch_thread();
            let socket = UdpSocket::bind(address).unwrap_or_else(|e| panic!("{name} at {address}, UDP: {e}"));
            is_ready(socket.as_fd(), ready);
            respond_until(&socket, name, listen, stop);
        }
    }
}

/// Hands over a second descriptor of the socket, to end it by.
fn is_ready(socket: BorrowedFd<'_>, ready: &mpsc::Sender<OwnedFd>) {
    let _ = ready.send(socket.try_clone_to_owned().expect("a second descriptor of a socket"));
}

fn accept_until(listener: &TcpListener, name: &'static str, stop: &AtomicBool) {
    // A busy machine lets this thread wait: with a full backlog the kernel drops handshakes.
    listen(listener, Backlog::MAXALLOWABLE).unwrap();
    let port = listener.local_addr().unwrap().port();
    while !stop.load(Ordering::Relaxed) {
        if let Ok((stream, source)) = listener.accept() {
            thread::spawn(move || converse(stream, name, port, source));
        }
    }
}

/// Writes how the connection arrived, then echoes lines until the client closes it.
fn converse(stream: TcpStream, name: &str, port: u16, source: SocketAddr) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let original = socket::original_destination(&stream)?;
    let mut writer = stream.try_clone()?;
    let response = Response { server: name.to_owned(), port, original, source };
    // In one call: a formatted write makes a system call of each part, and some of them a segment.
    writer.write_all(format!("{response}\n").as_bytes())?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if line == RESET_REQUEST {
            socket::reset(&writer);
            break;
        }
        if line == CLOSE_REQUEST {
            shutdown(writer.as_raw_fd(), Shutdown::Both)?;
            break;
        }
        writer.write_all(format!("{line}\n").as_bytes())?;
    }
    Ok(())
}

fn respond_until(socket: &UdpSocket, name: &str, listen: Listen, stop: &AtomicBool) {
    let here = socket.local_addr().unwrap();
    let mut buffer = [0; 512];
    while !stop.load(Ordering::Relaxed) {
        let Ok((_, source)) = socket.recv_from(&mut buffer) else {
            continue;
        };
        let response = match listen {
            Listen::UdpForward(_, onward) => forward(name, source, onward),
            Listen::Udp(_) | Listen::Tcp(_) | Listen::TcpTransparent(_) | Listen::TcpAt(_) => {
                Response { server: name.to_owned(), port: here.port(), original: here, source }.to_string()
            }
        };
        let _ = socket.send_to(response.as_bytes(), source);
    }
}

/// Asks the real server from the caller's own port, while the caller still waits.
fn forward(name: &str, caller: SocketAddr, onward: SocketAddr) -> String {
    let same_port = Binding { source: Some(caller), spoofed_mark: None };
    let in_use = Outcome::Failed(io::Error::from_raw_os_error(libc::EADDRINUSE).to_string());
    let outcome = match user::ask_here(onward, same_port) {
        outcome if outcome == in_use => user::ask_here(onward, Binding::default()),
        outcome => outcome,
    };
    match outcome {
        Outcome::Responded(response) => format!("{name}+{response}"),
        other @ (Outcome::Refused | Outcome::TimedOut | Outcome::Failed(_)) => format!("{name}: {other:?}"),
    }
}
