//! Foreign rules are unchanged; rules of Istio's own programs count as ours.

use crate::istio_leftovers::{ISTIO_1_14, ISTIO_TODAY, istio_leftovers, istio_tproxy_ran_three_times};
use crate::lab::fixture::at;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend, for_these_fixtures};

for_each_backend!(
    foreign_rules_are_unchanged_after_cleanup,
    foreign_rules_survive_option_changes,
    foreign_rules_added_later_survive,
    rules_of_istio_1_14_are_cleaned_up,
    rules_and_routes_of_istios_tproxy_mode_are_taken_over,
    rules_and_routes_of_istios_tproxy_mode_are_cleaned_up,
    foreign_policy_routing_is_not_changed,
    foreign_rules_with_our_shape_keep_their_position,
    foreign_rule_behind_our_jump_does_not_move_before_it,
    chain_with_foreign_jump_is_kept_and_logged,
    ambiguous_rules_are_kept_and_reported,
    rules_that_are_deleted_without_a_record_are_named,
    rules_of_istio_1_14_are_updated,
    rules_of_todays_istio_are_already_converged,
    rules_of_the_other_iptables_variant_are_deleted,
);
for_these_fixtures!(
    native: Native Dual;
    [
        foreign_rules_are_unchanged_after_cleanup,
        foreign_rules_survive_option_changes,
        foreign_rules_added_later_survive,
        rules_of_istio_1_14_are_cleaned_up,
        rules_and_routes_of_istios_tproxy_mode_are_taken_over,
        rules_and_routes_of_istios_tproxy_mode_are_cleaned_up,
        foreign_policy_routing_is_not_changed,
    ]
);

const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];

/// Option sets that between them write every rule there is.
const SETS: [&[&str]; 5] = [
    &EVERYTHING,
    &["-b", "80,8080", "-i", "10.0.0.0/8,fd00::/8", "-o", "25", "-q", "443", "-k", "br0"],
    &["-b", "*", "-i", "*", "-m", "TPROXY", "-c", "eth1", "-d", "15020", "--drop-invalid"],
    &["-b", "*", "-i", "*", "-c", "eth1,eth2", "-k", "br0,br1", "--redirect-dns", "--capture-all-dns"],
    &[
        "-b",
        "80",
        "-m",
        "TPROXY",
        "-t",
        "500",
        "-r",
        "200",
        "-u",
        "5,6",
        "-g",
        "7",
        "--redirect-dns",
        "--capture-all-dns",
    ],
];

/// Foreign rules in every table, in the chains that ours use and in others. Not among them: a pair that
/// excludes one interface both ways, which is indistinguishable from the pair that `-c` writes.
const FOREIGN: &str = "\
*raw
:THEIRS -
-A PREROUTING -p udp -m udp --dport 4789 -j NOTRACK
-A OUTPUT -p udp -m udp --dport 4789 -j THEIRS
-A THEIRS -p udp -m udp --sport 4789 -j NOTRACK
COMMIT
*mangle
-A PREROUTING -p tcp -m tcp --dport 9999 -j MARK --set-xmark 0x7/0xffffffff
-A OUTPUT -p tcp -m mark --mark 0x7 -j RETURN
-A OUTPUT -o lo -p tcp -m connmark --mark 0x7 -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff
COMMIT
*nat
:THEIRS -
-A PREROUTING -p tcp -m tcp --dport 9999 -j REDIRECT --to-ports 9998
-A PREROUTING -i eth8 -j RETURN
-A OUTPUT -p tcp -m tcp --dport 9999 -j THEIRS
-A OUTPUT -o eth9 -j RETURN
-A POSTROUTING -o eth9 -j MASQUERADE
-A THEIRS -m owner --uid-owner 77 -j RETURN
COMMIT
*filter
:THEIRS -
-A INPUT -p tcp -m tcp --dport 9997 -j DROP
-A OUTPUT -p tcp -m tcp --dport 9997 -j THEIRS
-A THEIRS -j ACCEPT
COMMIT
";

fn saved(pod: &Pod) -> String {
    pod.save(Family::V4) + &pod.save(Family::V6)
}

fn with_foreign_rules(fixture: Fixture) -> Pod {
    let pod = fixture.pod();
    for family in [Family::V4, Family::V6] {
        pod.restore(family, FOREIGN);
    }
    pod
}

