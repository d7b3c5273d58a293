//! Pods whose runtime passes no annotations: the agent's facts decide, and the kernel shows it.

use std::net::SocketAddr;

use netlab::{Listen, User};
use serde_json::{Value, json};

use crate::agent::{Reply, json_reply, pod, serve};
use crate::common::{INJECTED, Pod};
use crate::runtime::{GATEWAY_V4, Node};

/// A pod without annotations of the runtime, and an agent that reports it like this.
fn unannotated(node: &Node, name: &str, annotations: &Value, proxy: &Value) -> Pod {
    let reply = pod(name, &format!("u-{name}"), annotations, proxy);
    serve(&node.folder.path().join("run"), move |_| json_reply(&reply));
    let mut pod = Pod::new(name, &[]);
    pod.annotations = None;
    pod
}

/// What happens to a call by each user to a server on the node.
fn calls<const N: usize>(node: &Node, pod: &Pod, users: [u32; N]) -> (SocketAddr, [netlab::Outcome; N]) {
    let proxy = User::new(&pod.netns, 2000, 2001);
    let outside = User::new(&node.namespace, 0, 0);
    let _servers = [
        proxy.serve("proxy", &[Listen::Tcp(15001), Listen::Tcp(15006)]),
        outside.serve("outside", &[Listen::Tcp(9000)]),
    ];
    let to = SocketAddr::new(GATEWAY_V4.parse().unwrap(), 9000);
    (to, users.map(|user| User::new(&pod.netns, user, user).call(to)))
}

#[test]
fn pod_that_only_the_agent_knows_is_captured_with_the_proxys_own_user() {
    let node = Node::new("nftables");
    let proxy = json!({"args": ["proxy", "sidecar"], "env": {}, "uid": 2000, "gid": 2001});
    let pod = unannotated(&node, "agent", &json!({INJECTED.0: INJECTED.1}), &proxy);
    node.add(&pod);
    let (to, [app, proxy]) = calls(&node, &pod, [1000, 2000]);
    app.captured(15001, to);
    proxy.served_by("outside");
    assert_eq!(node.state(), ["agent.eth0.json"]);
}

#[test]
fn pod_that_the_agent_reports_as_excluded_is_not_captured() {
    let node = Node::new("nftables");
    let proxy = json!({"args": ["proxy", "router"], "env": {}, "uid": null, "gid": null});
    let pod = unannotated(&node, "gateway", &json!({INJECTED.0: INJECTED.1}), &proxy);
    node.add(&pod);
    let (_, [app]) = calls(&node, &pod, [1000]);
    app.served_by("outside");
    assert!(node.state().is_empty());
}

#[test]
fn pod_that_no_source_knows_gets_neither_rules_nor_state() {
    let node = Node::new("nftables");
    serve(&node.folder.path().join("run"), |_| Reply::Bytes(b"{}".to_vec()));
    let mut pod = Pod::new("unknown", &[]);
    pod.annotations = None;
    let problem = node.try_add(&pod).error(11);
    assert!(problem.contains("annotations: ") && problem.contains("agent, api: "), "{problem}");
    assert_eq!(pod.netns.run(|| netlab::process::run("nft", &["list", "ruleset"])), "");
    assert!(node.state().is_empty());
}
