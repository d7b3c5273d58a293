//! Foreign rules that give packets or connections the mark of TPROXY.

use netlab::Outcome;

use crate::foreign_preserved::{EVERYTHING, FAMILIES, insert};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::user::Conversation;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native, for_these_fixtures, verdict};

for_each_backend_and_native!(
    rules_that_mark_connections_like_tproxy_are_named_and_end_them,
    rules_that_mark_connections_otherwise_are_not_named,
    marked_connections_of_clients_are_not_counted_as_those_of_the_proxy,
);

for_these_fixtures!(
    beside_legacy_nft: IptablesNft Dual, beside_legacy_native: Native Dual;
    [rules_of_iptables_legacy_that_mark_connections_are_named]
);

const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];

fn named(pod: &Pod, args: &[&str]) -> Vec<String> {
    let output = pod.apply(args).output();
    output
        .lines()
        .filter(|line| line.contains("a foreign rule gives ") && line.contains(" the mark "))
        .map(str::to_owned)
        .collect()
}

fn in_every_run_are_named(pod: &Pod, count: usize, shown: &str) {
    let validation = [&TPROXY[..], &["--skip-rule-apply", "--run-validation"]].concat();
    let dry = [&TPROXY[..], &["--dry-run"]].concat();
    let verify = [&TPROXY[..], &["--verify"]].concat();
    for args in [&dry[..], &TPROXY, &TPROXY, &verify, &validation] {
        let lines = named(pod, args);
        assert_eq!(lines.len(), count, "{shown}, {args:?}: {lines:#?}");
        assert!(lines.iter().all(|line| line.contains(shown) && line.contains("1337")), "{lines:#?}");
    }
}

fn nft(pod: &Pod, rules: &str) {
    pod.namespace.run(|| tool("nft", &["-f", "-"], rules));
}

/// Rules that mark connections like TPROXY end connections that ours would not even capture.
fn rules_that_mark_connections_like_tproxy_are_named_and_end_them(fixture: Fixture) {
    const CONNMARK: &str = "-j CONNMARK --set-xmark 0x539/0xffffffff";
    const MARK: &str = "-j MARK --set-xmark 0x539/0x";
    for (how, count, shown) in [
        ("-t mangle -A OUTPUT -p tcp --dport 80 -j CONNMARK --set-mark 1337", 2, CONNMARK),
        (
            "*mangle\n:AGENT -\n-A OUTPUT -j AGENT\n-A AGENT -p tcp --dport 80 -j CONNMARK --set-mark 1337\nCOMMIT\n",
            2,
            CONNMARK,
        ),
        (
            "table inet agent { chain out { type filter hook output priority -160; tcp dport 80 ct mark set 1337; }; }",
            1,
            "inet agent out",
        ),
        ("-t mangle -A OUTPUT -p tcp --dport 80 -j MARK --set-mark 1337", 2, MARK),
        ("-t mangle -A OUTPUT -p tcp --dport 80 -j MARK --or-mark 1337", 2, MARK),
        (
            "*mangle\n:AGENT -\n-A OUTPUT -j AGENT\n-A AGENT -p tcp --dport 80 -j MARK --set-mark 1337\nCOMMIT\n",
            2,
            MARK,
        ),
        (
            "table inet agent { chain out { type route hook output priority -160; tcp dport 80 meta mark set 1337; }; }",
            1,
            "inet agent out",
        ),
    ] {
        let pod = fixture.pod();
        let _servers = pod.outside_listens(&[80, 443]);
        if how.starts_with("table") {
            nft(&pod, how);
        } else if how.starts_with('*') {
            FAMILIES.into_iter().for_each(|family| pod.restore(family, how));
        } else {
            insert(&pod, how);
        }
        let gets_reply = || {
            for family in FAMILIES {
                pod.proxy().call(at(family.service(), 80)).served_by("outside");
            }
        };
        gets_reply();
        // Beside native nftables the tables of iptables are other programs' tables.
        let chain = shown.starts_with("-j ") && fixture.backend == Backend::Native;
        in_every_run_are_named(&pod, count, if chain { "mangle " } else { shown });
        let check = pod.istio_iptables(&["check"]).run();
        check.ended_with(1);
        let table = pod.istio_iptables(&["explain", "--live"]).run().ended_with(0).output();
        let first = verdict(&table);
        assert!(first.contains("a foreign rule gives ") && !first.contains("no problem"), "{table}");
        for family in FAMILIES {
            let [marked, other] = [80, 443].map(|port| at(family.service(), port));
            let is_lost = || pod.proxy().gets_no_reply(marked, other);
            // It may begin, and end with its next packet.
            assert!(is_lost() || !matches!(pod.proxy().call(marked), Outcome::Responded(_)), "{how}");
        }
        // Another mark is the remedy.
        let other = [&TPROXY[..], &["-t", "1400"]].concat();
        assert_eq!(named(&pod, &other), [""; 0]);
        gets_reply();
    }
}

