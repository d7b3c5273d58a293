//! All policy rules and routes of a family, for look-ups.

use std::io;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use ipnetwork::IpNetwork;

use super::route::{self, RTA_DST, RTA_OIF, RTA_PRIORITY, RTA_TABLE, RTM_F_CLONED, RTMSG};
use super::rule::{self, FIB_RULE_INVERT};
use super::{Rtnetlink, af};
use crate::kernel::idmap::OwnerIds;
use crate::kernel::netlink::{Message, Reply};
use crate::kernel::recording;
use crate::model::{
    DEFAULT_TABLE, Family, Fib, FibRoute, LOCAL_TABLE, MAIN_TABLE, PolicyAction, PolicyRule, RouteKind,
    SourceAddress,
};

/// How often, and after which pause, routes are read again if one may come yet.
const ROUTE_ATTEMPTS: u32 = 100;
const ROUTE_PAUSE: Duration = Duration::from_millis(2);

const RTA_SRC: u16 = 2;
const RTA_GATEWAY: u16 = 5;
const RTA_PREFSRC: u16 = 7;
/// `RTNH_F_DEAD`: the interface is down.
const RTNH_F_DEAD: u32 = 1;

const FRA_DST: u16 = 1;
const FRA_SRC: u16 = 2;
const FRA_IIFNAME: u16 = 3;
const FRA_GOTO: u16 = 4;
const FRA_OIFNAME: u16 = 17;
const FRA_L3MDEV: u16 = 19;
const FRA_UID_RANGE: u16 = 20;
const FRA_IP_PROTO: u16 = 22;
const FRA_SPORT_RANGE: u16 = 23;
const FRA_DPORT_RANGE: u16 = 24;
const FRA_SPORT_MASK: u16 = 28;
const FRA_DPORT_MASK: u16 = 29;

impl Rtnetlink {
    /// Every policy rule and route of a family. Those that a kernel without policy rules follows, if it has
    /// none.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn fib(&mut self, family: Family) -> io::Result<Fib> {
        let mut fib = self.fib_of_now(family)?;
        for _ in 0..ROUTE_ATTEMPTS {
            if !self.awaits_route(&fib)? {
                break;
            }
            thread::sleep(ROUTE_PAUSE);
            fib = self.fib_of_now(family)?;
        }
        Ok(fib)
    }

    /// Whether the route of an IPv6 address may come yet: the kernel adds it in the background, some
    /// milliseconds after the address.
    fn awaits_route(&mut self, fib: &Fib) -> io::Result<bool> {
        let has_route = |own: &SourceAddress| {
            let routes = fib.routes.iter().filter(|route| route.kind == RouteKind::Local);
            routes.filter_map(|route| route.destination).any(|range| range.contains(own.address))
        };
        // Nothing is detected on `lo`. Elsewhere that may take seconds.
        let comes_soon = |own: &&SourceAddress| !own.is_tentative || own.interface == "lo";
        let own = fib.addresses.iter().filter(|own| own.address.is_ipv6());
        let lacking: Vec<_> = own.filter(comes_soon).filter(|own| !has_route(own)).collect();
        if lacking.is_empty() || !recording::is_off() {
            return Ok(false);
        }
        let links = self.links()?;
        Ok(lacking.iter().any(|own| links.named(&own.interface).is_some_and(|link| link.is_up)))
    }

    fn fib_of_now(&mut self, family: Family) -> io::Result<Fib> {
        let mut header = [0; RTMSG];
        header[0] = af(family);
        let mut listed = self.listed(&Message::new(libc::RTM_GETRULE, 0, &header))?;
        // Without rules of this family the kernel lists those of all others.
        let is_of_family = |of: &u8| *of == af(family);
        listed.rules.retain(|(of, _)| is_of_family(of));
        let listed_routes = self.listed(&Message::new(libc::RTM_GETROUTE, 0, &header))?.routes.into_iter();
        let mut routes = Vec::new();
        for (_, mut route, link) in listed_routes.filter(|(of, ..)| is_of_family(of)) {
            route.interface = link.map(|index| self.link_name(index));
            routes.push(route);
        }
        let mut rules: Vec<PolicyRule> = listed.rules.into_iter().map(|(_, rule)| rule).collect();
        if rules.is_empty() {
            let tables = [(0, LOCAL_TABLE), (32766, MAIN_TABLE), (32767, DEFAULT_TABLE)];
            rules = tables.map(|(priority, table)| PolicyRule::lookup(priority, table)).into();
        }
        let mut of_uids = rules.iter_mut().filter_map(|rule| rule.uids.as_mut()).peekable();
        if of_uids.peek().is_some() {
            let ids = OwnerIds::read().unwrap_or_default();
            of_uids.for_each(|uids| *uids = ids.uids(*uids));
        }
        let addresses = self.source_addresses(family)?;
        if !routes.iter().any(|route| route.kind == RouteKind::Local) && !addresses.is_empty() {
            let links = self.links()?;
            let is_up = |name: &str| links.named(name).is_some_and(|link| link.is_up);
            routes.extend(local_routes(&addresses, is_up));
        }
        Ok(Fib { rules, routes, addresses })
    }

    fn listed(&mut self, message: &Message) -> io::Result<Listed> {
        let listed = self.socket.dump(message, |listed: &mut Listed, reply| {
            let family = reply.byte(0);
            match reply.kind {
                libc::RTM_NEWRULE => listed.rules.extend(read_rule(reply).map(|rule| (family, rule))),
                libc::RTM_NEWROUTE => {
                    listed.routes.extend(read_route(reply).map(|(route, link)| (family, route, link)));
                }
                _ => {}
            }
        });
        match listed {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP)) => {
                Ok(Listed::default())
            }
            other => other,
        }
    }
}

