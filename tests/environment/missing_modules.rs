//! Kernels that lack modules for one backend: the next one is taken, where the choice is open. The fakes
//! print what the tools print on such a kernel.

use std::fs;
use std::path::Path;

use crate::pod::{Ended, Pod, SIDECAR};

const USUAL: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// iptables-nft where `nft_compat` is missing.
const NO_COMPAT: &str = "Warning: Extension udp revision 0 not supported, missing kernel module?\n\
     Warning: Extension CT revision 0 not supported, missing kernel module?\n\
     iptables-nft-restore v1.8.9 (nf_tables): \n\
     line 6: RULE_APPEND failed (No such file or directory): rule in chain ISTIO_INBOUND\n";
/// iptables-legacy where `iptable_nat` is missing.
const NO_TABLE: &str = "iptables-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\n\n\
     Error occurred at line: 1\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.\n";
const TPROXY: [&str; 2] = ["-m", "TPROXY"];

/// A pod in whose `bin` the restore tools of these variants fail.
fn pod_without(failing: &[(&str, &str)]) -> Pod {
    let pod = Pod::dual();
    for (variant, complaint) in failing {
        let text = pod.path(&format!("{variant}-complaint"));
        fs::write(&text, complaint).unwrap();
        for ip in ["iptables", "ip6tables"] {
            let script = format!("cat > /dev/null; cat {} >&2; exit 4", text.display());
            pod.program("bin", &format!("{ip}-{variant}-restore"), &script);
        }
    }
    pod
}

fn run(pod: &Pod, options: &[&str]) -> Ended {
    let options = [&SIDECAR[..], &["--dual-stack"], options].concat();
    pod.istio(&options).search(&[&pod.path("bin"), Path::new(USUAL)]).end()
}

#[test]
fn kernel_without_nft_compat_takes_the_next_backend() {
    for (choice, taken) in [("auto", "nftables"), ("iptables", "iptables-legacy")] {
        for mode in [&[][..], &TPROXY] {
            let options = [&["--backend", choice], mode].concat();
            let pod = pod_without(&[("nft", NO_COMPAT)]);
            let before = pod.state();
            run(&pod, &options)
                .exits(0)
                .stderr_contains("backend iptables-nft cannot be used: missing kernel modules: ")
                .stderr_contains(&format!("backend {taken}: "));
            let direct = Pod::dual();
            run(&direct, &[&["--backend", taken], mode].concat()).exits(0);
            assert_eq!(pod.rules(), direct.rules(), "{options:?}");
            assert_eq!(pod.sh("nft -s list ruleset"), direct.sh("nft -s list ruleset"), "{options:?}");
            run(&pod, &options)
                .exits(0)
                .stderr_contains(&format!("backend {taken}: it holds the live rules"))
                .stderr_contains("already converged");
            pod.istio(&["cleanup"]).good();
            assert!(taken == "iptables-legacy" || pod.state() == before, "{options:?}");
        }
    }
}

#[test]
fn reason_for_native_nftables_says_that_the_tool_is_there() {
    run(&pod_without(&[("nft", NO_COMPAT)]), &[])
        .exits(0)
        .stderr_contains("backend nftables: iptables-nft cannot be used")
        .stderr_lacks("no iptables-nft is in PATH");
}

#[test]
fn foreign_legacy_rules_do_not_hold_a_backend_that_the_kernel_lacks() {
    let pod = pod_without(&[("legacy", NO_TABLE)]);
    pod.sh("iptables-legacy -t mangle -A OUTPUT -d 192.0.2.1 -j ACCEPT");
    run(&pod, &[])
        .exits(0)
        .stderr_contains("backend iptables-legacy cannot be used: missing kernel modules: ")
        .stderr_contains("backend iptables-nft: ");
    assert!(pod.rules().contains("-A OUTPUT -d 192.0.2.1/32 -j ACCEPT"));
}

#[test]
fn without_any_usable_variant_both_findings_are_reported() {
    for mode in [&[][..], &TPROXY] {
        let pod = pod_without(&[("nft", NO_COMPAT), ("legacy", NO_TABLE)]);
        let before = pod.rules();
        run(&pod, &[&["--backend", "iptables"], mode].concat())
            .exits(69)
            .stderr_contains("no variant of iptables can be used; found: ")
            .stderr_contains("Extension CT revision 0 not supported")
            .stderr_contains("unable to initialize table 'nat'")
            .stderr_contains("iptable_nat` (iptables-legacy)")
            .stderr_contains("xt_CT")
            .stderr_lacks("--backend");
        assert_eq!(pod.rules(), before);
    }
}

#[test]
fn requested_backend_is_the_only_one_tried() {
    for (variant, complaint) in [("nft", NO_COMPAT), ("legacy", NO_TABLE)] {
        let pod = pod_without(&[(variant, complaint)]);
        let before = pod.rules();
        run(&pod, &["--backend", &format!("iptables-{variant}")])
            .exits(70)
            .stderr_contains("modprobe")
            .stderr_contains(", or use --backend auto");
        assert_eq!(pod.rules(), before);
    }
}

#[test]
fn live_rules_stay_in_their_backend_when_a_change_fails() {
    let pod = pod_without(&[("nft", NO_COMPAT)]);
    pod.istio(&[&SIDECAR[..], &["--dual-stack"]].concat()).good();
    let before = pod.rules();
    run(&pod, &["-o", "4711"]).exits(70).stderr_contains("xt_CT").stderr_lacks("--backend");
    assert_eq!(pod.rules(), before);
}

#[test]
fn other_failures_take_no_other_backend() {
    let busy = "line 4: TABLE_ADD failed (Device or resource busy): table nat\n";
    let pod = pod_without(&[("nft", busy)]);
    let before = pod.rules();
    run(&pod, &[]).exits(70).stderr_lacks("cannot be used");
    assert_eq!(pod.rules(), before);
}
