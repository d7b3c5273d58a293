//! Sockets that wait for packets.

use std::net::SocketAddr;

use crate::model::{Family, Transport};

/// A socket that waits for packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listener {
    /// TCP or UDP.
    pub transport: Transport,
    /// The address of the socket.
    pub address: SocketAddr,
    /// The user that made it.
    pub uid: u32,
    /// Whether it takes packets for any address (`IP_TRANSPARENT`); `None` if the kernel does not say.
    pub is_transparent: Option<bool>,
    /// The number of the interface that it is bound to.
    pub device: Option<u32>,
    /// Whether it takes no IPv4 packet although it is on `::` (`IPV6_V6ONLY`).
    pub is_v6_only: bool,
    /// Whether it takes connections of MPTCP.
    pub is_mptcp: bool,
    /// Whether as many connections wait as it may have: new ones get no reply.
    pub is_full: bool,
}

impl Listener {
    /// Whether packets of a family can get to it: one on `::` takes those of both, unless it is for IPv6
    /// only.
    pub(super) fn serves(&self, family: Family) -> bool {
        let is_any = self.address.is_ipv6() && self.address.ip().is_unspecified() && !self.is_v6_only;
        is_any || self.address.is_ipv4() == (family == Family::V4)
    }

    /// Whether it takes packets to an address that arrive on an interface.
    pub(super) fn takes(&self, to: SocketAddr, device: Option<u32>) -> bool {
        let is_for_address = self.address.ip() == to.ip() || self.address.ip().is_unspecified();
        is_for_address && self.device.zip(device).is_none_or(|(own, device)| own == device)
    }
}

/// Whether a socket is there that TPROXY may hand packets to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transparent {
    Is,
    IsNot,
    /// The kernel does not say, or it is for one address.
    MayBe,
}

/// The socket for a port of TPROXY, among those that are known.
pub(super) fn transparent(
    listeners: Option<&[Listener]>,
    transport: Transport,
    port: Option<u16>,
) -> Transparent {
    let (Some(listeners), Some(port)) = (listeners, port) else { return Transparent::MayBe };
    let mut found = listeners.iter().filter(|listener| {
        listener.transport == transport
            && listener.address.port() == port
            && listener.is_transparent != Some(false)
    });
    let is_for_all =
        |listener: &Listener| listener.address.ip().is_unspecified() && listener.is_transparent == Some(true);
    match found.next() {
        None => Transparent::IsNot,
        Some(first) if is_for_all(first) || found.any(is_for_all) => Transparent::Is,
        Some(_) => Transparent::MayBe,
    }
}
