//! `istio-cni audit`: the state of all captured pods, without an agent.

use netlab::process::run;
use serde_json::{Value, json};

use crate::common::Pod;
use crate::lab::{Node, in_pod};

/// Runs it. Returns the exit code and the text.
#[track_caller]
fn audit(node: &Node, options: &[&str]) -> (i32, String) {
    let output = node.audit(options);
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// The line of a pod, in words.
#[track_caller]
fn line(text: &str, pod: &Pod) -> String {
    let start = format!("default/{} ", pod.container);
    let line =
        text.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("{start}: {text}"));
    line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
}

#[test]
fn each_state_is_named_and_drift_is_exit_1() {
    let node = Node::new();
    let native = node.pod("native", "nftables");
    let iptables = node.pod("iptables", "iptables-nft");
    let legacy = node.pod("legacy", "iptables-legacy");
    let (code, text) = audit(&node, &[]);
    assert_eq!(code, 0);
    for (pod, backend) in [(&native, "nftables"), (&iptables, "iptables-nft"), (&legacy, "iptables-legacy")] {
        assert_eq!(line(&text, pod), format!("{backend} ok"));
    }
    assert!(text.ends_with("3 pods: 3 ok, 0 drift, 0 vanished, 0 unreadable\n"), "{text}");

    in_pod(&native, "nft flush chain inet istio-proxy-nat istio-output");
    in_pod(&iptables, "iptables-nft -t nat -I ISTIO_OUTPUT -j RETURN");
    std::fs::remove_file(node.path("netns/legacy")).unwrap();
    let (code, text) = audit(&node, &[]);
    assert_eq!(code, 1);
    assert!(
        line(&text, &native).starts_with("nftables drift nat ISTIO_OUTPUT (nftables), rule 1 is missing: "),
        "{text}"
    );
    assert!(
        line(&text, &iptables)
            .starts_with("iptables-nft drift nat ISTIO_OUTPUT (iptables-nft), rule 1 is unexpected: "),
        "{text}"
    );
    assert_eq!(line(&text, &legacy), "iptables-legacy vanished its network namespace is gone");
    assert!(text.ends_with("3 pods: 0 ok, 2 drift, 1 vanished, 0 unreadable\n"), "{text}");

    let (code, text) = audit(&node, &["--output=json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 1);
    assert_eq!(report["count"], json!({"ok": 0, "drift": 2, "vanished": 1, "unreadable": 0}));
    let pod = &report["pods"][2];
    assert_eq!((&pod["pod"], &pod["state"]), (&json!("default/native"), &json!("drift")));
    assert!(pod["reason"].as_str().unwrap().contains("rule 1 is missing"), "{pod}");
    assert!(!node.is_captured(&native), "nothing is repaired");
}

/// The judgement of the guard: what changes no verdict is no drift, what decides is.
#[test]
fn foreign_rules_are_drift_only_if_they_decide() {
    let node = Node::new();
    let pod = node.pod("foreign", "iptables-nft");
    in_pod(&pod, "iptables-nft -t nat -I OUTPUT -p tcp -d 192.0.2.77 -m comment --comment other");
    let (code, text) = audit(&node, &[]);
    assert_eq!((code, line(&text, &pod).as_str()), (0, "iptables-nft ok"));
    in_pod(&pod, "iptables-nft -t nat -I OUTPUT -p tcp -j ACCEPT");
    let (code, text) = audit(&node, &[]);
    assert_eq!(code, 1);
    assert!(line(&text, &pod).starts_with("iptables-nft drift "), "{text}");
}

#[test]
fn states_that_cannot_be_read_are_no_success() {
    let node = Node::new();
    let pod = node.pod("ok", "nftables");
    std::fs::write(node.path("run/state/broken.eth0.json"), "{").unwrap();
    let (code, text) = audit(&node, &[]);
    assert_eq!((code, line(&text, &pod).as_str()), (1, "nftables ok"));
    assert!(text.contains("unreadable  state file broken.eth0.json: "), "{text}");
}

#[test]
fn a_node_without_state_and_one_without_namespaces_have_messages_of_their_own() {
    let node = Node::new();
    let (code, text) = audit(&node, &[]);
    assert!(code == 0 && text.starts_with("no captured pod is known: no state file in "), "{text}");
    assert!(!node.path("run/state").exists(), "nothing is written");
    let _pod = node.pod("pod", "nftables");
    std::fs::remove_dir_all(node.path("netns")).unwrap();
    let output = node.audit(&[]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("--netns-dir: cannot read "), "{text}");
    assert_eq!(output.stdout, b"");
}

/// The kernel gives the number of a namespace that has ended to another one.
#[test]
fn rules_of_ended_namespaces_are_vanished() {
    let node = Node::new();
    let pod = node.pod("ended", "nftables");
    let other = Pod::new("other", &[]);
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(other.netns.path()).unwrap());
    let file = node.state_file(&pod);
    let mut state: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    state["netns"] = json!(inode);
    std::fs::write(&file, state.to_string()).unwrap();
    let written = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    std::fs::File::options().append(true).open(&file).unwrap().set_modified(written).unwrap();
    std::os::unix::fs::symlink(other.netns.path(), node.path("netns/other")).unwrap();
    let (code, text) = audit(&node, &[]);
    assert_eq!(code, 0);
    assert!(
        line(&text, &pod).contains("vanished its network namespace is gone, another one has its number"),
        "{text}"
    );
    assert_eq!(other.netns.run(|| run("nft", &["list", "ruleset"])), "");
}
