//! Re-runs: what is written, corrected and deleted.

use std::fmt::Write;

use iptables::IPTables;
use nfnetlink::nftables::Client;

use crate::lab::fixture::at;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend, for_these_fixtures};

pub(crate) const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];
/// A bit of everything, so that every table has rules.
pub(crate) const RICH: [&str; 18] = [
    "-b",
    "*",
    "-d",
    "15020,15090",
    "-i",
    "*",
    "-x",
    "10.9.0.0/16,fd00:99::/32",
    "-o",
    "5432",
    "-c",
    "eth1",
    "-m",
    "TPROXY",
    "--redirect-dns",
    "--capture-all-dns",
    "--drop-invalid",
    "--dual-stack",
];

for_each_backend!(
    second_run_writes_nothing,
    a_forced_second_run_ends_in_the_same_state,
    lost_route_policy_rule_or_address_is_restored,
    concurrent_runs_leave_one_set_of_rules,
    verify_passes_on_what_was_just_applied,
    rules_in_another_order_are_corrected,
    lost_rule_is_restored,
    lost_chain_is_restored,
    extra_rule_is_deleted,
    duplicate_jump_is_deleted,
    lost_jump_is_restored,
    a_table_that_is_not_written_yet_is_completed,
    the_iptables_crate_reads_the_same_rules,
);
for_these_fixtures!(
    native: Native Dual;
    [
        second_run_begins_no_transaction,
        a_forced_second_run_ends_in_the_same_state,
        lost_route_policy_rule_or_address_is_restored,
        concurrent_runs_leave_one_set_of_rules,
        verify_passes_on_what_was_just_applied,
    ]
);

/// Counters are reset by a rewrite; here they must continue.
fn second_run_writes_nothing(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    for args in [&EVERYTHING[..], &RICH] {
        pod.apply(args);
        let once = pod.state();
        pod.outside().call(at(Family::V4.pod(), 8080)).served_by("proxy");
        let counted = counters(&pod);
        pod.apply(args).output_contains("converged");
        assert_eq!(pod.state(), once, "the state after a second run");
        assert_eq!(counters(&pod), counted, "nothing is written, so the counters stay");
    }
}

/// Each transaction raises the generation.
fn second_run_begins_no_transaction(fixture: Fixture) {
    let pod = fixture.pod();
    let generation =
        || pod.namespace.run(|| Client::open().and_then(|mut client| client.generation()).unwrap());
    for args in [&EVERYTHING[..], &RICH] {
        pod.apply(args);
        let before = (pod.state(), generation());
        pod.apply(args).output_contains("converged");
        assert_eq!((pod.state(), generation()), before, "after a second run");
    }
}

fn counters(pod: &Pod) -> String {
    pod.iptables(Family::V4, "-t nat -L ISTIO_OUTPUT -v -x -n")
        + &pod.iptables(Family::V4, "-t nat -L PREROUTING -v -x -n")
}

fn a_forced_second_run_ends_in_the_same_state(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&RICH);
    let once = pod.state();
    pod.apply(&[&RICH[..], &["--force-apply"]].concat());
    assert_eq!(pod.state(), once);
}

fn rules_in_another_order_are_corrected(fixture: Fixture) {
    restored_after(fixture, |pod, family| {
        let (table, chain) = ("nat", "ISTIO_OUTPUT");
        let first = pod.iptables(family, &format!("-t {table} -S {chain} 1"));
        let rule = first.trim().strip_prefix("-A ISTIO_OUTPUT ").expect("a rule").to_owned();
        pod.iptables(family, &format!("-t {table} -D {chain} 1"));
        pod.iptables(family, &format!("-t {table} -A {chain} {rule}"));
    });
}

fn lost_rule_is_restored(fixture: Fixture) {
    for (table, chain) in [("nat", "ISTIO_OUTPUT"), ("mangle", "ISTIO_INBOUND"), ("raw", "ISTIO_OUTPUT_DNS")]
    {
        restored_after(fixture, |pod, family| {
            pod.iptables(family, &format!("-t {table} -D {chain} 2"));
        });
    }
}

fn lost_chain_is_restored(fixture: Fixture) {
    restored_after(fixture, |pod, family| {
        pod.iptables(family, "-t mangle -D ISTIO_INBOUND -p tcp -j ISTIO_TPROXY");
        pod.iptables(family, "-t mangle -F ISTIO_TPROXY");
        pod.iptables(family, "-t mangle -X ISTIO_TPROXY");
    });
}

fn extra_rule_is_deleted(fixture: Fixture) {
    for rule in
        ["-t nat -I ISTIO_OUTPUT -p tcp --dport 9999 -j RETURN", "-t mangle -A ISTIO_DIVERT -j ACCEPT"]
    {
        restored_after(fixture, |pod, family| {
            pod.iptables(family, rule);
        });
    }
}

