//! Pods with `hostUsers: false`: their processes have users of a user namespace of their own, which the
//! network namespace belongs to.

use std::net::SocketAddr;

use netlab::process::run;
use netlab::{Holder, Kinds, Listen, Namespace, User};
use serde_json::{Value, json};

use crate::common::{INJECTED, Pod};
use crate::runtime::{GATEWAY_V4, GATEWAY_V6, Node};

/// The pod's first user, as the node has it.
const FIRST: u32 = 100_000;

/// A pod, with the process that keeps its namespaces.
fn pod(name: &str) -> (Pod, Holder) {
    let none: [(&str, &str); 0] = [];
    let holder = Holder::new(Kinds { user: true, net: true, mount: false }, "true", none);
    let mut pod = Pod::new(name, &[INJECTED]);
    pod.netns = Namespace::of_process(holder.pid());
    pod.netns.ip("link set lo up");
    (pod, holder)
}

#[test]
fn pods_in_a_user_namespace_are_captured_whatever_the_backend_of_the_node() {
    for backend in ["auto", "nftables", "iptables", "iptables-nft", "iptables-legacy"] {
        let node = Node::new(backend);
        let (pod, _holder) = pod("user");
        let result = node.add(&pod);
        let app = User::new(&pod.netns, FIRST + 1000, FIRST + 1000);
        let proxy = User::new(&pod.netns, FIRST + 1337, FIRST + 1337);
        let outside = User::new(&node.namespace, 0, 0);
        let _servers = [
            proxy.serve("proxy", &[Listen::Tcp(15001), Listen::Tcp(15006)]),
            app.serve("app", &[Listen::Tcp(8000)]),
            outside.serve("outside", &[Listen::Tcp(9000)]),
        ];
        for gateway in [GATEWAY_V4, GATEWAY_V6] {
            let to = SocketAddr::new(gateway.parse().unwrap(), 9000);
            app.call(to).captured(15001, to);
            proxy.call(to).served_by("outside");
            // Users of the node have the same numbers as the proxy's in the pod: in the pod they are none.
            User::new(&pod.netns, 1337, 1337).call(to).captured(15001, to);
        }
        for address in result["ips"].as_array().unwrap() {
            let ip = address["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap();
            let to = SocketAddr::new(ip, 8000);
            outside.call(to).captured(15006, to);
        }
        let again = node.ours(&pod, "ADD", &result);
        assert!(
            again.stderr.contains("the pod has a user namespace of its own"),
            "{backend}: {}",
            again.stderr
        );
        let check = || node.ours(&pod, "CHECK", &result);
        assert_eq!(check().printed(), "", "{backend}");
        assert_eq!(node.ours(&pod, "ADD", &result).printed(), result.to_string(), "{backend}: repeated");
        pod.netns.run(|| run("nft", &["flush", "ruleset"]));
        assert!(check().error(101).contains("(nftables)"), "{backend}");
        node.delete(&pod, &Value::Null);
    }
}

#[test]
fn tproxy_and_dns_capture_work_in_a_user_namespace() {
    let mut node = Node::new("auto");
    node.set("capture", json!({"dns": true, "dual_stack": true}));
    let (mut pod, _holder) = pod("tproxy");
    let mode = "sidecar.istio.io/interceptionMode";
    pod.annotations.as_mut().unwrap()[mode] = json!("TPROXY");
    let result = node.add(&pod);
    let app = User::new(&pod.netns, FIRST + 1000, FIRST + 1000);
    let proxy = User::new(&pod.netns, FIRST + 1337, FIRST + 1337);
    let outside = User::new(&node.namespace, 0, 0);
    let dns = "127.0.0.1:15053".parse().unwrap();
    let _servers = [
        proxy.serve("proxy", &[Listen::Tcp(15001), Listen::TcpTransparent(15006), Listen::Udp(dns)]),
        app.serve("app", &[Listen::Tcp(8000)]),
        outside.serve("outside", &[Listen::Tcp(9000), Listen::Udp("10.88.0.1:53".parse().unwrap())]),
    ];
    // First: the pod's neighbour in IPv6 does not find it before it has been heard of.
    for gateway in [GATEWAY_V4, GATEWAY_V6] {
        let to = SocketAddr::new(gateway.parse().unwrap(), 9000);
        app.call(to).captured(15001, to);
        proxy.call(to).served_by("outside");
    }
    for address in result["ips"].as_array().unwrap() {
        let ip = address["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap();
        outside.call(SocketAddr::new(ip, 8000)).served_by("proxy");
    }
    app.ask(SocketAddr::new(GATEWAY_V4.parse().unwrap(), 53)).served_by("proxy");
    proxy.ask(SocketAddr::new(GATEWAY_V4.parse().unwrap(), 53)).served_by("outside");
    assert_eq!(node.ours(&pod, "CHECK", &result).printed(), "");
}
