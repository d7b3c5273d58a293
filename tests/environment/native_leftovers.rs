//! What Istio's native nftables mode leaves besides its tables: a policy rule, a route and `::6`.

use crate::pod::{DUAL, Pod, SIDECAR};

/// What Istio's binary wrote with `--native-nftables --dual-stack -m TPROXY -b '*' -i '*'`, as far as rules
/// refer to marks and addresses, and the routes that came with it, from two runs.
const NATIVE_TPROXY: &str = "nft 'add table inet istio-proxy-nat; add chain inet istio-proxy-nat istio-output; \
     add rule inet istio-proxy-nat istio-output oifname lo ip6 saddr ::6 counter return; \
     add table inet istio-proxy-mangle; \
     add chain inet istio-proxy-mangle prerouting { type filter hook prerouting priority mangle; }; \
     add chain inet istio-proxy-mangle output { type route hook output priority mangle; }; \
     add chain inet istio-proxy-mangle istio-divert; add chain inet istio-proxy-mangle istio-tproxy; \
     add rule inet istio-proxy-mangle prerouting meta l4proto tcp mark 1337 counter ct mark set mark; \
     add rule inet istio-proxy-mangle output oifname lo meta l4proto tcp ip daddr != 127.0.0.1 meta skuid 1337 counter meta mark set 1338; \
     add rule inet istio-proxy-mangle istio-divert counter meta mark set 1337; \
     add rule inet istio-proxy-mangle istio-tproxy meta l4proto tcp ip daddr != 127.0.0.1 tproxy ip to :15006 meta mark set 1337 counter accept'; \
     for f in -4 -6; do ip $f rule add fwmark 1337 lookup 133; ip $f rule add fwmark 1337 lookup 133; \
     ip $f route add local default dev lo table 133; done; ip -6 addr add ::6/128 dev lo";
/// What Istio's binary wrote in REDIRECT mode.
const NATIVE_REDIRECT: &str = "nft 'add table inet istio-proxy-nat; add chain inet istio-proxy-nat istio-output; \
     add rule inet istio-proxy-nat istio-output oifname lo ip6 saddr ::6 counter return'; ip -6 addr add ::6/128 dev lo";
/// Not Istio's: another mark, another kind of table.
const FOREIGN: &str = "for f in -4 -6; do ip $f rule add fwmark 1338 lookup 134; ip $f route add local default dev lo table 134; \
     ip $f rule add fwmark 7 lookup 135; ip $f route add local default dev lo table 135; done";

fn policy_rules(pod: &Pod) -> String {
    pod.sh("for f in -4 -6; do ip $f rule; done | grep fwmark | grep 133 || :")
}

/// Rules and routes; an address that was there already keeps its own tag.
fn without_address(pod: &Pod) -> String {
    pod.rules().split_once("== lo").unwrap().0.to_owned()
}

#[test]
fn cleanup_removes_native_tables_and_their_routes() {
    for native in [NATIVE_TPROXY, NATIVE_REDIRECT] {
        let pod = Pod::with(&format!("{DUAL}; {FOREIGN}"));
        let before = pod.state();
        pod.sh(native);
        assert_ne!(pod.state(), before);
        pod.istio(&["cleanup"]).good();
        assert_eq!(pod.state(), before);
    }
}

#[test]
fn next_run_replaces_native_tables_and_their_routes() {
    for variant in ["nft", "legacy"] {
        for mode in ["REDIRECT", "TPROXY"] {
            let options =
                [&SIDECAR[..], &["--dual-stack", "-m", mode, "--force-iptables-binary", variant]].concat();
            let fresh = Pod::with(&format!("{DUAL}; {FOREIGN}"));
            fresh.istio(&options).good();
            let pod = Pod::with(&format!("{DUAL}; {FOREIGN}; {NATIVE_TPROXY}"));
            pod.istio(&options).good();
            assert_eq!(policy_rules(&pod), policy_rules(&fresh), "{variant} {mode}");
            assert_eq!(without_address(&pod), without_address(&fresh), "{variant} {mode}");
            pod.istio(&options).good().stderr_contains("already converged");
            pod.istio(&["cleanup"]).good();
            fresh.istio(&["cleanup"]).good();
            assert_eq!(pod.rules(), fresh.rules(), "{variant} {mode}");
        }
    }
}

#[test]
fn routes_not_referenced_by_native_tables_are_kept() {
    // Tables of a REDIRECT run prove nothing about marks, and tables without `::6` nothing about the address.
    let pod = Pod::with(&format!(
        "{DUAL}; {FOREIGN}; ip rule add fwmark 1337 lookup 133; ip route add local default dev lo table 133; \
         ip -6 addr add ::6/128 dev lo"
    ));
    let before = pod.state();
    pod.sh("nft add table inet istio-proxy-nat; nft add table inet istio-proxy-mangle");
    pod.istio(&["cleanup"]).good();
    assert_eq!(pod.state(), before);
}

#[test]
fn lo_down_with_ipv6_tproxy_brings_nothing_into_force() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::with(&format!("{DUAL}; ip link set lo down"));
        let before = pod.rules();
        let options =
            [&SIDECAR[..], &["--dual-stack", "-m", "TPROXY", "--force-iptables-binary", variant]].concat();
        pod.istio(&options)
            .end()
            .exits(70)
            .stderr_contains("lo is down")
            .stderr_contains("ip link set lo up");
        assert_eq!(pod.rules(), before, "{variant}");
        pod.sh("ip link set lo up");
        pod.istio(&options).good();
    }
}