fn duplicate_jump_is_deleted(fixture: Fixture) {
    for rule in [
        "-t nat -A OUTPUT -j ISTIO_OUTPUT",
        "-t nat -I OUTPUT -j ISTIO_OUTPUT",
        "-t mangle -A PREROUTING -p tcp -j ISTIO_INBOUND",
        "-t raw -A OUTPUT -j ISTIO_OUTPUT_DNS",
    ] {
        restored_after(fixture, |pod, family| {
            pod.iptables(family, rule);
        });
    }
}

fn lost_jump_is_restored(fixture: Fixture) {
    for rule in [
        "-t nat -D OUTPUT -j ISTIO_OUTPUT",
        "-t mangle -D PREROUTING -p tcp -j ISTIO_INBOUND",
        "-t raw -D PREROUTING -j ISTIO_INBOUND",
    ] {
        restored_after(fixture, |pod, family| {
            pod.iptables(family, rule);
        });
    }
    restored_after(fixture, |pod, family| {
        pod.iptables(family, "-t nat -D PREROUTING -i eth1 -j RETURN");
        pod.iptables(family, "-t nat -D OUTPUT -o eth1 -j RETURN");
    });
}

/// What a run leaves behind that is killed between two tables, or between the families.
fn a_table_that_is_not_written_yet_is_completed(fixture: Fixture) {
    for tables in [&["nat"][..], &["mangle"], &["raw"], &["nat", "raw"], &["nat", "mangle", "raw"]] {
        for families in [&[Family::V4][..], &[Family::V6]] {
            let pod = fixture.pod();
            pod.apply(&RICH);
            let whole = pod.state();
            for (table, &family) in tables.iter().flat_map(|table| families.iter().map(move |f| (table, f))) {
                pod.iptables(family, &format!("-t {table} -F"));
                pod.iptables(family, &format!("-t {table} -X"));
            }
            pod.apply(&RICH);
            assert_eq!(pod.state(), whole, "{tables:?} of {families:?} were missing");
        }
    }
}

fn lost_route_policy_rule_or_address_is_restored(fixture: Fixture) {
    for lost in [
        "-4 rule delete fwmark 1337 lookup 133",
        "-6 rule delete fwmark 1337 lookup 133",
        "-4 route flush table 133",
        "-6 route flush table 133",
        "-6 address delete ::6/128 dev lo",
    ] {
        let pod = fixture.pod();
        pod.apply(&RICH);
        let whole = pod.state();
        pod.ip(lost);
        assert_ne!(pod.state(), whole, "{lost} must be visible");
        pod.apply(&RICH);
        assert_eq!(pod.state(), whole, "after {lost}");
    }
}

/// An init container that is started again while its predecessor still works.
fn concurrent_runs_leave_one_set_of_rules(fixture: Fixture) {
    for args in [&EVERYTHING[..], &RICH] {
        let (pod, fresh) = (fixture.pod(), fixture.pod());
        fresh.apply(args);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| pod.apply(args));
            }
        });
        assert_eq!(pod.state(), fresh.state(), "after three runs at once with {args:?}");
    }
}

fn verify_passes_on_what_was_just_applied(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&[&RICH[..], &["--verify"]].concat());
    pod.apply(&[&EVERYTHING[..], &["--verify"]].concat());
}

/// The crate reports a missing chain as an empty list, so each list is preceded by a question that can fail.
fn the_iptables_crate_reads_the_same_rules(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let cmd = match fixture.backend {
        Backend::IptablesNft | Backend::Native => "/usr/sbin/iptables-nft",
        Backend::IptablesLegacy => "/usr/sbin/iptables-legacy",
    };
    let reader = IPTables { cmd, has_check: true, has_wait: true, is_numeric: false };
    // To ask for a chain it lists it, and without numbers that asks a name server for each address; to list
    // it numerically fails.
    let numeric = IPTables { is_numeric: true, ..reader };
    let listed = pod.namespace.run(|| {
        assert!(numeric.chain_exists("nat", "ISTIO_OUTPUT").expect("ask for a chain"), "ISTIO_OUTPUT exists");
        assert!(
            !numeric.chain_exists("nat", "ISTIO_NOTHING").expect("ask for a chain"),
            "ISTIO_NOTHING does not"
        );
        assert!(
            reader.exists("nat", "OUTPUT", "-j ISTIO_OUTPUT").expect("ask for a rule"),
            "the jump exists"
        );
        reader.list("nat", "ISTIO_OUTPUT").expect("list a chain")
    });
    let mut expected = "-N ISTIO_OUTPUT\n".to_owned();
    for rule in pod.state().chain("ip4 nat ISTIO_OUTPUT") {
        writeln!(expected, "-A ISTIO_OUTPUT {rule}").expect("write to a string");
    }
    assert_eq!(listed.join("\n").trim(), expected.trim());
}

/// Damages a pod, runs again, and compares with what was there before the damage.
fn restored_after(fixture: Fixture, damage: impl Fn(&Pod, Family)) {
    for &family in fixture.families() {
        let pod = fixture.pod();
        pod.apply(&RICH);
        let whole = pod.state();
        damage(&pod, family);
        assert_ne!(pod.state(), whole, "the damage must be visible");
        pod.apply(&RICH);
        assert_eq!(pod.state(), whole, "{family:?} rules after a second run");
    }
}
