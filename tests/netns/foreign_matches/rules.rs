//! Random rules of another program, as text of iptables or of nftables.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use serde_json::{Value, json};

use crate::regressions::texts;

use super::policy::{Policy, policy};
use super::{Backend, FOREIGN_PORT, Family, Pod, nft};

/// Matches of iptables, with `{not}` where a negation may be. `{a}` to `{d}` are addresses.
const EVERYWHERE: [&str; 24] = [
    "-m iprange {not}--dst-range {a}-{b}",
    "-m iprange {not}--src-range {c}-{d}",
    "-m addrtype {not}--dst-type LOCAL",
    "-m addrtype {not}--dst-type UNICAST",
    "-m addrtype {not}--src-type MULTICAST",
    "-m addrtype {not}--src-type LOCAL",
    "-m addrtype {not}--src-type UNICAST --dst-type LOCAL",
    "-p tcp -m multiport {not}--dports 80,443:5432",
    "-p tcp -m multiport {not}--sports 40000:41000,42000",
    "-p tcp -m multiport {not}--ports 9090,43000:43999",
    "-p tcp -m tcp {not}--dport 443:6000",
    "-p tcp -m tcp {not}--sport 41000:42000",
    "-p tcp -m tcp {not}--tcp-flags SYN,ACK SYN",
    "-p tcp -m tcp {not}--tcp-flags FIN,RST NONE",
    "-p tcp -m tcp {not}--syn",
    "-m mark {not}--mark 0x1/0x1",
    "-m mark {not}--mark 0x4000/0x4000",
    "-m mark {not}--mark 5",
    "-m conntrack {not}--ctstate NEW,RELATED",
    "-m conntrack {not}--ctstate ESTABLISHED,DNAT",
    "-m comment --comment \"-j DROP\"",
    "-m comment --comment \"may not, ! -owner net\"",
    "-m comment --comment \"it's ours: --tproxy-mark\"",
    "{not}-p udp",
];
const OUTBOUND: [&str; 10] = [
    "-m owner {not}--uid-owner 1000-1500",
    "-m owner {not}--gid-owner 100-500",
    "-m owner {not}--socket-exists",
    "-m addrtype {not}--dst-type LOCAL --limit-iface-out",
    "{not}-o eth0",
    "{not}-o eth+",
    "{not}-o lo",
    "{not}-o +",
    "-d {a}",
    "{not}-d {a}",
];
const INBOUND: [&str; 7] = [
    "-m addrtype {not}--dst-type LOCAL --limit-iface-in",
    "{not}-i eth0",
    "{not}-i eth+",
    "{not}-i lo",
    "{not}-i +",
    "-s {c}",
    "{not}-s {c}",
];

/// Matches of nftables; `{ip}` is `ip` or `ip6`, the other words are as in [`EVERYWHERE`].
const NFT_EVERYWHERE: [&str; 26] = [
    "{ip} daddr {is}{a}-{b}",
    "{ip} saddr {is}{c}-{d}",
    "{ip} daddr {is}{ {a}, {b} }",
    "{ip} daddr {is}{ {a}-{b}, {c} }",
    "{ip} daddr {is}@named",
    "{ip} saddr {is}@timed",
    "{ip} daddr {is}{net}",
    "tcp dport {is}80",
    "tcp dport {is}443-6000",
    "tcp dport {is}{ 80, 443-6000 }",
    "tcp dport > 443",
    "tcp sport <= 41000",
    "tcp sport {is}{ 40000-41000, 42000-43000 }",
    "th dport {is}@ports",
    "ct state {is}new",
    "ct state {is}established,related",
    "ct state {is}{ new, untracked }",
    "fib daddr type {is}local",
    "fib saddr type {is}local",
    "tcp flags & (syn | ack) == syn",
    "tcp flags & (fin | rst) != 0x0",
    "tcp flags {is}syn",
    "meta mark {is}5",
    "meta mark & 0x1 {eq}0x1",
    "meta mark & 0x4001 {eq}0x4001",
    "meta mark {is}{ 1, 5 }",
];
const NFT_OUTBOUND: [&str; 12] = [
    "meta skuid {is}1000-1500",
    "meta skuid {is}{ 1000, 2001 }",
    "meta skuid {is}{ 0, 1200-1600 }",
    "meta skgid {is}101",
    "meta skgid {is}1000",
    "oifname {is}\"eth0\"",
    "oifname {is}\"eth*\"",
    "oifname {is}{ \"eth0\", \"lo\" }",
    "oif {is}\"eth0\"",
    "oif {is}lo",
    "iifname {is}\"eth0\"",
    "fib daddr . oif type {is}local",
];
const NFT_INBOUND: [&str; 7] = [
    "iifname {is}\"eth0\"",
    "iifname {is}\"eth*\"",
    "iifname {is}{ \"eth1\", \"lo\" }",
    "iif {is}\"eth1\"",
    "iif {is}{ \"lo\", \"eth0\" }",
    "oifname {is}\"eth0\"",
    "fib daddr . iif type {is}local",
];
/// Maps of verdicts; no other match comes with them.
const MAPS: [&str; 5] = [
    "tcp dport vmap { 80 : jump other, 443-6000 : return, 9090 : accept }",
    "ct state vmap { established : accept, related : accept, new : jump other }",
    "{ip} daddr vmap { {a}-{b} : jump other, {c} : accept }",
    "meta l4proto vmap { tcp : goto other, udp : accept }",
    "{ip} saddr vmap { {c}-{d} : jump other }",
];

