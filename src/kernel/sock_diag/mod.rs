//! The TCP and UDP sockets of a network namespace, over sock_diag. Takes no privilege.

mod lookup;
mod opener;

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

pub use lookup::SocketLookup;

use super::netlink::{Message, Protocol, Reply, Socket};
use super::{procfs, recording};
use crate::model::Family;
use crate::ordered::Ordered as _;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `TCPDIAG_GETSOCK`, the older request: the only one that lists TCP sockets of both families in one walk of
/// the kernel's table.
const TCP_OF_BOTH_FAMILIES: u16 = 18;
/// Length of `struct inet_diag_req_v2`.
const REQUEST: usize = 56;
/// Length of the `struct inet_diag_sockid` in both requests.
const SOCKET_ID: usize = 48;
/// Length of `struct inet_diag_msg`.
const REPLY: usize = 72;
/// `INET_DIAG_INFO`: `struct tcp_info`.
const TCP_INFO: u16 = 2;
/// `INET_DIAG_SOCKOPT`: `struct inet_diag_sockopt`, one bit for each of some socket options.
const SOCKET_OPTIONS: u16 = 22;
/// `INET_DIAG_SKV6ONLY`: one byte, for listeners of IPv6 and unconnected sockets of UDP.
const V6_ONLY: u16 = 11;
/// `INET_DIAG_ULP_INFO`: the protocol above TCP, by its name.
const UPPER_PROTOCOL: u16 = 19;
/// `INET_ULP_INFO_NAME`.
const UPPER_PROTOCOL_NAME: u16 = 1;
/// The name of MPTCP, as a C string.
const MPTCP: &[u8] = b"mptcp\0";
/// `IP_TRANSPARENT` in its first byte.
const TRANSPARENT: u8 = if cfg!(target_endian = "little") { 1 << 5 } else { 1 << 2 };

/// The state of a TCP socket; the numbers are those of the kernel's net/tcp_states.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Data flows.
    Established = 1,
    /// Connecting.
    SynSent = 2,
    /// Being connected to.
    SynReceived = 3,
    /// Closed by us.
    FinWait1 = 4,
    /// Closed by us, which the peer knows.
    FinWait2 = 5,
    /// Closed by both.
    TimeWait = 6,
    /// Not connected.
    Close = 7,
    /// Closed by the peer.
    CloseWait = 8,
    /// Closed by the peer, then by us.
    LastAck = 9,
    /// Waits for connections.
    Listen = 10,
    /// Closed by both at once.
    Closing = 11,
    /// A connection request that waits for its acknowledgement.
    NewSynReceived = 12,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 12] = [
        Self::Established,
        Self::SynSent,
        Self::SynReceived,
        Self::FinWait1,
        Self::FinWait2,
        Self::TimeWait,
        Self::Close,
        Self::CloseWait,
        Self::LastAck,
        Self::Listen,
        Self::Closing,
        Self::NewSynReceived,
    ];

    /// The states of a connection over which packets still go.
    pub const CONNECTED: [Self; 6] =
        [Self::Established, Self::FinWait1, Self::FinWait2, Self::CloseWait, Self::LastAck, Self::Closing];

    /// The states in which the handshake is under way.
    pub const HALF_OPEN: [Self; 3] = [Self::SynSent, Self::SynReceived, Self::NewSynReceived];

    fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == number)
    }

    const fn bit(self) -> u32 {
        1 << self as u8
    }
}

