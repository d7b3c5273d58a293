//! Connections that begin while the rules of a pod are gone.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use istio_iptables::commands::forget_connections;
use istio_iptables::explain::Connection;
use netlab::Namespace;

use crate::common::Pod;
use crate::lab::{Agent, Node, in_pod};

const POD: &str = "10.7.0.2";
const OUTSIDE: &str = "10.7.0.1";

/// A pod with a link to another namespace.
fn connected(node: &Node, name: &str) -> (Namespace, Pod) {
    let (outside, pod) = (Namespace::with_loopback(), node.pod(name, "nftables"));
    outside.connect("peer", &pod.netns, "eth0");
    for (namespace, address, link) in [(&outside, OUTSIDE, "peer"), (&pod.netns, POD, "eth0")] {
        namespace.add_address(address.parse::<IpAddr>().unwrap(), 24, link);
    }
    (outside, pod)
}

/// A connection from one namespace to another one: the client's end and the server's.
fn connection(from: &Namespace, to: &Namespace, address: &str) -> (TcpStream, TcpStream) {
    let listener = to.run(|| TcpListener::bind("0.0.0.0:0").unwrap());
    let target = SocketAddr::new(address.parse().unwrap(), listener.local_addr().unwrap().port());
    let client = from.run(|| TcpStream::connect_timeout(&target, Duration::from_secs(5)).unwrap());
    (client, listener.accept().unwrap().0)
}

/// Whether what is written at one end comes to the other.
fn is_open((client, server): &mut (TcpStream, TcpStream)) -> bool {
    client.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    server.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let mut byte = [0];
    client.write_all(b"a").is_ok()
        && server.read_exact(&mut byte).is_ok()
        && server.write_all(b"b").is_ok()
        && client.read_exact(&mut byte).is_ok()
}

/// An agent that starts when a connection has begun without rules; and one that began before them, under
/// rules.
fn escaped(options: &[&str]) -> (Node, Agent, Pod, Namespace, (TcpStream, TcpStream)) {
    let node = Node::new();
    let (outside, pod) = connected(&node, "escaped");
    in_pod(&pod, "nft flush ruleset");
    let connection = connection(&pod.netns, &outside, OUTSIDE);
    let agent = node.agent(options);
    agent.logged("repaired: ");
    (node, agent, pod, outside, connection)
}

#[test]
fn connections_that_began_without_rules_are_named_and_counted_once() {
    let (node, agent, pod, outside, mut connection) = escaped(&[]);
    let (local, remote) = (connection.0.local_addr().unwrap(), connection.0.peer_addr().unwrap());
    let line = agent.logged("escaped: 1 connection outside the mesh until they end");
    assert!(line["msg"].as_str().unwrap().contains(&format!("{local} - {remote}")), "{line}");
    assert_eq!(line["pod"], "default/escaped");
    agent.until_metric("istio_cni_escaped_connections_total", 1.0);
    assert!(is_open(&mut connection), "it is left");
    // Once: the next repair finds it again.
    in_pod(&pod, "nft flush ruleset");
    agent.logged("repaired: ");
    std::thread::sleep(Duration::from_secs(1));
    assert!(agent.lines().iter().all(|line| !line["msg"].as_str().unwrap().contains("escaped: ")));
    assert!((agent.metric("istio_cni_escaped_connections_total") - 1.0).abs() < 0.1);
    assert!(agent.metric("istio_cni_reset_connections_total") < 1.0);
    node.until_captured(&pod);
    drop(outside);
}

#[test]
fn escaped_connections_are_reset_if_that_is_asked_for() {
    let (_node, agent, _pod, _outside, mut connection) = escaped(&["--reset-escaped"]);
    agent.logged("escaped: 1 connection outside the mesh, 1 of them reset: ");
    agent.until_metric("istio_cni_reset_connections_total", 1.0);
    assert!(!is_open(&mut connection));
    let error = connection.1.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

/// Kernels that cannot destroy sockets forget the conntrack entries in their place.
#[test]
fn a_connection_whose_entry_is_forgotten_is_reset_by_the_rules() {
    let (_node, agent, pod, _outside, mut connection) = escaped(&[]);
    agent.logged("escaped: 1 connection outside the mesh until they end");
    let (local, remote) = (connection.0.local_addr().unwrap(), connection.0.peer_addr().unwrap());
    assert!(is_open(&mut connection));
    let escaped = [Connection { local, remote, uid: 0 }];
    let forgotten = pod.netns.run(|| forget_connections(&escaped).unwrap());
    assert_eq!(forgotten, 1);
    // The next packet meets the rules, and nothing at the port of the proxy knows it.
    assert!(!is_open(&mut connection));
    let error = connection.0.read(&mut [0]).map(|read| assert_eq!(read, 0));
    assert!(error.is_ok() || error.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset));
}

/// A connection of the proxy, and one that rules exempt, is not outside the mesh.
#[test]
fn connections_of_the_proxy_and_excluded_ones_are_no_escape() {
    let node = Node::new();
    let (outside, pod) = connected(&node, "proxy");
    in_pod(&pod, "nft flush ruleset");
    let listener = outside.run(|| TcpListener::bind("0.0.0.0:9000").unwrap());
    let proxy = netlab::User::new(&pod.netns, 1337, 1337);
    let _of_proxy = proxy.run(|| TcpStream::connect((OUTSIDE, 9000)).unwrap());
    let _accepted = listener.accept().unwrap();
    // Its own port is never captured.
    let own = pod.netns.run(|| TcpListener::bind("0.0.0.0:15090").unwrap());
    let target = SocketAddr::new(POD.parse().unwrap(), 15090);
    let _inbound = (outside.run(|| TcpStream::connect(target).unwrap()), own.accept().unwrap());
    // One to another port is.
    let _escaped = connection(&outside, &pod.netns, POD);
    let agent = node.agent(&[]);
    agent.logged("escaped: 1 connection outside the mesh");
    agent.until_metric("istio_cni_escaped_connections_total", 1.0);
}

/// The rule is removed before the guard has counted anything else: it is paused meanwhile.
#[test]
fn what_the_rules_had_met_that_a_repair_removes_is_reported() {
    for (backend, rule, of_guard) in [
        (
            "nftables",
            "nft insert rule inet istio-proxy-nat istio-output counter accept",
            "inet istio-proxy-nat",
        ),
        ("iptables-nft", "iptables-nft -t nat -I ISTIO_OUTPUT -j RETURN", "rules"),
    ] {
        let node = Node::new();
        let pod = node.pod(backend, backend);
        let agent = node.agent(&[]);
        agent.until_guarded(1);
        let paused = agent.pause();
        in_pod(&pod, rule);
        pod.netns.run(|| {
            for _ in 0..3 {
                // Nothing listens there.
                TcpStream::connect("127.0.0.1:9").unwrap_err();
            }
        });
        drop(paused);
        let line = agent.logged("repaired: ");
        let text = line["msg"].as_str().unwrap();
        assert!(text.contains(of_guard), "{line}");
        assert!(text.ends_with("; the rules that it removes had met 3 packets"), "{line}");
        // The next repair does not count the same again.
        in_pod(&pod, "nft flush ruleset");
        let line = agent.logged("repaired: ");
        assert!(!line["msg"].as_str().unwrap().contains("had met"), "{line}");
    }
}
