//! What is wrong with a live pod: the first line about all kinds of traffic.

use super::packet::{Packet, Process};
use super::reason::reason;
use super::row::{Problem, Row, is_captured_by_ours};
use super::rules::Rules;
use super::runtime::{ProxyPort, older_than_capture, passthrough_problem, proxy_ports};
use super::walk::walk;
use super::{LiveState, Pod, RunningProcess};
use crate::finding::{Finding, Subject};
use crate::model::{Family, InterfaceAddress, Transport};
use crate::text::one_line;

/// Most problems of kinds of traffic.
const MOST: usize = 8;

/// What is wrong with a live pod, each in a few words. `rows` are all kinds of traffic, and packets for foreign rules.
pub(super) fn problems(rows: &[Row], live: &LiveState, pod: &Pod<'_>) -> Vec<String> {
    let (config, network) = (pod.config, pod.network);
    let mut problems: Vec<Finding> = Vec::new();
    if !live.rules.values().any(Rules::has_ours) {
        problems.push("no capture rule is live".to_owned().into());
    }
    problems.extend(live.dormant.iter().cloned().map(Finding::from));
    let unbound = Family::ALL.into_iter().filter_map(|family| passthrough_problem(family, pod));
    problems.extend(
        unbound.map(|sentence| Finding { about: vec![Subject::Condition(sentence.clone())], sentence }),
    );
    for family in live.rules.keys() {
        let words = |chain| format!("{chain} ({family}): run istio-iptables again with the pod's options");
        problems.extend(live.broken_chains(config, *family).into_iter().map(words).map(Finding::from));
    }
    let has_ours = |family| live.rules.get(&family).is_some_and(Rules::has_ours);
    if let Some(InterfaceAddress { interface, address, .. }) = config.traffic.ipv6_address(network)
        && has_ours(Family::V4)
        && !has_ours(Family::V6)
    {
        let sentence =
            format!("IPv6 is not captured, although {interface} has {address}: --dual-stack captures it");
        problems.push(sentence.into());
    }
    for finding in of_ports(&proxy_ports(live, config)) {
        problems.extend(Some(finding).filter(|finding| !problems.contains(finding)));
    }
    let others = live.runtime.processes.iter().filter(|process| process.is_proxy == Some(false));
    for RunningProcess { pid, name, uid, gid, .. } in others {
        let sentence =
            format!("process {pid} ({}) is not captured: it runs as uid {uid}, gid {gid}", one_line(name));
        problems.push(sentence.into());
    }
    problems.extend(live.runtime.translated_servers.iter().map(|server| server.to_string().into()));
    problems.extend(live.runtime.programs.iter().map(|program| program.words.clone().into()));
    let older = older_than_capture(live, config, network).len();
    if older > 0 {
        let sentence = format!("{older} open connections began before capture and are not captured");
        problems.push(sentence.into());
    }
    problems.extend(live.foreign().chain(&live.before).cloned());
    let of_traffic = of_traffic(rows, &problems);
    // What is known of a rule is worth more than what its chain may do.
    problems.retain(|vague| !of_traffic.iter().any(|exact| exact.is_within(vague)));
    problems.extend(of_traffic);
    problems.iter().map(|finding| one_line(&finding.sentence).into_owned()).collect()
}

/// What is wrong with ports of the proxy. The family and the protocol are named where the other one of the same port has another problem
/// or none.
fn of_ports(ports: &[ProxyPort]) -> impl Iterator<Item = Finding> {
    ports.iter().filter_map(|found| {
        let ProxyPort { name, transport, port, family, problem, .. } = found;
        let problem = problem.as_ref()?;
        let is_alone = |is_other: &dyn Fn(&ProxyPort) -> bool| {
            let others = ports.iter().filter(|other| other.port == *port && is_other(other));
            others.into_iter().any(|other| other.problem.as_ref() != Some(problem))
        };
        let of_family = is_alone(&|other| other.transport == *transport).then(|| family.to_string());
        let of_transport =
            is_alone(&|other| other.family == *family).then(|| transport.name().to_uppercase());
        let parts: Vec<String> = of_family.into_iter().chain(of_transport).collect();
        let of = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        let sentence = format!("{name} port {port}{of}: {problem}");
        Some(Finding { sentence, about: vec![Subject::Condition(problem.clone())] })
    })
}

/// Captured connections and those of the proxy that are sure to end by a foreign rule which is not `named` yet.
#[must_use]
pub fn lost_connections(pod: &Pod<'_>, named: &[Finding]) -> Vec<Finding> {
    let row = |is_probe: bool, (kind, packet): (String, Packet)| {
        // A filter of some servers is for every process, if it names none.
        let is_to_some_server = is_probe && is_of_proxy(&packet, pod) && !packet.is_local;
        let mut row = row_of_capture(kind, &packet, pod)?;
        row.problems
            .retain(|problem| problem.ends_by_foreign_rule && (!is_to_some_server || problem.is_of_owner));
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
    let is_its = |process: Process| proxy.uids.contains(&process.uid) || proxy.gids.contains(&process.gid);
    packet.transport == Transport::Tcp && packet.process.is_some_and(is_its)
}

/// Those of kinds of traffic that are not `named` yet: each with the first kind that has it, and how many more there are.
fn of_traffic(rows: &[Row], named: &[Finding]) -> Vec<Finding> {
    let is_named = |problem: &Problem| named.iter().any(|finding| finding.is_about_any(&problem.about));
    let mut found: Vec<(&Problem, &Row, usize)> = Vec::new();
    for row in rows {
        for problem in row.problems.iter().filter(|problem| !is_named(problem)) {
            match found.iter_mut().find(|(known, ..)| known.sentence == problem.sentence) {
                Some((.., more)) => *more += 1,
                None => found.push((problem, row, 0)),
            }
        }
    }
    let finding = |(problem, Row { kind, family, .. }, more): &(&Problem, &Row, usize)| {
        let more = if *more == 0 { String::new() } else { format!(" (and {more} more kinds of traffic)") };
        let sentence = format!("{kind} ({family}) {}{more}", problem.sentence);
        Finding { sentence, about: problem.about.clone() }
    };
    let mut texts: Vec<Finding> = found.iter().take(MOST).map(finding).collect();
    if let Some(more @ 1..) = found.len().checked_sub(MOST) {
        texts.push(format!("{more} more problems of other packets").into());
    }
    texts
}
