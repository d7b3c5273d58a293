//! A packet as rules see it, and the options that describe one.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::example_addresses::any_client;
use super::{Pod, TranslatedServer};
use crate::config::{CaptureConfig, ConnectionState, PacketQuery, Sender};
use crate::model::{Family, Mark, Network, PASSTHROUGH_V4, PASSTHROUGH_V6, Transport};

/// Source port of a packet of which none is given: one that clients get.
pub(super) const CLIENT_PORT: u16 = 50000;
/// Name of the pod's network interface where the namespace has none yet.
const POD_INTERFACE: &str = "eth0";

/// TCP flags that a packet may have, each as one number of FIN, SYN, RST and ACK; none of these where that is
/// not known.
pub type TcpFlags = &'static [u128];

const FIN: u128 = 1;
pub(super) const SYN: u128 = 2;
const RST: u128 = 4;
const ACK: u128 = 16;
/// The flags that are known of a packet behind the first one; PSH, URG and others are not.
pub(super) const KNOWN_FLAGS: u128 = FIN | SYN | RST | ACK;
/// Of the first packet of a connection.
pub(super) const OPENING: TcpFlags = &[SYN];
/// Of its reply.
pub(super) const ACCEPTING: TcpFlags = &[SYN | ACK];
/// Of those behind these two. SYN comes with ACK, and without FIN and RST.
pub(super) const FOLLOWING: TcpFlags = &[ACK, FIN | ACK];
/// Of replies without which there is no connection.
pub(super) const REPLYING: TcpFlags = &[SYN | ACK, ACK, FIN | ACK];
/// Of any packet behind the first one.
const LATER: TcpFlags = &[SYN | ACK, ACK, FIN | ACK, RST | ACK];

/// Owner of the socket that sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// The user of the process.
    pub uid: u32,
    /// The primary group of the process.
    pub gid: u32,
}

/// The first packet of a connection, or a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The sender, in words.
    pub sender: String,
    /// The process that sends it; `None` from outside, or without a socket.
    pub process: Option<Process>,
    /// Whether it comes from outside the network namespace.
    pub is_inbound: bool,
    /// TCP or UDP.
    pub transport: Transport,
    /// From.
    pub source: SocketAddr,
    /// To.
    pub destination: SocketAddr,
    /// Whether its socket is bound to this address: otherwise the kernel chooses one, behind the first
    /// look-up of its route.
    pub has_source: bool,
    /// Whether it is bound to this port.
    pub has_port: bool,
    /// Whether it is asked about on this interface: otherwise its route decides.
    pub has_interface: bool,
    /// Whether the destination is an address of the pod.
    pub is_local: bool,
    /// The interface that it arrives on, or leaves by.
    pub interface: String,
    /// The mark of the packet.
    pub mark: Mark,
    /// Mark of its connection.
    pub connmark: Mark,
    /// State of its connection.
    pub state: ConnectionState,
    /// The TCP flags of the packet, if more is known of them than by the state.
    pub tcp_flags: Option<TcpFlags>,
    /// What its process asked for, where a BPF program at the socket chose another destination.
    pub translated_from: Option<SocketAddr>,
}

impl Packet {
    /// Whether it is of a connection by which the proxy hands on a captured one, from its own address.
    pub(super) fn is_of_passthrough(&self) -> bool {
        [IpAddr::from(PASSTHROUGH_V4), PASSTHROUGH_V6.into()].contains(&self.source.ip())
    }

    /// The packet that is asked about, in this pod.
    #[must_use]
    pub fn of(
        query: &PacketQuery,
        destination: SocketAddr,
        config: &CaptureConfig,
        network: &Network,
    ) -> Self {
        let process = process(query.sender, config);
        let is_inbound = query.sender == Sender::Outside;
        let own = |address: IpAddr| network.addresses.iter().find(move |own| own.address == address);
        let is_local = destination.ip().is_loopback() || own(destination.ip()).is_some() || is_inbound;
        let named = if is_inbound { &query.in_interface } else { &query.out_interface };
        let interface = named.clone().unwrap_or_else(|| match own(destination.ip()) {
            // What is for an address of `lo` arrives by another interface.
            Some(own) if is_inbound && own.interface != "lo" => own.interface.clone(),
            _ if is_local && !is_inbound => "lo".to_owned(),
            Some(_) | None => pod_interface(network, destination),
        });
        let source = query.source.unwrap_or_else(|| source(network, destination, &interface, is_inbound));
        Self {
            sender: sender(query.sender, process),
            process,
            is_inbound,
            transport: query.transport,
            source: SocketAddr::new(source, query.source_port.unwrap_or(CLIENT_PORT)),
            has_source: query.source.is_some(),
            has_port: query.source_port.is_some(),
            has_interface: named.is_some(),
            destination,
            is_local,
            interface,
            mark: query.mark,
            connmark: query.connmark,
            state: query.state,
            tcp_flags: None,
            translated_from: None,
        }
    }

    /// The first packet that a process of the pod sends over `lo`.
    #[must_use]
    pub fn over_lo(
        process: Option<Process>,
        transport: Transport,
        source: IpAddr,
        destination: SocketAddr,
    ) -> Self {
        Self {
            sender: String::new(),
            process,
            is_inbound: false,
            transport,
            source: SocketAddr::new(source, CLIENT_PORT),
            destination,
            has_source: true,
            has_port: true,
            has_interface: true,
            is_local: true,
            interface: "lo".to_owned(),
            mark: Mark(0),
            connmark: Mark(0),
            state: ConnectionState::New,
            tcp_flags: None,
            translated_from: None,
        }
    }

