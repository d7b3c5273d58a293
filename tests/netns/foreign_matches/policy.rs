//! Random base chains that drop what none of their rules accepts, as those of firewalls.

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

use crate::regressions::texts;

use super::{Backend, Family, Pod, nft};

/// What rules of iptables accept.
const EVERYWHERE: [&str; 14] = [
    "-p tcp -m multiport --dports 15001,15006,15053",
    "-p tcp -m tcp --dport 15001",
    "-p tcp -m tcp --dport 15001:15006",
    "-p tcp -m tcp ! --dport 15001",
    "-p tcp -m tcp --dport 443",
    "-m conntrack --ctstate NEW",
    "-m conntrack --ctstate DNAT",
    "-m conntrack ! --ctstate INVALID",
    "-m conntrack ! --ctstate DNAT",
    "-d {loopback}",
    "! -d {loopback}",
    "-m addrtype --dst-type LOCAL",
    "-p tcp -m conntrack --ctorigdstport 443",
    "-m mark --mark 0",
];
const OUTPUT: [&str; 5] = [
    "-m owner --uid-owner 1337",
    "-m owner --gid-owner 1337",
    "-m owner --uid-owner 1000",
    "-o lo",
    "-o eth0",
];
const INPUT: [&str; 4] = ["-i lo", "-i eth0", "! -i lo", "-p tcp -m tcp --dport 15006"];

/// What rules of nftables accept.
const NFT_EVERYWHERE: [&str; 16] = [
    "tcp dport { 15001, 15006, 15053 } accept",
    "tcp dport 15001 accept",
    "tcp dport 15001-15006 accept",
    "tcp dport != 15001 accept",
    "tcp dport vmap { 15001 : accept, 15006 : accept, 443 : drop }",
    "meta l4proto . th dport { tcp . 15001, tcp . 15006, udp . 53 } accept",
    "ct state new accept",
    "ct state != invalid accept",
    "ct state vmap { established : accept, new : accept, invalid : drop }",
    "ct status dnat accept",
    "ct status & dnat == 0 accept",
    "{ip} daddr {loopback} accept",
    "{ip} daddr != {loopback} accept",
    "fib daddr type local accept",
    "tcp dport 80 drop",
    "meta mark 0 accept",
];
const NFT_OUTPUT: [&str; 5] = [
    "meta skuid 1337 accept",
    "meta skgid 1337 accept",
    "meta skuid { 1000, 1337 } accept",
    "oifname \"lo\" accept",
    "oifname \"eth0\" accept",
];
const NFT_INPUT: [&str; 4] =
    ["iifname \"lo\" accept", "iifname \"eth0\" accept", "iif != lo accept", "tcp dport 15006 accept"];

/// A base chain of the table `filter`, or of nftables.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    is_of_nft: bool,
    chain: String,
    /// The rules; those of nftables have their verdict.
    rules: Vec<String>,
}

/// Beside native rules of ours one of nftables.
pub(super) fn policy(backend: Backend) -> impl Strategy<Value = Policy> {
    let is_of_nft = if backend == Backend::Native { Just(true).boxed() } else { any::<bool>().boxed() };
    (is_of_nft, select(vec!["OUTPUT", "INPUT"])).prop_flat_map(|(is_of_nft, chain)| {
        let rules = match (is_of_nft, chain) {
            (false, "OUTPUT") => [&EVERYWHERE[..], &OUTPUT].concat(),
            (false, _) => [&EVERYWHERE[..], &INPUT].concat(),
            (true, "OUTPUT") => [&NFT_EVERYWHERE[..], &NFT_OUTPUT].concat(),
            (true, _) => [&NFT_EVERYWHERE[..], &NFT_INPUT].concat(),
        };
        subsequence(rules, 1..6).prop_shuffle().prop_map(move |rules| Policy {
            is_of_nft,
            chain: chain.to_owned(),
            rules: rules.into_iter().map(str::to_owned).collect(),
        })
    })
}

impl Policy {
    pub(super) fn to_json(&self) -> Value {
        let Self { is_of_nft, chain, rules } = self;
        json!({ "of": if *is_of_nft { "nftables" } else { "iptables" }, "chain": chain, "rules": rules })
    }

    pub(super) fn from_json(content: &Value) -> Self {
        let is_of_nft = content["of"] == "nftables";
        let chain = content["chain"].as_str().expect("a chain").to_owned();
        Self { is_of_nft, chain, rules: texts(&content["rules"]) }
    }

    pub(super) fn is_of_iptables(&self) -> bool {
        !self.is_of_nft
    }

    /// Packets that are asked about begin connections: those that follow pass, and neighbour discovery.
    pub(super) fn add(&self, pod: &Pod, family: Family, filled: &dyn Fn(&str) -> String) {
        let Self { is_of_nft, chain, rules } = self;
        if *is_of_nft {
            let first = "meta l4proto != tcp accept\ntcp flags & (syn | ack) != syn accept";
            let (name, hook) = (table_name(family), chain.to_lowercase());
            let rules = filled(&rules.join("\n"));
            let text = format!(
                "table {name} {{\nchain {hook} {{ type filter hook {hook} priority 5; policy drop;\n{first}\n{rules}\n}}\n}}\n"
            );
            return nft(pod, &text);
        }
        let rules: String =
            rules.iter().map(|rule| format!("-A {chain} {} -j ACCEPT\n", filled(rule))).collect();
        let first = format!("-A {chain} ! -p tcp -j ACCEPT\n-A {chain} -p tcp ! --syn -j ACCEPT\n");
        pod.restore(family, &format!("*filter\n:{chain} DROP\n{first}{rules}COMMIT\n"));
    }

    pub(super) fn delete(&self, pod: &Pod, family: Family) {
        let Self { is_of_nft, chain, rules: _ } = self;
        if *is_of_nft {
            return nft(pod, &format!("delete table {}\n", table_name(family)));
        }
        pod.restore(family, &format!("*filter\n:{chain} ACCEPT\n-F {chain}\nCOMMIT\n"));
    }
}

/// For one family, as its rules name addresses.
fn table_name(family: Family) -> &'static str {
    if family == Family::V4 { "ip firewall" } else { "ip6 firewall" }
}
