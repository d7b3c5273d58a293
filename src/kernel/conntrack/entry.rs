//! Entries of the connection tracking table, and how they are read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::attribute::{ip, protocol, root, tcp, tuple};
use crate::kernel::netlink::{Attributes, Reply};
use crate::model::{Family, Transport};

/// The window of a connection is not checked: its sequence numbers are not known.
pub(super) const TCP_BE_LIBERAL: u8 = 8;

/// The TCP states of connection tracking; the numbers are those of linux/netfilter/nf_conntrack_tcp.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpState {
    /// No packet was seen yet.
    None,
    /// A SYN was seen.
    SynSent,
    /// A SYN and its reply were seen.
    SynReceived,
    /// Data flows.
    Established,
    /// One side has closed.
    FinWait,
    /// One side has closed, and the other knows.
    CloseWait,
    /// Each side has closed, the last acknowledgement is missing.
    LastAck,
    /// Each side has closed.
    TimeWait,
    /// A reset was seen.
    Close,
    /// A SYN was seen from both sides.
    SynSentByBoth,
    /// A number that this list does not have.
    Other(u8),
}

impl TcpState {
    const fn of(number: u8) -> Self {
        match number {
            0 => Self::None,
            1 => Self::SynSent,
            2 => Self::SynReceived,
            3 => Self::Established,
            4 => Self::FinWait,
            5 => Self::CloseWait,
            6 => Self::LastAck,
            7 => Self::TimeWait,
            8 => Self::Close,
            9 => Self::SynSentByBoth,
            other => Self::Other(other),
        }
    }

    pub(super) const fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::SynSent => 1,
            Self::SynReceived => 2,
            Self::Established => 3,
            Self::FinWait => 4,
            Self::CloseWait => 5,
            Self::LastAck => 6,
            Self::TimeWait => 7,
            Self::Close => 8,
            Self::SynSentByBoth => 9,
            Self::Other(number) => number,
        }
    }
}

/// The status bits of an entry, `IPS_*` in linux/netfilter/nf_conntrack_common.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u32);

impl Status {
    /// `IPS_SEEN_REPLY`, `IPS_ASSURED` and `IPS_CONFIRMED`: what an established connection has.
    pub const ESTABLISHED: Self = Self(2 | 4 | 8);
    /// The bits of [`Self::ESTABLISHED`] and `IPS_FIXED_TIMEOUT`: no packet prolongs the entry.
    pub(super) const ESTABLISHED_FOR_A_WHILE: Self = Self(Self::ESTABLISHED.0 | Self::FIXED_TIMEOUT);
    /// `IPS_FIXED_TIMEOUT`.
    const FIXED_TIMEOUT: u32 = 0x400;
    const SOURCE_TRANSLATED: u32 = 0x10;
    pub(super) const DESTINATION_TRANSLATED: u32 = 0x20;

    /// Whether source or destination is translated.
    #[must_use]
    pub const fn is_translated(self) -> bool {
        self.source_translated() || self.destination_translated()
    }

    /// Whether the source is translated (`SNAT`, `MASQUERADE`).
    #[must_use]
    pub const fn source_translated(self) -> bool {
        self.0 & Self::SOURCE_TRANSLATED != 0
    }

    /// Whether the destination is translated (`DNAT`, `REDIRECT`).
    #[must_use]
    pub const fn destination_translated(self) -> bool {
        self.0 & Self::DESTINATION_TRANSLATED != 0
    }
}

/// Addresses and ports of the packets in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tuple {
    /// Where they come from.
    pub source: SocketAddr,
    /// Where they go.
    pub destination: SocketAddr,
}

impl Tuple {
    /// The opposite direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self { source: self.destination, destination: self.source }
    }
}

/// The zone of an entry: entries of different zones know nothing of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zone {
    /// One zone for both directions; 0 unless a rule sets one.
    Both(u16),
    /// A zone for the original direction only.
    Original(u16),
    /// A zone for the reply direction only.
    Reply(u16),
}

