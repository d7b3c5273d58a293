//! The plugin as a process, where no network namespace is needed: every command with good and bad variables and standard
//! input. It never panics, and prints one JSON document, or nothing where the command has no result.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

mod common;

use std::io::Write as _;
use std::process::{Command, Stdio};

use common::{Answer, call, plugin};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

const GOOD: [(&str, &str); 4] = [
    ("CNI_CONTAINERID", "c1"),
    ("CNI_NETNS", "/nonexistent/ns"),
    ("CNI_IFNAME", "eth0"),
    ("CNI_ARGS", "K8S_POD_NAMESPACE=a;K8S_POD_NAME=b"),
];

fn run(command: &str, input: &str) -> Answer {
    let variables = [&[("CNI_COMMAND", command)], &GOOD[..]].concat();
    call(plugin(), &variables, input.as_bytes())
}

/// A configuration with a run directory of its own.
fn conf(run_dir: &tempfile::TempDir, more: &Value) -> Value {
    let mut conf = json!({
        "cniVersion": "1.1.0", "name": "net", "type": "istio-cni", "cni_agent_run_dir": run_dir.path(),
        "prevResult": {"cniVersion": "1.1.0"}
    });
    conf.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    conf
}

#[test]
fn version_is_answered_whatever_the_input_is() {
    for (input, version) in [
        ("", "1.1.0"),
        ("no JSON", "1.1.0"),
        (r#"{"cniVersion":"0.4.0"}"#, "0.4.0"),
        (r#"{"cniVersion":"9.9.9"}"#, "9.9.9"),
        (r#"{"cniVersion":"\"x"}"#, "1.1.0"),
        (r#"{"cniVersion":7}"#, "1.1.0"),
    ] {
        let answer: Value = serde_json::from_str(run("VERSION", input).printed()).unwrap();
        let supported = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
        assert_eq!(answer, json!({"cniVersion": version, "supportedVersions": supported}), "{input}");
    }
}

#[test]
fn variables_are_checked_before_anything_else() {
    let folder = tempfile::tempdir().unwrap();
    let input = conf(&folder, &json!({})).to_string();
    let answer = |variables: &[(&str, &str)]| call(plugin(), variables, input.as_bytes());
    assert!(answer(&[]).error(4).contains("CNI_COMMAND"));
    assert!(answer(&[("CNI_COMMAND", "ERASE")]).error(4).contains("\"ERASE\" is not accepted"));
    for command in ["ADD", "CHECK"] {
        for (name, _) in &GOOD[..3] {
            let others = GOOD.iter().copied().filter(|(other, _)| other != name);
            let variables: Vec<_> = [("CNI_COMMAND", command)].into_iter().chain(others).collect();
            assert!(answer(&variables).error(4).contains(name), "{command}: {name}");
        }
        let escaping = [("CNI_COMMAND", command), ("CNI_CONTAINERID", "../../etc/x"), GOOD[1], GOOD[2]];
        assert!(answer(&escaping).error(4).contains("CNI_CONTAINERID"));
    }
}

#[test]
fn del_succeeds_whatever_is_wrong() {
    for input in ["", "no JSON", "{}", r#"{"cniVersion":"9"}"#, r#"{"cni_agent_run_dir": 7}"#] {
        assert_eq!(run("DEL", input).printed(), "", "{input}");
    }
    assert_eq!(call(plugin(), &[("CNI_COMMAND", "DEL")], b"").printed(), "");
    assert_eq!(call(plugin(), &[("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "/")], b"").printed(), "");
}

#[test]
fn input_that_is_no_configuration_is_refused() {
    for command in ["ADD", "CHECK", "GC", "STATUS"] {
        for input in ["", "x", "[]", "{", "null", "{\"a\":1}{"] {
            run(command, input).error(6);
        }
        let bytes =
            call(plugin(), &[&[("CNI_COMMAND", command)], &GOOD[..]].concat(), b"{\"name\":\"\xff\"}");
        bytes.error(6);
        let deep = format!("{}{}", "[".repeat(1 << 20), "]".repeat(1 << 20));
        run(command, &format!("{{\"cniVersion\":\"1.1.0\",\"name\":\"x\",\"source\":{deep}}}")).error(7);
    }
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(9 << 20));
    assert!(run("ADD", &large).error(5).contains("larger than 8 MiB"));
}

#[test]
fn versions_decide_which_commands_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let versions = ["0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", "2.0.0"];
    for (command, since) in [("ADD", 1), ("CHECK", 3), ("GC", 5), ("STATUS", 5)] {
        for (at, version) in versions.iter().enumerate() {
            let more = json!({
                "cniVersion": version, "exclude_namespaces": ["a"], "cni.dev/valid-attachments": [],
                "capabilities": {"io.kubernetes.cri.pod-annotations": true}
            });
            let answer = run(command, &conf(&folder, &more).to_string());
            if at >= since && at < versions.len() - 1 {
                answer.printed();
            } else {
                assert!(answer.error(1).contains(version), "{command} {version}");
            }
        }
    }
    run("ADD", r#"{"name":"x"}"#).error(1);
}

#[test]
fn excluded_pods_do_not_depend_on_the_rest_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let broken = json!({"source": ["nowhere"], "backend": 7, "ambient_enabled": true});
    let with = |more: Value| {
        let mut all = broken.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        conf(&folder, &all).to_string()
    };
    let result = r#"{"cniVersion":"1.1.0"}"#;
    assert_eq!(run("ADD", &with(json!({"exclude_namespaces": ["a"]}))).printed(), result);
    let variables =
        |args: &'static str| [("CNI_COMMAND", "ADD"), GOOD[0], GOOD[1], GOOD[2], ("CNI_ARGS", args)];
    let input = with(json!({"pod_namespace": "istio-system"}));
    let as_pod = |args| call(plugin(), &variables(args), input.as_bytes());
    assert_eq!(as_pod("K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=istio-cni-node-x1").printed(), result);
    assert_eq!(as_pod("").printed(), result, "not a pod of Kubernetes");
    assert!(as_pod("K8S_POD_NAMESPACE=other;K8S_POD_NAME=istio-cni-node-x1").error(7).contains("ambient"));
}

#[test]
fn add_needs_a_previous_result_unless_it_is_alone() {
    let folder = tempfile::tempdir().unwrap();
    let input = |more: Value| conf(&folder, &more).to_string();
    assert!(run("ADD", &input(json!({"prevResult": null}))).error(7).contains("no prevResult"));
    assert!(run("CHECK", &input(json!({"prevResult": null}))).error(7).contains("no prevResult"));
    let alone =
        json!({"prevResult": null, "standalone": true, "exclude_namespaces": ["a"], "cniVersion": "0.3.1"});
    assert_eq!(run("ADD", &input(alone)).printed(), r#"{"cniVersion":"0.3.1"}"#);
}

#[test]
fn previous_result_is_printed_byte_for_byte() {
    let result = "{ \"ips\" : [ {\"version\":\"4\",\"mtu\":1.50e1} ],\n \"b\":1,\"a\":\"\\u00e9\" }";
    let input = format!(
        "{{\"cniVersion\":\"0.3.1\",\"name\":\"x\",\"prevResult\":{result},\"exclude_namespaces\":[\"a\"]}}"
    );
    assert_eq!(run("ADD", &input).printed(), result);
}

#[test]
fn pod_that_no_source_knows_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let unknown = run("ADD", &conf(&folder, &json!({})).to_string()).error(11);
    assert!(
        unknown.contains("pod a/b")
            && unknown.contains("\"capabilities\": {\"io.kubernetes.cri.pod-annotations\": true}"),
        "{unknown}"
    );
    let pass = run("ADD", &conf(&folder, &json!({"on_unknown": "pass"})).to_string());
    assert_eq!(pass.printed(), r#"{"cniVersion":"1.1.0"}"#);
    assert!(pass.stderr.contains("NOT captured"), "{}", pass.stderr);
    let source = run("ADD", &conf(&folder, &json!({"source": ["annotations", "x"]})).to_string()).error(7);
    assert!(source.contains("\"x\" is not accepted, expected a list of annotations, agent, api"), "{source}");
}

#[test]
fn status_reports_what_would_make_every_add_fail() {
    let folder = tempfile::tempdir().unwrap();
    let capabilities = json!({"capabilities": {"io.kubernetes.cri.pod-annotations": true}});
    assert_eq!(run("STATUS", &conf(&folder, &capabilities).to_string()).printed(), "");
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let unusable = run("STATUS", &conf(&folder, &json!({ "cni_agent_run_dir": file })).to_string()).error(50);
    assert!(unusable.contains("file/state") && unusable.contains("cni_agent_run_dir"), "{unusable}");
    run("STATUS", &conf(&folder, &json!({"source": []})).to_string()).error(7);
    run("STATUS", &conf(&folder, &json!({"ambient_enabled": true})).to_string()).error(7);
}

#[test]
fn log_lines_are_json_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let more = json!({"exclude_namespaces": ["a"], "unheard_of": 1});
    let answer = run("ADD", &conf(&folder, &more).to_string());
    let lines: Vec<Value> = answer.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |key: &str, value: &str| lines.iter().any(|line| line[key] == value);
    assert!(
        find("key", "unheard_of") && find("reason", "excluded namespace") && find("pod", "a/b"),
        "{lines:?}"
    );
    let quiet = run(
        "ADD",
        &conf(&folder, &json!({"exclude_namespaces": ["a"], "plugin_log_level": "none"})).to_string(),
    );
    assert_eq!(quiet.stderr, "");
}

#[test]
fn log_lines_reach_the_agent_and_a_file() {
    use std::io::Read as _;
    let folder = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(folder.path().join("log.sock")).unwrap();
    let more = json!({"exclude_namespaces": ["a"], "unheard_of": 1});
    let answer = run("ADD", &conf(&folder, &more).to_string());
    let mut request = String::new();
    listener.accept().unwrap().0.read_to_string(&mut request).unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /log HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    let lines: Vec<String> = serde_json::from_str(body).unwrap();
    assert_eq!(lines, answer.stderr.lines().collect::<Vec<_>>());
    assert_eq!(std::fs::read_to_string(folder.path().join("istio-cni.log")).unwrap(), answer.stderr);
    // What fails is there, too, with the pod.
    let failed = run("ADD", &conf(&folder, &json!({"source": []})).to_string());
    let log = std::fs::read_to_string(folder.path().join("istio-cni.log")).unwrap();
    let line: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!((&line["level"], &line["pod"], &line["code"]), (&json!("error"), &json!("a/b"), &json!(7)));
    assert_eq!(line["msg"], failed.error(7));
}

/// The plugin, waiting for its input.
fn pending() -> std::process::Child {
    pending_command("ADD")
}

fn pending_command(command: &str) -> std::process::Child {
    Command::new(plugin())
        .env_clear()
        .envs([("CNI_COMMAND", command)].into_iter().chain(GOOD))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn answered(child: std::process::Child) -> Answer {
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    Answer { success: output.status.success(), stdout, stderr: String::new() }
}

#[test]
fn input_that_does_not_end_meets_the_deadline() {
    let mut child = pending();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"{\"cniVersion\":").unwrap();
    // wait_with_output would close it.
    let answer = answered(child);
    assert!(answer.error(11).contains("not done after 30000 ms"), "{answer:?}");
    drop(input);
}

#[test]
fn sigterm_is_reported_as_an_error() {
    let mut child = pending();
    let input = child.stdin.take();
    // Until the signals are watched, one would end the process at once.
    let status = format!("/proc/{}/status", child.id());
    while !std::fs::read_to_string(&status).unwrap().lines().any(|line| line == "SigBlk:\t0000000000004002") {
        std::thread::yield_now();
    }
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child.id().cast_signed()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    let answer = answered(child);
    assert!(answer.error(11).contains("SIGTERM"), "{answer:?}");
    drop(input);
}

/// Neither waits for the deadline of the others, nor at all longer than about a second.
#[test]
fn version_and_del_do_not_wait_for_input_that_does_not_end() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("c1.eth0.json"), "{}").unwrap();
    let conf = conf(&folder, &json!({"cniVersion": "0.4.0"})).to_string();
    for (command, wanted) in [("VERSION", "\"cniVersion\":\"0.4.0\""), ("DEL", "")] {
        let mut child = pending_command(command);
        let mut input = child.stdin.take().unwrap();
        input.write_all(conf.as_bytes()).unwrap();
        // The end is not before the answer, however long that takes.
        let answer = answered(child);
        assert!(answer.printed().contains(wanted), "{answer:?}");
        drop(input);
    }
    assert!(!state.join("c1.eth0.json").exists(), "the configuration that came was used");
}

#[test]
fn result_that_cannot_be_printed_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let conf = conf(&folder, &json!({"exclude_namespaces": ["a"]})).to_string();
    let run = |command: &str, redirection: &str| {
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec \"$0\" {redirection}")])
            .arg(plugin())
            .envs([("CNI_COMMAND", command)].into_iter().chain(GOOD))
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(conf.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for command in ["ADD", "VERSION"] {
        for (redirection, part) in [(">&-", "standard output: closed"), (">/dev/full", "No space left")] {
            let (code, log) = run(command, redirection);
            assert_eq!(code, Some(1), "{command} {redirection}: {log}");
            assert!(log.contains(part), "{command} {redirection}: {log}");
        }
        assert_eq!(run(command, ">/dev/null").0, Some(0), "{command}");
    }
    assert_eq!(run("DEL", ">&-").0, Some(0), "no result, nothing lost");
}

/// Runs in a process of its own: see the next test.
#[test]
#[ignore = "panics, as its parent wants it to"]
fn panicking() {
    istio_cni::output::report_panics();
    let thread = std::thread::spawn(|| panic!("a defect"));
    let _ = thread.join();
}

#[test]
fn panic_is_one_document_with_code_100() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "panicking", "--include-ignored", "--nocapture", "--quiet"])
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let documents: Vec<&str> = stdout.lines().filter(|line| line.contains('{')).collect();
    let [document] = documents.as_slice() else { panic!("{stdout}") };
    let error: Value = serde_json::from_str(&document[document.find('{').unwrap()..]).unwrap();
    assert_eq!(error["code"], 100);
    assert!(error["msg"].as_str().unwrap().ends_with("a defect"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}

/// JSON of any form, with keys that the plugin reads more often than others.
fn json_text() -> impl Strategy<Value = String> {
    const KEYS: [&str; 12] = [
        "cniVersion",
        "name",
        "prevResult",
        "runtimeConfig",
        "io.kubernetes.cri.pod-annotations",
        "sidecar.istio.io/status",
        "source",
        "capture",
        "exclude_namespaces",
        "deadline_ms",
        "backend",
        "cni.dev/valid-attachments",
    ];
    const TEXTS: [&str; 6] =
        ["1.1.0", "0.4.0", "annotations", "istio-proxy", "{\"version\":1,\"options\":{}}", "fail"];
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        proptest::sample::select(&TEXTS[..]).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(4, 24, 6, |inner| {
        let key = prop_oneof![proptest::sample::select(&KEYS[..]).prop_map(str::to_owned), any::<String>()];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map(key, inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    });
    value.prop_map(|value| {
        let mut value = value;
        if let Some(object) = value.as_object_mut() {
            // Most get past the version, and none writes outside of this test.
            object.entry("cniVersion").or_insert_with(|| json!("1.1.0"));
            object.insert("cni_agent_run_dir".to_owned(), json!("/proc/nowhere"));
        }
        value.to_string()
    })
}

#[test]
fn any_input_gets_one_document_or_none() {
    let mut runner = TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
    let commands = proptest::sample::select(&["ADD", "CHECK", "DEL", "GC", "STATUS", "VERSION", ""][..]);
    let input = prop_oneof![
        json_text().prop_map(String::into_bytes),
        (json_text(), any::<proptest::sample::Index>()).prop_map(|(text, cut)| {
            let mut bytes = text.into_bytes();
            bytes.truncate(cut.index(bytes.len() + 1));
            bytes
        }),
        proptest::collection::vec(any::<u8>(), 0..64),
    ];
    runner
        .run(&(commands, input), |(command, input)| {
            let variables = [&[("CNI_COMMAND", command)], &GOOD[..]].concat();
            let answer = call(plugin(), &variables, &input);
            let has_result = !(answer.success && matches!(command, "CHECK" | "DEL" | "GC" | "STATUS"));
            if has_result {
                let document: Result<Value, _> = serde_json::from_str(&answer.stdout);
                prop_assert!(document.is_ok_and(|document| document.is_object()), "{command} {answer:?}");
            } else {
                prop_assert_eq!(&answer.stdout, "");
            }
            prop_assert!(
                !answer.stderr.contains("defect") && !answer.stdout.contains("\"code\":100"),
                "{answer:?}"
            );
            Ok(())
        })
        .unwrap();
}
