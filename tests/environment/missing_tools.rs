//! Images with some of the tools, or with unusual ones.

use std::path::Path;

use crate::pod::{Pod, SIDECAR, real};

const NFT_V4: [(&str, &str); 2] =
    [("iptables-nft-restore", "iptables-nft-restore"), ("iptables-nft-save", "iptables-nft-save")];
const NFT_V6: [(&str, &str); 2] =
    [("ip6tables-nft-restore", "ip6tables-nft-restore"), ("ip6tables-nft-save", "ip6tables-nft-save")];
const LEGACY_V4: [(&str, &str); 2] = [
    ("iptables-legacy-restore", "iptables-legacy-restore"),
    ("iptables-legacy-save", "iptables-legacy-save"),
];

#[test]
fn missing_iptables_is_reported_with_findings_and_fix() {
    let pod = Pod::new();
    let before = pod.state();
    let empty = pod.links("empty", &[]);
    for options in [
        &["--backend", "iptables"][..],
        &["--force-iptables-binary", "nft"],
        &["--backend", "iptables-legacy"],
    ] {
        pod.istio(&[&SIDECAR[..], options].concat())
            .search(&[&empty])
            .end()
            .exits(69)
            .stderr_contains("no iptables-nft-restore")
            .stderr_contains("no iptables-legacy-restore")
            .stderr_contains("what to do: ");
    }
    assert_eq!(pod.state(), before);
}

#[test]
fn one_variant_is_enough() {
    for (tools, variant) in [(NFT_V4, "iptables-nft"), (LEGACY_V4, "iptables-legacy")] {
        let pod = Pod::new();
        let tools = pod.links("bin", &tools);
        let options = [&SIDECAR[..], &["--backend", "iptables"]].concat();
        pod.istio(&options).search(&[&tools]).good().stderr_contains(&format!("backend {variant}"));
        pod.istio(&options).search(&[&tools]).good().stderr_contains("already converged");
        assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"));
    }
}

#[test]
fn variant_without_tools_is_refused_when_named() {
    for (tools, missing) in [(NFT_V4, "legacy"), (LEGACY_V4, "nft")] {
        let pod = Pod::new();
        let before = pod.state();
        let tools = pod.links("bin", &tools);
        pod.istio(&[&SIDECAR[..], &["--force-iptables-binary", missing]].concat())
            .search(&[&tools])
            .end()
            .exits(69)
            .stderr_contains(&format!("--backend iptables-{missing} cannot be used; found: the kernel has"))
            .stderr_contains("what to do: ");
        assert_eq!(pod.state(), before);
    }
}

#[test]
fn plain_names_are_distinguished_by_their_link_target() {
    for (multi, variant) in
        [("xtables-nft-multi", "iptables-nft"), ("xtables-legacy-multi", "iptables-legacy")]
    {
        let pod = Pod::new();
        let tools = pod.links("bin", &[("iptables-restore", multi), ("iptables-save", multi)]);
        let options = [&SIDECAR[..], &["--backend", "iptables"]].concat();
        pod.istio(&options).search(&[&tools]).good().stderr_contains(&format!("backend {variant}"));
    }
}

#[test]
fn version_output_decides_the_variant_of_wrappers() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::new();
        for action in ["restore", "save"] {
            let tool = real(&format!("iptables-{variant}-{action}"));
            pod.program("bin", &format!("iptables-{action}"), &format!("exec {} \"$@\"", tool.display()));
        }
        pod.istio(&[&SIDECAR[..], &["--backend", "iptables"]].concat())
            .search(&[&pod.path("bin")])
            .good()
            .stderr_contains(&format!("backend iptables-{variant}"));
    }
}

#[test]
fn missing_ip6tables_with_ipv6_applies_nothing() {
    for tools in [NFT_V4, LEGACY_V4] {
        let pod = Pod::dual();
        let before = pod.state();
        let tools = pod.links("bin", &tools);
        pod.istio(&[&SIDECAR[..], &["--dual-stack", "--backend", "iptables"]].concat())
            .search(&[&tools])
            .end()
            .exits(69)
            .stderr_contains("ip6tables-")
            .stderr_contains("--ip-family ipv4");
        assert_eq!(pod.state(), before);
    }
}

#[test]
fn missing_ip6tables_with_ipv4_only_succeeds() {
    let pod = Pod::new();
    let tools = pod.links("bin", &NFT_V4);
    pod.istio(&SIDECAR).search(&[&tools]).good();
}

