//! Warnings about foreign rules and policies that decide before ours.

use std::net::UdpSocket;
use std::time::Duration;

use netlab::socket::{self, Binding};

use crate::foreign_preserved::{EVERYTHING, FAMILIES, insert};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend, for_these_fixtures};

for_each_backend!(
    foreign_rules_that_decide_first_are_named,
    foreign_drops_policies_and_zones_are_named_and_decide,
    rules_that_concern_no_captured_packet_are_not_named,
);

for_these_fixtures!(
    dns_nft: IptablesNft Dual, dns_legacy: IptablesLegacy Dual, dns_native: Native Dual;
    [dns_that_another_program_translates_gets_no_response_and_is_named]
);

for_these_fixtures!(beside_legacy_nft: IptablesNft Dual; [rules_of_iptables_legacy_beside_another_backend_are_named]);
for_these_fixtures!(beside_legacy_native: Native Dual; [rules_of_iptables_legacy_beside_another_backend_are_named]);

for_these_fixtures!(both_variants: IptablesLegacy Dual; [a_table_of_the_other_variant_is_examined_beside_its_namesake]);

for_these_fixtures!(zones_beside_native: Native Dual; [zones_of_both_variants_beside_native_nftables_are_named]);

fn foreign_rules_that_decide_first_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    for family in FAMILIES {
        pod.restore(
            family,
            "*nat\n:AGENT -\n-A PREROUTING -p tcp -m tcp --dport 22 -j ACCEPT\n-A PREROUTING -p tcp -m tcp --dport 23 -j LOG\n\
             -A OUTPUT -p tcp -m tcp --dport 9999 -j AGENT\n-A AGENT -p tcp -j REDIRECT --to-ports 9998\nCOMMIT\n\
             *raw\n-A OUTPUT -p tcp -m tcp --dport 4789 -j NOTRACK\nCOMMIT\n",
        );
    }
    let dry = [&EVERYTHING[..], &["--dry-run"]].concat();
    let verify = [&EVERYTHING[..], &["--verify"]].concat();
    let validate = [&EVERYTHING[..], &["--skip-rule-apply", "--run-validation"]].concat();
    for args in [&dry[..], &EVERYTHING, &EVERYTHING, &verify, &dry, &validate] {
        let output = pod.apply(args).output();
        let lines = output.lines().filter(|line| line.contains("decides before ours")).count();
        assert_eq!(lines, 6, "{args:?}: one line for each rule and family:\n{output}");
        for part in ["--dport 22 -j ACCEPT", "-j AGENT", "AGENT (REDIRECT)", "--dport 4789"] {
            assert!(output.contains(part), "{args:?}: {part}:\n{output}");
        }
        assert!(!output.contains("--dport 23"), "LOG does not decide:\n{output}");
    }
}

/// The lines in which a run names foreign rules that decide.
fn named(pod: &Pod, args: &[&str]) -> Vec<String> {
    let output = pod.apply(args).output();
    let about = |line: &&str| {
        ["a foreign rule ", "a foreign chain policy ", "a foreign base chain "]
            .iter()
            .any(|part| line.contains(part))
    };
    output.lines().filter(about).map(str::to_owned).collect()
}

