//! A pod of which annotations, the agent or the API server say nothing does not start, and the error names
//! each source with its reason.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

#[path = "../common/agent.rs"]
mod agent;
#[path = "../common/mod.rs"]
mod common;

use std::path::PathBuf;

use agent::{Reply, json_reply, pod, proxy, serve};
use common::{INJECTED, PluginOutput, call, plugin};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A run directory, and ADD for a pod in it.
struct Case {
    folder: TempDir,
    more: Value,
}

const UID: &str = "u-1";
const RESULT: &str = r#"{"cniVersion":"1.1.0","ips":[]}"#;

impl Case {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), more: json!({}) }
    }

    fn with(more: Value) -> Self {
        Self { more, ..Self::new() }
    }

    fn run_dir(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn serve(self, reply: impl Fn(&Value) -> Reply + Send + 'static) -> Self {
        serve(&self.run_dir(), reply);
        self
    }

    fn command(&self, command: &str) -> PluginOutput {
        let mut conf = json!({
            "cniVersion": "1.1.0", "name": "net", "type": "istio-cni", "cni_agent_run_dir": self.run_dir(),
            "prevResult": serde_json::from_str::<Value>(RESULT).unwrap(), // Others use the processors, too: no response is late.
            "deadline_ms": 120_000
        });
        conf.as_object_mut().unwrap().extend(self.more.as_object().unwrap().clone());
        let args = format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME=web-0;K8S_POD_UID={UID}");
        let variables = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", "c1"),
            // A pod that is decided on as captured fails here with code 4.
            ("CNI_NETNS", "/nonexistent/ns"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", &args),
        ];
        call(plugin(), &variables, conf.to_string().as_bytes())
    }

    /// ADD fails so that kubelet tries again. Returns the message.
    #[track_caller]
    fn refused(&self) -> String {
        let output = self.command("ADD");
        let state = self.run_dir().join("state");
        assert!(!state.exists() || std::fs::read_dir(state).unwrap().next().is_none());
        output.error(11)
    }

    /// What the sources respond is that the pod is captured.
    #[track_caller]
    fn captured(&self) {
        let problem = self.command("ADD").error(4);
        assert!(problem.starts_with("CNI_NETNS: "), "{problem}");
    }

    #[track_caller]
    fn passed(&self) {
        assert_eq!(self.command("ADD").printed(), RESULT);
    }
}

/// A deadline that is waited for: of it the agent gets a tenth.
fn short() -> Value {
    json!({"deadline_ms": 2000})
}

/// Injected, of which everything is known.
fn injected(uid: &str) -> Value {
    pod("web-0", uid, &json!({INJECTED.0: INJECTED.1}), &proxy())
}

#[test]
fn without_annotations_and_agent_the_pod_does_not_start() {
    let problem = Case::new().refused();
    for part in [
        "pod default/web-0",
        "annotations: the runtime passes none; set \"capabilities\": {\"io.kubernetes.cri.pod-annotations\": true}",
        "agent, api: ",
        "/run/agent.sock: No such file or directory",
        "is install-cni --node-name running?",
    ] {
        assert!(problem.contains(part), "{part}: {problem}");
    }
}

#[test]
fn agent_that_has_ended_is_reported() {
    let case = Case::new();
    std::fs::create_dir(case.run_dir()).unwrap();
    drop(std::os::unix::net::UnixListener::bind(case.run_dir().join("agent.sock")).unwrap());
    assert!(case.refused().contains("agent.sock: Connection refused"), "{}", case.refused());
}

#[test]
fn agent_that_never_responds_is_not_waited_for() {
    let problem = Case::with(short()).serve(|_| Reply::Silence).refused();
    // For the API server everything is left but what rules need.
    assert!(problem.contains("agent: no response within 200 ms; api: no response within "), "{problem}");
}

