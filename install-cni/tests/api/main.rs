//! The agent as a process, an API server behind it, and the plugin's ADD in front of it: a pod is decided on
//! by what the API server knows, and does not start where it cannot be asked.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod agent;
#[path = "../common/node.rs"]
mod node;
mod repair;
mod server;
mod two;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use node::{LIMIT, Node, injected, pod, until};
use serde_json::json;
use server::{Mode, Server, WatchEnd};

#[test]
fn pods_of_the_node_are_known_without_further_requests() {
    let server = Server::start(Mode::Well, &[injected("web-0", "u-0"), pod("plain", "u-1", &json!({}))]);
    let node = Node::start(&server);
    node.is_ready();
    let before = server.requests();
    // Before or after the question about the node's runtime.
    let is_selected = |request: &String| request.contains("fieldSelector=spec.nodeName%3Dnode-1");
    assert!(before.iter().any(is_selected), "{before:?}");
    node.captured("web-0", "u-0");
    node.passed("plain", "u-1");
    // An outage later on does not matter to them.
    for mode in [Mode::Closes, Mode::Silent, Mode::Fails(401, "Unauthorized")] {
        server.behave(mode);
        node.captured("web-0", "u-0");
        node.passed("plain", "u-1");
        assert!(node.readyz().starts_with("HTTP/1.1 200 "), "{}", node.readyz());
    }
    assert_eq!(server.gets(), 0);
}

/// What an API server does every few minutes, after a long outage, and while it is restarted.
#[test]
fn watch_that_ends_is_begun_again() {
    let server = Server::start(Mode::Well, &[injected("web-0", "u-0")]);
    let node = Node::start(&server);
    node.is_ready();
    for (number, end) in [WatchEnd::Closed, WatchEnd::Gone, WatchEnd::Reset].into_iter().enumerate() {
        let name = format!("late-{number}");
        until("a watch is open", || server.watches() == 1);
        server.end_watches(end);
        server.change(&injected(&name, "u-1"));
        until(&format!("{name} is known after {end:?}"), || {
            let before = server.gets();
            node.captured(&name, "u-1");
            server.gets() == before
        });
        let before = server.gets();
        node.captured("web-0", "u-0");
        assert_eq!(server.gets(), before, "{end:?}");
        assert!(node.readyz().starts_with("HTTP/1.1 200 "), "{}", node.readyz());
    }
}

#[test]
fn pod_that_is_not_known_yet_is_read_from_the_api_server() {
    let server = Server::start(Mode::Well, &[injected("web-0", "u-0")]);
    let node = Node::start(&server);
    node.is_ready();
    server.add(&injected("late", "u-9"));
    node.captured("late", "u-9");
    // The same name again, as in a StatefulSet: what is cached is about the pod before.
    server.add(&injected("web-0", "u-2"));
    node.captured("web-0", "u-2");
    // Neither cached nor at the API server.
    let problem = node.refused("web-0", "u-7");
    assert!(problem.contains("the runtime starts uid \"u-7\", the response has uid \"u-2\""), "{problem}");
}

#[test]
fn pod_without_uid_is_read_again() {
    let server = Server::start(Mode::Well, &[injected("web-0", "u-0")]);
    let node = Node::start(&server);
    node.is_ready();
    server.add(&pod("web-0", "u-2", &json!({})));
    node.passed("web-0", "");
}

/// A pod that was started while the entry was missing: its sandbox stays without rules, whatever the agent
/// does later.
#[test]
fn pod_that_has_started_without_capture_is_reported_and_counted() {
    let server = Server::start(Mode::Well, &[injected("web-0", "u-0"), injected("web-1", "u-1")]);
    let node = Node::start(&server);
    node.is_ready();
    let is_counted = |count: usize| {
        until(&format!("{count} pods are counted"), || {
            node.get("/metrics").contains(&format!("\nistio_cni_uncaptured_pods {count}\n"))
        });
    };
    is_counted(0);
    let mut failed = injected("web-1", "u-1");
    let status = json!({"name": "istio-validation", "image": "", "imageID": "", "ready": false, "restartCount": 1,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 126}}});
    failed["status"] = json!({ "initContainerStatuses": [status] });
    server.change(&failed);
    is_counted(1);
    until("it is named", || node.has_logged("pod has started without capture"));
    until("the pod is named", || node.has_logged("\"default/web-1\""));
    assert!(!node.has_logged("\"default/web-0\""));
    // That of the same name which comes after it.
    server.change(&injected("web-1", "u-2"));
    is_counted(0);
}

#[test]
fn static_pod_is_known_by_its_mirror() {
    let mut mirror = injected("etcd-node-1", "u-api");
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("hash-of-the-file");
    let server = Server::start(Mode::Well, &[mirror]);
    let node = Node::start(&server);
    node.is_ready();
    node.captured("etcd-node-1", "hash-of-the-file");
    node.refused("etcd-node-1", "another-hash");
}

#[test]
fn pod_that_the_api_server_does_not_know_does_not_start() {
    let server = Server::start(Mode::Well, &[]);
    let node = Node::start(&server);
    node.is_ready();
    let problem = node.refused("gone", "u-0");
    assert!(problem.contains("pod default/gone does not exist"), "{problem}");
}

