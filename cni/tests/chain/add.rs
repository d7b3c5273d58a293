//! ADD that is repeated, refused, early, or one of many at once.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use netlab::process::{command, run};
use serde_json::{Value, json};

use crate::common::{INJECTED, Pod, call, plugin};
use crate::runtime::Node;

/// The tables of a pod, without counters.
fn tables(pod: &Pod) -> String {
    pod.netns.run(|| run("nft", &["--stateless", "list", "ruleset"]))
}

#[test]
fn second_add_changes_nothing() {
    let node = Node::new("nftables");
    let pod = Pod::new("twice", &[INJECTED]);
    let result = node.add(&pod);
    let handles = || pod.netns.run(|| run("nft", &["--stateless", "--handle", "list", "ruleset"]));
    let before = handles();
    assert!(before.contains("redirect to :15006"), "{before}");
    let again = node.ours(&pod, "ADD", &result);
    assert_eq!(serde_json::from_str::<Value>(again.printed()).unwrap(), result);
    assert!(again.stderr.contains("nothing written"), "{}", again.stderr);
    assert_eq!(handles(), before);
    assert_eq!(node.state(), ["twice.eth0.json"]);
}

/// containerd calls the plugin `loopback` at the same time, which refuses an address of ours on `lo`.
#[test]
fn add_waits_for_the_loopback_interface() {
    let node = Node::new("nftables");
    let pod = Pod::new("early", &[INJECTED]);
    pod.netns.run(|| run("ip", &["link", "set", "lo", "down"]));
    let result = json!({"cniVersion": "1.1.0", "interfaces": [], "ips": []});
    // A process of the runtime that sets up the interface, checks it, and ends.
    let checked = node.folder.path().join("checked");
    let check = format!("sleep 0.3; touch {}", checked.display());
    let environment = [("CNI_CONTAINERID", "early"), ("CNI_IFNAME", "lo")];
    thread::scope(|scope| {
        let add = scope.spawn(|| {
            node.ours(&pod, "ADD", &result).printed();
            checked.exists()
        });
        thread::sleep(Duration::from_millis(300));
        let mut loopback = command("sh", &["-c", &check]).envs(environment).spawn().unwrap();
        pod.netns.run(|| run("ip", &["link", "set", "lo", "up"]));
        assert!(loopback.wait().unwrap().success());
        assert!(add.join().unwrap(), "ADD did not wait");
    });
    assert!(tables(&pod).contains("redirect to :15006"));
}

/// The runtime's library joins message and details; the whole is the pod's event.
#[test]
fn error_of_add_has_no_details_which_are_logged() {
    let node = Node::new("iptables-legacy");
    let pod = Pod::new("refused", &[INJECTED]);
    let mut input = node.configuration();
    input["prevResult"] = json!({"cniVersion": "1.1.0"});
    input["runtimeConfig"] = json!({"io.kubernetes.cri.pod-annotations": pod.annotations});
    let netns = pod.netns.path();
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "refused"),
        ("CNI_NETNS", &netns),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", &pod.args),
        ("PATH", "/nonexistent"),
    ];
    let answer = call(plugin(), &variables, input.to_string().as_bytes());
    let message = answer.error(102);
    assert!(message.starts_with("--backend iptables-legacy cannot be used"), "{message}");
    let document: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(document.get("details"), None, "{document}");
    let lines = answer.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let detailed: Vec<Value> = lines.filter(|line| line["details"] != Value::Null).collect();
    assert!(
        matches!(detailed.as_slice(), [line] if line["level"] == "error"
            && line["details"].as_str().unwrap().contains("what to do: put the package `iptables`")),
        "{}",
        answer.stderr
    );
}

