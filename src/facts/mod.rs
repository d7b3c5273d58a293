//! Facts about the pod, read once.
//!
//! The types here are plain; reading is done by [`crate::kernel`], deciding by [`crate::config`].

mod resolver;
mod users;

use std::net::IpAddr;

pub use resolver::{NameServers, name_servers};
pub use users::{gid_of, uid_of};

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
    /// Whether the kernel does IPv6 here at all.
    pub ipv6: bool,
}

/// Files that are read, as they are. `Err` holds the reason why one cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// `/etc/passwd`; empty if there is none.
    pub passwd: String,
    /// `/etc/group`; empty if there is none.
    pub group: String,
    /// `/etc/resolv.conf`.
    pub resolv_conf: Result<String, String>,
}