/// From the start on, so that the agent knows no pod.
#[test]
fn without_an_api_server_no_pod_starts_and_the_reason_is_reported() {
    for (mode, part) in [
        (Mode::Fails(401, "Unauthorized"), "responded 401: the message of 401"),
        (Mode::Fails(403, "Forbidden"), "forbidden: the message of 403"),
        (Mode::Fails(500, "InternalError"), "responded 500"),
        // Of a proxy in between, for instance: no API server says that there is no such pod.
        (Mode::Fails(404, ""), "responded 404"),
        (Mode::Silent, "no response from the API server within "),
        (Mode::Garbage, "the response is not that of an API server: "),
        (Mode::Closes, "the API server is unreachable"),
    ] {
        let server = Server::start(mode, &[injected("web-0", "u-0")]);
        let node = Node::start(&server);
        let deadline = if mode == Mode::Silent { Duration::from_secs(2) } else { LIMIT };
        let problem = node.refused_within(deadline, "web-0", "u-0");
        assert!(problem.contains(part) && problem.contains("agent"), "{mode:?}: {problem}");
        assert!(problem.contains("annotations: the runtime passes none"), "{mode:?}: {problem}");
        if mode != Mode::Fails(404, "") {
            node.is_not_ready("pods of node node-1 are not known yet");
        }
        // It recovers by itself, without a restart; a request without a response is given up after 30 s.
        server.behave(Mode::Well);
        node.captured("web-0", "u-0");
        node.is_ready();
    }
}

/// The kernel hands a signal of the process to any thread that does not block it.
#[test]
fn sigterm_uninstalls_whatever_the_client_is_doing() {
    const SIGTERM: u64 = 1 << 14;
    for mode in [Mode::Well, Mode::Silent, Mode::Closes] {
        let server = Server::start(mode, &[]);
        let mut node = Node::start_to_uninstall(&server);
        until("the entry is written", || node.configuration("10-a.conflist").unwrap().contains("istio-cni"));
        let blocked = node.blocked_signals();
        assert!(blocked.len() > 1 && blocked.iter().all(|mask| mask & SIGTERM != 0), "{blocked:x?}");
        let status = node.terminate();
        assert!(status.success(), "{mode:?}: {status}");
        assert!(!node.configuration("10-a.conflist").unwrap().contains("istio-cni"), "{mode:?}");
    }
}

#[test]
fn agent_that_is_killed_leaves_no_pod_uncaptured() {
    let server = Server::start(Mode::Well, &[injected("web-0", "u-0")]);
    let mut node = Node::start(&server);
    node.is_ready();
    node.kill();
    assert!(node.refused("web-0", "u-0").contains("Connection refused"));
    // The next one takes over the socket that was left.
    node.restart(&server);
    node.is_ready();
    node.captured("web-0", "u-0");
}

#[test]
fn facts_of_the_proxys_container_decide() {
    let with = |name: &str, container: serde_json::Value| {
        let mut pod = injected(name, "u-0");
        pod["spec"]["containers"][1] = container;
        pod
    };
    let env = json!([{"name": "DISABLE_ENVOY", "value": "true"}]);
    let server = Server::start(
        Mode::Well,
        &[
            with("router", json!({"name": "istio-proxy", "args": ["proxy", "router"]})),
            with("envoyless", json!({"name": "istio-proxy", "env": env})),
            with("proxyless", json!({"name": "other"})),
        ],
    );
    let node = Node::start(&server);
    node.is_ready();
    for name in ["router", "envoyless", "proxyless"] {
        node.passed(name, "u-0");
    }
}

/// As after a reboot, of a large node.
#[test]
fn many_pods_at_once_are_decided_on_by_the_agent() {
    const PODS: usize = 200;
    const DEADLINE: Duration = Duration::from_secs(30);
    let names: Vec<String> = (0..PODS).map(|number| format!("pod-{number}")).collect();
    let pods: Vec<_> = names.iter().map(|name| injected(name, "u-0")).collect();
    let server = Server::start(Mode::Well, &pods);
    let node = Node::start(&server);
    node.is_ready();
    let at_once = |uid: &'static str| {
        let begin = Barrier::new(PODS + 1);
        let started = thread::scope(|scope| {
            for name in &names {
                let (node, begin) = (&node, &begin);
                scope.spawn(move || {
                    begin.wait();
                    node.captured_within(DEADLINE, name, uid);
                });
            }
            begin.wait();
            Instant::now()
        });
        started.elapsed()
    };
    let known = at_once("u-0");
    // Pods of which the watch has not told yet: each is read from the API server.
    pods.iter().for_each(|pod| {
        let mut next = pod.clone();
        next["metadata"]["uid"] = json!("u-1");
        server.add(&next);
    });
    println!("{PODS} pods at once: known {known:?}, read from the API server {:?}", at_once("u-1"));
}

/// More than the agent reads at a time, and none is ever complete.
#[test]
fn clients_that_send_nothing_or_never_end_delay_no_pod() {
    const CLIENTS: usize = 1000;
    let server = Server::start(Mode::Well, &[injected("web-0", "u-0")]);
    let node = Node::start(&server);
    node.is_ready();
    let mut clients: Vec<UnixStream> = (0..CLIENTS).map(|_| node.connect()).collect();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                for client in &mut clients {
                    // The agent closes them one by one; the next one comes at once.
                    if client.write_all(b" ").is_err() {
                        *client = node.connect();
                    }
                }
                thread::sleep(Duration::from_millis(200));
            }
        });
        node.captured("web-0", "u-0");
        is_done.store(true, Ordering::SeqCst);
    });
}
