//! Policy rules and routes, as plain data: what decides where a packet goes once the packet filter has let it
//! through.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// The policy rules and routes of one family, in the kernel's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fib {
    /// Tried from the first to the last.
    pub rules: Vec<PolicyRule>,
    /// The routes of all tables.
    pub routes: Vec<FibRoute>,
    /// The addresses of all interfaces, of which the kernel chooses the source.
    pub addresses: Vec<SourceAddress>,
}

/// An address that packets may have as their source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceAddress {
    /// Name of its interface.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
    /// Where it is valid: 0 everywhere, 253 on the link, 254 on this machine.
    pub scope: u8,
    /// Whether another one of its interface and prefix is before it (IPv4).
    pub is_secondary: bool,
    /// Whether it is to be avoided (IPv6).
    pub is_deprecated: bool,
    /// Whether it is not in use yet (IPv6).
    pub is_tentative: bool,
}

/// A range of ports or users, both ends included.
pub type IdRange<T> = (T, T);

/// A policy rule (`ip rule`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyRule {
    /// Lower ones are tried first.
    pub priority: u32,
    /// Whether it is for the packets that its tests do not match.
    pub is_negated: bool,
    /// Source addresses.
    pub source: Option<IpNetwork>,
    /// Destination addresses.
    pub destination: Option<IpNetwork>,
    /// The interface that the packet arrives on; `lo` for those of local processes.
    pub in_interface: Option<String>,
    /// The interface that the socket is bound to.
    pub out_interface: Option<String>,
    /// Mark, and the bits of it that are compared.
    pub mark: Option<(u32, u32)>,
    /// Users of the socket.
    pub uids: Option<IdRange<u32>>,
    /// Protocol number.
    pub protocol: Option<u8>,
    /// Source ports.
    pub source_ports: Option<IdRange<u16>>,
    /// Destination ports.
    pub destination_ports: Option<IdRange<u16>>,
    /// Whether it has a test that is not read: TOS, a tunnel, the group of the route's interface.
    pub has_other_tests: bool,
    /// Routes with no more than this prefix length do not count.
    pub suppress_prefix: Option<u32>,
    /// What it does.
    pub action: PolicyAction,
    /// Who added it (`FRA_PROTOCOL`); 0 if that is not known.
    pub origin: u8,
}

impl PolicyRule {
    /// Whether it is one of the three that the kernel adds to every network namespace.
    #[must_use]
    pub fn is_of_kernel(&self) -> bool {
        let tables = [(0, LOCAL_TABLE), (32766, MAIN_TABLE), (32767, DEFAULT_TABLE)];
        tables
            .iter()
            .any(|(priority, table)| *self == Self { origin: self.origin, ..Self::lookup(*priority, *table) })
    }

    /// The rule for all packets that looks up this table.
    #[must_use]
    pub const fn lookup(priority: u32, table: u32) -> Self {
        Self {
            priority,
            is_negated: false,
            source: None,
            destination: None,
            in_interface: None,
            out_interface: None,
            mark: None,
            uids: None,
            protocol: None,
            source_ports: None,
            destination_ports: None,
            has_other_tests: false,
            suppress_prefix: None,
            action: PolicyAction::Table(table),
            origin: 0,
        }
    }
}

/// What a policy rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyAction {
    /// Looks up a table.
    Table(u32),
    /// Looks up the table of the VRF that the packet's interface belongs to, and nothing without one
    /// (`l3mdev`).
    Vrf,
    /// Goes on with the rule of this priority.
    Goto(u32),
    /// Nothing.
    Nop,
    /// The packet goes nowhere.
    Reject(RouteKind),
    /// Something that is not known.
    Unknown(u8),
}

/// What a route does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Delivers to this machine.
    Local,
    /// Sends out by an interface.
    Unicast,
    /// Broadcast, multicast and others.
    Other,
    /// Drops silently.
    Blackhole,
    /// Drops with an error.
    Unreachable,
    /// Drops with another error.
    Prohibit,
    /// Ends the lookup in this table.
    Throw,
}

impl RouteKind {
    /// Whether a packet that takes the route gets nowhere.
    #[must_use]
    pub const fn is_rejecting(self) -> bool {
        matches!(self, Self::Blackhole | Self::Unreachable | Self::Prohibit)
    }

