//! Values of a set, and the named sets of a table.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use super::lists::Listed;
use super::types::{Operand, Value, Values};
use crate::model::{Family, Interface, Owner, Port, Why};
use crate::ordered::Ordered as _;

/// Longer lists get a name, so that rules stay readable. Ranges always have one: their set is loaded before
/// the rules refer to it (see `kernel::nftables`).
const MOST_ANONYMOUS: usize = 16;

/// The named sets of a table.
#[derive(Debug, Default)]
pub(super) struct Sets(BTreeMap<String, Values>);

impl Sets {
    /// The sets of the table, by name: the order in which they are written is that in which nft lists them.
    pub(super) fn into_list(self) -> Vec<(String, Values)> {
        self.0.into_iter().collect()
    }

    /// The right side of a test for these values; a named set if there are many.
    pub(super) fn operand(&mut self, values: &[Listed], why: Why) -> Option<Operand> {
        let values = match Collected::of(values)? {
            Collected::One(value) => return Some(Operand::One(value)),
            Collected::Many(values) => values,
        };
        if values.len() <= MOST_ANONYMOUS && !matches!(values, Values::Ranges(..)) {
            return Some(Operand::Anonymous(values));
        }
        if let Some((name, _)) = self.0.iter().find(|(_, known)| **known == values) {
            return Some(Operand::Named(name.clone()));
        }
        let stem = format!("{}-{}", why.slug(), values.word());
        let taken = self.0.keys().filter(|name| name.starts_with(&stem)).count();
        let name = if taken == 0 { stem } else { format!("{stem}-{}", taken + 1) };
        self.0.insert(name.clone(), values);
        Some(Operand::Named(name))
    }
}

impl Values {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Interfaces(list) => list.len(),
            Self::Addresses(_, list) => list.len(),
            Self::Ranges(_, list) => list.len(),
            Self::Ports(list) => list.len(),
            Self::Uids(list) | Self::Gids(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A word for names of sets.
    const fn word(&self) -> &'static str {
        match self {
            Self::Interfaces(_) => "interfaces",
            Self::Addresses(Family::V4, _) | Self::Ranges(Family::V4, _) => "ipv4",
            Self::Addresses(Family::V6, _) | Self::Ranges(Family::V6, _) => "ipv6",
            Self::Ports(_) => "ports",
            Self::Uids(_) => "uids",
            Self::Gids(_) => "gids",
        }
    }
}

/// Values without duplicates.
enum Collected {
    One(Value),
    Many(Values),
}

impl Collected {
    /// `None` if there are no values, or values of different kinds.
    fn of(values: &[Listed]) -> Option<Self> {
        let each = values.iter();
        match values.first()? {
            Listed::Network(first) => {
                let of_family = |network: &IpNetwork| network.is_ipv4() == first.is_ipv4();
                let networks = each.map(|value| value.network().filter(of_family));
                Some(ranges_of(*first, networks.collect::<Option<_>>()?))
            }
            Listed::Interface(_) => {
                Self::sorted(each.map(Listed::interface).collect(), Value::Interface, Values::Interfaces)
            }
            Listed::Port(_) => Self::sorted(each.map(Listed::port).collect(), Value::Port, Values::Ports),
            Listed::Owner(Owner::Uid(_)) => {
                Self::sorted(each.map(Listed::uid).collect(), Value::Id, Values::Uids)
            }
            Listed::Owner(Owner::Gid(_)) => {
                Self::sorted(each.map(Listed::gid).collect(), Value::Id, Values::Gids)
            }
        }
    }

    fn sorted<T: Ord + Clone>(
        list: Option<Vec<T>>,
        one: impl Fn(T) -> Value,
        many: impl Fn(Vec<T>) -> Values,
    ) -> Option<Self> {
        let list: Vec<T> = list?.into_iter().into_set().into_iter().collect();
        match list.as_slice() {
            [] => None,
            [value] => Some(Self::One(one(value.clone()))),
            [_, ..] => Some(Self::Many(many(list))),
        }
    }
}

impl Listed {
    const fn network(&self) -> Option<IpNetwork> {
        if let Self::Network(network) = self { Some(*network) } else { None }
    }

    fn interface(&self) -> Option<Interface> {
        if let Self::Interface(name) = self { Some(name.clone()) } else { None }
    }

    const fn port(&self) -> Option<Port> {
        if let Self::Port(port) = self { Some(*port) } else { None }
    }

    const fn uid(&self) -> Option<u32> {
        if let Self::Owner(Owner::Uid(id)) = self { Some(*id) } else { None }
    }

    const fn gid(&self) -> Option<u32> {
        if let Self::Owner(Owner::Gid(id)) = self { Some(*id) } else { None }
    }
}

/// Merges ranges. Single addresses stay single: the kernel finds them by hash, which is faster than a range
/// and never misses while the set changes.
fn ranges_of(first: IpNetwork, networks: Vec<IpNetwork>) -> Collected {
    let family = if first.is_ipv4() { Family::V4 } else { Family::V6 };
    let ranges: Vec<_> = networks.into_iter().map(first_and_last).collect();
    if ranges.iter().all(|(first, last)| first == last) {
        let addresses: Vec<_> =
            ranges.into_iter().map(|(address, _)| address).into_set().into_iter().collect();
        return match addresses.as_slice() {
            [address] => Collected::One(Value::Network((*address).into())),
            _ => Collected::Many(Values::Addresses(family, addresses)),
        };
    }
    let ranges = ranges.into_iter().map(bytes_of).collect();
    let ranges: Vec<_> = nfnetlink::nftables::merge(ranges).into_iter().filter_map(addresses_of).collect();
    match ranges.as_slice() {
        [(first, last)] if let Some(network) = network_of(*first, *last) => {
            Collected::One(Value::Network(network))
        }
        _ => Collected::Many(Values::Ranges(family, ranges)),
    }
}

/// The first and the last address of a network.
pub(super) fn first_and_last(network: IpNetwork) -> (IpAddr, IpAddr) {
    match network {
        IpNetwork::V4(network) => (network.network().into(), network.broadcast().into()),
        IpNetwork::V6(network) => {
            let first = u128::from(network.network());
            let hosts = u128::MAX.checked_shr(u32::from(network.prefix())).unwrap_or(0);
            (network.network().into(), Ipv6Addr::from(first | hosts).into())
        }
    }
}

/// The network that begins and ends with these addresses, if there is one.
pub(super) fn network_of(first: IpAddr, last: IpAddr) -> Option<IpNetwork> {
    let length: u8 = if first.is_ipv4() { 32 } else { 128 };
    let networks = (0..=length).filter_map(|prefix| IpNetwork::new(first, prefix).ok());
    { networks }.find(|network| first_and_last(*network) == (first, last))
}

/// The bytes of an address, as in a packet.
pub(super) fn bytes(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn bytes_of((first, last): (IpAddr, IpAddr)) -> (Vec<u8>, Vec<u8>) {
    (bytes(first), bytes(last))
}

fn addresses_of((first, last): (Vec<u8>, Vec<u8>)) -> Option<(IpAddr, IpAddr)> {
    let address = |bytes: Vec<u8>| {
        let v4 = <[u8; 4]>::try_from(bytes.as_slice()).map(|octets| IpAddr::V4(Ipv4Addr::from(octets)));
        v4.or_else(|_| {
            <[u8; 16]>::try_from(bytes.as_slice()).map(|octets| IpAddr::V6(Ipv6Addr::from(octets)))
        })
        .ok()
    };
    Some((address(first)?, address(last)?))
}
