//! What is wrong with a live pod: the first line about all kinds of traffic.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use ipnetwork::IpNetwork;

use super::broken_chains::Listed;
use super::listener::{Listener, ListenerProblem};
use super::packet::{Packet, Process};
use super::reason::{Reason, is_expected, reason};
use super::replies;
use super::row::{self, Row, Side, is_captured_by_ours};
use super::rules::Rules;
use super::runtime::{ProxyPort, older_than_capture, passthrough_problem, proxy_ports};
use super::sent_on;
use super::unserved::{addresses, app_not_listening, listener_at, unserved};
use super::walk::{Verdict, Walk, walk};
use super::{LiveState, Pod, RunningProcess};
use crate::config::{CaptureConfig, Dns, InboundPorts};
use crate::finding::{Finding, Problem, Subject, by_harm};
use crate::model::{
    DNS_CAPTURE_PORT, DNS_PORT, Family, FibRoute, InterfaceAddress, Network, Port, RouteKind, Transport,
};
use crate::ordered::Ordered as _;
use crate::text::{count, one_line};

/// Most problems of kinds of traffic.
const MOST: usize = 8;

/// The ports that Istio reserves.
const PORTS_OF_PROXY: RangeInclusive<u16> = 15000..=15099;

/// What is wrong with a live pod, the most harmful first. `rows` are all kinds of traffic, and packets for
/// foreign rules.
pub(super) fn problems(rows: &[Row], live: &LiveState, pod: &Pod<'_>) -> Vec<Finding> {
    let mut problems = of_rules(live, pod);
    for finding in of_ports(&proxy_ports(live, pod)) {
        let is_named = |known: &Finding| known.is_about_any(&finding.about);
        if !problems.iter().any(is_named) {
            problems.push(finding);
        }
    }
    problems.extend(of_pod(live, pod));
    problems.extend(live.foreign().chain(&live.before).cloned());
    problems.extend(without_default_route(rows, live, pod.network));
    let of_traffic = of_traffic(rows, &problems);
    problems.retain(|vague| {
        let unserved = [Subject::Condition(vague.cause.clone())];
        !of_traffic.iter().any(|exact| exact.is_within(vague, live.backend) || exact.is_about_any(&unserved))
    });
    problems.extend(of_traffic);
    by_harm(problems, live.backend, &live.owned)
}