/// Each takes away connections that are made or captured without it.
fn foreign_drops_policies_and_zones_are_named_and_decide(fixture: Fixture) {
    let dry = [&EVERYTHING[..], &["--dry-run"]].concat();
    let verify = [&EVERYTHING[..], &["--verify"]].concat();
    let validate = [&EVERYTHING[..], &["--skip-rule-apply", "--run-validation"]].concat();
    for (rule, undo, shown) in [
        (
            "-t mangle -A PREROUTING -p tcp --dport 8080 -j DROP",
            "-t mangle -F PREROUTING",
            "-A PREROUTING -p tcp -m tcp --dport 8080 -j DROP",
        ),
        (
            "-t mangle -A OUTPUT -p tcp --dport 80 -j DROP",
            "-t mangle -F OUTPUT",
            "-A OUTPUT -p tcp -m tcp --dport 80 -j DROP",
        ),
        (
            "-t raw -A OUTPUT -p tcp --dport 80 -j CT --zone 7",
            "-t raw -F OUTPUT",
            "-A OUTPUT -p tcp -m tcp --dport 80 -j CT --zone 7",
        ),
        // `iptables -P` refuses to do that.
        ("*nat\n:OUTPUT DROP [0:0]\nCOMMIT\n", "*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n", "-P OUTPUT DROP"),
    ] {
        let pod = fixture.pod();
        let change = |how: &str| {
            if how.starts_with('*') {
                FAMILIES.into_iter().for_each(|family| pod.restore(family, how));
            } else {
                insert(&pod, how);
            }
        };
        change(rule);
        let (inbound, policy) = (rule.contains("PREROUTING"), shown.contains("-P"));
        // The policy keeps the probe's connections from its own ports too: that validation fails.
        let validation = (!policy).then_some(&validate[..]);
        for args in [&dry[..], &EVERYTHING, &EVERYTHING, &verify].into_iter().chain(validation) {
            let lines = named(&pod, args);
            assert_eq!(lines.len(), 2, "{rule}, {args:?}: one line for each family: {lines:#?}");
            assert!(lines.iter().all(|line| line.contains(shown)), "{rule}, {args:?}: {lines:#?}");
        }
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80, 443]));
        for family in FAMILIES {
            let (user, to) = match (inbound, policy) {
                (true, _) => (pod.outside(), at(family.pod(), 8080)),
                (false, true) => (pod.proxy(), at(family.service(), 80)),
                (false, false) => (pod.app(), at(family.service(), 80)),
            };
            let attempt =
                user.run(|| socket::start_connect(to, Binding::default()).expect("start to connect"));
            // What is captured is taken before the policy.
            let marker = at(family.service(), 443);
            pod.app().call(marker).captured(15001, marker);
            assert!(!socket::is_ready(&attempt), "{rule} decides nothing for {family:?}");
        }
        change(undo);
        assert_eq!(named(&pod, &EVERYTHING), [""; 0], "{rule}");
        for family in FAMILIES {
            let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
            pod.outside().call(inbound).captured(15006, inbound);
            pod.app().call(outbound).captured(15001, outbound);
            pod.proxy().call(outbound).served_by("outside");
        }
    }
}

fn rules_that_concern_no_captured_packet_are_not_named(fixture: Fixture) {
    let pod = fixture.pod();
    for rule in [
        "-t raw -A PREROUTING -p udp --dport 4789 -j NOTRACK",
        "-t raw -A OUTPUT -p udp --dport 4789 -j NOTRACK",
        "-t nat -A OUTPUT -p udp --dport 4789 -j RETURN",
        "-t mangle -A OUTPUT -p udp -m multiport --dports 4789,8472 -j DROP",
        "-t nat -N AGENT",
        "-t nat -A AGENT -p udp --dport 4789 -j ACCEPT",
        "-t nat -A OUTPUT -j AGENT",
        "-t mangle -A OUTPUT -p tcp -j ACCEPT",
    ] {
        insert(&pod, rule);
    }
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let dns = [&EVERYTHING[..], &["--redirect-dns", "--capture-all-dns"]].concat();
    for args in [&EVERYTHING[..], &dns] {
        assert_eq!(named(&pod, args), [""; 0], "{args:?}");
    }
    for family in FAMILIES {
        let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
        pod.outside().call(inbound).captured(15006, inbound);
        pod.app().call(outbound).captured(15001, outbound);
    }
    // Behind our jump TPROXY leaves only what is not captured.
    let tproxy = [&EVERYTHING[..], &["-m", "TPROXY"]].concat();
    pod.apply(&tproxy);
    insert(&pod, "-t mangle -A PREROUTING ! -i lo -p tcp --dport 8080 -j DROP");
    assert_eq!(named(&pod, &tproxy), [""; 0]);
    for family in FAMILIES {
        let inbound = at(family.pod(), 8080);
        pod.outside().call(inbound).captured(15006, inbound);
    }
    insert(&pod, "-t mangle -D PREROUTING ! -i lo -p tcp --dport 8080 -j DROP");
    insert(&pod, "-t nat -I OUTPUT -p udp -m udp --dport 53 -j RETURN");
    // An excluded port, which is one of UDP too, captures no DNS.
    let excluded = [&EVERYTHING[..], &["-o", "7000"]].concat();
    for args in [&EVERYTHING[..], &excluded] {
        assert_eq!(named(&pod, args), [""; 0], "{args:?}");
    }
    assert_eq!(named(&pod, &dns).len(), 2);
    // A clean-up that leaves the proxy's connection open captures nothing any more.
    let target = at(Family::V4.service(), 80);
    let _open = pod.app().connect(target).expect("connect to the proxy");
    insert(&pod, "-t raw -A OUTPUT -p tcp --dport 9 -j NOTRACK");
    assert_eq!(named(&pod, &["cleanup"]), [""; 0]);
}

