//! The completion scripts of `install-cni` in the shells that they are for, and the man page in groff.

#![allow(clippy::disallowed_methods, clippy::panic, clippy::unwrap_used, reason = "tests")]

#[path = "../examples/install_cni_docs.rs"]
mod docs;
#[path = "../../tests/completions/shells.rs"]
mod shells;

const NAME: &str = "install-cni";

fn text(name: &str) -> String {
    cli_docs::text(name, &docs::command()).unwrap()
}

#[test]
fn shells_complete_commands_options_and_values() {
    let script = text("bash");
    let bash = |words: &[&str]| shells::bash(NAME, &script, words);
    assert_eq!(bash(&["aud"]), ["audit"]);
    assert_eq!(bash(&["--replace"]), ["--replace-istio"]);
    assert_eq!(bash(&["install", "--guard", "=", "l"]), ["lockdown"]);
    assert_eq!(bash(&["--drop-in", "=", ""]), ["auto", "yes", "no"]);
    // Of an installation only.
    assert_eq!(bash(&["audit", "--bin-d"]), [""; 0]);
    let fish = |rest: &str| shells::fish(&text("fish"), &format!("{NAME} {rest}"));
    assert_eq!(fish("uninst"), ["uninstall"]);
    assert_eq!(fish("--log-level=d"), ["--log-level=debug"]);
    let zsh = |typed: &str| shells::zsh(NAME, &text("zsh"), typed);
    assert_eq!(zsh("aud\t--outp\tj\t"), "audit --output=json");
    assert_eq!(zsh("--platf\tgk\t"), "--platform=gke");
}

#[test]
fn man_page_has_every_option_of_help() {
    let page = shells::man(&text("man"));
    for command in istio_cni::install::COMMANDS {
        for (option, ..) in istio_cni::install::options::rows(command) {
            assert!(page.contains(&format!("--{option}")), "{option}: {page}");
        }
    }
}
