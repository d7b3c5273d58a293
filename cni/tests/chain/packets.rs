//! What happens to a pod's packets once the chain has set it up.

use std::net::{IpAddr, SocketAddr};

use netlab::{Listen, User};
use serde_json::Value;

use crate::common::{INJECTED, Pod};
use crate::runtime::{GATEWAY_V4, GATEWAY_V6, Node};

const BACKENDS: [&str; 3] = ["nftables", "iptables-nft", "iptables-legacy"];

fn addresses(result: &Value) -> Vec<IpAddr> {
    let ips = result["ips"].as_array().unwrap();
    ips.iter().map(|ip| ip["address"].as_str().unwrap().split('/').next().unwrap().parse().unwrap()).collect()
}

/// Calls in both directions and both families.
struct Calls {
    outbound: Vec<(SocketAddr, netlab::Outcome)>,
    of_proxy: Vec<netlab::Outcome>,
    inbound: Vec<(SocketAddr, netlab::Outcome)>,
    mapped: netlab::Outcome,
}

fn calls(node: &Node, pod: &Pod, result: &Value) -> Calls {
    let proxy = User::new(&pod.netns, 1337, 1337);
    let app = User::new(&pod.netns, 1000, 1000);
    let outside = User::new(&node.namespace, 0, 0);
    let _servers = [
        proxy.serve("proxy", &[Listen::Tcp(15001), Listen::Tcp(15006)]),
        app.serve("app", &[Listen::Tcp(8000)]),
        User::new(&pod.netns, 0, 0).serve("app", &[Listen::Tcp(80)]),
        outside.serve("outside", &[Listen::Tcp(9000)]),
    ];
    let gateways = [GATEWAY_V4, GATEWAY_V6].map(|gateway| SocketAddr::new(gateway.parse().unwrap(), 9000));
    let pod_at: Vec<SocketAddr> = addresses(result).into_iter().map(|ip| SocketAddr::new(ip, 8000)).collect();
    Calls {
        outbound: gateways.iter().map(|to| (*to, app.call(*to))).collect(),
        of_proxy: gateways.iter().map(|to| proxy.call(*to)).collect(),
        inbound: pod_at.iter().map(|to| (*to, outside.call(*to))).collect(),
        mapped: outside.call(SocketAddr::new(GATEWAY_V4.parse().unwrap(), 8080)),
    }
}

#[test]
fn packets_of_an_injected_pod_go_to_its_proxy() {
    for backend in BACKENDS {
        let node = Node::new(backend);
        let pod = Pod::new("captured", &[INJECTED]);
        let result = node.add(&pod);
        let calls = calls(&node, &pod, &result);
        assert_eq!((calls.outbound.len(), calls.inbound.len()), (2, 2), "{backend}: {result}");
        for (to, outcome) in &calls.outbound {
            outcome.captured(15001, *to);
        }
        for (to, outcome) in &calls.inbound {
            outcome.captured(15006, *to);
        }
        for outcome in &calls.of_proxy {
            outcome.served_by("outside");
        }
        let container = SocketAddr::new(addresses(&result)[0], 80);
        calls.mapped.captured(15006, container);
    }
}

#[test]
fn packets_of_other_pods_reach_their_destinations() {
    const WITH_INIT: (&str, &str) =
        ("sidecar.istio.io/status", r#"{"initContainers":["istio-init"],"containers":["istio-proxy"]}"#);
    for annotations in [&[][..], &[WITH_INIT], &[INJECTED, ("sidecar.istio.io/interceptionMode", "NONE")]] {
        let node = Node::new("nftables");
        let pod = Pod::new("other", annotations);
        let result = node.add(&pod);
        let calls = calls(&node, &pod, &result);
        for (_, outcome) in &calls.outbound {
            outcome.served_by("outside");
        }
        for (_, outcome) in &calls.inbound {
            outcome.served_by("app");
        }
        calls.mapped.served_by("app");
        assert!(node.state().is_empty(), "{annotations:?}");
    }
}

#[test]
fn excluded_ports_reach_their_destinations() {
    let node = Node::new("nftables");
    let annotations = [
        INJECTED,
        ("traffic.sidecar.istio.io/excludeOutboundPorts", "9000"),
        ("traffic.sidecar.istio.io/excludeInboundPorts", "8000"),
    ];
    let own = [
        INJECTED,
        (
            "istio-iptables/capture-options",
            r#"{"version":1,"options":{"istio-inbound-ports":"*","istio-local-exclude-ports":"8000","istio-service-cidr":"*","istio-local-outbound-ports-exclude":"9000"}}"#,
        ),
    ];
    for (name, annotations) in [("istio", &annotations[..]), ("own", &own)] {
        let pod = Pod::new(name, annotations);
        let result = node.add(&pod);
        let calls = calls(&node, &pod, &result);
        for (_, outcome) in &calls.outbound {
            outcome.served_by("outside");
        }
        for (_, outcome) in &calls.inbound {
            outcome.served_by("app");
        }
        node.delete(&pod, &result);
    }
}
