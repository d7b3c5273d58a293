//! Looks up one TCP socket by its addresses and ports.

use std::io;
use std::net::{IpAddr, SocketAddr};

use super::{InetSocket, State, header, request};
use crate::kernel::netlink::{Message, Protocol, Reply, Socket};
use crate::kernel::rtnetlink::Rtnetlink;

/// `INET_DIAG_NOCOOKIE`: the socket is not known by a number of the kernel.
const NO_COOKIE: [u8; 8] = [u8::MAX; 8];

/// `SOCK_DESTROY`.
const SOCK_DESTROY: u16 = 21;
/// Where the kernel's number of a socket is in `struct inet_diag_msg`.
const COOKIE: usize = 44;

/// Looks sockets up one by one. A list comes in several messages, and the kernel continues it at the place
/// that a socket had in its hash bucket: where another socket before it has ended between two messages, one
/// that is open is not listed.
#[derive(Debug)]
pub struct SocketLookup {
    socket: Socket,
    /// One that is bound to an interface is found with the number of that only.
    interfaces: Vec<u32>,
}

impl SocketLookup {
    /// Opens the lookup in the current thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open() -> io::Result<Self> {
        let links = Rtnetlink::open()?.links()?;
        let interfaces = links.each.iter().map(|link| link.index).collect();
        Ok(Self { socket: Socket::open(Protocol::SockDiag)?, interfaces })
    }

    /// Whether a socket has these ends whose connection has not ended: neither a listener nor one in
    /// TIME_WAIT.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn is_connected(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
        Ok(self.find(local, remote)?.is_some_and(|found| found.state != State::TimeWait))
    }

    /// The socket that has these ends.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn find(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<InetSocket>> {
        for interface in &self.interfaces {
            match self.socket.query(&by_ends(local, remote, *interface), InetSocket::read) {
                // The kernel finds the listener of the port, too.
                Ok(Some(found)) if (found.local, found.remote) == (local, remote) => {
                    return Ok(Some(found));
                }
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Ends a connection: its process gets an error, its peer a reset. Returns whether it was open.
    ///
    /// # Errors
    /// The kernel refuses; `EOPNOTSUPP` if it was built without this.
    pub fn destroy(&mut self, local: SocketAddr, remote: SocketAddr) -> io::Result<bool> {
        for interface in &self.interfaces {
            let read = |reply: &Reply<'_>| Some((InetSocket::read(reply)?, cookie(reply.body)?));
            let (found, cookie) = match self.socket.query(&by_ends(local, remote, *interface), read) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
                Err(error) => return Err(error),
            };
            if (found.local, found.remote) != (local, remote) || found.state == State::TimeWait {
                continue;
            }
            return match self.socket.request(&destruction(local, remote, *interface, cookie)) {
                Ok(()) => Ok(true),
                // It has ended meanwhile.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESTALE)) => Ok(false),
                Err(error) => Err(error),
            };
        }
        Ok(false)
    }
}

/// The kernel's number of a socket in a reply.
fn cookie(body: &[u8]) -> Option<[u8; 8]> {
    body.get(COOKIE..)?.first_chunk().copied()
}

fn by_ends(local: SocketAddr, remote: SocketAddr, interface: u32) -> Message {
    let (family, id) = ends(local, remote, interface, NO_COOKIE);
    request(family, libc::IPPROTO_TCP, &State::ALL, &id, 0)
}

/// Without the number it would be whichever socket the kernel finds, such as the listener of the port.
fn destruction(local: SocketAddr, remote: SocketAddr, interface: u32, cookie: [u8; 8]) -> Message {
    let (family, id) = ends(local, remote, interface, cookie);
    Message::new(SOCK_DESTROY, 0, &header(family, libc::IPPROTO_TCP, &State::ALL, &id, 0))
}

fn ends(local: SocketAddr, remote: SocketAddr, interface: u32, cookie: [u8; 8]) -> (libc::c_int, Vec<u8>) {
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut id = Vec::new();
    id.extend([local, remote].map(|end| end.port().to_be_bytes()).concat());
    id.extend([local, remote].map(|end| address(end.ip())).concat());
    id.extend(interface.to_ne_bytes());
    id.extend(cookie);
    (family, id)
}

/// In the first bytes, if it is shorter.
fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96).to_be_bytes(),
        IpAddr::V6(address) => address.octets(),
    }
}
