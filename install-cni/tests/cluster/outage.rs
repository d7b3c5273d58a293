//! Pods that are made again, and an API server that goes away.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::agent::{Installation, NODE};
use crate::control_plane::Cluster;

/// As a StatefulSet makes them.
pub(crate) fn pod_with_the_same_name_is_another_pod(cluster: &Cluster) {
    let mut installation = Installation::new(cluster);
    let node = installation.start();
    node.is_ready();
    let first = installation.pod("web-0", NODE);
    installation.until_watched(&node, "web-0", &first);
    installation.delete_pod("web-0");
    let second = installation.pod("web-0", NODE);
    assert_ne!(first, second);
    // At once, whether or not the watch has reported it.
    node.captured("web-0", &second);
    let problem = node.refused("web-0", &first);
    // An event has no room for two whole uids.
    let (beginning, _) = second.split_at(8);
    assert!(problem.contains(&format!("the response has uid \"{beginning}")), "{problem}");
    installation.until_watched(&node, "web-0", &second);
    installation.delete_pod("web-0");
    let problem = node.refused("web-0", "another");
    assert!(problem.contains("pod default/web-0 does not exist"), "{problem}");
}

pub(crate) fn restart_of_the_api_server_is_survived(cluster: &Cluster) {
    let mut installation = Installation::new(cluster);
    let here = installation.pod("here", NODE);
    let node = installation.start();
    node.is_ready();
    installation.until_watched(&node, "here", &here);
    cluster.restart_api_server(|| {
        crate::node::until("the outage is logged", || node.has_logged("pods of this node may be outdated: "));
        // Pods that are known start, and others do not.
        node.captured("here", &here);
        assert!(node.readyz().starts_with("HTTP/1.1 200 "), "{}", node.readyz());
        let problem = node.refused("unknown", "u-0");
        assert!(problem.contains("the API server is unreachable"), "{problem}");
    });
    let late = installation.pod("late", NODE);
    installation.until_watched(&node, "late", &late);
    node.captured("here", &here);
}

/// The watch cannot go on where it was: the API server responds 410 Gone, or lists again.
pub(crate) fn changes_that_etcd_has_compacted_are_listed(cluster: &Cluster) {
    let mut installation = Installation::new(cluster);
    let first = installation.pod("first", NODE);
    let node = installation.start();
    node.is_ready();
    installation.until_watched(&node, "first", &first);
    let second = installation.pod("second", NODE);
    installation.until_watched(&node, "second", &second);
    installation.delete_pod("first");
    let latest = cluster.api.get("/api/v1/namespaces/default/pods/second").unwrap();
    let version: u64 = latest["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    cluster.restart_api_server(|| {
        let status = compact(version + 1);
        assert!(status.starts_with("HTTP/1.1 200 "), "{status}");
    });
    let third = installation.pod("third", NODE);
    installation.until_watched(&node, "third", &third);
    installation.until_watched(&node, "second", &second);
    let problem = node.refused("first", &first);
    assert!(problem.contains("pod default/first does not exist"), "{problem}");
}

/// Forgets all changes before a revision.
fn compact(revision: u64) -> String {
    let body: Value = json!({"revision": revision.to_string(), "physical": true});
    let body = body.to_string();
    let mut stream = TcpStream::connect("127.0.0.1:2379").unwrap();
    let head = "POST /v3/kv/compaction HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Type: application/json\r\n";
    write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}
