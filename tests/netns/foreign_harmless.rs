//! Foreign rules that decide about no captured connection are not named, however they are written; their like
//! that do are.

use crate::foreign_preserved::{EVERYTHING, insert};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Fixture, Pod, for_each_backend, for_these_fixtures};

for_each_backend!(
    rules_that_change_no_captured_connection_are_not_named,
    rules_that_do_the_same_are_both_named,
    a_foreign_zone_is_a_difference,
    what_may_meet_packets_of_the_proxy_or_of_clients_is_named,
    chains_that_change_no_captured_connection_are_not_named,
    chains_that_let_all_captured_packets_pass_are_not_named,
);
for_these_fixtures!(
    native: Native Dual;
    [chains_that_change_no_captured_connection_are_not_named, chains_that_let_all_captured_packets_pass_are_not_named]
);

/// Ports that are excluded inbound and outbound, and a range that is.
const OPTIONS: [&str; 6] = ["-o", "9999", "-d", "22,9999", "-x", "203.0.113.0/24,2001:db8:9::/48"];

/// What a run and `check` say about foreign rules and chains.
fn named(pod: &Pod, options: &[&str]) -> Vec<String> {
    // A note that packets are dropped, which are not captured, is true.
    let about = |line: &&str| {
        !line.starts_with("note:") && (line.contains("a foreign ") || line.contains("foreign-"))
    };
    let run = pod.apply(options).output();
    let check = pod.istio_iptables(&[&["check"], options].concat()).run();
    let named: Vec<String> =
        run.lines().chain(check.output().lines()).filter(about).map(str::to_owned).collect();
    assert_eq!(check.code() == 0, named.is_empty(), "check ends with {}: {named:#?}", check.code());
    named
}

fn nft(pod: &Pod, commands: &str) {
    pod.namespace.run(|| tool("nft", &["-f", "-"], commands));
}

fn rules_that_change_no_captured_connection_are_not_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let options = [&EVERYTHING[..], &OPTIONS].concat();
    for (harmless, harmful) in [
        // The table nat sees the first packet of a connection only.
        (
            "-t nat -I OUTPUT -p tcp -m conntrack --ctstate ESTABLISHED -j ACCEPT",
            "-t nat -I OUTPUT -p tcp -m conntrack --ctstate NEW -j ACCEPT",
        ),
        (
            "-t nat -I OUTPUT -p tcp -m tcp --dport 9999 -j ACCEPT",
            "-t nat -I OUTPUT -p tcp -m tcp --dport 9998 -j ACCEPT",
        ),
        (
            "-t nat -I PREROUTING ! -i lo -p tcp -m tcp --dport 22 -j REDIRECT --to-ports 2222",
            "-t nat -I PREROUTING ! -i lo -p tcp -m tcp --dport 23 -j REDIRECT --to-ports 2222",
        ),
        (
            "-t nat -I OUTPUT -p tcp -m owner --uid-owner 1337 ! -o lo -j ACCEPT",
            "-t nat -I OUTPUT -p tcp -m owner --uid-owner 1338 ! -o lo -j ACCEPT",
        ),
        // No interface has any name. iptables-nft writes one that no interface has.
        ("-t nat -I PREROUTING ! -i + -p tcp -j ACCEPT", "-t nat -I PREROUTING -i + -p tcp -j ACCEPT"),
        ("-t nat -I OUTPUT ! -o + -p tcp -j ACCEPT", "-t nat -I OUTPUT -o + -p tcp -j ACCEPT"),
        ("-t raw -I OUTPUT ! -o + -j DROP", "-t raw -I OUTPUT -o + -j DROP"),
        ("-t mangle -I PREROUTING ! -i + -j DROP", "-t mangle -I PREROUTING -i + -j DROP"),
        ("-t mangle -I POSTROUTING ! -o + -j DROP", "-t mangle -I POSTROUTING -o + -j DROP"),
        ("-t filter -I INPUT ! -i + -j DROP", "-t filter -I INPUT -i + -j DROP"),
        // An endpoint of the proxy may have an excluded port, and a client any.
        (
            "-t nat -I OUTPUT -p tcp -m owner ! --uid-owner 1337 -m owner ! --gid-owner 1337 -m tcp --dport 9999 -j REDIRECT --to-ports 9",
            "-t mangle -A OUTPUT -p tcp -m tcp --dport 9999 -j DROP",
        ),
    ] {
        insert(&pod, harmless);
        assert_eq!(named(&pod, &options), [""; 0], "{harmless}");
        insert(&pod, harmful);
        assert!(!named(&pod, &options).is_empty(), "{harmful}");
        for rule in [harmless, harmful] {
            insert(&pod, &rule.replace(" -I ", " -D ").replace(" -A ", " -D "));
        }
    }
    // Unreachable behind a RETURN for all packets.
    for rule in [
        "-t nat -N AGENT",
        "-t nat -A AGENT -j RETURN",
        "-t nat -A AGENT -j ACCEPT",
        "-t nat -I OUTPUT -j AGENT",
    ] {
        insert(&pod, rule);
    }
    assert_eq!(named(&pod, &options), [""; 0]);
    for family in fixture.families() {
        let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
        pod.outside().call(inbound).captured(15006, inbound);
        pod.app().call(outbound).captured(15001, outbound);
    }
    insert(&pod, "-t nat -D AGENT -j RETURN");
    assert!(!named(&pod, &options).is_empty());
}

