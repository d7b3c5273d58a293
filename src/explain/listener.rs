//! Sockets that wait for packets.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use super::proxy::TAKES_MPTCP;
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
    /// Whether a process that has it open is known, and rules exempt what that sends. A new socket gets the
    /// file system ids of its process (`fsuid`, `fsgid`), by which the owner match knows it.
    pub is_exempt: bool,
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

/// What is wrong with the listener on a port of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenerProblem {
    /// There is none.
    Absent,
    /// A listener that takes what is for this address only.
    OnlyFor(IpAddr),
    /// A listener that runs as none of the proxy's users.
    OtherUser {
        /// The user of the listener.
        uid: u32,
        /// The users of the proxy.
        wanted: Vec<u32>,
    },
    /// As many connections wait as it may have.
    QueueFull,
    /// A listener for REDIRECT on a port of TPROXY.
    NotTransparent,
    /// The kernel chooses the source of an answer to the app by its route, and conntrack knows the answer by
    /// the address that REDIRECT gave the query.
    AnswersFromPod,
    /// A listener that takes connections of MPTCP, on a port that REDIRECT leads to.
    TakesMptcp,
}

impl ListenerProblem {
    /// Whether every connection ends by it: some depend on the client, on the proxy's group, or on how it
    /// answers.
    pub(super) const fn is_certain(&self) -> bool {
        match self {
            Self::Absent | Self::OnlyFor(_) | Self::QueueFull | Self::NotTransparent => true,
            Self::OtherUser { .. } | Self::AnswersFromPod | Self::TakesMptcp => false,
        }
    }
}

impl fmt::Display for ListenerProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Absent => "nothing listens there",
            Self::OnlyFor(address) => {
                return write!(f, "the listener there takes packets for {address} only");
            }
            Self::OtherUser { uid, wanted } => {
                let wanted: Vec<String> = wanted.iter().map(u32::to_string).collect();
                return write!(
                    f,
                    "the listener there runs as uid {uid}, not {}: unless its group is the proxy's, its own connections are captured again",
                    wanted.join(", ")
                );
            }
            Self::QueueFull => {
                "the listener's queue is full: the proxy accepts no connections, and new ones get no reply"
            }
            Self::NotTransparent => {
                "the listener there is not transparent (IP_TRANSPARENT), as one for REDIRECT: the kernel drops what TPROXY hands to it"
            }
            Self::AnswersFromPod => {
                "the listener there is bound to every address: answers that do not take the query's address as their source (IP_PKTINFO) \
                 leave from the pod's address, and the app drops them; bind it to 127.0.0.1 and ::1"
            }
            Self::TakesMptcp => TAKES_MPTCP,
        };
        f.write_str(words)
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
