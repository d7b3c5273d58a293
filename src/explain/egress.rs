//! Filters of what leaves the pod: rules by which packets to a port of any host end. They are for calls of
//! servers; the pod's own processes are hit only where one of them listens on the port.

use std::net::SocketAddr;

use super::defaults::default_server;
use super::listener::Listener;
use super::overview::query;
use super::packet::Packet;
use super::rules::POSTROUTING;
use super::walk::{Walk, walk};
use super::{LiveState, Pod};
use crate::config::{CaptureConfig, InboundPorts, Sender};
use crate::model::{Family, Hook, Transport};

/// Whether what the proxy sends to the pod ends by a rule that ends the same call of a server, and the port
/// is none of the app, as far as that is known.
pub(super) fn is_egress_filter(packet: &Packet, sent: &Walk<'_>, pod: &Pod<'_>) -> bool {
    let Some(live) = &pod.live else { return false };
    let (family, port) = (packet.family(), packet.destination.port());
    let is_to_pod = packet.is_local && !packet.is_inbound && packet.transport == Transport::Tcp;
    let sends = [Hook::Output.name(), POSTROUTING];
    let by = sent.decisive().filter(|step| is_to_pod && step.rule.is_foreign() && sends.contains(&step.hook));
    let is_of_app = || live.app_port(family, pod.config, &|known| known == port).is_some();
    let Some(by) = by.filter(|_| !is_of_app()) else { return false };
    let (query, to) = (query(Sender::Proxy), SocketAddr::new(default_server(pod, family), port));
    let call = Packet::of(&query, to, pod.config, pod.network).with_defaults(&query, pod);
    let call = pod.prepared(call);
    let called = live.rules.get(&family).map(|rules| walk(rules, &call, live.routing(family)));
    called.is_some_and(|called| {
        called.decisive().is_some_and(|step| step.hook == by.hook && std::ptr::eq(step.rule, by.rule))
    })
}

impl LiveState {
    /// A captured port among the wanted ones that is known to be one of the app: the options name it, or a
    /// process other than the proxy listens there.
    pub(super) fn app_port(
        &self,
        family: Family,
        config: &CaptureConfig,
        is_wanted: &dyn Fn(u16) -> bool,
    ) -> Option<u16> {
        let CaptureConfig { traffic, .. } = config;
        let named: &[_] = if let InboundPorts::Only(ports) = &traffic.inbound { ports } else { &[] };
        let of_app = |found: &&Listener| found.serves(family) && !traffic.proxy.uids.contains(&found.uid);
        let listeners = self.tcp_listeners.iter().flatten().filter(of_app);
        let mut ports =
            named.iter().map(|port| port.number()).chain(listeners.map(|found| found.address.port()));
        ports.find(|port| traffic.inbound.captures(*port) && is_wanted(*port))
    }
}
