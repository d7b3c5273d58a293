//! Why a packet is not sent, or does not arrive.

use std::net::IpAddr;

use super::super::routing::Looked;
use super::{Step, Verdict, Walker};
use crate::model::{RouteKind, Transport};
use crate::routing::Found;

impl Walker<'_, '_> {
    /// Whether it is a TCP packet to a broadcast or multicast address.
    pub(super) fn is_for_several_hosts(&self) -> bool {
        let is_other = |looked: &Looked<'_>| looked.lookup.kind() == Some(RouteKind::Other);
        let is_meant = match self.at.destination.ip() {
            IpAddr::V4(address) => address.is_multicast() || address.is_broadcast(),
            IpAddr::V6(address) => address.is_multicast(),
        };
        self.packet.transport == Transport::Tcp && (is_meant || self.routed.last().is_some_and(is_other))
    }

    /// The kernel refuses to connect it to several hosts.
    pub(super) fn not_connected(&mut self) -> Verdict {
        let destination = self.packet.destination.ip();
        self.because =
            Some(format!("{destination} is for several hosts: connecting to it by TCP fails (ENETUNREACH)"));
        Verdict::NoRoute
    }

    /// What arrives by TCP for several hosts opens no connection, whichever socket TPROXY gives it; nor does
    /// what has an invalid address.
    pub(super) fn rejected(&mut self) -> Option<Verdict> {
        let destination = self.at.destination.ip();
        let is_for_several = self.packet.is_inbound && self.is_for_several_hosts();
        let several =
            || format!("{destination} is for several hosts: the kernel makes no TCP connection to it");
        let why = self.routing.rejects(&self.at).or_else(|| is_for_several.then(several))?;
        let by = self.translated_by.and_then(|step| self.steps.get(step)).map(Step::words);
        let by = by.map(|rule| format!("; a foreign rule gave it this destination: {rule}"));
        (self.because, self.is_invalid) = (Some(why + by.as_deref().unwrap_or_default()), true);
        Some(Verdict::Dropped)
    }

    /// The proxy does not get the packet although a rule sends it there.
    pub(super) fn misrouted(&mut self) -> Verdict {
        let decisive = self.routed.last().and_then(Looked::words);
        let decisive = decisive.unwrap_or_else(|| "no policy rule leads to a route for it".to_owned());
        self.because = Some(format!("policy routing does not bring it to the proxy: {decisive}"));
        Verdict::Misrouted
    }

    /// What a route sends to `lo` and is not for this machine, the kernel throws away there.
    pub(super) fn looped(&mut self) -> Option<Verdict> {
        let looked = self.routed.last()?;
        let Found::Route(route) = looked.lookup.decisive.as_ref()?.found else { return None };
        if route.kind != RouteKind::Unicast || route.interface.as_deref() != Some("lo") {
            return None;
        }
        let decisive = looked.words().unwrap_or_default();
        self.because = Some(format!(
            "it is sent to lo, which does not deliver to {}: {decisive}",
            self.at.destination.ip()
        ));
        Some(Verdict::Misrouted)
    }

    /// The kernel refuses to send the packet, or throws it away when it has arrived.
    pub(super) fn no_route(&mut self) -> Verdict {
        let destination = self.at.destination.ip();
        let failure = if self.packet.is_inbound { "" } else { ": sending it fails (ENETUNREACH)" };
        self.because = Some(format!("no policy rule leads to a route to {destination}{failure}"));
        Verdict::NoRoute
    }

    /// A rule of the output hook has changed the packet, and there is no route for what it is now.
    pub(super) fn unroutable(&mut self) -> Verdict {
        if self.is_for_proxy() { self.misrouted() } else { self.no_route() }
    }
}
