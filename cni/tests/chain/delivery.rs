//! ADD where the kernel drops what the rules capture: on the pod's own interface the pod does not start.

use netlab::Namespace;
use netlab::process::run;
use serde_json::Value;

use crate::common::{INJECTED, Pod};
use crate::runtime::Node;

const TPROXY: (&str, &str) = ("sidecar.istio.io/interceptionMode", "TPROXY");
const BACKENDS: [&str; 3] = ["nftables", "iptables-nft", "iptables-legacy"];

/// A node with a VPN, or a network plugin that works with marks, has such a setting, and a new namespace
/// inherits it.
#[test]
fn pod_whose_interface_drops_marked_packets_or_their_replies_does_not_start() {
    for (setting, what) in [
        ("net.ipv4.conf.all.src_valid_mark=1", "arrive on eth0 are dropped"),
        ("net.ipv4.tcp_fwmark_accept=1", "arrive on eth0 get no reply"),
        ("net.ipv4.tcp_syncookies=2", "arrive on eth0 are reset"),
    ] {
        for backend in BACKENDS {
            let node = Node::new(backend);
            let pod = Pod::new("vpn", &[INJECTED, TPROXY]);
            pod.netns.run(|| run("sysctl", &["-qw", setting]));
            let message = node.try_add(&pod).error(102);
            for part in [what, setting, "use REDIRECT"] {
                assert!(message.contains(part), "{backend}: {part}: {message}");
            }
            assert_eq!(pod.netns.run(|| run("nft", &["list", "ruleset"])).trim(), "", "{backend}");
            assert!(node.state().is_empty());
            // The same pod with REDIRECT is not affected.
            let pod = Pod::new("redirect", &[INJECTED]);
            pod.netns.run(|| run("sysctl", &["-qw", setting]));
            node.add(&pod);
        }
    }
}

#[test]
fn pod_whose_interface_has_no_address_for_redirect_does_not_start() {
    let node = Node::new("nftables");
    let pod = Pod::new("unnumbered", &[INJECTED]);
    let result = node.add(&pod);
    pod.netns.run(|| {
        run("nft", &["flush", "ruleset"]);
        run("ip", &["-4", "address", "flush", "dev", "eth0"]);
        run("ip", &["route", "add", "10.99.0.0/16", "dev", "eth0"]);
    });
    let message = node.ours(&pod, "ADD", &result).error(102);
    assert!(message.contains("eth0 has none") && message.contains("TPROXY"), "{message}");
}

/// Of another interface it is a warning: the pod may not be reached by it.
#[test]
fn other_interface_that_drops_is_logged() {
    let node = Node::new("nftables");
    let pod = Pod::new("second", &[INJECTED]);
    pod.netns.run(|| {
        run("ip", &["link", "add", "net1", "type", "veth", "peer", "name", "peer1"]);
        run("ip", &["link", "set", "peer1", "up"]);
        run("ip", &["link", "set", "net1", "up"]);
        run("ip", &["route", "add", "10.99.0.0/16", "dev", "net1"]);
    });
    let output = node.try_add(&pod);
    output.printed();
    let lines: Vec<Value> = output.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let warned = lines.iter().any(|line| {
        line["level"] == "warn"
            && line["msg"].as_str().is_some_and(|text| text.contains("arrive on net1 are dropped"))
    });
    assert!(warned, "{lines:?}");
}

/// A container of the pod, or a virtual machine, in a network namespace of its own.
#[test]
fn forwarded_traffic_that_is_captured_is_a_warning() {
    for backend in BACKENDS {
        for is_forwarding in [false, true] {
            let node = Node::new(backend);
            let (pod, inner) = (Pod::new("builder", &[INJECTED]), Namespace::with_loopback());
            pod.netns.connect("inner0", &inner, "eth0");
            pod.netns.ip("address add 10.9.0.1/24 dev inner0");
            let value = format!("net.ipv4.ip_forward={}", u8::from(is_forwarding));
            pod.netns.run(|| run("sysctl", &["-qw", &value]));
            let output = node.try_add(&pod);
            output.printed();
            let warned = output.stderr.lines().any(|line| {
                let line: Value = serde_json::from_str(line).unwrap();
                let says = "connections of containers or virtual machines behind inner0 to other hosts";
                line["level"] == "warn" && line["msg"].as_str().is_some_and(|text| text.contains(says))
            });
            assert_eq!(warned, is_forwarding, "{backend}: {}", output.stderr);
        }
    }
}
