//! The report about all traffic of a live pod as values, for a page: what text and JSON have, and the rules
//! in the order of the hooks.

use std::collections::BTreeSet;

use super::entry::Entry;
use super::listener::Listener;
use super::row::Row;
use super::rules::{BaseChain, Chains, INPUT, POSTROUTING, Rules};
use super::runtime::{self, ProxyPort};
use super::text;
use super::{Connection, LiveState, Overview, Pod, RunningProcess};
use crate::finding::{Finding, RuleId, Subject};
use crate::model::{Family, Hook, InterfaceAddress, PerFamily, Table, Why};
use crate::ordered::Ordered as _;
use crate::parse::{Counters, Counts};

/// All that a page shows.
#[derive(Clone, Debug)]
pub struct PodReport {
    /// The first line of the report.
    pub verdict: String,
    /// What is wrong, the most harmful first.
    pub problems: Vec<Finding>,
    /// What else may decide.
    pub notes: Vec<String>,
    /// Each kind of traffic.
    pub traffic: Vec<Row>,
    /// Packets for foreign rules with which something is wrong.
    pub probes: Vec<Row>,
    /// The live chains, in the order in which packets meet them at each hook.
    pub chains: Vec<LiveChain>,
    /// The ports of the proxy that rules hand packets to.
    pub proxy_ports: Vec<ProxyPort>,
    /// The TCP sockets of other programs; `None` if sockets cannot be listed.
    pub app_listeners: Option<Vec<Listener>>,
    /// Processes beside the proxy whose traffic is not captured.
    pub exempt: Vec<RunningProcess>,
    /// Connections that began before capture.
    pub older: Vec<Connection>,
    /// The addresses of the pod.
    pub addresses: Vec<InterfaceAddress>,
    /// What the live rules capture, in one line; empty without rules.
    pub capture: String,
}

/// A live chain.
#[derive(Clone, Debug)]
pub struct LiveChain {
    /// The family of the chain.
    pub family: Family,
    /// The hook from which packets get there; `None` if no rule leads there.
    pub hook: Option<&'static str>,
    /// The table of the chain, with the family of nftables in front if it is not one of iptables.
    pub table: String,
    /// The name of the chain.
    pub chain: String,
    /// Whether its policy is to drop.
    pub drops: bool,
    /// The rules of the chain.
    pub rules: Vec<ChainRule>,
}

/// A rule of a live chain.
#[derive(Clone, Debug)]
pub struct ChainRule {
    /// The words of the rule.
    pub words: String,
    /// Why it exists; `None` if it is foreign.
    pub why: Option<Why>,
    /// Whether a problem is about it.
    pub is_cause: bool,
    /// What it has counted, if that is known.
    pub counts: Option<Counts>,
    /// How many more elements of a set it is for.
    pub more: usize,
}

/// The hooks, in the order in which packets meet them, those from outside first.
const HOOKS: [&str; 4] = [Hook::Prerouting.name(), INPUT, Hook::Output.name(), POSTROUTING];

/// The report about a pod whose live rules are known.
#[must_use]
pub fn pod_report(pod: &Pod<'_>, live: &LiveState, counters: &PerFamily<Counters>) -> PodReport {
    let Overview { rows, mut probes, problems } = Overview::of(pod);
    probes.retain(Row::is_unexpected);
    let captures = Family::ALL.iter().any(|family| live.rules.get(family).is_some_and(Rules::has_ours));
    let app_listeners = live.runtime.listeners.as_ref();
    let chains = live.rules.iter().flat_map(|(family, rules)| {
        let counters = counters.get(family);
        chains(&Placed { family: *family, rules, counters, problems: &problems })
    });
    PodReport {
        verdict: text::verdict(&problems),
        notes: pod.live.iter().flat_map(|live| text::notes(live, &problems)).map(str::to_owned).collect(),
        chains: chains.collect(),
        proxy_ports: runtime::proxy_ports(live, pod),
        app_listeners: app_listeners
            .map(|found| found.iter().filter(|found| pod.is_of_app(found)).copied().collect()),
        exempt: runtime::exempt_processes(live).into_iter().cloned().collect(),
        older: runtime::older_than_capture(live, pod.config, pod.network).into_iter().copied().collect(),
        addresses: pod.network.addresses.clone(),
        capture: if captures { pod.config.to_string() } else { String::new() },
        traffic: rows,
        probes,
        problems,
    }
}

