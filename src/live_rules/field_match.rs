//! Tests of a rule, each a field of a packet and the values with which it holds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::{Family, Interface};

/// The first and the last of some numbers.
pub type Range = (u128, u128);

/// The field of a match. Each value is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// The protocol's number.
    Protocol,
    /// The address, as a number.
    Source,
    /// The destination address, as a number.
    Destination,
    /// Of TCP and UDP.
    SourcePort,
    /// The destination port, of TCP and UDP.
    DestinationPort,
    /// The source port or the destination port.
    EitherPort,
    /// By [`name_number`]; 0 for none.
    InInterface,
    /// The outgoing interface, by [`name_number`]; 0 for none.
    OutInterface,
    /// The socket's user; [`NO_SOCKET`] without one.
    Uid,
    /// The socket's group; [`NO_SOCKET`] without one.
    Gid,
    /// 1 if it has a socket.
    Socket,
    /// The packet's.
    Mark,
    /// The connection's.
    Connmark,
    /// One of the constants [`NEW`] to [`SNAT`]. A connection has several of them if its addresses are
    /// translated.
    State,
    /// A property of the connection; whether the same extension tests the state, too: without a connection
    /// that alone decides.
    Connection(Part, bool),
    /// The flags of TCP.
    TcpFlags,
    /// One of the constants [`UNICAST`] to [`MULTICAST`].
    SourceType(Limit),
    /// The type of the destination: one of the constants [`UNICAST`] to [`MULTICAST`].
    DestinationType(Limit),
    /// 1 if a route leads back to the source.
    ReversePath(ReversePath),
    /// 1 if it has this extension header of IPv6, which no packet of a plain socket has.
    ExtensionHeader,
}

/// Which routes lead back to the source of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReversePath {
    /// Whether routes by any interface count, not only by the one that the packet arrives on.
    pub is_loose: bool,
    /// Whether the look-up has the packet's mark, not none.
    pub has_mark: bool,
}

/// The interface whose addresses count as those of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Any of them.
    None,
    /// The interface that the packet arrives on.
    In,
    /// The interface that the packet leaves by.
    Out,
}

/// A property of a connection, which no packet without one has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The status of the connection: the test holds if one of the bits of its mask is set.
    Status,
    /// 1 for replies.
    Direction,
    /// The number of the connection's protocol.
    Protocol,
    /// One of its ends.
    End(Direction, End),
}

/// The packets of a connection in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// As the first one was sent.
    Original,
    /// As replies arrive.
    Reply,
}

/// Where packets come from or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// The address.
    Source,
    /// The destination address.
    Destination,
    /// Of TCP and UDP.
    SourcePort,
    /// The destination port, of TCP and UDP.
    DestinationPort,
}

/// The bits of a connection's status, `IPS_*` of linux/netfilter/nf_conntrack_common.h, by their names in
/// rules.
pub const STATUS: [(&str, u128); 7] = [
    ("EXPECTED", EXPECTED),
    ("SEEN_REPLY", SEEN_REPLY),
    ("ASSURED", ASSURED),
    ("CONFIRMED", CONFIRMED),
    ("SNAT", STATUS_SNAT),
    ("DNAT", STATUS_DNAT),
    ("DYING", DYING),
];
/// `EXPECTED`: another connection announced it (conntrack helper).
pub const EXPECTED: u128 = 1;
/// `SEEN_REPLY`: packets were seen in both directions.
pub const SEEN_REPLY: u128 = 2;
/// `ASSURED`: not evicted early when the table is full.
pub const ASSURED: u128 = 4;
/// `CONFIRMED`: its first packet has left or was delivered.
pub const CONFIRMED: u128 = 8;
/// `SRC_NAT`: its source is translated.
pub const STATUS_SNAT: u128 = 16;
/// `DST_NAT`: its destination is translated.
pub const STATUS_DNAT: u128 = 32;
/// `DYING`: it is being deleted.
pub const DYING: u128 = 512;

/// The first packet of a connection.
pub const NEW: u128 = 0;
/// A later packet.
pub const ESTABLISHED: u128 = 1;
/// A packet in conntrack state INVALID.
pub const INVALID: u128 = 2;
/// A packet that is exempt from tracking.
pub const UNTRACKED: u128 = 3;
/// The first packet of a connection that belongs to another one.
pub const RELATED: u128 = 4;
/// A packet of a connection whose destination is translated.
pub const DNAT: u128 = 5;
/// A packet of a connection whose source is translated.
pub const SNAT: u128 = 6;

/// `RTN_UNICAST` and the others, from linux/rtnetlink.h.
pub const UNICAST: u128 = 1;
/// An address of the machine.
pub const LOCAL: u128 = 2;
/// A broadcast address.
pub const BROADCAST: u128 = 3;
/// A multicast address.
pub const MULTICAST: u128 = 5;

