//! Recorded tables of gVisor, and the kernel's own beside the save tool.
#![allow(clippy::disallowed_methods, reason = "a test reads the gallery and starts the tools")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use ipnetwork::IpNetwork;

use super::*;
use crate::model::Statement;
use crate::parse;
use netlab::in_new_namespace;
use netlab::process::{run, run_with_input};

/// What a kernel returned: the description of a table, and its entries.
fn recorded(family: Family, table: &str, bytes: &[u8]) -> String {
    saved_tables(family, &[RawTable::of_bytes(table, bytes).unwrap()], false).unwrap().text
}

/// The tables of this network namespace.
fn live(family: Family) -> SavedTables {
    saved_tables(family, &legacy::raw_tables(family).unwrap(), true).unwrap()
}

#[test]
fn rules_of_gvisor_are_read_without_revisions() {
    let nat = recorded(Family::V4, "nat", include_bytes!("recorded/gvisor-20260822-nat-v4.bin"));
    for line in [
        "-A ISTIO_INBOUND -p tcp -m tcp --dport 15008 -j RETURN",
        "-A ISTIO_INBOUND -p tcp -m multiport --dports 80,443,1000:1010 -j RETURN",
        "-A ISTIO_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN",
        "-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m multiport ! --dports 53,15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT",
        "-A ISTIO_OUTPUT -o lo -p tcp -m tcp ! --dport 53 -m owner ! --gid-owner 1337 -j RETURN",
        "-A ISTIO_OUTPUT_DNS -p udp -m udp --dport 53 -j REDIRECT --to-ports 15053",
        "-A PREROUTING -i eth9 -j RETURN",
    ] {
        assert!(nat.lines().any(|found| found == line), "{line}\n{nat}");
    }
    let nat = recorded(Family::V6, "nat", include_bytes!("recorded/gvisor-20260822-nat-v6.bin"));
    for line in [
        "-A ISTIO_OUTPUT -s ::6/128 -o lo -j RETURN",
        "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001",
        "-A ISTIO_OUTPUT -o lo -p tcp -m tcp ! --dport 53 -m owner ! --uid-owner 1337 -j RETURN",
    ] {
        assert!(nat.lines().any(|found| found == line), "{line}\n{nat}");
    }
    let raw = recorded(Family::V4, "raw", include_bytes!("recorded/gvisor-20260822-raw-v4.bin"));
    assert!(
        raw.contains(
            "-A ISTIO_OUTPUT_DNS -p udp -m udp --dport 53 -m owner --uid-owner 1337 -j CT --zone 1\n"
        ),
        "{raw}"
    );
    let filter = recorded(Family::V4, "filter", include_bytes!("recorded/gvisor-20260822-filter-v4.bin"));
    assert_eq!(
        filter,
        "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
         -A OUTPUT -s 10.0.0.0/8 -o eth+ -p tcp -m tcp --tcp-flags SYN,ACK SYN -j ACCEPT\nCOMMIT\n"
    );
    let old = recorded(Family::V4, "nat", include_bytes!("recorded/gvisor-20221219-nat-v4.bin"));
    let rules: Vec<&str> = old.lines().filter(|line| line.starts_with("-A ")).collect();
    assert_eq!(
        rules,
        [
            "-A OUTPUT -p tcp -j MINE",
            "-A MINE -o lo -m owner --uid-owner 1337 -j RETURN",
            "-A MINE -m owner ! --gid-owner 1337 -j RETURN",
            "-A MINE ! -d 127.0.0.1/32 -p tcp -m tcp --dport 80:90 -j REDIRECT --to-ports 15001",
        ]
    );
}