fn rules_that_mark_connections_otherwise_are_not_named(fixture: Fixture) {
    let pod = fixture.pod();
    for rule in [
        "-t mangle -A OUTPUT -p tcp -j CONNMARK --set-xmark 0x80/0x80",
        "-t mangle -A OUTPUT -p udp -j CONNMARK --set-mark 1337",
        "-t mangle -A PREROUTING -j CONNMARK --restore-mark --nfmask 0x80 --ctmask 0x80",
        "-t mangle -A OUTPUT -p tcp -j MARK --set-xmark 0x80/0x80",
        "-t mangle -A POSTROUTING -p tcp -j MARK --set-mark 1337",
        "-t mangle -A OUTPUT -p udp -j MARK --set-mark 1337",
        "-t mangle -A OUTPUT -m comment --comment CONNMARK_--set-xmark_0x539/ -j RETURN",
    ] {
        insert(&pod, rule);
    }
    nft(&pod, "table inet agent { chain out { type filter hook output priority -160; ct mark set 1336; }; }");
    assert_eq!(named(&pod, &TPROXY), [""; 0]);
    insert(&pod, "-t mangle -A OUTPUT -p tcp -j CONNMARK --set-mark 1337");
    assert_eq!(named(&pod, &EVERYTHING), [""; 0]);
}

fn rules_of_iptables_legacy_that_mark_connections_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&TPROXY);
    for family in FAMILIES {
        let rule = "-t mangle -A OUTPUT -p tcp --dport 80 -j CONNMARK --set-mark 1337";
        let name = Backend::IptablesLegacy.tool(family, "");
        pod.namespace.run(|| tool(&name, &rule.split(' ').collect::<Vec<_>>(), ""));
    }
    let _servers = pod.outside_listens(&[80]);
    in_every_run_are_named(&pod, 2, "iptables-legacy");
}

/// The mark of TPROXY in the entry of a client's connection, as an interrupted run or a foreign rule leaves
/// it: without the rules it routes nothing.
fn marked_connections_of_clients_are_not_counted_as_those_of_the_proxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&TPROXY);
    let open = |family: &Family| pod.outside().connect(at(family.pod(), 8080)).expect("a connection");
    let mut open: Vec<Conversation> = fixture.families().iter().map(open).collect();
    for family in ["ipv4", "ipv6"] {
        let mark = ["-U", "-f", family, "-p", "tcp", "--dport", "8080", "--mark", "1337"];
        pod.namespace.run(|| tool("conntrack", &mark, ""));
    }
    for leave in [&["-b", "*", "-i", "*", "--dry-run"][..], &["-b", "*", "-i", "*"]] {
        let output = pod.apply(leave).output();
        assert!(!output.contains("of the proxy to the application"), "{output}");
    }
    for conversation in &mut open {
        conversation.echo("still there").expect("the connection lives on");
    }
}
