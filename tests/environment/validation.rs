//! The probe, as root and as the user that `istio-validation` runs as.

use std::time::Duration;

use crate::pod::{Ended, Pod, SIDECAR};

/// Where the probe fails: however long it waits.
const VALIDATE: [&str; 4] = ["--run-validation", "--skip-rule-apply", "--probe-timeout", "1500ms"];
/// Where it arrives: at once, on a busy machine after a while.
const PATIENT: [&str; 2] = ["--probe-timeout", "60s"];
/// As Kubernetes starts it: the proxy's user, no capability.
const AS_PROXY: [&str; 6] =
    ["setpriv", "--reuid=1337", "--regid=1337", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all"];

fn validate(pod: &Pod, more: &[&str], under: Option<&[&str]>) -> Ended {
    let run = pod.istio(&[&SIDECAR[..], &VALIDATE, more].concat());
    match under {
        Some(wrapper) => run.under(wrapper),
        None => run,
    }
    .end()
}

#[test]
fn validation_without_rules_fails_with_hint() {
    let pod = Pod::new();
    for under in [None, Some(&AS_PROXY[..])] {
        let before = pod.state();
        validate(&pod, &[], under)
            .exits(126)
            .stderr_contains("validation failed")
            .stderr_contains("istio-init")
            .stderr_contains("what to do: ");
        assert_eq!(pod.state(), before);
    }
}

#[test]
fn with_rules_validation_passes() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::dual();
        pod.istio(&[&SIDECAR[..], &["--dual-stack", "--force-iptables-binary", variant]].concat()).good();
        for under in [None, Some(&AS_PROXY[..])] {
            validate(&pod, &[&["--dual-stack"], &PATIENT[..]].concat(), under)
                .exits(0)
                .stderr_contains("validation passed");
        }
    }
}

#[test]
fn with_rules_for_one_family_only_dual_stack_validation_fails() {
    let pod = Pod::dual();
    pod.istio(&SIDECAR).good();
    validate(&pod, &["--dual-stack"], Some(&AS_PROXY)).exits(126).stderr_contains("IPv6");
}

#[test]
fn applying_and_validating_is_one_run() {
    let pod = Pod::new();
    pod.istio(&[&SIDECAR[..], &["--run-validation"], &PATIENT].concat())
        .good()
        .stderr_contains("validation passed");
}

#[test]
fn probe_without_setuid_capability_is_reported() {
    let pod = Pod::new();
    pod.istio(&SIDECAR).good();
    let before = pod.state();
    validate(
        &pod,
        &[],
        Some(&[
            "setpriv",
            "--reuid=4711",
            "--regid=4711",
            "--clear-groups",
            "--bounding-set=-all",
            "--inh-caps=-all",
        ]),
    )
    .exits(126)
    .stderr_contains("1337");
    // With the right to read the rules, those decide.
    validate(&pod, &[], Some(&["setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all"])).exits(0);
    assert_eq!(pod.state(), before);
}

#[test]
fn unavailable_port_is_reported() {
    let pod = Pod::new();
    validate(&pod, &["-p", "1"], Some(&AS_PROXY))
        .exits(126)
        .stderr_contains("cannot listen on port 1 ")
        .stderr_contains("-p and -z");
    // Another probe listens already, until its time is up.
    let other = pod.istio(&["--run-validation", "--skip-rule-apply", "--probe-timeout", "600s"]).start();
    let listening = || pod.sh("ss -Hltn 2>/dev/null | grep -c :15006 || :");
    while listening() == "0\n" {
        std::thread::sleep(Duration::from_millis(10));
    }
    validate(&pod, &[], Some(&AS_PROXY))
        .exits(126)
        .stderr_contains("cannot listen on port 15001 ")
        .stderr_contains("is the proxy running already");
    other.kill();
}

#[test]
fn exempt_probe_is_not_reported_as_missing_rules() {
    let pod = Pod::new();
    let probed = ["--run-validation", "--probe-timeout", "500ms", "-o", "15002"];
    pod.istio(&[&SIDECAR[..], &probed].concat())
        .end()
        .exits(126)
        .stderr_contains("the probe is exempt")
        .stderr_contains("-o");
}