/// An entry of the connection tracking table, for TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address family of the entry.
    pub family: Family,
    /// TCP or UDP.
    pub transport: Transport,
    /// The packets of the side that began, before any translation.
    pub original: Tuple,
    /// The packets that are expected in reply.
    pub reply: Tuple,
    /// The zone of the entry.
    pub zone: Zone,
    /// The connection's mark; 0 if it has none, or if the kernel knows no marks.
    pub mark: u32,
    /// What happened to it so far.
    pub status: Status,
    /// The state of the connection, for TCP.
    pub tcp_state: Option<TcpState>,
    /// Whether the first packet that was seen of a TCP connection was not a SYN: the entry may be the wrong
    /// way round. Entries that are made over ctnetlink are like that too.
    pub picked_up: bool,
    /// The kernel's number of this entry; another entry with the same tuples has another one.
    pub id: Option<u32>,
}

impl Entry {
    /// Whether a packet that begins a connection made it: neither a later one of a connection that is older
    /// than tracking, nor a program over ctnetlink.
    #[must_use]
    pub const fn is_of_first_packet(&self) -> bool {
        !self.picked_up && self.status.0 & Status::FIXED_TIMEOUT == 0
    }

    /// Reads the entry in a message; `None` if it is incomplete, or neither TCP nor UDP.
    #[must_use]
    pub fn read(reply: &Reply<'_>) -> Option<Self> {
        let family = super::family_of(reply.byte(0))?;
        let attributes = reply.attributes(super::NFGENMSG);
        let original = Side::read(family, attributes.of(root::TUPLE_ORIGINAL)?.nested())?;
        let reply = Side::read(family, attributes.of(root::TUPLE_REPLY)?.nested())?;
        let number = |kind| attributes.of(kind).and_then(|attribute| attribute.be32());
        let zone = attributes.of(root::ZONE).and_then(|zone| zone.be16());
        let protocol = attributes.of(root::PROTOCOL_INFO).and_then(|info| info.nested().of(tcp::INFO));
        let of_protocol = |kind| protocol.as_ref().and_then(|info| info.nested().of(kind));
        let state = || of_protocol(tcp::STATE)?.byte().map(TcpState::of);
        let flags = of_protocol(tcp::FLAGS_ORIGINAL).and_then(|flags| flags.payload.first().copied());
        Some(Self {
            family,
            transport: original.transport,
            original: original.tuple,
            reply: reply.tuple,
            zone: match (zone, original.zone, reply.zone) {
                (None, Some(zone), _) => Zone::Original(zone),
                (None, None, Some(zone)) => Zone::Reply(zone),
                (zone, _, _) => Zone::Both(zone.unwrap_or(0)),
            },
            mark: number(root::MARK).unwrap_or(0),
            status: Status(number(root::STATUS)?),
            tcp_state: match original.transport {
                Transport::Tcp => state(),
                Transport::Udp => None,
            },
            picked_up: flags.is_some_and(|flags| flags & TCP_BE_LIBERAL != 0),
            id: number(root::ID),
        })
    }
}

/// One direction of an entry.
struct Side {
    transport: Transport,
    tuple: Tuple,
    zone: Option<u16>,
}

impl Side {
    fn read(family: Family, attributes: Attributes<'_>) -> Option<Self> {
        let addresses = attributes.of(tuple::IP)?.nested();
        let (source, destination) = match family {
            Family::V4 => (v4(addresses, ip::V4_SOURCE)?, v4(addresses, ip::V4_DESTINATION)?),
            Family::V6 => (v6(addresses, ip::V6_SOURCE)?, v6(addresses, ip::V6_DESTINATION)?),
        };
        let ports = attributes.of(tuple::PROTOCOL)?.nested();
        let transport = super::transport_of(ports.of(protocol::NUMBER)?.byte()?)?;
        let port = |kind| ports.of(kind).and_then(|port| port.be16());
        Some(Self {
            transport,
            tuple: Tuple {
                source: SocketAddr::new(source, port(protocol::SOURCE_PORT)?),
                destination: SocketAddr::new(destination, port(protocol::DESTINATION_PORT)?),
            },
            zone: attributes.of(tuple::ZONE).and_then(|zone| zone.be16()),
        })
    }
}

fn v4(addresses: Attributes<'_>, kind: u16) -> Option<IpAddr> {
    let bytes: [u8; 4] = *addresses.of(kind)?.payload.first_chunk()?;
    Some(Ipv4Addr::from(bytes).into())
}

fn v6(addresses: Attributes<'_>, kind: u16) -> Option<IpAddr> {
    let bytes: [u8; 16] = *addresses.of(kind)?.payload.first_chunk()?;
    Some(Ipv6Addr::from(bytes).into())
}