/// The rules of FOREIGN that are live in the pod, in order.
fn foreign_in(pod: &Pod) -> Vec<String> {
    let foreign: Vec<_> = FOREIGN.lines().filter(|line| line.starts_with("-A")).collect();
    // Some versions of iptables-save write the old name of the target, some the new.
    let lines = saved(pod).replace("-j CT --notrack", "-j NOTRACK");
    lines.lines().filter(|line| foreign.contains(line)).map(str::to_owned).collect()
}

fn foreign_rules_are_unchanged_after_cleanup(fixture: Fixture) {
    for args in SETS {
        let pod = with_foreign_rules(fixture);
        let (before, state) = (saved(&pod), pod.state());
        pod.apply(args);
        assert_ne!(pod.state(), state, "{args:?} must write something");
        pod.plain_istio_iptables(&["--cleanup-only", "--backend", fixture.backend.flag()]).run().succeeded();
        assert_eq!(saved(&pod), before, "after {args:?} and cleanup");
        assert_eq!(pod.state(), state, "after {args:?} and cleanup");
    }
}

fn foreign_rules_survive_option_changes(fixture: Fixture) {
    let pod = with_foreign_rules(fixture);
    let (before, foreign) = (saved(&pod), foreign_in(&pod));
    assert_eq!(
        foreign.len(),
        2 * FOREIGN.matches("-A ").count(),
        "all foreign rules are recognised:\n{before}"
    );
    for args in SETS.iter().chain(SETS.iter().rev()) {
        pod.apply(args);
        assert_eq!(foreign_in(&pod), foreign, "with {args:?}");
    }
    pod.apply(&["--cleanup-only"]);
    assert_eq!(saved(&pod), before);
}

/// Before ours and after ours.
fn foreign_rules_added_later_survive(fixture: Fixture) {
    for args in SETS {
        let pod = fixture.pod();
        pod.apply(args);
        let own = pod.state();
        for family in [Family::V4, Family::V6] {
            pod.restore(family, FOREIGN);
            pod.iptables(family, "-t nat -I OUTPUT -p tcp --dport 9996 -j ACCEPT");
            pod.iptables(family, "-t nat -I PREROUTING -p tcp --dport 9996 -j ACCEPT");
            pod.iptables(family, "-t mangle -I PREROUTING -p tcp --dport 9996 -j ACCEPT");
        }
        let both = pod.state();
        pod.apply(args).output_contains("converged");
        assert_eq!(pod.state(), both, "{args:?}: foreign rules do not count as a difference");
        assert_ne!(own, both);
        pod.plain_istio_iptables(&["--cleanup-only", "--backend", fixture.backend.flag()]).run().succeeded();
        let alone = with_foreign_rules(fixture);
        for family in [Family::V4, Family::V6] {
            alone.iptables(family, "-t nat -I OUTPUT -p tcp --dport 9996 -j ACCEPT");
            alone.iptables(family, "-t nat -I PREROUTING -p tcp --dport 9996 -j ACCEPT");
            alone.iptables(family, "-t mangle -I PREROUTING -p tcp --dport 9996 -j ACCEPT");
        }
        assert_eq!(pod.state(), alone.state(), "after {args:?} and cleanup");
    }
}

/// A foreign rule excludes eth1, identical to ours. Ours are appended, so the foreign ones keep their
/// position.
fn foreign_rules_with_our_shape_keep_their_position(fixture: Fixture) {
    let alike = "\
*nat
-A PREROUTING -i eth1 -j RETURN
-A PREROUTING -p tcp -m tcp --dport 9999 -j RETURN
-A OUTPUT -o eth1 -j RETURN
-A OUTPUT -p tcp -m tcp --dport 9999 -j RETURN
COMMIT
*mangle
-A PREROUTING -i eth1 -j RETURN
-A PREROUTING -p tcp -m tcp --dport 9999 -j RETURN
-A OUTPUT -o eth1 -j RETURN
-A OUTPUT -p tcp -m mark --mark 0x539 -o lo -j RETURN
-A OUTPUT -p tcp -m tcp --dport 9999 -j RETURN
COMMIT
";
    for mode in ["REDIRECT", "TPROXY"] {
        let args = ["-b", "*", "-i", "*", "-c", "eth1", "-m", mode];
        let pod = fixture.pod();
        for family in [Family::V4, Family::V6] {
            pod.restore(family, alike);
        }
        let before = saved(&pod);
        pod.apply(&args);
        pod.apply(&args).output_contains("converged");
        pod.apply(&["--cleanup-only"]);
        assert_eq!(saved(&pod), before, "{mode}");
    }
}