/// Comments of rules of nftables; the empty one is none.
const NFT_COMMENTS: [&str; 4] =
    ["", "", " comment \"may not; -j ACCEPT\"", " comment \"jump other, it's ours\""];

/// The chains to which rules of iptables jump.
const CHAINS: &str = ":FOREIGN -\n:COUNTED -\n-A FOREIGN -j ACCEPT\n-A COUNTED -p tcp\n";
const WITHOUT_CHAINS: &str = "-F FOREIGN\n-F COUNTED\n-X FOREIGN\n-X COUNTED\n";

/// Priorities of chains that translate, and of chains that do not: before connection tracking, before the
/// translation of ours and behind it.
const NAT_PRIORITIES: [i32; 2] = [-150, -101];
const FILTER_PRIORITIES: [i32; 4] = [-310, -190, -120, 10];

/// Foreign rules, the same in both families.
#[derive(Clone, Debug)]
pub(super) struct RuleSet {
    /// Of iptables: shared chain, matches and target.
    iptables: Vec<(String, String)>,
    /// Of nftables: hook, matches and verdict of the rules of one base chain, and whether it translates.
    nft: Vec<(String, String)>,
    is_nat: bool,
    /// The priority of that chain.
    priority: i32,
    /// A base chain with the policy to drop.
    policy: Option<Policy>,
    /// Numbers of hosts.
    ends: [u8; 4],
}

/// A rule: which of the matches, each negated or not, and which verdict.
fn rule(
    matches: Vec<&'static str>,
    verdicts: Vec<&'static str>,
    not: fn(&str, bool) -> String,
) -> impl Strategy<Value = String> {
    let some = subsequence(matches, 1..4).prop_shuffle();
    (some, vec(any::<bool>(), 4), select(verdicts)).prop_map(move |(matches, negated, verdict)| {
        let mut words: Vec<String> = Vec::new();
        // The protocol comes first, once, and no other contradicts it.
        let (with, without): (Vec<&str>, Vec<&str>) =
            matches.into_iter().partition(|one| one.starts_with("-p tcp "));
        let mut seen = Vec::new();
        let is_first = |one: &&str| {
            let option = one.trim_start_matches("{not}").split(' ').next().unwrap_or_default();
            let is_once = !option.starts_with('-') || option == "-m" || !seen.contains(&option.to_owned());
            seen.push(option.to_owned());
            is_once && (with.is_empty() || option != "-p")
        };
        let without: Vec<&str> = without.into_iter().filter(is_first).collect();
        for (at, one) in with.iter().copied().chain(without.iter().copied()).enumerate() {
            let one = if at > 0 { one.strip_prefix("-p tcp ").unwrap_or(one) } else { one };
            words.push(not(one, negated[at]));
        }
        words.push(verdict.to_owned());
        words.join(" ")
    })
}

fn iptables_rule() -> impl Strategy<Value = (String, String)> {
    let targets = || vec!["-j ACCEPT", "-j RETURN", "-j FOREIGN", "-g FOREIGN", "-j COUNTED", "-g COUNTED"];
    let not = |text: &str, is_negated: bool| text.replace("{not}", if is_negated { "! " } else { "" });
    prop_oneof![
        rule([&EVERYWHERE[..], &OUTBOUND].concat(), targets(), not)
            .prop_map(|rule| ("OUTPUT".to_owned(), rule)),
        rule([&EVERYWHERE[..], &INBOUND].concat(), targets(), not)
            .prop_map(|rule| ("PREROUTING".to_owned(), rule)),
    ]
}

