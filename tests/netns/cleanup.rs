//! Runs that take away what we added, and runs that touch nothing.

use crate::lab::{Backend, Fixture, for_each_backend_and_native};
use crate::repeated_runs::{EVERYTHING, RICH};

for_each_backend_and_native!(
    cleanup_leaves_nothing,
    cleanup_with_other_options_leaves_nothing,
    cleanup_of_a_pod_without_rules_changes_nothing,
    cleanup_without_connections_logs_no_warning,
    a_dry_run_changes_nothing,
);

fn cleanup_leaves_nothing(fixture: Fixture) {
    for args in [&EVERYTHING[..], &RICH] {
        for cleanup in [[&["--cleanup-only"][..], args].concat(), vec!["cleanup"]] {
            let pod = fixture.pod();
            pod.apply(args);
            pod.apply(&cleanup);
            assert!(pod.state().is_empty(), "after {args:?} and {cleanup:?}: {:?}", pod.state());
        }
    }
}

fn cleanup_with_other_options_leaves_nothing(fixture: Fixture) {
    let redirect =
        ["-b", "80", "-i", "10.0.0.0/8", "-c", "eth1", "-k", "br0", "--redirect-dns", "--capture-all-dns"];
    let marks =
        ["-b", "*", "-m", "TPROXY", "-t", "500", "-r", "200", "-c", "eth2,eth3", "-u", "5,6", "-g", "7"];
    for args in [&RICH[..], &redirect, &marks] {
        for options in [&[][..], &["-b", "80"], &["-b", "*", "-m", "TPROXY"]] {
            let pod = fixture.pod();
            pod.apply(args);
            let run = pod.plain_istio_iptables(options).arg("--cleanup-only");
            run.arg("--backend").arg(fixture.backend.flag()).run().succeeded();
            assert!(pod.state().is_empty(), "after {args:?}, cleaned with {options:?}: {:?}", pod.state());
        }
    }
}

fn cleanup_of_a_pod_without_rules_changes_nothing(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["--cleanup-only", "-m", "TPROXY", "-b", "*"]);
    assert!(pod.state().is_empty(), "{:?}", pod.state());
}

fn cleanup_without_connections_logs_no_warning(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-b", "*", "-i", "*"]);
    let output = pod.apply(&["--cleanup-only"]).output();
    assert!(!output.contains("warn") && output.contains("no proxied IPv4 connection is open"), "{output}");
}

fn a_dry_run_changes_nothing(fixture: Fixture) {
    let pod = fixture.pod();
    let chain = if fixture.backend == Backend::Native { "chain istio-output" } else { "-j ISTIO_OUTPUT" };
    pod.apply(&[&RICH[..], &["--dry-run"]].concat()).output_contains(chain);
    assert!(pod.state().is_empty(), "{:?}", pod.state());
    pod.apply(&EVERYTHING);
    let before = pod.state();
    pod.apply(&[&RICH[..], &["--dry-run"]].concat());
    assert_eq!(pod.state(), before);
}
