//! Chains of KubeVirt in the tables of iptables-nft: it writes them by `nft`, with expressions that iptables
//! does not list.

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Pod, for_each_backend_and_native, for_these_fixtures};

for_each_backend_and_native!(
    rules_beside_chains_of_kubevirt_are_recognised_changed_and_removed,
    base_chain_of_kubevirt_is_named,
);
for_these_fixtures!(
    in_its_tables: IptablesNft Dual;
    [rules_that_jump_to_chains_that_cannot_be_listed_are_named]
);

const OPTIONS: [&str; 6] = ["-b", "*", "-i", "*", "-c", "eth7"];

fn nft_family(family: Family) -> (&'static str, &'static str) {
    match family {
        Family::V4 => ("ip", "10.0.2.2"),
        Family::V6 => ("ip6", "fd10:0:2::2"),
    }
}

fn nft(pod: &Pod, commands: &str) -> String {
    pod.namespace.run(|| tool("nft", &["-f", "-"], commands))
}

/// The chains that virt-launcher makes for a masqueraded interface.
fn start_virtual_machine(pod: &Pod) {
    for family in pod.fixture.families() {
        let (name, guest) = nft_family(*family);
        nft(
            pod,
            &format!(
                "table {name} nat {{
                    chain KUBEVIRT_PREINBOUND {{ tcp dport 22 counter dnat to {guest}; }}
                    chain KUBEVIRT_POSTINBOUND {{ }}
                    chain prerouting {{
                        type nat hook prerouting priority -100;
                        iifname \"eth0\" counter jump KUBEVIRT_PREINBOUND;
                    }}
                    chain output {{ type nat hook output priority -100; tcp dport {{ 2222, 2223 }} dnat to {guest}; }}
                    chain postrouting {{
                        type nat hook postrouting priority 100;
                        {name} saddr {guest} counter masquerade;
                    }}
                }}"
            ),
        );
    }
}

/// What KubeVirt has written, as it is now.
fn foreign(pod: &Pod) -> String {
    let mut all = String::new();
    for family in pod.fixture.families() {
        for chain in ["KUBEVIRT_PREINBOUND", "KUBEVIRT_POSTINBOUND", "prerouting", "output", "postrouting"] {
            let (name, _) = nft_family(*family);
            all += &pod.namespace.run(|| tool("nft", &["-s", "list", "chain", name, "nat", chain], ""));
        }
    }
    all
}

fn rules_beside_chains_of_kubevirt_are_recognised_changed_and_removed(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let captures = |inbound: bool| {
        for family in fixture.families() {
            let (to_app, to_service) = (at(family.pod(), 8080), at(family.service(), 80));
            pod.app().call(to_service).captured(15001, to_service);
            if inbound {
                pod.outside().call(to_app).captured(15006, to_app);
            } else {
                pod.outside().call(to_app).served_by("app");
            }
        }
    };
    pod.apply(&OPTIONS);
    start_virtual_machine(&pod);
    let before = foreign(&pod);
    let verify = [&OPTIONS[..], &["--verify"]].concat();
    pod.apply(&verify).output_contains("already converged");
    captures(true);
    pod.apply(&["-b", "9090", "-i", "*", "--verify"]);
    captures(false);
    pod.apply(&verify);
    captures(true);
    pod.apply(&["--cleanup-only"]).output_contains("no rules in place");
    for family in fixture.families() {
        pod.app().call(at(family.service(), 80)).served_by("outside");
    }
    assert_eq!(foreign(&pod), before);
    // Nothing of ours is left either.
    for family in fixture.families() {
        let ruleset = pod.namespace.run(|| tool("nft", &["list", "table", nft_family(*family).0, "nat"], ""));
        assert!(!ruleset.contains("ISTIO") && !ruleset.contains("eth7"), "{ruleset}");
    }
}

fn base_chain_of_kubevirt_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    start_virtual_machine(&pod);
    let verify = [&OPTIONS[..], &["--verify"]].concat();
    for args in [&OPTIONS[..], &OPTIONS, &verify] {
        let output = pod.apply(args).output();
        for family in fixture.families() {
            for (chain, hook) in [("prerouting", "prerouting"), ("output", "output")] {
                let named = format!("may decide before ours: {} nat {chain} ({hook}", nft_family(*family).0);
                assert_eq!(output.matches(&named).count(), 1, "{named}: {output}");
            }
        }
        assert_eq!(output.matches("a foreign base chain").count(), 2 * fixture.families().len(), "{output}");
    }
}

fn rules_that_jump_to_chains_that_cannot_be_listed_are_named(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    start_virtual_machine(&pod);
    for family in fixture.families() {
        let (name, _) = nft_family(*family);
        nft(
            &pod,
            &format!("insert rule {name} nat PREROUTING iifname \"eth0\" counter jump KUBEVIRT_PREINBOUND"),
        );
    }
    let output = pod.apply(&OPTIONS).output();
    let named = "nat `-A PREROUTING -i eth0 -j KUBEVIRT_PREINBOUND`: packets that it hands to KUBEVIRT_PREINBOUND \
                 (DNAT) are not captured if the rules there match them;";
    assert_eq!(output.matches(named).count(), fixture.families().len(), "{output}");
}