fn chains_that_change_no_captured_connection_are_not_named(fixture: Fixture) {
    let pod = fixture.pod();
    let options = [&EVERYTHING[..], &OPTIONS].concat();
    for (hook, harmless, harmful) in [
        ("output", "tcp dport 9998 accept", "tcp dport 9999 drop"),
        ("output", "oifname \"INVAL/D\" drop", "oifname != lo drop"),
        ("output", "tcp dport 9998 counter", "tcp dport { 9998, 9999 } notrack"),
        ("prerouting", "iifname != lo accept", "iifname != lo tcp dport 22 reject with tcp reset"),
    ] {
        for (rule, is_named) in [(harmless, false), (harmful, true)] {
            nft(
                &pod,
                &format!(
                    "table inet agent {{ chain it {{ type filter hook {hook} priority -310; {rule}; }}; }}"
                ),
            );
            assert_eq!(!named(&pod, &options).is_empty(), is_named, "{rule}");
            nft(&pod, "delete table inet agent");
        }
    }
}

const INPUT: &str = "type filter hook input priority 0; policy drop;";

/// With TPROXY or without it, a base chain with rules that let all captured packets pass, and with others.
const LETTING_PASS: [(bool, &str, &str, &str); 11] = [
    (
        false,
        "type filter hook output priority -310;",
        "tcp dport vmap { 9998 : continue, 9999 : accept }",
        "tcp dport vmap { 9998 : continue, 9999 : drop }",
    ),
    (
        false,
        INPUT,
        "ct state vmap { new : accept, established : accept, related : accept, invalid : continue }",
        "ct state vmap { new : continue, established : accept, related : accept, invalid : continue }",
    ),
    (
        false,
        INPUT,
        "iifname vmap { lo : accept, eth0 : accept }",
        "iifname vmap { lo : continue, eth0 : accept }",
    ),
    (false, INPUT, "iifname != lo accept; iifname lo accept", "iifname != lo accept"),
    (
        false,
        INPUT,
        "meta l4proto vmap { tcp : accept, udp : accept }",
        "meta l4proto vmap { tcp : continue, udp : accept }",
    ),
    (
        false,
        INPUT,
        "meta l4proto . th dport vmap { tcp . 0-65535 : accept, udp . 0-65535 : accept }",
        "meta l4proto . th dport vmap { tcp . 0-15000 : accept, udp . 0-65535 : accept }",
    ),
    (
        false,
        INPUT,
        "tcp sport 0-1023 accept; tcp sport 1024-65535 accept; udp sport != 53 accept; udp sport 53 accept",
        "tcp sport 1024-65535 accept; udp sport != 53 accept; udp sport 53 accept",
    ),
    // No rule sets a mark.
    (
        false,
        "type filter hook input priority -149;",
        "ip daddr 127.0.0.1 meta mark & 0xff vmap { 0x39 : drop, 0 : continue }",
        "ip daddr 127.0.0.1 meta mark & 0xff vmap { 0x39 : continue, 0 : drop }",
    ),
    (
        false,
        "type filter hook input priority -149;",
        "ip daddr 127.0.0.1 meta mark 7 drop",
        "meta mark set 7; ip daddr 127.0.0.1 meta mark 7 drop",
    ),
    (
        true,
        "type filter hook prerouting priority -149;",
        "iifname != lo meta mark != 0x539 tcp dport 8080 drop",
        "iifname != lo meta mark 0x539 tcp dport 8080 drop",
    ),
    (
        true,
        INPUT,
        "meta mark 0x539 accept; iifname lo accept; ct state established accept",
        "meta mark 0x538 accept; iifname lo accept; ct state established accept",
    ),
];

