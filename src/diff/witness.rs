//! The simplest packet of a class, in words.

use std::fmt;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::field::{
    Class, ESTABLISHED, FORWARDED, FROM_OUTSIDE, Field, INSIDE, INVALID, NEW, NO_SOCKET, TCP, TO_OUTSIDE,
    UDP, address_number, address_of, addresses, loopback_addresses, loopback_interface, name_number, name_of,
};
use super::set::Set;
use crate::explain::first_host;
use crate::model::{Family, Network};

/// A port that clients get.
const CLIENT_PORT: u128 = 50000;
/// A user that is not a proxy's.
const APP: u128 = 1000;
/// What a value costs that is in no list of usual ones.
const UNUSUAL: usize = 12;

/// The addresses and interfaces of usual packets.
#[derive(Clone, Debug)]
pub(super) struct UsualValues {
    interfaces: Vec<u128>,
    /// Addresses of the pod.
    own: Vec<IpAddr>,
}

impl UsualValues {
    pub(super) fn of(network: &Network) -> Self {
        let others = || network.addresses.iter().filter(|own| own.interface != "lo");
        let names = others().map(|own| name_number(own.interface.as_bytes()));
        let usual = ["eth0", "eth1", "net1", "ens5"].map(|name| name_number(name.as_bytes()));
        Self { interfaces: names.chain(usual).collect(), own: others().map(|own| own.address).collect() }
    }

    /// An address of the pod; one for documentation if it has none.
    fn pod(&self, family: Family) -> u128 {
        let own = self.own.iter().find(|own| own.is_ipv4() == (family == Family::V4));
        address_number(own.copied().unwrap_or_else(|| documentation(family, [203, 0, 113, 1])))
    }

    /// Whether this machine has the address.
    fn is_own(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.own.contains(&address)
    }
}

/// An address for documentation, of IPv4 (RFC 5737) or IPv6 (RFC 3849).
fn documentation(family: Family, v4: [u8; 4]) -> IpAddr {
    let [first, _, third, last] = v4;
    match family {
        Family::V4 => Ipv4Addr::from(v4).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, first.into(), third.into(), 0, 0, 0, last.into()).into(),
    }
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Witness {
    pub(super) family: Family,
    /// The number of its unusual properties, weighted.
    pub(super) cost: usize,
    values: [u128; Field::ALL.len()],
    /// The options of `explain` for it; `None` if there are none.
    pub(super) question: Option<Vec<String>>,
}

impl Witness {
    /// The simplest packet of a class.
    pub(super) fn of(family: Family, class: &Class, usual: &UsualValues) -> Self {
        let mut chosen = Self { family, cost: 0, values: [0; Field::ALL.len()], question: None };
        for field in Field::ALL {
            let usual = chosen.usual(field, usual);
            let (value, cost) = choose((family, field), class.get(field), &usual);
            chosen.cost += cost;
            chosen.set(field, value);
        }
        chosen.question = chosen.question(class, usual);
        chosen
    }

    #[allow(clippy::indexing_slicing, reason = "one place for each field")]
    pub(super) const fn get(&self, field: Field) -> u128 {
        self.values[field as usize]
    }

    #[allow(clippy::indexing_slicing, reason = "one place for each field")]
    const fn set(&mut self, field: Field, value: u128) {
        self.values[field as usize] = value;
    }

    /// The class of this packet alone.
    pub(super) fn class(&self) -> Class {
        let mut class = Class::every(self.family);
        for field in Field::ALL {
            *class.get_mut(field) = Set::one(self.get(field));
        }
        class
    }

    /// The usual values of a field, the most usual first. Fields before it are chosen already.
    fn usual(&self, field: Field, usual: &UsualValues) -> Vec<u128> {
        let (family, path) = (self.family, self.get(Field::Path));
        let is_sent = [INSIDE, TO_OUTSIDE].contains(&path);
        let of = |addresses: &[[u8; 4]]| -> Vec<u128> {
            addresses.iter().map(|v4| address_number(documentation(family, *v4))).collect()
        };
        match field {
            Field::Path => vec![TO_OUTSIDE, FROM_OUTSIDE, INSIDE, FORWARDED],
            Field::InInterface | Field::OutInterface => usual.interfaces.clone(),
            Field::Protocol => vec![TCP, UDP, 1, 58],
            Field::Source if path == INSIDE => vec![usual.pod(family)],
            Field::Source if is_sent => vec![usual.pod(family)],
            Field::Source => of(&[[192, 0, 2, 1], [198, 51, 100, 1]]),
            Field::Destination if path == TO_OUTSIDE || path == FORWARDED => {
                of(&[[198, 51, 100, 1], [203, 0, 113, 1], [192, 0, 2, 1]])
            }
            Field::Destination => {
                let loopback = match family {
                    Family::V4 => Ipv4Addr::LOCALHOST.into(),
                    Family::V6 => Ipv6Addr::LOCALHOST.into(),
                };
                vec![usual.pod(family), address_number(loopback)]
            }
            Field::SourcePort => vec![CLIENT_PORT],
            Field::DestinationPort => vec![8080, 80, 443, 53, 9090],
            Field::Uid => vec![APP, NO_SOCKET, 0],
            Field::Gid => vec![self.get(Field::Uid), APP, 0],
            Field::Mark | Field::Connmark => vec![0],
            Field::State => vec![NEW, ESTABLISHED, INVALID],
            Field::Syn => vec![u128::from(self.opens())],
        }
    }