/// Each variant sees every packet: what the other one redirects, or drops, is not captured.
fn rules_of_iptables_legacy_beside_another_backend_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8081]), pod.outside_listens(&[80, 9999]));
    let legacy = |rule: &str| {
        for family in FAMILIES {
            let tool_name = Backend::IptablesLegacy.tool(family, "");
            let args: Vec<_> = ["-w"].into_iter().chain(rule.split(' ')).collect();
            pod.namespace.run(|| tool(&tool_name, &args, ""));
        }
    };
    // Of two tables in the same place the kernel asks the one that was made last first.
    pod.apply(&EVERYTHING);
    legacy("-t nat -A OUTPUT -p tcp --dport 9999 -j REDIRECT --to-ports 8081");
    // It ends the table of its own variant only.
    legacy("-t nat -A OUTPUT -p tcp --dport 80 -j ACCEPT");
    legacy("-t nat -A OUTPUT -p udp --dport 9999 -j DNAT --to-destination :9");
    let dry = [&EVERYTHING[..], &["--dry-run"]].concat();
    for args in [&dry[..], &EVERYTHING, &EVERYTHING, &[&EVERYTHING[..], &["--verify"]].concat()] {
        let lines = named(&pod, args);
        assert_eq!(lines.len(), 2, "{args:?}: {lines:#?}");
        for line in &lines {
            assert!(line.contains("may decide before ours") && line.contains("iptables-legacy"), "{line}");
            assert!(line.contains("--dport 9999 -j REDIRECT"), "{line}");
        }
    }
    for family in FAMILIES {
        let (direct, captured) = (at(family.service(), 9999), at(family.service(), 80));
        pod.app().call(direct).served_by("app");
        pod.app().call(captured).captured(15001, captured);
    }
}

/// Each variant of iptables has its own table `filter`.
fn a_table_of_the_other_variant_is_examined_beside_its_namesake(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    for family in FAMILIES {
        for (backend, rule) in [
            (Backend::IptablesNft, "-I INPUT -p tcp -m tcp --dport 15001 -j DROP"),
            (Backend::IptablesLegacy, "-I INPUT -p icmp -j ACCEPT"),
        ] {
            let args: Vec<&str> = rule.split(' ').collect();
            pod.namespace.run(|| tool(&backend.tool(family, ""), &args, ""));
        }
    }
    let lines = named(&pod, &EVERYTHING);
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(lines.iter().all(|line| line.contains("filter INPUT (input, priority 0): drop")), "{lines:#?}");
    assert_eq!(pod.istio_iptables(&[&["check"], &EVERYTHING[..]].concat()).run().code(), 1);
    let explained = pod.istio_iptables(&["explain", "--live"]).run().output();
    assert!(explained.contains("traffic-lost"), "{explained}");
    for family in FAMILIES {
        let attempt = pod.app().run(|| {
            socket::start_connect(at(family.service(), 80), Binding::default()).expect("start to connect")
        });
        assert!(!socket::is_ready(&attempt), "{family:?}");
    }
}

