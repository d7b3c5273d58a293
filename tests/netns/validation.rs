//! `--run-validation`: a probe that is captured by the rules, or a clear failure.

use crate::lab::{Family, Fixture, for_each_backend, for_each_fixture};

const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];
/// A probe that arrives does so at once, on a busy machine after a while.
const PASSES: [&str; 3] = ["--run-validation", "--probe-timeout", "60s"];

for_each_fixture!(
    validation_passes_with_live_rules,
    validation_only_run_passes_with_live_rules,
    validation_passes_without_privileges,
    validation_fails_where_there_are_no_rules,
    validation_without_privileges_fails_where_there_are_no_rules,
    validation_probes_the_given_ports,
);

for_each_backend!(validation_fails_if_one_family_has_lost_its_rules);

fn validation_passes_with_live_rules(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&[&EVERYTHING[..], &PASSES].concat());
}

fn validation_only_run_passes_with_live_rules(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let before = pod.state();
    pod.apply(&[&EVERYTHING[..], &["--skip-rule-apply"], &PASSES].concat());
    assert_eq!(pod.state(), before, "validation changes nothing");
}

/// As the `istio-validation` container runs it: user 1337, no capabilities.
fn validation_passes_without_privileges(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let args = [&EVERYTHING[..], &["--skip-rule-apply"], &PASSES].concat();
    pod.istio_iptables(&args).under_user(1337).run().succeeded();
}

fn validation_fails_where_there_are_no_rules(fixture: Fixture) {
    let pod = fixture.pod();
    let args =
        [&EVERYTHING[..], &["--skip-rule-apply", "--run-validation", "--probe-timeout", "1s"]].concat();
    pod.istio_iptables(&args).run().ended_with(126);
    assert!(pod.state().is_empty(), "validation changes nothing: {:?}", pod.state());
}

fn validation_without_privileges_fails_where_there_are_no_rules(fixture: Fixture) {
    let pod = fixture.pod();
    let args =
        [&EVERYTHING[..], &["--skip-rule-apply", "--run-validation", "--probe-timeout", "1s"]].concat();
    pod.istio_iptables(&args).under_user(1337).run().ended_with(126);
}

fn validation_probes_the_given_ports(fixture: Fixture) {
    let pod = fixture.pod();
    let args = ["-b", "*", "-i", "*", "-p", "16001", "-z", "16006", "--iptables-probe-port", "16002"];
    pod.apply(&[&args[..], &PASSES].concat());
}

fn validation_fails_if_one_family_has_lost_its_rules(fixture: Fixture) {
    for family in [Family::V4, Family::V6] {
        let pod = fixture.pod();
        pod.apply(&EVERYTHING);
        pod.iptables(family, "-t nat -F OUTPUT");
        let args =
            [&EVERYTHING[..], &["--skip-rule-apply", "--run-validation", "--probe-timeout", "1s"]].concat();
        pod.istio_iptables(&args).run().ended_with(126);
    }
}
