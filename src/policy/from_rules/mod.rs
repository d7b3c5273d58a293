//! Derives the configuration from live rules: the inverse of [`super::ruleset`].
//!
//! Only our own rules are read, by form and position; settings that rules do not show come from the given
//! configuration. [`super::ruleset`] of the result is the proof: if it gives other rules, another program has
//! changed the live ones.

mod form;

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network};

use form::{
    destination_port, interface, is_app_loopback, is_invalid, loopback, not_to, owners_alone, port, ranges,
};

use crate::config::{
    CaptureConfig, Dns, InboundPorts, Mode, OutboundRanges, OwnerGroups, ProxyOwner, Tproxy, Traffic,
};
use crate::model::{
    Chain, DNS_PORT, Families, Family, FamilyRules, Hook, HookRules, Interface, Mark, Match, Matcher, Owner,
    PerFamily, Port, Ports, Statement, Table, TableRules, Target, Transport, Why,
};

/// The configuration whose rules are `live`. `table_of` tells which routing table packets with a mark are
/// looked up in; `otherwise` has what no rule shows. What all families have alike is read from `first`, if it
/// has it.
#[must_use]
pub fn config_from(
    live: &PerFamily<FamilyRules>,
    first: Family,
    table_of: impl Fn(Mark) -> Option<u32>,
    otherwise: &CaptureConfig,
) -> CaptureConfig {
    let expanded: Vec<Cow<'_, FamilyRules>> = live.values().map(super::compact::expand).collect();
    let rules = OwnRules { all: expanded.iter().map(AsRef::as_ref).collect(), first };
    let traffic = &otherwise.traffic;
    let calls = rules.calls_of_the_proxy();
    let mode = rules.mode(table_of, traffic.mode);
    let mut ports = traffic.ports;
    ports.outbound = rules.redirect(Chain::Redirect).unwrap_or(ports.outbound);
    ports.inbound = rules.redirect(Chain::InRedirect).unwrap_or(ports.inbound);
    ports.tunnel = tunnel(&calls).unwrap_or(ports.tunnel);
    let proxy = proxy(&rules.output(is_call_of_the_proxy)).unwrap_or_else(|| traffic.proxy.clone());
    let mut outbound = traffic.outbound.clone();
    outbound.loopback =
        !calls.is_empty() && rules.output(|rule| is_app_loopback(rule).then_some(())).is_empty();
    outbound.owners = rules.owner_groups(&proxy);
    outbound.excluded_ports = rules.output(|rule| port(rule, Target::Return));
    outbound.ports = rules.output(|rule| port(rule, Target::Jump(Chain::Redirect)));
    let loopback_v4 = calls.iter().find_map(|call| loopback(call)).unwrap_or(traffic.loopback_v4);
    outbound.excluded_ranges = rules.excluded_ranges(loopback_v4);
    let excluded_interfaces = rules.hook(Table::Nat, Hook::Output, |rule| interface(rule, false));
    let virtual_interfaces = rules.virtual_interfaces(&excluded_interfaces);
    outbound.ranges = rules.included(virtual_interfaces.first());
    CaptureConfig {
        families: families(live),
        dns: rules.dns(),
        traffic: Traffic {
            mode,
            inbound: rules.inbound(mode, ports.tunnel),
            drop_invalid: !rules.hook(Table::Mangle, Hook::Prerouting, is_invalid).is_empty(),
            excluded_interfaces,
            virtual_interfaces,
            loopback_v4,
            ports,
            proxy,
            outbound,
        },
    }
}

/// The rules of ours in each family.
struct OwnRules<'a> {
    all: Vec<&'a FamilyRules>,
    /// The family that is read first.
    first: Family,
}