    /// The packet for programs.
    pub(super) fn json(&self) -> serde_json::Value {
        let path = match self.get(Field::Path) {
            FROM_OUTSIDE => "from-outside",
            FORWARDED => "forwarded",
            INSIDE => "within-pod",
            _ => "to-outside",
        };
        let state = match self.get(Field::State) {
            NEW => "new",
            ESTABLISHED => "established",
            _ => "invalid",
        };
        let number = |field| u64::try_from(self.get(field)).ok();
        let owner = |field| number(field).filter(|_| self.get(field) != NO_SOCKET);
        let source = self.address(Field::Source, Field::SourcePort);
        let destination = self.address(Field::Destination, Field::DestinationPort);
        serde_json::json!({
            "path": path,
            "protocol": number(Field::Protocol),
            "source": source.ip().to_string(),
            "source_port": source.port(),
            "destination": destination.ip().to_string(),
            "destination_port": destination.port(),
            "interface": self.interface(),
            "uid": owner(Field::Uid),
            "gid": owner(Field::Gid),
            "mark": number(Field::Mark),
            "connmark": number(Field::Connmark),
            "state": state,
            "opens": self.get(Field::Syn) == 1,
        })
    }

    const fn opens(&self) -> bool {
        self.get(Field::State) == NEW && self.get(Field::Protocol) == TCP
    }

    fn address(&self, address: Field, port: Field) -> SocketAddr {
        let port = u16::try_from(self.get(port)).unwrap_or(u16::MAX);
        SocketAddr::new(address_of(self.family, self.get(address)), port)
    }

    fn is_inbound(&self) -> bool {
        [FROM_OUTSIDE, FORWARDED].contains(&self.get(Field::Path))
    }

    fn interface(&self) -> String {
        let field = if self.is_inbound() { Field::InInterface } else { Field::OutInterface };
        name_of(self.get(field)).unwrap_or_else(|| "another interface".to_owned())
    }

    /// The options of `explain` for this packet: those whose values are free are left out.
    fn question(&self, class: &Class, usual: &UsualValues) -> Option<Vec<String>> {
        let (protocol, path) = (self.get(Field::Protocol), self.get(Field::Path));
        let source = self.address(Field::Source, Field::SourcePort);
        let destination = self.address(Field::Destination, Field::DestinationPort);
        let every = Class::every(self.family);
        let is_free = |field: Field| class.get(field) == every.get(field);
        let is_askable = [TCP, UDP].contains(&protocol)
            && destination.port() != 0
            && (protocol != TCP || is_free(Field::Syn) || (self.get(Field::Syn) == 1) == self.opens())
            && (path != INSIDE || usual.is_own(destination.ip()))
            && (path != TO_OUTSIDE || !usual.is_own(destination.ip()));
        let mut options = Vec::new();
        let mut add = |name: &str, value: String| options.extend([name.to_owned(), value]);
        match (self.get(Field::Uid), self.get(Field::Gid)) {
            _ if self.is_inbound() => add("--from", "outside".to_owned()),
            (NO_SOCKET, _) => add("--from", "kernel".to_owned()),
            (APP, APP) => {}
            (uid, gid) if uid == gid || is_free(Field::Gid) => add("--from", format!("uid:{uid}")),
            (uid, gid) if uid == APP || is_free(Field::Uid) => add("--from", format!("gid:{gid}")),
            (uid, gid) => add("--from", format!("uid:{uid},gid:{gid}")),
        }
        add("--to", destination.to_string());
        if protocol == UDP {
            add("--proto", "udp".to_owned());
        }
        if !is_free(Field::SourcePort) {
            add("--src", source.to_string());
        } else if !is_usual_source(self.family, class.get(Field::Source))
            && (path != INSIDE || source.ip() != destination.ip())
        {
            add("--src", source.ip().to_string());
        }
        let interface =
            if self.is_inbound() { ("--in", Field::InInterface) } else { ("--out", Field::OutInterface) };
        let usual = Set::one(0).or(&Set::one(loopback_interface())).complement();
        if path != INSIDE && *class.get(interface.1) != usual {
            add(interface.0, self.interface());
        }
        for (name, field) in [("--mark", Field::Mark), ("--connmark", Field::Connmark)] {
            if self.get(field) != 0 {
                add(name, self.get(field).to_string());
            }
        }
        match self.get(Field::State) {
            ESTABLISHED => add("--state", "established".to_owned()),
            INVALID => add("--state", "invalid".to_owned()),
            _ => {}
        }
        is_askable.then_some(options)
    }
}

/// Whether any address may be the source, as far as the kernel lets it in.
pub(super) fn is_usual_source(family: Family, values: &Set) -> bool {
    let all = addresses(family);
    *values == all || *values == loopback_addresses(family).complement().and(&all)
}

