//! The completion scripts in the shells that they are for, and the man page in groff.

#[path = "../../tests/completions/shells.rs"]
mod shells;

use std::process::Command;

const NAME: &str = "sidecar-injector";

/// What the program prints.
fn text(arguments: &[&str]) -> String {
    shells::run(Command::new(env!("CARGO_BIN_EXE_sidecar-injector")).args(arguments))
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = text(&["completions", "bash"]);
    let bash = |words: &[&str]| shells::bash(NAME, &script, words);
    assert_eq!(bash(&["inj"]), ["inject"]);
    assert_eq!(bash(&["kube-inject", "--reject"]), ["--reject-proxy-uid"]);
    assert_eq!(bash(&["inject", "--stri"]), ["--strict"]);
    assert_eq!(bash(&["uninject", "--stri"]), [""; 0]);
    assert_eq!(bash(&["list", "--output", ""]), ["text", "json"]);
    assert_eq!(bash(&["manifests", "--failure-policy", "=", "I"]), [""; 0]);
    assert_eq!(bash(&["manifests", "--failure-policy", "=", "i"]), ["ignore"]);
    assert_eq!(bash(&["config", "v"]), ["values"]);
    assert_eq!(bash(&["completions", "z"]), ["zsh"]);
}

#[test]
fn fish_completes_commands_options_and_values() {
    let script = text(&["completions", "fish"]);
    let fish = |rest: &str| shells::fish(&script, &format!("{NAME} {rest}"));
    assert_eq!(fish("inj"), ["inject"]);
    assert_eq!(fish("kube-inject --reject"), ["--reject-proxy-uid"]);
    assert_eq!(fish("list --output "), ["json", "text"]);
    assert_eq!(fish("check --stri"), ["--strict"]);
    assert_eq!(fish("lint --reject"), [""; 0]);
}

#[test]
fn zsh_completes_commands_options_and_values() {
    let script = text(&["completions", "zsh"]);
    let zsh = |typed: &str| shells::zsh(NAME, &script, typed);
    assert_eq!(zsh("uninj\t--reject\t"), "uninject --reject-proxy-uid");
    assert_eq!(zsh("list --out\tj\t"), "list --output=json");
    assert_eq!(zsh("check --reject\t"), "check --reject-proxy-uid");
    assert_eq!(zsh("config v\t"), "config values");
}

#[test]
fn man_page_is_valid_roff() {
    let text = shells::man(&text(&["man"]));
    for word in ["kube-inject", "reject-proxy-uid", "Examples:", "doctor"] {
        assert!(text.contains(word), "{word}\n{text}");
    }
}
