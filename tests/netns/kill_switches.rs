//! Firewalls of VPN clients that drop what they do not list: they drop captured packets until they accept the
//! ports of the proxy, and are named until then.

use std::time::Duration;

use netlab::socket::{self, Binding};

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Outcome, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    policies_are_named_until_the_ports_of_the_proxy_are_accepted,
    last_rules_are_named_until_the_ports_of_the_proxy_are_accepted,
    policies_are_named_while_some_captured_packets_are_not_accepted,
    accepted_by_sets_and_in_chains_of_its_own_nothing_is_named,
    policies_before_ours_are_named_by_what_they_drop,
    policies_are_not_named_whatever_accepts_the_captured_packets,
);

const OPTIONS: [&str; 8] = ["-i", "*", "-b", "*", "-d", "7000", "-o", "9000"];
const TOOLS: [&str; 3] = ["legacy", "nft", "table"];

/// Rules of a variant of iptables for both families, or of nftables.
fn add(pod: &Pod, how: &str, lines: &str) {
    if how == "table" {
        return drop(pod.namespace.run(|| tool("nft", &["-f", "-"], lines)));
    }
    for line in lines.lines() {
        for program in ["iptables", "ip6tables"] {
            let name = format!("{program}-{how}");
            pod.namespace.run(|| tool(&name, &line.split_whitespace().collect::<Vec<_>>(), ""));
        }
    }
}

/// The firewall lets out replies, the proxy, and what goes to port 9000, which is not captured.
fn kill_switch(how: &str, last: &str) -> String {
    if how == "table" {
        let (policy, last) = if last.starts_with("-P") { ("drop", "") } else { ("accept", "drop") };
        return format!(
            "table inet vpn {{ chain out {{ type filter hook output priority 10; policy {policy}; jump own; oifname lo accept; \
             ct state established,related accept; meta l4proto ipv6-icmp accept; tcp dport 9000 accept; meta skgid 1337 accept; {last}; }}; chain own {{ }}; }}"
        );
    }
    format!(
        "-A OUTPUT -o lo -j ACCEPT
         -A OUTPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
         -A OUTPUT -p ipv6-icmp -j ACCEPT
         -A OUTPUT -p tcp --dport 9000 -j ACCEPT
         -A OUTPUT -m owner --gid-owner 1337 -j ACCEPT
         {last}"
    )
}

/// Rules that accept a port of the proxy in front of the others.
fn accept(how: &str, protocol: &str, ports: &[u16]) -> String {
    let rule = |port: &u16| match how {
        "table" => format!("insert rule inet vpn out {protocol} dport {port} accept"),
        _ => format!("-I OUTPUT -p {protocol} --dport {port} -j ACCEPT"),
    };
    ports.iter().map(rule).collect::<Vec<_>>().join("\n")
}

/// The warnings of a run, without those of later chains for the same rule.
fn named(pod: &Pod, options: &[&str]) -> Vec<String> {
    let run = pod.apply(options).output();
    let is_about_it = |line: &&str| {
        line.contains("a foreign chain policy drops packets that our rules capture")
            || line.contains("packets that our rules capture") && line.to_lowercase().contains("drop")
    };
    run.lines().filter(is_about_it).map(str::to_owned).collect()
}

fn is_lost(pod: &Pod, family: Family) -> bool {
    let (captured, marker) = (at(family.service(), 80), at(family.service(), 9000));
    pod.app().call(marker).served_by("outside");
    let is_lost = pod.app().gets_no_reply(captured, marker);
    if !is_lost {
        pod.app().call(captured).captured(15001, captured);
    }
    is_lost
}

fn is_named_until_accepted(fixture: Fixture, last: &str) {
    let dns = [&OPTIONS[..], &["--redirect-dns", "--capture-all-dns"]].concat();
    for how in TOOLS {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 9000]));
        add(&pod, how, &kill_switch(how, last));
        let lines = named(&pod, &OPTIONS);
        assert_eq!(lines.len(), if how == "table" { 1 } else { 2 }, "{how}: {lines:#?}");
        assert!(lines.iter().all(|line| line.contains("the ports 15001, 15006 ")), "{how}: {lines:#?}");
        for &family in fixture.families() {
            assert!(is_lost(&pod, family), "{how} {family:?}");
        }
        add(&pod, how, &accept(how, "tcp", &[15001, 15006]));
        assert_eq!(named(&pod, &OPTIONS), [""; 0], "{how}");
        let check = pod.istio_iptables(&[&["check"], &OPTIONS[..]].concat()).run();
        assert_eq!(check.code(), 0, "{how}: {}", check.output());
        for &family in fixture.families() {
            assert!(!is_lost(&pod, family), "{how} {family:?}");
        }
        let lines = named(&pod, &dns);
        assert!(!lines.is_empty() && lines.iter().all(|line| line.contains("15053")), "{how}: {lines:#?}");
        add(&pod, how, &accept(how, "tcp", &[15053]));
        assert!(!named(&pod, &dns).is_empty(), "{how}: UDP is not accepted");
        add(&pod, how, &accept(how, "udp", &[53, 15053]));
        assert_eq!(named(&pod, &dns), [""; 0], "{how}");
        for family in fixture.families() {
            let answer = pod.app().ask(at(family.name_server(), 53));
            assert!(matches!(answer, Outcome::Responded(_)), "{how} {family:?}: {answer:?}");
        }
    }
}

