//! Foreign rules, routes and addresses that look like ours: every run leaves them as they are.

use std::collections::BTreeMap;

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::tools::{path, restore_tools};
use crate::lab::{Backend, Family, Fixture, Pod, Stack, for_each_backend};

for_each_backend!(
    commented_rule_survives_two_identical_runs,
    lone_foreign_return_beside_a_virtual_interface_survives,
    foreign_mark_rule_survives,
    first_verify_passes_beside_a_foreign_return,
    foreign_pair_right_before_our_jumps_survives,
    identical_foreign_rule_leaves_no_other_rule_of_ours,
    foreign_route_rule_and_address_are_not_changed,
    virtual_interface_behind_a_foreign_rule_is_cleaned_up,
    odd_comments_do_not_block_runs,
    validation_compares_both_directions,
    unprivileged_validation_says_that_rules_are_not_compared,
    rule_inserted_between_reading_and_writing_survives,
    random_foreign_rules_survive_every_run,
);

pub(crate) const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];
pub(crate) const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Foreign rules with their counters, by chain: those of shared chains that are not in `ours`.
fn shared(pod: &Pod, family: Family, table: &str) -> BTreeMap<String, Vec<String>> {
    let mut chains: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for chain in ["PREROUTING", "OUTPUT"] {
        let rules = pod.iptables(family, &format!("-t {table} -S {chain} -v"));
        chains.insert(chain.to_owned(), rules.lines().skip(1).map(str::to_owned).collect());
    }
    chains
}

fn cleanup(pod: &Pod) -> String {
    let run = pod.plain_istio_iptables(&["cleanup", "--backend", pod.fixture.backend.flag()]).run();
    run.succeeded().output()
}

pub(crate) fn insert(pod: &Pod, rule: &str) {
    for family in FAMILIES {
        pod.iptables(family, rule);
    }
}

fn commented_rule_survives_two_identical_runs(fixture: Fixture) {
    let pod = fixture.pod();
    insert(&pod, "-t nat -A PREROUTING -i eth0 -m comment --comment node-agent:keep -j RETURN");
    let before = pod.state();
    for _ in 0..2 {
        pod.apply(&["-b", "80"]);
        pod.apply(&["-b", "80", "-k", "eth0"]);
    }
    cleanup(&pod);
    assert_eq!(pod.state(), before);
}

fn lone_foreign_return_beside_a_virtual_interface_survives(fixture: Fixture) {
    let pod = fixture.pod();
    insert(&pod, "-t nat -A OUTPUT -o net1 -j RETURN");
    let before = pod.state();
    pod.apply(&["-b", "*", "-k", "net1"]);
    let once = pod.state();
    pod.apply(&["-b", "*", "-k", "net1"]).output_contains("converged");
    assert_eq!(pod.state(), once);
    cleanup(&pod);
    assert_eq!(pod.state(), before);
}

fn foreign_mark_rule_survives(fixture: Fixture) {
    let pod = fixture.pod();
    for (family, net) in [(Family::V4, "10.9.9.9"), (Family::V6, "fd00::9")] {
        for comment in ["", "-m comment --comment keep "] {
            pod.iptables(
                family,
                &format!("-t mangle -A OUTPUT ! -d {net} -o lo -p tcp -m owner --uid-owner 5 {comment}-j MARK --set-mark 1338"),
            );
        }
    }
    let before = pod.state();
    let tproxy = ["-b", "*", "-i", "*", "-m", "TPROXY"];
    for args in [&tproxy[..], &tproxy, &EVERYTHING, &["-b", "80", "-m", "TPROXY", "-u", "5"]] {
        pod.apply(args);
    }
    cleanup(&pod);
    assert_eq!(pod.state(), before);
}

fn first_verify_passes_beside_a_foreign_return(fixture: Fixture) {
    let pod = fixture.pod();
    insert(&pod, "-t nat -A PREROUTING -i eth0 -j RETURN");
    pod.apply(&["-b", "80", "--verify"]);
    pod.apply(&["-b", "80", "--verify"]).output_contains("converged");
}

/// The very form and place of what `-c` writes: only the record distinguishes it.
fn foreign_pair_right_before_our_jumps_survives(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    insert(&pod, "-t nat -I PREROUTING -i eth1 -j RETURN");
    insert(&pod, "-t nat -I OUTPUT -o eth1 -j RETURN");
    let foreign = pod.state();
    pod.apply(&EVERYTHING).output_contains("converged");
    pod.apply(&["-b", "80", "-i", "*"]);
    pod.apply(&EVERYTHING);
    assert_eq!(pod.state(), foreign);
    cleanup(&pod);
    for (family, chain, rule) in
        [("ip4", "PREROUTING", "-i eth1 -j RETURN"), ("ip6", "OUTPUT", "-o eth1 -j RETURN")]
    {
        let rules = pod.state().chain(&format!("{family} nat {chain}")).to_vec();
        assert_eq!(rules.last().map(String::as_str), Some(rule), "{rules:?}");
    }
}

