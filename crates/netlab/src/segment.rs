//! Hand-made TCP segments, such as connection tracking calls INVALID.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto, setsockopt,
    socket as nix_socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::socket;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
/// How long a host may take to reply to the marker, which it always does.
const LIMIT: Duration = Duration::from_secs(60);

/// Sends a lone FIN, which belongs to no connection and carries flags that no connection has: conntrack calls
/// it INVALID. A host that gets it replies with RST; true if it did.
///
/// A SYN from the next port follows as a marker: the reply to it shows that the one to the FIN would have
/// arrived. Must run as root, on a thread of its own.
pub fn stray_fin_is_reset(from: SocketAddr, to: SocketAddr) -> io::Result<bool> {
    // Packets of one processor keep their order.
    socket::pin_to_current_cpu()?;
    let fd = socket::raw_tcp(to.ip())?;
    setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::milliseconds(50))?;
    let marker = SocketAddr::new(from.ip(), from.port() + 1);
    for (source, flags) in [(from, FIN), (marker, SYN)] {
        let target = SockaddrStorage::from(SocketAddr::new(to.ip(), 0));
        sendto(fd.as_raw_fd(), &segment(source, to, flags), &target, MsgFlags::empty())?;
    }
    let end = Instant::now() + LIMIT;
    let mut is_reset = false;
    while Instant::now() < end {
        match next_reply(&fd, to) {
            Some((port, flags)) if port == from.port() && flags & RST != 0 => is_reset = true,
            Some((port, _)) if port == marker.port() => return Ok(is_reset),
            Some(_) | None => {}
        }
    }
    Err(io::Error::other("the marker got no reply"))
}

/// Sends a SYN over IPv4 with these ends, whichever addresses they have, to the host with the address `by`.
/// Must run as root.
pub fn send_syn(from: SocketAddrV4, to: SocketAddrV4, by: Ipv4Addr) -> io::Result<()> {
    let fd = nix_socket(AddressFamily::Inet, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::Raw)?;
    // The kernel fills in lengths and the checksum.
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0];
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(segment(from.into(), to.into(), SYN));
    sendto(fd.as_raw_fd(), &packet, &SockaddrStorage::from(SocketAddrV4::new(by, 0)), MsgFlags::empty())?;
    Ok(())
}

/// The next segment that `from` sends: its destination port and its flags.
fn next_reply(fd: &OwnedFd, from: SocketAddr) -> Option<(u16, u8)> {
    let mut buffer = [0; 256];
    let length = recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()).ok()?;
    // Raw IPv4 sockets hand over the IP header, IPv6 ones do not.
    let header = if from.is_ipv4() { usize::from(buffer[0] & 0x0f) * 4 } else { 0 };
    let tcp = &buffer[header..length];
    let (source, destination) = (u16::from_be_bytes([tcp[0], tcp[1]]), u16::from_be_bytes([tcp[2], tcp[3]]));
    (source == from.port()).then_some((destination, tcp[13]))
}

fn segment(from: SocketAddr, to: SocketAddr, flags: u8) -> Vec<u8> {
    let mut segment = Vec::with_capacity(20);
    segment.extend(from.port().to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    segment.extend(1000u32.to_be_bytes()); // sequence number
    segment.extend(0u32.to_be_bytes()); // acknowledgement
    segment.extend([5 << 4, flags, 0x10, 0]); // header length in words, flags, window
    segment.extend([0; 4]); // checksum and urgent pointer
    let checksum = checksum(from.ip(), to.ip(), &segment);
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    segment
}

/// The Internet checksum over the pseudo header and the segment.
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let mut bytes = Vec::new();
    for address in [from, to] {
        match address {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
    }
    bytes.extend([0, 6]); // protocol TCP
    bytes.extend(u16::try_from(segment.len()).unwrap().to_be_bytes());
    bytes.extend(segment);
    let sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
}