/// A TCP socket, or one of UDP: that has the state [`State::Close`] unless it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InetSocket {
    /// The state of the socket.
    pub state: State,
    /// The socket's own address; an IPv4 address in an IPv6 socket is an IPv4 address here.
    pub local: SocketAddr,
    /// The peer's address; unspecified for a listener.
    pub remote: SocketAddr,
    /// The user that made it.
    pub uid: u32,
    /// The socket's inode number, by which the files of processes name it; 0 without a file.
    pub inode: u32,
    /// Whether it has `IP_TRANSPARENT`; `None` if the kernel does not say.
    pub is_transparent: Option<bool>,
    /// The number of the interface that it is bound to (`SO_BINDTODEVICE`, or a link-local address).
    pub device: Option<u32>,
    /// Whether it has `IPV6_V6ONLY`: one on `::` then takes no IPv4 packet.
    pub is_v6_only: bool,
    /// Whether it belongs to a socket of MPTCP; asked for of listeners only.
    pub is_mptcp: bool,
    /// Whether it is a listener with as many connections waiting as it may have: the kernel drops SYNs.
    pub is_full: bool,
    /// Whether it began its connection; `None` if that is not known, or was not asked for.
    pub began: Option<bool>,
}

/// The TCP sockets in one of `states`, of both families, in the current thread's network namespace. A family
/// that the kernel does not have has none.
///
/// # Errors
/// The kernel refuses; `ENOENT` without the module `tcp_diag`.
pub fn tcp_sockets(states: &[State]) -> io::Result<Vec<InetSocket>> {
    sockets(libc::IPPROTO_TCP, states)
}

/// The TCP sockets in one of `states`, with the side that began each connection. It costs the kernel more
/// than [`tcp_sockets`], and is not recorded.
///
/// # Errors
/// As for [`tcp_sockets`].
pub fn tcp_connections(states: &[State]) -> io::Result<Vec<InetSocket>> {
    listed(libc::IPPROTO_TCP, states, 1 << (TCP_INFO - 1))
}

/// The UDP sockets that are bound and not connected, as [`tcp_sockets`] has those of TCP.
///
/// # Errors
/// The kernel refuses; `ENOENT` without the module `udp_diag`.
pub fn udp_listeners() -> io::Result<Vec<InetSocket>> {
    sockets(libc::IPPROTO_UDP, &[State::Close])
}

/// The UDP sockets, connected or not. They are not recorded.
///
/// # Errors
/// As for [`udp_listeners`].
pub fn udp_sockets() -> io::Result<Vec<InetSocket>> {
    listed(libc::IPPROTO_UDP, &[State::Established, State::Close], 0)
}

fn sockets(protocol: libc::c_int, states: &[State]) -> io::Result<Vec<InetSocket>> {
    // With it comes the protocol above TCP. Listeners are few.
    let extensions = if states == [State::Listen] { 1 << (TCP_INFO - 1) } else { 0 };
    if recording::is_off() {
        return listed(protocol, states, extensions);
    }
    let name = format!("sockets of protocol {protocol} in states {:#x}", bits(states));
    let text = recording::text(&name, &mut || {
        Ok(listed(protocol, states, extensions)?.iter().map(InetSocket::line).collect())
    })?;
    Ok(text.lines().filter_map(InetSocket::of_line).collect())
}

/// Sockets of IPv4 first.
fn listed(protocol: libc::c_int, states: &[State], extensions: u8) -> io::Result<Vec<InetSocket>> {
    let requests = if protocol == libc::IPPROTO_TCP {
        // The table is that of all namespaces: each walk takes the kernel some 0.2 to 0.5 ms.
        vec![tcp_request(states, extensions)]
    } else {
        [libc::AF_INET, libc::AF_INET6]
            .map(|family| request(family, protocol, states, &[], extensions))
            .into()
    };
    let mut socket = Socket::open(Protocol::SockDiag)?;
    let mut sockets = Vec::new();
    for request in requests {
        sockets.extend(socket.dump(&request, |list: &mut Vec<(u8, InetSocket)>, reply| {
            list.extend(InetSocket::read(reply).map(|socket| (reply.byte(0), socket)));
        })?);
    }
    let (v4, v6): (Vec<_>, Vec<_>) =
        sockets.into_iter().partition(|(family, _)| i32::from(*family) == libc::AF_INET);
    Ok(v4.into_iter().chain(v6).map(|(_, socket)| socket).collect())
}