/// The rules of a family, with what is known of them.
struct Placed<'a> {
    family: Family,
    rules: &'a Rules,
    counters: Option<&'a Counters>,
    problems: &'a [Finding],
}

/// A table with a chain at a hook.
struct PacketState<'a> {
    name: &'a str,
    /// Which of those of iptables it is.
    table: Option<Table>,
    chain: &'a str,
    drops: bool,
    rules: &'a [Entry],
    chains: &'a Chains,
}

fn chains(placed: &Placed<'_>) -> Vec<LiveChain> {
    let mut found = Vec::new();
    let mut reached = BTreeSet::new();
    for hook in HOOKS {
        for base in at_hook(placed.rules, hook) {
            if base.rules.is_empty() && !base.drops {
                continue;
            }
            let mut waiting = vec![(base.chain, base.rules)];
            let mut met = BTreeSet::from([base.chain]);
            while let Some((chain, rules)) = waiting.pop() {
                reached.insert((base.name.to_owned(), chain.to_owned()));
                let drops = base.drops && chain == base.chain;
                found.push(placed.chain((Some(hook), drops), (base.name, base.table), chain, rules));
                let next = rules.iter().rev().filter_map(|entry| entry.rule.chain());
                for (name, _) in next {
                    if let Some((name, rules)) = base.chains.named.get_key_value(name)
                        && met.insert(name)
                    {
                        waiting.push((name, rules));
                    }
                }
            }
        }
    }
    for (table, chains) in &placed.rules.tables {
        for (chain, rules) in chains.named.iter().filter(|(_, rules)| !rules.is_empty()) {
            if !reached.contains(&(table.name().to_owned(), chain.clone())) {
                found.push(placed.chain((None, false), (table.name(), Some(*table)), chain, rules));
            }
        }
    }
    found
}

/// The chains at a hook by their priorities, foreign ones before ours.
fn at_hook<'a>(rules: &'a Rules, hook: &str) -> Vec<PacketState<'a>> {
    let beside =
        rules.before.iter().chain(&rules.later).filter(|base| base.stage.chain() == hook).map(|base| {
            let BaseChain { table, chain, rules, drops, chains, .. } = base;
            let base_chain = PacketState {
                name: table,
                table: None,
                chain,
                drops: *drops,
                rules,
                chains: chains.as_ref(),
            };
            (base.place(), base_chain)
        });
    let ours = rules.tables.iter().flat_map(|(table, chains)| {
        let of_hook = chains.hooks.iter().filter(|(of, _)| of.name() == hook);
        of_hook.map(|(of, rules)| {
            let drops = chains.drops.contains(of);
            let (name, chain) = (table.name(), of.name());
            let priority = table.priority();
            ((priority, priority), PacketState { name, table: Some(*table), chain, drops, rules, chains })
        })
    });
    let all = beside.chain(ours).into_sorted_by_key(|(place, _)| *place);
    all.into_iter().map(|(_, base)| base).collect()
}

impl Placed<'_> {
    fn chain(
        &self,
        (hook, drops): (Option<&'static str>, bool),
        (name, table): (&str, Option<Table>),
        chain: &str,
        entries: &[Entry],
    ) -> LiveChain {
        let counts = table.and_then(|table| self.counters?.get(&(table, chain.to_owned())));
        let is_cause = |entry: &Entry| {
            let rule = Subject::Rule(RuleId::of(name, chain, &entry.rule));
            let is_about = |finding: &Finding| {
                finding.family.is_none_or(|family| family == self.family)
                    && finding.is_about_any(std::slice::from_ref(&rule))
            };
            entry.is_foreign() && self.problems.iter().any(is_about)
        };
        let mut rules: Vec<ChainRule> = Vec::new();
        for group in entries.chunk_by(|one, next| one.is_native && one.number == next.number) {
            let Some(first) = group.first() else { continue };
            rules.push(ChainRule {
                words: first.shown(),
                why: first.why,
                is_cause: group.iter().any(is_cause),
                counts: counts.and_then(|counts| counts.get(first.number)).copied(),
                more: group.len() - 1,
            });
        }
        LiveChain { family: self.family, hook, table: name.to_owned(), chain: chain.to_owned(), drops, rules }
    }
}
