//! Standard output: one JSON document, or nothing where the command has no result.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::plugin;
use crate::{GOOD, conf, run};

#[test]
fn previous_result_is_printed_byte_for_byte() {
    let result = "{ \"ips\" : [ {\"version\":\"4\",\"mtu\":1.50e1} ],\n \"b\":1,\"a\":\"\\u00e9\" }";
    let input = format!(
        "{{\"cniVersion\":\"0.3.1\",\"name\":\"x\",\"prevResult\":{result},\"exclude_namespaces\":[\"a\"]}}"
    );
    assert_eq!(run("ADD", &input).printed(), result);
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

/// Set in the process that panics.
const PANICS: &str = "ISTIO_CNI_TEST_PANICS";

#[test]
fn panic_is_one_document_with_code_100() {
    if std::env::var_os(PANICS).is_some() {
        istio_cni::output::report_panics();
        let _ = std::thread::spawn(|| panic!("a defect")).join();
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "output::panic_is_one_document_with_code_100", "--nocapture", "--quiet"])
        .env(PANICS, "1")
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
