//! Interfaces on which the kernel drops the connections that our rules capture.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::finding::{Finding, Problem, Subject};
use crate::model::{
    Chain, Family, FamilyRules, Fib, FibRoute, Hook, HookRules, Interface, Link, LinkKind, Links, Mark,
    RouteKind, SourceValidation, Table, Target,
};
use crate::text::{one_line, shell_words};

/// The interfaces of the pod on which the kernel drops what these rules capture.
#[must_use]
pub fn find_dropping_interfaces(rules: &FamilyRules, links: &Links, fib: Option<&Fib>) -> Vec<Finding> {
    let family = rules.family;
    let mut found: Vec<_> = loopback_unusable(rules, links, fib).into_iter().collect();
    let arrives =
        |link: &&Link| link.is_up && link.name != "lo" && !link.is_port && !is_excluded(rules, link);
    for link in links.each.iter().filter(arrives) {
        let name = one_line(&link.name);
        if let Some(mark) = tproxy_mark(rules) {
            found.extend(loses_socket(family, link, links).map(|why| {
                dropping(&link.name, format!(
                    "connections that arrive on {name} do not reach the proxy ({family}, mark {mark} of TPROXY): {why}"
                    ), why)
                .subject(format!("`sysctl -w net.bridge.{}=0`", bridge_setting(family)))
            }));
            found.extend(always_sends_cookies(links).map(|why| {
                dropping(
                    &link.name,
                    format!(
                        "connections that arrive on {name} are reset ({family}, mark {mark} of TPROXY): {why}"
                    ),
                    why,
                )
                .subject("`sysctl -w net.ipv4.tcp_syncookies=0`")
            }));
            found.extend(inherits_mark(links).map(|why| {
                dropping(&link.name, format!(
                    "connections that arrive on {name} get no reply ({family}, mark {mark} of TPROXY): {why}"
                    ), why)
                .subject("`sysctl -w net.ipv4.tcp_fwmark_accept=0`")
            }));
            let why = validates_by_mark(family, link, links.all);
            let replies = if marks_replies(rules) { ", and replies to the pod's own" } else { "" };
            found.extend(why.map(|why| {
                dropping(&link.name, format!(
                    "connections that arrive on {name} are dropped ({family}, mark {mark} of TPROXY){replies}: {why}"
                    ), why)
                .subject(format!("`sysctl -w net.ipv4.conf.{}.src_valid_mark=0`", marking(link, links.all)))
            }));
        }
        if redirects_inbound(rules) && unicast_interfaces(fib).any(|name| *name == link.name) {
            let why = has_no_address(family, link);
            found.extend(why.map(|why| {
                dropping(&link.name, format!("connections that arrive on {name} are dropped: {why}"), why)
                    .subject(format!(
                        "`{}`, or leave the interface out: `--istio-exclude-interfaces {}` (`-c`)",
                        add_address(family, &link.name),
                        shell_words(&link.name)
                    ))
            }));
        }
    }
    found
}

/// The interface on which the kernel drops connections that are captured, and why.
fn dropping(interface: &str, sentence: String, why: String) -> Finding {
    let about = [Subject::Interface(interface.to_owned()), Subject::Condition(why)];
    Finding::new(Problem::InterfaceDrops, sentence).about(about)
}

/// The interfaces of unicast routes.
fn unicast_interfaces(fib: Option<&Fib>) -> impl Iterator<Item = &String> {
    let routes = fib.into_iter().flat_map(|fib| &fib.routes);
    routes.filter(|route| route.kind == RouteKind::Unicast).filter_map(|route| route.interface.as_ref())
}

