//! Whether a captured packet reaches the listener on the port that it is for.

use std::net::SocketAddr;

use super::LiveState;
use super::listener::Listener;
use super::packet::Packet;
use super::walk::Walk;
use crate::model::Port;
use crate::ordered::Ordered as _;
use crate::text::one_line;

/// Why no listener on the port takes a captured packet as it is by then, if each of them is for another
/// address or interface.
pub(super) fn out_of_reach(
    packet: &Packet,
    (taken, port): (&Walk<'_>, Port),
    live: &LiveState,
) -> Option<String> {
    let on_port = live.runtime.listeners.iter().flatten().filter(|found| {
        (found.transport, found.address.port()) == (packet.transport, port.number())
            && found.serves(packet.family())
    });
    let listeners: Vec<&Listener> = on_port.collect();
    let name = taken.end.in_interface.as_deref()?;
    let to = if taken.has_socket {
        // TPROXY looks for a socket at an address of the interface.
        let own = live.routing(packet.family()).own_address(name, packet.destination.ip());
        SocketAddr::new(own.unwrap_or(packet.destination.ip()), port.number())
    } else {
        taken.end.destination
    };
    let device = live.links.named(name).map(|link| link.index);
    if listeners.is_empty() || listeners.iter().any(|listener| listener.takes(to, device)) {
        return None;
    }
    let scope = |listener: &&Listener| {
        let address = listener.address.ip();
        let address = if address.is_unspecified() { "any address".to_owned() } else { address.to_string() };
        let bound = live.links.each.iter().find(|link| Some(link.index) == listener.device);
        bound.map_or_else(|| address.clone(), |link| format!("{address} on {}", one_line(&link.name)))
    };
    let scopes: Vec<String> = listeners.iter().map(scope).into_set().into_iter().collect();
    Some(format!(
        "the listener there takes packets for {} only, and this one is for {} on {}",
        scopes.join(", "),
        to.ip(),
        one_line(name)
    ))
}
