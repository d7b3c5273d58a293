//! Where log lines go.

use serde_json::{Value, json};

use crate::{conf, run};

#[test]
fn log_lines_are_json_on_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let more = json!({"exclude_namespaces": ["a"], "unheard_of": 1});
    let output = run("ADD", &conf(&folder, &more).to_string());
    let lines: Vec<Value> = output.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
fn log_level_that_is_not_accepted_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    for (level, shown) in [(json!("foo"), "foo"), (json!(5), "5")] {
        let output = run(
            "ADD",
            &conf(&folder, &json!({"exclude_namespaces": ["a"], "plugin_log_level": level})).to_string(),
        );
        output.printed();
        let problem =
            format!("configuration key plugin_log_level: \\\"{shown}\\\" is not accepted, expected LEVEL");
        assert!(output.stderr.contains(&problem), "{}", output.stderr);
        assert!(output.stderr.contains("not captured"), "info is used: {}", output.stderr);
    }
}

#[test]
fn log_lines_reach_the_agent_and_a_file() {
    use std::io::Read as _;
    let folder = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(folder.path().join("log.sock")).unwrap();
    let more = json!({"exclude_namespaces": ["a"], "unheard_of": 1});
    let output = run("ADD", &conf(&folder, &more).to_string());
    let mut request = String::new();
    listener.accept().unwrap().0.read_to_string(&mut request).unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /log HTTP/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    let lines: Vec<String> = serde_json::from_str(body).unwrap();
    assert_eq!(lines, output.stderr.lines().collect::<Vec<_>>());
    assert_eq!(std::fs::read_to_string(folder.path().join("istio-cni.log")).unwrap(), output.stderr);
    // What fails is there, too, with the pod.
    let failed = run("ADD", &conf(&folder, &json!({"source": []})).to_string());
    let log = std::fs::read_to_string(folder.path().join("istio-cni.log")).unwrap();
    let line: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!((&line["level"], &line["pod"], &line["code"]), (&json!("error"), &json!("a/b"), &json!(7)));
    assert_eq!(line["msg"], failed.error(7));
}