/// What is wrong with one packet of a live pod.
pub(super) fn of_packet(
    packet: &Packet,
    (walk, reason): (&Walk<'_>, &Reason),
    pod: &Pod<'_>,
) -> Vec<Finding> {
    let Some(live) = &pod.live else { return Vec::new() };
    if !live.rules.get(&packet.family()).is_some_and(Rules::has_ours) {
        return of_rules(live, pod);
    }
    let row = Row::of(String::new(), packet, walk, reason, pod);
    let sent_on = sent_on::row(packet, walk, pod, &replies::problems(packet, walk, pod));
    let ports = of_ports(&proxy_ports(live, pod));
    let known = |(row, problem): (&Row, &row::Problem)| {
        let of_port = ports.iter().find(|finding| finding.is_about_any(&problem.about));
        let found = live.foreign().chain(&live.before).find(|finding| finding.is_about_any(&problem.about));
        of_port.or(found).cloned().unwrap_or_else(|| problem.finding(row, &problem.sentence, None))
    };
    let rows = [Some(&row), sent_on.as_ref()].into_iter().flatten();
    let found = rows.flat_map(|row| row.problems.iter().map(move |problem| (row, problem)));
    let mut problems: Vec<Finding> = found.map(known).collect();
    let is_by_none =
        walk.verdict == Verdict::NotCaptured && walk.because.is_none() && walk.decisive().is_none();
    if is_by_none && is_expected(packet, live, pod.config) {
        problems.extend(damaged(packet.family(), live, pod.config));
    }
    if packet.is_inbound && packet.transport == Transport::Tcp {
        let is_named = problems.iter().any(|known| known.problem == Problem::AppNotListening);
        problems.extend(unserved(packet, walk, live, pod).filter(|_| !is_named));
        if is_captured_by_ours(packet, live) {
            problems.extend(app_on_interface(packet.destination.port(), &[packet.family()], live));
        }
    }
    let is_own = |process: &&RunningProcess| packet.process.is_some_and(|sender| sender.uid == process.uid);
    let app = live.runtime.app_as_proxy().find(is_own).map(RunningProcess::finding);
    by_harm(problems.into_iter().chain(app).chain(of_forwarded(packet, live, pod)), live.backend, &live.owned)
}

/// The finding that the pod would forward the packet, and the rules capture it.
fn of_forwarded(packet: &Packet, live: &LiveState, pod: &Pod<'_>) -> Option<Finding> {
    let is_own = pod.network.addresses.iter().any(|own| own.address == packet.destination.ip());
    let arrives = [Subject::Interface(packet.interface.clone())];
    let is_about_it = |finding: &&Finding| {
        finding.problem == Problem::ForwardedTraffic
            && finding.family == Some(packet.family())
            && finding.is_about_any(&arrives)
    };
    let finding = live.foreign().find(is_about_it).filter(|_| packet.is_inbound && !is_own)?;
    is_captured_by_ours(packet, live).then(|| finding.clone())
}

/// The families without a default route: the kernel refuses what the app calls before a rule sees it. A
/// family of which the pod has no address is not used, and a pod with routes to some networks only may have
/// no others on purpose.
fn without_default_route(rows: &[Row], live: &LiveState, network: &Network) -> Option<Finding> {
    let is_captured = |row: &&Row| {
        let is_used = network.addresses.iter().any(|own| row.family.has(own.address) && own.is_of_pod());
        is_used && live.rules.get(&row.family).is_some_and(Rules::has_ours)
    };
    let is_limited =
        |family| live.fib.get(&family).is_some_and(|fib| fib.routes.iter().any(|way| leaves(way, network)));
    let is_unroutable = |row: &&Row| row.verdict == Verdict::NoRoute && row.sender == Side::App;
    let mut found: Vec<&Row> = rows.iter().filter(is_captured).filter(is_unroutable).collect();
    found.retain(|row| !is_limited(row.family));
    found.dedup_by_key(|row| row.family);
    let causes: Vec<String> =
        found.iter().map(|row| format!("{} ({}): {}", row.kind, row.family, row.reason.sentence)).collect();
    (!causes.is_empty()).then(|| Finding::new(Problem::NoRoute, causes.join("; ")))
}

/// Whether the route leads to a network beyond those of the pod's addresses. One host on the link is its
/// router.
fn leaves(route: &FibRoute, network: &Network) -> bool {
    let has_several_ways = route.interface.is_none();
    let is_elsewhere = |range: IpNetwork| {
        let is_host = range == IpNetwork::from(range.ip());
        let is_own = network.addresses.iter().any(|own| range.contains(own.address));
        !(is_host || is_own || range.ip().is_multicast())
    };
    route.kind == RouteKind::Unicast
        && !route.is_dead
        && (route.gateway.is_some() || has_several_ways || route.destination.is_some_and(is_elsewhere))
}

/// What the rules lack.
fn of_rules(live: &LiveState, pod: &Pod<'_>) -> Vec<Finding> {
    let config = pod.config;
    let has_ours = |family| live.rules.get(&family).is_some_and(Rules::has_ours);
    let mut problems = live.dormant.clone();
    if !Family::ALL.into_iter().any(has_ours) {
        // Rules in a table that is switched off are there again with it.
        if problems.is_empty() {
            let cause = "packets of the pod meet no rule of istio-iptables";
            problems.push(Finding::new(Problem::NoRules, cause));
        }
        return problems;
    }
    problems.extend(Family::ALL.into_iter().filter_map(|family| {
        let (cause, command) = passthrough_problem(family, pod)?;
        let about = Subject::Condition(format!("{cause}; `{command}`"));
        Some(Finding::new(Problem::LoopbackUnusable, cause).subject(command).about([about]))
    }));
    problems.extend(live.rules.keys().filter_map(|family| damaged(*family, live, config)));
    if config.captures_nothing() && problems.is_empty() {
        let cause = "the rules name no inbound port and no outbound range or port: every connection goes where it was sent";
        problems.push(Finding::new(Problem::CapturesNothing, cause));
    }
    // Rules in a table that is switched off are there again with it.
    if live.dormant.is_empty() {
        problems.extend(without_rules(Problem::Ipv4NotCaptured, (Family::V4, Family::V6), live, pod));
    }
    problems.extend(without_rules(Problem::Ipv6NotCaptured, (Family::V6, Family::V4), live, pod));
    if let Some(ranges) = config.traffic.outbound.wide_exclusion() {
        problems.push(Finding::new(Problem::WideExclusion, ranges));
    }
    let serves_dns = |listener: &Listener| {
        listener.transport == Transport::Udp && listener.address.port() == DNS_CAPTURE_PORT.number()
    };
    if config.dns == Dns::Off && live.runtime.listeners.iter().flatten().any(serves_dns) {
        let cause =
            format!("the proxy listens on port {DNS_CAPTURE_PORT} (UDP), and no rule sends queries there");
        problems.push(Finding::new(Problem::DnsNotCaptured, cause));
    }
    problems
}

/// The finding that chains of ours are damaged.
fn damaged(family: Family, live: &LiveState, config: &CaptureConfig) -> Option<Finding> {
    let broken = live.broken_chains(config, family);
    let listed = Listed(&broken).to_string();
    let about = Subject::Condition(listed.clone());
    let finding = || Finding::new(Problem::BrokenChain, format!("{listed} ({family})")).about([about]);
    (!broken.is_empty()).then(finding)
}

/// The finding that the pod has an address of a family without rules, while the other family has some:
/// another program flushed those of one family, or no run wrote them.
fn without_rules(
    problem: Problem,
    (family, other): (Family, Family),
    live: &LiveState,
    pod: &Pod<'_>,
) -> Option<Finding> {
    let has_ours = |family| live.rules.get(&family).is_some_and(Rules::has_ours);
    let is_asked_for = pod.given.iter().any(|given| given.is_only(other));
    let InterfaceAddress { interface, address, .. } =
        pod.config.traffic.address_of(family, pod.network).filter(|_| !is_asked_for)?;
    let cause = || format!("{interface} has {address}, and no rule is for {family}");
    (has_ours(other) && !has_ours(family)).then(|| Finding::new(problem, cause()))
}

/// What runs in the pod and is not as capture needs it.
fn of_pod(live: &LiveState, pod: &Pod<'_>) -> Vec<Finding> {
    let mut problems: Vec<Finding> = live.runtime.app_as_proxy().map(RunningProcess::finding).collect();
    problems.extend(live.runtime.translated_servers.iter().map(Finding::from));
    problems.extend(dns_loop(live, pod.config));
    let programs = live.runtime.programs.iter();
    problems.extend(programs.map(|program| Finding::new(Problem::NotEvaluated, program.words.as_str())));
    let older = older_than_capture(live, pod.config, pod.network).len();
    if older > 0 {
        let cause = format!("{older} open connections began before capture and are not captured");
        problems.push(Finding::new(Problem::OlderConnections, cause));
    }
    problems.extend(unserved_ports(live, pod));
    let captured: Vec<Family> =
        live.rules.iter().filter(|(_, rules)| rules.has_ours()).map(|(family, _)| *family).collect();
    let on_interfaces = pod.captured_ports().into_iter();
    problems.extend(on_interfaces.filter_map(|port| app_on_interface(port, &captured, live)));
    problems
}

/// The ports without a listener that the options list, or the pod declares.
fn unserved_ports(live: &LiveState, pod: &Pod<'_>) -> Vec<Finding> {
    let wanted = addresses(pod.network);
    let unserved = |port| app_not_listening(port, &wanted, live, Some(pod));
    let mut found: Vec<Finding> = pod.listed_ports().filter_map(unserved).collect();
    let declared = pod.declared_ports().filter_map(unserved);
    found.extend(declared.map(|finding| {
        let cause = format!("{}; the pod declares this port (containerPort)", finding.cause);
        Finding { cause, ..finding }
    }));
    found
}

/// The resolver in the pod whose own queries are captured: the proxy asks it, and it asks the proxy.
fn dns_loop(live: &LiveState, config: &CaptureConfig) -> Option<Finding> {
    let server = live.runtime.name_servers.loopback().filter(|_| config.dns == Dns::All)?;
    let to = SocketAddr::new(server, DNS_PORT.number());
    let uid = listener_at(to, Transport::Udp, live.runtime.listeners.as_ref()?)?.uid;
    let proxy = &config.traffic.proxy;
    let is_exempt = proxy.uids.contains(&uid) || live.runtime.processes.iter().any(|found| found.uid == uid);
    let cause = || {
        format!(
            "/etc/resolv.conf names {server}, where a process of uid {uid} listens: its own queries are captured (--capture-all-dns)"
        )
    };
    (!is_exempt).then(|| Finding::new(Problem::DnsLoop, cause()))
}

impl Pod<'_> {
    /// The inbound ports that the options list.
    fn listed_ports(&self) -> impl Iterator<Item = u16> {
        let listed: &[Port] =
            if let InboundPorts::Only(ports) = &self.config.traffic.inbound { ports } else { &[] };
        listed.iter().map(|port| port.number())
    }

    /// The captured ports that the pod declares, and the options do not list.
    pub(super) fn declared_ports(&self) -> impl Iterator<Item = u16> + use<'_> {
        let inbound = &self.config.traffic.inbound;
        let declared = self.live.iter().flat_map(|live| &live.runtime.declared_ports).copied();
        let is_all = matches!(inbound, InboundPorts::All { .. });
        declared.filter(move |port| is_all && *port != 0 && inbound.captures(*port))
    }

    /// Whether a client may expect that the app listens on the port.
    pub(super) fn is_port_of_app(&self, port: u16) -> bool {
        self.listed_ports().chain(self.declared_ports()).any(|known| known == port)
    }

    /// Notes that no port of the app is known, and none is open: that may be meant.
    pub fn note_missing_listeners(&mut self) {
        let (inbound, is_listed) = (&self.config.traffic.inbound, self.listed_ports().next().is_some());
        let Some(live) = self.live.as_mut().filter(|_| !is_listed && *inbound != InboundPorts::None) else {
            return;
        };
        // An app may run as the proxy's user, whose own ports are these.
        let is_for_clients = |found: &&Listener| {
            let port = found.address.port();
            found.transport == Transport::Tcp && inbound.captures(port) && !PORTS_OF_PROXY.contains(&port)
        };
        let Some(listeners) = &live.runtime.listeners else { return };
        let (local, open): (Vec<&Listener>, Vec<&Listener>) =
            listeners.iter().filter(is_for_clients).partition(|found| found.address.ip().is_loopback());
        if live.has_rules() && open.is_empty() && live.runtime.declared_ports.is_empty() {
            let local = local.iter().map(|found| (found.address.port(), found.address.ip())).into_set();
            live.notices.push(nothing_listens(&local));
        }
    }

    /// The captured ports on which processes other than the proxy listen.
    pub(super) fn captured_ports(&self) -> BTreeSet<u16> {
        let listeners = self.live.iter().flat_map(|live| live.runtime.listeners.iter().flatten());
        let ports = listeners.filter(|found| self.is_of_app(found)).map(|found| found.address.port());
        ports.filter(|port| self.config.traffic.inbound.captures(*port)).into_set()
    }

    /// Whether the socket takes TCP connections for another process than the proxy.
    pub(super) fn is_of_app(&self, found: &Listener) -> bool {
        let port = Port::new(found.address.port());
        let rules = self.live.iter().flat_map(|live| live.rules.values());
        let is_of_proxy = |uid| uid == self.proxy().uid || self.config.traffic.proxy.uids.contains(&uid);
        found.transport == Transport::Tcp
            && !is_of_proxy(found.uid)
            && !port.is_some_and(|port| { rules }.any(|rules| rules.has_proxy_port(port)))
    }
}

