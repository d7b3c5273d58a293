//! Which packets a rule is for.

use std::fmt;

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};

use super::{Family, Interface, Port, Ports, Rule, Statement, Target, Why};

/// A match on one dimension, or its negation. As in iptables, negation is per dimension: `-p tcp ! --dport
/// 53` is "TCP, and another port".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Match<T> {
    /// The dimension has this value.
    Is(T),
    /// The dimension has any other value.
    Not(T),
}

impl<T> Match<T> {
    /// The value to match.
    pub const fn value(&self) -> &T {
        let (Self::Is(value) | Self::Not(value)) = self;
        value
    }

    /// The match with its value changed by `f`.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Match<U> {
        match self {
            Self::Is(value) => Match::Is(f(value)),
            Self::Not(value) => Match::Not(f(value)),
        }
    }
}

/// An address range before the family is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A range of one family: the rule exists in that family only.
    Net(IpNetwork),
    /// A range in each family, for instance the loopback range.
    Pair {
        /// The range in IPv4.
        v4: Ipv4Network,
        /// The range in IPv6.
        v6: Ipv6Network,
    },
}

impl Address {
    fn resolve(self, family: Family) -> Option<IpNetwork> {
        match (self, family) {
            (Self::Net(net), family) => family.holds(&net).then_some(net),
            (Self::Pair { v4, .. }, Family::V4) => Some(v4.into()),
            (Self::Pair { v6, .. }, Family::V6) => Some(v6.into()),
        }
    }
}

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

impl Transport {
    /// The name in iptables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A TCP segment that opens a connection: of SYN, ACK, RST and FIN it has SYN alone (`--syn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Syn;

/// A protocol with its ports: a port without a protocol cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Protocol {
    /// TCP or UDP.
    pub transport: Transport,
    /// Source port.
    pub source: Option<Port>,
    /// Destination port.
    pub destination: Option<Match<Ports>>,
    /// TCP only: whether the segment opens a connection.
    pub syn: Option<Match<Syn>>,
}

impl Protocol {
    /// TCP, all ports.
    pub const TCP: Self = Self::all(Transport::Tcp);

    /// All ports of a transport.
    #[must_use]
    pub const fn all(transport: Transport) -> Self {
        Self { transport, source: None, destination: None, syn: None }
    }

    /// Packets to this port.
    #[must_use]
    pub const fn to(transport: Transport, port: Port) -> Self {
        Self { transport, source: None, destination: Some(Match::Is(Ports::One(port))), syn: None }
    }

    /// Packets to any other port.
    #[must_use]
    pub const fn not_to(transport: Transport, ports: Ports) -> Self {
        Self { transport, source: None, destination: Some(Match::Not(ports)), syn: None }
    }

    /// Packets from this port.
    #[must_use]
    pub const fn from(transport: Transport, port: Port) -> Self {
        Self { transport, source: Some(port), destination: None, syn: None }
    }
}

/// The conntrack state of a packet; the two sets that capture needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CtState {
    /// The packet fits no connection.
    Invalid,
    /// The packet belongs to a connection that is there, or is related to one.
    RelatedOrEstablished,
}

/// A packet or connection mark, compared as a whole (mask 0xffffffff).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark(pub u32);

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Who made a packet: the numeric owner of its socket. Only packets of local processes have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Primary group of the process that made the socket.
    Gid(u32),
    /// User of the process that made the socket.
    Uid(u32),
}

/// Which packets a rule is for: one slot per dimension, in the order of `iptables-save`, all of which must
/// hold. An empty slot holds for every packet. Derived equality is equality of meaning.
///
/// Interpreters take it apart without `..`, so that a new slot does not compile until each of them handles
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Matcher<A = IpNetwork> {
    /// Source address.
    pub source: Option<Match<A>>,
    /// Destination address.
    pub destination: Option<Match<A>>,
    /// Interface the packet came in by.
    pub in_interface: Option<Interface>,
    /// Interface the packet leaves by.
    pub out_interface: Option<Interface>,
    /// Protocol and ports.
    pub protocol: Option<Protocol>,
    /// State of its connection.
    pub ct_state: Option<CtState>,
    /// The packet's mark.
    pub mark: Option<Match<Mark>>,
    /// The connection's mark.
    pub connmark: Option<Mark>,
    /// Who made it; several tests must all hold.
    pub owners: Vec<Match<Owner>>,
}

