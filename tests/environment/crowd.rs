//! Others at work at the same time.

use std::time::{Duration, Instant};

use crate::pod::{Pod, SIDECAR};

const LEGACY: [&str; 2] = ["--force-iptables-binary", "legacy"];

/// Makes somebody hold a lock inside the pod for a while; returns when it is held.
fn held(pod: &Pod, file: &str, seconds: &str) {
    pod.sh(&format!(
        "flock {file} sh -c 'echo > $DIR/held; exec sleep {seconds}' >/dev/null 2>&1 </dev/null & \
         while [ ! -e $DIR/held ]; do sleep 0.01; done"
    ));
}

#[test]
fn a_run_waits_for_whoever_holds_the_xtables_lock() {
    let pod = Pod::new();
    held(&pod, "/run/xtables.lock", "1.5");
    let begin = Instant::now();
    pod.istio(&[&SIDECAR[..], &LEGACY].concat()).good();
    assert!(
        begin.elapsed() >= Duration::from_secs(1),
        "the lock was not respected"
    );
    assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"));
}

#[test]
fn a_lock_that_stays_busy_is_exit_75_and_names_the_lock() {
    let pod = Pod::new();
    held(&pod, "/run/xtables.lock", "45");
    let before = pod.sh("iptables-nft-save; cat /proc/net/ip_tables_names 2>/dev/null || :");
    pod.istio(&[&SIDECAR[..], &LEGACY].concat())
        .end()
        .exits(75)
        .says("/run/xtables.lock")
        .says("fuser");
    assert_eq!(
        pod.sh("iptables-nft-save; cat /proc/net/ip_tables_names 2>/dev/null || :"),
        before
    );
}

#[test]
fn the_xtables_lock_does_not_matter_to_nft() {
    let pod = Pod::new();
    held(&pod, "/run/xtables.lock", "20");
    let begin = Instant::now();
    pod.istio(&SIDECAR).good();
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn in_cni_mode_the_hosts_xtables_lock_does_not_matter() {
    let pod = Pod::new();
    held(&pod, "/run/xtables.lock", "20");
    let begin = Instant::now();
    pod.istio(&[&SIDECAR[..], &LEGACY, &["--cni-mode"]].concat())
        .good();
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_run_waits_for_another_run_in_the_same_namespace() {
    let pod = Pod::new();
    held(&pod, "/proc/self/ns/net", "20");
    let mut waiting = pod.istio(&SIDECAR).start();
    std::thread::sleep(Duration::from_millis(500));
    assert!(!waiting.has_ended(), "the other run was not waited for");
    assert!(!pod.rules().contains("ISTIO"));
    waiting.kill();
}

#[test]
fn runs_in_different_namespaces_do_not_wait_for_each_other() {
    let (pod, other) = (Pod::new(), Pod::new());
    held(&pod, "/proc/self/ns/net", "20");
    let begin = Instant::now();
    other.istio(&SIDECAR).good();
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn five_runs_started_at_once_end_well_with_one_set_of_rules() {
    for variant in ["nft", "legacy"] {
        let options = [
            &SIDECAR[..],
            &["--dual-stack", "-m", "TPROXY", "--force-iptables-binary", variant],
        ]
        .concat();
        let alone = Pod::dual();
        alone.istio(&options).good();
        let pod = Pod::dual();
        let runs: Vec<_> = (0..5).map(|_| pod.istio(&options).start()).collect();
        let ended: Vec<_> = runs.into_iter().map(|run| run.end().exits(0)).collect();
        let wrote = ended.iter().filter(|run| run.stderr.contains("\tdone:")).count();
        assert_eq!(wrote, 1, "{variant}: one run writes, the others find it done");
        assert_eq!(pod.rules(), alone.rules(), "{variant}");
    }
}

#[test]
fn two_runs_with_different_options_leave_the_rules_of_one_of_them() {
    let first = ["-b", "*", "-i", "*", "-o", "25"];
    let second = ["-b", "80,81", "-i", "10.0.0.0/8", "-m", "TPROXY"];
    let expected = [first.as_slice(), second.as_slice()].map(|options| {
        let pod = Pod::new();
        pod.istio(options).good();
        pod.rules()
    });
    for _ in 0..3 {
        let pod = Pod::new();
        let runs = [pod.istio(&first).start(), pod.istio(&second).start()];
        for run in runs {
            run.end().exits(0);
        }
        let rules = pod.rules();
        assert!(expected.contains(&rules), "neither of the two:\n{rules}");
    }
}

#[test]
fn another_run_that_never_ends_is_exit_75() {
    let pod = Pod::new();
    let before = pod.state();
    held(&pod, "/proc/self/ns/net", "45");
    pod.istio(&SIDECAR)
        .end()
        .exits(75)
        .says("another run")
        .says("what to do: ");
    assert_eq!(pod.state(), before);
}
