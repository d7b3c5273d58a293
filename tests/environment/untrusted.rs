//! Text and paths that an unprivileged process may have chosen.

use std::fs;

use crate::pod::{Pod, SIDECAR, V4};

fn dry() -> Vec<&'static str> {
    [&SIDECAR[..], &["--dry-run"]].concat()
}

/// A second line that looks like one of the log, with what moves a terminal's cursor.
const FORGED: &str = "x\n2026-01-01T00:00:00.000000Z\tinfo\tdone: forged\u{1b}[2K\r";

/// Every line that begins like a log line was written by the program itself.
fn is_not_forged(stderr: &str) {
    assert!(!stderr.contains(['\u{1b}', '\r', '\u{7}']), "control characters: {stderr:?}");
    for line in stderr.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        assert!(!line.contains("\tinfo\tdone: forged"), "a forged line: {stderr}");
    }
    assert!(stderr.contains("forged"), "the value is not logged at all: {stderr}");
}

#[test]
fn options_paths_and_variables_cannot_forge_log_lines() {
    let pod = Pod::new();
    let debug = ["--log_output_level=default:debug"];
    is_not_forged(&pod.istio(&[&SIDECAR[2..6], &debug].concat()).env("ENVOY_USER", FORGED).good().stderr);
    for options in [
        ["--rules-file", &pod.path("rules").with_file_name(FORGED).display().to_string()],
        ["--rules-file", &format!("/does/not/exist/{FORGED}")],
        ["--network-namespace", FORGED],
        ["--config", FORGED],
        ["-b", FORGED],
        ["-m", FORGED],
        ["--backend", FORGED],
        [FORGED, FORGED],
    ] {
        is_not_forged(&pod.istio(&[&SIDECAR[..], &debug, &options].concat()).end().stderr);
    }
    is_not_forged(
        &pod.istio(&dry()).env("DRY_RUN_FILE_PATH", &format!("/does/not/exist/{FORGED}")).end().stderr,
    );
    fs::write(pod.path("config.json"), serde_json::json!({ FORGED: 1 }).to_string()).unwrap();
    is_not_forged(&pod.istio(&["--config", pod.path("config.json").to_str().unwrap()]).end().stderr);
}

#[test]
fn comments_of_foreign_rules_cannot_forge_log_lines() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::new();
        pod.istio(&[&SIDECAR[..], &["--force-iptables-binary", variant]].concat()).good();
        pod.sh(&format!(
            "iptables-{variant} -t nat -I PREROUTING -s 10.7.7.7 -m comment --comment \"$(printf '%b' '{}')\" -j ACCEPT",
            "x\\n2026-01-01T00:00:00.000000Z\\tinfo\\tdone: forged\\033[2K\\r"
        ));
        let debug = ["-b", "80", "--force-iptables-binary", variant, "--log_output_level=default:debug"];
        is_not_forged(&pod.istio(&debug).good().stderr);
    }
}

#[test]
fn a_name_with_control_characters_is_one_line_of_the_termination_log() {
    let pod = Pod::with(&format!(
        "{V4}; mkdir $DIR/dev; mount -t tmpfs dev $DIR/dev; mknod $DIR/dev/null c 1 3; touch $DIR/dev/termination-log; \
         mount --rbind $DIR/dev /dev"
    ));
    pod.istio(&["--rules-file", &format!("/does/not/exist/{FORGED}"), "-b", "80"]).end().exits(73);
    let log = pod.sh("cat /dev/termination-log");
    assert!(log.lines().count() == 2 && !log.contains('\u{1b}'), "{log:?}");
}

#[test]
fn termination_log_that_is_a_pipe_or_link_is_not_written() {
    let pod = Pod::with(&format!(
        "{V4}; mkdir $DIR/dev; mount -t tmpfs dev $DIR/dev; mknod $DIR/dev/null c 1 3; mkfifo $DIR/dev/termination-log; \
         mount --rbind $DIR/dev /dev"
    ));
    pod.istio(&["-b", "http"]).end().exits(64);
    pod.sh(
        "echo precious > $DIR/precious; rm /dev/termination-log; ln -s $DIR/precious /dev/termination-log",
    );
    pod.istio(&["-b", "http"]).end().exits(64);
    assert_eq!(fs::read_to_string(pod.path("precious")).unwrap(), "precious\n");
}

#[test]
fn the_file_of_a_dry_run_is_not_written_through_a_link() {
    let pod = Pod::dual();
    fs::write(pod.path("precious"), "precious").unwrap();
    for link in ["link", "rules.v6"] {
        std::os::unix::fs::symlink(pod.path("precious"), pod.path(link)).unwrap();
    }
    let with = |path: &str, more: &[&'static str]| {
        pod.istio(&[&dry(), more].concat()).env("DRY_RUN_FILE_PATH", pod.path(path).to_str().unwrap()).end()
    };
    with("link", &[]).exits(73).stderr_contains("DRY_RUN_FILE_PATH").stderr_contains("symbolic link");
    with("rules", &["--dual-stack"]).exits(73).stderr_contains("rules.v6").stderr_contains("symbolic link");
    assert_eq!(fs::read_to_string(pod.path("precious")).unwrap(), "precious");
}

#[test]
fn a_dry_run_without_ipv6_does_not_touch_the_second_file() {
    let pod = Pod::new();
    for path in ["rules", "rules.v6"] {
        fs::write(pod.path(path), "precious").unwrap();
    }
    pod.istio(&dry()).env("DRY_RUN_FILE_PATH", pod.path("rules").to_str().unwrap()).good();
    assert!(fs::read_to_string(pod.path("rules")).unwrap().starts_with("*nat\n"));
    assert_eq!(fs::read_to_string(pod.path("rules.v6")).unwrap(), "precious");
}

#[test]
fn the_file_of_a_dry_run_that_is_a_pipe_does_not_hang() {
    let pod = Pod::new();
    pod.sh("mkfifo $DIR/pipe; mkdir $DIR/folder");
    for (path, why) in [("pipe", "without a reader"), ("folder", "directory")] {
        let ended = pod.istio(&dry()).env("DRY_RUN_FILE_PATH", pod.path(path).to_str().unwrap()).end();
        ended.exits(73).stderr_contains(why);
    }
    // With a reader as well: it need not read.
    pod.sh("sleep 60 0<>$DIR/pipe >/dev/null 2>&1 &");
    let ended = pod.istio(&dry()).env("DRY_RUN_FILE_PATH", pod.path("pipe").to_str().unwrap()).end();
    ended.exits(73).stderr_contains("neither a regular file nor a character device");
}

#[test]
fn the_file_of_a_dry_run_may_be_a_stream_or_a_device() {
    let pod = Pod::new();
    for path in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let ended = pod.istio(&dry()).env("DRY_RUN_FILE_PATH", path).good();
        assert_eq!(ended.stdout.matches("\n-A OUTPUT -j ISTIO_OUTPUT\n").count(), 2, "{path}: {ended}");
    }
    pod.istio(&dry()).env("DRY_RUN_FILE_PATH", "/dev/null").good();
}