/// Matches and targets that there are on Linux as well: the tool prints the same.
const RULES: &str = "*nat\n:ISTIO_OUTPUT - [0:0]\n:ISTIO_REDIRECT - [0:0]\n:EMPTY - [0:0]\n\
    -A OUTPUT -j ISTIO_OUTPUT\n-A PREROUTING -i eth7 -j RETURN\n-A PREROUTING ! -i eth+ -p tcp -j ISTIO_REDIRECT\n\
    -A ISTIO_OUTPUT -o lo -m owner --uid-owner 1337 -j RETURN\n-A ISTIO_OUTPUT -p tcp --dport 53:60 -m owner ! --gid-owner 7-9\n\
    -A ISTIO_OUTPUT -p tcp -m multiport ! --dports 53,100:200,15008 -j RETURN\n\
    -A ISTIO_OUTPUT -p udp -m multiport --sports 53 -j RETURN\n-A ISTIO_OUTPUT ! -p tcp -j ACCEPT\n\
    -A ISTIO_OUTPUT -p udp ! --sport 1:65535 --dport 53 -j REDIRECT --to-ports 15053\n\
    -A ISTIO_OUTPUT -p tcp ! --syn -m owner --socket-exists -j ISTIO_REDIRECT\n\
    -A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001-15002\n-A ISTIO_REDIRECT -p tcp -j REDIRECT\nCOMMIT\n\
    *raw\n-A PREROUTING -p udp --sport 53 -j CT --zone 1\n-A OUTPUT -p udp --dport 53 -j CT --notrack\n\
    -A OUTPUT -j CT\n-A OUTPUT -j CT --zone 0\n-A OUTPUT -j NOTRACK\n-A OUTPUT -j CT --zone-orig 5\n\
    -A OUTPUT -j CT --zone-orig 5 --zone-reply 5\n-A OUTPUT -j CT --zone mark\n-A OUTPUT -j CT --zone-reply mark\nCOMMIT\n\
    *filter\n:INPUT DROP [0:0]\n-A FORWARD -p udp -j DROP\nCOMMIT\n";

#[test]
fn text_is_that_of_the_save_tool() {
    for (family, tool, addresses) in [
        (
            Family::V4,
            "iptables-legacy",
            "-A FORWARD -s 10.0.0.0/8 ! -d 10.1.2.3/32 -j LOG\n\
             -A FORWARD -s 10.0.3.0/255.0.255.0 -d 0.0.0.9/0.0.0.255\n-A FORWARD ! -s 0.0.0.0/0 -j ACCEPT\nCOMMIT\n",
        ),
        (
            Family::V6,
            "ip6tables-legacy",
            "-A FORWARD -s fd00::/8 ! -d fd00::1/128 -j LOG\n\
             -A FORWARD -s fd00::1/ffff::ffff -d ::9/::ff\n\
             -A FORWARD ! -d ::/0 -j ACCEPT\n-A FORWARD -s ::10.1.2.3/128 -j ACCEPT\nCOMMIT\n",
        ),
    ] {
        in_new_namespace(|| {
            let rules = format!("{}{addresses}", RULES.strip_suffix("COMMIT\n").unwrap());
            run_with_input(&format!("{tool}-restore"), &[], &rules);
            // What the target LOG has is not read.
            let read = live(family).text.replace(" -j LOG [unsupported]", " -j LOG");
            assert_eq!(lines(&read), lines(&run(&format!("{tool}-save"), &[])), "{family}");
        });
    }
}

#[test]
fn counters_are_those_of_the_save_tool() {
    for (family, tool, to) in
        [(Family::V4, "iptables-legacy", "127.0.0.1"), (Family::V6, "ip6tables-legacy", "::1")]
    {
        in_new_namespace(|| {
            let rules = "*nat\n-A OUTPUT -p tcp -j RETURN\nCOMMIT\n*filter\n:MINE - [0:0]\n-A OUTPUT -p udp --dport 9\n\
                         -A OUTPUT -j MINE\n-A MINE -p udp\nCOMMIT\n";
            run_with_input(&format!("{tool}-restore"), &[], rules);
            run("ip", &["link", "set", "lo", "up"]);
            let socket = std::net::UdpSocket::bind((to, 0)).unwrap();
            for port in [9, 9, 10] {
                socket.send_to(b"abc", (to, port)).unwrap();
            }
            let found = parse::counters(&counts(family, &legacy::raw_tables(family).unwrap()).unwrap());
            assert_eq!(found, parse::counters(&run(&format!("{tool}-save"), &["-c"])), "{family}");
            let filter = &found[&(crate::model::Table::Nat, "OUTPUT".to_owned())];
            assert_eq!(filter.iter().map(|counted| counted.packets).collect::<Vec<_>>(), [0], "{family}");
        });
    }
}

