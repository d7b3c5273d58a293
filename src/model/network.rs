//! State of a network namespace: plain data, which determines the address families of the rules.

use std::net::IpAddr;

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

/// Addresses and IPv6 support of the network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Every address of every link.
    pub addresses: Vec<InterfaceAddress>,
    /// Whether the kernel supports IPv6 here.
    pub ipv6: bool,
}
