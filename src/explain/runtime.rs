//! What runs in the pod beside the rules: who listens on the ports that rules hand packets to, processes
//! whose traffic is not captured because of their user or group, and connections that are older than capture.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::bpf_program::BpfProgram;
use super::listener::{Listener, ListenerProblem};
use super::overview::{has_address, query};
use super::packet::{Packet, Process as Owner};
use super::rules::Rules;
use super::walk::{Sent, Verdict};
use super::{LiveState, Pod};
use crate::config::{CaptureConfig, OwnerGroups, PacketQuery, Sender};
use crate::facts::NameServers;
use crate::finding::{Finding, Problem};
use crate::model::{
    DNS_CAPTURE_PORT, Family, Network, PASSTHROUGH_V4, PASSTHROUGH_V6, Port, Protocol, Transport,
};
use crate::ordered::Ordered as _;
use crate::routing;
use crate::text::one_line;

/// What was found in the network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// The sockets that wait for packets; `None` if they cannot be listed.
    pub listeners: Option<Vec<Listener>>,
    /// The processes that run as a user or a group of the proxy.
    pub processes: Vec<Process>,
    /// The user and the group of the process that listens on the proxy's ports, if rules do not exempt them.
    pub captured_proxy: Option<Owner>,
    /// The user and the group of the process of the app that listens on the lowest port.
    pub app: Option<Owner>,
    /// The TCP ports that the containers of the pod declare; none if that is not known.
    pub declared_ports: Vec<u16>,
    /// Open TCP connections with other hosts whose destination is not translated.
    pub connections: Vec<Connection>,
    /// The name servers whose queries get another destination before the rules.
    pub translated_servers: Vec<TranslatedServer>,
    /// BPF programs that may decide over packets.
    pub programs: Vec<BpfProgram>,
    /// The name servers that `/etc/resolv.conf` names; none if that is not known.
    pub name_servers: NameServers,
}

/// A name server in whose place a BPF program at the sockets of the pod chooses another destination, as
/// Cilium and Calico do with the addresses of services. Rules for the server's address see none of its
/// queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TranslatedServer {
    /// The address that resolvers are given, with port 53.
    pub server: SocketAddr,
    /// Where their queries go.
    pub to: SocketAddr,
}

impl From<&TranslatedServer> for Finding {
    fn from(TranslatedServer { server, to }: &TranslatedServer) -> Self {
        let cause = format!(
            "DNS queries over UDP to {} are NOT captured: a BPF program at the sockets of the pod (load balancing of Cilium or Calico, for \
             instance) sends them to {to}, before the rules",
            server.ip()
        );
        Self::new(Problem::DnsTranslated, cause).advice(": --capture-all-dns captures them there")
    }
}

impl fmt::Display for TranslatedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Finding::from(self).fmt(f)
    }
}

impl Runtime {
    /// The processes of the app that run as a user or a group of the proxy.
    pub(super) fn app_as_proxy(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|process| process.is_proxy == Some(false))
    }
}

impl Process {
    /// The finding that the traffic of the process is not captured.
    pub(super) fn finding(&self) -> Finding {
        let Self { pid, name, uid, gid, .. } = self;
        let name = one_line(name);
        let cause = format!("process {pid} ({name}) is not captured: it runs as uid {uid}, gid {gid}");
        Finding::new(Problem::AppAsProxy, cause)
    }
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
    /// The user of the process.
    pub uid: u32,
    /// The group of the process.
    pub gid: u32,
    /// Whether it is in the container in which the proxy listens; `None` if that container is not known.
    pub is_proxy: Option<bool>,
}

/// A TCP connection of a process of the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The pod's end.
    pub local: SocketAddr,
    /// The peer's end.
    pub remote: SocketAddr,
    /// The user of its socket.
    pub uid: u32,
}

/// A port of the proxy that live rules hand packets to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyPort {
    /// What it is for.
    pub name: &'static str,
    /// TCP or UDP.
    pub transport: Transport,
    /// The number of the port.
    pub port: Port,
    /// The family of the rules.
    pub family: Family,
    /// The socket that takes packets there.
    pub listener: Option<Listener>,
    /// What is wrong with it.
    pub problem: Option<ListenerProblem>,
}

/// What a port of the proxy is for.
pub(super) fn port_name(port: Port, config: &CaptureConfig) -> Option<&'static str> {
    match port {
        port if port == config.traffic.ports.outbound => Some("outbound"),
        port if port == config.traffic.ports.inbound => Some("inbound"),
        DNS_CAPTURE_PORT => Some("DNS"),
        _ => None,
    }
}

