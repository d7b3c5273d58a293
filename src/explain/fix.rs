//! What can be done about a packet that is lost by the policy of a chain, a policy rule or a route.

use super::walk::Walk;
use super::{LiveState, Pod};
use crate::config::{ConnectionState, Dns};
use crate::finding::Subject;
use crate::model::{Backend, DNS_CAPTURE_PORT, Family, Port, Transport, Variant};
use crate::text::shell_words;

/// The command that mends it; `None` if something else is the cause.
pub(super) fn of_walk(walk: &Walk<'_>, pod: &Pod<'_>) -> Option<String> {
    let live = pod.live.as_ref()?;
    let family = if walk.end.source.is_ipv4() { Family::V4 } else { Family::V6 };
    match walk.dropped_by {
        Some((table, chain)) => Some(accepting(walk, (table, chain), family, pod)),
        None => walk.policy_rule().map(|cause| of_routing(&cause, family, live)),
    }
}

/// Whether a policy rule is for the mark of TPROXY, as that of a run.
pub(super) fn may_be_ours(cause: &Subject, live: &LiveState) -> bool {
    let Subject::PolicyRule(rule) = cause else { return false };
    live.routed_mark.is_some_and(|mark| rule.mark == Some((mark.0, u32::MAX)))
}

/// The command about a policy rule or a route.
pub(super) fn of_routing(cause: &Subject, family: Family, live: &LiveState) -> String {
    let ip = if family == Family::V6 { "ip -6" } else { "ip" };
    let removal = cause.removal(Some(family), None);
    removal.filter(|_| !may_be_ours(cause, live)).unwrap_or_else(|| {
        format!(
            "`{ip} rule` and `{ip} route show table all` list the policy rules and routes: correct those that the cause names"
        )
    })
}

/// The rule that accepts the packet, as far as its tests are known, in a chain whose policy drops it.
fn accepting(walk: &Walk<'_>, (table, chain): (&str, &str), family: Family, pod: &Pod<'_>) -> String {
    let backend = pod.live.as_ref().map(|live| live.backend);
    let (end, is_reply) = (&walk.end, walk.end.state == ConnectionState::Established);
    let (transport, ports) = (end.transport.name(), captured_ports(end.transport, pod));
    let is_captured = ports.iter().any(|port| port.number() == end.destination.port());
    let listed = |separator: &str| ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator);
    let [name, chain] = [table, chain].map(shell_words);
    let Some((tool, table)) = iptables(&name, family, backend) else {
        return match (is_reply, is_captured) {
            (true, _) => format!("`nft insert rule {name} {chain} ct state established,related accept`"),
            (false, true) => {
                format!("`nft insert rule {name} {chain} {transport} dport {{ {} }} accept`", listed(", "))
            }
            (false, false) => {
                format!(
                    "`nft add chain {name} {chain} '{{ policy accept; }}'`, or add a rule to the chain that accepts this traffic"
                )
            }
        };
    };
    let of_table = if table == "filter" { String::new() } else { format!(" -t {table}") };
    let tests = match (is_reply, is_captured) {
        (true, _) => "-m conntrack --ctstate RELATED,ESTABLISHED".to_owned(),
        (false, true) => format!("-p {transport} -m multiport --dports {}", listed(",")),
        (false, false) => {
            return format!(
                "`{tool}{of_table} -P {chain} ACCEPT`, or add a rule to the chain that accepts this traffic"
            );
        }
    };
    format!("`{tool}{of_table} -I {chain} {tests} -j ACCEPT`")
}

/// The ports to which rules of ours redirect.
fn captured_ports(transport: Transport, pod: &Pod<'_>) -> Vec<Port> {
    let ports = &pod.config.traffic.ports;
    let of_tcp = [ports.outbound, ports.inbound].into_iter().filter(|_| transport == Transport::Tcp);
    of_tcp.chain((pod.config.dns != Dns::Off).then_some(DNS_CAPTURE_PORT)).collect()
}

/// The program of iptables for a table, and the table's name for it; `None` for one of nftables.
fn iptables(table: &str, family: Family, backend: Option<Backend>) -> Option<(String, &str)> {
    let (tool, table) = match table.split_once(' ') {
        None if backend == Some(Backend::Iptables(Variant::Legacy)) => ("iptables-legacy", table),
        None => ("iptables", table),
        Some((tool, table)) => {
            Variant::ALL.iter().any(|variant| variant.to_string() == tool).then_some((tool, table))?
        }
    };
    let tool = if family == Family::V6 { tool.replacen("ip", "ip6", 1) } else { tool.to_owned() };
    Some((tool, table))
}