/// The uid and gid of a packet without a socket: no user has this number.
pub const NO_SOCKET: u128 = 1 << 32;

/// One match that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMatch {
    /// The field of the match.
    pub field: Field,
    /// The values with which it holds.
    pub values: Vec<Range>,
    /// The bits that are compared.
    pub mask: u128,
    /// Whether it holds with all other values instead.
    pub is_negated: bool,
    /// The words of the match.
    pub words: String,
}

impl FieldMatch {
    /// Whether the match holds for a field with this value, of which these bits are known; `None` if the
    /// others decide.
    #[must_use]
    pub fn holds(&self, value: u128, known: u128) -> Option<bool> {
        if self.mask & !known == 0 {
            return Some(self.lists(value) != self.is_negated);
        }
        // A bit that is known may differ from all of them.
        let differs = |(first, last): &Range| first == last && (first ^ value) & self.mask & known != 0;
        self.values.iter().all(differs).then_some(self.is_negated)
    }

    /// Whether it holds for no packet of a family, such as `! -i +` and `! -s 0.0.0.0/0`.
    #[must_use]
    pub fn is_never(&self, family: Family) -> bool {
        let most = match self.field {
            Field::Source | Field::Destination => match family {
                Family::V4 => u32::MAX.into(),
                Family::V6 => u128::MAX,
            },
            Field::InInterface | Field::OutInterface => u128::MAX,
            Field::SourcePort | Field::DestinationPort | Field::EitherPort => u16::MAX.into(),
            Field::Mark | Field::Connmark => u32::MAX.into(),
            Field::Protocol
            | Field::Uid
            | Field::Gid
            | Field::Socket
            | Field::State
            | Field::Connection(..)
            | Field::TcpFlags
            | Field::SourceType(_)
            | Field::DestinationType(_)
            | Field::ReversePath(_)
            | Field::ExtensionHeader => return false,
        };
        let are_all = |(first, last): &Range| *first == 0 && *last >= most & self.mask;
        self.is_negated && self.values.iter().any(are_all)
    }

    /// Whether a value is one of those, whatever the negation.
    #[must_use]
    pub fn lists(&self, value: u128) -> bool {
        let value = value & self.mask;
        self.values.iter().any(|(first, last)| (*first..=*last).contains(&value))
    }

    /// The values as they are written.
    #[must_use]
    pub fn listed(&self) -> &str {
        self.words.trim_start_matches("! ").split_once(' ').map_or("", |(_, listed)| listed)
    }

    /// Whether it holds for one of these values.
    #[must_use]
    pub fn holds_for_any(&self, values: &[u128]) -> bool {
        values.iter().any(|value| self.lists(*value) != self.is_negated)
    }
}

/// Whether all tests hold for a packet of which some fields have these values; `None` if others decide.
#[must_use]
pub fn all_hold(tests: &[FieldMatch], value: impl Fn(Field) -> Option<u128>) -> Option<bool> {
    let mut are_known = true;
    for test in tests {
        match value(test.field).and_then(|value| test.holds(value, u128::MAX)) {
            Some(true) => {}
            Some(false) => return Some(false),
            None => are_known = false,
        }
    }
    are_known.then_some(true)
}

/// The number of an address.
#[must_use]
pub fn address_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u32::from(v4).into(),
        IpAddr::V6(v6) => v6.into(),
    }
}

/// The address with this number; `None` if the family has none.
#[must_use]
pub fn address_of(family: Family, number: u128) -> Option<IpAddr> {
    match family {
        Family::V4 => Some(Ipv4Addr::from(u32::try_from(number).ok()?).into()),
        Family::V6 => Some(Ipv6Addr::from(number).into()),
    }
}

/// Name of an interface as a number: names with a common prefix are a range.
#[must_use]
pub fn name_number(name: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(name).for_each(|(byte, letter)| *byte = *letter);
    u128::from_be_bytes(bytes)
}

/// The names that begin with these bytes.
#[must_use]
pub fn interface_prefix(prefix: &[u8]) -> Range {
    let first = name_number(prefix);
    let bits = u32::try_from(prefix.len() * 8).unwrap_or(u32::BITS);
    (first, first | u128::MAX.checked_shr(bits).unwrap_or(0))
}

/// The names that are meant by one that may end with `+`.
#[must_use]
pub fn interface_numbers(name: &Interface) -> Range {
    match name.as_str().strip_suffix('+') {
        Some(prefix) => interface_prefix(prefix.as_bytes()),
        None => {
            let number = name_number(name.as_str().as_bytes());
            (number, number)
        }
    }
}