/// The ports of the proxy in use; empty if sockets cannot be listed. A proxy has no listeners for a family of
/// which the pod has no address: Envoy in a pod with IPv6 addresses only listens on `::` for IPv6 alone.
pub(super) fn proxy_ports(live: &LiveState, pod: &Pod<'_>) -> Vec<ProxyPort> {
    let (config, network) = (pod.config, pod.network);
    let Some(listeners) = &live.runtime.listeners else { return Vec::new() };
    let has_any = Family::ALL.into_iter().any(|family| has_address(network, family));
    let mut ports = Vec::new();
    for (family, rules) in live.rules.iter().filter(|(family, _)| !has_any || has_address(network, **family))
    {
        let tproxy =
            targets(rules).filter(|target| target.is_tproxy).map(|target| target.port.number()).into_set();
        let targets = targets(rules).map(|target| (target.port.number(), target.is_udp)).into_set();
        for (number, is_udp) in targets {
            let Some(port) = Port::new(number) else { continue };
            let transport = if is_udp { Transport::Udp } else { Transport::Tcp };
            let name = port_name(port, config).unwrap_or("proxy");
            let wanted = |listener: &&Listener| {
                listener.transport == transport
                    && listener.address.port() == number
                    && listener.serves(*family)
            };
            // One for every address says more than one for a single address, but a datagram goes to that.
            let rank = |found: &&Listener| {
                let ip = found.address.ip();
                (is_udp && ip.is_loopback(), ip.is_unspecified())
            };
            let listener = listeners.iter().filter(wanted).max_by_key(rank);
            let problem = problem(listener, name, pod, live).or_else(|| {
                let Listener { is_transparent, is_mptcp, address, .. } = listener?;
                // A proxy may have several for one address, of which the kernel chooses one.
                if listeners.iter().filter(wanted).any(|found| found.is_full) {
                    return Some(ListenerProblem::QueueFull);
                }
                match tproxy.contains(&number) {
                    true => (*is_transparent == Some(false)).then_some(ListenerProblem::NotTransparent),
                    false if is_udp => {
                        address.ip().is_unspecified().then_some(ListenerProblem::AnswersFromPod)
                    }
                    false => is_mptcp.then_some(ListenerProblem::TakesMptcp),
                }
            });
            ports.push(ProxyPort {
                name,
                transport,
                port,
                family: *family,
                listener: listener.copied(),
                problem,
            });
        }
    }
    ports
}

/// What keeps a captured packet from the port that it goes to, whatever listens there.
pub(super) fn problem_of_way(packet: &Packet, (to, port): (IpAddr, Port), pod: &Pod<'_>) -> Option<String> {
    let live = pod.live.as_ref()?;
    if packet.is_inbound && packet.transport == Transport::Tcp {
        let is_tproxy = live.routed_mark.is_some();
        let problem = routing::drops(packet.family(), &live.links, &packet.interface, is_tproxy);
        if problem.is_some() {
            return problem;
        }
    }
    let of_interfaces =
        if packet.is_inbound { unbound_passthrough(packet.family(), pod) } else { loopback_problem(to, pod) };
    if of_interfaces.is_some() {
        return of_interfaces;
    }
    if let (false, IpAddr::V6(to)) = (packet.is_inbound, packet.destination.ip())
        && to.is_unicast_link_local()
    {
        let fix = if port == DNS_CAPTURE_PORT {
            "name a server with another address in /etc/resolv.conf, or capture no DNS"
        } else {
            "-x fe80::/10 excludes these addresses"
        };
        return Some(format!(
            "a socket for the link-local address {to} is bound to its interface, by which the kernel then sends the redirected packet: it is \
             lost; {fix}"
        ));
    }
    None
}

/// What is wrong with the listener on the port that a captured packet goes to.
pub(super) fn problem_of_listener(packet: &Packet, port: Port, pod: &Pod<'_>) -> Option<ListenerProblem> {
    let ports = proxy_ports(pod.live.as_ref()?, pod);
    let of_packet = |found: &ProxyPort| {
        (found.port, found.transport, found.family) == (port, packet.transport, packet.family())
    };
    ports.into_iter().find(of_packet)?.problem
}

/// What keeps the proxy from its connections to the app, with the command that mends it.
pub(super) fn unbound_passthrough(family: Family, pod: &Pod<'_>) -> Option<String> {
    passthrough_problem(family, pod).map(|(cause, command)| format!("{cause}; `{command}`"))
}

/// What keeps the proxy from its connections to the app, for which it binds `127.0.0.6` or `::6`: the address
/// is not the pod's. The command that mends it.
pub(super) fn passthrough_problem(family: Family, pod: &Pod<'_>) -> Option<(String, String)> {
    let live = pod.live.as_ref()?;
    let (address, is_absent, added): (IpAddr, _, _) = match family {
        Family::V4 => {
            let fib = live.fib.get(&family);
            let lacks = |address: Ipv4Addr| routing::is_local(fib, address.into()) == Some(false);
            // With TPROXY the proxy has the client's address. Without any address of lo, that is named.
            let is_absent =
                live.routed_mark.is_none() && lacks(PASSTHROUGH_V4) && !lacks(Ipv4Addr::LOCALHOST);
            (PASSTHROUGH_V4.into(), is_absent, "ip addr add 127.0.0.1/8")
        }
        Family::V6 => {
            let is_present = pod.network.addresses.iter().any(|own| own.address == PASSTHROUGH_V6);
            (PASSTHROUGH_V6.into(), !is_present, "ip -6 addr add ::6/128")
        }
    };
    let problem = || {
        let cause =
            format!("{address} is not on lo: the proxy binds to it for connections to the app, which fail");
        (cause, format!("{added} dev lo"))
    };
    (is_absent && live.rules.get(&family)?.looks_for(address)).then(problem)
}