/// Captured packets go to the proxy over `lo`: outbound ones to the loopback address, with TPROXY also the
/// application's replies.
fn loopback_unusable(rules: &FamilyRules, links: &Links, fib: Option<&Fib>) -> Option<Finding> {
    let family = rules.family;
    let redirects = jumps(rules, Chain::Output, Chain::Redirect);
    let down = if redirects || tproxy_mark(rules).is_some() { loopback_down(links) } else { None };
    let is_used = || unicast_interfaces(fib).any(|name| name != "lo");
    let has_no_address = || if redirects && is_used() { loopback_unrouted(family, fib) } else { None };
    // The kernel adds the addresses of `lo` itself when that goes up.
    let (why, command) = match (down, family) {
        (Some(why), _) => (why, "ip link set lo up"),
        (None, Family::V4) => (has_no_address()?, "ip addr add 127.0.0.1/8 dev lo"),
        (None, Family::V6) => (
            has_no_address()?,
            "sysctl -w net.ipv6.conf.lo.disable_ipv6=0; ip -6 addr replace ::1/128 dev lo",
        ),
    };
    let problem = format!("captured connections do not reach the proxy ({family}): {why}");
    let finding = dropping("lo", problem, why);
    Some(Finding { problem: Problem::LoopbackUnusable, ..finding }.subject(command))
}

/// Why nothing gets to a process over `lo`, if that is so.
#[must_use]
pub fn loopback_down(links: &Links) -> Option<String> {
    let is_down = !links.named("lo")?.is_up;
    is_down.then(|| "lo is down; bring it up (`ip link set lo up`)".to_owned())
}

/// Why nothing is delivered to the loopback address, to which REDIRECT sends outbound packets, if that is so.
#[must_use]
pub fn loopback_unrouted(family: Family, fib: Option<&Fib>) -> Option<String> {
    let (address, prefix, setting) = match family {
        Family::V4 => (IpAddr::V4(Ipv4Addr::LOCALHOST), 8, ""),
        Family::V6 => (IpAddr::V6(Ipv6Addr::LOCALHOST), 128, ", with net.ipv6.conf.lo.disable_ipv6=0"),
    };
    (!is_local(fib, address)?)
        .then(|| format!("{address} is not on lo; add it (`ip addr add {address}/{prefix} dev lo`{setting})"))
}

/// Whether an address is one of the machine.
#[must_use]
pub fn is_local(fib: Option<&Fib>, address: IpAddr) -> Option<bool> {
    let delivers = |route: &FibRoute| {
        route.kind == RouteKind::Local && route.destination.is_none_or(|range| range.contains(address))
    };
    Some(fib?.routes.iter().any(delivers))
}

/// Why the kernel drops a captured packet that arrives on this interface, or its replies, if it does.
#[must_use]
pub fn drops(family: Family, links: &Links, name: &str, is_tproxy: bool) -> Option<String> {
    let link = links.named(name)?;
    let dropped =
        if is_tproxy { validates_by_mark(family, link, links.all) } else { has_no_address(family, link) };
    let unreplied = || always_sends_cookies(links).or_else(|| inherits_mark(links)).filter(|_| is_tproxy);
    if let Some(why) = loses_socket(family, link, links).filter(|_| is_tproxy) {
        return Some(why);
    }
    dropped.map(|why| format!("the kernel drops it: {why}")).or_else(unreplied)
}

/// Why the kernel drops an arriving packet that has the mark of TPROXY, if it does.
#[must_use]
pub fn drops_marked(family: Family, links: &Links, name: &str) -> Option<String> {
    validates_by_mark(family, links.named(name)?, links.all)
}

const fn bridge_setting(family: Family) -> &'static str {
    match family {
        Family::V4 => "bridge-nf-call-iptables",
        Family::V6 => "bridge-nf-call-ip6tables",
    }
}

/// Where `src_valid_mark` is set.
fn marking(link: &Link, all: SourceValidation) -> String {
    if all.uses_mark { "all".to_owned() } else { one_line(&link.name).into_owned() }
}

fn add_address(family: Family, interface: &str) -> String {
    let tool = if family == Family::V4 { "ip" } else { "ip -6" };
    format!("{tool} addr add ADDRESS/PREFIX dev {}", shell_words(interface))
}

/// The rules are then evaluated in the bridge, which hands the packet on without the socket that TPROXY gave
/// it.
fn loses_socket(family: Family, link: &Link, links: &Links) -> Option<String> {
    let setting = bridge_setting(family);
    (link.kind == LinkKind::Bridge && links.filters_bridged.contains(&family)).then(|| {
        format!(
            "with net.bridge.{setting}=1 TPROXY has no effect on bridged packets: those to the pod's own addresses go to the app, \
             others are lost; set it to 0 in the pod's network namespace, or use REDIRECT"
        )
    })
}