fn policies_are_named_until_the_ports_of_the_proxy_are_accepted(fixture: Fixture) {
    is_named_until_accepted(fixture, "-P OUTPUT DROP");
}

fn last_rules_are_named_until_the_ports_of_the_proxy_are_accepted(fixture: Fixture) {
    is_named_until_accepted(fixture, "-A OUTPUT -j DROP");
}

/// An accept rule for some of the packets is none for the others.
fn policies_are_named_while_some_captured_packets_are_not_accepted(fixture: Fixture) {
    for (how, rule) in [
        ("legacy", "-I OUTPUT -p tcp -m multiport --dports 15001,15006 -m owner --uid-owner 0 -j ACCEPT"),
        ("legacy", "-I OUTPUT -p tcp --dport 15001 -m conntrack --ctstate ESTABLISHED -j ACCEPT"),
        ("legacy", "-I OUTPUT -p tcp --dport 15006 -j ACCEPT"),
        (
            "legacy",
            "-I OUTPUT -p tcp -m multiport --dports 15001,15006 -m limit --limit 1/hour --limit-burst 1 -j ACCEPT",
        ),
        ("legacy", "-I OUTPUT -o lo -p tcp -m multiport --dports 15001,15006 -j ACCEPT"),
        ("nft", "-I OUTPUT -p tcp --dport 15006 -j ACCEPT"),
        ("nft", "-I OUTPUT -o lo -p tcp -m multiport --dports 15001,15006 -j ACCEPT"),
        ("table", "insert rule inet vpn out tcp dport 15006 accept"),
        ("table", "insert rule inet vpn out meta skuid 0 tcp dport 15001-15006 accept"),
        ("table", "insert rule inet vpn out ip daddr { 10.0.0.0/8, 172.16.0.0/12 } accept"),
        ("table", "insert rule inet vpn out limit rate 1/hour burst 1 packets accept"),
    ] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 9000]));
        add(&pod, how, &kill_switch(how, "-P OUTPUT DROP"));
        add(&pod, how, rule);
        assert!(!named(&pod, &OPTIONS).is_empty(), "{rule}");
        if !rule.contains("limit") {
            for &family in fixture.families() {
                assert!(is_lost(&pod, family), "{rule} {family:?}");
            }
        }
    }
}

/// The ports are accepted in another form: by a set, in a chain that the shared one jumps to, before a rule
/// that drops other new connections there.
fn accepted_by_sets_and_in_chains_of_its_own_nothing_is_named(fixture: Fixture) {
    for (how, rules) in [
        ("table", "insert rule inet vpn out tcp dport { 15001, 15006 } accept"),
        (
            "table",
            "insert rule inet vpn out meta l4proto tcp tcp dport { 15001-15002, 15005-15010 } counter accept",
        ),
        (
            "table",
            "add set inet vpn ports { type inet_service; elements = { 15001, 15006 }; }
             insert rule inet vpn out tcp dport @ports accept",
        ),
        ("table", "add rule inet vpn own tcp dport { 15001, 15006 } accept"),
        (
            "table",
            "add chain inet vpn proxy
             add rule inet vpn proxy tcp dport 15001 accept
             add rule inet vpn proxy tcp dport 15006 accept
             add rule inet vpn own meta l4proto tcp jump proxy",
        ),
        (
            "table",
            "add rule inet vpn own tcp dport { 15001, 15006 } accept
             add rule inet vpn own ct state new tcp dport != 9000 reject",
        ),
        (
            "legacy",
            "-N PROXY
             -A PROXY -p tcp -m multiport --dports 15001,15006 -j ACCEPT
             -A PROXY -p tcp ! --dport 9000 -m conntrack --ctstate NEW -j DROP
             -I OUTPUT -j PROXY",
        ),
        (
            "nft",
            "-N PROXY
             -A PROXY -p tcp -m multiport --dports 15001,15006 -j ACCEPT
             -A PROXY -p tcp ! --dport 9000 -m conntrack --ctstate NEW -j DROP
             -I OUTPUT -j PROXY",
        ),
    ] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 9000]));
        add(&pod, how, &kill_switch(how, "-P OUTPUT DROP"));
        add(&pod, how, rules);
        assert_eq!(named(&pod, &OPTIONS), [""; 0], "{rules}");
        for &family in fixture.families() {
            assert!(!is_lost(&pod, family), "{rules} {family:?}");
        }
    }
    // The set has one of the ports only.
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 9000]));
    add(&pod, "table", &kill_switch("table", "-P OUTPUT DROP"));
    add(&pod, "table", "add rule inet vpn own tcp dport { 15006, 15021 } accept");
    assert!(!named(&pod, &OPTIONS).is_empty());
    for &family in fixture.families() {
        assert!(is_lost(&pod, family), "{family:?}");
    }
}

