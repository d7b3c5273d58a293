//! What the agent does about pods that have started without capture, with the API server.

use netlab::Namespace;
use netlab::process::run;
use serde_json::{Value, json};

use crate::node::{Node, injected, until};
use crate::server::{Mode, Server};

/// A pod whose `istio-validation` has found no capture.
fn failed(name: &str, uid: &str) -> Value {
    let status = json!({"name": "istio-validation", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": 126}}});
    let mut pod = injected(name, uid);
    pod["status"] = json!({"phase": "Pending", "initContainerStatuses": [status]});
    pod
}

/// One that is being deleted.
fn deleted(mut pod: Value) -> Value {
    pod["metadata"]["deletionTimestamp"] = json!("2026-03-01T05:12:03Z");
    pod
}

fn repairs(node: &Node, action: &str, result: &str) -> String {
    let name = format!("istio_cni_repair_pods_repaired_total{{type=\"{action}\",result=\"{result}\"}} ");
    let text = node.get("/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("{name}: {text}")).to_owned()
}

fn rules(netns: &Namespace) -> String {
    netns.run(|| run("nft", &["list", "ruleset"]))
}

/// The pod is known to the API server only, and no container of it has run.
#[test]
fn pods_are_captured_from_outside_and_their_condition_says_so() {
    let pods = [injected("late", "u-1"), deleted(injected("ending", "u-2")), injected("again", "u-4")];
    let server = Server::start(Mode::Well, &pods);
    let options = ["--backend=nftables", "--exclude-namespaces=kube-system"];
    let node = Node::start_with(&server, &options);
    node.is_ready();
    let [late, ending, again, gone] = std::array::from_fn(|_| Namespace::with_loopback());
    node.record("ending", "u-2", &ending.path());
    // Of an earlier pod of that name, and of one that is not there any more.
    node.record("again", "u-3", &again.path());
    node.record("gone", "u-5", &gone.path());
    node.record("late", "u-1", &late.path());
    until("it is captured", || rules(&late).contains("istio-proxy-nat"));
    until("the event", || !server.written("POST", "/events").is_empty());
    let event = server.written("POST", "/events").remove(0);
    assert_eq!(
        (&event["reason"], &event["involvedObject"]["uid"]),
        (&json!("CaptureRulesAdded"), &json!("u-1"))
    );
    assert!(event["message"].as_str().unwrap().starts_with("started without capture at "), "{event}");
    until("the condition", || !server.written("PATCH", "/pods/late/status").is_empty());
    let condition = &server.written("PATCH", "/pods/late/status")[0]["status"]["conditions"][0];
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("True"), &json!("CaptureRulesAdded")));
    assert_eq!(
        (repairs(&node, "repair", "success"), repairs(&node, "repair", "fail")),
        ("1".into(), "0".into())
    );
    until("it is guarded", || node.get("/metrics").contains("istio_cni_guarded_pods 1\n"));
    for netns in [&ending, &again, &gone] {
        assert_eq!(rules(netns), "");
    }
    assert!(server.written("POST", "/events").len() == 1 && server.written("DELETE", "").is_empty());
}

/// Each action in turn, for a pod whose namespace is known and one that the API server alone knows.
#[test]
fn pods_are_labelled_deleted_or_reported_once() {
    for action in ["label", "delete", "event"] {
        let pods = [
            injected("late", "u-1"),
            failed("failed", "u-2"),
            deleted(failed("ending", "u-3")),
            deleted(injected("leaving", "u-4")),
        ];
        let server = Server::start(Mode::Well, &pods);
        let node = Node::start_with(
            &server,
            &[&format!("--repair={action}"), "--repair-broken-pod-label-value=yes"],
        );
        node.is_ready();
        let [late, leaving] = std::array::from_fn(|_| Namespace::with_loopback());
        node.record("late", "u-1", &late.path());
        node.record("leaving", "u-4", &leaving.path());
        until("both are counted", || node.get("/metrics").contains("\nistio_cni_uncaptured_pods 2\n"));
        until("both are done", || repairs(&node, action, "success") == "2");
        until("both have an event", || server.written("POST", "/events").len() == 2);
        for (name, uid) in [("late", "u-1"), ("failed", "u-2")] {
            let labels = server.written("PATCH", &format!("/pods/{name}?"));
            let deletions = server.written("DELETE", &format!("/namespaces/default/pods/{name}"));
            match action {
                "label" => {
                    let metadata = json!({"uid": uid, "labels": {"cni.istio.io/uninitialized": "yes"}});
                    assert_eq!((labels, deletions.len()), (vec![json!({ "metadata": metadata })], 0));
                }
                "delete" => {
                    assert_eq!((labels.len(), deletions.len()), (0, 1));
                    assert_eq!(deletions[0]["preconditions"]["uid"], uid, "{deletions:?}");
                }
                _ => assert!(labels.is_empty() && deletions.is_empty()),
            }
            let events = server.written("POST", "/events");
            let event = events.iter().find(|event| event["involvedObject"]["uid"] == uid).unwrap();
            assert_eq!(
                (&event["reason"], &event["type"]),
                (&json!("CaptureRulesMissing"), &json!("Warning"))
            );
        }
        assert!(rules(&late).is_empty() && rules(&leaving).is_empty());
        let of_ending = |(method, name): (&str, &str)| server.written(method, &format!("/pods/{name}")).len();
        assert_eq!([("PATCH", "ending"), ("DELETE", "ending"), ("DELETE", "leaving")].map(of_ending), [0; 3]);
    }
}

/// A pod whose namespace is not known is named, with what to do.
#[test]
fn pod_without_a_record_of_the_runtime_is_not_repaired() {
    let mut excluded = failed("excluded", "u-3");
    excluded["metadata"]["namespace"] = json!("kube-system");
    let server = Server::start(Mode::Well, &[failed("failed", "u-2"), excluded]);
    let node = Node::start(&server);
    node.is_ready();
    until("it is skipped", || repairs(&node, "repair", "skip") == "1");
    until("it is named", || node.has_logged("its network namespace is not known"));
    until("the event", || !server.written("POST", "/events").is_empty());
    assert!(server.written("DELETE", "").is_empty());
    assert!(node.get("/metrics").contains("\nistio_cni_uncaptured_pods 1\n"));
}

#[test]
fn missing_permission_is_named_and_the_attempt_repeated() {
    let server = Server::start(Mode::Well, &[injected("late", "u-1")]);
    server.forbid_writes(true);
    let node = Node::start_with(&server, &["--repair=delete"]);
    node.is_ready();
    let late = Namespace::with_loopback();
    node.record("late", "u-1", &late.path());
    until("it fails", || repairs(&node, "delete", "fail") != "0");
    until("the permission is named", || node.has_logged("cannot be repaired: ") && node.has_logged("403"));
    server.forbid_writes(false);
    until("it is deleted", || repairs(&node, "delete", "success") == "1");
    assert_eq!(server.written("DELETE", "/pods/late").len(), 1);
}

/// What ADD would refuse keeps no other pod from being captured.
#[test]
fn pod_with_an_invalid_annotation_is_named() {
    let mut pod = injected("late", "u-1");
    pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeInboundPorts"] = json!("x");
    let server = Server::start(Mode::Well, &[pod, injected("other", "u-2")]);
    let node = Node::start(&server);
    node.is_ready();
    let [late, other] = std::array::from_fn(|_| Namespace::with_loopback());
    node.record("late", "u-1", &late.path());
    node.record("other", "u-2", &other.path());
    until("the other one is captured", || !rules(&other).is_empty());
    assert_eq!(rules(&late), "");
    until("it is named", || node.has_logged("excludeInboundPorts"));
}