/// A connection that is in another zone in one direction gets no reply: the rule is named, and the kernel
/// shows it.
fn zones_of_both_variants_beside_native_nftables_are_named(fixture: Fixture) {
    for backend in [Backend::IptablesNft, Backend::IptablesLegacy] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 443]));
        let zones = |command: &str, port: u16| {
            for family in FAMILIES {
                let rule = format!("-t raw {command} OUTPUT -p tcp --dport {port} -j CT --zone 7");
                pod.namespace
                    .run(|| tool(&backend.tool(family, ""), &rule.split(' ').collect::<Vec<_>>(), ""));
            }
        };
        zones("-A", 80);
        let dry = [&EVERYTHING[..], &["--dry-run"]].concat();
        for args in [&dry[..], &EVERYTHING, &EVERYTHING] {
            let lines = named(&pod, args);
            assert_eq!(lines.len(), 2, "{backend:?}, {args:?}: one line for each family: {lines:#?}");
            assert!(lines.iter().all(|line| line.to_lowercase().contains("zone")), "{backend:?}: {lines:#?}");
        }
        for family in FAMILIES {
            let (decided, marker) = (at(family.service(), 80), at(family.service(), 443));
            let attempt = pod
                .app()
                .run(|| socket::start_connect(decided, Binding::default()).expect("start to connect"));
            pod.app().call(marker).captured(15001, marker);
            assert!(!socket::is_ready(&attempt), "{backend:?} decides nothing for {family:?}");
        }
        zones("-D", 80);
        assert_eq!(named(&pod, &EVERYTHING), [""; 0], "{backend:?}");
    }
}

/// Responses come from where the foreign rule sends the queries: with all DNS captured that is another
/// conntrack zone than that of the app's query, if the rule is before ours. Where that is not certain, the
/// run warns; where it is, it is refused (`translated_queries.rs`).
fn dns_that_another_program_translates_gets_no_response_and_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    let words = "DNS queries over UDP that it translates get no response while DNS is captured";
    for family in fixture.families() {
        let (server, other) = (at(family.name_server(), 53), at(family.service(), 53));
        pod.iptables(
            *family,
            &format!(
                "-t nat -A OUTPUT -d {} -p udp --dport 53 -j DNAT --to-destination {other}",
                server.ip()
            ),
        );
    }
    let gets_response = |family: Family| {
        pod.app().run(|| {
            let asked = [at(family.name_server(), 53), at(family.service(), 53)].map(|server| {
                let socket = UdpSocket::bind(at(family.unspecified(), 0)).unwrap();
                socket.connect(server).unwrap();
                socket.send(b"query").unwrap();
                socket
            });
            // The same server responds to both, one after the other.
            asked[1].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            asked[1].recv(&mut [0; 512]).unwrap();
            asked[0].set_nonblocking(true).unwrap();
            asked[0].recv(&mut [0; 512]).is_ok()
        })
    };
    let run = pod.apply(&EVERYTHING).output();
    assert!(!run.contains(words), "{run}");
    assert!(fixture.families().iter().all(|family| gets_response(*family)));
    // Ours decide first in native nftables, whose chains are newer; then the queries of the proxy are
    // translated.
    let is_certain = fixture.backend != Backend::Native;
    let run = pod.istio_iptables(&[&EVERYTHING[..], &["--redirect-dns", "--capture-all-dns"]].concat()).run();
    let run = run.ended_with(if is_certain { 70 } else { 0 }).output();
    assert_eq!(run.contains(words), !is_certain, "{run}");
    assert!(fixture.families().iter().all(|family| gets_response(*family)));
}
