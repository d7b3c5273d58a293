//! Interfaces, and the settings of them that decide over captured packets: plain data.

use std::collections::BTreeSet;

use super::Family;

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The name of the interface.
    pub name: String,
    /// The index of the interface.
    pub index: u32,
    /// Whether it is up.
    pub is_up: bool,
    /// Whether its other end is there, as far as the kernel knows.
    pub has_carrier: bool,
    /// Whether it is a port of another one, such as a bridge, on which packets then arrive.
    pub is_port: bool,
    /// What it is, where that matters.
    pub kind: LinkKind,
    /// The network namespace of its other end, or of the interface that it is made of, by the number that the
    /// kernel gives it here; `None` for this one.
    pub peer_namespace: Option<u32>,
    /// Whether IPv4 packets that arrive on it are forwarded: `net.ipv4.conf.NAME.forwarding`.
    pub forwards_v4: bool,
    /// Whether it has an IPv4 address.
    pub has_v4: bool,
    /// Whether it has an IPv6 address.
    pub has_v6: bool,
    /// Whether what arrives on it may go to a loopback address: `net.ipv4.conf.NAME.route_localnet`, or that
    /// of `all`.
    pub routes_to_loopback: bool,
    /// The interface's own settings of source validation.
    pub settings: SourceValidation,
    /// The number of the XDP program that sees what arrives before all rules do.
    pub xdp_program: Option<u32>,
}

impl Link {
    /// Why the kernel drops what arrives here for a loopback address, if it does. `name` is the interface's,
    /// as text shows it.
    #[must_use]
    pub fn refuses_loopback(&self, family: Family, name: &str) -> Option<String> {
        match family {
            Family::V4 if self.routes_to_loopback => None,
            Family::V4 => Some(format!("net.ipv4.conf.{name}.route_localnet is 0")),
            Family::V6 => Some("only lo has this address".to_owned()),
        }
    }
}

/// Kinds of interfaces behind which other machines may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkKind {
    /// A bridge.
    Bridge,
    /// A device of a program that handles Ethernet frames, such as a virtual machine.
    Tap,
    /// One end of a pair.
    Veth,
    /// Any other one.
    #[default]
    Other,
}

/// How the kernel validates the source addresses of IPv4 packets: `net.ipv4.conf.NAME`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceValidation {
    /// `src_valid_mark`: the policy rules are asked with the mark of the packet.
    pub uses_mark: bool,
    /// `accept_local`: addresses of this machine are valid.
    pub accepts_local: bool,
    /// `rp_filter`: 1 is strict, 2 is loose.
    pub rp_filter: u8,
}

/// The interfaces of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    /// The interfaces.
    pub each: Vec<Link>,
    /// `net.ipv4.conf.all`, which the kernel combines with the settings of each.
    pub all: SourceValidation,
    /// `net.ipv4.tcp_fwmark_accept`, of both families: a socket that is accepted gets the mark of the first
    /// packet.
    pub inherits_mark: bool,
    /// Whether every SYN is answered by a cookie, in both families: `net.ipv4.tcp_syncookies` is 2.
    pub always_sends_cookies: bool,
    /// Whether IPv6 packets are forwarded: `net.ipv6.conf.all.forwarding`, which counts for every interface.
    pub forwards_v6: bool,
    /// Families whose bridged packets meet the rules in the bridge already:
    /// `net.bridge.bridge-nf-call-iptables` and `-ip6tables`, 1 by default in each namespace where the module
    /// br_netfilter is loaded.
    pub filters_bridged: BTreeSet<Family>,
}

impl Links {
    /// The interface of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Link> {
        self.each.iter().find(|link| link.name == name)
    }

    /// Whether packets of this family that arrive on one of them are forwarded.
    #[must_use]
    pub const fn forwards(&self, link: &Link, family: Family) -> bool {
        match family {
            Family::V4 => link.forwards_v4,
            Family::V6 => self.forwards_v6,
        }
    }
}