/// The routes by which the kernel delivers to its addresses, where it does not list them: gVisor does not. On
/// Linux an interface that is up has a route for each address in use.
fn local_routes(addresses: &[SourceAddress], is_up: impl Fn(&str) -> bool) -> Vec<FibRoute> {
    let in_use = addresses.iter().filter(|address| !address.is_tentative && is_up(&address.interface));
    let route = |address: &SourceAddress| {
        let SourceAddress { interface, address, prefix, .. } = address;
        // All of the loopback range is local, not only the address.
        let own = if address.is_ipv4() { 32 } else { 128 };
        let length = if address.is_ipv4() && address.is_loopback() { *prefix } else { own };
        let range = IpNetwork::new(*address, length).ok()?;
        Some(FibRoute {
            table: LOCAL_TABLE,
            destination: Some(IpNetwork::new(range.network(), length).ok()?),
            kind: RouteKind::Local,
            interface: Some(interface.clone()),
            gateway: None,
            source: Some(*address),
            scope: 254,
            metric: 0,
            has_other_tests: false,
            is_dead: false,
            origin: 2,
        })
    };
    in_use.filter_map(route).collect()
}

/// What a dump lists, with the family of each entry.
#[derive(Default)]
struct Listed {
    rules: Vec<(u8, PolicyRule)>,
    routes: Vec<(u8, FibRoute, Option<u32>)>,
}

/// The network of an attribute, whose length is in the header.
fn network(bytes: &[u8], length: u8) -> Option<IpNetwork> {
    let address: IpAddr = route::address(bytes)?;
    IpNetwork::new(address, length).ok()
}

fn pair<const N: usize>(bytes: &[u8]) -> Option<([u8; N], [u8; N])> {
    let (first, last) = bytes.split_at_checked(N)?;
    Some((first.try_into().ok()?, last.try_into().ok()?))
}

fn kind(number: u8) -> RouteKind {
    match number {
        1 => RouteKind::Unicast,
        2 => RouteKind::Local,
        6 => RouteKind::Blackhole,
        7 => RouteKind::Unreachable,
        8 => RouteKind::Prohibit,
        9 => RouteKind::Throw,
        _ => RouteKind::Other,
    }
}

fn read_rule(reply: &Reply<'_>) -> Option<PolicyRule> {
    let [destination, source, tos, action] = [1, 2, 3, 7].map(|offset| reply.byte(offset));
    let mut rule = PolicyRule::lookup(0, u32::from(reply.byte(4)));
    rule.is_negated = reply.word(8) & FIB_RULE_INVERT != 0;
    rule.has_other_tests = tos != 0;
    let (mut target, mut mark, mut mask) = (0, None, None);
    for attribute in reply.attributes(rule::HEADER) {
        let bytes = attribute.payload;
        let ports = || pair(bytes).map(|(first, last)| (u16::from_ne_bytes(first), u16::from_ne_bytes(last)));
        match attribute.kind {
            FRA_DST => rule.destination = Some(network(bytes, destination)?),
            FRA_SRC => rule.source = Some(network(bytes, source)?),
            FRA_IIFNAME => rule.in_interface = Some(attribute.text()),
            FRA_OIFNAME => rule.out_interface = Some(attribute.text()),
            FRA_GOTO => target = attribute.u32()?,
            rule::FRA_PRIORITY => rule.priority = attribute.u32()?,
            rule::FRA_FWMARK => mark = attribute.u32(),
            rule::FRA_FWMASK => mask = attribute.u32(),
            rule::FRA_TABLE => rule.action = PolicyAction::Table(attribute.u32()?),
            rule::FRA_PROTOCOL => rule.origin = attribute.byte()?,
            rule::FRA_SUPPRESS_PREFIXLEN => {
                rule.suppress_prefix = attribute.u32().filter(|length| *length != u32::MAX);
            }
            // It names no table.
            FRA_L3MDEV if attribute.byte() != Some(0) => rule.action = PolicyAction::Vrf,
            FRA_UID_RANGE => {
                let ends = pair(bytes)?;
                rule.uids = Some((u32::from_ne_bytes(ends.0), u32::from_ne_bytes(ends.1)));
            }
            FRA_IP_PROTO => rule.protocol = attribute.byte(),
            FRA_SPORT_RANGE => rule.source_ports = Some(ports()?),
            FRA_DPORT_RANGE => rule.destination_ports = Some(ports()?),
            // All bits of the one port.
            FRA_SPORT_MASK | FRA_DPORT_MASK if bytes == [0xff, 0xff] => {}
            rule::FRA_PAD => {}
            _ => rule.has_other_tests = true,
        }
    }
    rule.mark = (mark.is_some() || mask.is_some())
        .then(|| (mark.unwrap_or(0), mask.unwrap_or(u32::MAX)))
        .filter(|(_, mask)| *mask != 0);
    rule.action = match (action, rule.action) {
        (rule::FR_ACT_TO_TBL, table) => table,
        (2, _) => PolicyAction::Goto(target),
        (3, _) => PolicyAction::Nop,
        (6..=8, _) => PolicyAction::Reject(kind(action)),
        _ => PolicyAction::Unknown(action),
    };
    Some(rule)
}