/// Which of two identical rules is ours may be open; what is ours in any case goes.
fn identical_foreign_rule_leaves_no_other_rule_of_ours(fixture: Fixture) {
    let pod = fixture.pod();
    let tproxy = [&EVERYTHING[..], &["-m", "TPROXY"]].concat();
    pod.apply(&[&tproxy[..], &["-c", "eth1,net9"]].concat());
    insert(&pod, "-t nat -A PREROUTING -i net9 -j RETURN");
    insert(&pod, "-t nat -I OUTPUT -o net9 -j RETURN");
    pod.apply(&tproxy);
    for (family, hook, direction) in [
        ("ip4", "PREROUTING", 'i'),
        ("ip4", "OUTPUT", 'o'),
        ("ip6", "PREROUTING", 'i'),
        ("ip6", "OUTPUT", 'o'),
    ] {
        let rules = pod.state().chain(&format!("{family} nat {hook}")).to_vec();
        assert!(!rules.iter().any(|rule| rule.contains("eth1")), "{rules:?}");
        assert!(rules.contains(&format!("-{direction} net9 -j RETURN")), "{rules:?}");
    }
}

fn foreign_route_rule_and_address_are_not_changed(fixture: Fixture) {
    let pod = fixture.pod();
    pod.ip(
        "-6 address add ::6/128 dev lo\n-4 route add local default dev lo table 133\n\
         -6 route add local default dev lo table 133\n-4 rule add fwmark 1337 lookup 133\n-6 rule add fwmark 1337 lookup 133",
    );
    let network = || {
        pod.namespace.run(|| {
            [
                &["-d", "-6", "address", "show", "dev", "lo"][..],
                &["-d", "-4", "route", "show", "table", "133"],
                &["-d", "-6", "route", "show", "table", "133"],
            ]
            .map(|args| {
                let shown = tool("ip", args, "");
                // The record is the one thing that may differ; whether the kernel is done with checking a new
                // address is not ours.
                shown
                    .lines()
                    .filter(|line| !line.trim_start().starts_with("alias "))
                    .map(|line| line.replace(" tentative", ""))
                    .collect::<Vec<_>>()
                    .join("\n")
            })
        })
    };
    let (before, state) = (network(), pod.state());
    let tproxy = ["-b", "*", "-i", "*", "-m", "TPROXY", "--dual-stack"];
    for args in [&tproxy[..], &tproxy, &EVERYTHING, &tproxy] {
        pod.apply(args);
        assert_eq!(network(), before, "{args:?}");
    }
    cleanup(&pod);
    assert_eq!(network(), before);
    assert_eq!(pod.state(), state);
}

fn virtual_interface_behind_a_foreign_rule_is_cleaned_up(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-b", "80", "-k", "vnet0"]);
    insert(&pod, "-t nat -I PREROUTING -p tcp --dport 22 -j ACCEPT");
    let output = cleanup(&pod);
    assert!(output.contains("no rules in place"), "{output}");
    for family in ["ip4", "ip6"] {
        let rules = pod.state().chain(&format!("{family} nat PREROUTING")).to_vec();
        assert_eq!(rules.last().map(String::as_str), Some("-p tcp -m tcp --dport 22 -j ACCEPT"), "{rules:?}");
        assert!(!rules.iter().any(|rule| rule.contains("vnet0")), "{rules:?}");
    }
}

fn odd_comments_do_not_block_runs(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let odd = "*nat\n-A PREROUTING -p tcp -m comment --comment \"\u{e9}\\\" -j \\\\\" -j ISTIO_INBOUND\n\
        -A OUTPUT -m comment --comment -j -j ISTIO_OUTPUT\nCOMMIT\n";
    for family in FAMILIES {
        pod.restore(family, odd);
        let tool = pod.fixture.backend.tool(family, "");
        let arguments = |chain: &'static str, comment: &'static [u8], target: &'static str| {
            use std::os::unix::ffi::OsStrExt as _;
            let words =
                ["--wait", "-t", "nat", "-A", chain, "-m", "comment", "--comment"].map(std::ffi::OsStr::new);
            let rest = ["-j", target].map(std::ffi::OsStr::new);
            words.into_iter().chain([std::ffi::OsStr::from_bytes(comment)]).chain(rest).collect::<Vec<_>>()
        };
        for (chain, comment, target) in [
            ("PREROUTING", &b"\xff\xfe"[..], "ISTIO_INBOUND"),
            ("OUTPUT", b"a\n-A OUTPUT -j ISTIO_OUTPUT\nCOMMIT", "RETURN"),
        ] {
            pod.namespace.run(|| {
                let ended =
                    std::process::Command::new(&tool).args(arguments(chain, comment, target)).status();
                assert!(ended.unwrap().success(), "{comment:?}");
            });
        }
    }
    pod.apply(&EVERYTHING).output_contains("converged");
    pod.apply(&["-b", "80", "-i", "10.0.0.0/8"]);
    let output = cleanup(&pod);
    assert!(output.contains("ISTIO_OUTPUT") && output.contains("is kept, empty"), "{output}");
    for family in FAMILIES {
        let left = pod.iptables(family, "-t nat -S");
        assert!(left.contains("--comment -j -j ISTIO_OUTPUT"), "{left}");
        assert!(!left.contains("-A PREROUTING -p tcp -j ISTIO_INBOUND"), "{left}");
    }
    cleanup(&pod);
}