/// The families of which the current thread's network namespace has a TCP socket, in whatever state. A
/// listener on `::` counts for both.
///
/// # Errors
/// The kernel refuses, and `/proc` does not have it.
pub fn families_in_use() -> io::Result<BTreeSet<Family>> {
    // A list walks the table of all namespaces.
    if counted_in_proc() == Some(0) {
        return Ok(BTreeSet::new());
    }
    match tcp_sockets(&State::ALL) {
        Ok(sockets) => Ok(sockets.iter().flat_map(InetSocket::families).copied().into_set()),
        Err(error) => listed_in_proc().map_err(|_| error),
    }
}

/// Whether the current thread's network namespace has a UDP socket that is bound or connected; `None` if
/// `/proc` does not say.
#[must_use]
pub fn is_udp_in_use() -> Option<bool> {
    let Counts { v4, v6 } = Counts::read()?;
    Some(v4.of("UDP:", "inuse")? + v6.map_or(Some(0), |v6| v6.of("UDP6:", "inuse"))? > 0)
}

/// The number of TCP sockets of both families, those in TIME_WAIT too; `None` if `/proc` does not have it.
fn counted_in_proc() -> Option<usize> {
    let Counts { v4, v6 } = Counts::read()?;
    let v6 = v6.map_or(Some(0), |v6| v6.of("TCP6:", "inuse"))?;
    Some(v4.of("TCP:", "inuse")? + v4.of("TCP:", "tw")? + v6)
}

/// The numbers of sockets in `/proc/net/sockstat` and, if the kernel has IPv6, `sockstat6`.
struct Counts {
    v4: Lines,
    v6: Option<Lines>,
}

/// Each line has a title, then names, each with its number.
struct Lines(String);

impl Counts {
    fn read() -> Option<Self> {
        let v4 = Lines(procfs::read_own("net/sockstat").ok()?);
        let v6 = procfs::read_own_if_present("net/sockstat6").ok()?.map(Lines);
        Some(Self { v4, v6 })
    }
}

impl Lines {
    fn of(&self, title: &str, name: &str) -> Option<usize> {
        let mut words = self.0.lines().find_map(|line| line.strip_prefix(title))?.split_whitespace();
        words.find(|word| *word == name)?;
        words.next()?.parse().ok()
    }
}

/// The families of TCP sockets, where the kernel has no sock_diag: the files have a title, then a line for
/// each socket.
fn listed_in_proc() -> io::Result<BTreeSet<Family>> {
    let mut families = BTreeSet::new();
    if procfs::read_own("net/tcp")?.lines().count() > 1 {
        families.insert(Family::V4);
    }
    let v6 = procfs::read_own_if_present("net/tcp6")?;
    if v6.is_some_and(|list| list.lines().count() > 1) {
        families.extend(Family::ALL);
    }
    Ok(families)
}

