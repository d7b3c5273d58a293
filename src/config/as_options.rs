//! A configuration as options: the inverse of [`super::resolve()`].

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::IpNetwork;

use super::{CaptureConfig, Dns, InboundPorts, Mode, OutboundRanges, OwnerGroups, Traffic};
use crate::cli::{Key, Kind};
use crate::model::{Families, Family};
use crate::text::{list_shown, shell_word};

/// A configuration, as the options that differ from their defaults. The proxy's users are always among them,
/// since their default depends on the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AsOptions(Vec<(Key, String)>);

impl AsOptions {
    /// The options for `config`. `usual` are the families that are captured without an option for it.
    #[must_use]
    pub fn of(config: &CaptureConfig, usual: Families) -> Self {
        let CaptureConfig { families, dns, traffic } = config;
        let mut options = Self(Vec::new());
        options.proxy(traffic);
        options.inbound(traffic);
        options.outbound(traffic, *families);
        if *dns != Dns::Off {
            options.add(Key::RedirectDns, "true");
        }
        if *dns == Dns::All {
            options.add(Key::CaptureAllDns, "true");
        }
        options.list(Key::ExcludeInterfaces, &traffic.excluded_interfaces);
        options.list(Key::KubeVirtInterfaces, &traffic.virtual_interfaces);
        if *families != usual {
            let family = match families {
                Families::V4 => "ipv4",
                Families::V6 => "ipv6",
                Families::Both => "dual",
            };
            options.add(Key::IpFamily, family);
        }
        options
    }

    /// Each option and its text.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &str)> {
        self.0.iter().map(|(key, text)| (*key, text.as_str()))
    }

    /// A command line for a shell, in which long lists are shortened.
    #[must_use]
    pub fn command(&self) -> String {
        let mut variables = Vec::new();
        let mut words = vec!["istio-iptables".to_owned()];
        for (key, text) in self.iter() {
            let (spec, value) = (key.spec(), shell_word(&list_shown(text)));
            match (spec.has_flag(), spec.kind, spec.short) {
                (false, ..) => variables.push(format!("{}={value}", spec.name)),
                (true, Kind::Boolean, _) => words.push(format!("--{}", spec.name)),
                (true, _, Some(short)) => words.push(format!("-{short} {value}")),
                (true, _, None) => words.push(format!("--{} {value}", spec.name)),
            }
        }
        variables.extend(words);
        variables.join(" ")
    }

    fn proxy(&mut self, Traffic { ports, proxy, .. }: &Traffic) {
        self.unless_default(Key::EnvoyPort, ports.outbound);
        self.unless_default(Key::InboundCapturePort, ports.inbound);
        self.unless_default(Key::InboundTunnelPort, ports.tunnel);
        self.list(Key::ProxyUid, &proxy.uids);
        if proxy.gids != proxy.uids {
            self.list(Key::ProxyGid, &proxy.gids);
        }
    }

    fn inbound(&mut self, traffic: &Traffic) {
        if let Mode::Tproxy(tproxy) = traffic.mode {
            self.add(Key::InboundInterceptionMode, "TPROXY");
            self.unless_default(Key::InboundTproxyMark, tproxy.mark);
            self.unless_default(Key::InboundTproxyRouteTable, tproxy.table);
        }
        match &traffic.inbound {
            InboundPorts::None => {}
            InboundPorts::Only(ports) => self.list(Key::InboundPorts, ports),
            InboundPorts::All { except } => {
                self.add(Key::InboundPorts, "*");
                self.list(Key::LocalExcludePorts, except);
            }
        }
    }

    fn outbound(&mut self, traffic: &Traffic, families: Families) {
        let outbound = &traffic.outbound;
        match &outbound.ranges {
            OutboundRanges::All => self.add(Key::ServiceCidr, "*"),
            OutboundRanges::None => self.list(Key::ServiceCidr, &written(&[], outbound.loopback, families)),
            OutboundRanges::Only(ranges) => {
                self.list(Key::ServiceCidr, &written(ranges, outbound.loopback, families));
            }
        }
        self.list(Key::ServiceExcludeCidr, &outbound.excluded_ranges);
        self.list(Key::OutboundPorts, &outbound.ports);
        self.list(Key::LocalOutboundPortsExclude, &outbound.excluded_ports);
        match &outbound.owners {
            OwnerGroups::All { except } => self.list(Key::OutboundOwnerGroupsExclude, except),
            OwnerGroups::Only(gids) => self.list(Key::OutboundOwnerGroups, gids),
        }
        self.unless_default(Key::OutboundIpv4LoopbackCidr, traffic.loopback_v4);
        if traffic.drop_invalid {
            self.add(Key::DropInvalid, "true");
        }
    }

    fn add(&mut self, key: Key, text: impl Into<String>) {
        self.0.push((key, text.into()));
    }

    fn unless_default(&mut self, key: Key, value: impl Display) {
        let text = value.to_string();
        if text != key.spec().default {
            self.add(key, text);
        }
    }

    fn list(&mut self, key: Key, items: &[impl Display]) {
        if !items.is_empty() {
            let items: Vec<String> = items.iter().map(ToString::to_string).collect();
            self.add(key, items.join(","));
        }
    }
}

/// Ranges as an option has them. That the app's loopback traffic must reach them follows from the address as
/// it is written: one of them is written with a loopback address then, or it is one of the family without
/// rules.
fn written(ranges: &[IpNetwork], loopback: bool, families: Families) -> Vec<String> {
    let mut written: Vec<String> = ranges.iter().map(ToString::to_string).collect();
    if !loopback || ranges.iter().any(|range| range.ip().is_loopback()) {
        return written;
    }
    let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
    let holding = ranges.iter().position(|range| range.contains(v4) || range.contains(v6));
    match holding.and_then(|at| Some((written.get_mut(at)?, ranges.get(at)?))) {
        Some((text, range)) => {
            let address = if range.is_ipv4() { v4 } else { v6 };
            *text = format!("{address}/{}", range.prefix());
        }
        None if families.contains(Family::V4) => written.push(format!("{v6}/128")),
        None => written.push(format!("{v4}/32")),
    }
    written
}
