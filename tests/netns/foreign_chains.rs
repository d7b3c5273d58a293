//! Base chains of other programs' nftables tables, before and after our rules.

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Fixture, Pod, for_each_backend_and_native, for_these_fixtures};

for_these_fixtures!(only_nft: IptablesNft Dual; [base_chain_unlike_that_of_iptables_is_named_with_the_fix]);
for_each_backend_and_native!(
    chains_that_decide_first_are_named_and_decide,
    chains_that_decide_nothing_before_ours_are_not_named,
    objects_and_maps_of_values_take_no_packet,
    chains_with_names_of_ours_in_another_table_are_followed,
    only_chains_of_captured_families_and_hooks_are_named,
    tproxy_rules_are_preceded_by_other_chains,
);

const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];
const NAMED: &str = "a foreign base chain";

fn nft(pod: &Pod, commands: &str) {
    pod.namespace.run(|| tool("nft", &["-f", "-"], commands));
}

/// In the same place as our rules.
const AGENT: &str = "table inet agent {
    chain out { type nat hook output priority -100; tcp dport 9999 redirect to :8081; }
}";

/// The warnings of a run about base chains.
fn named(pod: &Pod, args: &[&str]) -> Vec<String> {
    let output = pod.apply(args).output();
    output.lines().filter(|line| line.contains(NAMED)).map(str::to_owned).collect()
}

fn chains_that_decide_first_are_named_and_decide(fixture: Fixture) {
    let pod = fixture.pod();
    nft(
        &pod,
        "table inet firewall {
            chain early { type filter hook prerouting priority -300; tcp dport 22 drop; }
            chain untracked { tcp dport 4789 notrack; }
            chain out { type filter hook output priority -301; jump untracked; ip protocol vmap { icmp : drop }; }
            chain dropped { tcp dport 4443 reject; }
            chain mapped {
                type filter hook output priority -302;
                tcp dport vmap { 80 : accept, 443 : drop, 4443 : goto dropped };
            }
        }
        ",
    );
    nft(&pod, AGENT);
    let dry = [&EVERYTHING[..], &["--dry-run"]].concat();
    let verify = [&EVERYTHING[..], &["--verify"]].concat();
    let validate = [&EVERYTHING[..], &["--skip-rule-apply", "--run-validation"]].concat();
    for args in [&dry[..], &EVERYTHING, &EVERYTHING, &verify, &dry, &validate] {
        let lines = named(&pod, args);
        let expected = [
            "may decide before ours: inet agent out (output, priority -100, the same as ours: the chain that was created last is first): redirect:",
            "decides before ours: inet firewall early (prerouting, priority -300): drop:",
            // What its map drops is not captured.
            "decides before ours: inet firewall out (output, priority -301): notrack:",
            "decides before ours: inet firewall mapped (output, priority -302): drop, reject: packets that it takes",
        ];
        assert_eq!(lines.len(), expected.len(), "{args:?}: {lines:#?}");
        for part in expected {
            assert!(lines.iter().any(|line| line.contains(part)), "{args:?}: {part}: {lines:#?}");
        }
    }
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8081]), pod.outside_listens(&[80, 9999]));
    for family in fixture.families() {
        let marker = at(family.pod(), 8080);
        assert!(pod.outside().gets_no_reply(at(family.pod(), 22), marker), "{family:?}");
        for port in [80, 9999] {
            let target = at(family.service(), port);
            pod.app().call(target).captured(15001, target);
        }
    }
    nft(&pod, &format!("delete table inet agent\n{AGENT}"));
    for family in fixture.families() {
        pod.app().call(at(family.service(), 9999)).served_by("app");
    }
}

/// `accept` ends one base chain only.
fn chains_that_decide_nothing_before_ours_are_not_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    nft(
        &pod,
        "table inet first {
            chain pre { type nat hook prerouting priority -101; accept; }
            chain out { type nat hook output priority -101; tcp dport 80 accept; }
            chain early { type filter hook output priority -310; meta mark set 0; counter; return; }
            chain counted { udp dport 5000 drop; tcp dport vmap { 80 : return }; }
            chain mapped {
                type nat hook output priority -102;
                tcp dport vmap { 80 : accept, 443 : accept, 8443 : jump counted };
            }
            chain types {
                type filter hook output priority -311;
                meta l4proto vmap { udp : drop, tcp : goto counted };
            }
        }
        table inet later {
            chain pre { type filter hook prerouting priority 0; tcp dport 22 drop; }
            chain out { type nat hook output priority 0; tcp dport 80 redirect to :1; }
            chain input { type filter hook input priority -300; tcp dport 22 drop; }
            chain post { type nat hook postrouting priority 100; masquerade; }
        }
        table inet asleep {
            flags dormant;
            chain out { type filter hook output priority -300; drop; }
        }",
    );
    for args in [&EVERYTHING[..], &[&EVERYTHING[..], &["--dry-run"]].concat()] {
        assert_eq!(named(&pod, args), [""; 0]);
    }
    for family in fixture.families() {
        let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
        pod.outside().call(inbound).captured(15006, inbound);
        pod.app().call(outbound).captured(15001, outbound);
    }
}

