//! Traffic options before the pod's addresses are known, and the decision on families afterwards.

use std::fmt;
use std::net::Ipv6Addr;

use crate::facts::NameServers;
use crate::model::{Families, Family, Interface, InterfaceAddress, Network};

use super::{CaptureConfig, Dns, Traffic};

/// Which families were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyChoice {
    /// By the pod's addresses: IPv4 if there is an IPv4 one, else both.
    Auto,
    /// IPv4 and IPv6, whatever the addresses are (`--ip-family dual`).
    Dual,
    /// IPv4, and IPv6 if there is an IPv6 address (`--dual-stack`).
    DualStack,
    /// IPv4 only.
    Ipv4,
    /// IPv6 only.
    Ipv6,
}

/// Which DNS queries are to be captured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsChoice {
    /// Everything to port 53.
    All,
    /// None.
    Off,
    /// DNS queries to the servers that `/etc/resolv.conf` names, perhaps none.
    Servers(NameServers),
}

/// The options about traffic. [`Intent::decide`] turns them into a [`CaptureConfig`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    /// Families asked for.
    pub family: FamilyChoice,
    /// DNS queries.
    pub dns: DnsChoice,
    /// What does not depend on the pod's addresses.
    pub traffic: Traffic,
}

/// Something that the pod's network decided and that the user should hear about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// IPv6 traffic of the pod bypasses the proxy.
    Ipv6NotCaptured {
        /// An address that is not captured.
        address: InterfaceAddress,
        /// The option that captures it.
        flag: &'static str,
    },
    /// The kernel has no IPv6.
    KernelWithoutIpv6 {
        /// Whether IPv6 was asked for by name.
        asked_for: bool,
    },
    /// The pod has no address from which its family follows.
    NoAddressYet,
    /// DNS capture was asked for and there is no name server.
    NoNameServers,
    /// All name servers belong to the family that gets no rules.
    NameServersOfOtherFamily(Families),
    /// A name server whose captured queries are lost.
    LinkLocalNameServer(Ipv6Addr),
}

impl Notice {
    /// How loud it is.
    #[must_use]
    pub const fn level(&self) -> log::Level {
        match self {
            Self::KernelWithoutIpv6 { asked_for: false } | Self::NoAddressYet => log::Level::Info,
            Self::Ipv6NotCaptured { .. }
            | Self::KernelWithoutIpv6 { asked_for: true }
            | Self::NoNameServers
            | Self::NameServersOfOtherFamily(_)
            | Self::LinkLocalNameServer(_) => log::Level::Warn,
        }
    }

    /// The notice of a link-local name server whose queries are captured.
    #[must_use]
    pub fn of_link_local_name_server(config: &CaptureConfig) -> Option<Self> {
        let Dns::Servers { v4: _, v6 } = &config.dns else { return None };
        let captured = v6.iter().filter(|_| config.families != Families::V4);
        captured.copied().find(Ipv6Addr::is_unicast_link_local).map(Self::LinkLocalNameServer)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ipv6NotCaptured { address, flag } => write!(
                f,
                "IPv6 traffic is NOT captured, although the pod has the IPv6 address {} on {}: it bypasses the \
                 proxy; {flag} captures it, --ip-family ipv4 confirms IPv4 only",
                address.address, address.interface
            ),
            Self::KernelWithoutIpv6 { asked_for: false } => f.write_str("the kernel has no IPv6: IPv4 only"),
            Self::KernelWithoutIpv6 { asked_for: true } => {
                f.write_str("the kernel has no IPv6, although IPv6 was requested: IPv4 only")
            }
            Self::NoAddressYet => f.write_str("the pod has no address yet: both families are captured"),
            Self::NoNameServers => f.write_str(
                "/etc/resolv.conf names no server: DNS is not captured; --capture-all-dns captures it",
            ),
            Self::NameServersOfOtherFamily(families) => {
                let (captured, other) = match families {
                    Families::V6 => ("IPv6", "IPv4"),
                    Families::V4 | Families::Both => ("IPv4", "IPv6"),
                };
                write!(
                    f,
                    "all servers in /etc/resolv.conf are {other} and only {captured} is captured: DNS is not captured"
                )
            }
            Self::LinkLocalNameServer(server) => write!(
                f,
                "captured DNS queries to the link-local server {server} are lost, since their sockets are bound to its interface; \
                 name a server with another address in /etc/resolv.conf, or capture no DNS"
            ),
        }
    }
}

impl Intent {
    /// Fixes the families, and the name servers with them.
    #[must_use]
    pub fn decide(self, network: &Network) -> (CaptureConfig, Vec<Notice>) {
        let mut notices = Vec::new();
        let families = self.families(network, &mut notices);
        let Self { family: _, dns, traffic } = self;
        let config = CaptureConfig { families, dns: decide_dns(dns, families, &mut notices), traffic };
        notices.extend(Notice::of_link_local_name_server(&config));
        (config, notices)
    }

    fn families(&self, network: &Network, notices: &mut Vec<Notice>) -> Families {
        let addresses: Vec<&InterfaceAddress> =
            network.addresses.iter().filter(|address| address.is_of_pod()).collect();
        let has_v4 = addresses.iter().any(|address| address.address.is_ipv4());
        let v6 = self.traffic.address_of(Family::V6, network);
        let has_v6 = addresses.iter().any(|address| address.address.is_ipv6());
        if !network.ipv6 {
            let asked_for = matches!(self.family, FamilyChoice::Dual | FamilyChoice::Ipv6);
            if self.family != FamilyChoice::Ipv4 {
                notices.push(Notice::KernelWithoutIpv6 { asked_for });
            }
            return Families::V4;
        }
        match self.family {
            FamilyChoice::Ipv4 => Families::V4,
            FamilyChoice::Ipv6 => Families::V6,
            FamilyChoice::Dual => Families::Both,
            FamilyChoice::Auto | FamilyChoice::DualStack if !has_v4 && !has_v6 => {
                notices.push(Notice::NoAddressYet);
                Families::Both
            }
            FamilyChoice::DualStack if has_v6 => Families::Both,
            FamilyChoice::DualStack => Families::V4,
            FamilyChoice::Auto if has_v4 => {
                notices.extend(v6.map(|address| Notice::Ipv6NotCaptured {
                    address: address.clone(),
                    flag: "--dual-stack",
                }));
                Families::V4
            }
            FamilyChoice::Auto => Families::Both,
        }
    }
}

impl Traffic {
    /// An address of the family by which the pod is reached, at an interface that is captured.
    #[must_use]
    pub fn address_of<'a>(&self, family: Family, network: &'a Network) -> Option<&'a InterfaceAddress> {
        network.addresses.iter().filter(|address| address.is_of_pod()).find(|address| {
            let excluded = |interface: &Interface| interface.covers(&address.interface);
            family.has(address.address) && !self.excluded_interfaces.iter().any(excluded)
        })
    }
}

fn decide_dns(choice: DnsChoice, families: Families, notices: &mut Vec<Notice>) -> Dns {
    match choice {
        DnsChoice::All => Dns::All,
        DnsChoice::Off => Dns::Off,
        DnsChoice::Servers(servers) if servers.is_empty() => {
            notices.push(Notice::NoNameServers);
            Dns::Off
        }
        DnsChoice::Servers(NameServers { v4, v6 }) => {
            let unreachable = match families {
                Families::Both => false,
                Families::V4 => v4.is_empty(),
                Families::V6 => v6.is_empty(),
            };
            if unreachable {
                notices.push(Notice::NameServersOfOtherFamily(families));
            }
            Dns::Servers { v4, v6 }
        }
    }
}
