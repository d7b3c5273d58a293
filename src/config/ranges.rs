//! Address ranges, accepted as Go's `netip.ParsePrefix` accepts them.

use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network};

use super::error::Expected;
use super::values::decimal;

/// A range, and whether the text had host bits, which are cleared here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range<T = IpNetwork> {
    pub(super) network: T,
    pub(super) masked: bool,
    /// Whether the address is a loopback address as it was written, before bits were cleared.
    pub(super) loopback: bool,
}

pub(super) fn range(text: &str) -> Result<Range, Expected> {
    let expected = || Expected::new("an address range such as 10.0.0.0/8 or fd00::/8");
    if text == "*" {
        return Err(expected().hint("`*` must be the only item, where all ranges are accepted"));
    }
    let Some((address, prefix)) = text.split_once('/') else {
        return Err(match text.parse() {
            Ok(IpAddr::V4(address)) => expected().hint(format!("for this address alone: {address}/32")),
            Ok(IpAddr::V6(address)) => expected().hint(single_v6(address)),
            Err(_) => expected(),
        });
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return Err(if address.contains('%') {
            expected().hint("a zone (%eth0) cannot be part of a range")
        } else {
            expected()
        });
    };
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let prefix = match decimal(prefix).map(u8::try_from) {
        Some(Ok(prefix)) if prefix <= longest => prefix,
        _ if prefix.parse::<std::net::Ipv4Addr>().is_ok() => {
            return Err(expected().hint("netmasks are not accepted: give the length of the prefix"));
        }
        _ => return Err(expected().hint(format!("the prefix is a decimal number from 0 to {longest}"))),
    };
    if let IpAddr::V6(v6) = address
        && v6.to_ipv4_mapped().is_some()
    {
        return Err(mapped(v6, prefix));
    }
    let given = IpNetwork::new(address, prefix).map_err(|_| expected())?;
    let network = IpNetwork::new(given.network(), prefix).map_err(|_| expected())?;
    Ok(Range { network, masked: network != given, loopback: address.is_loopback() })
}

fn single_v6(address: Ipv6Addr) -> String {
    match address.to_ipv4_mapped() {
        Some(v4) => format!("for this address alone, in its IPv4 form: {v4}/32"),
        None => format!("for this address alone: {address}/128"),
    }
}

/// Packets to an IPv4-mapped address leave as IPv4, so an IPv6 rule for one never sees a packet.
fn mapped(address: Ipv6Addr, prefix: u8) -> Expected {
    let expected = Expected::new("an address range that is not IPv4-mapped: such packets travel as IPv4");
    match (address.to_ipv4_mapped(), prefix.checked_sub(96)) {
        (Some(v4), Some(prefix)) => expected.hint(format!("the IPv4 form is {v4}/{prefix}")),
        (Some(_), None) | (None, _) => expected.hint("write the IPv4 range"),
    }
}

/// The IPv4 range that is meant for the application: within 127.0.0.0/8.
pub(super) fn loopback(text: &str) -> Result<Range<Ipv4Network>, Expected> {
    let expected =
        || Expected::new("an IPv4 loopback range: 127.0.0.0/8 or a part of it, such as 127.0.0.1/32");
    if text.is_empty() {
        return Err(expected().hint("leave the variable out for the default, 127.0.0.1/32"));
    }
    let parsed = range(text).map_err(|error| Expected { hint: error.hint, ..expected() })?;
    match parsed.network {
        IpNetwork::V4(network) if network.ip().is_loopback() && network.prefix() >= 8 => {
            Ok(Range { network, masked: parsed.masked, loopback: parsed.loopback })
        }
        IpNetwork::V4(_) => Err(expected()),
        IpNetwork::V6(_) => Err(expected().hint("the IPv6 loopback range is always ::1/128")),
    }
}
