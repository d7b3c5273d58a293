//! The source address that the kernel gives what a socket sends that is not bound to one.

use std::net::{IpAddr, Ipv6Addr};

use super::lookup::{Found, Lookup};
use crate::model::{Fib, FibRoute, RouteKind, SourceAddress};

/// The scope of an address or a route of IPv4 that is valid on its link only.
const LINK: u8 = 253;
/// An address of IPv6 for this machine, for the link, for every place: numbers of RFC 4291.
const MACHINE: u8 = 1;
const ON_LINK: u8 = 2;
const SITE: u8 = 5;
const GLOBAL: u8 = 14;

/// The source of a packet with this destination, which IPv6 chooses without a route, too; `None` if none is
/// known.
#[must_use]
pub fn source(fib: &Fib, found: &Lookup<'_>, destination: IpAddr) -> Option<IpAddr> {
    let Some(Found::Route(route)) = found.decisive.map(|tried| tried.found) else {
        return if let IpAddr::V6(address) = destination { v6(fib, None, address) } else { None };
    };
    match destination {
        _ if route.source.is_some() => route.source,
        IpAddr::V4(_) if route.kind == RouteKind::Local => Some(destination),
        IpAddr::V4(_) => v4(fib, route),
        IpAddr::V6(address) if route.kind.is_rejecting() => v6(fib, None, address),
        IpAddr::V6(address) => v6(fib, route.interface.as_deref(), address),
    }
}

/// `inet_select_addr` in net/ipv4/devinet.c.
fn v4(fib: &Fib, route: &FibRoute) -> Option<IpAddr> {
    let fits = |own: &&SourceAddress| !own.is_secondary && own.scope.min(LINK) <= route.scope;
    let of_route = || {
        let interface = route.interface.as_deref();
        fib.addresses.iter().filter(fits).filter(move |own| Some(own.interface.as_str()) == interface)
    };
    let has_router = |own: &&SourceAddress| route.gateway.is_some_and(|gateway| is_in(own, gateway));
    let elsewhere = |own: &&SourceAddress| own.scope != LINK && own.scope <= route.scope;
    let found = of_route().find(has_router).or_else(|| of_route().next());
    found.or_else(|| fib.addresses.iter().filter(fits).find(elsewhere)).map(|own| own.address)
}

fn is_in(own: &SourceAddress, address: IpAddr) -> bool {
    ipnetwork::IpNetwork::new(own.address, own.prefix).is_ok_and(|network| network.contains(address))
}

/// RFC 6724, as `ipv6_dev_get_saddr` in net/ipv6/addrconf.c has it, without temporary addresses. Of equal
/// ones the first is taken.
fn v6(fib: &Fib, interface: Option<&str>, destination: Ipv6Addr) -> Option<IpAddr> {
    let is_of_link = scope(destination) <= ON_LINK;
    let is_by = |own: &SourceAddress| interface.is_none_or(|name| name == own.interface);
    let score = |own: &SourceAddress| {
        let IpAddr::V6(address) = own.address else { return None };
        let own_scope = i16::from(scope(address));
        let distance = if own_scope >= i16::from(scope(destination)) { -own_scope } else { own_scope - 128 };
        let is_preferred = !own.is_deprecated || address.is_loopback() || is_v4_compatible(address);
        let common = (u128::from(address) ^ u128::from(destination)).leading_zeros();
        Some((
            address == destination,
            distance,
            is_preferred,
            is_by(own),
            label(address) == label(destination),
            common.min(own.prefix.into()),
        ))
    };
    let candidates = fib.addresses.iter().filter(|own| !own.is_tentative && (!is_of_link || is_by(own)));
    let scored = candidates.filter_map(|own| Some((score(own)?, own.address)));
    scored.reduce(|best, next| if next.0 > best.0 { next } else { best }).map(|(_, address)| address)
}

/// Where an address is valid.
const fn scope(address: Ipv6Addr) -> u8 {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => MACHINE,
        [first, ..] if first & 0xffc0 == 0xfe80 => ON_LINK,
        [first, ..] if first & 0xffc0 == 0xfec0 => SITE,
        _ => GLOBAL,
    }
}

const fn is_v4_compatible(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [0, 0, 0, 0, 0, 0, _, _])
}

/// The default address labels of the kernel: `ip6addrlbl_init_table` in net/ipv6/addrlabel.c.
const fn label(address: Ipv6Addr) -> u8 {
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => 0,
        [0, 0, 0, 0, 0, 0, _, _] => 3,
        [0, 0, 0, 0, 0, 0xffff, _, _] => 4,
        [0x2002, ..] => 2,
        [0x2001, 0, ..] => 6,
        [0x2001, second, ..] if second & 0xfff0 == 0x10 => 7,
        [0x3ffe, ..] => 12,
        [first, ..] if first & 0xffc0 == 0xfec0 => 11,
        [first, ..] if first & 0xfe00 == 0xfc00 => 5,
        _ => 1,
    }
}
