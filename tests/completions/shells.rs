//! Shells that complete a line. Each loads the script as a user's shell does.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "runs shells, and fails by panicking"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

/// The words that bash offers for the last of `words`, as it separates them: `=` is one of its own.
pub(crate) fn bash(program: &Path, words: &[&str]) -> Vec<String> {
    let name = program.file_name().unwrap().to_str().unwrap();
    let script = r#"
        . <("$PROGRAM" completions bash)
        [[ $(complete -p "$NAME") == *" -F "* ]] || exit 9
        COMP_WORDS=("$NAME" "$@") COMP_CWORD=$#
        _${NAME//-/_}; printf '%s\n' "${COMPREPLY[@]}""#;
    let arguments = ["--norc", "-c", script, "bash"];
    let printed =
        run(Command::new("bash").args(arguments).args(words).env("PROGRAM", program).env("NAME", name));
    printed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The words that fish offers behind `line`.
pub(crate) fn fish(program: &Path, line: &str) -> Vec<String> {
    let script = r#"$PROGRAM completions fish | source; complete -C "$LINE""#;
    let home = tempfile::tempdir().unwrap();
    let command = &mut Command::new("fish");
    let command = command.args(["--no-config", "-c", script]).env("PROGRAM", program).env("LINE", line);
    let printed = run(command.env("HOME", home.path()));
    printed.lines().filter_map(|line| line.split('\t').next()).map(str::to_owned).collect()
}

/// The arguments that a command gets when `typed` is typed into an interactive zsh; a tab completes.
pub(crate) fn zsh(program: &Path, typed: &str) -> String {
    let name = program.file_name().unwrap().to_str().unwrap();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("completion"), run(Command::new(program).args(["completions", "zsh"])))
        .unwrap();
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
pub(crate) fn man(program: &Path) -> String {
    let page = run(Command::new(program).arg("man"));
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), page).unwrap();
    run(Command::new("groff").args(["-man", "-Tascii", "-P-cbou", "-ww"]).arg(file.path()))
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && output.stderr.is_empty(), "{command:?}: {output:?}");
    text
}