#[test]
fn pod_that_cannot_be_captured_does_not_start() {
    let node = Node::new("nftables");
    let refused = |annotations: &[(&str, &str)], code: u64| {
        let pod = Pod::new("refused", annotations);
        let answer = node.try_add(&pod);
        assert_eq!(tables(&pod), "", "nothing is half applied");
        assert!(node.state().is_empty());
        node.delete(&pod, &Value::Null);
        answer.error(code)
    };
    let bad = refused(&[INJECTED, ("traffic.sidecar.istio.io/excludeInboundPorts", "80,http")], 7);
    assert!(
        bad.starts_with("annotation traffic.sidecar.istio.io/excludeInboundPorts: \"http\" is not accepted"),
        "{bad}"
    );
    let version = refused(&[INJECTED, ("istio-iptables/capture-options", r#"{"version":2}"#)], 7);
    assert!(version.contains("version 2 is not accepted, expected 1"), "{version}");
    let unclear = refused(&[("sidecar.istio.io/status", r#"{"containers":["istio-proxy"]}"#)], 11);
    assert!(unclear.contains("default/refused"), "{unclear}");
    let mut without = Pod::new("without", &[]);
    without.annotations = None;
    assert!(node.try_add(&without).error(11).contains("capabilities"));
}

#[test]
fn namespace_of_the_node_is_refused() {
    let node = Node::new("nftables");
    let mut pod = Pod::new("node", &[INJECTED]);
    pod.netns = node.namespace.clone();
    let result = json!({"cniVersion": "1.0.0"});
    let refused = node.ours(&pod, "ADD", &result).error(4);
    assert!(
        refused.contains("CNI_NETNS") && refused.contains("network namespace of this process"),
        "{refused}"
    );
    assert_eq!(tables(&pod), "");
    for (path, part) in [("/nonexistent/ns", "no such file"), ("/dev/null", "not a network namespace")] {
        let mut input = node.configuration();
        input["prevResult"] = result.clone();
        input["runtimeConfig"] = json!({"io.kubernetes.cri.pod-annotations": pod.annotations});
        let variables = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "x"),
            ("CNI_NETNS", path),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", &pod.args),
        ];
        let answer = node.namespace.run(|| call(plugin(), &variables, input.to_string().as_bytes()));
        assert!(answer.error(4).contains(part), "{answer:?}");
    }
}

#[test]
fn unwritable_run_directory_fails_and_rules_stay() {
    let node = Node::new("nftables");
    let pod = Pod::new("stateless", &[INJECTED]);
    std::fs::write(node.folder.path().join("run"), "").unwrap();
    assert!(node.try_add(&pod).error(5).contains("run/state"));
    assert!(
        tables(&pod).contains("redirect to :15006"),
        "until the sandbox is deleted nothing bypasses the proxy"
    );
}

/// As after a reboot.
#[test]
fn hundred_pods_at_once_are_captured() {
    const PODS: usize = 100;
    let node = Node::new("nftables");
    let pods: Vec<Pod> = (0..PODS).map(|number| Pod::new(&format!("pod{number}"), &[INJECTED])).collect();
    let result = json!({"cniVersion": "1.0.0"});
    let begin = Barrier::new(PODS);
    thread::scope(|scope| {
        let added: Vec<_> = pods
            .iter()
            .map(|pod| {
                let (node, result, begin) = (&node, &result, &begin);
                scope.spawn(move || {
                    begin.wait();
                    node.ours(pod, "ADD", result)
                })
            })
            .collect();
        for answer in added {
            assert_eq!(answer.join().unwrap().printed(), result.to_string());
        }
    });
    assert_eq!(node.state().len(), PODS);
    let wanted = tables(&pods[0]);
    assert!(wanted.contains("redirect to :15001"), "{wanted}");
    pods.iter().for_each(|pod| assert_eq!(tables(pod), wanted));
}

/// Where the processes of a pod are root in a user namespace of their own, its network namespace belongs to that one.
#[test]
fn pod_in_a_user_namespace_is_captured() {
    use netlab::{Holder, Kinds};
    let none: [(&str, &str); 0] = [];
    let kinds = Kinds { user: true, net: true, mount: false };
    let holder = Holder::new(kinds, "true", none);
    run("nsenter", &["-t", &holder.pid().to_string(), "-n", "ip", "link", "set", "lo", "up"]);
    let node = Node::new("nftables");
    let pod = Pod::new("user", &[INJECTED]);
    let mut input = node.configuration();
    input["prevResult"] = json!({"cniVersion": "1.0.0"});
    input["runtimeConfig"] = json!({"io.kubernetes.cri.pod-annotations": pod.annotations});
    let netns = format!("/proc/{}/ns/net", holder.pid());
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "user"),
        ("CNI_NETNS", &netns),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", &pod.args),
    ];
    call(plugin(), &variables, input.to_string().as_bytes()).printed();
    let listed = command("nsenter", &["-t", &holder.pid().to_string(), "-n", "nft", "list", "ruleset"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&listed.stdout).contains("redirect to :15006"), "{listed:?}");
}
