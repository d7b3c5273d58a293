//! Opening a port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

use crate::webhook::options::Listen;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1024;

/// Listens on an address.
///
/// # Errors
///
/// What the system says.
pub fn bind(listen: Listen) -> io::Result<TcpListener> {
    match on(listen.address) {
        // A machine without IPv6 has all its addresses in the other family.
        Err(_) if listen.any_family => {
            on(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), listen.address.port()))
        }
        result => result,
    }
}

fn on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart in the same place does not wait for connections of the time before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