    /// The word of iproute2.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Unicast => "unicast",
            Self::Other => "broadcast",
            Self::Blackhole => "blackhole",
            Self::Unreachable => "unreachable",
            Self::Prohibit => "prohibit",
            Self::Throw => "throw",
        }
    }
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FibRoute {
    /// The table of the route.
    pub table: u32,
    /// Where it leads to; `None` for everywhere.
    pub destination: Option<IpNetwork>,
    /// What it does.
    pub kind: RouteKind,
    /// The interface, if there is just one.
    pub interface: Option<String>,
    /// The router, if there is one.
    pub gateway: Option<IpAddr>,
    /// The source of packets that have none.
    pub source: Option<IpAddr>,
    /// How far away the destination is (IPv4): 0 behind a router, 253 on the link.
    pub scope: u8,
    /// Of routes for the same destination the one with the lowest counts.
    pub metric: u32,
    /// Whether it is for some packets only, by a test that is not read: TOS, a source.
    pub has_other_tests: bool,
    /// Whether its interface is down: then it does not count.
    pub is_dead: bool,
    /// Who added it.
    pub origin: u8,
}

impl FibRoute {
    /// Whether it is `local default dev lo`, the route that TPROXY needs.
    #[must_use]
    pub fn is_local_default(&self) -> bool {
        self.kind == RouteKind::Local && self.destination.is_none() && self.interface.as_deref() == Some("lo")
    }

    /// Length of the prefix of its destinations.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.destination.map_or(0, |range| range.prefix())
    }
}

impl fmt::Display for FibRoute {
    /// In the words of iproute2.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, destination, kind, interface, .. } = self;
        if *kind != RouteKind::Unicast {
            write!(f, "{} ", kind.name())?;
        }
        match destination {
            Some(range) => range.fmt(f)?,
            None => f.write_str("default")?,
        }
        if let Some(interface) = interface {
            write!(f, " dev {interface}")?;
        }
        write!(f, " table {}", TableNumber(*table))
    }
}

impl fmt::Display for PolicyRule {
    /// In the words of iproute2.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} from ", self.priority, if self.is_negated { " not" } else { "" })?;
        match self.source {
            Some(range) => range.fmt(f)?,
            None => f.write_str("all")?,
        }
        if let Some(range) = self.destination {
            write!(f, " to {range}")?;
        }
        match self.mark {
            Some((mark, u32::MAX)) => write!(f, " fwmark {mark:#x}")?,
            Some((mark, mask)) => write!(f, " fwmark {mark:#x}/{mask:#x}")?,
            None => {}
        }
        for (word, interface) in [("iif", &self.in_interface), ("oif", &self.out_interface)] {
            if let Some(interface) = interface {
                write!(f, " {word} {interface}")?;
            }
        }
        if let Some((first, last)) = self.uids {
            write!(f, " uidrange {first}-{last}")?;
        }
        if let Some(number) = self.protocol {
            write!(f, " ipproto {number}")?;
        }
        for (word, ports) in [("sport", self.source_ports), ("dport", self.destination_ports)] {
            match ports {
                Some((first, last)) if first == last => write!(f, " {word} {first}")?,
                Some((first, last)) => write!(f, " {word} {first}-{last}")?,
                None => {}
            }
        }
        if self.has_other_tests {
            f.write_str(" and other tests")?;
        }
        match self.action {
            PolicyAction::Table(table) => write!(f, " lookup {}", TableNumber(table))?,
            PolicyAction::Vrf => f.write_str(" lookup [l3mdev-table]")?,
            PolicyAction::Goto(priority) => write!(f, " goto {priority}")?,
            PolicyAction::Nop => f.write_str(" nop")?,
            PolicyAction::Reject(kind) => write!(f, " {}", kind.name())?,
            PolicyAction::Unknown(number) => write!(f, " action {number}")?,
        }
        self.suppress_prefix.map_or(Ok(()), |length| write!(f, " suppress_prefixlength {length}"))
    }
}

/// A table, by its name where iproute2 always knows one.
struct TableNumber(u32);

impl fmt::Display for TableNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            LOCAL_TABLE => f.write_str("local"),
            MAIN_TABLE => f.write_str("main"),
            DEFAULT_TABLE => f.write_str("default"),
            number => number.fmt(f),
        }
    }
}

/// The table with the machine's own addresses.
pub const LOCAL_TABLE: u32 = 255;
/// The table that `ip route` lists.
pub const MAIN_TABLE: u32 = 254;
/// The last table that is looked up where no rule was changed.
pub const DEFAULT_TABLE: u32 = 253;
