//! A run may be killed anywhere; the next one puts everything right.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use crate::lab::program::{Program, tool};
use crate::lab::tools::path;
use crate::lab::{Backend, Family, Fixture, Pod, Stack, for_each_backend, for_these_fixtures};

for_each_backend!(
    killed_first_run_is_completed_by_next_run,
    killed_change_is_completed_by_next_run,
    killed_cleanup_is_completed_by_next_run,
    killed_at_any_message_of_first_run_is_completed_by_next_run,
    killed_at_any_message_of_change_is_completed_by_next_run,
    killed_at_any_message_of_cleanup_is_completed_by_next_run,
    killed_at_any_message_of_move_is_completed_by_next_run,
);

// Without tools, a run is killed at messages only.
for_these_fixtures!(
    native: Native Dual;
    [
        killed_at_any_message_of_first_run_is_completed_by_next_run,
        killed_at_any_message_of_change_is_completed_by_next_run,
        killed_at_any_message_of_cleanup_is_completed_by_next_run,
        killed_at_any_message_of_move_is_completed_by_next_run,
    ]
);
for_these_fixtures!(
    nft_with_identical_rules: IptablesNft Dual;
    [
        killed_beside_identical_foreign_rules_leaves_no_part_of_a_set,
        killed_run_beside_identical_foreign_rules_leaves_no_rule_of_ours,
        foreign_rule_before_those_of_a_killed_run_stays,
    ]
);
for_these_fixtures!(nft_in_mangle: IptablesNft Dual; [killed_cleanup_leaves_identical_foreign_rules, killed_change_leaves_no_rule_unnamed]);
for_these_fixtures!(legacy_in_mangle: IptablesLegacy Dual; [killed_cleanup_leaves_identical_foreign_rules, killed_change_leaves_no_rule_unnamed]);

const TPROXY: [&str; 10] =
    ["-b", "*", "-i", "*", "-m", "TPROXY", "-c", "eth1", "--redirect-dns", "--capture-all-dns"];
const LISTS: [&str; 8] = ["-b", "80,8080", "-i", "10.0.0.0/8,fd00::/8", "-o", "25", "-k", "br0"];

/// Moments at which a run and its tools are killed, from before the first write until after the last: in the
/// middle of a tool's work, too. Between messages and tools it is killed exactly
/// (`killed_at_any_message_of_…`).
fn moments() -> impl Iterator<Item = Duration> {
    (0..20).map(|step| Duration::from_micros(step * step * 100))
}

fn killed_first_run_is_completed_by_next_run(fixture: Fixture) {
    let fresh = fixture.pod();
    fresh.apply(&TPROXY);
    for moment in moments() {
        let pod = fixture.pod();
        pod.istio_iptables(&TPROXY).run_and_kill_after(moment);
        pod.apply(&TPROXY);
        assert_eq!(pod.state(), fresh.state(), "killed after {moment:?}");
    }
}

fn killed_at_any_message_of_first_run_is_completed_by_next_run(fixture: Fixture) {
    let fresh = fixture.pod();
    fresh.apply(&TPROXY);
    at_every_message(
        || fixture.pod(),
        |pod| pod.istio_iptables(&TPROXY),
        |pod, at| {
            pod.apply(&TPROXY);
            assert_eq!(pod.state(), fresh.state(), "killed {at}");
        },
    );
}

fn killed_at_any_message_of_change_is_completed_by_next_run(fixture: Fixture) {
    for (old, new) in [(TPROXY.as_slice(), LISTS.as_slice()), (&LISTS, &TPROXY)] {
        let fresh = fixture.pod();
        fresh.apply(new);
        let with_old_rules = || {
            let pod = fixture.pod();
            pod.apply(old);
            pod
        };
        at_every_message(
            with_old_rules,
            |pod| pod.istio_iptables(new),
            |pod, at| {
                pod.apply(new);
                assert_eq!(pod.state(), fresh.state(), "killed {at}");
            },
        );
    }
}

fn killed_at_any_message_of_cleanup_is_completed_by_next_run(fixture: Fixture) {
    let with_rules = || {
        let pod = fixture.pod();
        pod.apply(&TPROXY);
        pod
    };
    at_every_message(
        with_rules,
        |pod| pod.istio_iptables(&["--cleanup-only"]),
        |pod, at| {
            pod.apply(&["--cleanup-only"]);
            assert!(pod.state().is_empty(), "killed {at}: {:?}", pod.state());
        },
    );
}

