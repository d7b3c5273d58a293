//! Command lines as people type them: without options on a node, on a terminal, with names instead of paths.

use std::fs;
use std::process::{Command, Output};

use crate::pod::{BUILT, Pod};

fn program(words: &[&str]) -> Output {
    Command::new(&*BUILT)
        .args(words)
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .expect("start it")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The kernel's own number of the first PID namespace, and a setting of the first network namespace.
fn is_first_namespace_of_the_machine() -> bool {
    let pids = fs::read_link("/proc/self/ns/pid").expect("a namespace");
    pids.ends_with("pid:[4026531836]")
        && fs::exists("/proc/sys/net/core/netdev_max_backlog").expect("a file or none")
}

/// Without NET_ADMIN, so that no defect can change this machine.
#[test]
fn without_options_the_first_network_namespace_of_the_machine_is_refused() {
    let bare = |words: &[&str]| {
        let without = ["--bounding-set=-net_admin", "--inh-caps=-all", &*BUILT];
        Command::new("setpriv").args(without).args(words).env_clear().output().expect("start it")
    };
    let ended = bare(&[]);
    let (code, said) = (ended.status.code(), text(&ended.stderr));
    if is_first_namespace_of_the_machine() {
        assert_eq!(code, Some(64), "{said}");
        for words in ["no option is given", "usage: istio-iptables", "--pid PID", "`istio-iptables apply`"] {
            assert!(said.contains(words), "{said}");
        }
    } else {
        assert_eq!(code, Some(77), "{said}");
    }
    // On purpose, or with an option, it goes on to the missing capability.
    for words in [&["apply"][..], &["-b", "80"], &["istio-iptables", "-b", ""]] {
        assert_eq!(bare(words).status.code(), Some(77), "{words:?}");
    }
    // A pod has a network namespace of its own.
    Pod::new().istio(&[]).end().exits(0);
}

#[test]
fn failures_on_a_terminal_begin_with_error() {
    let line = format!("{} explain --to x", *BUILT);
    let terminal = Command::new("script").args(["-qec", &line, "/dev/null"]).output().expect("start script");
    let said = text(&terminal.stdout);
    assert!(said.starts_with("error: bad option: --to: "), "{said}");
    let elsewhere = text(&program(&["explain", "--to", "x"]).stderr);
    assert!(elsewhere.contains("\terror\tbad option: --to: "), "{elsewhere}");
}

#[test]
fn reports_on_a_terminal_are_wrapped_to_its_width_unless_wide() {
    let report = |more: &str| {
        let line = format!(
            "stty cols 60; {} explain -i '*' -b '*' -x 10.0.0.0/8 --ip-family ipv4 --color never {more}",
            *BUILT
        );
        let terminal =
            Command::new("script").args(["-qec", &line, "/dev/null"]).output().expect("start script");
        text(&terminal.stdout).replace('\r', "")
    };
    let (wrapped, wide) = (report(""), report("--wide"));
    assert!(wrapped.lines().all(|line| line.chars().count() <= 60), "{wrapped}");
    assert!(wide.lines().any(|line| line.chars().count() > 60), "{wide}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&wrapped), words(&wide));
}

#[test]
fn help_and_version_are_words_too() {
    let said = |words: &[&str]| text(&program(words).stdout);
    assert_eq!(said(&["version"]), said(&["--version"]));
    assert_eq!(said(&["help", "explain"]), said(&["explain", "--help"]));
    let json = said(&["explain", "-i", "*", "10.0.0.1:80", "-o", "json"]);
    assert!(json.starts_with('{') && json.contains("\"verdict\":\"captured\""), "{json}");
}

#[test]
fn an_asterisk_that_the_shell_has_replaced_is_named() {
    let said = text(&program(&["-i", "Cargo.toml", "src"]).stderr);
    assert!(said.contains("quote it for the shell: -i '*'"), "{said}");
}

#[test]
fn a_misspelt_variable_is_named() {
    Pod::new()
        .istio(&["--dry-run", "-b", "80"])
        .env("ISTIO_INBOUND_PORT", "*")
        .end()
        .exits(0)
        .stderr_contains(
            "ISTIO_INBOUND_PORT: unknown variable without effect; did you mean ISTIO_INBOUND_PORTS?",
        );
}
