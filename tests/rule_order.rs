//! The order of the rules, which is part of what they mean: written out for a configuration that has
//! everything.

#![allow(clippy::expect_used, clippy::indexing_slicing, clippy::panic, reason = "a test may fail")]

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use istio_iptables::cli::{self, Outcome};
use istio_iptables::facts::Files;
use istio_iptables::model::{
    Chain, Family, FamilyRules, Hook, InterfaceAddress, Network, Rule, Table, Variant,
};
use istio_iptables::parse::{Line, Observed, ObservedTable};
use istio_iptables::reconcile::Change;
use istio_iptables::record::Record;
use istio_iptables::{config, policy};

/// The rules that `words` (variables, then flags) ask for in a dual-stack pod with a name server of each
/// family.
fn rules(words: &str, family: Family) -> FamilyRules {
    let is_variable = |word: &&str| !word.starts_with('-') && word.contains('=');
    let variables = words.split(' ').take_while(is_variable);
    let env = variables.filter_map(|word| word.split_once('='));
    let flags = words.split(' ').skip_while(is_variable);
    let parsed = cli::parse(
        ["istio-iptables"].into_iter().chain(flags).map(OsString::from),
        env.map(|(name, value)| (name.into(), value.into())),
        &mut io::empty(),
        &|_: &Path| Err(io::ErrorKind::NotFound.into()),
    );
    let Ok(Outcome::Run(raw)) = parsed else { panic!("{parsed:?}") };
    let files = Files {
        passwd: String::new(),
        group: String::new(),
        resolv_conf: Ok("nameserver 10.96.0.10\nnameserver fd00::a\n".to_owned()),
    };
    let address = |address: [u16; 8]| InterfaceAddress {
        interface: "eth0".to_owned(),
        address: IpAddr::from(address).to_canonical(),
        prefix: 24,
    };
    let network = Network {
        addresses: vec![
            address([0, 0, 0, 0, 0, 0xffff, 0x0af4, 0x0107]),
            address([0xfd00, 0, 0, 0, 0, 0, 0, 7]),
        ],
        ipv6: true,
    };
    let resolved = config::resolve(&raw, &files).unwrap_or_else(|errors| panic!("{errors:?}"));
    policy::ruleset(&resolved.intent.decide(&network).0).resolve(family)
}

fn texts<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> Vec<String> {
    rules.into_iter().map(|rule| rule.statement.to_string()).collect()
}

fn chain(rules: &FamilyRules, table: Table, chain: Chain) -> Vec<String> {
    texts(&rules.tables[&table].chains[&chain])
}

fn hook(rules: &FamilyRules, table: Table, hook: Hook) -> Vec<String> {
    texts(rules.tables[&table].hooks[&hook].iter())
}

const EVERYTHING: &str = "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=34 -m TPROXY -b * -d 15020,15090 -i 10.0.0.0/8,fd00::/8 \
                          -x 10.5.0.0/16,fd00:5::/32 -q 5432,3306 -o 25 -u 1337,1500 -g 2000 -c net1,net2 -k vm0,vm1 \
                          --redirect-dns --drop-invalid --dual-stack";