/// Chains, whose order is no matter, and rules. Neither comments nor counters.
fn lines(text: &str) -> (BTreeSet<String>, Vec<String>) {
    let without_counters = |line: &str| line.split(" [").next().unwrap_or_default().to_owned();
    let lines = text.lines().filter(|line| !line.starts_with('#')).map(without_counters);
    let (chains, mut rules): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with(':'));
    // Tables come in another order.
    rules.sort();
    (chains.into_iter().collect(), rules)
}

/// Words are in another order here and there, so the statements are compared.
#[test]
fn every_rule_of_ours_is_read_as_the_save_tool_prints_it() {
    let mut read = 0;
    for folder in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/rules")).unwrap() {
        let folder = folder.unwrap().path();
        let Ok(text) = fs::read_to_string(folder.join("iptables.rules")) else { continue };
        for (family, tool) in [(Family::V4, "iptables-legacy"), (Family::V6, "ip6tables-legacy")] {
            let Some(rules) = of_family(&text, family) else { continue };
            in_new_namespace(|| {
                run_with_input(&format!("{tool}-restore"), &[], &rules);
                let found = live(family);
                assert!(!found.lacks_words, "{}: {}", folder.display(), found.text);
                let saved = parse::iptables_save(family, &run(&format!("{tool}-save"), &[]));
                let found = parse::iptables_save(family, &found.text);
                read += statements(&saved).len();
                assert_eq!(statements(&found), statements(&saved), "{} {family}", folder.display());
            });
        }
    }
    assert!(read > 500, "{read}");
}

/// The rules of `text` with addresses of a family; `None` for rules of IPv6, where IPv4 is wanted.
fn of_family(text: &str, family: Family) -> Option<String> {
    let word = |word: &str| match word.parse() {
        Ok(IpNetwork::V4(network)) if family == Family::V6 => {
            let [a, b, c, d] = network.ip().octets();
            Some(format!("fd00::{a:x}:{b:x}:{c:x}:{d:x}/{}", if network.prefix() == 32 { 128 } else { 96 }))
        }
        Ok(IpNetwork::V6(_)) if family == Family::V4 => None,
        _ => Some(word.to_owned()),
    };
    let line = |line: &str| Some(line.split(' ').map(word).collect::<Option<Vec<_>>>()?.join(" ") + "\n");
    text.lines().map(line).collect()
}

fn statements(observed: &parse::Observed) -> Vec<(String, Option<Statement>)> {
    let mut found = Vec::new();
    for (table, rules) in &observed.tables {
        let chains = rules.chains.iter().map(|(chain, lines)| (format!("{table:?} {chain:?}"), lines));
        let hooks = rules.hooks.iter().map(|(hook, lines)| (format!("{table:?} {hook:?}"), lines));
        for (place, lines) in chains.chain(hooks) {
            found.extend(lines.iter().map(|line| (place.clone(), line.statement.clone())));
        }
    }
    found
}