/// A value out of a set, and what it costs.
fn choose((family, field): (Family, Field), values: &Set, usual: &[u128]) -> (u128, usize) {
    if let Some(at) = usual.iter().position(|value| values.contains(*value)) {
        return (usual.get(at).copied().unwrap_or_default(), at);
    }
    if matches!(field, Field::Source | Field::Destination)
        && let Some(host) = values.ranges().iter().find_map(|range| first_host(family, *range))
    {
        return (host, UNUSUAL);
    }
    // Not the first address of a network, nor port 0, if there is another one.
    let of = |(first, last): &(u128, u128)| match field {
        Field::Source | Field::Destination if first < last => first + 1,
        Field::SourcePort | Field::DestinationPort if *first == 0 && first < last => 1,
        Field::Source | Field::Destination | Field::SourcePort | Field::DestinationPort => *first,
        Field::InInterface | Field::OutInterface => named(*first, *last).unwrap_or(*first),
        Field::Path
        | Field::Protocol
        | Field::Uid
        | Field::Gid
        | Field::Mark
        | Field::Connmark
        | Field::State
        | Field::Syn => *first,
    };
    let first = values.ranges().iter().find(|range| {
        !matches!(field, Field::InInterface | Field::OutInterface) || named(range.0, range.1).is_some()
    });
    let range = first.or_else(|| values.ranges().first());
    (range.map(of).unwrap_or_default(), UNUSUAL)
}

/// A name of an interface out of a range of names.
fn named(first: u128, last: u128) -> Option<u128> {
    let is_named = |number: &u128| (first..=last).contains(number) && name_of(*number).is_some();
    let begin = first.to_be_bytes();
    let end = begin.iter().position(|byte| *byte == 0).unwrap_or(0);
    // A prefix is a name; behind one comes the same with a digit.
    let longer = (b'0'..=b'9').map(|digit| {
        let mut bytes = begin;
        if let Some(byte) = bytes.get_mut(end) {
            *byte = digit;
        }
        u128::from_be_bytes(bytes)
    });
    std::iter::once(first)
        .chain(longer)
        .chain(["a0", "eth9", "z0"].map(|name| name_number(name.as_bytes())))
        .find(is_named)
}

/// A protocol's name.
pub(super) fn protocol_name(number: u128) -> String {
    match number {
        TCP => "TCP".to_owned(),
        UDP => "UDP".to_owned(),
        1 => "ICMP".to_owned(),
        58 => "ICMPv6".to_owned(),
        other => format!("protocol {other}"),
    }
}

impl Witness {
    fn socket(&self, address: Field, port: Field) -> String {
        let socket = self.address(address, port);
        let has_ports = [TCP, UDP].contains(&self.get(Field::Protocol));
        if has_ports { socket.to_string() } else { socket.ip().to_string() }
    }

    /// The protocol, and the state of the connection.
    fn kind(&self) -> String {
        let protocol = self.get(Field::Protocol);
        let state = match self.get(Field::State) {
            NEW => "first packet of a connection",
            ESTABLISHED => "packet of an established connection",
            _ => "packet in conntrack state INVALID",
        };
        let flags = match (self.opens(), self.get(Field::Syn) == 1) {
            (true, false) if protocol == TCP => " without SYN",
            (false, true) if protocol == TCP => " with SYN",
            _ => "",
        };
        format!("{}, {state}{flags}", protocol_name(protocol))
    }

    /// What fits into a line: where it goes, and who sends it.
    pub(super) fn summary(&self) -> String {
        let sender = match (self.get(Field::Uid), self.get(Field::Gid)) {
            _ if self.is_inbound() => "outside".to_owned(),
            (NO_SOCKET, _) => "the kernel".to_owned(),
            (uid, gid) => format!("uid {uid}, gid {gid}"),
        };
        let to = self.socket(Field::Destination, Field::DestinationPort);
        format!("{}, to {to} from {sender}", self.kind())
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sender = match (self.get(Field::Uid), self.get(Field::Gid)) {
            _ if self.is_inbound() => "outside the pod".to_owned(),
            (NO_SOCKET, _) => "the kernel, without a socket,".to_owned(),
            (uid, gid) => format!("a process with uid {uid}, gid {gid}"),
        };
        let _ = write!(sender, " ({})", self.socket(Field::Source, Field::SourcePort));
        write!(
            f,
            "{}, from {sender} to {}",
            self.kind(),
            self.socket(Field::Destination, Field::DestinationPort)
        )?;
        let way = match self.get(Field::Path) {
            FROM_OUTSIDE => "arriving on",
            FORWARDED => "forwarded, arriving on",
            INSIDE => "an address of the pod, leaving by",
            _ => "leaving by",
        };
        write!(f, ", {way} {}", self.interface())?;
        for (name, field) in [("mark", Field::Mark), ("connection mark", Field::Connmark)] {
            if self.get(field) != 0 {
                write!(f, ", {name} {:#x}", self.get(field))?;
            }
        }
        Ok(())
    }
}
