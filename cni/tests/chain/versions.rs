//! CHECK of pods that another version of the plugin has captured: what counts is what happens to packets, not
//! the form of the rules.

use netlab::process::run;
use serde_json::{Value, json};

use crate::common::{INJECTED, Pod};
use crate::runtime::Node;

const BACKENDS: [&str; 3] = ["nftables", "iptables-nft", "iptables-legacy"];

/// A state file as another version has written it; the rest is as recorded in this run.
fn rewrite(node: &Node, change: impl FnOnce(&mut Value)) {
    let path = node.folder.path().join("run/state/checked.eth0.json");
    let mut state: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut state);
    std::fs::write(&path, state.to_string()).unwrap();
}

/// In a chain of the pod, at its end: no packet meets it there, as the rule before is about all.
fn append(pod: &Pod, backend: &str, chain: (&str, &str), rule: [&str; 2]) {
    let [native, iptables] = rule;
    pod.netns.run(|| match backend {
        "nftables" => {
            let words: Vec<&str> = native.split(' ').collect();
            run("nft", &[&["add", "rule", "inet", "istio-proxy-nat", chain.0], &words[..]].concat());
        }
        tool => {
            let words: Vec<&str> = iptables.split(' ').collect();
            run(tool, &[&["-t", "nat", "-A", chain.1], &words[..]].concat());
        }
    });
}

fn insert(pod: &Pod, backend: &str) {
    pod.netns.run(|| match backend {
        "nftables" => run("nft", &["insert", "rule", "inet", "istio-proxy-nat", "istio-output", "return"]),
        tool => run(tool, &["-t", "nat", "-I", "ISTIO_OUTPUT", "-j", "RETURN"]),
    });
}

#[test]
fn check_compares_packets_where_another_version_wrote_the_rules() {
    for backend in BACKENDS {
        let node = Node::new(backend);
        let pod = Pod::new("checked", &[INJECTED]);
        let result = node.add(&pod);
        let check = || node.ours(&pod, "CHECK", &result);
        // A rule that nothing reaches: packets are treated as before.
        append(
            &pod,
            backend,
            ("istio-redirect", "ISTIO_REDIRECT"),
            ["tcp dport 7 return", "-p tcp --dport 7 -j RETURN"],
        );
        assert!(check().error(101).contains("unexpected"), "{backend}: ADD did not write that");
        rewrite(&node, |state| state["plugin"] = json!("0.0.1"));
        assert!(
            check().error(101).contains("unexpected"),
            "{backend}: nor did another version, whose rules are the same"
        );
        rewrite(&node, |state| state["rules"] = json!("0123456789abcdef"));
        assert_eq!(check().printed(), "", "{backend}");
        rewrite(&node, |state| drop(state.as_object_mut().unwrap().remove("rules")));
        assert_eq!(check().printed(), "", "{backend}: a state file without a digest");
        // Options that this version does not know, and files of a later format: the annotations decide.
        rewrite(&node, |state| state["options"]["option-of-another-version"] = json!("x"));
        assert_eq!(check().printed(), "", "{backend}");
        rewrite(&node, |state| state["version"] = json!(2));
        assert_eq!(check().printed(), "", "{backend}");
        // What changes the way of packets is found, by whatever program.
        insert(&pod, backend);
        assert!(check().error(101).contains("differ"), "{backend}");
        rewrite(&node, |state| {
            state["version"] = json!(1);
            state["rules"] = json!("0123456789abcdef");
        });
        assert!(check().error(101).contains("differ"), "{backend}");
    }
}

#[test]
fn check_of_another_version_finds_missing_routes() {
    let node = Node::new("nftables");
    let tproxy = ("sidecar.istio.io/interceptionMode", "TPROXY");
    let pod = Pod::new("checked", &[INJECTED, tproxy]);
    let result = node.add(&pod);
    let check = || node.ours(&pod, "CHECK", &result);
    rewrite(&node, |state| state["rules"] = json!("0123456789abcdef"));
    append(&pod, "nftables", ("istio-redirect", ""), ["tcp dport 7 return", ""]);
    assert_eq!(check().printed(), "");
    pod.netns.run(|| run("ip", &["route", "flush", "table", "133"]));
    check().error(101);
}
