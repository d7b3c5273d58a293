//! Detects a sandbox kernel such as gVisor, which implements the system calls of Linux in user space.
//!
//! Of netfilter it has the tables of iptables-legacy and nothing else: connections can be neither listed nor
//! changed.

use super::netlink::{Protocol, Socket};
use super::recording;

/// Whether the kernel has netlink neither for netfilter nor for sockets. Linux has both, or loads them as
/// modules.
#[must_use]
pub fn is_sandbox() -> bool {
    let lacks = |protocol| {
        // Bundles of earlier versions may lack the second one.
        let opened = recording::optional(|| Socket::open(protocol));
        opened.is_err_and(|error| error.raw_os_error() == Some(libc::EPROTONOSUPPORT))
    };
    lacks(Protocol::Netfilter) && lacks(Protocol::SockDiag)
}