    /// The packet, sent by another process.
    #[must_use]
    pub(super) fn sent_by(self, sender: Sender, process: Option<Process>) -> Self {
        Self { sender: self::sender(sender, process), process, ..self }
    }

    /// The packet, with the destination that rules see.
    #[must_use]
    pub(super) fn translated(mut self, pod: &Pod<'_>) -> Self {
        let servers = pod.live.iter().flat_map(|live| &live.runtime.translated_servers);
        let is_its = |found: &&TranslatedServer| {
            found.server == self.destination && self.transport == Transport::Udp && self.process.is_some()
        };
        if let Some(TranslatedServer { server, to }) = servers.copied().find(|found| is_its(&found)) {
            self.translated_from = Some(server);
            self.is_local = to.ip().is_loopback() || is_own(pod.network, to.ip());
            self.destination = to;
        }
        self
    }

    /// The flags that it may have.
    pub(super) fn possible_flags(&self) -> TcpFlags {
        self.tcp_flags.unwrap_or(match self.state {
            ConnectionState::New => OPENING,
            ConnectionState::Established => LATER,
            ConnectionState::Invalid => &[],
        })
    }

    /// The address family of the packet.
    #[must_use]
    pub const fn family(&self) -> Family {
        if self.destination.is_ipv4() { Family::V4 } else { Family::V6 }
    }
}

impl fmt::Display for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = self.transport.name().to_uppercase();
        let state = match self.state {
            ConnectionState::New => "first packet of a connection",
            ConnectionState::Established => "packet of an established connection",
            ConnectionState::Invalid => "packet in conntrack state INVALID",
        };
        let interface = if self.is_inbound { "arriving on" } else { "leaving by" };
        let (source, destination) = (self.source, self.destination);
        write!(f, "{transport}, {state}, from {} ({source}) to {destination}, ", self.sender)?;
        if let Some(asked) = self.translated_from {
            write!(f, "in the place of {asked}, ")?;
        }
        write!(f, "{interface} {}", self.interface)?;
        for (name, mark) in [("mark", self.mark), ("connection mark", self.connmark)] {
            if mark != Mark(0) {
                write!(f, ", {name} {mark}")?;
            }
        }
        Ok(())
    }
}

fn is_own(network: &Network, address: IpAddr) -> bool {
    network.addresses.iter().any(|own| own.address == address)
}

/// The first user and group of the proxy in the options.
pub(super) fn proxy_owner(config: &CaptureConfig) -> Process {
    let first = |ids: &[u32]| ids.first().copied().unwrap_or_default();
    let proxy = &config.traffic.proxy;
    Process { uid: first(&proxy.uids), gid: first(&proxy.gids) }
}

fn process(sender: Sender, config: &CaptureConfig) -> Option<Process> {
    let exempt = &config.traffic.proxy;
    // An id that is not the proxy's, nor in any list of groups if that can be helped.
    let app = (1000..).find(|id| !exempt.uids.contains(id) && !exempt.gids.contains(id)).unwrap_or(1000);
    match sender {
        Sender::App => Some(Process { uid: app, gid: app }),
        Sender::Proxy => Some(proxy_owner(config)),
        Sender::Uid(uid) => Some(Process { uid, gid: uid }),
        Sender::Gid(gid) => Some(Process { uid: app, gid }),
        Sender::Process { uid, gid } => Some(Process { uid, gid }),
        Sender::Kernel | Sender::Outside => None,
    }
}

fn sender(sender: Sender, process: Option<Process>) -> String {
    let ids = process.map_or_else(String::new, |Process { uid, gid }| format!("uid {uid}, gid {gid}"));
    match sender {
        Sender::App => format!("the app with {ids}"),
        Sender::Proxy => format!("the proxy with {ids}"),
        Sender::Uid(_) | Sender::Gid(_) | Sender::Process { .. } => format!("a process with {ids}"),
        Sender::Kernel => "the kernel, without a socket,".to_owned(),
        Sender::Outside => "outside the pod".to_owned(),
    }
}

/// The interface that has an address of the family, else any but `lo`.
fn pod_interface(network: &Network, destination: SocketAddr) -> String {
    let others = || network.addresses.iter().filter(|own| own.interface != "lo");
    let same_family = others().find(|own| own.address.is_ipv4() == destination.is_ipv4());
    same_family.or_else(|| others().next()).map_or(POD_INTERFACE, |own| &own.interface).to_owned()
}

/// The address that the kernel would choose, or one that represents any client.
fn source(network: &Network, destination: SocketAddr, interface: &str, is_inbound: bool) -> IpAddr {
    let v4 = destination.is_ipv4();
    if is_inbound {
        return any_client(if v4 { Family::V4 } else { Family::V6 });
    }
    if interface == "lo" {
        return match destination.ip() {
            IpAddr::V4(address) if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
            address @ (IpAddr::V4(_) | IpAddr::V6(_)) => address,
        };
    }
    let of =
        |own: &&crate::model::InterfaceAddress| own.address.is_ipv4() == v4 && own.interface == interface;
    let unspecified: IpAddr = if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    network.addresses.iter().find(of).map_or(unspecified, |own| own.address)
}
