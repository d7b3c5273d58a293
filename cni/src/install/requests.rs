//! Requests on a Unix socket, read without blocking, so that a slow client delays no other.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::geteuid;

use crate::lookup::LARGEST;

/// Timeout of a client for its request, and for each part of the response that it reads.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Requests that are read at a time. With more, the oldest connection is closed; others wait in the socket's
/// queue.
const CONNECTIONS: usize = 256;
/// The interval at which the owner of the socket is checked.
const OWNED: Duration = Duration::from_secs(2);
/// The time to wait after a connection that could not be accepted, for want of file descriptors for instance.
const PAUSE: Duration = Duration::from_millis(5);

/// A client that has not sent all of its request yet.
struct Connection {
    stream: UnixStream,
    bytes: Vec<u8>,
    since: Instant,
}

/// Reads requests as long as `is_owned`, and hands each over with its connection, which blocks, with limits,
/// from then on. `is_complete` gets the data received so far, and whether the client has closed its side.
pub(super) fn receive(
    listener: &UnixListener,
    is_owned: impl Fn() -> bool,
    is_complete: impl Fn(&[u8], bool) -> bool,
    mut handle: impl FnMut(UnixStream, Vec<u8>),
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut open: VecDeque<Connection> = VecDeque::new();
    let mut asked = Instant::now();
    loop {
        // Clients that have connected are served in any case.
        if open.is_empty() && asked.elapsed() >= OWNED {
            if !is_owned() {
                return Ok(());
            }
            asked = Instant::now();
        }
        let (has_clients, readable) = wait(listener, &open);
        let mut kept = VecDeque::with_capacity(open.len() + 1);
        for (mut connection, is_readable) in open.drain(..).zip(readable) {
            let read = if is_readable { connection.read(&is_complete) } else { Ok(false) };
            let read = match read {
                Ok(false) if connection.since.elapsed() >= TIMEOUT => {
                    Err(io::Error::other(format!("no request within {} s", TIMEOUT.as_secs())))
                }
                read => read,
            };
            match read.and_then(|is_read| is_read.then(|| limit(&connection.stream)).transpose()) {
                Ok(Some(())) => handle(connection.stream, connection.bytes),
                Ok(None) => kept.push_back(connection),
                Err(error) => log::debug!("connection closed: {error}"),
            }
        }
        open = kept;
        if has_clients {
            accept(listener, &mut open);
        }
    }
}

/// Waits for clients, for what they send, or until the oldest has taken too long, [`OWNED`] at most. Returns
/// whether there are new ones, and which of the others have sent something.
fn wait(listener: &UnixListener, open: &VecDeque<Connection>) -> (bool, Vec<bool>) {
    let left = open.front().map(|oldest| TIMEOUT.saturating_sub(oldest.since.elapsed()));
    let left = left.unwrap_or(OWNED).min(OWNED);
    let timeout = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::ZERO);
    let mut polled = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    polled.extend(open.iter().map(|one| PollFd::new(one.stream.as_fd(), PollFlags::POLLIN)));
    if let Err(error) = poll(&mut polled, timeout)
        && error != Errno::EINTR
    {
        // Out of memory, for instance: it would fail again at once.
        thread::sleep(PAUSE);
    }
    let mut ready = polled.iter().map(|one| one.any().unwrap_or(false));
    (ready.next().unwrap_or(false), ready.collect())
}

/// Accepts those that wait, as long as there is room, which the oldest makes: it has had its turn.
fn accept(listener: &UnixListener, open: &mut VecDeque<Connection>) {
    if open.len() >= CONNECTIONS {
        open.pop_front();
        log::debug!(limit = CONNECTIONS; "connection limit reached: the oldest is closed");
    }
    while open.len() < CONNECTIONS {
        match listener.accept() {
            Ok((stream, _)) => match require_own_user(&stream).and_then(|()| stream.set_nonblocking(true)) {
                Ok(()) => open.push_back(Connection { stream, bytes: Vec::new(), since: Instant::now() }),
                Err(error) => log::debug!("connection closed: {error}"),
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => {
                // Its file descriptor is free then.
                if open.pop_front().is_none() {
                    thread::sleep(PAUSE);
                }
                return;
            }
        }
    }
}

/// Until the permissions of the socket were set, others could connect.
fn require_own_user(stream: &UnixStream) -> io::Result<()> {
    let peer = getsockopt(stream, PeerCredentials)?.uid();
    if peer == 0 || peer == geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!("client of user {peer}")))
}

impl Connection {
    /// Reads what has come. Returns whether that is all.
    fn read(&mut self, is_complete: &impl Fn(&[u8], bool) -> bool) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        let has_ended = match self.stream.read(&mut buffer) {
            Ok(length) => {
                self.bytes.extend(buffer.get(..length).unwrap_or_default());
                length == 0
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        };
        if is_complete(&self.bytes, has_ended) {
            Ok(true)
        } else if has_ended {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else if self.bytes.len() > LARGEST {
            Err(io::Error::other("the request is too large"))
        } else {
            Ok(false)
        }
    }
}

/// What a connection is while its response is written.
fn limit(stream: &UnixStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(TIMEOUT))
}