#[test]
fn all_outbound_rules_are_in_istio_order() {
    let expected = [
        "-p tcp --dport 25 -j RETURN",
        "-p udp --dport 25 -j RETURN",
        "-s 127.0.0.6/32 -o lo -j RETURN",
        "! -d 127.0.0.1/32 -o lo -p tcp -m multiport ! --dports 53,15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT",
        "-o lo -p tcp ! --dport 53 -m owner ! --uid-owner 1337 -j RETURN",
        "-m owner --uid-owner 1337 -j RETURN",
        "! -d 127.0.0.1/32 -o lo -p tcp -m multiport ! --dports 53,15008 -m owner --uid-owner 1500 -j ISTIO_IN_REDIRECT",
        "-o lo -p tcp ! --dport 53 -m owner ! --uid-owner 1500 -j RETURN",
        "-m owner --uid-owner 1500 -j RETURN",
        "! -d 127.0.0.1/32 -o lo -p tcp ! --dport 15008 -m owner --gid-owner 2000 -j ISTIO_IN_REDIRECT",
        "-o lo -p tcp ! --dport 53 -m owner ! --gid-owner 2000 -j RETURN",
        "-m owner --gid-owner 2000 -j RETURN",
        "-m owner --gid-owner 34 -j RETURN",
        "-j ISTIO_OUTPUT_DNS",
        "-d 127.0.0.1/32 -j RETURN",
        "-d 10.5.0.0/16 -j RETURN",
        "-p tcp --dport 5432 -j ISTIO_REDIRECT",
        "-p tcp --dport 3306 -j ISTIO_REDIRECT",
        "-d 10.0.0.0/8 -j ISTIO_REDIRECT",
    ];
    assert_eq!(chain(&rules(EVERYTHING, Family::V4), Table::Nat, Chain::Output), expected);
    let in_v6 = |rule: &str| {
        rule.replace("127.0.0.6/32", "::6/128")
            .replace("127.0.0.1/32", "::1/128")
            .replace("10.5.0.0/16", "fd00:5::/32")
            .replace("10.0.0.0/8", "fd00::/8")
    };
    assert_eq!(chain(&rules(EVERYTHING, Family::V6), Table::Nat, Chain::Output), expected.map(in_v6));
}

#[test]
fn prerouting_rules_are_in_istio_order() {
    let redirect = rules("-b * -i 10.0.0.0/8,172.16.0.0/12 -c net1,net2 -k vm0,vm1", Family::V4);
    assert_eq!(
        hook(&redirect, Table::Nat, Hook::Prerouting),
        [
            "-d 172.16.0.0/12 -i vm1 -j ISTIO_REDIRECT",
            "-d 172.16.0.0/12 -i vm0 -j ISTIO_REDIRECT",
            "-d 10.0.0.0/8 -i vm1 -j ISTIO_REDIRECT",
            "-d 10.0.0.0/8 -i vm0 -j ISTIO_REDIRECT",
            "-i vm1 -j RETURN",
            "-i vm0 -j RETURN",
            "-i net1 -j RETURN",
            "-i net2 -j RETURN",
            "-p tcp -j ISTIO_INBOUND",
        ]
    );
    assert_eq!(
        hook(&redirect, Table::Nat, Hook::Output),
        ["-o net1 -j RETURN", "-o net2 -j RETURN", "-j ISTIO_OUTPUT"]
    );
}

#[test]
fn mangle_rules_are_in_istio_order() {
    let rules = rules(EVERYTHING, Family::V4);
    assert_eq!(
        hook(&rules, Table::Mangle, Hook::Prerouting),
        [
            "-i net1 -j RETURN",
            "-i net2 -j RETURN",
            "-m conntrack --ctstate INVALID -j ISTIO_DROP",
            "-p tcp -j ISTIO_INBOUND",
            "-p tcp -m mark --mark 1337 -j CONNMARK --save-mark",
        ]
    );
    assert_eq!(
        hook(&rules, Table::Mangle, Hook::Output),
        [
            "-o net1 -j RETURN",
            "-o net2 -j RETURN",
            "-o lo -p tcp -m mark --mark 1337 -j RETURN",
            "! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 1337 -j MARK --set-mark 1338",
            "! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 1500 -j MARK --set-mark 1338",
            "! -d 127.0.0.1/32 -o lo -p tcp -m owner --gid-owner 2000 -j MARK --set-mark 1338",
            "-p tcp -m connmark --mark 1337 -j CONNMARK --restore-mark",
        ]
    );
    assert_eq!(
        chain(&rules, Table::Mangle, Chain::Inbound),
        [
            "-p tcp -m mark --mark 1337 -j RETURN",
            "-s 127.0.0.6/32 -i lo -p tcp -j RETURN",
            "-i lo -p tcp -m mark ! --mark 1338 -j RETURN",
            "-p tcp --dport 15020 -j RETURN",
            "-p tcp --dport 15090 -j RETURN",
            "-p tcp -m conntrack --ctstate RELATED,ESTABLISHED -j ISTIO_DIVERT",
            "-p tcp -j ISTIO_TPROXY",
        ]
    );
}