/// What a pod without inbound traffic has in common with one whose app has ended, or is open at these ports
/// of loopback addresses only.
fn nothing_listens(local: &BTreeSet<(u16, IpAddr)>) -> String {
    let local: Vec<String> = local.iter().map(|(port, address)| format!("{port} at {address}")).collect();
    let only = if local.is_empty() { String::new() } else { format!(" (only {})", local.join(", ")) };
    format!(
        "no process of the app listens on a captured TCP port at an address of the pod{only}: calls of clients fail; \
         `--from outside --to ADDRESS:PORT` asks about one"
    )
}

/// A port of the app whose sockets are all bound to interfaces: the kernel gives them connections to their
/// address over `lo`, too, and sends the replies out by the interface.
fn app_on_interface(port: u16, families: &[Family], live: &LiveState) -> Option<Finding> {
    let listeners = live.runtime.listeners.as_ref()?;
    let lo = live.links.named("lo").map(|link| link.index);
    let bound = |family: &Family| {
        let on_port = listeners.iter().filter(|found| {
            found.transport == Transport::Tcp && found.address.port() == port && found.serves(*family)
        });
        let devices: Vec<Option<u32>> = on_port.map(|found| found.device).collect();
        devices.iter().all(|device| device.is_some() && *device != lo).then_some(devices)
    };
    let device = families.iter().filter_map(bound).flatten().flatten().next()?;
    let link = live.links.each.iter().find(|link| link.index == device);
    let name = link.map_or_else(|| format!("interface {device}"), |link| one_line(&link.name).into_owned());
    let cause = format!(
        "the listener on TCP port {port} is bound to {name} (SO_BINDTODEVICE): its replies to the proxy, which connects over lo, get lost"
    );
    Some(Finding::new(Problem::AppListener, cause))
}

