//! Shells that complete a line. Each loads the script as a user's shell does.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "runs shells, and fails by panicking"
)]

use std::fs;
use std::io::Write as _;
use std::process::Command;

use tempfile::NamedTempFile;

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// The words that bash offers for the last of `words`, as it separates them: `=` is one of its own.
pub(crate) fn bash(name: &str, completions: &str, words: &[&str]) -> Vec<String> {
    let completions = file(completions);
    let script = r#"
        . "$COMPLETIONS"
        [[ $(complete -p "$NAME") == *" -F "* ]] || exit 9
        COMP_WORDS=("$NAME" "$@") COMP_CWORD=$#
        _${NAME//-/_}; printf '%s\n' "${COMPREPLY[@]}""#;
    let arguments = ["--norc", "-c", script, "bash"];
    let command = &mut Command::new("bash");
    let command = command.args(arguments).args(words).env("COMPLETIONS", completions.path());
    let printed = run(command.env("NAME", name));
    printed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The words that fish offers behind `line`.
pub(crate) fn fish(completions: &str, line: &str) -> Vec<String> {
    let completions = file(completions);
    let script = r#"source "$COMPLETIONS"; complete -C "$LINE""#;
    let home = tempfile::tempdir().unwrap();
    let command = &mut Command::new("fish");
    let command = command.args(["--no-config", "-c", script]).env("LINE", line);
    let command = command.env("COMPLETIONS", completions.path());
    let printed = run(command.env("HOME", home.path()));
    printed.lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect()
}

/// The arguments that a command gets when `typed` is typed into an interactive zsh; a tab completes.
pub(crate) fn zsh(name: &str, completions: &str, typed: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("completion"), completions).unwrap();
    let script = r#"
        zmodload zsh/zpty
        zpty shell zsh -f -i
        expect() {
            local seen= part=
            until [[ $seen == *$~1* ]]; do
                zpty -r shell part || { print -u2 "closed: $seen"; exit 9 }
                seen+=$part
            done
            REPLY=$seen
        }
        zpty -w shell "PS1= RPS1=; unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -u -D; . $HOME/completion"
        zpty -w shell "$NAME() { print -r -- \"[GOT \${(j: :)@}\"] }; print rea''dy"
        expect ready
        zpty -w -n shell "$NAME $TYPED"$'\n'
        expect '[[]GOT *[]]'
        print -r -- "${${REPLY##*\[GOT }%%\]*}"
        zpty -d shell"#;
    let command = &mut Command::new("zsh");
    let command = command.args(["-f", "-c", script]).env("NAME", name).env("TYPED", typed);
    run(command.env("HOME", home.path()).env("TERM", "xterm")).trim().to_owned()
}

/// The man page as groff shows it; a complaint of groff's is a failure.
pub(crate) fn man(page: &str) -> String {
    run(Command::new("groff").args(["-man", "-Tascii", "-P-cbou", "-ww"]).arg(file(page).path()))
}

/// What a program prints; a complaint is a failure.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && output.stderr.is_empty(), "{command:?}: {output:?}");
    text
}
