//! Firewalls of VPN clients that drop what they do not list: they drop captured packets until they accept the ports of the proxy, and are
//! named until then.

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Outcome, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    policies_are_named_until_the_ports_of_the_proxy_are_accepted,
    last_rules_are_named_until_the_ports_of_the_proxy_are_accepted,
    policies_are_named_while_some_captured_packets_are_not_accepted,
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
