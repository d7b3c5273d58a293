//! Interfaces behind which containers or virtual machines are: our rules capture what the pod forwards for
//! them as inbound connections.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::finding::{Finding, Problem, Subject};
use crate::model::{
    Chain, FamilyRules, Fib, FibRoute, Hook, HookRules, Interface, Link, LinkKind, Links, RouteKind, Table,
    Target,
};
use crate::ordered::Ordered as _;
use crate::text::one_line;

use super::links::{is_excluded, marks_replies, redirects_inbound, tproxy_mark};

/// Starts of names to which programs add a number of their own: a container's network or its end of a link
/// has another name next time.
const GENERATED: [&str; 3] = ["br-", "cali", "veth"];

/// The connections that the pod forwards and that these rules capture as inbound ones, or whose replies they
/// take.
#[must_use]
pub fn captured_as_inbound(rules: &FamilyRules, links: &Links, fib: Option<&Fib>) -> Vec<Finding> {
    let guests = if tproxy_mark(rules).is_some() { virtual_interfaces(rules) } else { Vec::new() };
    let others = of_others(rules, links, fib, &guests);
    of_guests(rules, links, fib, &guests).into_iter().chain(others).collect()
}

/// The interfaces whose traffic is outbound: in nat, behind TPROXY.
fn virtual_interfaces(rules: &FamilyRules) -> Vec<Interface> {
    let hooks = rules.tables.get(&Table::Nat).and_then(|table| table.hooks.get(&Hook::Prerouting));
    let statements = hooks.into_iter().flat_map(HookRules::iter).map(|rule| &rule.statement);
    let outbound = statements.filter(|says| says.target == Target::Jump(Chain::Redirect));
    // Each has a rule for every included range.
    let names: BTreeSet<Interface> = outbound.filter_map(|says| says.matcher.in_interface.clone()).collect();
    names.into_iter().collect()
}

/// TPROXY assigns the socket, and REDIRECT changes the destination of the same packet.
fn of_guests(rules: &FamilyRules, links: &Links, fib: Option<&Fib>, guests: &[Interface]) -> Option<Finding> {
    let family = rules.family;
    let mark = tproxy_mark(rules).filter(|_| !guests.is_empty())?;
    let covered = |link: &&Link| guests.iter().any(|name| name.covers(&link.name));
    let theirs: Vec<&Link> = links.each.iter().filter(covered).collect();
    // Interfaces of virtual machines may come later.
    let has_guests = |fib: &Fib| theirs.iter().any(|link| routes(link, fib).any(leads_to_others));
    if !theirs.is_empty() && !fib.is_none_or(has_guests) {
        return None;
    }
    let redirect = rules.tables.get(&Table::Nat)?.chains.get(&Chain::Redirect)?;
    let outbound = redirect.iter().find_map(|rule| rule.statement.target.redirect())?;
    let names = guests.iter().map(Interface::to_string).collect::<Vec<_>>().join(",");
    let ports = if captures_all_ports(rules) { "" } else { " on the inbound ports" };
    let cause = format!(
        "connections of the guests behind {names}{ports} reach the proxy's inbound port with the pod's own port {outbound} as their \
         destination ({family}, mark {mark} of TPROXY): TPROXY decides before the rules of --kube-virt-interfaces (-k)"
    );
    let finding =
        Finding::new(Problem::ForwardedTraffic, cause).advice("; use REDIRECT with guests").subject(names);
    let about = theirs.iter().map(|link| Subject::Interface(link.name.clone()));
    Some(finding.about(about).family(family))
}

