//! Which backend is chosen, and what happens to rules in the other ones.

use crate::pod::{Pod, SIDECAR};

const LEGACY: [&str; 2] = ["--force-iptables-binary", "legacy"];
const NFT: [&str; 2] = ["--force-iptables-binary", "nft"];
/// Docker's DNS in a user-defined network.
const DOCKER_DNS: &str = "iptables-legacy -t nat -N DOCKER_OUTPUT; iptables-legacy -t nat -A OUTPUT -d 127.0.0.11 -j DOCKER_OUTPUT; \
     iptables-legacy -t nat -A DOCKER_OUTPUT -p udp --dport 53 -j DNAT --to-destination 127.0.0.11:38817";

#[test]
fn empty_legacy_tables_do_not_select_legacy() {
    let pod = Pod::new();
    pod.sh("for t in nat mangle raw filter; do iptables-legacy -t $t -L -n >/dev/null; done");
    assert!(pod.legacy_tables().contains("nat"));
    pod.istio(&SIDECAR).good().stderr_contains("backend iptables-nft");
}

#[test]
fn foreign_legacy_rules_select_legacy_and_stay() {
    let pod = Pod::new();
    pod.sh(DOCKER_DNS);
    let before = pod.rules();
    pod.istio(&SIDECAR).good().stderr_contains("backend iptables-legacy");
    let rules = pod.rules();
    assert!(rules.contains("DOCKER_OUTPUT") && rules.contains("ISTIO_OUTPUT"));
    assert!(!pod.sh("iptables-nft-save").contains("ISTIO"));
    pod.istio(&["cleanup"]).good();
    assert_eq!(pod.rules(), before);
}

#[test]
fn running_never_creates_legacy_tables_and_the_second_run_keeps_the_backend() {
    let pod = Pod::dual();
    let options = [&SIDECAR[..], &["--dual-stack", "--verify"]].concat();
    for _ in 0..2 {
        pod.istio(&options).good().stderr_contains("backend iptables-nft");
        pod.istio(&["--dry-run"]).good();
        assert_eq!(pod.legacy_tables(), "");
    }
    pod.istio(&["cleanup"]).good();
    assert_eq!(pod.legacy_tables(), "");
}

#[test]
fn our_rules_in_the_other_backend_are_removed() {
    // Everything that can be beside the mark rules in the same chains.
    let more = [
        "-c",
        "eth1,eth2",
        "-k",
        "br0",
        "--drop-invalid",
        "-g",
        "7,8",
        "--redirect-dns",
        "--capture-all-dns",
    ];
    let moves = [(LEGACY, NFT), (NFT, LEGACY)].into_iter().flat_map(|pair| [(pair, &[][..]), (pair, &more)]);
    for ((first, second), more) in moves {
        let options = [&SIDECAR[..], &["--dual-stack", "-m", "TPROXY"], more].concat();
        let fresh = Pod::dual();
        fresh.istio(&[&options[..], &second].concat()).good();
        let pod = Pod::dual();
        pod.istio(&[&options[..], &first].concat()).good();
        pod.istio(&[&options[..], &second].concat()).good();
        assert_eq!(pod.rules(), fresh.rules(), "{first:?} then {second:?}, {more:?}");
        pod.istio(&[&options[..], &second, &["--verify"]].concat())
            .good()
            .stderr_contains("already converged");
    }
}

#[test]
fn cleanup_finds_rules_in_both_backends() {
    let pod = Pod::new();
    let fresh = pod.rules();
    pod.istio(&[&SIDECAR[..], &NFT].concat()).good();
    // The other variant, as a run of Istio's own binary would add it without taking out the first.
    pod.sh("iptables-nft-save -t nat | iptables-legacy-restore");
    pod.istio(&["cleanup"]).good();
    assert_eq!(pod.rules(), fresh);
}

#[test]
fn native_tables_are_removed_after_rules_are_live() {
    let pod = Pod::new();
    pod.sh("for t in nat mangle raw; do nft add table inet istio-proxy-$t; done; nft add table inet mine; \
         nft add chain inet istio-proxy-nat istio-output; nft add rule inet istio-proxy-nat istio-output tcp dport 80 return");
    let ended = pod.istio(&SIDECAR).good();
    let (restored, deleted) = (
        ended.stderr.find("Writing following contents").unwrap(),
        ended.stderr.find("delete the nftables tables").unwrap(),
    );
    assert!(restored < deleted, "{ended}");
    let tables = pod.sh("nft list tables");
    assert!(!tables.contains("istio-proxy") && tables.contains("table inet mine"), "{tables}");
}

#[test]
fn cleanup_removes_tables_of_native_backend() {
    let pod = Pod::new();
    let fresh = pod.state();
    pod.sh("nft add table inet istio-proxy-nat");
    pod.istio(&["cleanup"]).good();
    assert_eq!(pod.state(), fresh);
}

#[test]
fn tables_of_the_same_name_in_another_family_are_not_ours() {
    let pod = Pod::new();
    pod.sh("nft add table ip istio-proxy-nat");
    pod.istio(&SIDECAR).good();
    assert!(pod.sh("nft list tables").contains("table ip istio-proxy-nat"));
}

#[test]
fn own_chain_name_in_a_foreign_table_is_not_touched() {
    let pod = Pod::new();
    pod.sh("nft add table inet mine; nft add chain inet mine ISTIO_OUTPUT; nft add rule inet mine ISTIO_OUTPUT drop");
    pod.istio(&SIDECAR).good();
    pod.istio(&["cleanup"]).good();
    assert!(pod.sh("nft list table inet mine").contains("ISTIO_OUTPUT"));
}

#[test]
fn empty_legacy_tables_that_appear_later_change_nothing() {
    let pod = Pod::new();
    pod.istio(&SIDECAR).good();
    pod.sh("for t in nat mangle raw; do iptables-legacy -t $t -L -n >/dev/null; done");
    pod.istio(&SIDECAR).good().stderr_contains("backend iptables-nft").stderr_contains("already converged");
    pod.istio(&["cleanup"]).good();
    assert!(!pod.rules().contains("ISTIO"));
}
