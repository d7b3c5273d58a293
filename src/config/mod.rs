//! The capture configuration, with every value parsed: a value that exists is valid.

mod as_options;
mod backend;
mod capture_annotation;
mod error;
mod intent;
mod packet_query;
mod packet_values;
mod ports;
mod question;
mod ranges;
mod reader;
mod resolve;
mod run;
mod run_options;
mod summary;
#[cfg(test)]
mod tests;
mod traffic;
mod values;

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network};

use crate::model::{Families, Family, Interface, Mark, Port};

pub use as_options::AsOptions;
pub use capture_annotation::{
    CAPTURE_ANNOTATION, CAPTURE_ANNOTATION_VERSION, CaptureAnnotationError, is_about_traffic,
    read_capture_annotation, write_capture_annotation,
};
pub use error::{ConfigError, Expected, Warning};
pub use intent::{DnsChoice, FamilyChoice, Intent, Notice};
pub use packet_query::{Answer, PacketQuery};
pub use packet_values::{ConnectionState, Sender};
pub use question::{
    BundleContext, Color, DiffQuery, GuardAction, GuardOptions, ObserveOptions, Output, Question,
};
pub use resolve::{GivenOption, OptionScope, Resolved, log_options, log_problem, resolve};
pub use run::{Action, BackendChoice, LogFormat, LogOptions, NetworkNamespace, RunOptions, Validation};
pub use run_options::target_pid;
pub use values::{decimal, parse_bool};

/// The proxy's uid and gid where nothing else is known: `istio-proxy` in Istio's images. [`crate::policy`]
/// excludes its traffic.
pub const PROXY_ID: u32 = 1337;

/// The id of a proxy's container, which must not run as root: 0 and none mean [`PROXY_ID`], as in Istio's
/// plugin.
#[must_use]
pub const fn proxy_id(of_container: Option<u32>) -> u32 {
    match of_container {
        None | Some(0) => PROXY_ID,
        Some(id) => id,
    }
}

/// Everything that decides the rules. Made from [`crate::cli::RawOptions`] and [`crate::facts`]; read by
/// [`crate::policy`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptureConfig {
    /// Families that get rules.
    pub families: Families,
    /// DNS capture.
    pub dns: Dns,
    /// What depends on the options alone.
    pub traffic: Traffic,
}

/// The options about traffic whose meaning does not depend on the pod's addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// The proxy's ports.
    pub ports: ProxyPorts,
    /// The proxy's users and groups: their traffic is not captured.
    pub proxy: ProxyOwner,
    /// How inbound traffic is captured.
    pub mode: Mode,
    /// Which inbound ports are captured.
    pub inbound: InboundPorts,
    /// Which outbound traffic is captured.
    pub outbound: Outbound,
    /// Whether packets that conntrack calls INVALID are dropped.
    pub drop_invalid: bool,
    /// Interfaces whose inbound and outbound traffic is not captured.
    pub excluded_interfaces: Vec<Interface>,
    /// Virtual interfaces (KubeVirt) whose inbound traffic is treated as outbound.
    pub virtual_interfaces: Vec<Interface>,
    /// The IPv4 loopback range that is meant for the app; the IPv6 one is always `::1/128`.
    pub loopback_v4: Ipv4Network,
}

/// Ports on which the proxy listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyPorts {
    /// Outbound TCP is redirected here (`-p`).
    pub outbound: Port,
    /// Inbound TCP is redirected here (`-z`).
    pub inbound: Port,
    /// HBONE tunnel, not redirected in REDIRECT mode (`-e`).
    pub tunnel: Port,
}

/// Numeric users and groups of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyOwner {
    /// Users (`-u`), at least one.
    pub uids: Vec<u32>,
    /// Groups (`-g`), at least one.
    pub gids: Vec<u32>,
}

impl ProxyOwner {
    /// Whether what a process of this user and group sends is not captured.
    #[must_use]
    pub fn exempts(&self, uid: u32, gid: u32) -> bool {
        self.uids.contains(&uid) || self.gids.contains(&gid)
    }
}