impl<'a> OwnRules<'a> {
    /// What `read` finds in a chain of ours. All families have the same, so that of the first that has any
    /// counts.
    fn chain<T>(&self, table: Table, chain: Chain, read: impl Fn(&'a Statement) -> Option<T>) -> Vec<T> {
        self.first(|rules| statements(rules, table, chain).filter_map(&read).collect())
    }

    /// What `read` finds in `ISTIO_OUTPUT`.
    fn output<T>(&self, read: impl Fn(&'a Statement) -> Option<T>) -> Vec<T> {
        self.chain(Table::Nat, Chain::Output, read)
    }

    /// What `read` finds in our part of a shared chain.
    fn hook<T>(&self, table: Table, hook: Hook, read: impl Fn(&'a Statement) -> Option<T>) -> Vec<T> {
        self.first(|rules| shared(rules, table, hook).filter_map(&read).collect())
    }

    fn first<T>(&self, read: impl Fn(&'a FamilyRules) -> Vec<T>) -> Vec<T> {
        let first = |rules: &&&FamilyRules| rules.family == self.first;
        let in_order = self.all.iter().filter(first).chain(self.all.iter().filter(|rules| !first(rules)));
        in_order.map(|rules| read(rules)).find(|found| !found.is_empty()).unwrap_or_default()
    }

    fn redirect(&self, chain: Chain) -> Option<Port> {
        let port = |rule: &Statement| rule.target.redirect();
        self.chain(Table::Nat, chain, port).first().copied()
    }

    /// The rules for calls of the proxy to its own pod: one for each of its users and groups.
    fn calls_of_the_proxy(&self) -> Vec<&'a Statement> {
        let all = self.all.iter().flat_map(|rules| statements(rules, Table::Nat, Chain::Output));
        all.filter_map(is_call_of_the_proxy).collect()
    }

    fn mode(&self, table_of: impl Fn(Mark) -> Option<u32>, otherwise: Mode) -> Mode {
        let saved = |rule: &Statement| rule.matcher.mark.filter(|_| rule.target == Target::SaveMark);
        let Some(mark) = self.hook(Table::Mangle, Hook::Prerouting, saved).first().map(|mark| *mark.value())
        else {
            return Mode::Redirect;
        };
        let known = if let Mode::Tproxy(tproxy) = otherwise { tproxy.table } else { DEFAULT_ROUTE_TABLE };
        Mode::Tproxy(Tproxy { mark, table: table_of(mark).unwrap_or(known) })
    }

    fn inbound(&self, mode: Mode, tunnel: Port) -> InboundPorts {
        let (table, taken) = match mode {
            Mode::Redirect => (Table::Nat, Chain::InRedirect),
            Mode::Tproxy(_) => (Table::Mangle, Chain::Tproxy),
        };
        let takes = |rule: &Statement| rule.target == Target::Jump(taken);
        let included =
            self.chain(table, Chain::Inbound, |rule| takes(rule).then(|| destination_port(&rule.matcher)));
        let excluded = || {
            let mut ports = self.chain(table, Chain::Inbound, |rule| port(rule, Target::Return));
            // The rule of the tunnel port has the same form.
            if let Some(at) = ports.iter().position(|port| *port == tunnel).filter(|_| table == Table::Nat) {
                ports.remove(at);
            }
            ports
        };
        // What enters the chain was to be captured there.
        let enters = |rule: &Statement| (rule.target == Target::Jump(Chain::Inbound)).then_some(());
        let is_entered = || !self.hook(table, Hook::Prerouting, enters).is_empty();
        match included.as_slice() {
            [] if is_entered() => InboundPorts::All { except: excluded() },
            [] => InboundPorts::None,
            ports if ports.contains(&None) => InboundPorts::All { except: excluded() },
            ports => InboundPorts::Only(ports.iter().copied().flatten().collect()),
        }
    }

    /// Rules for one group each, behind those of the proxy; or one rule for all groups but some.
    fn owner_groups(&self, proxy: &ProxyOwner) -> OwnerGroups {
        let others = self.output(|rule| {
            let owners = owners_alone(rule, Target::Return)?;
            let groups = owners.iter().map(|owner| match owner {
                Match::Not(Owner::Gid(gid)) => Some(*gid),
                Match::Not(Owner::Uid(_)) | Match::Is(_) => None,
            });
            groups.collect::<Option<Vec<u32>>>()
        });
        if let Some(only) = others.into_iter().next() {
            return OwnerGroups::Only(only);
        }
        let mut except = self.output(|rule| match owners_alone(rule, Target::Return)? {
            [Match::Is(Owner::Gid(gid))] => Some(*gid),
            _ => None,
        });
        for gid in &proxy.gids {
            if let Some(at) = except.iter().position(|excluded| excluded == gid) {
                except.remove(at);
            }
        }
        OwnerGroups::All { except }
    }

    /// The destinations of rules that test nothing else, in each family.
    fn ranges(&self, target: Target) -> Vec<(Family, Vec<IpNetwork>)> {
        let of = |rules: &&FamilyRules| {
            let family = rules.family;
            let read = |rule| ranges(rule, target, family);
            (family, statements(rules, Table::Nat, Chain::Output).flat_map(read).collect())
        };
        self.all.iter().map(of).collect()
    }

    /// Of rules that return; the first with the loopback range is not for an excluded one.
    fn excluded_ranges(&self, loopback_v4: Ipv4Network) -> Vec<IpNetwork> {
        let mut all = Vec::new();
        for (family, mut ranges) in self.ranges(Target::Return) {
            let loopback = match family {
                Family::V4 => loopback_v4.into(),
                Family::V6 => IpAddr::from(Ipv6Addr::LOCALHOST).into(),
            };
            if let Some(at) = ranges.iter().position(|range| *range == loopback) {
                ranges.remove(at);
            }
            all.extend(ranges);
        }
        all
    }

    /// A rule for all addresses of each family, or rules for ranges, of which one may be a range of all
    /// addresses. The rules of a virtual interface have them in their order, which native sets have not.
    fn included(&self, virtual_interface: Option<&Interface>) -> OutboundRanges {
        let of_guests = virtual_interface.map(|interface| self.ranges_of_guests(interface));
        let of_guests = of_guests.filter(|all| all.iter().any(|(_, ranges)| !ranges.is_empty()));
        let ranges = of_guests.unwrap_or_else(|| self.ranges(Target::Jump(Chain::Redirect)));
        let is_all = |(_, ranges): &(Family, Vec<IpNetwork>)| matches!(ranges.as_slice(), [range] if range.prefix() == 0);
        let mut rules = self.all.iter().flat_map(|rules| rules.tables.values()).flat_map(TableRules::rules);
        if !ranges.is_empty()
            && ranges.iter().all(is_all)
            && !rules.any(|rule| rule.why == Why::IncludedRange)
        {
            return OutboundRanges::All;
        }
        let ranges: Vec<IpNetwork> = ranges.into_iter().flat_map(|(_, ranges)| ranges).collect();
        if ranges.is_empty() { OutboundRanges::None } else { OutboundRanges::Only(ranges) }
    }

    /// The ranges that are captured from a virtual interface. Each was put before the one of before.
    fn ranges_of_guests(&self, interface: &Interface) -> Vec<(Family, Vec<IpNetwork>)> {
        let of = |rules: &&FamilyRules| {
            let is_its = |rule: &&Statement| rule.matcher.in_interface.as_ref() == Some(interface);
            let read = |rule: &Statement| {
                let Statement { matcher, target } = rule.clone();
                let matcher = Matcher { in_interface: None, ..matcher };
                ranges(&Statement { matcher, target }, Target::Jump(Chain::Redirect), rules.family)
            };
            let of_interface = shared(rules, Table::Nat, Hook::Prerouting).filter(is_its);
            let mut found: Vec<_> = of_interface.flat_map(read).collect();
            found.reverse();
            (rules.family, found)
        };
        self.all.iter().map(of).collect()
    }

    /// The rules that let in by an interface, without those of interfaces that are excluded in both
    /// directions. They were each put before the one of before.
    fn virtual_interfaces(&self, excluded: &[Interface]) -> Vec<Interface> {
        let mut interfaces = self.hook(Table::Nat, Hook::Prerouting, |rule| interface(rule, true));
        for name in excluded {
            if let Some(at) = interfaces.iter().rposition(|interface| interface == name) {
                interfaces.remove(at);
            }
        }
        interfaces.reverse();
        interfaces
    }

    fn dns(&self) -> Dns {
        let tcp = |rule: &&Statement| {
            rule.matcher.protocol.as_ref().is_some_and(|protocol| protocol.transport == Transport::Tcp)
        };
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for rule in
            self.all.iter().flat_map(|rules| statements(rules, Table::Nat, Chain::OutputDns)).filter(tcp)
        {
            match rule.matcher.destination {
                None => return Dns::All,
                // Native nftables merges servers with adjacent addresses.
                Some(Match::Is(IpNetwork::V4(servers))) => v4.extend(servers.iter().take(MOST_SERVERS)),
                Some(Match::Is(IpNetwork::V6(servers))) => v6.extend(servers.iter().take(MOST_SERVERS)),
                Some(Match::Not(_)) => {}
            }
        }
        // Without a server in the captured families only the zones of the proxy's queries show it; where
        // another program has flushed these, the servers do.
        let has_zones = !self.chain(Table::Raw, Chain::OutputDns, |_| Some(())).is_empty();
        let is_on = has_zones || !v4.is_empty() || !v6.is_empty();
        if is_on { Dns::Servers { v4, v6 } } else { Dns::Off }
    }
}

/// The table of marked packets that no option names.
const DEFAULT_ROUTE_TABLE: u32 = 133;

/// Most DNS servers that are read from one rule.
const MOST_SERVERS: usize = 64;

/// The form of the rules for calls of the proxy to its own pod, which no other rule has.
fn is_call_of_the_proxy(rule: &Statement) -> Option<&Statement> {
    (rule.target == Target::Jump(Chain::InRedirect)).then_some(rule)
}

fn statements(rules: &FamilyRules, table: Table, chain: Chain) -> impl Iterator<Item = &Statement> {
    let rules = rules.tables.get(&table).and_then(|table| table.chains.get(&chain));
    rules.into_iter().flatten().map(|rule| &rule.statement)
}

fn shared(rules: &FamilyRules, table: Table, hook: Hook) -> impl Iterator<Item = &Statement> {
    let rules = rules.tables.get(&table).and_then(|table| table.hooks.get(&hook));
    rules.into_iter().flat_map(HookRules::iter).map(|rule| &rule.statement)
}

fn families(live: &PerFamily<FamilyRules>) -> Families {
    match (live.get(&Family::V4), live.get(&Family::V6)) {
        (Some(_), None) => Families::V4,
        (None, Some(_)) => Families::V6,
        (Some(_), Some(_)) | (None, None) => Families::Both,
    }
}

fn proxy(calls: &[&Statement]) -> Option<ProxyOwner> {
    let mut proxy = ProxyOwner { uids: Vec::new(), gids: Vec::new() };
    for owner in calls.iter().flat_map(|call| &call.matcher.owners) {
        let (ids, id) = match *owner.value() {
            Owner::Uid(uid) => (&mut proxy.uids, uid),
            Owner::Gid(gid) => (&mut proxy.gids, gid),
        };
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    (!proxy.uids.is_empty() && !proxy.gids.is_empty()).then_some(proxy)
}

/// With DNS capture the rules for users have port 53 beside it, those for groups have it alone.
fn tunnel(calls: &[&Statement]) -> Option<Port> {
    let ports = || calls.iter().filter_map(|call| not_to(call));
    let alone = |ports: &Ports| if let Ports::One(port) = ports { Some(*port) } else { None };
    let beside = |ports: &Ports| match ports {
        Ports::Any(ports) => ports.iter().copied().find(|port| *port != DNS_PORT),
        Ports::One(_) => None,
    };
    ports().find_map(alone).or_else(|| ports().find_map(beside))
}
