//! Any capture configuration.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};
use istio_iptables::config::{
    CaptureConfig, Dns, InboundPorts, Mode, Outbound, OutboundRanges, OwnerGroups, ProxyOwner, ProxyPorts,
    Tproxy, Traffic,
};
use istio_iptables::model::{Families, Interface, Mark, Port};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;

/// Rules have port 53 of their own, so that one of the options' ports may be the same.
fn port() -> impl Strategy<Value = Port> {
    prop_oneof![20 => 1u16..=u16::MAX, 1 => Just(53)].prop_map(|number| Port::new(number).unwrap())
}

fn ports() -> impl Strategy<Value = Vec<Port>> {
    vec(port(), 0..4)
}

fn network() -> impl Strategy<Value = IpNetwork> {
    prop_oneof![
        (any::<u32>(), 0u8..=32).prop_map(|(bits, prefix)| {
            let network = Ipv4Network::new(Ipv4Addr::from(bits), prefix).unwrap();
            IpNetwork::V4(Ipv4Network::new(network.network(), prefix).unwrap())
        }),
        (any::<u128>(), 0u8..=128).prop_map(|(bits, prefix)| {
            let network = Ipv6Network::new(Ipv6Addr::from(bits), prefix).unwrap();
            IpNetwork::V6(Ipv6Network::new(network.network(), prefix).unwrap())
        }),
        // The halves of all addresses, and ranges that are loopback ones.
        prop::sample::select(vec!["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1", "127.0.0.0/8", "::1/128"])
            .prop_map(|range| range.parse().unwrap()),
    ]
}

fn has_loopback(ranges: &OutboundRanges) -> bool {
    matches!(ranges, OutboundRanges::Only(ranges) if ranges.iter().any(|range| range.ip().is_loopback()))
}

fn interfaces() -> impl Strategy<Value = Vec<Interface>> {
    vec(prop::sample::select(vec!["eth1", "net+", "docker0", "vnet0"]), 0..3).prop_map(|mut names| {
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| name.parse().unwrap()).collect()
    })
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::Redirect),
        (prop::sample::select(vec![1u32, 1337, 0xffff_fff0]), 1u32..300)
            .prop_map(|(mark, table)| { Mode::Tproxy(Tproxy { mark: Mark(mark), table }) }),
    ]
}

fn inbound() -> impl Strategy<Value = InboundPorts> {
    prop_oneof![
        Just(InboundPorts::None),
        ports().prop_map(|except| InboundPorts::All { except }),
        vec(port(), 1..4).prop_map(InboundPorts::Only),
    ]
}

fn outbound() -> impl Strategy<Value = Outbound> {
    let ranges = prop_oneof![
        Just(OutboundRanges::None),
        Just(OutboundRanges::All),
        vec(network(), 1..4).prop_map(OutboundRanges::Only),
    ];
    let owners = prop_oneof![
        vec(any::<u32>(), 0..3).prop_map(|except| OwnerGroups::All { except }),
        vec(any::<u32>(), 1..4).prop_map(OwnerGroups::Only),
    ];
    (ranges, vec(network(), 0..3), ports(), ports(), owners).prop_map(
        |(ranges, excluded_ranges, ports, excluded_ports, owners)| Outbound {
            loopback: has_loopback(&ranges),
            ranges,
            excluded_ranges,
            ports,
            excluded_ports,
            owners,
        },
    )
}

/// Any address, or one of a few that are adjacent.
fn server<T: From<u16> + Copy + std::fmt::Debug + 'static>(
    any: impl Strategy<Value = T>,
) -> impl Strategy<Value = T> {
    prop_oneof![any, (0x0a02u16..0x0a05).prop_map(T::from)]
}

fn dns() -> impl Strategy<Value = Dns> {
    prop_oneof![
        Just(Dns::Off),
        Just(Dns::All),
        (btree_set(server(any::<u32>()), 0..3), btree_set(server(any::<u128>()), 0..3)).prop_map(
            |(v4, v6)| {
                Dns::Servers {
                    v4: v4.into_iter().map(Ipv4Addr::from).collect(),
                    v6: v6.into_iter().map(Ipv6Addr::from).collect(),
                }
            }
        ),
    ]
}

/// Any configuration.
pub(crate) fn config() -> impl Strategy<Value = CaptureConfig> {
    let families = prop::sample::select(vec![Families::Both, Families::V4, Families::V6]);
    let owners = (vec(any::<u32>(), 1..3), vec(any::<u32>(), 1..3));
    let interfaces = (interfaces(), interfaces());
    let ports = (port(), port(), port());
    (families, ports, owners, mode(), inbound(), outbound(), dns(), any::<bool>(), interfaces, 8u8..=32)
        .prop_map(
            |(
                families,
                ports,
                (uids, gids),
                mode,
                inbound,
                outbound,
                dns,
                drop_invalid,
                interfaces,
                prefix,
            )| {
                let loopback = Ipv4Network::new(Ipv4Addr::new(127, 0, 0, 1), prefix).unwrap();
                CaptureConfig {
                    families,
                    dns,
                    traffic: Traffic {
                        ports: ProxyPorts { outbound: ports.0, inbound: ports.1, tunnel: ports.2 },
                        proxy: ProxyOwner { uids, gids },
                        mode,
                        inbound,
                        outbound,
                        drop_invalid,
                        excluded_interfaces: interfaces.0,
                        virtual_interfaces: interfaces.1,
                        loopback_v4: Ipv4Network::new(loopback.network(), prefix).unwrap(),
                    },
                }
            },
        )
}

/// Every inbound port by REDIRECT, nothing outbound, IPv4.
pub(crate) fn plain() -> CaptureConfig {
    let port = |number| Port::new(number).unwrap();
    CaptureConfig {
        families: Families::V4,
        dns: Dns::Off,
        traffic: Traffic {
            ports: ProxyPorts { outbound: port(15001), inbound: port(15006), tunnel: port(15008) },
            proxy: ProxyOwner { uids: vec![1337], gids: vec![1337] },
            mode: Mode::Redirect,
            inbound: InboundPorts::All { except: Vec::new() },
            outbound: Outbound {
                loopback: false,
                ranges: OutboundRanges::None,
                excluded_ranges: Vec::new(),
                ports: Vec::new(),
                excluded_ports: Vec::new(),
                owners: OwnerGroups::All { except: Vec::new() },
            },
            drop_invalid: false,
            excluded_interfaces: Vec::new(),
            virtual_interfaces: Vec::new(),
            loopback_v4: "127.0.0.1/32".parse().unwrap(),
        },
    }
}
