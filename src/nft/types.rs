//! The types of native nftables tables, chains and rules.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

use crate::model::{Chain, CtState, Family, Hook, Interface, Mark, Match, Port, Syn, Table, Transport, Why};

/// A table of the family `inet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeTable {
    /// The table's counterpart in iptables.
    pub table: Table,
    /// Sets that have names.
    pub sets: Vec<(String, Values)>,
    /// The chains of the table.
    pub chains: Vec<NativeChain>,
}

impl NativeTable {
    /// The name of the table: that of Istio's own table.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.table {
            Table::Raw => "istio-proxy-raw",
            Table::Mangle => "istio-proxy-mangle",
            Table::Nat => "istio-proxy-nat",
        }
    }
}

/// A chain with its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeChain {
    /// The name of the chain.
    pub name: ChainName,
    /// The rules of the chain in order.
    pub rules: Vec<NativeRule>,
}

/// The name of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChainName {
    /// A base chain.
    Hook(Hook),
    /// One of our chains.
    Own(Chain),
    /// The rules behind a rule with a negated owner in a base chain, counted from 1.
    RestOfHook(Hook, usize),
    /// The rules behind a rule with a negated owner in one of our chains, counted from 1.
    RestOfOwn(Chain, usize),
}

impl ChainName {
    /// The name of the chain with the rules behind the `number`th negated owner of this chain.
    #[must_use]
    pub const fn rest(self, number: usize) -> Self {
        match self {
            Self::Hook(hook) | Self::RestOfHook(hook, _) => Self::RestOfHook(hook, number),
            Self::Own(chain) | Self::RestOfOwn(chain, _) => Self::RestOfOwn(chain, number),
        }
    }
}

impl fmt::Display for ChainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, rest) = match self {
            Self::Hook(hook) => (hook.name(), 0),
            Self::Own(chain) => (chain.name(), 0),
            Self::RestOfHook(hook, number) => (hook.name(), *number),
            Self::RestOfOwn(chain, number) => (chain.name(), *number),
        };
        // As in Istio's own tables: `ISTIO_IN_REDIRECT` is `istio-in-redirect`.
        f.write_str(&name.to_ascii_lowercase().replace('_', "-"))?;
        match rest {
            0 => Ok(()),
            1 => f.write_str("-rest"),
            number => write!(f, "-rest-{number}"),
        }
    }
}

/// A rule: if all tests hold, the packet is counted and the action is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeRule {
    /// Which packets.
    pub tests: Vec<Test>,
    /// What happens to them.
    pub action: Action,
    /// Why the rule exists.
    pub why: Why,
}

impl NativeRule {
    /// The comment on it: slug and sentence of the reason.
    #[must_use]
    pub fn comment(&self) -> String {
        if (self.why, self.action) == (Why::TransparentProxy, Action::Drop) {
            return "transparent-proxy: without a listening proxy the connection is dropped, not handed to the app".to_owned();
        }
        if self.why == Why::OpenConnection {
            // The whole sentence is longer than a comment may be.
            return format!("{}: no TCP is captured until every open connection is tracked", self.why.slug());
        }
        format!("{}: {}", self.why.slug(), self.why.sentence())
    }
}

/// A test of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Test {
    /// The packet is of this family.
    Family(Family),
    /// A field has a value, or one out of a set, or not.
    Field(Field, Match<Operand>),
    /// The packet is of this protocol.
    Protocol(Transport),
    /// The packet opens a TCP connection, or does not.
    Syn(Match<Syn>),
    /// The state of its connection.
    State(CtState),
    /// The mark of the packet.
    Mark(Match<Mark>),
    /// The mark of its connection.
    Connmark(Mark),
}

/// A field of a packet. An address implies the family, a port the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// Interface it came in by.
    InInterface,
    /// Interface it leaves by.
    OutInterface,
    /// Source address.
    Source(Family),
    /// Destination address.
    Destination(Family),
    /// Source port.
    SourcePort(Transport),
    /// Destination port.
    DestinationPort(Transport),
    /// User of its socket; a packet without a socket fails the test, negated or not.
    Uid,
    /// Group of its socket, likewise.
    Gid,
}

/// The right side of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// One value.
    One(Value),
    /// A few values: a set without a name.
    Anonymous(Values),
    /// A set of the table, by its name.
    Named(String),
}

/// A value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// An interface, or a prefix of the names of several.
    Interface(Interface),
    /// A range of addresses.
    Network(IpNetwork),
    /// A port.
    Port(Port),
    /// A user or a group.
    Id(u32),
}

/// Values of a field: sorted, without duplicates; at least two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Values {
    /// Interfaces, by their whole names.
    Interfaces(Vec<Interface>),
    /// Single addresses.
    Addresses(Family, Vec<IpAddr>),
    /// Ranges of addresses, first and last; neither overlapping nor adjacent.
    Ranges(Family, Vec<(IpAddr, IpAddr)>),
    /// Ports.
    Ports(Vec<Port>),
    /// Users.
    Uids(Vec<u32>),
    /// Groups.
    Gids(Vec<u32>),
}

/// What happens to a packet that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The table is done with it.
    Accept,
    /// The packet is discarded.
    Drop,
    /// The packet leaves the chain.
    Return,
    /// The packet goes on in another chain and comes back.
    Jump(ChainName),
    /// The packet goes on in another chain and does not come back.
    Goto(ChainName),
    /// The destination of the packet is changed to this port on the machine itself.
    Redirect(Port),
    /// The packet is handed to a transparent socket and marked, and the table is done with it. Without such a
    /// socket the rule does not match.
    Tproxy {
        /// The only family; `None` for both.
        family: Option<Family>,
        /// Port of the socket.
        port: Port,
        /// The mark.
        mark: Mark,
    },
    /// The packet is marked.
    SetMark(Mark),
    /// The mark of the packet is copied to its connection.
    SaveMark,
    /// The mark of its connection is copied to it.
    RestoreMark,
    /// The connection of the packet is tracked in this zone.
    Zone(u16),
}