fn nft_rule(is_nat: bool) -> impl Strategy<Value = (String, String)> {
    let verdicts = move || match is_nat {
        true => vec!["meta l4proto tcp redirect to :{foreign}", "accept", "jump other"],
        false => vec!["meta l4proto tcp reject with tcp reset", "accept", "return", "goto other"],
    };
    let not = |text: &str, is_negated: bool| {
        let (is, eq) = if is_negated { ("!= ", "!= ") } else { ("", "== ") };
        text.replace("{is}", is).replace("{eq}", eq)
    };
    let rule = prop_oneof![
        3 => rule([&NFT_EVERYWHERE[..], &NFT_OUTBOUND].concat(), verdicts(), not).prop_map(|rule| ("output".to_owned(), rule)),
        3 => rule([&NFT_EVERYWHERE[..], &NFT_INBOUND].concat(), verdicts(), not).prop_map(|rule| ("prerouting".to_owned(), rule)),
        1 => (select(vec!["output", "prerouting"]), select(MAPS.to_vec())).prop_map(|(hook, map): (&str, &str)| (hook.to_owned(), map.to_owned())),
    ];
    (rule, select(NFT_COMMENTS.to_vec())).prop_map(|((hook, rule), comment)| (hook, rule + comment))
}

/// Beside native rules of ours only those of nftables meet packets before.
pub(super) fn rule_set(backend: Backend) -> impl Strategy<Value = RuleSet> {
    let iptables = if backend == Backend::Native { 0..1 } else { 1..4_usize };
    let iptables = vec(iptables_rule(), iptables);
    let nft = any::<bool>().prop_flat_map(|is_nat| {
        let priorities = if is_nat { &NAT_PRIORITIES[..] } else { &FILTER_PRIORITIES };
        (vec(nft_rule(is_nat), 1..4), Just(is_nat), select(priorities.to_vec()))
    });
    let ends = (0_u8..12, 0_u8..12, 0_u8..4, 0_u8..4);
    let policy = option::weighted(0.4, policy(backend));
    (iptables, nft, policy, ends).prop_map(|(iptables, (nft, is_nat, priority), policy, (a, b, c, d))| {
        RuleSet { iptables, nft, is_nat, priority, policy, ends: [a.min(b), a.max(b), c.min(d), c.max(d)] }
    })
}

/// A table for both families, with addresses of one.
fn table_name(family: Family) -> &'static str {
    if family == Family::V4 { "inet foreign4" } else { "inet foreign6" }
}

fn rules(list: &Value) -> Vec<(String, String)> {
    let split = |text: String| text.split_once(' ').map(|(chain, rule)| (chain.to_owned(), rule.to_owned()));
    texts(list).into_iter().map(|text| split(text).expect("a chain and a rule")).collect()
}

impl RuleSet {
    /// As in a regression file, with placeholders.
    pub(super) fn to_json(&self) -> Value {
        let words = |rules: &[(String, String)]| -> Value {
            rules.iter().map(|(chain, rule)| format!("{chain} {rule}")).collect()
        };
        json!({
            "iptables": words(&self.iptables),
            "nftables": words(&self.nft),
            "type": if self.is_nat { "nat" } else { "filter" },
            "policy": self.policy.as_ref().map(Policy::to_json),
            "priority": self.priority,
            "hosts": self.ends,
        })
    }

    pub(super) fn from_json(content: &Value) -> Self {
        let hosts = content["hosts"].as_array().expect("hosts").iter();
        let hosts = hosts.map(|host| host.as_u64().and_then(|host| host.try_into().ok()).expect("a number"));
        let is_nat = content["type"] == "nat";
        let priority = content["priority"].as_i64().expect("a priority");
        Self {
            iptables: rules(&content["iptables"]),
            nft: rules(&content["nftables"]),
            is_nat,
            policy: (!content["policy"].is_null()).then(|| Policy::from_json(&content["policy"])),
            priority: priority.try_into().expect("a priority"),
            ends: hosts.collect::<Vec<u8>>().try_into().expect("four hosts"),
        }
    }

