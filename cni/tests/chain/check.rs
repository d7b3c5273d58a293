//! CHECK: rules that are gone, changed or bypassed, and what CHECK ignores.

use netlab::process::run;
use serde_json::json;

use crate::common::{INJECTED, Pod};
use crate::runtime::Node;

#[test]
fn check_finds_rules_that_are_gone_or_others() {
    for backend in ["nftables", "iptables-nft", "iptables-legacy"] {
        let node = Node::new(backend);
        let pod = Pod::new("checked", &[INJECTED]);
        let result = node.add(&pod);
        let check = || node.ours(&pod, "CHECK", &result);
        assert_eq!(check().printed(), "", "{backend}");
        pod.netns.run(|| match backend {
            "nftables" => {
                run("nft", &["insert", "rule", "inet", "istio-proxy-nat", "istio-output", "return"])
            }
            "iptables-nft" => run("iptables-nft", &["-t", "nat", "-I", "ISTIO_OUTPUT", "-j", "RETURN"]),
            _ => run("iptables-legacy", &["-t", "nat", "-I", "ISTIO_OUTPUT", "-j", "RETURN"]),
        });
        let first = check().error(101);
        let wanted = "rule 1 is unexpected: ";
        assert!(first.contains(wanted) && first.to_lowercase().contains("return"), "{backend}: {first}");
        // ADD corrects them.
        node.ours(&pod, "ADD", &result).printed();
        check().printed();
        pod.netns.run(|| match backend {
            "nftables" => run("nft", &["flush", "ruleset"]),
            "iptables-nft" => run("iptables-nft", &["-t", "nat", "-F", "ISTIO_OUTPUT"]),
            _ => run("iptables-legacy", &["-t", "nat", "-F", "ISTIO_OUTPUT"]),
        });
        let names_the_backend = || {
            let first = check().error(101);
            assert!(first.contains(&format!("({backend}), rule 1 is missing")), "{backend}: {first}");
        };
        names_the_backend();
        // Without state CHECK decides again.
        std::fs::remove_file(node.folder.path().join("run/state/checked.eth0.json")).unwrap();
        names_the_backend();
    }
}

/// The option of the node may be another by now, and be no reason to look for the rules elsewhere.
#[test]
fn check_names_the_backend_that_add_used() {
    let mut node = Node::new("nftables");
    let pod = Pod::new("checked", &[INJECTED]);
    let result = node.add(&pod);
    node.set("backend", json!("iptables-legacy"));
    assert_eq!(node.ours(&pod, "CHECK", &result).printed(), "");
    pod.netns.run(|| run("nft", &["flush", "ruleset"]));
    let first = node.ours(&pod, "CHECK", &result).error(101);
    assert!(first.contains("(nftables), rule 1 is missing"), "{first}");
}

#[test]
fn check_of_a_captured_pod_without_a_name_compares() {
    let node = Node::new("nftables");
    let mut pod = Pod::new("checked", &[INJECTED]);
    let result = node.add(&pod);
    pod.args = String::new();
    assert!(node.ours(&pod, "CHECK", &result).error(4).contains("an injected pod"));
    pod.annotations = None;
    assert_eq!(node.ours(&pod, "CHECK", &result).printed(), "");
    pod.netns.run(|| run("nft", &["flush", "ruleset"]));
    node.ours(&pod, "CHECK", &result).error(101);
    std::fs::remove_file(node.folder.path().join("run/state/checked.eth0.json")).unwrap();
    assert_eq!(
        node.ours(&pod, "CHECK", &result).printed(),
        "",
        "nothing says that it is a pod of Kubernetes"
    );
}