#[test]
fn a_restore_without_its_save_does_not_count() {
    let pod = Pod::new();
    let before = pod.state();
    let tools = pod.links("bin", &NFT_V4[..1]);
    pod.istio(&[&SIDECAR[..], &["--backend", "iptables"]].concat())
        .search(&[&tools])
        .end()
        .exits(69)
        .stderr_contains("what to do: ");
    assert_eq!(pod.state(), before);
}

#[test]
fn legacy_rules_of_ours_without_a_legacy_tool_are_named() {
    let pod = Pod::new();
    pod.istio(&[&SIDECAR[..], &["--force-iptables-binary", "legacy"]].concat()).good();
    let before = pod.rules();
    let tools = pod.links("bin", &[NFT_V4, NFT_V6].concat());
    pod.istio(&SIDECAR).search(&[&tools]).good().stderr_contains("already converged");
    for options in [&[&SIDECAR[..], &["-o", "25"]].concat()[..], &["cleanup"]] {
        pod.istio(options)
            .search(&[&tools])
            .end()
            .exits(69)
            .stderr_contains("iptables-legacy-save")
            .stderr_contains("rules of an earlier run");
    }
    assert_eq!(pod.rules(), before);
}

#[test]
fn foreign_legacy_rules_are_judged_without_a_tool() {
    let pod = Pod::new();
    let empty = pod.links("empty", &[]);
    let options = [&SIDECAR[..], &["--native-nftables"]].concat();
    pod.sh("iptables-legacy -t raw -A OUTPUT -p tcp --dport 25 -m comment --comment mail -j DROP");
    pod.istio(&options)
        .search(&[&empty])
        .good()
        .stderr_contains("a foreign rule may decide before ours")
        .stderr_contains("--comment mail -j DROP");
    // A match that is not understood.
    pod.sh("iptables-legacy -t raw -A OUTPUT -p tcp --dport 26 -m limit --limit 1/second -j DROP");
    pod.istio(&options)
        .search(&[&empty])
        .good()
        .stderr_contains("-m limit [unsupported] -j DROP")
        .stderr_lacks("cannot be read");
}

#[test]
fn without_path_the_usual_folders_are_searched() {
    let pod = Pod::new();
    pod.istio(&SIDECAR).search(&[Path::new("")]).good();
}

#[test]
fn no_shell_and_no_other_program_is_needed() {
    let pod = Pod::new();
    let tools = pod.links("bin", &NFT_V4);
    pod.istio(&[&SIDECAR[..], &["--cni-mode", "--verify"]].concat()).search(&[&tools]).good();
}

#[test]
fn without_any_program_rules_are_native() {
    for options in [&["--verify"][..], &["--verify", "--dual-stack", "-m", "TPROXY"]] {
        let pod = Pod::dual();
        let before = pod.state();
        let empty = pod.links("empty", &[]);
        let options = [&SIDECAR[..], options].concat();
        pod.istio(&options)
            .search(&[&empty])
            .good()
            .stderr_contains("backend nftables: the kernel has nf_tables, and no iptables-nft is in PATH");
        assert!(pod.sh("nft list table inet istio-proxy-nat").contains("redirect to :15001"));
        pod.istio(&options).search(&[&empty]).good().stderr_contains("already converged");
        // Programs that are there later move nothing.
        pod.istio(&options)
            .good()
            .stderr_contains("backend nftables: it holds the live rules")
            .stderr_contains("already converged");
        pod.istio(&["cleanup"]).search(&[&empty]).good();
        assert_eq!(pod.state(), before);
    }
}

#[test]
fn native_nftables_comes_before_iptables_legacy() {
    let pod = Pod::new();
    let tools = pod.links("bin", &LEGACY_V4);
    pod.istio(&SIDECAR).search(&[&tools]).good().stderr_contains("backend nftables: ");
    assert!(!pod.sh("nft list tables").contains("scratch"));
    assert!(!pod.sh("cat /proc/net/ip_tables_names").contains("nat"), "no legacy table is made");
}

#[test]
fn istios_native_tables_are_replaced_in_one_transaction() {
    let pod = Pod::new();
    pod.sh("nft 'add table inet istio-proxy-nat; add chain inet istio-proxy-nat istio-output; \
         add rule inet istio-proxy-nat istio-output tcp dport 80 counter return; add table inet istio-proxy-mangle'");
    pod.istio(&[&SIDECAR[..], &["--native-nftables", "--verify"]].concat()).good().stderr_contains(
        "replace the tables inet istio-proxy-nat in one transaction, delete inet istio-proxy-mangle",
    );
    let rules = pod.sh("nft list ruleset");
    assert!(!rules.contains("dport 80 ") && !rules.contains("istio-proxy-mangle"), "{rules}");
}