/// From each other backend. With these options little but the rules of mangle is in shared chains.
fn killed_at_any_message_of_move_is_completed_by_next_run(fixture: Fixture) {
    const OPTIONS: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];
    let fresh = fixture.pod();
    fresh.apply(&OPTIONS);
    let others = [Backend::IptablesNft, Backend::IptablesLegacy, Backend::Native];
    for other in others.into_iter().filter(|other| *other != fixture.backend) {
        let with_old_rules = || {
            let pod = fixture.pod();
            let old = [&OPTIONS[..], &["--backend", other.flag()]].concat();
            let old = if fixture.stack == Stack::Dual { [&old[..], &["--dual-stack"]].concat() } else { old };
            pod.plain_istio_iptables(&old).run().succeeded();
            pod
        };
        at_every_message(
            with_old_rules,
            |pod| pod.istio_iptables(&OPTIONS),
            |pod, at| {
                let output = pod.apply(&OPTIONS).output();
                assert!(!output.contains("ambiguous"), "from {other:?}, killed {at}: {output}");
                assert_eq!(pod.state(), fresh.state(), "from {other:?}, killed {at}");
            },
        );
    }
}

/// Kills a run at each of its messages that leaves another state than the one before, each time in a new pod.
fn at_every_message(prepare: impl Fn() -> Pod, run: impl Fn(&Pod) -> Program, check: impl Fn(&Pod, &str)) {
    let points = run(&prepare()).points();
    assert!(points.len() > 3, "a run that can be killed at {points:?} only does nothing");
    for (number, when) in points {
        let pod = prepare();
        run(&pod).run_and_kill_at_send(number, when).ended_with(-1);
        check(&pod, &format!("{when:?} message {number}"));
    }
}

fn killed_change_is_completed_by_next_run(fixture: Fixture) {
    for (old, new) in [(TPROXY.as_slice(), LISTS.as_slice()), (&LISTS, &TPROXY)] {
        let fresh = fixture.pod();
        fresh.apply(new);
        for moment in moments() {
            let pod = fixture.pod();
            pod.apply(old);
            pod.istio_iptables(new).run_and_kill_after(moment);
            pod.apply(new);
            assert_eq!(pod.state(), fresh.state(), "killed after {moment:?}");
        }
    }
}

fn killed_cleanup_is_completed_by_next_run(fixture: Fixture) {
    for moment in moments() {
        let pod = fixture.pod();
        pod.apply(&TPROXY);
        pod.istio_iptables(&["--cleanup-only"]).run_and_kill_after(moment);
        pod.apply(&["--cleanup-only"]);
        assert!(pod.state().is_empty(), "killed after {moment:?}: {:?}", pod.state());
    }
}

/// In iptables-nft, rules of ours behind identical foreign ones are deleted one by one, by handle. A run that
/// is killed at a restore leaves the others recognizable.
fn killed_beside_identical_foreign_rules_leaves_no_part_of_a_set(fixture: Fixture) {
    let (ours, next) = (["-b", "*", "-i", "*", "-c", "eth1,net9"], ["-b", "*", "-i", "*"]);
    for when in ["before", "after"] {
        let pod = fixture.pod();
        pod.apply(&ours);
        for &family in fixture.families() {
            pod.iptables(family, "-t nat -I OUTPUT -o net9 -j RETURN");
            pod.iptables(family, "-t nat -I PREROUTING -i net9 -j RETURN");
        }
        killed_at_restore(&pod, &next, fixture.families(), when);
        for args in [&next[..], &["--cleanup-only"]] {
            pod.apply(args);
            for &family in fixture.families() {
                let saved = pod.save(family);
                assert!(!saved.contains("eth1"), "{when} a restore, {args:?}: {saved}");
                for foreign in ["-A OUTPUT -o net9 -j RETURN", "-A PREROUTING -i net9 -j RETURN"] {
                    assert!(saved.contains(foreign), "{when} a restore, {args:?}: {saved}");
                }
            }
        }
    }
}