impl<A> Default for Matcher<A> {
    fn default() -> Self {
        Self {
            source: None,
            destination: None,
            in_interface: None,
            out_interface: None,
            protocol: None,
            ct_state: None,
            mark: None,
            connmark: None,
            owners: Vec::new(),
        }
    }
}

impl Matcher<Address> {
    /// The matcher with the addresses of one family; `None` if it has an address of the other one only.
    pub(super) fn resolve(&self, family: Family) -> Option<Matcher> {
        let Self {
            source,
            destination,
            in_interface,
            out_interface,
            protocol,
            ct_state,
            mark,
            connmark,
            owners,
        } = self;
        Some(Matcher {
            source: resolve_address(*source, family)?,
            destination: resolve_address(*destination, family)?,
            in_interface: in_interface.clone(),
            out_interface: out_interface.clone(),
            protocol: protocol.clone(),
            ct_state: *ct_state,
            mark: *mark,
            connmark: *connmark,
            owners: owners.clone(),
        })
    }
}

/// `None`: not in this family. `Some(None)`: any address, which is also the meaning of prefix length 0; the
/// kernel does not keep such a test, so neither do we.
#[allow(clippy::option_option, reason = "the two levels differ, as documented above")]
fn resolve_address(slot: Option<Match<Address>>, family: Family) -> Option<Option<Match<IpNetwork>>> {
    let Some(test) = slot else { return Some(None) };
    let network = test.value().resolve(family)?;
    match test.map(|_| network) {
        Match::Is(net) if net.prefix() == 0 => Some(None),
        test @ (Match::Is(_) | Match::Not(_)) => Some(Some(test)),
    }
}

/// Rules are written with these, as in: `when().tcp().via_out(lo).by(owner).then(...)`.
impl Matcher<Address> {
    /// From this address.
    #[must_use]
    pub fn source(mut self, address: Address) -> Self {
        self.source = Some(Match::Is(address));
        self
    }

    /// To this address.
    #[must_use]
    pub fn to(mut self, address: Address) -> Self {
        self.destination = Some(Match::Is(address));
        self
    }

    /// To any other address.
    #[must_use]
    pub fn not_to(mut self, address: Address) -> Self {
        self.destination = Some(Match::Not(address));
        self
    }

    /// In by this interface.
    #[must_use]
    pub fn via_in(mut self, interface: Interface) -> Self {
        self.in_interface = Some(interface);
        self
    }

    /// Out by this interface.
    #[must_use]
    pub fn via_out(mut self, interface: Interface) -> Self {
        self.out_interface = Some(interface);
        self
    }

    /// With this protocol and ports.
    #[must_use]
    pub fn protocol(mut self, protocol: Protocol) -> Self {
        self.protocol = Some(protocol);
        self
    }

    /// Of a connection in this state.
    #[must_use]
    pub const fn state(mut self, state: CtState) -> Self {
        self.ct_state = Some(state);
        self
    }

    /// With, or without, this mark.
    #[must_use]
    pub const fn mark(mut self, mark: Match<Mark>) -> Self {
        self.mark = Some(mark);
        self
    }

    /// Of a connection with this mark.
    #[must_use]
    pub const fn connmark(mut self, mark: Mark) -> Self {
        self.connmark = Some(mark);
        self
    }

    /// Made, or not made, by this owner; several must all hold.
    #[must_use]
    pub fn by(mut self, owner: Match<Owner>) -> Self {
        self.owners.push(owner);
        self
    }

    /// Completes the rule.
    #[must_use]
    pub const fn then(self, target: Target, why: Why) -> Rule<Address> {
        Rule { statement: Statement { matcher: self, target }, only: None, why }
    }
}