#[test]
fn agent_that_never_accepts_is_not_waited_for() {
    let case = Case::with(short());
    std::fs::create_dir(case.run_dir()).unwrap();
    let path = case.run_dir().join("agent.sock");
    let listener = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(std::os::fd::AsRawFd::as_raw_fd(&listener), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let waiting = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let problem = case.refused();
    assert!(problem.contains("agent: no response within 200 ms; api: no response within "), "{problem}");
    drop(waiting);
}

#[test]
fn garbage_is_rejected() {
    for (garbage, part) in [
        (&b""[..], "EOF"),
        (b"\xff\xfe", "expected"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "expected"),
        (b"{\"pod\":{}}", "missing field"),
        (b"{\"pod\":null}", "null"),
        (b"{\"pod\":1,\"pod\":2}", "invalid type"),
        (b"[]", "invalid"),
        (b"\"notFound\" \"notFound\"", "trailing"),
    ] {
        let problem = Case::new().serve(|_| Reply::Bytes(garbage.to_vec())).refused();
        let wanted = "agent, api: the agent's response is invalid: ";
        assert!(problem.contains(wanted) && problem.contains(part), "{part}: {problem}");
    }
    let problem = Case::new().serve(|_| Reply::Endless).refused();
    assert!(problem.contains("agent, api: the agent's response is larger than 1024 KiB"), "{problem}");
}

#[test]
fn response_about_another_pod_is_rejected() {
    let other = pod("web-1", UID, &json!({}), &proxy());
    for (reply, uid) in [(injected("u-0"), "u-0"), (injected(""), ""), (other, UID)] {
        let problem = Case::new().serve(move |_| json_reply(&reply)).refused();
        let wanted = format!(
            "agent, api: the runtime starts uid \"u-1\", the response has uid {uid:?} of pod default/web-"
        );
        assert!(problem.contains(&wanted), "{problem}");
    }
}

#[test]
fn pod_that_does_not_exist_does_not_start_even_if_unknown_pods_do() {
    for more in [json!({}), json!({"on_unknown": "pass"})] {
        let problem = Case::with(more).serve(|_| json_reply(&json!("notFound"))).refused();
        assert!(problem.starts_with("pod default/web-0 does not exist"), "{problem}");
    }
}

#[test]
fn reasons_of_the_agent_are_in_the_message() {
    let reason = json!({"unknown": "the API server responded 401: Unauthorized\nx"});
    let problem = Case::new().serve(move |_| json_reply(&reason)).refused();
    assert!(problem.contains("agent, api: the API server responded 401: Unauthorized\\nx"), "{problem}");
    let long = json!({"unknown": "x".repeat(2000)});
    let problem = Case::new().serve(move |_| json_reply(&long)).refused();
    assert!(
        problem.contains("annotations: the runtime passes none")
            && problem.ends_with("xxx…; on the node: `istio-cni status`"),
        "{problem}"
    );
}

#[test]
fn agent_decides_where_annotations_are_missing_or_not_enough() {
    let agent = |question: &Value| {
        assert_eq!(question["namespace"], "default");
        json_reply(&injected(question["uid"].as_str().unwrap()))
    };
    Case::new().serve(agent).captured();
    // Neither init container is named: the annotation alone does not say whether the proxy is a sidecar.
    let annotations = json!({"sidecar.istio.io/status": "{\"containers\":[\"istio-proxy\"]}"});
    let runtime = json!({"runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations}});
    Case::with(runtime.clone()).serve(agent).captured();
    let router = json!({"args": ["proxy", "router"], "env": {}, "uid": null, "gid": null});
    let gateway = pod("web-0", UID, &json!({INJECTED.0: INJECTED.1}), &router);
    Case::with(runtime).serve(move |_| json_reply(&gateway)).passed();
}

#[test]
fn agent_is_not_asked_where_annotations_decide() {
    let annotations = json!({INJECTED.0: INJECTED.1, "sidecar.istio.io/interceptionMode": "NONE"});
    let case = Case::with(json!({"runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations}}));
    let questions = serve(&case.run_dir(), |_| json_reply(&injected(UID)));
    case.passed();
    assert!(questions.lock().unwrap().is_empty());
}

#[test]
fn annotation_that_disables_injection_of_an_injected_pod_is_decided_by_the_agents_labels() {
    const INJECT: &str = "sidecar.istio.io/inject";
    let annotations = json!({INJECTED.0: INJECTED.1, INJECT: "false"});
    let runtime = json!({"runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations}});
    let labelled = |labels: Value| {
        let mut reply = pod("web-0", UID, &annotations, &proxy());
        reply["pod"]["pod"]["labels"] = labels;
        reply
    };
    let (enabled, absent) = (labelled(json!({INJECT: "true"})), labelled(json!({})));
    Case::with(runtime.clone()).serve(move |_| json_reply(&enabled)).captured();
    Case::with(runtime.clone()).serve(move |_| json_reply(&absent)).passed();
    let problem = Case::with(runtime).refused();
    assert!(problem.contains("annotations: annotation sidecar.istio.io/inject is false"), "{problem}");
}

#[test]
fn api_asks_the_agent_to_read_the_pod_again() {
    let case = Case::new();
    let questions = serve(&case.run_dir(), |question| {
        // The agent knows an earlier pod of this name.
        json_reply(&injected(if question["refresh"] == true { UID } else { "u-0" }))
    });
    case.captured();
    let questions = questions.lock().unwrap();
    assert_eq!(questions.len(), 2);
    assert_eq!((&questions[0]["refresh"], &questions[1]["refresh"]), (&json!(false), &json!(true)));
    let waits: Vec<u64> = questions.iter().map(|question| question["waitMs"].as_u64().unwrap()).collect();
    assert!(waits[0] < 12_000 && (12_000..108_000).contains(&waits[1]), "{waits:?}");
}

#[test]
fn sources_are_asked_in_their_order() {
    let injected_by_runtime = json!({INJECTED.0: INJECTED.1});
    let case = Case::with(json!({
        "source": ["agent", "annotations"],
        "runtimeConfig": {"io.kubernetes.cri.pod-annotations": injected_by_runtime}
    }));
    let disabled = json!({INJECTED.0: INJECTED.1, "sidecar.istio.io/inject": "false"});
    case.serve(move |_| json_reply(&pod("web-0", UID, &disabled, &proxy()))).passed();
    let alone = Case::with(json!({"source": ["annotations"]})).serve(|_| json_reply(&injected(UID)));
    assert!(!alone.refused().contains("agent:"), "{}", alone.refused());
}

#[test]
fn status_fails_where_only_the_agent_reports_pods_and_none_listens() {
    let case = Case::new();
    let problem = case.command("STATUS").error(50);
    assert!(problem.contains("agent.sock: No such file") && problem.contains("capabilities"), "{problem}");
    Case::with(json!({"on_unknown": "pass"})).command("STATUS").printed();
    let of_runtime = json!({"capabilities": {"io.kubernetes.cri.pod-annotations": true}});
    Case::with(of_runtime).command("STATUS").printed();
    Case::new().serve(|_| Reply::Silence).command("STATUS").printed();
}