fn validation_compares_both_directions(fixture: Fixture) {
    let validate = [&EVERYTHING[..], &["--skip-rule-apply", "--run-validation"]].concat();
    for damage in ["-t nat -D PREROUTING -p tcp -j ISTIO_INBOUND", "-t nat -F ISTIO_REDIRECT"] {
        let pod = fixture.pod();
        pod.apply(&EVERYTHING);
        pod.apply(&validate);
        insert(&pod, damage);
        pod.istio_iptables(&validate).run().ended_with(126);
    }
}

fn unprivileged_validation_says_that_rules_are_not_compared(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let validate = [&EVERYTHING[..], &["--skip-rule-apply", "--run-validation"]].concat();
    pod.istio_iptables(&validate).under_user(1337).run().succeeded().output_contains("not compared");
}

/// Another program inserts rules all the time at the head of the chain in which ours have an identical
/// foreign rule before them.
fn rule_inserted_between_reading_and_writing_survives(fixture: Fixture) {
    const INSERTED: usize = 150;
    let pod = fixture.pod();
    for family in FAMILIES {
        pod.restore(
            family,
            "*nat\n-A PREROUTING -i eth1 -j RETURN\n-A PREROUTING -p tcp -m tcp --dport 1 -j RETURN\nCOMMIT\n",
        );
    }
    let excluded = ["-b", "*", "-i", "*", "-c", "eth1"];
    pod.apply(&excluded);
    std::thread::scope(|scope| {
        let inserting = scope.spawn(|| {
            for port in 0..INSERTED {
                pod.iptables(
                    Family::V4,
                    &format!("-t nat -I PREROUTING -p tcp --dport {} -j RETURN", 2000 + port),
                );
            }
        });
        while !inserting.is_finished() {
            pod.apply(&EVERYTHING);
            pod.apply(&excluded);
        }
    });
    let rules = pod.state().chain("ip4 nat PREROUTING").to_vec();
    let inserted: Vec<_> = rules.iter().filter(|rule| rule.contains("--dport 2")).collect();
    assert_eq!(inserted.len(), INSERTED, "{rules:?}");
    let identical = rules.iter().position(|rule| rule == "-i eth1 -j RETURN");
    let fixed = rules.iter().position(|rule| rule.ends_with("--dport 1 -j RETURN"));
    assert!(identical.is_some() && identical < fixed, "{rules:?}");
}

/// Another program inserts a copy of a rule of ours after the run has read the rules. With iptables-legacy it
/// has to wait for the lock of the tools; a rule that it could insert stays.
#[test]
fn identical_rule_inserted_between_reading_and_writing_survives() {
    let fixture = Fixture { backend: Backend::IptablesLegacy, stack: Stack::Dual };
    let pod = fixture.pod();
    let excluded = ["-b", "*", "-i", "*", "-c", "net9"];
    for change in [&EVERYTHING[..], &["--cleanup-only"]] {
        pod.apply(&excluded);
        let directory = tempfile::tempdir().expect("a temporary directory");
        let insert = "ip=${0##*/}; ip=${ip%-restore}\n\
             if [ ! -e $0.inserted ] && env -u XTABLES_LOCKFILE /usr/sbin/$ip -w 1 -t nat -I PREROUTING -i net9 \
             -j RETURN -c 7 777 2> /dev/null; then : > $0.inserted; fi\nexec {real} \"$@\"\n";
        restore_tools(directory.path(), insert);
        pod.istio_iptables(change).env("PATH", &path(directory.path())).run().succeeded();
        for family in FAMILIES {
            let inserted = directory
                .path()
                .join(format!("{}.inserted", fixture.backend.tool(family, "-restore")))
                .exists();
            let saved = pod.namespace.run(|| tool(&fixture.backend.tool(family, "-save"), &["-c"], ""));
            let identical = "[7:777] -A PREROUTING -i net9 -j RETURN";
            assert_eq!(saved.contains(identical), inserted, "{change:?}: {saved}");
            assert_eq!(saved.matches("-i net9 ").count(), usize::from(inserted), "{change:?}: {saved}");
            if inserted {
                pod.iptables(family, "-t nat -D PREROUTING -i net9 -j RETURN");
            }
        }
    }
}