/// The options that Istio's rules without TPROXY were written with.
const SIDECAR: [&str; 6] = ["-b", "*", "-d", "15090,15021,15020", "-i", "*"];

fn rules_of_istio_1_14_are_updated(fixture: Fixture) {
    for args in [&SIDECAR[..], &["-b", "80", "-i", "10.0.0.0/8"], &["-b", "*", "-m", "TPROXY"]] {
        let (pod, fresh) = (fixture.pod(), fixture.pod());
        istio_leftovers(&pod, ISTIO_1_14);
        pod.apply(args);
        fresh.apply(args);
        assert_eq!(pod.state(), fresh.state(), "{args:?}");
    }
}

fn rules_of_istio_1_14_are_cleaned_up(fixture: Fixture) {
    let pod = fixture.pod();
    istio_leftovers(&pod, ISTIO_1_14);
    pod.apply(&["--cleanup-only"]);
    assert!(pod.state().is_empty(), "{:?}", pod.state());
}

fn rules_of_todays_istio_are_already_converged(fixture: Fixture) {
    let (pod, fresh) = (fixture.pod(), fixture.pod());
    istio_leftovers(&pod, ISTIO_TODAY);
    let before = pod.state();
    pod.apply(&SIDECAR).output_contains("converged");
    assert_eq!(pod.state(), before);
    fresh.apply(&SIDECAR);
    assert_eq!(fresh.state(), before, "our rules and Istio's are the same");
}

fn rules_and_routes_of_istios_tproxy_mode_are_taken_over(fixture: Fixture) {
    for args in
        [&["-b", "*", "-i", "*", "-m", "TPROXY"][..], &EVERYTHING, &["-b", "80", "-m", "TPROXY", "-r", "200"]]
    {
        let (pod, fresh) = (fixture.pod(), fixture.pod());
        let _servers = pod.proxy_listens();
        istio_tproxy_ran_three_times(&pod);
        pod.apply(args);
        fresh.apply(args);
        assert_eq!(pod.state(), fresh.state(), "{args:?}");
        for family in fixture.families() {
            pod.outside().call(at(family.pod(), 80)).captured(15006, at(family.pod(), 80));
        }
    }
}

fn rules_and_routes_of_istios_tproxy_mode_are_cleaned_up(fixture: Fixture) {
    let pod = fixture.pod();
    istio_tproxy_ran_three_times(&pod);
    pod.plain_istio_iptables(&["--cleanup-only", "--backend", fixture.backend.flag()]).run().succeeded();
    assert!(pod.state().is_empty(), "{:?}", pod.state());
}

/// Other marks, other tables, and a foreign table 133 that holds more than our route.
fn foreign_policy_routing_is_not_changed(fixture: Fixture) {
    let pod = fixture.pod();
    for family in ["-4", "-6"] {
        let net = if family == "-4" { "10.77.0.0/16" } else { "fd00:77::/32" };
        pod.ip(&format!(
            "{family} rule add fwmark 7 lookup 77\n{family} route add local {net} dev lo table 77"
        ));
        pod.ip(&format!(
            "{family} rule add fwmark 1337 lookup 78\n{family} route add local {net} dev lo table 78"
        ));
    }
    let before = pod.state();
    for args in [&["-b", "*", "-m", "TPROXY"][..], &EVERYTHING, &["-b", "*", "-m", "TPROXY"]] {
        pod.apply(args);
    }
    pod.apply(&["--cleanup-only"]);
    assert_eq!(pod.state(), before);
}

