//! Address families.

use std::fmt;
use std::net::IpAddr;

use ipnetwork::IpNetwork;

/// An address family: the rules of each live in tables of their own in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The families, in the order in which they are applied.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// The family of an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// Whether `network` is of this family.
    #[must_use]
    pub const fn holds(self, network: &IpNetwork) -> bool {
        matches!((self, network), (Self::V4, IpNetwork::V4(_)) | (Self::V6, IpNetwork::V6(_)))
    }

    /// Whether `address` is of this family.
    #[must_use]
    pub const fn has(self, address: IpAddr) -> bool {
        matches!((self, address), (Self::V4, IpAddr::V4(_)) | (Self::V6, IpAddr::V6(_)))
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// The families that rules are made for: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Families {
    /// IPv4 and IPv6.
    Both,
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

impl Families {
    /// Whether rules are made for `family`.
    #[must_use]
    pub const fn contains(self, family: Family) -> bool {
        matches!((self, family), (Self::Both, _) | (Self::V4, Family::V4) | (Self::V6, Family::V6))
    }

    /// The families in the order in which they are applied.
    pub fn iter(self) -> impl Iterator<Item = Family> {
        Family::ALL.into_iter().filter(move |family| self.contains(*family))
    }
}

impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Both => "IPv4 and IPv6",
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}