/// What keeps packets of the pod's own processes from the proxy, and from the pod itself: they get there by
/// `lo`. `to` is where they go by the rules.
pub(super) fn loopback_problem(to: IpAddr, pod: &Pod<'_>) -> Option<String> {
    let live = pod.live.as_ref()?;
    let family = if to.is_ipv4() { Family::V4 } else { Family::V6 };
    let unrouted = || routing::loopback_unrouted(family, live.fib.get(&family)).filter(|_| to.is_loopback());
    routing::loopback_down(&live.links).or_else(unrouted)
}

/// A port that a rule hands packets to.
struct ToPort {
    port: Port,
    is_udp: bool,
    is_tproxy: bool,
}

fn targets(rules: &Rules) -> impl Iterator<Item = ToPort> {
    let entries = rules.tables.values().flat_map(|chains| chains.hooks.values().chain(chains.named.values()));
    let ours = entries.flatten().filter(|entry| !entry.is_foreign());
    ours.filter_map(|entry| {
        let statement = entry.statement()?;
        let is_udp = |protocol: &Protocol| protocol.transport == Transport::Udp;
        let is_udp = statement.matcher.protocol.as_ref().is_some_and(is_udp);
        let tproxy = statement.target.tproxy();
        let port = statement.target.redirect().or(tproxy)?;
        Some(ToPort { port, is_udp, is_tproxy: tproxy.is_some() })
    })
}

fn problem(
    listener: Option<&Listener>,
    name: &str,
    pod: &Pod<'_>,
    live: &LiveState,
) -> Option<ListenerProblem> {
    let Some(Listener { address, uid, is_exempt, .. }) = listener else {
        return Some(ListenerProblem::Absent);
    };
    if name == "inbound" && address.ip().is_loopback() {
        return Some(ListenerProblem::OnlyFor(address.ip()));
    }
    let uids = &pod.config.traffic.proxy.uids;
    // A proxy that root starts binds its ports before it becomes another user.
    let is_root = *uid == 0 && live.runtime.captured_proxy.is_none();
    let is_other = !is_root && !is_exempt && !uids.contains(uid);
    is_other.then(|| ListenerProblem::OtherUser { uid: *uid, wanted: uids.clone() })
}

/// Processes beside the proxy whose traffic is not captured.
pub(super) fn exempt_processes(live: &LiveState) -> Vec<&Process> {
    live.runtime.processes.iter().filter(|process| process.is_proxy != Some(true)).collect()
}

/// Connections that would be captured if they began now. The kernel lists sockets without their group: where
/// rules ask for groups, that is not known of outbound ones.
#[must_use]
pub fn older_than_capture<'a>(
    live: &'a LiveState,
    config: &CaptureConfig,
    network: &Network,
) -> Vec<&'a Connection> {
    let proxy = &config.traffic.proxy;
    let may_be_exempt = |uid: u32| {
        proxy.uids.contains(&uid)
            || live
                .runtime
                .processes
                .iter()
                .any(|process| process.uid == uid && proxy.gids.contains(&process.gid))
    };
    let all_groups = OwnerGroups::All { except: Vec::new() };
    let asks_for_groups = config.traffic.outbound.owners != all_groups;
    let listens = |port: u16| {
        let listeners = live.runtime.listeners.iter().flatten();
        listeners
            .filter(|listener| listener.transport == Transport::Tcp)
            .any(|found| found.address.port() == port)
    };
    let is_older = |connection: &&Connection| {
        let Connection { local, remote, uid } = **connection;
        let packet = if listens(local.port()) {
            // In TPROXY mode the proxy's own connections to the app have the client's address.
            if live.routed_mark.is_some() {
                return false;
            }
            let query = PacketQuery {
                source: Some(remote.ip()),
                source_port: Some(remote.port()),
                ..query(Sender::Outside)
            };
            Packet::of(&query, local, config, network)
        } else {
            if may_be_exempt(uid) || asks_for_groups {
                return false;
            }
            let query = PacketQuery {
                source: Some(local.ip()),
                source_port: Some(local.port()),
                ..query(Sender::Uid(uid))
            };
            Packet::of(&query, remote, config, network)
        };
        let (rules, routing) = (live.rules.get(&packet.family()), live.routing(packet.family()));
        let packet = packet.by_route(routing);
        let verdict = |rules| Sent::of(rules, &packet, routing).walk_with(&[]).verdict;
        rules.is_some_and(|rules| matches!(verdict(rules), Verdict::Captured(_)))
    };
    live.runtime.connections.iter().filter(is_older).collect()
}
