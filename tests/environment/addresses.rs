//! Which families the pod has.

use crate::pod::{DUAL, Pod, SIDECAR, V4};

const NO_IPV6: &str = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6; echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6";

fn rules_per_family(pod: &Pod) -> [bool; 2] {
    ["iptables-nft-save", "ip6tables-nft-save"].map(|save| pod.sh(save).contains("-A OUTPUT -j ISTIO_OUTPUT"))
}

#[test]
fn disabled_ipv6_means_ipv4_only() {
    for dual_stack in [&[][..], &["--dual-stack"], &["--ip-family", "dual"]] {
        let pod = Pod::with(&format!("{V4}; {NO_IPV6}"));
        let ended = pod.istio(&[&SIDECAR[..], dual_stack].concat()).good();
        assert_eq!(rules_per_family(&pod), [true, false], "{ended}");
        assert!(!pod.sh("ip -6 addr").contains("::6"));
        let options = [&SIDECAR[..], dual_stack].concat();
        pod.istio(&options).good().stderr_contains("already converged");
        pod.istio(&["cleanup"]).good();
    }
}

#[test]
fn ipv6_only_without_ipv6_is_reported() {
    let pod = Pod::with(&format!("{V4}; {NO_IPV6}"));
    pod.istio(&[&SIDECAR[..], &["--ip-family", "ipv6"]].concat())
        .good()
        .stderr_contains("the kernel has no IPv6, although IPv6 was requested");
}

#[test]
fn ipv6_switched_off_on_lo_alone_is_a_clear_error_or_works() {
    let pod = Pod::with(&format!("{DUAL}; echo 1 > /proc/sys/net/ipv6/conf/lo/disable_ipv6"));
    let before = pod.rules();
    pod.istio(&[&SIDECAR[..], &["--dual-stack"]].concat())
        .end()
        .exits(70)
        .stderr_contains("::6")
        .stderr_contains("net.ipv6.conf.lo.disable_ipv6");
    assert_eq!(pod.rules(), before);
}

#[test]
fn a_pod_with_ipv6_only_gets_both_families() {
    let pod = Pod::with("ip addr add 2001:db8::4/64 dev eth0 nodad");
    pod.istio(&SIDECAR).good().stderr_lacks("NOT captured");
    assert_eq!(rules_per_family(&pod), [true, true]);
    assert!(pod.sh("ip -6 addr show lo").contains("inet6 ::6/128"));
}

#[test]
fn global_ipv6_address_without_capture_is_a_warning() {
    let pod = Pod::dual();
    pod.istio(&SIDECAR)
        .good()
        .stderr_contains("\twarn\t")
        .stderr_contains("2001:db8::4 on eth0")
        .stderr_contains("--dual-stack");
    assert_eq!(rules_per_family(&pod), [true, false]);
    pod.istio(&[&SIDECAR[..], &["--dual-stack"]].concat()).good().stderr_lacks("NOT captured");
    assert_eq!(rules_per_family(&pod), [true, true]);
}

#[test]
fn a_pod_without_an_address_yet_gets_both_families() {
    let pod = Pod::with("");
    pod.istio(&SIDECAR).good().stderr_contains("no address yet");
    assert_eq!(rules_per_family(&pod), [true, true]);
    pod.istio(&SIDECAR).good().stderr_contains("already converged");
}

#[test]
fn a_pod_whose_links_are_all_down_gets_both_families() {
    let pod = Pod::with("ip link set lo down; ip link del eth0");
    pod.istio(&SIDECAR).good();
    assert_eq!(rules_per_family(&pod), [true, true]);
}

#[test]
fn link_local_address_does_not_decide_family() {
    let pod = Pod::with("ip addr add 169.254.7.7/16 dev eth0");
    pod.istio(&SIDECAR).good().stderr_contains("no address yet");
}

#[test]
fn an_ipv4_pod_whose_address_comes_late_drops_what_it_made_for_ipv6() {
    let pod = Pod::with("");
    pod.istio(&SIDECAR).good();
    pod.sh(V4);
    pod.istio(&SIDECAR).good();
    assert_eq!(rules_per_family(&pod), [true, false]);
    assert!(!pod.rules().contains("::6/128"), "{}", pod.rules());
}

#[test]
fn ipv6_disabled_later_removes_ipv6_rules() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::dual();
        let options =
            [&SIDECAR[..], &["--dual-stack", "-m", "TPROXY", "--force-iptables-binary", variant]].concat();
        pod.istio(&options).good();
        pod.sh(NO_IPV6);
        pod.istio(&options).good();
        assert!(!pod.sh(&format!("ip6tables-{variant}-save")).contains("ISTIO"), "{variant}");
        pod.istio(&options).good().stderr_contains("already converged");
        pod.istio(&["cleanup"]).good();
        assert!(!pod.rules().contains("ISTIO"), "{variant}");
        assert!(!pod.rules().contains("fwmark"), "{variant}: {}", pod.rules());
    }
}

#[test]
fn explain_warns_of_an_interface_that_does_not_exist() {
    let pod = Pod::new();
    for live in [&[][..], &["--live"]] {
        for (from, option) in [("outside", "--in"), ("app", "--out")] {
            let explain = ["explain", "--from", from, "--to", "10.4.4.4:80", option];
            let of = |name| pod.istio(&[&explain[..], &[name], live].concat()).good();
            of("wrong0").stderr_contains(&format!("{option}: there is no interface wrong0 here, only lo, "));
            let known = of("eth0");
            assert!(!known.stderr.contains("there is no interface"), "{known}");
        }
    }
}

#[test]
fn check_warns_of_an_interface_that_does_not_exist_and_a_run_does_not() {
    let pod = Pod::new();
    let options = [&SIDECAR[..], &["-k", "net9", "-c", "eth0,wg+"]].concat();
    let applied = pod.istio(&options).good();
    assert!(!applied.stderr.contains("there is no interface"), "{applied}");
    let checked = pod.istio(&[&["check"], &options[..]].concat()).good();
    let warnings: Vec<_> =
        checked.stderr.lines().filter(|line| line.contains("there is no interface")).collect();
    assert_eq!(warnings.len(), 2, "{checked}");
    assert!(warnings[0].contains("--istio-exclude-interfaces: there is no interface wg+ here, only lo, "));
    assert!(warnings[1].contains("--kube-virt-interfaces: there is no interface net9 here, only lo, "));
}

#[test]
fn name_servers_of_a_family_that_is_not_captured_are_not_counted() {
    let pod = Pod::with(&format!(
        "{V4}; echo 'nameserver fd00::10' >$DIR/resolv; mount --bind $DIR/resolv /etc/resolv.conf"
    ));
    let ended = pod.istio(&[&SIDECAR[..], &["--redirect-dns", "--dry-run"]].concat()).good();
    ended.stderr_contains("only IPv4 is captured: DNS is not captured").stderr_contains("; DNS: nothing;");
}
