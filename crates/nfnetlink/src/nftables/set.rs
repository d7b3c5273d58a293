//! Sets of values or ranges.

use super::interval;

/// What a set holds: for `nft`, which prints elements by it, and the length of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyType {
    /// IPv4 addresses: 4 bytes.
    Ipv4Address,
    /// IPv6 addresses: 16 bytes.
    Ipv6Address,
    /// Transport protocols: one byte.
    Protocol,
    /// Ports: 2 bytes in network byte order.
    Port,
    /// Marks: 4 bytes in host byte order.
    Mark,
    /// User ids: 4 bytes in host byte order.
    Uid,
    /// Group ids: 4 bytes in host byte order.
    Gid,
    /// Names of network interfaces: 16 bytes, padded with zeros.
    InterfaceName,
    /// A type that this crate does not know; read only.
    Foreign {
        /// The number of the type.
        number: u32,
        /// Length of an element in bytes.
        length: u32,
    },
}

impl KeyType {
    const KNOWN: [Self; 8] = [
        Self::Ipv4Address,
        Self::Ipv6Address,
        Self::Protocol,
        Self::Port,
        Self::Mark,
        Self::Uid,
        Self::Gid,
        Self::InterfaceName,
    ];

    /// The number of the type in nft.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Ipv4Address => 7,
            Self::Ipv6Address => 8,
            Self::Protocol => 12,
            Self::Port => 13,
            Self::Mark => 19,
            Self::Uid => 24,
            Self::Gid => 25,
            Self::InterfaceName => 41,
            Self::Foreign { number, length: _ } => number,
        }
    }

    /// Length of an element in bytes.
    #[must_use]
    pub const fn length(self) -> u32 {
        match self {
            Self::Protocol => 1,
            Self::Port => 2,
            Self::Ipv4Address | Self::Mark | Self::Uid | Self::Gid => 4,
            Self::Ipv6Address | Self::InterfaceName => 16,
            Self::Foreign { number: _, length } => length,
        }
    }

    /// Whether elements are in host byte order.
    #[must_use]
    pub const fn is_host_order(self) -> bool {
        matches!(self, Self::Mark | Self::Uid | Self::Gid | Self::InterfaceName)
    }

    /// The type with this number and length of elements.
    #[must_use]
    pub fn of(number: u32, length: u32) -> Self {
        let known = Self::KNOWN.into_iter().find(|key| key.number() == number && key.length() == length);
        known.unwrap_or(Self::Foreign { number, length })
    }
}

/// The elements of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elements {
    /// Single values: the kernel finds them by hash.
    Values(Vec<Vec<u8>>),
    /// Ranges of first and last values, neither overlapping nor adjacent ([`super::merge`]).
    Ranges(Vec<(Vec<u8>, Vec<u8>)>),
    /// Elements of a map, or with a time limit: their attributes, as they were read. They cannot be written.
    Foreign(Vec<Vec<u8>>),
}

impl Elements {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Values(list) | Self::Foreign(list) => list.len(),
            Self::Ranges(list) => list.len(),
        }
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn sort(&mut self) {
        match self {
            Self::Values(list) | Self::Foreign(list) => list.sort_unstable(),
            Self::Ranges(list) => list.sort_unstable(),
        }
    }

    /// The elements as the kernel takes them: a value, and whether a range ends before it.
    pub(super) fn encoded(&self) -> Vec<(Vec<u8>, bool)> {
        match self {
            Self::Values(list) => list.iter().map(|value| (value.clone(), false)).collect(),
            Self::Ranges(list) => {
                let bounds = list.iter().flat_map(|(first, last)| {
                    let end = interval::successor(last).map(|end| (end, true));
                    std::iter::once((first.clone(), false)).chain(end)
                });
                bounds.collect()
            }
            Self::Foreign(_) => Vec::new(),
        }
    }
}

/// A set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// The name of the set. In a table that is written, a name by which rules refer to it; the kernel gives
    /// an anonymous set another one, `__set0` and so on.
    pub name: String,
    /// What it holds.
    pub key: KeyType,
    /// Whether it belongs to the one rule that refers to it, and cannot be changed.
    pub anonymous: bool,
    /// What is in it.
    pub elements: Elements,
}
