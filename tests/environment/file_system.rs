//! File systems on which little can be written, or on which something is missing.

use crate::pod::{Pod, SIDECAR, V4};

/// Everything read-only; what is usually writable is an empty read-only tmpfs.
const READ_ONLY: &str = "for d in /run /tmp /var/tmp /dev/shm; do mount -t tmpfs -o ro none $d; done; \
     mount -o remount,bind,ro /";

fn both_variants() -> [[&'static str; 2]; 2] {
    [["--force-iptables-binary", "nft"], ["--force-iptables-binary", "legacy"]]
}

fn applies_and_cleans_up(setup: &str) {
    for variant in both_variants() {
        let pod = Pod::with(&format!("{V4}; {setup}"));
        let fresh = pod.rules();
        let options = [&SIDECAR[..], &variant].concat();
        pod.istio(&options).good();
        assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"), "{variant:?}: {}", pod.rules());
        pod.istio(&options).good().stderr_contains("already converged");
        pod.istio(&["cleanup"]).good();
        assert_eq!(pod.rules(), fresh, "{variant:?}");
    }
}

#[test]
fn a_read_only_root_without_any_writable_directory_is_enough() {
    let pod = Pod::with(&format!("{V4}; {READ_ONLY}"));
    pod.istio(&SIDECAR).good().stderr_contains("rules file: memory");
    applies_and_cleans_up(READ_ONLY);
}

#[test]
fn missing_run_directory_does_not_fail_a_run() {
    // A root without /run: everything else is bound into it.
    applies_and_cleans_up(
        "new=$DIR/root; mkdir $new; mount -t tmpfs root $new; \
         for d in /*; do [ -h $d ] && cp -a $d $new/ && continue; [ -d $d ] || continue; \
         case $d in /run|/lost+found) continue;; esac; \
         mkdir $new$d; mount --rbind $d $new$d; done; cd $new; mkdir old; pivot_root . old; cd /; umount -l old; rmdir old; [ ! -e /run ]",
    );
}

#[test]
fn missing_tmp_directory_does_not_fail_a_run() {
    let pod = Pod::new();
    pod.istio(&SIDECAR).env("TMPDIR", "/does/not/exist").good();
    assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"));
}

#[test]
fn full_tmp_directory_does_not_fail_a_run() {
    let pod = Pod::with(&format!(
        "{V4}; for d in /run /tmp /dev/shm; do mount -t tmpfs -o size=4k none $d; head -c 4096 /dev/zero > $d/full; done"
    ));
    pod.istio(&SIDECAR).good();
    assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"));
}

#[test]
fn no_temporary_file_is_left_behind() {
    let pod = Pod::with(&format!("{V4}; mount -t tmpfs tmp /tmp"));
    let files = || pod.sh("find /tmp /dev/shm/ip* -path \"$DIR\" -prune -o -print 2>/dev/null || :");
    let before = files();
    pod.istio(&SIDECAR).good();
    pod.istio(&["-b", "80"]).good();
    pod.istio(&["cleanup"]).good();
    assert_eq!(files(), before);
}

#[test]
fn without_proc_both_variants_apply_change_and_clean_up() {
    for variant in both_variants() {
        let pod = Pod::with(&format!("{}; mount -t tmpfs none /proc", crate::pod::DUAL));
        let rules = |pod: &Pod| {
            pod.sh("for ip in ip ip6; do ${ip}tables-nft-save; for t in nat mangle raw; do ${ip}tables-legacy-save -t $t; done; done 2>/dev/null || :")
        };
        let options = [&SIDECAR[..], &["--dual-stack"], &variant].concat();
        pod.istio(&options).good();
        let applied = rules(&pod);
        assert_eq!(applied.matches("-A OUTPUT -j ISTIO_OUTPUT").count(), 2, "{variant:?}: {applied}");
        pod.istio(&options).good().stderr_contains("already converged");
        pod.istio(&[&options[..], &["-m", "TPROXY"]].concat()).good();
        assert!(rules(&pod).contains("-j TPROXY"), "{variant:?}");
        pod.istio(&[&["cleanup"], &variant[..]].concat()).good();
        assert!(!rules(&pod).contains("ISTIO"), "{variant:?}: {}", rules(&pod));
    }
}

#[test]
fn without_proc_legacy_rules_of_an_earlier_run_are_found_by_its_record() {
    let pod = Pod::with(&format!("{}; mount -t tmpfs none /proc", crate::pod::DUAL));
    let legacy = |pod: &Pod| pod.sh("iptables-legacy-save -t nat; ip6tables-legacy-save -t nat");
    let options = [&SIDECAR[..], &["--dual-stack"]].concat();
    pod.istio(&[&options[..], &["--backend", "iptables-legacy"]].concat()).good();
    pod.istio(&options).good().stderr_contains("already converged");
    assert_eq!(legacy(&pod).matches("-A OUTPUT -j ISTIO_OUTPUT").count(), 2, "{}", legacy(&pod));
    pod.istio(&["--cleanup-only"]).good().stderr_contains("done: no rules in place (");
    assert!(!legacy(&pod).contains("ISTIO"), "{}", legacy(&pod));
}

#[test]
fn a_clean_up_says_that_it_could_not_list_the_legacy_tables() {
    // Istio's own binary records nothing.
    let pod = Pod::with(&format!("{V4}; mount -t tmpfs none /proc"));
    pod.istio(&[&SIDECAR[..], &["--backend", "iptables-legacy"]].concat()).good();
    pod.sh("ip link set lo alias ''");
    let cleaned = pod.istio(&["--cleanup-only"]).good();
    cleaned
        .stderr_contains("the tables of iptables-legacy cannot be listed")
        .stderr_contains("no rules in place but those of the warnings above");
}

#[test]
fn a_missing_resolv_conf_matters_only_if_dns_is_captured() {
    let pod = Pod::with(&format!(
        "{V4}; mkdir $DIR/etc; cp /etc/passwd /etc/group $DIR/etc/; mount --bind $DIR/etc /etc"
    ));
    let fresh = pod.rules();
    pod.istio(&[&SIDECAR[..], &["--redirect-dns"]].concat())
        .end()
        .exits(64)
        .stderr_contains("/etc/resolv.conf cannot be read")
        .stderr_contains("--capture-all-dns");
    assert_eq!(pod.rules(), fresh);
    pod.istio(&[&SIDECAR[..], &["--redirect-dns", "--capture-all-dns"]].concat()).good();
    pod.istio(&SIDECAR).good();
}

#[test]
fn name_servers_are_read_from_the_pods_own_resolv_conf() {
    let pod = Pod::with(&format!(
        "{V4}; printf 'nameserver 10.9.9.9\\nnameserver fd00::9\\n' > $DIR/resolv.conf; \
         mount --bind $DIR/resolv.conf $(readlink -f /etc/resolv.conf)"
    ));
    pod.istio(&[&SIDECAR[..], &["--redirect-dns"]].concat()).good();
    let rules = pod.rules();
    assert!(rules.contains("-d 10.9.9.9/32 -p udp -m udp --dport 53"), "{rules}");
    assert!(!rules.contains("fd00::9"), "{rules}");
}

#[test]
fn an_empty_etc_has_no_users_and_that_is_fine() {
    let pod = Pod::with(&format!("{V4}; mount -t tmpfs none /etc"));
    pod.istio(&["-b", "*", "-i", "*"]).good();
    assert!(pod.rules().contains("--uid-owner 1337"));
}

#[test]
fn lock_file_that_is_a_directory_does_not_fail_a_run() {
    // What a hostPath volume without a type makes of it.
    let pod = Pod::with(&format!("{V4}; mkdir /run/xtables.lock"));
    pod.istio(&[&SIDECAR[..], &["--force-iptables-binary", "legacy"]].concat()).good();
    assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"));
}

#[test]
fn missing_dev_null_does_not_fail_a_run() {
    let pod = Pod::with(&format!("{V4}; mount -t tmpfs none /dev"));
    for _ in 0..2 {
        pod.istio(&SIDECAR).good();
    }
    pod.istio(&["cleanup"]).good();
}
