//! The addresses of a client, a server and a pod of which none is given: those for documentation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use crate::model::Family;

/// An address in each family.
pub(super) type Host = (Ipv4Addr, Ipv6Addr);

const fn host(v4: [u8; 4], [first, second, third, last]: [u16; 4]) -> Host {
    let [a, b, c, d] = v4;
    (Ipv4Addr::new(a, b, c, d), Ipv6Addr::new(first, second, third, 0, 0, 0, 0, last))
}

/// Addresses for documentation (RFC 5737, RFC 3849 and RFC 9637).
const CLIENT: Host = host([192, 0, 2, 1], [0x2001, 0xdb8, 0, 1]);
const SERVER: Host = host([198, 51, 100, 1], [0x2001, 0xdb8, 100, 1]);
const POD: Host = host([203, 0, 113, 1], [0x2001, 0xdb8, 113, 1]);
/// In IPv6 the newer range for documentation; in IPv4, and the next one, addresses that no list of invalid
/// addresses has.
const OTHER_CLIENT: Host = host([11, 0, 0, 1], [0x3fff, 0, 0, 1]);
const OTHER_SERVER: Host = host([12, 0, 0, 1], [0x2600, 0, 0, 2]);

/// In the order in which they are taken for a client, and for a server.
pub(super) const CLIENTS: [Host; 4] = [CLIENT, POD, OTHER_CLIENT, OTHER_SERVER];
pub(super) const SERVERS: [Host; 5] = [SERVER, POD, CLIENT, OTHER_SERVER, OTHER_CLIENT];

pub(super) const fn in_family((v4, v6): Host, family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(v4),
        Family::V6 => IpAddr::V6(v6),
    }
}

/// The address of any client.
pub(super) const fn any_client(family: Family) -> IpAddr {
    in_family(CLIENT, family)
}

/// The address of any server.
pub(super) const fn any_server(family: Family) -> IpAddr {
    in_family(SERVER, family)
}

/// An address in a range that a server can have: its first one, unless that is `0.0.0.0` or `::`.
pub(super) fn server_in(range: &IpNetwork) -> IpAddr {
    if !range.ip().is_unspecified() {
        return range.ip();
    }
    let family = if range.is_ipv4() { Family::V4 } else { Family::V6 };
    let known = SERVERS.into_iter().map(|host| in_family(host, family));
    { known }.find(|address| range.contains(*address)).or_else(|| range.iter().nth(1)).unwrap_or(range.ip())
}

/// The address of a pod that has none yet.
pub(super) const fn any_pod(family: Family) -> IpAddr {
    in_family(POD, family)
}
