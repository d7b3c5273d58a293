//! The fixed flows of the pod: who calls whom, from which port.

use std::net::{IpAddr, SocketAddr};

use crate::lab::fixture::at;
use crate::lab::user::Ending;
use crate::lab::{Family, Pod, User};

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A client in the network outside.
    Outside,
    /// uid and gid 1000.
    App,
    /// uid 2000, gid 101.
    OtherUser,
    /// uid and gid 1337.
    Proxy,
}

/// Where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    Pod,
    PodSecondNic,
    Service,
    OtherService,
    NameServer,
    OutsideSecondNic,
}

/// New connections, or queries, that are made again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) name: &'static str,
    pub(super) is_udp: bool,
    pub(super) from: Source,
    /// The source port; 0 for another one each time.
    pub(super) from_port: u16,
    pub(super) to: Destination,
    pub(super) port: u16,
}

const fn tcp(name: &'static str, from: Source, from_port: u16, to: Destination, port: u16) -> Flow {
    Flow { name, is_udp: false, from, from_port, to, port }
}

const fn udp(name: &'static str, from: Source, from_port: u16, to: Destination) -> Flow {
    Flow { name, is_udp: true, from, from_port, to, port: 53 }
}

/// Connections of this flow, and every other one of outbound flows with a fixed port, are reset by the
/// server.
pub(super) const SERVER_RESETS: &str = "inbound 8080, fixed port, reset by the server";

/// All flows.
pub(super) const FLOWS: [Flow; 22] = [
    tcp("inbound 8080", Source::Outside, 0, Destination::Pod, 8080),
    tcp("inbound 8080, fixed port", Source::Outside, 40_001, Destination::Pod, 8080),
    tcp(SERVER_RESETS, Source::Outside, 40_002, Destination::Pod, 8080),
    tcp("inbound 9090", Source::Outside, 0, Destination::Pod, 9090),
    tcp("inbound 15020", Source::Outside, 0, Destination::Pod, 15020),
    tcp("inbound 8080 by eth1", Source::Outside, 0, Destination::PodSecondNic, 8080),
    tcp("outbound 80", Source::App, 0, Destination::Service, 80),
    tcp("outbound 80, fixed port", Source::App, 41_001, Destination::Service, 80),
    tcp("outbound 80, other service", Source::App, 0, Destination::OtherService, 80),
    tcp("outbound 443, other service", Source::App, 0, Destination::OtherService, 443),
    tcp("outbound 80, other user", Source::OtherUser, 0, Destination::Service, 80),
    tcp("outbound 80 by eth1", Source::App, 0, Destination::OutsideSecondNic, 80),
    tcp("app to its own pod", Source::App, 0, Destination::Pod, 8080),
    tcp("proxy outbound", Source::Proxy, 0, Destination::Service, 80),
    tcp("proxy to its own pod", Source::Proxy, 0, Destination::Pod, 8080),
    tcp("DNS over TCP", Source::App, 0, Destination::NameServer, 53),
    tcp("DNS over TCP, fixed port", Source::App, 42_001, Destination::NameServer, 53),
    udp("DNS", Source::App, 0, Destination::NameServer),
    udp("DNS, fixed port", Source::App, 43_001, Destination::NameServer),
    udp("DNS, fixed port, other server", Source::App, 43_002, Destination::Service),
    udp("DNS, fixed port, other user", Source::OtherUser, 43_003, Destination::NameServer),
    udp("DNS of the proxy, fixed port", Source::Proxy, 43_004, Destination::NameServer),
];

impl Flow {
    /// Who sends, in this pod.
    pub(super) fn user(&self, pod: &Pod) -> User {
        match self.from {
            Source::Outside => pod.outside(),
            Source::App => pod.app(),
            Source::OtherUser => pod.user(2000, 101),
            Source::Proxy => pod.proxy(),
        }
    }

    /// Where to.
    pub(super) fn target(&self, family: Family) -> SocketAddr {
        let address = match self.to {
            Destination::Pod => family.pod(),
            Destination::PodSecondNic => family.pod_second(),
            Destination::Service => family.service(),
            Destination::OtherService => family.other_service(),
            Destination::NameServer => family.name_server(),
            Destination::OutsideSecondNic => family.outside_second(),
        };
        at(address, self.port)
    }

    /// The rule of another program that would let it past the proxy, of those that there may be.
    pub(super) fn passing_rule(&self) -> Option<&'static str> {
        match self.to {
            Destination::PodSecondNic => Some("PREROUTING -i eth1 -j RETURN"),
            Destination::OutsideSecondNic => Some("OUTPUT -o eth1 -j RETURN"),
            Destination::Pod | Destination::Service | Destination::OtherService | Destination::NameServer => {
                None
            }
        }
    }

    /// The addresses by which its server knows it.
    pub(super) fn callers(&self, family: Family) -> Vec<IpAddr> {
        match self.from {
            Source::Outside => vec![family.outside(), family.outside_second()],
            Source::App | Source::OtherUser | Source::Proxy => vec![family.pod(), family.pod_second()],
        }
    }

    /// The source address and port, where the port is fixed.
    pub(super) fn source(&self, family: Family) -> Option<SocketAddr> {
        let address = match self.from {
            Source::Outside => family.outside(),
            Source::App | Source::OtherUser | Source::Proxy => family.pod(),
        };
        (self.from_port != 0).then(|| at(address, self.from_port))
    }

    /// How its connections end. A fixed port can be used again at once if no side waits for late packets.
    pub(super) fn endings(&self) -> &'static [Ending] {
        match self.from {
            _ if self.from_port == 0 => &[Ending::Close],
            Source::Outside if self.name == SERVER_RESETS => &[Ending::ResetByServer],
            Source::Outside => &[Ending::Reset],
            Source::App | Source::OtherUser | Source::Proxy => &[Ending::Reset, Ending::ResetByServer],
        }
    }

    /// The server that responds if the flow is not captured.
    pub(super) fn server(&self) -> &'static str {
        match self.to {
            Destination::Pod | Destination::PodSecondNic => "app",
            Destination::Service
            | Destination::OtherService
            | Destination::NameServer
            | Destination::OutsideSecondNic => "outside",
        }
    }
}
