//! What is written where.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use serde_json::Value;

use crate::pod::{BUILT, Ended, Pod, SIDECAR};

/// Each line as an object, with the keys that log collectors expect and no line break in any string.
fn objects(ended: &Ended) -> Vec<Value> {
    let lines = ended.stderr.lines();
    let objects: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for object in &objects {
        for key in ["level", "time", "msg"] {
            assert!(object[key].is_string(), "{key}: {object}");
        }
        assert!(!has_line_break(object), "{object}");
    }
    objects
}

fn has_line_break(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\n'),
        Value::Array(items) => items.iter().any(has_line_break),
        Value::Object(fields) => fields.values().any(has_line_break),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[test]
fn as_json_every_line_is_one_object() {
    let pod = Pod::dual();
    let runs: [&[&str]; 5] = [
        &SIDECAR,
        &["-b", "*", "--dual-stack", "--log_output_level=default:debug"],
        &["-b", "x,y", "-m", "z"],
        &["--unknown", "-b", "80"],
        &["cleanup"],
    ];
    for options in runs {
        for json in ["--log_as_json", "--log-format=json"] {
            let ended = pod.istio(&[options, &[json]].concat()).end();
            assert!(!objects(&ended).is_empty(), "{ended}");
        }
    }
}

#[test]
fn as_json_a_failure_of_the_tool_is_objects_too() {
    let pod = Pod::new();
    pod.program("bin", "iptables-nft-restore", "printf 'one\\ntwo \\377\\n' >&2; exit 3");
    let ended = pod
        .istio(&[&SIDECAR[..], &["--log_as_json"]].concat())
        .search(&[&pod.path("bin"), "/usr/sbin".as_ref(), "/usr/bin".as_ref()])
        .end()
        .exits(70);
    let errors: Vec<Value> =
        objects(&ended).into_iter().filter(|object| object["level"] == "error").collect();
    assert_eq!(errors.len(), 1, "{ended}");
    assert!(errors[0].to_string().contains("two"), "{ended}");
}

#[test]
fn the_level_decides_what_is_written() {
    let pod = Pod::new();
    let with = |level: &str| {
        let ended = pod.istio(&["-b", "80", "--force-apply", &format!("--log_output_level={level}")]).good();
        ended.stderr
    };
    let debug = with("default:debug");
    assert!(debug.contains("running: /") && debug.contains("\tinfo\t"), "{debug}");
    let info = with("default:info");
    assert!(info.contains("\tinfo\t") && !info.contains("\tdebug\t"), "{info}");
    assert_eq!(with("default:error"), "");
    assert_eq!(with("default:none"), "");
    let failing = pod.istio(&["-b", "x", "--log_output_level=default:error"]).end().exits(64);
    assert!(failing.stderr.contains("\terror\t"), "{failing}");
    let silent = pod.istio(&["-b", "x", "--log_output_level=default:none"]).end().exits(64);
    assert_eq!(silent.stderr, "");
}

#[test]
fn log_reports_decisions_and_written_rules() {
    let pod = Pod::new();
    pod.istio(&SIDECAR)
        .good()
        .stderr_contains("options: ")
        .stderr_contains("backend iptables-nft: ")
        .stderr_contains("Writing following contents to rules file: ")
        .stderr_contains("\n-A OUTPUT -j ISTIO_OUTPUT")
        .stderr_contains("\tdone: ");
}

/// A `/dev` with next to nothing in it but a place for the reason of a failure.
const TERMINATION_LOG: &str = "ip addr add 10.4.4.4/24 dev eth0; mkdir $DIR/dev; mount -t tmpfs dev $DIR/dev; \
     mknod $DIR/dev/null c 1 3; chmod 666 $DIR/dev/null; echo old > $DIR/dev/termination-log; mount --rbind $DIR/dev /dev";

#[test]
fn the_reason_of_a_failure_is_left_where_kubernetes_looks_for_it() {
    let pod = Pod::with(TERMINATION_LOG);
    let output = || pod.sh("cat /dev/termination-log");
    pod.istio(&SIDECAR).good();
    assert_eq!(output(), "old\n");
    pod.istio(&["-b", "http"]).end().exits(64);
    assert!(output().contains("\"http\""), "{}", output());
    pod.istio(&["--unknown"]).end().exits(64);
    assert!(output().contains("--unknown"), "{}", output());
    pod.istio(&[&SIDECAR[..], &["-o", "25", "--log_output_level=default:none"]].concat())
        .search(&[&pod.links("empty", &[])])
        .end()
        .exits(69);
    assert!(output().contains("what to do: "), "{}", output());
}

#[test]
fn a_termination_log_that_cannot_be_written_does_not_change_the_exit_code() {
    let pod = Pod::with(&format!(
        "{TERMINATION_LOG}; mount -t tmpfs -o ro none $DIR/dev; mount -o remount,bind,ro /dev"
    ));
    pod.istio(&["-b", "http"]).end().exits(64);
}

#[test]
fn closed_log_pipe_does_not_end_the_run() {
    let pod = Pod::new();
    for closed in
        ["2>&-", ">&-", "<&-", ">&- 2>&- <&-", "2>&1 | true", "2>&1 >/dev/null | true", "2>/dev/full"]
    {
        pod.sh(&format!("\"$BIN\" cleanup 2>/dev/null; code=0; {{ \"$BIN\" -b '*' -i '*' --log_output_level=default:debug || echo $? > $DIR/code; }} {closed}; \
             [ ! -e $DIR/code ]"));
        // The pipe's reader may be gone before the run is.
        pod.istio(&["-b", "*", "-i", "*"]).good().stderr_contains("already converged");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let pod = Pod::new();
    for command in ["-b '*' --dry-run", "show", "check", "explain", "diff options live", "bundle", "--help"] {
        for (target, why) in [("/dev/full", "No space left on device"), ("&-", "Bad file descriptor")] {
            let ended = pod.sh(&format!("\"$BIN\" {command} 2>$DIR/err >{target} || echo $?"));
            assert_eq!(ended, "73\n", "{command} >{target}");
            let log = fs::read_to_string(pod.path("err")).unwrap();
            assert!(log.contains("cannot write to standard output") && log.contains(why), "{command}: {log}");
        }
    }
}

/// The rules of the run are in place, and its result is the exit code.
#[test]
fn a_run_that_changes_rules_needs_no_output() {
    let pod = Pod::new();
    for nowhere in [">/dev/full", ">&-", ">/dev/full 2>/dev/full", ">&- 2>&-"] {
        for (arguments, rules) in
            [("-b '*' -i '*'", "15\n"), ("-b '*' -i '*' --force-apply", "15\n"), ("cleanup", "0\n")]
        {
            let ended = pod.sh(&format!("\"$BIN\" {arguments} {nowhere}; echo $?"));
            assert_eq!(ended, "0\n", "{arguments} {nowhere}");
            let live = pod.sh("iptables-save -t nat | grep -c -e -A || true");
            assert_eq!(live, rules, "{arguments} {nowhere}");
        }
    }
}

#[test]
fn a_closed_output_pipe_ends_the_process_by_sigpipe_as_it_ends_cat() {
    for arguments in [&["explain"][..], &["--help"], &["show", "--watch"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = Command::new(&*BUILT).args(arguments).stdout(writer).output().unwrap();
        assert_eq!(ended.status.signal(), Some(libc::SIGPIPE), "{arguments:?}: {ended:?}");
        assert!(!String::from_utf8_lossy(&ended.stderr).contains("standard output"), "{ended:?}");
    }
}