fn rules_of_the_other_iptables_variant_are_deleted(fixture: Fixture) {
    let other = match fixture.backend {
        Backend::IptablesNft | Backend::Native => Backend::IptablesLegacy,
        Backend::IptablesLegacy => Backend::IptablesNft,
    };
    let there = Fixture { backend: other, ..fixture };
    for args in SETS {
        let fresh = fixture.pod();
        fresh.apply(args);
        let pod = fixture.pod();
        let run =
            pod.plain_istio_iptables(args).arg("--dual-stack").arg("--backend").arg(there.backend.flag());
        run.run().succeeded();
        pod.apply(args);
        assert_eq!(pod.state(), fresh.state(), "{args:?}");
        let elsewhere = [Family::V4, Family::V6].map(|family| {
            let save = other.tool(family, "-save");
            pod.namespace.run(|| crate::lab::program::tool(&save, &[], ""))
        });
        assert!(!elsewhere.concat().contains("-A "), "{other:?} must hold no rule:\n{}", elsewhere.concat());
    }
}

fn foreign_rule_behind_our_jump_does_not_move_before_it(fixture: Fixture) {
    const BEHIND: &str = "*nat\n-A OUTPUT -p tcp -j ACCEPT\n-A PREROUTING -p tcp -j ACCEPT\nCOMMIT\n";
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    pod.apply(&EVERYTHING);
    for family in [Family::V4, Family::V6] {
        pod.restore(family, BEHIND);
    }
    let excluded = ["-b", "*", "-i", "*", "-c", "eth7", "-k", "br0"];
    for args in [&excluded[..], &EVERYTHING, &["-b", "*", "-i", "*", "--force-apply"]] {
        pod.apply(args);
        for family in [Family::V4, Family::V6] {
            pod.app().call(at(family.service(), 80)).captured(15001, at(family.service(), 80));
            pod.outside().call(at(family.pod(), 8080)).captured(15006, at(family.pod(), 8080));
        }
    }
}

fn chain_with_foreign_jump_is_kept_and_logged(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    pod.restore(Family::V4, "*nat\n:THEIRS -\n-A THEIRS -p tcp -j ISTIO_REDIRECT\nCOMMIT\n");
    for _ in 0..2 {
        pod.apply(&["--cleanup-only"]).output_contains("nat ISTIO_REDIRECT").output_contains("THEIRS");
    }
}

/// In iptables-nft the handles of the rules tell which one is ours; in iptables-legacy nothing does.
fn ambiguous_rules_are_kept_and_reported(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-b", "*", "-c", "eth7"]);
    for family in [Family::V4, Family::V6] {
        pod.iptables(family, "-t nat -I PREROUTING -i eth7 -j RETURN");
    }
    let output = pod.apply(&["-b", "*"]).output();
    let left = pod.state().chain("ip4 nat PREROUTING").iter().filter(|rule| rule.contains("eth7")).count();
    match fixture.backend {
        Backend::IptablesNft | Backend::Native => assert_eq!(left, 1, "{output}"),
        Backend::IptablesLegacy => {
            assert_eq!(left, 2, "{output}");
            assert!(
                output.contains("kept (ours or foreign)") && output.contains("PREROUTING -i eth7 -j RETURN"),
                "{output}"
            );
        }
    }
    assert!(!pod.state().chain("ip4 nat OUTPUT").iter().any(|rule| rule.contains("eth7")), "{output}");
}

/// The pair of an excluded interface beside our jumps is that of Istio's `-c`, which records nothing: a
/// foreign one is named at least.
fn rules_that_are_deleted_without_a_record_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    for family in [Family::V4, Family::V6] {
        pod.iptables(family, "-t nat -A PREROUTING -i net2 -j RETURN");
        pod.iptables(family, "-t nat -A OUTPUT -o net2 -j RETURN");
    }
    let message = "deleted as rules of Istio's binary (no run record";
    let output = pod.apply(&EVERYTHING).output();
    assert!(!output.contains(message), "{output}");
    pod.ip("link set lo alias agent");
    for args in [&["--cleanup-only", "--dry-run"][..], &["--cleanup-only"]] {
        let output = pod.apply(args).output();
        let lines: Vec<_> = output.lines().filter(|line| line.contains(message)).collect();
        for (line, family) in lines.iter().zip(["IPv4", "IPv6"]) {
            assert!(line.contains(family), "{output}");
            assert!(line.contains("`nat PREROUTING -i net2 -j RETURN`"), "{output}");
            assert!(line.contains("`nat OUTPUT -o net2 -j RETURN`"), "{output}");
        }
        assert_eq!(lines.len(), 2, "{output}");
    }
}
