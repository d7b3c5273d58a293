//! Connections to unix sockets that do not wait for the process that listens.

use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::Result;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

/// A connection, whose reads and writes do not block either.
///
/// # Errors
/// `ENOENT` and `ECONNREFUSED`: no process listens. `EAGAIN`: one does, and its queue is full.
pub fn connect_nonblocking(path: &Path) -> Result<UnixStream> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let stream = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(stream.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(stream))
}
