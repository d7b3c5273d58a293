//! Recorded tables of gVisor, and the kernel's own beside the save tool.

use super::*;
use crate::kernel::legacy::socket;
use crate::parse;
use netlab::in_new_namespace;
use netlab::process::{run, run_with_input};

/// What a kernel returned: the description of a table, and its entries.
fn recorded(family: Family, table: &str, bytes: &[u8]) -> String {
    let (info, entries) = bytes.split_at(Info::LENGTH);
    text(family, table, &Info::parse(info).unwrap(), entries).unwrap()
}

#[test]
fn rules_of_gvisor_are_read_without_revisions() {
    let nat = recorded(Family::V4, "nat", include_bytes!("../recorded/gvisor-20260822-nat-v4.bin"));
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
    let nat = recorded(Family::V6, "nat", include_bytes!("../recorded/gvisor-20260822-nat-v6.bin"));
    for line in [
        "-A ISTIO_OUTPUT -s ::6/128 -o lo -j RETURN",
        "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001",
        "-A ISTIO_OUTPUT -o lo -p tcp -m tcp ! --dport 53 -m owner ! --uid-owner 1337 -j RETURN",
    ] {
        assert!(nat.lines().any(|found| found == line), "{line}\n{nat}");
    }
    let raw = recorded(Family::V4, "raw", include_bytes!("../recorded/gvisor-20260822-raw-v4.bin"));
    assert!(
        raw.contains(
            "-A ISTIO_OUTPUT_DNS -p udp -m udp --dport 53 -m owner --uid-owner 1337 -j CT --zone 1\n"
        ),
        "{raw}"
    );
    let filter = recorded(Family::V4, "filter", include_bytes!("../recorded/gvisor-20260822-filter-v4.bin"));
    assert_eq!(
        filter,
        "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
         -A OUTPUT -s 10.0.0.0/8 -o eth+ -p tcp -m tcp --tcp-flags SYN,ACK SYN -j ACCEPT\nCOMMIT\n"
    );
    let old = recorded(Family::V4, "nat", include_bytes!("../recorded/gvisor-20221219-nat-v4.bin"));
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
    *raw\n-A PREROUTING -p udp --sport 53 -j CT --zone 1\n-A OUTPUT -p udp --dport 53 -j CT --notrack\nCOMMIT\n\
    *filter\n:INPUT DROP [0:0]\n-A FORWARD -p 253 -j DROP\nCOMMIT\n";

#[test]
fn text_is_that_of_the_save_tool() {
    for (family, tool, addresses) in [
        (Family::V4, "iptables-legacy", "-A FORWARD -s 10.0.0.0/8 ! -d 10.1.2.3/32 -j LOG\nCOMMIT\n"),
        (Family::V6, "ip6tables-legacy", "-A FORWARD -s fd00::/8 ! -d fd00::1/128 -j LOG\nCOMMIT\n"),
    ] {
        in_new_namespace(|| {
            let rules = format!("{}{addresses}", RULES.strip_suffix("COMMIT\n").unwrap());
            run_with_input(&format!("{tool}-restore"), &[], &rules);
            for table in ["nat", "raw", "filter"] {
                let (info, entries) = socket::table(family, table).unwrap();
                let read = text(family, table, &info, &entries).unwrap();
                let saved = run(&format!("{tool}-save"), &["-t", table]);
                let rules_of = |text: &str| -> Vec<String> {
                    let lines = text.lines().filter(|line| !line.starts_with('#'));
                    // What the target LOG has is not read.
                    let without_log = |line: &str| line.replace(" -j LOG [unsupported]", " -j LOG");
                    let without_counters =
                        |line: &str| line.split(" [").next().unwrap_or_default().to_owned();
                    lines.map(|line| without_counters(&without_log(line))).collect()
                };
                let (mut read, mut saved) = (rules_of(&read), rules_of(&saved));
                // The order of chains is no matter.
                read.sort_by_key(|line| !line.starts_with(':'));
                saved.sort_by_key(|line| !line.starts_with(':'));
                let (chains, rules): (Vec<_>, Vec<_>) =
                    read.into_iter().partition(|line| line.starts_with(':'));
                let (mut expected_chains, expected): (Vec<_>, Vec<_>) =
                    saved.into_iter().partition(|line| line.starts_with(':'));
                let mut chains = chains;
                chains.sort();
                expected_chains.sort();
                assert_eq!((chains, rules), (expected_chains, expected), "{family} {table}");
            }
        });
    }
}

#[test]
fn a_rule_that_is_not_read_whole_is_not_taken_for_another() {
    in_new_namespace(|| {
        let rules = "*nat\n-A OUTPUT -p tcp -m comment --comment x -j RETURN\n\
                     -A OUTPUT -p tcp -j DNAT --to-destination 10.0.0.1\nCOMMIT\n";
        run_with_input("iptables-legacy-restore", &[], rules);
        let (info, entries) = socket::table(Family::V4, "nat").unwrap();
        let saved = text(Family::V4, "nat", &info, &entries).unwrap();
        assert!(
            saved.contains(" -m comment [unsupported] ") && saved.contains("DNAT [unsupported]"),
            "{saved}"
        );
        let observed = parse::iptables_save(Family::V4, &saved);
        let lines = observed.tables.values().flat_map(|table| table.hooks.values().flatten());
        assert!(
            lines.clone().count() == 2 && lines.clone().all(|line| line.statement.is_none()),
            "{lines:?}",
            lines = lines.collect::<Vec<_>>()
        );
    });
}
