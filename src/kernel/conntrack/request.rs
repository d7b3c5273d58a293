//! Requests to ctnetlink.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::attribute::{ip, protocol, root, tcp, tuple};
use super::entry::{Entry, Status, TCP_BE_LIBERAL, TcpState, Tuple, Zone};
use super::{Kind, family_number, number_of};
use crate::kernel::netlink::Message;
use crate::model::{Family, Transport};

/// One side has begun to close the connection: a SYN on an entry that is closed deletes it. Without this, as
/// after a reset by the server, the SYN follows the entry for 10 s. `IP_CT_TCP_FLAG_CLOSE_INIT` of
/// linux/netfilter/nf_conntrack_tcp.h, which the kernel reads for nothing else.
const TCP_CLOSE_INIT: u8 = 4;
/// `IP_CT_TCP_FLAG_MAXACK_SET`: the last acknowledged number is known, which a reset has to have to end the
/// connection.
const TCP_MAXACK_SET: u8 = 0x20;
/// `IPS_DST_NAT` of linux/netfilter/nf_conntrack_common.h.
const TRANSLATED: u32 = Status::DESTINATION_TRANSLATED;

/// Which entries are listed, of both families and all zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// All of TCP and UDP.
    All,
    /// Entries of TCP whose destination is translated.
    TranslatedTcp,
    /// Entries of TCP with this mark.
    MarkedTcp(u32),
}

impl Filter {
    /// Whether `entry` is listed. The kernel does not filter by protocol for both families at once, and by
    /// status only since 5.15.
    pub(super) fn admits(self, entry: &Entry) -> bool {
        let is_tcp = entry.transport == Transport::Tcp;
        match self {
            Self::All => true,
            Self::TranslatedTcp => is_tcp && entry.status.destination_translated(),
            Self::MarkedTcp(mark) => is_tcp && entry.mark == mark,
        }
    }

    /// What the kernel leaves out costs nothing: each entry that it lists takes a microsecond, of a pod's DNS
    /// queries for instance.
    pub(super) fn dump(self) -> Message {
        let mut message = Message::new(Kind::Get.number(), 0, &[0; 4]);
        match self {
            Self::All => {}
            Self::TranslatedTcp => {
                message.push_be32(root::STATUS, TRANSLATED);
                message.push_be32(root::STATUS_MASK, TRANSLATED);
            }
            Self::MarkedTcp(mark) => push_mark(&mut message, mark),
        }
        message
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::TranslatedTcp => f.write_str("TCP with a translated destination"),
            Self::MarkedTcp(mark) => write!(f, "TCP with mark {mark}"),
        }
    }
}

fn push_mark(message: &mut Message, mark: u32) {
    message.push_be32(root::MARK, mark);
    message.push_be32(root::MARK_MASK, u32::MAX);
}

/// An entry to be made, for a TCP connection that is established and was not tracked so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The packets of the side that began; the replies are expected in the opposite direction.
    pub original: Tuple,
    /// How far the connection is.
    pub state: TcpState,
    /// After which time without packets the entry ends.
    pub timeout: Duration,
}

pub(super) fn create(new: &NewEntry) -> Message {
    let NewEntry { original, state, timeout } = new;
    let mut message = about(Kind::New, CREATE, Transport::Tcp, original, Zone::Both(0));
    let seconds = u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX);
    complete(&mut message, Transport::Tcp, &original.reversed(), Status::ESTABLISHED, seconds);
    message.nested(root::PROTOCOL_INFO, |inner| {
        inner.nested(tcp::INFO, |inner| {
            inner.push(tcp::STATE, &[state.number()]);
            inner.push(tcp::FLAGS_ORIGINAL, &[TCP_BE_LIBERAL | TCP_CLOSE_INIT; 2]);
            inner.push(tcp::FLAGS_REPLY, &[TCP_BE_LIBERAL; 2]);
        });
    });
    message
}

/// See [`super::Change::DeleteOnSyn`]. Either direction would do; the kernel clears the one of a side that
/// sends a SYN.
pub(super) fn delete_on_syn(entry: &Entry) -> Message {
    let mut message = existing(Kind::New, entry);
    message.nested(root::PROTOCOL_INFO, |inner| {
        inner.nested(tcp::INFO, |inner| {
            inner.push(tcp::FLAGS_ORIGINAL, &[TCP_CLOSE_INIT; 2]);
            inner.push(tcp::FLAGS_REPLY, &[TCP_CLOSE_INIT; 2]);
        });
    });
    message
}

/// See [`super::Change::Resume`].
pub(super) fn resume(entry: &Entry, closing: bool, seen_reply: bool) -> Message {
    let mut message = existing(Kind::New, entry);
    if seen_reply {
        // The kernel refuses to clear a bit.
        message.push_be32(root::STATUS, entry.status.0 | Status::ESTABLISHED.0);
    }
    message.nested(root::PROTOCOL_INFO, |inner| {
        inner.nested(tcp::INFO, |inner| {
            if closing {
                inner.push(tcp::STATE, &[TcpState::TimeWait.number()]);
            }
            // The flags, and which of them are set or cleared.
            for direction in [tcp::FLAGS_ORIGINAL, tcp::FLAGS_REPLY] {
                inner.push(direction, &[TCP_CLOSE_INIT, TCP_CLOSE_INIT | TCP_MAXACK_SET]);
            }
        });
    });
    message
}

