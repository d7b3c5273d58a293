//! Fixed numbers, addresses and names: Istio's, and those that identify our own rules.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Mark, Port, Table};

/// Port on which the proxy answers DNS queries. Fixed in Istio.
pub const DNS_CAPTURE_PORT: Port = Port::constant(15053);
/// The port that DNS servers listen on.
pub const DNS_PORT: Port = Port::constant(53);
/// Source address of what the proxy hands to the app. Fixed in Istio.
pub const PASSTHROUGH_V4: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 6);
/// Source address of what the proxy hands to the app over IPv6. It has to be put on `lo`.
pub const PASSTHROUGH_V6: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 6);
/// Mark of the proxy's own loopback calls in TPROXY mode. Fixed in Istio.
pub const PROXY_LOOPBACK_MARK: Mark = Mark(1338);
/// The conntrack zone of what the pod's processes and the proxy exchange on the proxy's DNS port; see
/// `policy::dns`.
pub const APP_TO_PROXY_ZONE: u16 = 2;
/// The conntrack zone of what the proxy and name servers exchange.
pub const PROXY_TO_SERVER_ZONE: u16 = 1;

/// The priority of connection tracking (`NF_IP_PRI_CONNTRACK`): chains with a lower one decide whether, and
/// in which zone, a packet is tracked.
pub const CONNTRACK_PRIORITY: i32 = -200;
/// The priority of our last rules.
pub const NAT_PRIORITY: i32 = Table::Nat.priority();

/// The names that Istio's native nftables backend gives its tables, all of them in the family `inet`.
pub const NATIVE_TABLES: [&str; 3] = ["istio-proxy-nat", NATIVE_MANGLE, "istio-proxy-raw"];
/// The native table that holds the mark rules of TPROXY mode.
pub const NATIVE_MANGLE: &str = "istio-proxy-mangle";

/// The protocol number (`rtm_protocol`, `FRA_PROTOCOL`, `IFA_PROTO`) of the routes, rules and addresses that
/// are ours: `proto 150` in `ip route` and `ip rule`.
///
/// 150 is free: linux/rtnetlink.h knows 0-4, 8-18, 42, 84, 99, 186-189 and 192, iproute2's `rt_protos` and
/// its `rt_protos.d` add FRR's 190-198, and Calico uses 80. The kernel does not interpret numbers above 4.
pub const ROUTE_PROTOCOL: u8 = 150;
/// The priority of our policy rules. Below 32766, the main table's, and below what the kernel gives to rules
/// without one (it counts down from 32765): the mark is matched before any foreign rule by source address.
pub const RULE_PRIORITY: u32 = 1337;
