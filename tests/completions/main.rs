//! The completion scripts in the shells that they are for, and the man page in groff.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "runs shells, and fails by panicking"
)]

mod shells;

use std::process::Command;

use istio_iptables::cli;

const NAME: &str = "istio-iptables";

/// What the generator prints, `examples/cli_docs.rs`.
fn text(name: &str) -> String {
    cli_docs::text(name, &cli::command()).unwrap()
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = text("bash");
    let bash = |words: &[&str]| shells::bash(NAME, &script, words);
    assert_eq!(bash(&["exp"]), ["explain"]);
    assert_eq!(bash(&["explain", "--prot"]), ["--proto"]);
    assert_eq!(bash(&["explain", "--proto", ""]), ["tcp", "udp"]);
    assert_eq!(bash(&["explain", "--proto", "=", "u"]), ["udp"]);
    assert_eq!(
        bash(&["--backend", "="]),
        ["auto", "iptables", "iptables-nft", "iptables-legacy", "nftables"]
    );
    assert_eq!(bash(&["-n", "-m", "T"]), ["TPROXY"]);
    assert_eq!(bash(&["--dry-run", "=", "f"]), ["false"]);
    // Without `=` there is no value: a command may follow.
    assert_eq!(bash(&["--dry-run", "cle"]), ["cleanup"]);
    // An option of `explain` only.
    assert_eq!(bash(&["cleanup", "--prot"]), [""; 0]);
    assert_eq!(bash(&["check", "--reroute"]), ["--reroute-virtual-interfaces"]);
    // One that has no effect there.
    assert_eq!(bash(&["cleanup", "--reroute"]), [""; 0]);
}

#[test]
fn fish_completes_commands_options_and_values() {
    let script = text("fish");
    let fish = |rest: &str| shells::fish(&script, &format!("{NAME} {rest}"));
    assert_eq!(fish("exp"), ["explain"]);
    assert_eq!(fish("explain --prot"), ["--proto"]);
    assert_eq!(fish("explain --proto "), ["tcp", "udp"]);
    assert_eq!(fish("explain --proto=u"), ["--proto=udp"]);
    assert_eq!(fish("check -m "), ["REDIRECT", "TPROXY"]);
    assert_eq!(fish("check --reroute"), ["--reroute-virtual-interfaces"]);
    assert_eq!(fish("cleanup --reroute"), [""; 0]);
    assert_eq!(fish("cleanup --prot"), [""; 0]);
}

#[test]
fn zsh_completes_commands_options_and_values() {
    let script = text("zsh");
    let zsh = |typed: &str| shells::zsh(NAME, &script, typed);
    assert_eq!(zsh("exp\t--prot\tu\t"), "explain --proto=udp");
    assert_eq!(zsh("--backe\tnft\t"), "--backend=nftables");
    assert_eq!(zsh("check -m T\t"), "check -m TPROXY");
    assert_eq!(zsh("cleanup --reroute\t"), "cleanup --reroute");
    // An option of `explain` only.
    assert_eq!(zsh("cleanup --prot\t"), "cleanup --prot");
}

/// Of this process: its number and its name.
fn own_process() -> (String, String) {
    (std::process::id().to_string(), std::fs::read_to_string("/proc/self/comm").unwrap().trim().to_owned())
}

#[test]
fn processes_are_completed_by_number_and_name() {
    let (pid, name) = own_process();
    let bash = text("bash");
    let bash = |words: &[&str]| shells::bash(NAME, &bash, words);
    let both = format!("{pid} ({name})");
    for typed in [&pid[..1], &name] {
        for words in [&["check", "--pid", typed][..], &["--pid", "=", typed]] {
            let found = bash(words);
            assert!(found.contains(&both) || found == [pid.clone()], "{words:?}: {found:?}");
        }
    }
    // A number that is the only one is inserted without its name.
    let found = bash(&["check", "--pid", &pid]);
    assert!(found == [pid.clone()] || found.contains(&both) && found.len() > 1, "{found:?}");
    assert_eq!(bash(&["check", "--pid", "no-such-process"]), [""; 0]);
    let fish = shells::fish(&text("fish"), &format!("{NAME} explain --pid {pid}"));
    assert!(fish.contains(&pid), "{fish:?}");
    // The number without its last digit is one of several; all of it is completed to itself.
    let zsh = shells::zsh(NAME, &text("zsh"), &format!("check --pi\t{pid}\t"));
    assert_eq!(zsh, format!("check --pid={pid}"));
    let names =
        "compdef() {}; _describe() { print -l -- $processes; }; eval \"$SCRIPT\"; _istio_iptables_processes";
    let names = shells::run(Command::new("zsh").args(["-f", "-c", names]).env("SCRIPT", text("zsh")));
    assert!(names.lines().any(|line| line == format!("{pid}:{name}")), "{names}");
}

#[test]
fn man_page_is_valid_roff() {
    let text = shells::man(&text("man"));
    for word in ["TPROXY", "explain", "Exit codes", "126"] {
        assert!(text.contains(word), "{word}\n{text}");
    }
}