/// Deletes this entry, and no other that took its place meanwhile.
pub(super) fn delete(entry: &Entry) -> Message {
    let mut message = existing(Kind::Delete, entry);
    if let Some(id) = entry.id {
        message.push_be32(root::ID, id);
    }
    message
}

/// The entry with this one's original tuple.
pub(super) fn find(entry: &Entry) -> Message {
    existing(Kind::Get, entry)
}

/// Without the attributes of NAT, which the kernel refuses on a translated entry with `EOPNOTSUPP`.
pub(super) fn set_mark(entry: &Entry, mark: u32) -> Message {
    let mut message = existing(Kind::New, entry);
    push_mark(&mut message, mark);
    message
}

/// How long replies to earlier queries come in. Meanwhile Linux 6.18 refuses queries from the same port that
/// are not captured.
const REPLIES_SECONDS: u32 = 2;

/// An entry for the replies to the queries of an untranslated UDP entry. Its own replies would go to port 0,
/// so that no query follows it.
pub(super) fn replies(entry: &Entry) -> Message {
    let mut reply = entry.original;
    let mut message = about(Kind::New, CREATE, entry.transport, &reply.reversed(), entry.zone);
    reply.destination.set_port(0);
    complete(&mut message, entry.transport, &reply, Status::ESTABLISHED_FOR_A_WHILE, REPLIES_SECONDS);
    message
}

/// The tuple of a note: no packet has such addresses, and no rule of ours uses its zone.
const NOTE: Tuple = Tuple {
    source: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 53),
    destination: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 53),
};
const NOTE_ZONE: Zone = Zone::Both(u16::MAX);
/// Lifetime of a note: longer than the time to the next run.
const NOTE_SECONDS: u32 = 24 * 60 * 60;

fn about_note(kind: Kind, flags: libc::c_int) -> Message {
    about(kind, flags, Transport::Udp, &NOTE, NOTE_ZONE)
}

pub(super) fn note(number: u32) -> Message {
    let mut message = about_note(Kind::New, CREATE);
    complete(&mut message, Transport::Udp, &NOTE.reversed(), Status::ESTABLISHED, NOTE_SECONDS);
    message.push_be32(root::MARK, number);
    message
}

pub(super) fn find_note() -> Message {
    about_note(Kind::Get, 0)
}

pub(super) fn delete_note() -> Message {
    about_note(Kind::Delete, 0)
}

/// How many entries the namespace has.
pub(super) fn stats() -> Message {
    Message::new(Kind::GetStats.number(), 0, &[0; 4])
}

/// A message about an entry that exists.
fn existing(kind: Kind, entry: &Entry) -> Message {
    about(kind, 0, entry.transport, &entry.original, entry.zone)
}

/// The flags of a message that makes an entry and changes none.
const CREATE: libc::c_int = libc::NLM_F_CREATE | libc::NLM_F_EXCL;

/// A message about an entry, which has this original tuple within its zone.
fn about(kind: Kind, flags: libc::c_int, transport: Transport, original: &Tuple, zone: Zone) -> Message {
    let flags = u16::try_from(flags).unwrap_or(0);
    let mut message = Message::new(kind.number(), flags, &[family_number(family_of(original)), 0, 0, 0]);
    let (within, whole) = match zone {
        Zone::Both(0) | Zone::Reply(_) => (None, None),
        Zone::Both(zone) => (None, Some(zone)),
        Zone::Original(zone) => (Some(zone), None),
    };
    push_tuple(&mut message, root::TUPLE_ORIGINAL, transport, original, within);
    if let Some(zone) = whole {
        message.push(root::ZONE, &zone.to_be_bytes());
    }
    message
}

/// The rest of an entry that is made. Without CONFIRMED the kernel refuses the other bits of the status with
/// EBUSY.
fn complete(message: &mut Message, transport: Transport, reply: &Tuple, status: Status, seconds: u32) {
    push_tuple(message, root::TUPLE_REPLY, transport, reply, None);
    message.push_be32(root::STATUS, status.0);
    message.push_be32(root::TIMEOUT, seconds);
}

fn push_tuple(message: &mut Message, kind: u16, transport: Transport, packets: &Tuple, zone: Option<u16>) {
    let Tuple { source, destination } = packets;
    message.nested(kind, |inner| {
        inner.nested(tuple::IP, |inner| {
            push_address(inner, source.ip(), ip::V4_SOURCE, ip::V6_SOURCE);
            push_address(inner, destination.ip(), ip::V4_DESTINATION, ip::V6_DESTINATION);
        });
        inner.nested(tuple::PROTOCOL, |inner| {
            inner.push(protocol::NUMBER, &[number_of(transport)]);
            inner.push(protocol::SOURCE_PORT, &source.port().to_be_bytes());
            inner.push(protocol::DESTINATION_PORT, &destination.port().to_be_bytes());
        });
        if let Some(zone) = zone {
            inner.push(tuple::ZONE, &zone.to_be_bytes());
        }
    });
}

fn push_address(message: &mut Message, address: IpAddr, v4: u16, v6: u16) {
    match address {
        IpAddr::V4(address) => message.push(v4, &address.octets()),
        IpAddr::V6(address) => message.push(v6, &address.octets()),
    }
}

const fn family_of(tuple: &Tuple) -> Family {
    if tuple.source.is_ipv4() { Family::V4 } else { Family::V6 }
}
