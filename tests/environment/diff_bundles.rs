//! `diff` of bundles, live and saved rules, with rules of other programs.

use crate::diff::{bundle, file, load};
use crate::pod::{Pod, V4};

const CAPTURED: [&str; 8] = ["-b", "*", "-i", "*", "-d", "15020", "-x", "10.0.0.0/8"];

/// Rules, chains, sets and maps of another program, and the packet that they drop.
const FOREIGN: [(&str, &str); 3] = [
    (
        "set trusted {\n type ipv4_addr\n flags interval\n elements = { 10.9.0.0/16 }\n }
         chain c {\n ip saddr @trusted return\n drop\n }
         chain p {\n type filter hook prerouting priority -200\n tcp dport { 8080, 9090 } jump c\n }",
        "inet t c -j DROP",
    ),
    (
        "chain o {
         type filter hook output priority 10
         meta skuid 1000 tcp dport vmap { 80 : accept, 443 : drop }
         }",
        "inet t o -p tcp --dport 443 -m owner --uid-owner 1000 -j DROP",
    ),
    (
        "chain o {\n type nat hook output priority -150\n tcp dport 80-90 redirect to :3128\n }",
        "-j REDIRECT --to-ports 3128",
    ),
];

/// Rules of other programs are followed, and compared with those of another time, another pod, or saved ones.
#[test]
fn bundles_are_compared_with_live_rules_and_with_each_other() {
    let directory = tempfile::tempdir().unwrap();
    for backend in ["iptables-nft", "iptables-legacy", "nftables"] {
        let pod = Pod::dual();
        pod.istio(&[&CAPTURED[..], &["--backend", backend]].concat()).end().exits(0);
        let before = bundle(&pod, &directory, "before.json");
        pod.istio(&["diff", &before, "live"]).end().exits(0);
        for (rules, named) in FOREIGN {
            load(&pod, &format!("table inet t {{\n{rules}\n}}\n"));
            let after = bundle(&pod, &directory, "after.json");
            pod.istio(&["diff", &after, "live"]).end().exits(0);
            for sides in [[&*before, &*after], [&*before, "live"]] {
                let ended = pod.istio(&["diff", sides[0], sides[1]]).end().exits(1);
                assert!(ended.stdout.starts_with("different: "), "{backend} {rules}: {ended}");
                assert!(ended.stdout.contains(named), "{backend} {rules}: {ended}");
            }
            pod.sh("nft delete table inet t");
        }
        // Nothing is captured, dropped or marked otherwise.
        pod.sh("nft 'table inet t { chain p { type filter hook prerouting priority -200; tcp dport 80 counter; }; }'");
        pod.istio(&["diff", &before, "live"]).end().exits(0);
    }
}

/// The addresses of the pod count, and not those of the machine on which the bundle is read.
#[test]
fn bundle_is_compared_with_options_and_saved_rules_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let elsewhere = Pod::dual();
    for backend in ["iptables-nft", "iptables-legacy"] {
        let pod = Pod::with(&format!("{}; ip route add default via 10.4.4.1", V4));
        let options = [&CAPTURED[..], &["--backend", backend]].concat();
        pod.istio(&options).end().exits(0);
        let variant = backend.trim_start_matches("iptables-");
        let save = |tool: &str| pod.sh(&format!("{tool}-{variant}-save"));
        let saved = file(&directory, "saved", &format!("{}{}", save("iptables"), save("ip6tables")));
        let bundle = bundle(&pod, &directory, "pod.json");
        elsewhere.istio(&["diff", &saved, &bundle]).end().exits(0);
        elsewhere.istio(&[&["diff", "options", &bundle], &options[..]].concat()).end().exits(0);
        let ended = elsewhere.istio(&[&["diff", "options", &bundle], &options[..6]].concat()).end().exits(1);
        assert!(ended.stdout.contains("to 10.0.0.1:8080"), "{ended}");
        let command = format!("explain  istio-iptables explain --bundle {bundle} --to 10.0.0.1:8080");
        assert!(ended.stdout.contains(&command), "{ended}");
        let ended =
            elsewhere.istio(&["explain", "--bundle", &bundle, "--to", "10.0.0.1:8080"]).end().exits(0);
        assert!(ended.stdout.starts_with("not captured"), "{ended}");
    }
}

/// Chains that captured packets do not meet are compared as text.
#[test]
fn chains_behind_ours_are_named_if_one_side_has_them() {
    let directory = tempfile::tempdir().unwrap();
    let pod = Pod::new();
    let before = bundle(&pod, &directory, "before.json");
    for rules in [
        "chain c {\n tcp sport 7 drop\n }\n chain i {\n type filter hook input priority 0\n tcp dport 9 jump c\n }",
        "chain o {\n type filter hook output priority 0\n }\n chain f {\n type filter hook forward priority 0\n tcp dport 9 drop\n }",
        "chain i {\n type filter hook postrouting priority 0; policy drop\n }",
    ] {
        load(&pod, &format!("table inet t {{\n{rules}\n}}\n"));
        let ended = pod.istio(&["diff", &before, "live"]).end().exits(1);
        assert!(ended.stdout.starts_with("not proved"), "{rules}: {ended}");
        assert!(ended.stdout.contains("live: inet t"), "{rules}: {ended}");
        let after = bundle(&pod, &directory, "after.json");
        pod.istio(&["diff", &after, "live"]).end().exits(0);
        pod.sh("nft delete table inet t");
    }
}
