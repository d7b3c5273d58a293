//! Reading the rules and routes of a pod, and putting others there by hand.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use nfnetlink::nftables::{Client, Family as NftFamily, Table};

use super::fixture::{Backend, Family};
use super::pod::Pod;
use super::program::tool;

/// Chains that the kernel makes; with policy ACCEPT and no rule they are ignored.
const BUILT_IN: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// Everything that a run may leave behind, in a form that two pods can be compared by: rules in order per
/// table and chain, without counters, and without tables and built-in chains that are empty.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct State {
    chains: BTreeMap<String, Vec<String>>,
    network: Vec<String>,
}

impl State {
    /// No rule, no chain, and no policy route beyond the kernel's.
    pub(crate) fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.network.is_empty()
    }

    /// The rules of a chain, named as in `ip6 nat ISTIO_OUTPUT`.
    pub(crate) fn chain(&self, name: &str) -> &[String] {
        self.chains.get(name).map_or(&[], Vec::as_slice)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f)?;
        for (chain, rules) in &self.chains {
            writeln!(f, "{chain}:")?;
            rules.iter().try_for_each(|rule| writeln!(f, "    {rule}"))?;
        }
        self.network.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Pod {
    /// The state of this pod.
    pub(crate) fn state(&self) -> State {
        let mut chains = BTreeMap::new();
        for (family, name) in [(Family::V4, "ip4"), (Family::V6, "ip6")] {
            read_rules(&self.save(family), name, &mut chains);
        }
        chains.retain(|name: &String, rules| {
            let chain = name.rsplit(' ').next().unwrap();
            !(BUILT_IN.contains(&chain) && rules.iter().all(|rule| rule == "policy ACCEPT"))
        });
        self.read_native(&mut chains);
        State { chains, network: self.network() }
    }

    /// The chains of tables of the family `inet`, with counters at 0.
    fn read_native(&self, chains: &mut BTreeMap<String, Vec<String>>) {
        let legacy = self.fixture.backend == Backend::IptablesLegacy;
        let tables = self.namespace.run(|| {
            let mut client = Client::open().expect("nf_tables");
            let names = match client.tables() {
                // What nfnetlink replies for a subsystem that the kernel lacks: legacy tables do without
                // nf_tables.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) && legacy => return Vec::new(),
                reply => reply.expect("tables"),
            };
            let inet = names.into_iter().filter(|table| table.family == NftFamily::Inet);
            inet.filter_map(|name| client.table(&name).expect("a table")).collect::<Vec<_>>()
        });
        for table in tables.into_iter().map(Table::normalized) {
            for chain in &table.chains {
                let rules = chain.rules.iter().map(|rule| format!("{rule:?}")).collect();
                chains.insert(format!("{} {}", table.name, chain.name), rules);
            }
            let sets = table.sets.iter().map(|set| format!("{set:?}")).collect();
            chains.insert(format!("{} sets", table.name), sets);
        }
    }

    /// `iptables-save` without comments, counters and built-in chains that are empty: what must not change
    /// for others.
    pub(crate) fn save(&self, family: Family) -> String {
        let name = self.fixture.backend.tool(family, "-save");
        let saved = self.namespace.run(|| tool(&name, &[], ""));
        let lines = saved.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| format!("{}\n", line.split(" [").next().unwrap())).collect()
    }

    /// Policy rules, their routes and addresses of `lo` that the kernel did not put there.
    fn network(&self) -> Vec<String> {
        let usual =
            ["0:\tfrom all lookup local", "32766:\tfrom all lookup main", "32767:\tfrom all lookup default"];
        // With `ipv6.disable=1` the kernel has no such file, and `ip -6` fails.
        let ipv6 = Path::new("/proc/net/if_inet6").exists();
        self.namespace.run(|| {
            let mut lines = Vec::new();
            // One process for each family; its lines tell what they are about.
            for &family in if ipv6 { &["-4", "-6"][..] } else { &["-4"] } {
                let mut batch = "rule\nroute show table all type local\n".to_owned();
                if family == "-6" {
                    batch += "address show dev lo\n";
                }
                let listed = tool("ip", &["-o", family, "-batch", "-"], &batch);
                lines.extend(listed.lines().filter_map(|line| {
                    if line.starts_with("local ") {
                        let is_added = line.contains("table") && !line.contains("table local");
                        is_added.then(|| format!("{family} route {line}"))
                    } else if line.contains(":\t") {
                        Some(format!("{family} rule {line}"))
                    } else {
                        let address = line.split_whitespace().nth(3).unwrap_or(line);
                        Some(format!("{family} lo {address}"))
                    }
                }));
            }
            lines.retain(|l| !usual.iter().any(|u| l.trim_end().ends_with(u)) && l != "-6 lo ::1/128");
            lines
        })
    }

    /// Loads a restore text without touching what is there already.
    #[track_caller]
    pub(crate) fn restore(&self, family: Family, text: &str) {
        let name = self.fixture.backend.tool(family, "-restore");
        let lock: &[&str] = if name.contains("legacy") { &["--wait"] } else { &[] };
        self.namespace.run(|| tool(&name, &[lock, &["--noflush"]].concat(), text));
    }

    /// One `iptables` command.
    #[track_caller]
    pub(crate) fn iptables(&self, family: Family, command: &str) -> String {
        let name = self.fixture.backend.tool(family, "");
        let args: Vec<_> = ["--wait"].into_iter().chain(command.split_whitespace()).collect();
        self.namespace.run(|| tool(&name, &args, ""))
    }

    /// `ip` commands in the pod, one a line.
    #[track_caller]
    pub(crate) fn ip(&self, lines: &str) {
        self.namespace.run(|| {
            for line in lines.lines() {
                tool("ip", &line.split_whitespace().collect::<Vec<_>>(), "");
            }
        });
    }
}

fn read_rules(saved: &str, family: &str, chains: &mut BTreeMap<String, Vec<String>>) {
    let mut table = "";
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        } else if let Some(chain) = line.strip_prefix(':') {
            let (chain, policy) = chain.split_once(' ').unwrap();
            let rules = if policy == "-" { vec![] } else { vec![format!("policy {policy}")] };
            chains.insert(format!("{family} {table} {chain}"), rules);
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let (chain, rule) = rule.split_once(' ').unwrap();
            chains
                .get_mut(&format!("{family} {table} {chain}"))
                .expect("a declared chain")
                .push(rule.to_owned());
        }
    }
}

/// Everything of interest, for a failure's output.
pub(crate) fn everything(pod: &Pod) -> String {
    format!("{}{}{}", pod.save(Family::V4), pod.save(Family::V6), pod.network().join("\n"))
}