/// A verdict map is read member by member, and rules that accept each a part accept all.
fn chains_that_let_all_captured_packets_pass_are_not_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let redirect = [&EVERYTHING[..], &OPTIONS].concat();
    let tproxy = ["-b", "*", "-i", "*", "-m", "TPROXY"];
    for (has_tproxy, base, harmless, harmful) in LETTING_PASS {
        let options = if has_tproxy { &tproxy } else { &redirect[..] };
        for (rules, is_named) in [(harmless, false), (harmful, true)] {
            let rules = format!("{base} meta l4proto icmpv6 accept; {rules}");
            nft(&pod, &format!("table inet agent {{ chain it {{ {rules}; }}; }}"));
            let named = named(&pod, options);
            assert_eq!(!named.is_empty(), is_named, "{rules}: {named:#?}");
            for family in fixture.families().iter().filter(|_| !is_named) {
                let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
                pod.outside().call(inbound).captured(15006, inbound);
                pod.app().call(outbound).captured(15001, outbound);
            }
            nft(&pod, "delete table inet agent");
        }
    }
}

/// Without one of them the other one does the same.
fn rules_that_do_the_same_are_both_named(fixture: Fixture) {
    let pod = fixture.pod();
    for table in ["raw", "mangle"] {
        insert(&pod, &format!("-t {table} -A OUTPUT -p tcp -m tcp --dport 9998 -j DROP"));
    }
    let output = pod.apply(&EVERYTHING).output();
    for table in ["raw", "mangle"] {
        let named = format!("{table} `-A OUTPUT -p tcp -m tcp --dport 9998 -j DROP`");
        assert_eq!(output.matches(&named).count(), 2, "{named}: {output}");
    }
}

/// A redirected connection in another zone reaches the proxy without its destination.
fn a_foreign_zone_is_a_difference(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let diff = || pod.istio_iptables(&[&["diff", "live", "options"], &EVERYTHING[..]].concat()).run();
    drop(diff().ended_with(0));
    insert(&pod, "-t raw -A OUTPUT -p tcp -j CT --zone 7");
    drop(diff().ended_with(1));
}

/// The proxy's endpoints have other addresses and ports than services, and clients ports of any number; a set
/// that rules fill is empty now.
fn what_may_meet_packets_of_the_proxy_or_of_clients_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let options = ["-b", "8080", "-i", "10.96.0.0/12", "--redirect-dns", "--capture-all-dns"];
    for (hook, rule) in [
        ("output", "ip daddr 10.199.1.1 tcp dport 9080 drop"),
        ("prerouting", "udp sport 53 udp dport 1024-32767 drop"),
        ("prerouting", "tcp sport 1024-32767 tcp dport 8080 drop"),
        ("prerouting", "ip saddr @banned drop"),
    ] {
        nft(
            &pod,
            &format!(
                "table inet agent {{
                    set banned {{ type ipv4_addr; flags dynamic; size 100; }};
                    chain it {{ type filter hook {hook} priority -310; {rule}; }};
                }}"
            ),
        );
        assert!(!named(&pod, &options).is_empty(), "{rule}");
        nft(&pod, "delete table inet agent");
    }
}