/// A bounded sample of what `tests/properties/foreign.rs` does without a kernel.
fn random_foreign_rules_survive_every_run(fixture: Fixture) {
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % u64::try_from(below).unwrap()).unwrap()
    };
    let sets: [&[&str]; 5] = [
        &EVERYTHING,
        &["-b", "80", "-c", "eth1"],
        &["-b", "80", "-k", "eth1"],
        &["-b", "*", "-i", "*", "-c", "eth1,eth2", "-k", "eth2"],
        &["-b", "*", "-i", "*", "-m", "TPROXY", "-c", "eth1"],
    ];
    // The server resets its calls: no packet follows that would be counted later.
    let caller = at(Family::V4.outside(), 0);
    for _ in 0..6 {
        let pod = fixture.pod();
        // In TPROXY mode the kernel drops what nothing listens for, and a caller waits for its whole timeout.
        let _proxy = pod.proxy_listens();
        let mut number = 0;
        for round in 0..4 {
            for _ in 0..next(5) {
                number += 1;
                let (chain, side) = if next(2) == 0 { ("PREROUTING", "-i") } else { ("OUTPUT", "-o") };
                let name = ["eth1", "eth2"][next(2)];
                let rule = match next(4) {
                    0 => format!("{side} {name} -m comment --comment n{number} -j RETURN"),
                    1 => format!("{side} {name} -p tcp --dport {number} -j RETURN"),
                    2 => format!("-p tcp -m mark --mark 1337 -m comment --comment n{number} -j RETURN"),
                    _ => format!("{side} {name} -j RETURN"),
                };
                let table = if next(3) == 0 { "mangle" } else { "nat" };
                let position = if next(2) == 0 { format!("-I {chain}") } else { format!("-A {chain}") };
                insert(&pod, &format!("-t {table} {position} {rule}"));
            }
            let _calls = pod.outside().call_reset_by_server(caller, at(Family::V4.pod(), 9));
            let tell = |pod: &Pod| -> Vec<String> {
                let tables = FAMILIES
                    .into_iter()
                    .flat_map(|family| ["nat", "mangle"].map(|table| shared(pod, family, table)));
                let rules = tables.flat_map(|chains| chains.into_values().flatten());
                rules.filter(|rule| rule.contains("--comment n") || rule.contains("--dport")).collect()
            };
            let plain = |pod: &Pod| pod.save(Family::V4).matches(" -j RETURN\n").count();
            let before = (tell(&pod), plain(&pod));
            if round < 3 {
                pod.apply(sets[next(sets.len())]);
                assert_eq!(tell(&pod), before.0, "foreign rules with their counters");
            } else {
                cleanup(&pod);
                assert_eq!(tell(&pod), before.0, "foreign rules with their counters");
                assert!(plain(&pod) <= before.1);
            }
        }
    }
}

/// Only iptables-nft has tables that can be dormant.
#[test]
fn dormant_table_is_an_error_with_the_command_that_wakes_it() {
    let fixture = Fixture { backend: Backend::IptablesNft, stack: Stack::Dual };
    let pod = fixture.pod();
    let nft = |args: &[&str]| pod.namespace.run(|| tool("nft", args, ""));
    nft(&["add table ip nat { flags dormant; }"]);
    let run = pod.istio_iptables(&EVERYTHING).run().ended_with(70);
    run.output_contains("dormant").output_contains("nft add table ip nat");
    nft(&["add table ip nat"]);
    pod.apply(&EVERYTHING);
    nft(&["add table ip nat { flags dormant; }"]);
    let verify = [&EVERYTHING[..], &["--verify"]].concat();
    pod.istio_iptables(&verify).run().ended_with(70).output_contains("nft add table ip nat");
    let validate =
        [&EVERYTHING[..], &["--skip-rule-apply", "--run-validation", "--probe-timeout", "1s"]].concat();
    pod.istio_iptables(&validate).run().ended_with(126).output_contains("nft add table ip nat");
    nft(&["add table ip nat"]);
    pod.apply(&verify);
}

/// The tables of native nftables are the program's own: it switches them on.
#[test]
fn dormant_native_table_is_switched_on() {
    let pod = Fixture { backend: Backend::Native, stack: Stack::Dual }.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    let target = at(Family::V4.pod(), 8080);
    // Before the first run, and under its rules.
    for _ in 0..2 {
        pod.namespace.run(|| tool("nft", &["add table inet istio-proxy-nat { flags dormant; }"], ""));
        pod.outside().call(target).served_by("app");
        pod.apply(&[&EVERYTHING[..], &["--verify"]].concat());
        pod.outside().call(target).captured(15006, target);
    }
}
