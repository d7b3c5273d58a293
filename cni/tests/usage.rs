//! The programs as a person types them.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests"
)]

use std::process::{Command, Output};

fn run(args: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_istio-cni"));
    command.args(args).env_remove("CNI_COMMAND").envs(variables.iter().copied());
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn help_and_version_are_text() {
    let version = format!("istio-cni {}\n", env!("CARGO_PKG_VERSION"));
    for args in [&["--version"][..], &["-V"], &["version"], &["uninstall", "-V"], &["status", "version"]] {
        assert_eq!(run(args, &[]), (Some(0), version.clone(), String::new()), "{args:?}");
    }
    for (args, part) in [
        (&["--help"][..], "Usage: istio-cni COMMAND"),
        (&["-h"], "istio-cni uninstall --help"),
        (&["install", "-h"], "Usage: istio-cni install"),
        (&["install", "help"], "Usage: istio-cni install"),
        (&["install", "-h"], "--exclude-namespaces=NAMES"),
        (&["status", "--help"], "Usage: istio-cni status"),
        (&["audit", "--help"], "--netns-dir=DIR"),
        (&["uninstall", "--help"], "Usage: istio-cni uninstall"),
    ] {
        let (code, stdout, stderr) = run(args, &[]);
        assert!(code == Some(0) && stdout.contains(part) && stderr.is_empty(), "{args:?}: {stdout}{stderr}");
    }
}

#[test]
fn bad_usage_is_exit_64_with_one_line() {
    for (args, parts) in [
        (&["foo"][..], ["\"foo\"", "install, status, audit, uninstall"]),
        (&["install", "--foo"], ["\"--foo\"", "--help"]),
        (
            &["install", "--exclude-namespaces=kube-system,$(POD_NAMESPACE)"],
            ["--exclude-namespaces: \"$(POD_NAMESPACE)\"", "lower-case"],
        ),
        (
            &["install", "--exclude-namespaces", "Foo Bar"],
            ["--exclude-namespaces: \"Foo Bar\"", "lower-case"],
        ),
        (&["install", "--exclude-namespaces=-a"], ["--exclude-namespaces: \"-a\"", "lower-case"]),
        (&["install", "--pod-namespace=../x"], ["--pod-namespace: \"../x\"", "lower-case"]),
        (&["install", "--pod-namespace="], ["--pod-namespace: \"\"", "lower-case"]),
        (&["audit", "--bin-dir=/x"], ["\"--bin-dir=/x\"", "--help"]),
        (&["install", "--repair=heal"], ["--repair: \"heal\"", "repair, event, label, delete, off"]),
        (&["install", "--repair=delete"], ["--repair: delete", "without --node-name"]),
        (
            &["install", "--repair=event", "--node-name=a", "--pod-events=false"],
            ["--repair: event", "--pod-events=false"],
        ),
        (
            &["install", "--repair-broken-pod-label-key=a b"],
            ["--repair-broken-pod-label-key: \"a b\"", "the key of a label"],
        ),
        (
            &["install", "--repair-broken-pod-label-key="],
            ["--repair-broken-pod-label-key: \"\"", "the key of a label"],
        ),
        (
            &["install", "--repair-broken-pod-label-value=a/b"],
            ["--repair-broken-pod-label-value: \"a/b\"", "the value of a label"],
        ),
        (&["audit", "--node", "--output=xml"], ["--output: \"xml\"", "text, json"]),
        (&["status", "--binary"], ["\"--binary\"", "--help"]),
        (&["uninstall", "--run-dir=x"], ["--run-dir: \"x\"", "absolute path"]),
    ] {
        let (code, stdout, stderr) = run(args, &[]);
        assert_eq!((code, stdout.as_str(), stderr.lines().count()), (Some(64), "", 1), "{args:?}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)), "{args:?}: {stderr}");
    }
}

/// Words of options that count only beside others. Each line has a second mistake: a run without any would
/// install.
#[test]
fn words_are_refused_also_where_they_have_no_effect() {
    let events = "--pod-events: \"maybe\" is not accepted, expected one of true, false";
    for (args, part) in [
        (&["--pod-events=maybe"][..], events),
        (&["--pod-events=maybe", "--guard=off", "--repair=off"], events),
        (&["--guard=off", "--repair=off", "--netns-dir=x"], "--netns-dir: \"x\" is not accepted"),
        (&["--repair=off", "--results-dir=x"], "--results-dir: \"x\" is not accepted"),
        (&["--repair=off", "--repair-broken-pod-label-key=a b"], "expected the key of a label"),
    ] {
        let args = [&["install", "--drop-in=x"], args].concat();
        let (code, _, stderr) = run(&args, &[]);
        assert!(code == Some(64) && stderr.contains(part), "{args:?}: {stderr}");
    }
}

/// Whatever arguments a runtime gives, it gets JSON; so does a program that forgets the variables.
#[test]
fn runtime_gets_json() {
    let (code, stdout, _) = run(&["--help"], &[("CNI_COMMAND", "VERSION")]);
    assert!(code == Some(0) && stdout.starts_with('{') && stdout.contains("supportedVersions"), "{stdout}");
    let (code, stdout, _) = run(&[], &[]);
    assert!(code == Some(1) && stdout.starts_with('{') && stdout.contains("\"code\":4"), "{stdout}");
}

#[test]
fn wrong_arguments_are_refused_with_what_is_meant() {
    for (args, part) in [
        (&["instal"][..], "did you mean install?"),
        (&["stauts"], "did you mean status?"),
        (&["guard"], "expected install, status, audit, uninstall, --help or --version"),
        (&["install", "--oncee"], "unknown argument \"--oncee\"; did you mean --once?"),
        (&["install", "-once"], "did you mean --once?"),
        (&["install", "once"], "did you mean --once?"),
        (&["install", "--net-dri=/x"], "did you mean --net-dir?"),
        (&["install", "-f"], "unknown argument \"-f\"; --help lists the options"),
        (&["install", "--log-level=verbose"], "expected one of info, error, warn, debug"),
        (&["install", "--guard=on"], "expected one of repair, lockdown, report, off"),
        (&["audit", "-o", "yaml"], "--output: \"yaml\" is not accepted, expected one of text, json"),
        (&["audit", "--pod", "x"], "unknown argument \"--pod\"; --help lists the options"),
        (&["status", "--output", "json"], "unknown argument \"--output\""),
        (&["uninstall", "--dry-run"], "unknown argument \"--dry-run\""),
        (&["add"], "the container runtime sets CNI_COMMAND"),
        (&["check"], "`audit` compares the live rules"),
        (&["repair"], "`istio-cni install --repair`"),
        (&["install", "--mounted-cni-net-dir=/x"], "did you mean --net-dir?"),
        (&["install", "--cni-net-dir", "/x"], "did you mean --net-dir?"),
        (&["audit", "--cni-net-dir", "/x"], "did you mean --net-dir?"),
        (&["install", "--log_output_level=debug"], "did you mean --log-level?"),
        (&["install", "--log_level=debug"], "did you mean --log-level?"),
        (&["install", "--NET_DIR=/x"], "did you mean --net-dir?"),
        (&["install", "--monitoring-port=15014"], "did you mean --listen=[::]:PORT?"),
        (&["install", "--repair-enabled=true"], "did you mean --repair?"),
        (&["install", "--repair-delete-pods"], "did you mean --repair=delete?"),
        (&["audit", "--repair-enabled"], "--help lists the options"),
        (&["install", "--chained-cni-plugin=true"], "leave it out"),
    ] {
        let (code, stdout, stderr) = run(args, &[]);
        assert!(code == Some(64) && stdout.is_empty() && stderr.contains(part), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}
