//! Warnings about foreign rules that captured packets meet on their way to the proxy, and about those in
//! nftables tables.

use netlab::socket::{self, Binding};

use crate::foreign_preserved::{EVERYTHING, FAMILIES};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    what_keeps_captured_packets_from_the_proxy_is_named,
    what_meets_no_captured_packet_is_not_named,
);

/// The warnings about foreign rules, the same in a dry run, in a first run and in the next one.
fn named(pod: &Pod, args: &[&str]) -> Vec<String> {
    let dry = [args, &["--dry-run"]].concat();
    let [first, second, third] = [&dry[..], args, args].map(|args| {
        let output = pod.apply(args).output();
        let lines = output.lines().filter(|line| line.contains("foreign"));
        let warnings: Vec<String> = lines
            .filter_map(|line| line.find("a foreign").and_then(|at| line.get(at..)).map(str::to_owned))
            .collect();
        warnings
    });
    assert_eq!(first, second, "{args:?}");
    assert_eq!(second, third, "{args:?}");
    third
}

fn both(pod: &Pod, command: &str) {
    for (program, line) in ["iptables-nft", "ip6tables-nft"]
        .iter()
        .flat_map(|program| command.lines().map(move |line| (program, line)))
    {
        pod.namespace.run(|| tool(program, &line.split(' ').collect::<Vec<_>>(), ""));
    }
}

fn nft(pod: &Pod, commands: &str) {
    pod.namespace.run(|| tool("nft", &["-f", "-"], commands));
}

/// Commands, whether DNS is captured, a word of the warning, and whether a client's packets are taken, or the
/// app's.
const TAKING: [(&str, bool, &str, bool); 12] = [
    ("-t filter -A INPUT -p tcp --dport 15006 -j DROP", false, "drop", true),
    ("-t filter -P INPUT DROP", false, "drop", true),
    ("-t mangle -A INPUT -p tcp -j DROP", false, "drop", true),
    ("-t mangle -P INPUT DROP", false, "drop", true),
    // Packets reach the policy, not the rule before it.
    (
        "-t filter -P INPUT DROP\n-t filter -A INPUT -p tcp -j RETURN\n-t filter -A INPUT -j ACCEPT",
        false,
        "drop",
        true,
    ),
    (
        "-t mangle -N X\n-t mangle -A X -p udp -j ACCEPT\n-t mangle -A INPUT -g X\n-t mangle -A INPUT -j ACCEPT\n\
             -t mangle -P INPUT DROP",
        false,
        "drop",
        true,
    ),
    (
        "-t mangle -N X\n-t mangle -A X -p tcp -j RETURN\n-t mangle -A X -j ACCEPT\n-t mangle -A INPUT -g X\n\
         -t mangle -A INPUT -j ACCEPT\n-t mangle -P INPUT DROP",
        false,
        "drop",
        true,
    ),
    (
        "table inet agent { chain x { meta l4proto udp accept; }
                chain in { type filter hook input priority 0; policy drop; goto x; accept; }; }",
        false,
        "drop",
        true,
    ),
    ("-t filter -A OUTPUT -p tcp --dport 15001 -j DROP", false, "drop", false),
    (
        "table inet agent { chain in { type filter hook input priority 0; tcp dport 15006 drop; }; }",
        false,
        "drop",
        true,
    ),
    (
        "table inet agent { chain out { type filter hook output priority -300; tcp dport 80 ct zone set 7; }; }",
        false,
        "ct zone",
        false,
    ),
    (
        "table inet agent { chain out { type filter hook output priority -301; udp dport 53 notrack; }; }",
        true,
        "notrack",
        false,
    ),
];

fn what_keeps_captured_packets_from_the_proxy_is_named(fixture: Fixture) {
    let dns = [&EVERYTHING[..], &["--redirect-dns", "--capture-all-dns"]].concat();
    for (how, has_dns, shown, inbound) in TAKING {
        let args = if has_dns { &dns[..] } else { &EVERYTHING };
        let pod = fixture.pod();
        let is_table = how.starts_with("table");
        let set_up = if is_table { nft } else { both };
        set_up(&pod, how);
        let lines = named(&pod, args);
        // In nftables a zone replaces it.
        let is_without_effect = shown == "notrack" && fixture.backend == Backend::Native;
        let expected = if is_without_effect {
            0
        } else if is_table {
            1
        } else {
            2
        };
        assert_eq!(lines.len(), expected, "{how}: {lines:#?}");
        assert!(lines.iter().all(|line| line.to_lowercase().contains(shown)), "{how}: {lines:#?}");
        if shown == "notrack" {
            continue;
        }
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
        for family in FAMILIES {
            let (user, to) = if inbound {
                (pod.outside(), at(family.pod(), 8080))
            } else {
                (pod.app(), at(family.service(), 80))
            };
            let attempt =
                user.run(|| socket::start_connect(to, Binding::default()).expect("start to connect"));
            // A later packet has come through: the proxy's own, where nothing drops its replies.
            if shown == "drop" && !how.contains("INPUT") && !how.contains("policy drop") {
                pod.proxy().call(at(family.service(), 80)).served_by("outside");
            }
            assert!(!socket::is_ready(&attempt), "{how} decides nothing for {family:?}");
        }
    }
}

fn what_meets_no_captured_packet_is_not_named(fixture: Fixture) {
    let pod = fixture.pod();
    for command in [
        // On lo it meets what the proxy passes on to the app.
        "-t filter -A INPUT -i eth0 -p tcp --dport 22 -j DROP",
        "-t filter -A INPUT -p udp -j DROP",
        "-t filter -A INPUT ! -i lo -s 10.99.0.1 -j ACCEPT",
        "-t filter -A INPUT -m conntrack --ctstate INVALID -j DROP",
        "-t filter -A FORWARD -j DROP",
        "-t filter -P FORWARD DROP",
    ] {
        if command.contains("10.99") {
            pod.namespace.run(|| tool("iptables-nft", &command.split(' ').collect::<Vec<_>>(), ""));
        } else {
            both(&pod, command);
        }
    }
    nft(
        &pod,
        "table inet agent {
            chain every { accept; }
            chain early { type filter hook prerouting priority -300; meta l4proto udp drop; udp dport 4789 drop; }
            chain out { type filter hook output priority 0; ip daddr 169.254.169.254 drop; ct state invalid drop; }
            chain in {
                type filter hook input priority 0; policy drop;
                ct state vmap { established : accept, invalid : drop };
                udp dport 4789 return;
                goto every;
                accept;
            }
        }",
    );
    let none: [&str; 0] = [];
    assert_eq!(named(&pod, &EVERYTHING), none);
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    for family in FAMILIES {
        let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
        pod.outside().call(inbound).captured(15006, inbound);
        pod.app().call(outbound).captured(15001, outbound);
    }
}
