//! Packets that the kernel drops because of their addresses: what arrives from other hosts (martians, the
//! reverse path filter) or for a loopback address, and, in IPv4, what is sent from a loopback address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::matching::PacketState;
use super::routing::{Looked, Routing, back, protocol, words};
use crate::model::{
    DEFAULT_TABLE, Family, Fib, FibRoute, LOCAL_TABLE, Link, MAIN_TABLE, PolicyAction, RouteKind,
};
use crate::routing::{Found, lookup};
use crate::text::one_line;

/// `RTPROT_KERNEL`: routes that the kernel makes.
const OF_KERNEL: u8 = 2;

impl Routing<'_> {
    /// Why the kernel sends no IPv4 packet of a process from this address by a route, if it does not
    /// (`__mkroute_output` in net/ipv4/route.c).
    pub(super) fn refuses_source(&self, looked: &Looked<'_>, source: IpAddr) -> Option<String> {
        let Found::Route(route) = looked.lookup.decisive.as_ref()?.found else { return None };
        let link = self.links?.named(route.interface.as_deref().filter(|name| *name != "lo")?)?;
        let is_refused = source.is_ipv4() && source.is_loopback() && !link.routes_to_loopback;
        let name = one_line(&link.name);
        is_refused.then(|| {
            format!(
                "the kernel sends nothing from {source} by {name} (EINVAL): net.ipv4.conf.{name}.route_localnet is 0"
            )
        })
    }

    /// Why the kernel drops a packet that arrives, if it does (IPv4: `ip_route_input_slow` in
    /// net/ipv4/route.c).
    pub(super) fn rejects(&self, at: &PacketState) -> Option<String> {
        let link = self.links?.named(at.in_interface.as_deref().filter(|name| *name != "lo")?)?;
        let name = one_line(&link.name);
        let (source, destination) = match (at.source.ip(), at.destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => (source, destination),
            (_, IpAddr::V6(Ipv6Addr::LOCALHOST)) => {
                let why = link.refuses_loopback(Family::V6, &name)?;
                return Some(format!("the kernel drops what arrives on {name} for ::1: {why}"));
            }
            (_, IpAddr::V4(_) | IpAddr::V6(_)) => return None,
        };
        let why = if source.is_multicast() || source.is_broadcast() || source.is_unspecified() {
            Some("no host has this address".to_owned())
        } else if source.is_loopback() && !destination.is_loopback() && !link.routes_to_loopback {
            Some(format!("net.ipv4.conf.{name}.route_localnet is 0"))
        } else {
            None
        };
        let why = why.map(|why| {
            format!("the kernel drops what arrives on {name} from {source} (a martian source): {why}")
        });
        why.or_else(|| to_no_host(link, destination)).or_else(|| self.rejects_source(at, link))
    }

    /// `fib_validate_source` in net/ipv4/fib_frontend.c: another way leads to the source, or it is an address
    /// of this machine.
    fn rejects_source(&self, at: &PacketState, link: &Link) -> Option<String> {
        let (fib, source, name) = (self.fib?, at.source.ip(), link.name.as_str());
        let (own, all) = (link.settings, self.links?.all);
        let filter = own.rp_filter.max(all.rp_filter);
        let accepts_local = own.accepts_local || all.accepts_local;
        let mark =
            if own.uses_mark || all.uses_mark { at.has_known_marks.then_some(at.mark.0) } else { Some(0) };
        let lookup = lookup(fib, &back(at.destination.ip(), source, (mark, protocol(at.transport))));
        let shown = one_line(name);
        let martian = |why: &str| {
            Some(format!(
                "the kernel drops what arrives on {shown} from {source} (a martian source): it is {why}"
            ))
        };
        let way = match lookup.decisive.as_ref() {
            _ if !lookup.uncertain.is_empty() => return None,
            _ if lookup.is_own_address() && !accepts_local => {
                return martian(&format!(
                    "an address of the pod itself, and net.ipv4.conf.{shown}.accept_local is 0"
                ));
            }
            // Without custom rules the kernel looks for own addresses only.
            _ if filter == 0 && (accepts_local || !is_custom(fib)) => return None,
            Some(tried) if tried.found.kind() == Some(RouteKind::Other) => {
                return martian("a broadcast address");
            }
            _ if filter == 0 => return None,
            None => "there is no route".to_owned(),
            Some(tried) if lookup.kind().is_some_and(RouteKind::is_rejecting) => words(tried),
            Some(tried) => match tried.found {
                Found::Route(FibRoute { kind: RouteKind::Unicast, interface: Some(other), .. })
                    if filter == 1 && other != name =>
                {
                    words(tried)
                }
                Found::Route(_) | Found::Rejected(_) | Found::Unknown => return None,
            },
        };
        let setting = one_line(if all.rp_filter >= own.rp_filter { "all" } else { name });
        Some(format!(
            "net.ipv4.conf.{setting}.rp_filter={filter} drops what arrives on {shown} from {source}, to which another way leads: {way}"
        ))
    }
}

/// Why the kernel drops what arrives for an address that no interface but `lo` may have, if it does.
pub(super) fn to_no_host(link: &Link, to: Ipv4Addr) -> Option<String> {
    let name = one_line(&link.name);
    let why = if to.is_unspecified() {
        "no host has this address".to_owned()
    } else if to.is_loopback() {
        link.refuses_loopback(Family::V4, &name)?
    } else {
        return None;
    };
    Some(format!("the kernel drops what arrives on {name} for {to}: {why}"))
}

/// Whether policy rules or local routes are others than those of the kernel.
fn is_custom(fib: &Fib) -> bool {
    let tables = [LOCAL_TABLE, MAIN_TABLE, DEFAULT_TABLE].map(PolicyAction::Table);
    let is_local = |route: &FibRoute| route.kind == RouteKind::Local && route.origin != OF_KERNEL;
    !fib.rules.iter().map(|rule| rule.action).eq(tables) || fib.routes.iter().any(is_local)
}
