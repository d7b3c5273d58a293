//! `istio-cni audit`: the state of all captured pods, without an agent.

use std::os::unix::fs::symlink;

use netlab::process::run;
use serde_json::{Value, json};

use crate::common::{INJECTED, Pod};
use crate::lab::{Node, in_pod};

/// Runs it. Returns the exit code and the text.
#[track_caller]
pub(crate) fn audit(node: &Node, options: &[&str]) -> (i32, String) {
    let output = node.audit(options);
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
}

/// The line of a pod, in words.
#[track_caller]
pub(crate) fn line(text: &str, pod: &Pod) -> String {
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
    assert!(text.ends_with("3 pods: 3 ok, 0 drift, 0 uncaptured, 0 vanished, 0 unreadable\n"), "{text}");

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
    assert!(text.ends_with("3 pods: 0 ok, 2 drift, 0 uncaptured, 1 vanished, 0 unreadable\n"), "{text}");

    let (code, text) = audit(&node, &["--output=json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 1);
    assert_eq!(
        report["count"],
        json!({"ok": 0, "drift": 2, "uncaptured": 0, "vanished": 1, "unreadable": 0})
    );
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
    let path = |name: &str| node.path("run/state").join(format!("{name}.eth0.json"));
    std::fs::write(path("broken"), "{").unwrap();
    std::fs::write(path("newer"), r#"{"version": 99}"#).unwrap();
    std::fs::create_dir(path("folder")).unwrap();
    symlink("nothing", path("link")).unwrap();
    // To open it would wait for a writer.
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (code, text) = audit(&node, &[]);
    assert_eq!((code, line(&text, &pod).as_str()), (1, "nftables ok"));
    for (name, reason) in [
        ("broken", "it is not JSON: "),
        ("newer", "it has version 99 of state files"),
        ("folder", "it is a directory, not a file"),
        ("link", "it is gone, or a link to nothing"),
        ("fifo", "it is a FIFO, a socket or a device, not a file"),
    ] {
        assert!(
            text.contains(&format!("unreadable  state file {name}.eth0.json: {reason}")),
            "{name}: {text}"
        );
    }
    assert!(text.ends_with("6 pods: 1 ok, 0 drift, 0 uncaptured, 0 vanished, 5 unreadable\n"), "{text}");
}

/// Rules that are right capture nothing for a proxy that packets do not reach: as `istio-iptables check`, and
/// CHECK.
#[test]
fn a_namespace_in_which_captured_connections_are_lost_is_drift() {
    let node = Node::new();
    for backend in ["nftables", "iptables-nft", "iptables-legacy"] {
        for (mode, change, mending, reason) in [
            ("REDIRECT", "ip link set lo down", "ip link set lo up", "lo is down"),
            (
                "REDIRECT",
                "ip addr del 127.0.0.1/8 dev lo",
                "ip addr add 127.0.0.1/8 dev lo",
                "127.0.0.1 is not on lo",
            ),
            (
                "REDIRECT",
                "ip route replace unreachable default",
                "ip route replace default via 10.9.0.1 dev eth0",
                "unreachable default",
            ),
            (
                "TPROXY",
                "ip rule del fwmark 1337 lookup 133",
                "ip rule add fwmark 1337 lookup 133 priority 1337",
                "ip -4 rule add",
            ),
        ] {
            let annotation = ("sidecar.istio.io/interceptionMode", mode);
            let pod = Pod::new(&format!("{}-{backend}", mode.to_lowercase()), &[INJECTED, annotation]);
            in_pod(&pod, "ip link add eth0 type veth peer name world");
            in_pod(&pod, "ip addr add 10.9.0.2/24 dev eth0");
            in_pod(&pod, "ip link set eth0 up");
            in_pod(&pod, "ip link set world up");
            in_pod(&pod, "ip route add default via 10.9.0.1 dev eth0");
            node.add(&pod, backend, &json!({}));
            let link = node.path("netns").join(&pod.container);
            symlink(pod.netns.path(), &link).unwrap();
            let state = || {
                let (code, text) = audit(&node, &[]);
                (code, line(&text, &pod), node.is_captured(&pod))
            };
            assert_eq!(state(), (0, format!("{backend} ok"), true), "{change}");
            in_pod(&pod, change);
            let (code, line, is_captured) = state();
            assert!(
                line.starts_with(&format!("{backend} drift ")) && line.contains(reason),
                "{change}: {line}"
            );
            assert_eq!((code, is_captured), (1, false), "{change}: {line}");
            in_pod(&pod, mending);
            assert_eq!(state(), (0, format!("{backend} ok"), true), "{mending}");
            node.delete(&pod);
            std::fs::remove_file(link).unwrap();
        }
    }
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
    symlink(other.netns.path(), node.path("netns/other")).unwrap();
    let (code, text) = audit(&node, &[]);
    assert_eq!(code, 0);
    assert!(
        line(&text, &pod).contains("vanished its network namespace is gone, another one has its number"),
        "{text}"
    );
    assert_eq!(other.netns.run(|| run("nft", &["list", "ruleset"])), "");
}
