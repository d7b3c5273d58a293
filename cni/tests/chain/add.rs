//! ADD that is repeated, refused, early, or one of many at once.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use netlab::process::{command, run};
use serde_json::{Value, json};

use crate::common::{INJECTED, PluginOutput, Pod, call, plugin};
use crate::runtime::Node;

/// The tables of a pod, without counters.
fn tables(pod: &Pod) -> String {
    pod.netns.run(|| run("nft", &["--stateless", "list", "ruleset"]))
}

#[test]
fn log_line_of_a_captured_pod_says_what_was_done_and_how_long_it_took() {
    for backend in ["nftables", "iptables-nft", "iptables-legacy"] {
        let node = Node::new(backend);
        let pod = Pod::new("logged", &[INJECTED]);
        let output = node.ours(&pod, "ADD", &json!({"cniVersion": "1.0.0"}));
        output.printed();
        let lines = output.stderr.lines().map(|line| serde_json::from_str(line).unwrap());
        let lines: Vec<Value> = lines.collect();
        // Lines of several pods are mixed in the agent's log.
        for line in &lines {
            assert_eq!(line["pod"], "default/logged", "{line}");
        }
        let captured: Vec<&Value> = lines.iter().filter(|line| line["msg"] == "captured").collect();
        let [line] = captured.as_slice() else { panic!("{captured:?}") };
        let texts =
            ["pod", "backend", "rules", "outcome"].map(|field| line[field].as_str().unwrap_or_default());
        assert_eq!([texts[0], texts[1], texts[3]], ["default/logged", backend, "captured"], "{line}");
        let (v4, v6) = texts[2].split_once(" IPv4 rules, ").unwrap_or_else(|| panic!("{line}"));
        let numbers =
            [v4, v6.strip_suffix(" IPv6 rules").unwrap()].map(|number| number.parse::<u32>().unwrap());
        assert!(numbers.iter().all(|number| *number > 10), "{line}");
        let [decided, rules, total] =
            ["decide_us", "rules_us", "total_us"].map(|field| line[field].as_u64().unwrap());
        assert!(rules > 0 && decided + rules <= total, "{line}");
    }
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

/// ADD of our plugin alone, with more variables.
fn add_with(node: &Node, pod: &Pod, more: &[(&str, &str)]) -> PluginOutput {
    let mut input = node.configuration();
    input["prevResult"] = json!({"cniVersion": "1.1.0"});
    input["runtimeConfig"] = json!({"io.kubernetes.cri.pod-annotations": pod.annotations});
    let netns = pod.netns.path();
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "alone"),
        ("CNI_NETNS", netns.as_str()),
        ("CNI_ARGS", pod.args.as_str()),
    ];
    call(plugin(), &[&variables[..], more].concat(), input.to_string().as_bytes())
}

/// As `cnitool` does with the name: the plugin is itself a process of its parent for `lo` then, and waits for
/// no other.
#[test]
fn add_for_the_loopback_interface_does_not_wait_for_itself() {
    let mut node = Node::new("nftables");
    node.set("plugin_log_level", json!("debug"));
    let pod = Pod::new("own", &[INJECTED]);
    let output = add_with(&node, &pod, &[("CNI_IFNAME", "lo")]);
    output.printed();
    assert!(!output.stderr.contains("lo is still down"), "{}", output.stderr);
    assert!(tables(&pod).contains("redirect to :15006"));
}

/// The runtime's library joins message and details; the whole is the pod's event.
#[test]
fn error_of_add_has_no_details_which_are_logged() {
    let node = Node::new("iptables-legacy");
    let pod = Pod::new("refused", &[INJECTED]);
    let output = add_with(&node, &pod, &[("CNI_IFNAME", "eth0"), ("PATH", "/nonexistent")]);
    let message = output.error(103);
    assert!(message.starts_with("--backend iptables-legacy cannot be used"), "{message}");
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(document.get("details"), None, "{document}");
    let lines = output.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let detailed: Vec<Value> = lines.filter(|line| line["details"] != Value::Null).collect();
    assert!(
        matches!(detailed.as_slice(), [line] if line["level"] == "error"
            && line["details"].as_str().unwrap().contains("what to do: put iptables-legacy into the image")),
        "{}",
        output.stderr
    );
}

#[test]
fn pod_that_cannot_be_captured_does_not_start() {
    let node = Node::new("nftables");
    let refused = |annotations: &[(&str, &str)], code: u64| {
        let pod = Pod::new("refused", annotations);
        let output = node.try_add(&pod);
        assert_eq!(tables(&pod), "", "nothing is half applied");
        assert!(node.state().is_empty());
        node.delete(&pod, &Value::Null);
        output.error(code)
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
        let output = node.namespace.run(|| call(plugin(), &variables, input.to_string().as_bytes()));
        assert!(output.error(4).contains(part), "{output:?}");
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
        for output in added {
            assert_eq!(output.join().unwrap().printed(), result.to_string());
        }
    });
    assert_eq!(node.state().len(), PODS);
    let wanted = tables(&pods[0]);
    assert!(wanted.contains("redirect to :15001"), "{wanted}");
    pods.iter().for_each(|pod| assert_eq!(tables(pod), wanted));
}