/// A route and the number of its link, whose name the dump does not have.
fn read_route(reply: &Reply<'_>) -> Option<(FibRoute, Option<u32>)> {
    let [length, source, tos, scope, number] = [1, 2, 3, 6, 7].map(|offset| reply.byte(offset));
    let flags = reply.word(8);
    // An unspecified kind is not a route.
    if number == 0 || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let mut route = FibRoute {
        table: u32::from(reply.byte(4)),
        destination: None,
        kind: kind(number),
        interface: None,
        gateway: None,
        source: None,
        scope,
        metric: 0,
        has_other_tests: tos != 0 || source != 0,
        is_dead: flags & RTNH_F_DEAD != 0,
        origin: reply.byte(5),
    };
    let mut link = None;
    for attribute in reply.attributes(RTMSG) {
        match attribute.kind {
            RTA_DST if length != 0 => route.destination = Some(network(attribute.payload, length)?),
            RTA_SRC => route.has_other_tests = true,
            RTA_GATEWAY => route.gateway = route::address(attribute.payload),
            RTA_PREFSRC => route.source = route::address(attribute.payload),
            RTA_OIF => link = Some(attribute.u32()?),
            RTA_PRIORITY => route.metric = attribute.u32()?,
            RTA_TABLE => route.table = attribute.u32()?,
            _ => {}
        }
    }
    Some((route, link))
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlab::in_new_namespace;
    use netlab::process::run;

    /// Destination and interface of each local route.
    fn local(routes: &[FibRoute]) -> Vec<String> {
        let local = routes.iter().filter(|route| route.kind == RouteKind::Local);
        let mut local: Vec<String> = local
            .map(|route| format!("{} {}", route.destination.unwrap(), route.interface.as_ref().unwrap()))
            .collect();
        local.sort();
        local.dedup();
        local
    }

    #[test]
    fn local_routes_that_are_not_listed_are_those_of_the_kernel() {
        in_new_namespace(|| {
            for command in [
                "link set lo up",
                "link add eth7 type veth peer name peer7",
                "link set eth7 up",
                "link set peer7 up",
                "address add 192.0.2.1/24 dev eth7",
                "address add 2001:db8::1/64 dev eth7 nodad",
            ] {
                run("ip", &command.split(' ').collect::<Vec<_>>());
            }
            let mut socket = Rtnetlink::open().unwrap();
            let links = socket.links().unwrap();
            let is_up = |name: &str| links.named(name).is_some_and(|link| link.is_up);
            // The kernel gives each link an address that is not in use at first.
            let is_link_local = |text: &str| text.starts_with("fe80::");
            for family in Family::ALL {
                let Fib { mut addresses, routes, .. } = socket.fib(family).unwrap();
                addresses.retain(|address| !is_link_local(&address.address.to_string()));
                let mut expected = local(&routes);
                expected.retain(|route| !is_link_local(route));
                assert!(expected.len() >= 2, "{expected:?}");
                // The kernel has a route for the address of `lo` beside that for its range.
                let mut found = local(&local_routes(&addresses, is_up));
                expected.retain(|route| !route.starts_with("127.0.0.1/32"));
                found.retain(|route| !route.starts_with("127.0.0.1/32"));
                assert_eq!(found, expected, "{family}");
            }
        });
    }
}