/// Our rules are as they should be, and no packet reaches them.
#[test]
fn check_finds_a_foreign_rule_that_decides_before_ours() {
    for backend in ["nftables", "iptables-nft", "iptables-legacy"] {
        let node = Node::new(backend);
        let pod = Pod::new("checked", &[INJECTED]);
        let result = node.add(&pod);
        let check = || node.ours(&pod, "CHECK", &result);
        assert_eq!(check().printed(), "", "{backend}");
        let iptables = if backend == "nftables" { "iptables-nft" } else { backend };
        let table = ["-t", "nat"];
        if backend == "nftables" {
            pod.netns.run(|| run("nft", &["add", "table", "ip", "foreign"]));
            let chain = "{ type nat hook output priority -150; policy accept; }";
            pod.netns.run(|| run("nft", &["add", "chain", "ip", "foreign", "first", chain]));
            let rule = "ip protocol tcp redirect to :7777";
            pod.netns.run(|| run("nft", &["add", "rule", "ip", "foreign", "first", rule]));
        } else {
            let rule = ["-I", "OUTPUT", "-p", "tcp", "-j", "ACCEPT"];
            pod.netns.run(|| run(iptables, &[&table[..], &rule].concat()));
        }
        let problem = check().error(101);
        assert!(!problem.contains("the live rules differ"), "{backend}: {problem}");
        let named = if backend == "nftables" { "foreign" } else { "ACCEPT" };
        assert!(problem.contains(named), "{backend}: {problem}");
        pod.netns.run(|| {
            if backend == "nftables" {
                run("nft", &["delete", "table", "ip", "foreign"])
            } else {
                run(iptables, &[&table[..], &["-D", "OUTPUT", "1"]].concat())
            }
        });
        assert_eq!(check().printed(), "", "{backend}");
    }
}

/// Where ADD refuses the pod.
#[test]
fn check_finds_a_setting_with_which_the_kernel_drops_captured_connections() {
    for backend in ["nftables", "iptables-nft", "iptables-legacy"] {
        let node = Node::new(backend);
        let pod = Pod::new("vpn", &[INJECTED, ("sidecar.istio.io/interceptionMode", "TPROXY")]);
        let result = node.add(&pod);
        let check = || node.ours(&pod, "CHECK", &result);
        assert_eq!(check().printed(), "", "{backend}");
        let set = |value| {
            let setting = format!("net.ipv4.conf.all.src_valid_mark={value}");
            pod.netns.run(|| run("sysctl", &["-qw", &setting]));
        };
        set(1);
        let problem = check().error(101);
        assert!(problem.starts_with("connections that arrive on eth0 are dropped"), "{backend}: {problem}");
        assert_eq!(node.ours(&pod, "ADD", &result).error(102), problem);
        set(0);
        assert_eq!(check().printed(), "", "{backend}");
    }
}

/// What other programs have in the pod's namespace, and no packet is less captured for.
#[test]
fn check_succeeds_beside_what_does_not_decide_over_capture() {
    for backend in ["nftables", "iptables-nft", "iptables-legacy"] {
        let node = Node::new(backend);
        let pod = Pod::new("checked", &[INJECTED]);
        let result = node.add(&pod);
        let check = |case: &str| {
            let output = node.ours(&pod, "CHECK", &result);
            assert_eq!(output.printed(), "", "{backend}: {case}");
            output.stderr
        };
        let nft = |text: &str| pod.netns.run(|| netlab::process::run_with_input("nft", &["-f", "-"], text));
        nft("add table netdev other\n\
             add chain netdev other count { type filter hook ingress device eth0 priority 0; }\n\
             add rule netdev other count counter\n");
        assert!(check("a chain at a device").contains("ingress"), "{backend}: it is logged");
        nft("add table inet other\n\
             add chain inet other behind { type filter hook input priority 10; }\n\
             add rule inet other behind tcp dport 15001 drop\n");
        assert!(check("a chain behind ours").contains("15001"), "{backend}: it is logged");
    }
}

/// The agent's option changes; pods that run keep the rules that they have.
#[test]
fn check_of_rules_in_an_earlier_backend_succeeds() {
    let backends = ["nftables", "iptables-nft", "iptables-legacy"];
    for before in backends {
        let node = Node::new(before);
        let pod = Pod::new("checked", &[INJECTED]);
        let result = node.add(&pod);
        for after in backends {
            let mut input = node.configuration();
            input["backend"] = json!(after);
            input["prevResult"] = result.clone();
            let output = node.namespace.run(|| pod.plugin("CHECK", &input));
            assert_eq!(output.printed(), "", "{before}, then {after}");
        }
    }
}

#[test]
fn check_of_a_pod_that_is_not_captured_succeeds() {
    let node = Node::new("nftables");
    let pod = Pod::new("plain", &[]);
    let result = node.add(&pod);
    assert_eq!(node.ours(&pod, "CHECK", &result).printed(), "");
}