/// What is wrong with ports of the proxy: the ports with the same problem together. The family and the
/// protocol are named where the other one of the same port has another problem or none.
fn of_ports(ports: &[ProxyPort]) -> Vec<Finding> {
    let mut found: Vec<(&ListenerProblem, Vec<String>)> = Vec::new();
    for ProxyPort { name, transport, port, family, problem, .. } in ports {
        let Some(problem) = problem else { continue };
        let is_alone = |is_other: &dyn Fn(&ProxyPort) -> bool| {
            let mut others = ports.iter().filter(|other| other.port == *port && is_other(other));
            others.any(|other| other.problem.as_ref() != Some(problem))
        };
        let of_family = is_alone(&|other| other.transport == *transport).then(|| family.to_string());
        let of_transport =
            is_alone(&|other| other.family == *family).then(|| transport.name().to_uppercase());
        let parts: Vec<String> = of_family.into_iter().chain(of_transport).collect();
        let of = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        let words = format!("{name} port {port}{of}");
        match found.iter_mut().find(|(known, _)| *known == problem) {
            Some((_, known)) if known.contains(&words) => {}
            Some((_, known)) => known.push(words),
            None => found.push((problem, vec![words])),
        }
    }
    let finding = |(problem, ports): (&ListenerProblem, Vec<String>)| {
        let is_absent = *problem == ListenerProblem::Absent;
        let kind = if is_absent { Problem::ProxyNotListening } else { Problem::ProxyListener };
        let cause = format!("{}: {problem}", ports.join(", "));
        Finding::new(kind, cause).about([Subject::Condition(problem.to_string())])
    };
    found.into_iter().map(finding).collect()
}