    pub(super) const fn has_policy(&self) -> bool {
        self.policy.is_some()
    }

    /// Whether it can be tried with a backend.
    pub(super) fn is_for(&self, backend: Backend) -> bool {
        let has_iptables =
            !self.iptables.is_empty() || self.policy.as_ref().is_some_and(Policy::is_of_iptables);
        backend != Backend::Native || !has_iptables
    }

    /// With addresses: around the services, and around those of the pod and of its neighbour.
    fn filled(&self, family: Family, text: &str) -> String {
        let [a, b, c, d] = self.ends;
        let address = |service: bool, host: u8| match (family, service) {
            (Family::V4, true) => format!("192.0.2.{host}"),
            (Family::V4, false) => format!("10.1.0.{host}"),
            (Family::V6, true) => format!("2001:db8:2::{host:x}"),
            (Family::V6, false) => format!("fd00:1::{host:x}"),
        };
        // Beyond the service's own host.
        let (b, d) = (b + 5 + (a == b) as u8, d + 1);
        let (ip, net, loopback) = match family {
            Family::V4 => ("ip", "192.0.2.0/28", "127.0.0.1"),
            Family::V6 => ("ip6", "2001:db8:2::/64", "::1"),
        };
        text.replace("{a}", &address(true, a))
            .replace("{b}", &address(true, b))
            .replace("{c}", &address(false, c))
            .replace("{d}", &address(false, d))
            .replace("{ip}", ip)
            .replace("{net}", net)
            .replace("{loopback}", loopback)
            .replace("{foreign}", &FOREIGN_PORT.to_string())
    }

    pub(super) fn add(&self, pod: &Pod) {
        for &family in pod.fixture.families() {
            // Each at the head of its chain: the last one first.
            let rules = self.iptables.iter().rev();
            let rules = rules.map(|(chain, rule)| format!("-I {chain} {}\n", self.filled(family, rule)));
            let rules: Vec<String> = rules.collect();
            if !rules.is_empty() {
                pod.restore(family, &format!("*nat\n{CHAINS}{}COMMIT\n", rules.concat()));
            }
            if let Some(policy) = &self.policy {
                policy.add(pod, family, &|text| self.filled(family, text));
            }
            let name = table_name(family);
            nft(pod, &format!("add table {name}\ndelete table {name}\n{}", self.table(family)));
        }
    }

    pub(super) fn delete(&self, pod: &Pod) {
        for &family in pod.fixture.families() {
            let rules = self.iptables.iter().map(|(chain, _)| format!("-D {chain} 1\n"));
            let rules: Vec<String> = rules.collect();
            if !rules.is_empty() {
                pod.restore(family, &format!("*nat\n{}{WITHOUT_CHAINS}COMMIT\n", rules.concat()));
            }
            nft(pod, &format!("delete table {}\n", table_name(family)));
            if let Some(policy) = &self.policy {
                policy.delete(pod, family);
            }
        }
    }

    fn table(&self, family: Family) -> String {
        let (kind, end) = match self.is_nat {
            true => ("nat", "redirect to :{foreign}"),
            false => ("filter", "reject with tcp reset"),
        };
        let priority = self.priority;
        let kind_of_address = if family == Family::V4 { "ipv4_addr" } else { "ipv6_addr" };
        let mut text = format!(
            "table {} {{\n\
             set named {{ type {kind_of_address}; flags interval; elements = {{ {{a}}-{{b}}, {{c}} }}; }}\n\
             set timed {{ type {kind_of_address}; flags timeout; timeout 1h; elements = {{ {{c}}, {{d}} }}; }}\n\
             set ports {{ type inet_service; flags interval; elements = {{ 1-100, 9000-65535 }}; }}\n\
             chain other {{ meta l4proto tcp {end}; }}\n",
            table_name(family)
        );
        for hook in ["output", "prerouting"] {
            let rules = self.nft.iter().filter(|(of, _)| of == hook);
            let rules: Vec<&str> = rules.map(|(_, rule)| rule.as_str()).collect();
            // The replies of a connection, resets among them, are not packets that are asked about.
            let first = if self.is_nat { "" } else { "tcp flags & (syn | ack) != syn accept" };
            text += &format!(
                "chain {hook} {{ type {kind} hook {hook} priority {priority};\n{first}\n{}\n}}\n",
                rules.join("\n")
            );
        }
        self.filled(family, &(text + "}\n"))
    }
}