/// The rules accept redirected packets by what they have in common: their destination, the status of their
/// connection, the interface; or one rule the first packets, and another the later ones.
fn policies_are_not_named_whatever_accepts_the_captured_packets(fixture: Fixture) {
    const INPUT: [&str; 3] = [
        "-A INPUT -i lo -j ACCEPT
         -A INPUT -p tcp -m multiport --dports 9000,15006 -j ACCEPT",
        "-A INPUT -m conntrack --ctstate DNAT -j ACCEPT",
        "-A INPUT -i lo -j ACCEPT
         -A INPUT -p tcp --dport 15006 -m conntrack --ctstate NEW -j ACCEPT",
    ];
    const OUTPUT: [&str; 5] = [
        "-A OUTPUT -d {loopback} -j ACCEPT",
        "-A OUTPUT -m conntrack --ctstate DNAT -j ACCEPT",
        "-A OUTPUT -m addrtype --dst-type LOCAL -j ACCEPT",
        "-A OUTPUT -p tcp --dport 15001:15006 -m conntrack ! --ctstate INVALID -j ACCEPT",
        "-A OUTPUT -m conntrack --ctstate NEW -d {loopback} -j ACCEPT",
    ];
    let cases = INPUT.map(|rules| ("INPUT", rules)).into_iter().chain(OUTPUT.map(|rules| ("OUTPUT", rules)));
    for (chain, rules) in cases {
        for how in ["legacy", "nft"] {
            let pod = fixture.pod();
            let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 9000]), pod.app_listens(&[8080]));
            let owner =
                if chain == "OUTPUT" { "-A OUTPUT -m owner --gid-owner 1337 -j ACCEPT\n" } else { "" };
            let all = format!(
                "-A {chain} -m conntrack --ctstate INVALID -j DROP
                 -A {chain} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
                 -A {chain} -p ipv6-icmp -j ACCEPT
                 -A {chain} -p tcp --dport 9000 -j ACCEPT
                 {owner}{rules}
                 -P {chain} DROP"
            );
            for (program, loopback) in [("iptables", "127.0.0.0/8"), ("ip6tables", "::1")] {
                for line in all.replace("{loopback}", loopback).lines() {
                    let name = format!("{program}-{how}");
                    pod.namespace.run(|| tool(&name, &line.split_whitespace().collect::<Vec<_>>(), ""));
                }
            }
            assert_eq!(named(&pod, &OPTIONS), [""; 0], "{how}: {rules}");
            let check = pod.istio_iptables(&[&["check"], &OPTIONS[..]].concat()).run();
            assert_eq!(check.code(), 0, "{how}: {rules}: {}", check.output());
            for &family in fixture.families() {
                assert!(!is_lost(&pod, family), "{how} {family:?}: {rules}");
                let inbound = at(family.pod(), 8080);
                pod.outside().call(inbound).captured(15006, inbound);
            }
        }
    }
}

/// In raw and mangle, captured packets meet the policy before the rules that capture them.
fn policies_before_ours_are_named_by_what_they_drop(fixture: Fixture) {
    for table in ["raw", "mangle"] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
        let how = if fixture.backend == Backend::IptablesLegacy { "legacy" } else { "nft" };
        add(&pod, how, &format!("-t {table} -P OUTPUT DROP"));
        let policies = |pod: &Pod| -> Vec<String> {
            let run = pod.apply(&["-i", "*"]).output();
            run.lines()
                .filter(|line| line.contains("-P OUTPUT DROP") || line.contains("policy drop"))
                .map(str::to_owned)
                .collect()
        };
        let lines = policies(&pod);
        assert!(!lines.is_empty(), "{table}");
        for line in &lines {
            assert!(!line.contains("that our rules do not capture"), "{line}");
        }
        if fixture.backend != Backend::Native {
            assert!(lines.iter().all(|line| line.contains("drops packets before our rules")), "{lines:#?}");
        }
        let calls = |expected: bool| {
            for &family in fixture.families() {
                let to = at(family.service(), 80);
                if expected {
                    pod.app().call(to).captured(15001, to);
                    continue;
                }
                let connect = || socket::start_connect(to, Binding::default()).expect("start to connect");
                let attempt = pod.app().run(connect);
                std::thread::sleep(Duration::from_millis(300));
                assert!(!socket::is_ready(&attempt), "{table} {family:?}");
            }
        };
        calls(false);
        add(&pod, how, &format!("-t {table} -A OUTPUT -j ACCEPT"));
        assert_eq!(policies(&pod), [""; 0], "{table}");
        calls(true);
    }
}
