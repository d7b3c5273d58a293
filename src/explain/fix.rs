//! What can be done about a packet that is lost by the policy of a chain, a policy rule or a route.

use super::rules::{INPUT, POSTROUTING};
use super::walk::{Step, Walk};
use super::{LiveState, Pod};
use crate::config::{ConnectionState, Dns};
use crate::finding::Subject;
use crate::live_rules::Effect;
use crate::model::{Backend, DNS_CAPTURE_PORT, Family, Hook, Port, Table, Target, Transport, Variant};
use crate::text::shell_words;

/// What mends a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fix {
    /// The command, in words.
    pub(super) command: String,
    /// The table that it changes, as in [`RuleId::table`](crate::finding::RuleId::table).
    pub(super) table: Option<String>,
    /// Whether it mends what deleting the rule that is the cause does not.
    pub(super) precedes_removal: bool,
}

/// The command that mends it; `None` if something else is the cause.
pub(super) fn of_walk(walk: &Walk<'_>, pod: &Pod<'_>) -> Option<Fix> {
    let live = pod.live.as_ref()?;
    let family = if walk.end.source.is_ipv4() { Family::V4 } else { Family::V6 };
    match walk.dropped_by {
        Some(base) => {
            let (command, table) = (accepting(walk, base, family, pod), Some(base.0.to_owned()));
            Some(Fix { command, table, precedes_removal: false })
        }
        None => {
            let of_routing = walk.policy_rule().map(|cause| {
                let command = of_routing(&cause, family, live);
                Fix { command, table: None, precedes_removal: false }
            });
            of_routing.or_else(|| accepting_before(walk, family, pod))
        }
    }
}

/// The rule that accepts the packet before the end of a firewall drops it: a rule without tests, or one in a
/// chain to which others lead. Without that rule, what is behind it drops the packet as well.
fn accepting_before(walk: &Walk<'_>, family: Family, pod: &Pod<'_>) -> Option<Fix> {
    let decisive = walk.decisive().filter(|step| step.rule.is_foreign() && drops(step))?;
    let is_for_all = decisive.rule.rule.is_for_all();
    let base = walk.path_to(decisive).pop().filter(|base| is_for_all || base.chain != decisive.chain)?;
    // A packet in another state may not be accepted by a rule before the one about its state.
    let is_plain = walk.end.is_tracked && walk.end.state != ConnectionState::Invalid;
    let command = is_plain.then(|| {
        let is_reply = walk.end.state == ConnectionState::Established;
        let is_captured = captured_ports(walk.end.transport, pod)
            .iter()
            .any(|port| port.number() == walk.end.destination.port());
        if is_reply || is_captured {
            return accepting(walk, (base.table, base.chain), family, pod);
        }
        let backend = pod.live.as_ref().map(|live| live.backend);
        let (transport, port) = (walk.end.transport.name(), walk.end.destination.port());
        let [name, chain] = [base.table, base.chain].map(shell_words);
        match iptables(&name, &chain, family, backend) {
            Some((tool, table)) => {
                let of_table = of_table(table);
                format!("`{tool}{of_table} -I {chain} -p {transport} --dport {port} -j ACCEPT`")
            }
            None => format!("`nft insert rule {name} {chain} {transport} dport {port} accept`"),
        }
    })?;
    Some(Fix { command, table: Some(base.table.to_owned()), precedes_removal: true })
}

fn drops(step: &Step<'_>) -> bool {
    matches!(step.effect, Some(Effect::Known(Target::Drop) | Effect::Rejects))
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
    let Some((tool, table)) = iptables(&name, &chain, family, backend) else {
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
    let of_table = of_table(table);
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

fn of_table(table: &str) -> String {
    if table == "filter" { String::new() } else { format!(" -t {table}") }
}

/// The program of iptables for a table, and the table's name for it; `None` for one of nftables.
///
/// In a table with the name of one of iptables-nft, that tool writes the rule: it shows an `nft` rule with a
/// set of ports as one without ports, and the next restore of what it saved accepts every port.
fn iptables<'a>(
    table: &'a str,
    chain: &str,
    family: Family,
    backend: Option<Backend>,
) -> Option<(String, &'a str)> {
    let is_builtin = |table: &str| {
        let has_table = table == "filter" || Table::ALL.iter().any(|known| known.name() == table);
        let hooks = [Hook::Prerouting.name(), Hook::Output.name(), INPUT, POSTROUTING];
        has_table && hooks.contains(&chain)
    };
    let (tool, table) = match table.split_once(' ') {
        None if backend == Some(Backend::Iptables(Variant::Legacy)) => ("iptables-legacy", table),
        None => ("iptables", table),
        Some(("ip" | "ip6", table)) if is_builtin(table) => ("iptables-nft", table),
        Some((tool, table)) => {
            Variant::ALL.iter().any(|variant| variant.to_string() == tool).then_some((tool, table))?
        }
    };
    let tool = if family == Family::V6 { tool.replacen("ip", "ip6", 1) } else { tool.to_owned() };
    Some((tool, table))
}