#[test]
fn dns_goes_by_tcp_then_udp_and_the_zones_of_the_proxy_come_first() {
    let rules = rules(EVERYTHING, Family::V6);
    assert_eq!(
        chain(&rules, Table::Nat, Chain::OutputDns),
        [
            "-d fd00::a/128 -p tcp --dport 53 -j REDIRECT --to-ports 15053",
            "-d fd00::a/128 -p udp --dport 53 -j REDIRECT --to-ports 15053",
        ]
    );
    assert_eq!(
        chain(&rules, Table::Raw, Chain::OutputDns),
        [
            "-p udp --dport 53 -m owner --uid-owner 1337 -j CT --zone 1",
            "-p udp --sport 15053 -m owner --uid-owner 1337 -j CT --zone 2",
            "-p udp --dport 53 -m owner --uid-owner 1500 -j CT --zone 1",
            "-p udp --sport 15053 -m owner --uid-owner 1500 -j CT --zone 2",
            "-p udp --dport 53 -m owner --gid-owner 2000 -j CT --zone 1",
            "-p udp --sport 15053 -m owner --gid-owner 2000 -j CT --zone 2",
            "-d fd00::a/128 -p udp --dport 53 -j CT --zone 2",
        ]
    );
    assert_eq!(
        chain(&rules, Table::Raw, Chain::Inbound),
        ["-s fd00::a/128 -p udp --sport 53 -j CT --zone 1"]
    );
    assert_eq!(hook(&rules, Table::Raw, Hook::Prerouting), ["-j ISTIO_INBOUND"]);
    assert_eq!(hook(&rules, Table::Raw, Hook::Output), ["-j ISTIO_OUTPUT_DNS"]);
}

/// What the kernel would show if it held exactly these rules.
fn live(rules: &FamilyRules) -> Observed {
    let line = |rule: &Rule| Line {
        words: None,
        statement: Some(rule.statement.clone()),
        jump: rule.statement.target.jump(),
        handle: None,
        ours: None,
        of_nftables: false,
    };
    let mut observed = Observed::empty(rules.family);
    observed.record = Some(Record::of([rules], &[], false, Variant::Nft));
    for (table, rules) in &rules.tables {
        let live = ObservedTable {
            chains: rules
                .chains
                .iter()
                .map(|(chain, rules)| (*chain, rules.iter().map(line).collect()))
                .collect(),
            hooks: rules
                .hooks
                .iter()
                .map(|(hook, rules)| (*hook, rules.iter().map(line).collect()))
                .collect(),
            ..ObservedTable::default()
        };
        observed.tables.insert(*table, live);
    }
    observed
}

/// A state for each pair of adjacent rules, with that pair swapped.
fn with_neighbours_swapped(right: &Observed) -> Vec<(String, Observed)> {
    let mut all = Vec::new();
    for (table, rules) in &right.tables {
        let chains = rules.chains.iter().map(|(chain, lines)| (Ok(*chain), lines.len()));
        let hooks = rules.hooks.iter().map(|(hook, lines)| (Err(*hook), lines.len()));
        for (place, length) in chains.chain(hooks) {
            for at in 1..length {
                let mut wrong = right.clone();
                let table = wrong.tables.get_mut(table).expect("it was cloned");
                let lines = match place {
                    Ok(chain) => table.chains.get_mut(&chain),
                    Err(hook) => table.hooks.get_mut(&hook),
                };
                let lines = lines.expect("it was cloned");
                lines.swap(at - 1, at);
                all.push((
                    format!("{place:?}: {} moved before {}", lines[at - 1].text(), lines[at].text()),
                    wrong,
                ));
            }
        }
    }
    all
}

#[test]
fn moved_rule_is_restored() {
    let wanted = rules(EVERYTHING, Family::V4);
    let right = live(&wanted);
    assert!(Change::between(&wanted, &right, false).is_empty());
    let wrong = with_neighbours_swapped(&right);
    assert!(wrong.len() > 40, "{} swaps", wrong.len());
    for (what, observed) in wrong {
        assert!(!Change::between(&wanted, &observed, false).is_empty(), "{what}");
    }
}