#[test]
fn a_rule_that_is_not_read_whole_is_not_taken_for_another() {
    for (family, tool) in [(Family::V4, "iptables-legacy"), (Family::V6, "ip6tables-legacy")] {
        for (place, rule) in [
            ("nat OUTPUT", "-p tcp -m limit --limit 1/second -j RETURN"),
            ("nat OUTPUT", "-p tcp -j LOG --log-prefix x"),
            ("nat OUTPUT", "-p 50 -j RETURN"),
            ("raw OUTPUT", "-p tcp -j CT --notrack --zone 5"),
            ("raw OUTPUT", "-p tcp -j CT --ctevents new"),
            ("nat OUTPUT", "-p tcp -m set --match-set x src -j RETURN"),
        ] {
            in_new_namespace(|| {
                let (table, hook) = place.split_once(' ').unwrap();
                let rules = format!("*{table}\n:MINE - [0:0]\n-A {hook} {rule}\nCOMMIT\n");
                let is_loaded = restored(&format!("{tool}-restore"), &rules);
                if !is_loaded {
                    // Only the set needs what a kernel may lack.
                    assert!(rule.contains("match-set"), "{rule}");
                    return;
                }
                let saved = live(family);
                assert!(saved.lacks_words && saved.text.contains("[unsupported]"), "{saved:?}");
                let observed = parse::iptables_save(family, &saved.text);
                let rules = observed.tables.values().flat_map(|table| table.hooks.values().flatten());
                let rules: Vec<_> = rules.collect();
                assert!(rules.len() == 1 && rules.iter().all(|line| line.statement.is_none()), "{rules:?}");
            });
        }
    }
}

fn restored(program: &str, rules: &str) -> bool {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(rules.as_bytes()).unwrap();
    child.wait().unwrap().success()
}

#[test]
fn comments_and_matches_of_other_programs_are_read() {
    in_new_namespace(|| {
        let rules = "*nat\n:KUBE-SERVICES - [0:0]\n\
                     -A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n\
                     -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m tcp --dport 443 -j DNAT --to-destination 10.0.0.1:6443\n\
                     -A KUBE-SERVICES -m addrtype --dst-type LOCAL -j RETURN\n\
                     -A KUBE-SERVICES -m mark --mark 0x4000/0x4000 -j RETURN\n\
                     -A KUBE-SERVICES -m iprange --src-range 10.0.0.1-10.0.0.9 -j ACCEPT\nCOMMIT\n";
        run_with_input("iptables-legacy-restore", &[], rules);
        let found = live(Family::V4);
        assert!(!found.lacks_words, "{}", found.text);
        assert_eq!(lines(&found.text), lines(&run("iptables-legacy-save", &[])));
    });
}

/// `iptables-legacy` before 1.8.11 does not print `! -o +`, so a rule that matches no packet would be one for
/// all.
#[test]
fn only_words_that_are_not_read_are_those_of_the_tool() {
    for (family, tool) in [(Family::V4, "iptables-legacy"), (Family::V6, "ip6tables-legacy")] {
        in_new_namespace(|| {
            let rules = "*nat\n:MINE - [0:0]\n-A OUTPUT ! -o + -j ACCEPT\n-A OUTPUT -p tcp -g MINE\n\
                         -A OUTPUT -m limit --limit 1/sec -j RETURN\n-A MINE ! -o lo -j ACCEPT\nCOMMIT\n";
            run_with_input(&format!("{tool}-restore"), &[], rules);
            let found = live(family);
            assert!(found.lacks_words);
            let completed = found.completed(&run(&format!("{tool}-save"), &[])).expect("the same rules");
            let rules: Vec<_> = completed.lines().filter(|line| line.starts_with("-A")).collect();
            assert_eq!(
                rules,
                [
                    "-A OUTPUT ! -o + -j ACCEPT",
                    "-A OUTPUT -p tcp -g MINE",
                    "-A OUTPUT -m limit --limit 1/sec -j RETURN",
                    "-A MINE ! -o lo -j ACCEPT"
                ]
            );
            assert_eq!(found.completed("*nat\n-A OUTPUT -j ACCEPT\nCOMMIT\n"), None);
        });
    }
}
