//! State of a network namespace: plain data, which determines the address families of the rules.

use std::net::IpAddr;

use super::PASSTHROUGH_V6;

/// An address of the pod, in the order of the kernel's dump (all IPv4 addresses come first).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Name of the link that carries it.
    pub interface: String,
    /// The address.
    pub address: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
}

impl InterfaceAddress {
    /// Whether the pod may be reached by it: not by loopback and link-local ones, and `::6` on `lo` is ours.
    #[must_use]
    pub fn is_of_pod(&self) -> bool {
        match self.address {
            IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
            IpAddr::V6(v6) => {
                let is_ours = self.interface == "lo" && v6 == PASSTHROUGH_V6;
                !v6.is_loopback() && !v6.is_unicast_link_local() && !is_ours
            }
        }
    }
}

/// Addresses and IPv6 support of the network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Every address of every link.
    pub addresses: Vec<InterfaceAddress>,
    /// Whether the kernel supports IPv6 here.
    pub ipv6: bool,
}