/// A run that is killed before, or after, the restore tool of one of these families does its work.
fn killed_at_restore(pod: &Pod, args: &[&str], families: &[Family], when: &str) {
    let tools = tempfile::tempdir().expect("a temporary directory");
    for &family in families {
        let tool = pod.fixture.backend.tool(family, "-restore");
        let real = if when == "after" { format!("/usr/sbin/{tool} \"$@\"; ") } else { String::new() };
        let path = tools.path().join(&tool);
        fs::write(&path, format!("#!/bin/sh\n{real}kill -9 $PPID\n")).expect("write a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("make it executable");
    }
    pod.istio_iptables(args).env("PATH", &path(tools.path())).run().ended_with(-1);
}

/// Adds rules like ours, with counters that tell them apart.
fn identical(pod: &Pod, rules: &[&str]) {
    for &family in pod.fixture.families() {
        for rule in rules {
            // `ip6tables-nft` ignores `-c`.
            pod.iptables(family, &format!("{rule} -c 7 777"));
        }
    }
}

/// What is left of the rules before the killed run is named by its handle: an identical foreign rule right
/// before the new ones is not taken for it.
fn foreign_rule_before_those_of_a_killed_run_stays(fixture: Fixture) {
    for (table, mode) in [("nat", "REDIRECT"), ("mangle", "TPROXY")] {
        let pod = fixture.pod();
        let first = ["-b", "*", "-i", "*", "-m", mode, "-c", "net9"];
        let second = ["-b", "80,81", "-i", "*", "-m", mode, "-c", "net9,net8"];
        pod.apply(&first);
        identical(&pod, &[&format!("-t {table} -I PREROUTING -i net9 -j RETURN")]);
        killed_at_restore(&pod, &second, fixture.families(), "after");
        pod.plain_istio_iptables(&["--cleanup-only"]).run().succeeded();
        for &family in fixture.families() {
            let saved = pod.save(family);
            let left: Vec<_> = saved.lines().filter(|line| line.starts_with("-A ")).collect();
            assert_eq!(left, ["-A PREROUTING -i net9 -j RETURN"], "{table} {family:?}");
        }
    }
}

/// Between the restore and the deletion by handle nothing but the record tells our rule from the foreign one.
fn killed_run_beside_identical_foreign_rules_leaves_no_rule_of_ours(fixture: Fixture) {
    let ours = ["-b", "*", "-i", "*", "-c", "eth1,net9", "-k", "net8"];
    let plain = ["-b", "*", "-i", "*"];
    let foreign = [
        "-t nat -I OUTPUT -o net9 -j RETURN",
        "-t nat -I PREROUTING -i net9 -j RETURN",
        "-t nat -I PREROUTING -i net8 -j RETURN",
    ];
    for killed in [&["--cleanup-only"][..], &plain] {
        for when in ["before", "after"] {
            for &family in fixture.families() {
                for native in [true, false] {
                    let pod = fixture.pod();
                    pod.apply(&ours);
                    identical(&pod, &foreign);
                    killed_at_restore(&pod, killed, &[family], when);
                    if native {
                        let run = [&plain[..], &["--backend", "nftables"]].concat();
                        pod.plain_istio_iptables(&run).run().succeeded();
                    }
                    pod.plain_istio_iptables(&["--cleanup-only"]).run().succeeded();
                    for &of in fixture.families() {
                        let saved = pod.save(of);
                        let left: Vec<_> = saved.lines().filter(|line| line.starts_with("-A ")).collect();
                        let case = format!("{killed:?} killed {when} {family:?}, native {native}: {of:?}");
                        assert_eq!(left.len(), foreign.len(), "{case}: {left:?}");
                        if of == Family::V4 {
                            let saved =
                                pod.namespace.run(|| tool(&fixture.backend.tool(of, "-save"), &["-c"], ""));
                            assert_eq!(
                                saved.matches("[7:777] -A ").count(),
                                foreign.len(),
                                "{case}: {saved}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// What a clean-up has deleted already is not to be found in a foreign rule of the same words.
fn killed_cleanup_leaves_identical_foreign_rules(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-b", "*", "-i", "*", "-m", "TPROXY", "-c", "net9"]);
    let foreign = ["-t mangle -A PREROUTING -i net9 -j RETURN", "-t mangle -A OUTPUT -o net9 -j RETURN"];
    killed_at_restore(&pod, &["--cleanup-only"], &[Family::V6], "after");
    identical(&pod, &foreign);
    pod.plain_istio_iptables(&["--cleanup-only"]).run().succeeded();
    for &family in fixture.families() {
        let saved = pod.save(family);
        for rule in ["-A PREROUTING -i net9 -j RETURN", "-A OUTPUT -o net9 -j RETURN"] {
            assert_eq!(saved.matches(rule).count(), 1, "{family:?}: {saved}");
        }
    }
}

/// A run was killed between the families, and foreign rules have shifted ours meanwhile.
fn killed_change_leaves_no_rule_unnamed(fixture: Fixture) {
    let ours = ["-b", "*", "-i", "*", "-m", "TPROXY", "-c", "eth1,net9"];
    let pod = fixture.pod();
    pod.apply(&ours);
    for table in ["nat", "mangle"] {
        for chain in ["PREROUTING", "OUTPUT"] {
            identical(&pod, &[&format!("-t {table} -I {chain} -p tcp --dport 1 -j ACCEPT")]);
        }
    }
    killed_at_restore(&pod, &["-b", "*", "-i", "*", "-m", "TPROXY"], &[Family::V6], "before");
    let said = pod.plain_istio_iptables(&["--cleanup-only"]).run().succeeded().output();
    for &family in fixture.families() {
        let saved = pod.save(family);
        let mut table = "";
        for line in saved.lines() {
            table = line.strip_prefix('*').unwrap_or(table);
            let Some(rule) = line.strip_prefix("-A ").filter(|rule| !rule.contains("--dport 1 ")) else {
                continue;
            };
            assert!(said.contains(&format!("`{table} {rule}`")), "{family:?} {table} {rule} is left: {said}");
        }
    }
}