/// The client's acknowledgement of a cookie is of an established connection without a socket: the rules
/// for those do not hand it to the proxy's listener.
fn always_sends_cookies(links: &Links) -> Option<String> {
    links.always_sends_cookies.then(|| {
        "with net.ipv4.tcp_syncookies=2 the kernel answers by SYN cookies, which TPROXY does not bring back to the proxy; set it to 0, or \
         use REDIRECT"
            .to_owned()
    })
}

/// The proxy's socket has the mark of the packet that TPROXY gave it.
fn inherits_mark(links: &Links) -> Option<String> {
    links.inherits_mark.then(|| {
        "with net.ipv4.tcp_fwmark_accept=1 the proxy's replies have TPROXY's mark and its policy rule sends them to lo; set it to 0, or \
         use REDIRECT"
            .to_owned()
    })
}

/// The source of a marked packet is looked up as the destination of a packet with this mark: the policy rule
/// of TPROXY then says that it is an address of this machine, and such a source is a martian. IPv6 has no
/// such check.
fn validates_by_mark(family: Family, link: &Link, all: SourceValidation) -> Option<String> {
    let own = link.settings;
    let uses_mark = own.uses_mark || all.uses_mark;
    let is_valid = (own.accepts_local || all.accepts_local) && own.rp_filter.max(all.rp_filter) != 1;
    (family == Family::V4 && uses_mark && !is_valid).then(|| {
        let name = marking(link, all);
        format!(
            "with net.ipv4.conf.{name}.src_valid_mark=1 TPROXY's policy rule makes each source an address of this machine; \
             set it to 0, with rp_filter=2 for a VPN that needs it, or use REDIRECT"
        )
    })
}

/// REDIRECT sends a packet to an address of the interface on which it arrives, and drops it if there is none.
fn has_no_address(family: Family, link: &Link) -> Option<String> {
    let name = one_line(&link.name);
    let has_address = match family {
        Family::V4 => link.has_v4,
        Family::V6 => link.has_v6,
    };
    (!has_address).then(|| {
        format!(
            "REDIRECT needs an {family} address on the interface, and {name} has none; add one, exclude the interface with \
             --istio-exclude-interfaces (-c), or use TPROXY"
        )
    })
}

/// The mark that inbound connections get.
pub(super) fn tproxy_mark(rules: &FamilyRules) -> Option<Mark> {
    let chains = rules.tables.get(&Table::Mangle)?;
    chains.rules().find_map(|rule| {
        if let Target::Tproxy { mark, .. } = rule.statement.target { Some(mark) } else { None }
    })
}

/// Whether every later packet that arrives gets the mark, of connections that the pod makes too: where all
/// ports are captured.
pub(super) fn marks_replies(rules: &FamilyRules) -> bool {
    let chains = rules.tables.get(&Table::Mangle).into_iter();
    let mut marking = chains.flat_map(|table| table.rules()).map(|rule| &rule.statement);
    marking.any(|says| {
        let is_for_ports =
            says.matcher.protocol.as_ref().is_some_and(|protocol| protocol.destination.is_some());
        says.target == Target::Jump(Chain::Divert) && !is_for_ports
    })
}

pub(super) fn redirects_inbound(rules: &FamilyRules) -> bool {
    jumps(rules, Chain::Inbound, Chain::InRedirect)
}

/// Whether a chain of ours in nat jumps to another one.
fn jumps(rules: &FamilyRules, from: Chain, to: Chain) -> bool {
    let from = rules.tables.get(&Table::Nat).and_then(|table| table.chains.get(&from));
    from.is_some_and(|rules| rules.iter().any(|rule| rule.statement.target == Target::Jump(to)))
}

/// Whether a rule before the one that captures inbound connections is for what arrives on this interface.
pub(super) fn is_excluded(rules: &FamilyRules, link: &Link) -> bool {
    let table = if tproxy_mark(rules).is_some() { Table::Mangle } else { Table::Nat };
    let hooks = rules.tables.get(&table).and_then(|table| table.hooks.get(&Hook::Prerouting));
    hooks.into_iter().flat_map(HookRules::iter).any(|rule| {
        let statement = &rule.statement;
        let covers = |name: &Interface| name.covers(&link.name);
        statement.target == Target::Return && statement.matcher.in_interface.as_ref().is_some_and(covers)
    })
}