/// How inbound connections reach the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The destination is rewritten; the proxy sees the original one by socket option, the source is lost
    /// further on.
    Redirect,
    /// Addresses stay as they are; needs a mark and a routing table.
    Tproxy(Tproxy),
}

/// TPROXY settings besides rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tproxy {
    /// Mark of inbound packets (`-t`).
    pub mark: Mark,
    /// Routing table that sends marked packets to `lo` (`-r`).
    pub table: u32,
}

/// Inbound ports to capture. Excludes exist only together with all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InboundPorts {
    /// Every port but these (`-b '*'`, `-d`).
    All {
        /// Excluded.
        except: Vec<Port>,
    },
    /// None.
    None,
    /// Just these.
    Only(Vec<Port>),
}

impl InboundPorts {
    /// Whether a port is captured.
    #[must_use]
    pub fn captures(&self, port: u16) -> bool {
        let lists = |ports: &[Port]| ports.iter().any(|listed| listed.number() == port);
        match self {
            Self::All { except } => !lists(except),
            Self::Only(ports) => lists(ports),
            Self::None => false,
        }
    }
}

/// Outbound traffic to capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outbound {
    /// Captured ranges (`-i`).
    pub ranges: OutboundRanges,
    /// Whether one of them was written with a loopback address (`127.9.9.9/7`): then the app's loopback
    /// traffic must reach the ranges. As in Istio, the address as written decides, for both families.
    pub loopback: bool,
    /// Excluded ranges, matched before the included ones (`-x`).
    pub excluded_ranges: Vec<IpNetwork>,
    /// Ports captured whatever their range (`-q`).
    pub ports: Vec<Port>,
    /// Excluded TCP and UDP ports (`-o`).
    pub excluded_ports: Vec<Port>,
    /// Whose traffic is captured.
    pub owners: OwnerGroups,
}

impl Outbound {
    /// Half of IPv4 or more that is excluded, in words.
    #[must_use]
    pub fn wide_exclusion(&self) -> Option<String> {
        let mut apart: Vec<Ipv4Network> = self
            .excluded_ranges
            .iter()
            .filter_map(|range| if let IpNetwork::V4(range) = range { Some(*range) } else { None })
            .collect();
        // Two ranges are apart, or one has the other in it: then it comes right before that one and its other
        // parts.
        apart.sort_unstable_by_key(|range| (range.network(), range.prefix()));
        apart.dedup_by(|range, wider| wider.contains(range.network()));
        let size: u64 = apart.iter().map(|range| 1 << (32 - u32::from(range.prefix().min(32)))).sum();
        if size < 1 << 31 {
            return None;
        }
        let with_prefix = |prefix| apart.iter().filter(move |range| range.prefix() == prefix);
        let shown =
            (0..=32).flat_map(with_prefix).take(4).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let more = if apart.len() > 4 { ", ..." } else { "" };
        let percent = size * 100 / (1 << 32);
        Some(format!("{shown}{more}: {percent} % of IPv4 are excluded from outbound capture"))
    }
}

/// Outbound ranges to capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutboundRanges {
    /// Everything (`*`).
    All,
    /// None.
    None,
    /// Just these.
    Only(Vec<IpNetwork>),
}

impl OutboundRanges {
    /// Whether there are any of a family.
    #[must_use]
    pub fn has_any(&self, family: Family) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Only(ranges) => ranges.iter().any(|range| family.holds(range)),
        }
    }
}

/// Groups whose outbound traffic is captured. Excludes exist only together with all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerGroups {
    /// Every group but these.
    All {
        /// Excluded.
        except: Vec<u32>,
    },
    /// Just these, at least one.
    Only(Vec<u32>),
}

/// Which DNS queries go to the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dns {
    /// Everything to port 53.
    All,
    /// None.
    Off,
    /// DNS queries to the pod's name servers: at least one in one of the families.
    Servers {
        /// IPv4 servers.
        v4: Vec<Ipv4Addr>,
        /// IPv6 servers.
        v6: Vec<Ipv6Addr>,
    },
}