/// A counter, a limit or a helper by its name, and a mark that a map gives, end no packet's way.
fn objects_and_maps_of_values_take_no_packet(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    nft(
        &pod,
        "table inet agent {
            counter seen { packets 0 bytes 0; }
            limit most { rate 1000/second; }
            chain out {
                type filter hook output priority -200;
                counter name seen;
                limit name most;
                meta priority set tcp dport map { 80 : 1:2, 443 : 1:3 };
            }
        }",
    );
    for args in [&EVERYTHING[..], &[&EVERYTHING[..], &["--dry-run"]].concat()] {
        assert_eq!(named(&pod, args), [""; 0]);
    }
    assert_eq!(pod.istio_iptables(&[&["check"], &EVERYTHING[..]].concat()).run().code(), 0);
    for family in fixture.families() {
        let outbound = at(family.service(), 80);
        pod.app().call(outbound).captured(15001, outbound);
    }
}

/// Chains of ours have their names in tables that iptables writes to.
fn chains_with_names_of_ours_in_another_table_are_followed(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8081]), pod.outside_listens(&[80]));
    nft(
        &pod,
        "table inet agent {
            chain ISTIO_REDIRECT { meta l4proto tcp redirect to :8081; }
            chain out { type nat hook output priority -110; jump ISTIO_REDIRECT; }
        }",
    );
    let lines = named(&pod, &EVERYTHING);
    assert!(
        lines.len() == 1 && lines[0].contains("inet agent out (output, priority -110): redirect"),
        "{lines:#?}"
    );
    for family in fixture.families() {
        pod.app().call(at(family.service(), 80)).served_by("app");
    }
}

fn only_chains_of_captured_families_and_hooks_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    nft(
        &pod,
        "table ip one { chain pre { type filter hook prerouting priority -150; tcp dport 22 drop; }; }
         table ip6 two { chain pre { type filter hook prerouting priority -150; tcp dport 22 drop; }; }",
    );
    let both = named(&pod, &EVERYTHING);
    assert_eq!(both.len(), 2, "{both:#?}");
    let args = [&EVERYTHING[..], &["--ip-family", "ipv4", "--backend", fixture.backend.flag(), "--dry-run"]];
    let output = pod.plain_istio_iptables(&args.concat()).run().succeeded().output();
    assert!(output.contains("ip one pre") && !output.contains("ip6 two pre"), "{output}");
    pod.apply(&["cleanup"]);
    assert_eq!(named(&pod, &["cleanup"]), [""; 0]);
}

fn tproxy_rules_are_preceded_by_other_chains(fixture: Fixture) {
    let pod = fixture.pod();
    nft(
        &pod,
        "table inet one {
            chain pre { type nat hook prerouting priority -100; tcp dport 22 redirect to :23; }
            chain early { type filter hook prerouting priority -151; tcp dport 22 reject with tcp reset; }
        }",
    );
    let lines = named(&pod, &[&EVERYTHING[..], &["-m", "TPROXY"]].concat());
    let early: Vec<_> = lines.iter().filter(|line| line.contains("inet one early")).collect();
    assert!(early.len() == 1 && early[0].contains("reject"), "{lines:#?}");
}

fn base_chain_unlike_that_of_iptables_is_named_with_the_fix(fixture: Fixture) {
    for (family, chain, made) in [
        ("ip", "nat PREROUTING", "{ type nat hook prerouting priority -50; }"),
        ("ip", "nat OUTPUT", "{ type filter hook output priority -100; }"),
        ("ip6", "nat PREROUTING", ""),
    ] {
        let pod = fixture.pod();
        nft(&pod, &format!("add table {family} nat\nadd chain {family} {chain} {made}"));
        let hint = format!("`nft list chain {family} {chain}`");
        let fix = format!("`nft delete chain {family} {chain}`");
        let run = || pod.istio_iptables(&EVERYTHING).run();
        let ruleset = || pod.namespace.run(|| tool("nft", &["list", "ruleset"], ""));
        let before = ruleset();
        run().ended_with(70).output_contains(&hint).output_contains(&fix);
        assert_eq!(ruleset(), before, "nothing is written");
        // Both ways out work.
        pod.plain_istio_iptables(&[&EVERYTHING[..], &["--dual-stack", "--backend", "nftables"]].concat())
            .run()
            .succeeded();
        nft(&pod, &format!("delete chain {family} {chain}"));
        run().succeeded();
    }
}
