//! Networks of other kinds, and other plugins in the list: families, order, further interfaces.

use std::fs;
use std::net::{IpAddr, SocketAddr};

use netlab::{Listen, Server, User};
use serde_json::{Value, json};

use crate::common::{INJECTED, Pod};
use crate::runtime::{GATEWAY_V4, GATEWAY_V6, Node};

const BACKENDS: [&str; 4] = ["auto", "nftables", "iptables-nft", "iptables-legacy"];

fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().unwrap();
    ips.iter().map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap()).collect()
}

/// The proxy, the app, and an outside host.
fn users(node: &Node, pod: &Pod) -> [User; 3] {
    [User::new(&pod.netns, 1337, 1337), User::new(&pod.netns, 1000, 1000), User::new(&node.namespace, 0, 0)]
}

fn serve(node: &Node, pod: &Pod) -> [Server; 3] {
    let [proxy, app, outside] = users(node, pod);
    [
        proxy.serve("proxy", &[Listen::Tcp(15001), Listen::Tcp(15006)]),
        app.serve("app", &[Listen::Tcp(8000)]),
        outside.serve("outside", &[Listen::Tcp(9000)]),
    ]
}

#[track_caller]
fn expect_captured(node: &Node, pod: &Pod, addresses: &[IpAddr], gateways: &[&str]) {
    let _servers = serve(node, pod);
    expect_served_captured(node, pod, addresses, gateways);
}

/// Calls in both directions are captured, by a port of the node too, and those of the proxy are not.
#[track_caller]
fn expect_served_captured(node: &Node, pod: &Pod, addresses: &[IpAddr], gateways: &[&str]) {
    let [proxy, app, outside] = users(node, pod);
    for gateway in gateways {
        let to = SocketAddr::new(gateway.parse().unwrap(), 9000);
        app.call(to).captured(15001, to);
        proxy.call(to).served_by("outside");
    }
    for address in addresses {
        let to = SocketAddr::new(*address, 8000);
        outside.call(to).captured(15006, to);
    }
    if node.plugins.iter().any(|plugin| plugin["type"] == "portmap")
        && let Some(v4) = addresses.iter().find(|address| address.is_ipv4())
    {
        let mapped = SocketAddr::new(GATEWAY_V4.parse().unwrap(), 8080);
        outside.call(mapped).captured(15006, SocketAddr::new(*v4, 80));
    }
}

fn with_ranges(node: &mut Node, ranges: &[&str]) {
    node.plugins[0]["ipam"]["ranges"] = ranges.iter().map(|subnet| json!([{ "subnet": subnet }])).collect();
}

#[test]
fn pods_with_ipv6_alone_are_captured() {
    for backend in BACKENDS {
        let mut node = Node::new(backend);
        with_ranges(&mut node, &["fd00:88::/64"]);
        node.plugins[0]["ipam"]["routes"] = json!([{"dst": "::/0"}]);
        node.set("capture", json!({}));
        let pod = Pod::new("six", &[INJECTED]);
        let result = node.add(&pod);
        assert_eq!(addresses(&result).len(), 1, "{backend}");
        expect_captured(&node, &pod, &addresses(&result), &[GATEWAY_V6]);
        assert_eq!(node.ours(&pod, "CHECK", &result).printed(), "", "{backend}");
    }
}

#[test]
fn pods_without_ipv6_are_captured_whether_dual_stack_is_set_or_not() {
    for backend in BACKENDS {
        for dual_stack in [true, false] {
            let mut node = Node::new(backend);
            with_ranges(&mut node, &["10.88.0.0/16"]);
            node.plugins[0]["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}]);
            node.set("capture", json!({ "dual_stack": dual_stack }));
            let pod = Pod::new("four", &[INJECTED]);
            pod.netns.run(|| {
                for interface in ["all", "default", "lo"] {
                    fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1").unwrap();
                }
            });
            let result = node.add(&pod);
            expect_captured(&node, &pod, &addresses(&result), &[GATEWAY_V4]);
            assert_eq!(node.ours(&pod, "CHECK", &result).printed(), "", "{backend}");
        }
    }
}

/// Whatever comes behind the entry, or between it and the plugin that makes the interface.
#[test]
fn plugins_behind_the_entry_and_before_it_do_not_matter() {
    for backend in BACKENDS {
        let mut node = Node::new(backend);
        let portmap = node.plugins.remove(1);
        node.plugins.insert(1, json!({"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}));
        node.plugins.push(portmap);
        node.plugins.push(json!({"type": "firewall", "backend": "iptables"}));
        node.plugins
            .push(json!({"type": "bandwidth", "ingressRate": 1_000_000_000, "ingressBurst": 1_000_000_000}));
        let pod = Pod::new("amid", &[INJECTED]);
        let result = node.add(&pod);
        expect_captured(&node, &pod, &addresses(&result), &[GATEWAY_V4, GATEWAY_V6]);
        assert_eq!(node.ours(&pod, "CHECK", &result).printed(), "", "{backend}");
        node.delete(&pod, &result);
        assert!(node.state().is_empty(), "{backend}");
    }
}

/// As multus attaches one: the same pod, another interface and network.
#[test]
fn further_interface_is_captured_and_its_end_leaves_the_first() {
    for backend in BACKENDS {
        let mut node = Node::new(backend);
        let mut pod = Pod::new("several", &[INJECTED]);
        let first = node.add(&pod);
        // The second network: a bridge of its own, with our entry in its list as well, or without.
        let second_list = |node: &mut Node| {
            node.plugins[0]["bridge"] = json!("cni1");
            node.plugins[0]["ipam"]["ranges"] = json!([[{"subnet": "10.89.0.0/16"}]]);
            node.plugins[0]["ipam"]["routes"] = json!([]);
            node.plugins.remove(1);
        };
        let before = node.plugins.clone();
        second_list(&mut node);
        pod.interface = "net1";
        let second = node.add(&pod);
        assert_eq!(node.state(), ["several.eth0.json", "several.net1.json"], "{backend}");
        let all: Vec<IpAddr> = [addresses(&first), addresses(&second)].concat();
        let _servers = serve(&node, &pod);
        expect_served_captured(&node, &pod, &all, &[GATEWAY_V4, GATEWAY_V6, "10.89.0.1"]);
        for (interface, result) in [("net1", &second), ("eth0", &first)] {
            pod.interface = interface;
            assert_eq!(node.ours(&pod, "CHECK", result).printed(), "", "{backend} {interface}");
        }
        pod.interface = "net1";
        node.delete(&pod, &second);
        (node.plugins, pod.interface) = (before, "eth0");
        assert_eq!(node.state(), ["several.eth0.json"], "{backend}");
        expect_served_captured(&node, &pod, &addresses(&first), &[GATEWAY_V4, GATEWAY_V6]);
        assert_eq!(node.ours(&pod, "CHECK", &first).printed(), "", "{backend}");
    }
}
