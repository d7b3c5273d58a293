//! Ports of the app whose connections no process takes.

use std::net::{IpAddr, SocketAddr};

use super::listener::Listener;
use super::overview::passthrough_query;
use super::packet::Packet;
use super::walk::{Sent, Verdict, Walk, walk};
use super::{LiveState, Pod};
use crate::config::ConnectionState;
use crate::finding::{Finding, Problem};
use crate::model::{Family, Network, Transport};

/// The finding that no process takes the connection of a client.
pub(super) fn unserved(
    packet: &Packet,
    taken: &Walk<'_>,
    live: &LiveState,
    pod: &Pod<'_>,
) -> Option<Finding> {
    let (to, of_pod) = (packet.destination, addresses(pod.network));
    // Where a foreign rule sends it, the verdict says whether something listens.
    if taken.verdict == Verdict::TakenByForeignRule && taken.end.destination != to {
        return None;
    }
    let wanted = if of_pod.contains(&to.ip()) { vec![to.ip()] } else { of_pod };
    let proxy = matches!(taken.verdict, Verdict::Captured(_)).then_some(pod);
    app_not_listening(to.port(), &wanted, live, proxy)
}

/// The way of a captured packet that no process takes, by foreign rules alone, if one of them would send it
/// to another port or address.
pub(super) fn forwarded_behind<'a>(
    packet: &Packet,
    taken: &Walk<'_>,
    live: &'a LiveState,
    pod: &Pod<'_>,
) -> Option<(Finding, Walk<'a>)> {
    let is_of_client = packet.is_inbound
        && (packet.transport, packet.state) == (Transport::Tcp, ConnectionState::New)
        && matches!(taken.verdict, Verdict::Captured(_));
    let (rules, routing) = (live.rules.get(&packet.family())?, live.routing(packet.family()));
    rules.foreign().first().filter(|_| is_of_client)?;
    let unserved = unserved(packet, taken, live, pod)?;
    let sent = Sent::of(rules, packet, routing);
    let walk = sent.without_ours();
    let is_forwarded =
        walk.verdict == Verdict::TakenByForeignRule && walk.end.destination != packet.destination;
    is_forwarded.then_some((unserved, walk))
}

/// A port of the app without a listener for one of these addresses, at which the proxy of `pod` calls it, if
/// one does. A process may begin to listen later: the kernel refuses connections until then.
pub(super) fn app_not_listening(
    port: u16,
    wanted: &[IpAddr],
    live: &LiveState,
    proxy: Option<&Pod<'_>>,
) -> Option<Finding> {
    let listeners = live.runtime.listeners.as_ref()?;
    let is_served = |to| listener_at(to, Transport::Tcp, listeners).is_some();
    let is_here = |to: &SocketAddr| to.ip().is_loopback() || wanted.contains(&to.ip());
    let on_port = |found: &&Listener| found.transport == Transport::Tcp && found.address.port() == port;
    let found: Vec<&Listener> = listeners.iter().filter(on_port).collect();
    let reaches = |address: &IpAddr| {
        let to = SocketAddr::new(*address, port);
        is_served(to)
            || proxy.and_then(|pod| handed_on(to, live, pod)).is_some_and(|to| is_served(to) || !is_here(&to))
    };
    if (wanted.is_empty() && !found.is_empty()) || wanted.iter().any(reaches) {
        return None;
    }
    let cause = match (found.first(), wanted) {
        (Some(elsewhere), [to, ..]) => format!(
            "TCP port {port} of the app is open at {} only: the proxy cannot connect to it at {to}",
            elsewhere.address.ip()
        ),
        _ => format!("no process listens on TCP port {port}: the proxy cannot connect to the app there"),
    };
    Some(Finding::new(Problem::AppNotListening, cause))
}

/// The socket that takes what is for this address and port.
pub(super) fn listener_at(to: SocketAddr, transport: Transport, listeners: &[Listener]) -> Option<&Listener> {
    let is_it = |found: &&Listener| {
        (found.transport, found.address.port()) == (transport, to.port())
            && found.serves(Family::of(to.ip()))
            && found.takes(to, None)
    };
    listeners.iter().find(is_it)
}

/// Where a foreign rule sends what the proxy hands on to the app.
fn handed_on(to: SocketAddr, live: &LiveState, pod: &Pod<'_>) -> Option<SocketAddr> {
    let question = passthrough_query(Family::of(to.ip()));
    let packet = Packet::of(&question, to, pod.config, pod.network).with_defaults(&question, pod);
    let packet = pod.prepared(packet);
    let last = walk(live.rules.get(&packet.family())?, &packet, live.routing(packet.family()));
    (last.verdict == Verdict::TakenByForeignRule).then_some(last.end.destination)
}

/// The addresses at which others reach the pod.
pub(super) fn addresses(network: &Network) -> Vec<IpAddr> {
    network.addresses.iter().filter(|own| own.is_of_pod()).map(|own| own.address).collect()
}