fn of_others(rules: &FamilyRules, links: &Links, fib: Option<&Fib>, guests: &[Interface]) -> Option<Finding> {
    let (family, fib) = (rules.family, fib?);
    let mark = tproxy_mark(rules);
    if !redirects_inbound(rules) && mark.is_none() {
        return None;
    }
    let uplinks: Vec<&Link> = links.each.iter().filter(|link| is_uplink(link, fib)).collect();
    let outside: BTreeSet<u32> = uplinks.iter().filter_map(|link| link.peer_namespace).into_set();
    // Whatever arrives of a connection that is known, also for others.
    let takes_replies = marks_replies(rules) && !uplinks.iter().all(|link| is_excluded(rules, link));
    let is_captured = |link: &&Link| {
        link.is_up
            && !link.is_port
            && links.forwards(link, family)
            && has_others_behind(link, &outside)
            && !guests.iter().any(|name| name.covers(&link.name))
            && !is_uplink(link, fib)
            && routes(link, fib).any(leads_to_others)
            && (takes_replies || !is_excluded(rules, link))
    };
    let captured: Vec<&Link> = links.each.iter().filter(is_captured).collect();
    if captured.is_empty() {
        return None;
    }
    let names: Vec<_> = captured.iter().map(|link| one_line(&link.name)).collect();
    let options: BTreeSet<String> = captured.iter().map(|link| option(&link.name)).into_set();
    let (names, options) = (names.join(", "), options.into_iter().collect::<Vec<_>>().join(","));
    let ports = if captures_all_ports(rules) { "" } else { " on the inbound ports" };
    let lost = match mark.filter(|_| takes_replies) {
        Some(mark) => format!(
            "are lost ({family}, mark {mark} of TPROXY): they are captured as inbound, or else their replies get the mark, which routes these \
             to lo"
        ),
        None => format!("are captured as inbound ({family}): the proxy passes these to the pod only"),
    };
    let cause =
        format!("connections of containers or virtual machines behind {names} to other hosts{ports} {lost}");
    let advice = format!(
        "; in REDIRECT mode --kube-virt-interfaces {options} (-k) captures them as outbound, and --istio-exclude-interfaces {options} (-c) not \
         at all"
    );
    let about = captured.iter().map(|link| Subject::Interface(link.name.clone()));
    let finding = Finding::new(Problem::ForwardedTraffic, cause).advice(advice).subject(options);
    Some(finding.about(about).family(family))
}

fn captures_all_ports(rules: &FamilyRules) -> bool {
    let chains = rules.tables.values().filter_map(|table| table.chains.get(&Chain::Inbound));
    chains.flatten().map(|rule| &rule.statement).any(|statement| {
        let is_for_port =
            statement.matcher.protocol.as_ref().is_some_and(|protocol| protocol.destination.is_some());
        matches!(statement.target, Target::Jump(Chain::InRedirect | Chain::Tproxy)) && !is_for_port
    })
}

/// The interface as an option takes it.
fn option(name: &str) -> String {
    let generated = GENERATED.iter().find(|start| name.starts_with(*start));
    generated.map_or_else(|| one_line(name).into_owned(), |start| format!("{start}+"))
}

/// Whether the interface is of a kind that connects others with the pod. A pair of interfaces connects the
/// pod with the node, too: those whose other end is where that of the pod's uplink is.
fn has_others_behind(link: &Link, outside: &BTreeSet<u32>) -> bool {
    match link.kind {
        LinkKind::Bridge | LinkKind::Tap => true,
        LinkKind::Veth => {
            !outside.is_empty() && link.peer_namespace.is_some_and(|there| !outside.contains(&there))
        }
        LinkKind::Other => false,
    }
}

/// Whether the interface leads to a router.
fn is_uplink(link: &Link, fib: &Fib) -> bool {
    routes(link, fib).any(|route| route.gateway.is_some() || route.destination.is_none())
}

/// The routes that send out by an interface.
fn routes<'a>(link: &'a Link, fib: &'a Fib) -> impl Iterator<Item = &'a FibRoute> {
    let is_its = |route: &&FibRoute| route.interface.as_ref() == Some(&link.name);
    fib.routes.iter().filter(|route| route.kind == RouteKind::Unicast).filter(is_its)
}

/// Whether the addresses are more than those that every interface has.
fn leads_to_others(route: &FibRoute) -> bool {
    route.destination.is_some_and(|range| match range.ip() {
        IpAddr::V4(v4) => !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_unicast_link_local() && !v6.is_multicast(),
    })
}
