//! `--backend auto`: which iptables variant a run takes, and that it takes the same one the next time.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::lab::fixture::at;
use crate::lab::program::{Ended, tool};
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(
    v4: IptablesNft V4, dual: IptablesNft Dual;
    [
        an_untouched_pod_gets_nft_rules,
        a_second_run_stays_with_the_variant_of_the_first,
        foreign_legacy_rules_select_legacy_backend,
        empty_legacy_tables_are_ignored,
        foreign_nft_rules_select_nft_backend,
        a_table_that_a_program_owns_is_left_to_it,
        a_native_table_that_a_program_owns_stops_a_run_before_it_writes,
        only_the_owner_of_a_table_can_mend_what_it_drops,
    ]
);

/// The log of a run without a backend option.
const CHOICES: [&[&str]; 3] = [&[], &["--backend", "auto"], &["--backend", "iptables"]];

fn an_untouched_pod_gets_nft_rules(fixture: Fixture) {
    for choice in CHOICES {
        let pod = fixture.pod();
        apply(&pod, choice);
        assert_eq!(variants_with_our_rules(&pod), [Backend::IptablesNft], "{choice:?}");
    }
}

/// Detection must not create what the next detection takes for foreign rules.
fn a_second_run_stays_with_the_variant_of_the_first(fixture: Fixture) {
    for first in [Backend::IptablesNft, Backend::IptablesLegacy] {
        let pod = fixture.pod();
        apply(&pod, &["--backend", first.flag()]);
        for choice in CHOICES {
            apply(&pod, choice);
            assert_eq!(variants_with_our_rules(&pod), [first], "{choice:?}");
        }
    }
}

fn foreign_legacy_rules_select_legacy_backend(fixture: Fixture) {
    for choice in CHOICES {
        let pod = fixture.pod();
        legacy(&pod, &["-A", "INPUT", "-p", "tcp", "--dport", "9999", "-j", "DROP"]);
        apply(&pod, choice);
        assert_eq!(variants_with_our_rules(&pod), [Backend::IptablesLegacy], "{choice:?}");
    }
}

/// A mere `iptables-legacy -L` by whomever makes them.
fn empty_legacy_tables_are_ignored(fixture: Fixture) {
    for choice in CHOICES {
        let pod = fixture.pod();
        for table in ["filter", "nat", "mangle", "raw"] {
            legacy(&pod, &["-n", "-t", table, "-L"]);
        }
        apply(&pod, choice);
        assert_eq!(variants_with_our_rules(&pod), [Backend::IptablesNft], "{choice:?}");
    }
}

fn foreign_nft_rules_select_nft_backend(fixture: Fixture) {
    for choice in CHOICES {
        let pod = fixture.pod();
        pod.iptables(Family::V4, "-A INPUT -p tcp --dport 9999 -j DROP");
        apply(&pod, choice);
        assert_eq!(variants_with_our_rules(&pod), [Backend::IptablesNft], "{choice:?}");
    }
}

/// The kernel lets only its owner change a table with `flags owner`, not even add a chain.
fn a_table_that_a_program_owns_is_left_to_it(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    let mut owner = owner_of(&pod, "ip nat");
    let named = "the nftables table ip nat belongs to a running program (flags owner)";
    let asked = ["-b", "*", "-i", "*", "--backend", "iptables-nft"];
    pod.plain_istio_iptables(&asked).run().ended_with(69).output_contains(named);
    for choice in [CHOICES[0], CHOICES[1]] {
        apply(&pod, choice).output_contains(&format!("iptables-nft is not used: {named}"));
        assert_eq!(variants_with_our_rules(&pod), [], "{choice:?}");
        let service = at(Family::V4.service(), 80);
        pod.app().call(service).captured(15001, service);
    }
    pod.plain_istio_iptables(&["--cleanup-only"]).run().succeeded();
    apply(&pod, &["--backend", "iptables"]);
    assert_eq!(variants_with_our_rules(&pod), [Backend::IptablesLegacy]);
    drop(owner.stdin.take());
    owner.wait().expect("nft ends");
}

/// A table with the name of one of ours: a run writes nothing, with any backend, as iptables and that table
/// would both capture.
fn a_native_table_that_a_program_owns_stops_a_run_before_it_writes(fixture: Fixture) {
    let pod = fixture.pod();
    let mut owner = owner_of(&pod, "inet istio-proxy-nat");
    let named = "the nftables table inet istio-proxy-nat belongs to a running program (flags owner)";
    for choice in [&[][..], &["--backend", "nftables"], &["--cleanup-only"]] {
        let run = pod.plain_istio_iptables(&["-b", "*", "-i", "*"]);
        let run = choice.iter().fold(run, |run, word| run.arg(word)).run().ended_with(70);
        run.output_contains(named).output_contains("`nft list table inet istio-proxy-nat` names it");
        assert_eq!(variants_with_our_rules(&pod), [], "{choice:?}");
    }
    drop(owner.stdin.take());
    owner.wait().expect("nft ends");
    apply(&pod, &["--backend", "nftables"]);
}

/// firewalld's table is such a one: `nft insert rule` would be refused.
fn only_the_owner_of_a_table_can_mend_what_it_drops(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    apply(&pod, &[]);
    let mut owner = owner_of(&pod, "inet wall");
    let input = owner.stdin.as_mut().expect("its input");
    let chain = "add chain inet wall input { type filter hook input priority 0; policy drop; }";
    writeln!(input, "{chain}").expect("write to nft");
    let named = "fix: the table inet wall belongs to a running program (flags owner)";
    let shown = || pod.plain_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
    let deadline = Instant::now() + Duration::from_secs(10);
    let report = std::iter::repeat_with(shown).find(|text| text.contains(named) || Instant::now() > deadline);
    let report = report.expect("a report");
    assert!(report.contains(named) && !report.contains("`nft insert rule inet wall"), "{report}");
    drop(owner.stdin.take());
    owner.wait().expect("nft ends");
    let left = shown();
    assert!(!left.contains("inet wall"), "{left}");
}

/// A program that makes a table which only it may change, and that goes when its input ends.
fn owner_of(pod: &Pod, table: &str) -> Child {
    let mut owner = pod.namespace.run(|| {
        Command::new("nft").arg("-i").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("start nft")
    });
    let mut input = owner.stdin.as_ref().expect("its input");
    writeln!(input, "add table {table} {{ flags owner; }}\nlist tables").expect("write to nft");
    let listed = BufReader::new(owner.stdout.take().expect("its output")).lines();
    let listed = listed.map(|line| line.expect("a line")).find(|line| line.contains(table));
    listed.expect("the table is there");
    owner
}

fn apply(pod: &Pod, choice: &[&str]) -> Ended {
    let run = pod.plain_istio_iptables(&["-b", "*", "-i", "*"]);
    choice.iter().fold(run, |run, word| run.arg(word)).run().succeeded()
}

fn legacy(pod: &Pod, args: &[&str]) {
    pod.namespace.run(|| tool("iptables-legacy", &[&["--wait"], args].concat(), ""));
}

/// The variants that hold a jump to one of our chains.
fn variants_with_our_rules(pod: &Pod) -> Vec<Backend> {
    let holds = |backend: &Backend| {
        let save = backend.tool(Family::V4, "-save");
        pod.namespace.run(|| tool(&save, &[], "")).contains("-j ISTIO_OUTPUT")
    };
    [Backend::IptablesNft, Backend::IptablesLegacy].into_iter().filter(holds).collect()
}
