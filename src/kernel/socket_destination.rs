//! Where the datagrams of a socket go that is connected to an address. It is another one where a BPF program
//! of its cgroup chooses that, as load balancing at the socket does (hooks `connect4` and `connect6`): rules
//! see only this.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use super::{procfs, recording};

/// Connects a UDP socket, over which nothing is sent, and reads from `/proc/net/udp` where to. The socket
/// itself may be told the first address (hook `getpeername4`), and sock_diag may load a module.
///
/// # Errors
/// There is no route, the program refuses, or `/proc` cannot be read.
pub fn destination_of_socket(destination: SocketAddr) -> io::Result<SocketAddr> {
    let text = recording::text(&format!("destination of a socket for {destination}"), &mut || {
        let (any, list): (IpAddr, _) = match destination {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), "net/udp"),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED.into(), "net/udp6"),
        };
        let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.connect(destination)?;
        let local = socket.local_addr()?;
        let found = remote_of(local, &procfs::read_own(list)?);
        found.map(|remote| remote.to_string()).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    })?;
    text.parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
}

/// The peer of the socket with this address. Lines have a number, both addresses, and more.
fn remote_of(local: SocketAddr, list: &str) -> Option<SocketAddr> {
    let addresses = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        Some((address(words.next()?)?, address(words.next()?)?))
    };
    let mut sockets = list.lines().filter_map(addresses);
    sockets
        .find(|(found, _)| (found.ip(), found.port()) == (local.ip(), local.port()))
        .map(|(_, remote)| remote)
}

/// An address as words of the machine's byte order, and a port, all in hexadecimal digits.
fn address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let mut bytes = [0; 16];
    for (place, at) in bytes.chunks_exact_mut(4).zip((0..words.len()).step_by(8)) {
        place.copy_from_slice(&u32::from_str_radix(words.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    let address: IpAddr = match (words.len(), bytes) {
        (8, [a, b, c, d, ..]) => [a, b, c, d].into(),
        (32, bytes) => bytes.into(),
        _ => return None,
    };
    Some(SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlab::in_new_namespace;

    /// Without a program a socket goes where it is connected to, whatever other sockets there are.
    #[test]
    fn destination_of_an_ordinary_socket_is_its_own() {
        in_new_namespace(|| {
            let _other = UdpSocket::bind("[::1]:0").unwrap();
            for destination in ["127.0.0.1:53", "127.9.8.7:1", "[::1]:53"] {
                let destination = destination.parse().unwrap();
                assert_eq!(destination_of_socket(destination).unwrap(), destination);
            }
            // No route.
            assert!(destination_of_socket("192.0.2.1:53".parse().unwrap()).is_err());
        });
    }

    #[test]
    fn bad_lists_have_no_address() {
        let local = "127.0.0.1:53".parse().unwrap();
        for list in
            ["", "  sl  local_address rem_address", " 1: 0100007F:0035", " 1: 0100007F:0035 x:1", "a b:c d:e"]
        {
            assert_eq!(remote_of(local, list), None, "{list}");
        }
    }
}