impl InetSocket {
    /// The families of its packets.
    #[must_use]
    pub fn families(&self) -> &'static [Family] {
        match self.local.ip() {
            IpAddr::V4(_) => &[Family::V4],
            IpAddr::V6(address) if address.is_unspecified() && !self.is_v6_only => &Family::ALL,
            IpAddr::V6(_) => &[Family::V6],
        }
    }

    fn line(&self) -> String {
        let Self {
            state,
            local,
            remote,
            uid,
            inode,
            is_transparent,
            device,
            is_v6_only,
            is_mptcp,
            is_full,
            began: _,
        } = self;
        let word = |known: Option<String>| known.unwrap_or_else(|| "-".to_owned());
        let v6_only = if *is_v6_only { "v6only" } else { "-" };
        let [transparent, device] =
            [is_transparent.map(|is| is.to_string()), device.map(|device| device.to_string())].map(word);
        let mptcp = if *is_mptcp { "mptcp" } else { "-" };
        let full = if *is_full { "full" } else { "-" };
        let options = format!(" {transparent} {device} {v6_only} {mptcp} {full}");
        let options = options.trim_end_matches(" -");
        format!("{} {local} {remote} {uid} {inode}{options}\n", *state as u8)
    }

    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(Self {
            state: State::of(words.next()?.parse().ok()?)?,
            local: words.next()?.parse().ok()?,
            remote: words.next()?.parse().ok()?,
            uid: words.next()?.parse().ok()?,
            inode: words.next()?.parse().ok()?,
            is_transparent: words.next().and_then(|word| word.parse().ok()),
            device: words.next().and_then(|word| word.parse().ok()),
            is_v6_only: words.next() == Some("v6only"),
            is_mptcp: words.next() == Some("mptcp"),
            is_full: words.next() == Some("full"),
            began: None,
        })
    }

    /// Reads the socket in a message; `None` if it is incomplete.
    #[must_use]
    pub fn read(reply: &Reply<'_>) -> Option<Self> {
        if ![SOCK_DIAG_BY_FAMILY, TCP_OF_BOTH_FAMILIES].contains(&reply.kind) || reply.body.len() < REPLY {
            return None;
        }
        let family = i32::from(reply.byte(0));
        let port = |at: usize| u16::from_be_bytes([reply.byte(at), reply.byte(at + 1)]);
        let address = |at: usize| -> Option<IpAddr> {
            let bytes: [u8; 16] = *reply.body.get(at..)?.first_chunk()?;
            let [a, b, c, d, ..] = bytes;
            match family {
                libc::AF_INET => Some([a, b, c, d].into()),
                libc::AF_INET6 => Some(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()),
                _ => None,
            }
        };
        let state = State::of(reply.byte(1))?;
        let info = reply.attributes(REPLY).of(TCP_INFO).map(|info| info.payload);
        Some(Self {
            state,
            local: SocketAddr::new(address(8)?, port(4)),
            remote: SocketAddr::new(address(24)?, port(6)),
            uid: reply.word(64),
            inode: reply.word(68),
            is_transparent: reply
                .attributes(REPLY)
                .find(|attribute| attribute.kind == SOCKET_OPTIONS)
                .and_then(|options| Some(options.payload.first()? & TRANSPARENT != 0)),
            device: Some(reply.word(40)).filter(|device| *device != 0),
            is_v6_only: reply
                .attributes(REPLY)
                .of(V6_ONLY)
                .is_some_and(|option| option.payload.first().is_some_and(|is| *is != 0)),
            is_mptcp: reply
                .attributes(REPLY)
                .of(UPPER_PROTOCOL)
                .and_then(|upper| upper.nested().of(UPPER_PROTOCOL_NAME))
                .is_some_and(|name| name.payload == MPTCP),
            is_full: state == State::Listen && reply.word(56) > reply.word(60),
            began: opener::began(state, info),
        })
    }
}

/// For all sockets, or with a `struct inet_diag_sockid` for one; `extensions` has a bit for each attribute
/// that is asked for.
fn request(
    family: libc::c_int,
    protocol: libc::c_int,
    states: &[State],
    id: &[u8],
    extensions: u8,
) -> Message {
    Message::new(SOCK_DIAG_BY_FAMILY, 0, &header(family, protocol, states, id, extensions))
}

/// A `struct inet_diag_req_v2`.
fn header(
    family: libc::c_int,
    protocol: libc::c_int,
    states: &[State],
    id: &[u8],
    extensions: u8,
) -> Vec<u8> {
    let [family, protocol] = [family, protocol].map(|number| u8::try_from(number).unwrap_or(0));
    let mut header = Vec::with_capacity(REQUEST);
    header.extend([family, protocol, extensions, 0]);
    header.extend(bits(states).to_ne_bytes());
    header.extend(id);
    header.resize(REQUEST, 0);
    header
}

/// A `struct inet_diag_req`, for all TCP sockets. The kernel does not look at its family, and lists both.
fn tcp_request(states: &[State], extensions: u8) -> Message {
    let mut header = vec![0, 0, 0, extensions];
    header.extend([0; SOCKET_ID]);
    header.extend(bits(states).to_ne_bytes());
    header.extend([0; size_of::<u32>()]);
    Message::new(TCP_OF_BOTH_FAMILIES, 0, &header)
}

fn bits(states: &[State]) -> u32 {
    states.iter().fold(0, |bits, state| bits | state.bit())
}

#[cfg(test)]
mod tests;