/// Captured connections and those of the proxy that are sure to end by a foreign rule which is not `named`
/// yet.
#[must_use]
pub fn lost_connections(pod: &Pod<'_>, named: &[Finding]) -> Vec<Finding> {
    lost(pod, named, |problem| problem.ends_by_foreign_rule)
}

/// [`lost_connections`], and those that end by the policy of a foreign chain or by policy routing.
#[must_use]
pub fn lost_live_connections(pod: &Pod<'_>, named: &[Finding]) -> Vec<Finding> {
    let is_routed = |problem: &row::Problem| problem.ends_by_routing || is_misrouted(problem);
    lost(pod, named, |problem| problem.ends_by_foreign_rule || problem.ends_by_policy || is_routed(problem))
}

/// Captured packets that policy routing keeps from the proxy, by a rule that is not `named` yet.
#[must_use]
pub fn misrouted(pod: &Pod<'_>, named: &[Finding]) -> Vec<Finding> {
    lost(pod, named, is_misrouted)
}

fn is_misrouted(problem: &row::Problem) -> bool {
    problem.kind == Problem::PolicyRouting
}

fn lost(pod: &Pod<'_>, named: &[Finding], is_lost: impl Fn(&row::Problem) -> bool) -> Vec<Finding> {
    let row = |is_probe: bool, (kind, packet): (String, Packet)| {
        // A filter of some servers is for every process, if it names none. No rule names the ports of kinds.
        let is_of_some = is_probe || packet.destination.port() == DNS_PORT.number();
        let is_to_some_server = is_of_some && is_of_proxy(&packet, pod) && !packet.is_local;
        let tested = pod.live.as_ref().and_then(|live| live.tested.get(&packet.family()));
        if is_to_some_server && !tested.is_some_and(|tested| tested.has_owner) {
            return None;
        }
        let mut row = row_of_capture(kind, &packet, pod)?;
        row.problems.retain(|problem| is_lost(problem) && (!is_to_some_server || problem.is_of_owner));
        Some(row)
    };
    let kinds = pod.kinds().into_iter().filter_map(|kind| row(false, kind));
    let rows: Vec<Row> = kinds.chain(pod.probes().into_iter().filter_map(|probe| row(true, probe))).collect();
    of_traffic(&rows, named)
}

