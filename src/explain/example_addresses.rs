//! The addresses of a client, a server and a pod of which none is given: those for documentation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use crate::model::{Family, Network};

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
/// In the first ranges of all; in IPv6 that of translators (RFC 6052).
const LOW: Host = host([1, 0, 0, 1], [0x64, 0xff9b, 0, 1]);

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
pub(crate) const fn any_server(family: Family) -> IpAddr {
    in_family(SERVER, family)
}

/// An address in a range that a server outside of the pod can have, if there is one: that of the network
/// itself no host has.
pub(super) fn server_in(range: &IpNetwork, network: &Network) -> IpAddr {
    let is_server = |address: &IpAddr| {
        // Neither of `0.0.0.0/8` nor of `::/96`.
        let is_host = match address {
            IpAddr::V4(address) => address.octets()[0] != 0,
            IpAddr::V6(address) => u128::from(*address) >> 32 != 0,
        };
        let is_own = network.addresses.iter().any(|own| own.address == *address);
        is_host && !(is_own || address.is_loopback() || address.is_multicast())
    };
    let mut first = None;
    for address in range.iter().skip(1).take(3) {
        if is_server(&address) {
            return address;
        }
        first = first.or(Some(address));
    }
    for host in SERVERS.iter().chain(&[LOW]) {
        let address = in_family(*host, Family::of(range.ip()));
        if range.contains(address) {
            return address;
        }
    }
    first.unwrap_or(range.ip())
}

/// The first address of a range that a host can have, as a number: neither of `0.0.0.0/8` nor below
/// `64:ff9b::`, none of multicast or reserved ranges, and not that of a network itself. `None` if none is.
pub(crate) fn first_host(family: Family, (first, last): (u128, u128)) -> Option<u128> {
    let (lowest, end) = match family {
        Family::V4 => (1 << 24, 0xe0 << 24),
        Family::V6 => (0x0064_ff9b << 96, 0xff << 120),
    };
    let is_one = first == last && first >= lowest;
    let number = if is_one { first } else { first.max(lowest).checked_add(1)? };
    (number <= last && number < end).then_some(number)
}

/// The address of a pod that has none yet.
pub(crate) const fn any_pod(family: Family) -> IpAddr {
    in_family(POD, family)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::InterfaceAddress;

    fn in_range(range: &str, own: &[&str]) -> String {
        let own = own.iter().map(|address| InterfaceAddress {
            interface: "eth0".to_owned(),
            address: address.parse().unwrap(),
            prefix: 24,
        });
        let network = Network { addresses: own.collect(), ipv6: true };
        let range: IpNetwork = range.parse().unwrap();
        let address = server_in(&range, &network);
        assert!(range.contains(address), "{range}: {address}");
        address.to_string()
    }

    #[test]
    fn wide_ranges_have_an_address_of_a_server() {
        for (length, v4, v6) in [
            (1, "12.0.0.1", "2001:db8:64::1"),
            (2, "12.0.0.1", "2001:db8:64::1"),
            (3, "12.0.0.1", "64:ff9b::1"),
            (4, "12.0.0.1", "64:ff9b::1"),
            (5, "1.0.0.1", "64:ff9b::1"),
            (6, "1.0.0.1", "64:ff9b::1"),
            (7, "1.0.0.1", "64:ff9b::1"),
            (8, "0.0.0.1", "64:ff9b::1"),
        ] {
            assert_eq!(in_range(&format!("0.0.0.0/{length}"), &[]), v4);
            assert_eq!(in_range(&format!("::/{length}"), &[]), v6);
        }
        assert_eq!(in_range("0.0.0.0/0", &[]), "198.51.100.1");
        assert_eq!(in_range("::/0", &[]), "2001:db8:64::1");
        assert_eq!(in_range("::/64", &[]), "::1", "no other is known");
        assert_eq!(in_range("128.0.0.0/1", &[]), "128.0.0.1");
        assert_eq!(in_range("64.0.0.0/2", &[]), "64.0.0.1");
    }

    #[test]
    fn address_is_neither_that_of_the_network_nor_of_the_pod() {
        assert_eq!(in_range("10.0.0.0/8", &[]), "10.0.0.1");
        assert_eq!(in_range("10.0.0.0/8", &["10.0.0.1"]), "10.0.0.2");
        assert_eq!(in_range("fd00::/64", &["fd00::1", "fd00::2"]), "fd00::3");
        assert_eq!(in_range("10.0.0.9/32", &[]), "10.0.0.9");
        assert_eq!(in_range("fd00::9/128", &[]), "fd00::9");
    }

    /// No other address is in them.
    #[test]
    fn multicast_and_loopback_ranges_have_their_first_host() {
        assert_eq!(in_range("224.0.0.0/4", &[]), "224.0.0.1");
        assert_eq!(in_range("ff00::/8", &[]), "ff00::1");
        assert_eq!(in_range("127.0.0.0/8", &[]), "127.0.0.1");
        assert_eq!(in_range("::1/128", &[]), "::1");
    }
}