/// Captured connections that are sure to end by a socket of the proxy.
#[must_use]
pub fn lost_at_proxy(pod: &Pod<'_>) -> Vec<Finding> {
    if !pod.has_failing_socket() {
        return Vec::new();
    }
    let mut rows: Vec<Row> =
        pod.kinds().into_iter().filter_map(|(kind, packet)| row_of_capture(kind, &packet, pod)).collect();
    rows.iter_mut().for_each(|row| row.problems.retain(|problem| problem.ends_at_proxy));
    of_traffic(&rows, &[])
}

/// A kind of traffic, if it is captured by our rules or of the proxy.
fn row_of_capture(kind: String, packet: &Packet, pod: &Pod<'_>) -> Option<Row> {
    let live = pod.live.as_ref()?;
    let (rules, routing) = (live.rules.get(&packet.family())?, live.routing(packet.family()));
    if !rules.has_ours() || !(is_captured_by_ours(packet, live) || is_of_proxy(packet, pod)) {
        return None;
    }
    let walk = walk(rules, packet, routing);
    let reason = reason(packet, &walk, pod);
    Some(Row::of(kind, packet, &walk, &reason, pod))
}

/// Whether it is a TCP packet of the proxy, to the app or to any server.
fn is_of_proxy(packet: &Packet, pod: &Pod<'_>) -> bool {
    let proxy = &pod.config.traffic.proxy;
    let is_its = |process: Process| proxy.exempts(process.uid, process.gid);
    packet.transport == Transport::Tcp && packet.process.is_some_and(is_its)
}

/// The problems of kinds of traffic that are not `named` yet: each with the first kind that has it, and how
/// many more there are.
fn of_traffic(rows: &[Row], named: &[Finding]) -> Vec<Finding> {
    let is_left_out = |problem: &row::Problem| {
        problem.is_of_egress || named.iter().any(|finding| finding.is_about_any(&problem.about))
    };
    let mut found: Vec<(&row::Problem, &Row, usize)> = Vec::new();
    for row in rows {
        for problem in row.problems.iter().filter(|problem| !is_left_out(problem)) {
            // Each family has its policies, apart from tables of both: another command is the fix.
            let is_of_family = problem.about.iter().any(Subject::is_policy_of_family);
            let is_same = |known: &row::Problem, of: &Row| {
                problem.is_same(known) && (!is_of_family || of.family == row.family)
            };
            match found.iter_mut().find(|(known, of, _)| is_same(known, of)) {
                Some((.., more)) => *more += 1,
                None => found.push((problem, row, 0)),
            }
        }
    }
    let finding = |(problem, row, more): &(&row::Problem, &Row, usize)| {
        let more = match *more {
            0 => String::new(),
            more => format!(" (and {} of traffic)", count(more, "more kind")),
        };
        let cause = format!("{} ({}) {}{more}", row.kind, row.family, problem.sentence);
        problem.finding(row, &cause, Some(&row.question))
    };
    let mut findings: Vec<Finding> = found.iter().take(MOST).map(finding).collect();
    if let Some(more @ 1..) = found.len().checked_sub(MOST) {
        findings.push(Finding::new(
            Problem::TrafficLost,
            format!("{} of other packets", count(more, "more problem")),
        ));
    }
    findings
}
