//! The program as a process: exit codes, standard output.

use super::*;

#[test]
fn help_and_docs_list_the_same_exit_codes() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = Exit::help();
    assert!(
        expected.starts_with("Exit codes: 0 success; 1 negative") && expected.contains("; 73 "),
        "{expected}"
    );
    assert!(words(&run(&["--help"]).unwrap().text).contains(&expected));
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/injection.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let table: String =
        Exit::ALL.iter().map(|(exit, meaning)| format!("| {} | {meaning} |\n", *exit as u8)).collect();
    assert!(docs.contains(&table), "docs/injection.md: {table}");
}

#[test]
fn the_program_itself() {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let program = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidecar-injector"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut child = program().args(["inject", "-f", "-"]).spawn().unwrap();
    child.stdin.take().unwrap().write_all(DEPLOYMENT.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains("name: istio-proxy"));
    let folder = Folder::new();
    let file = folder.file("d.yaml", DEPLOYMENT);
    for (arguments, code) in [
        (&["inject", "-f", "/does/not/exist"][..], 66),
        (&["nonsense"], 64),
        (&["inject", "-f", "-"], 65),
        (&["inject", "-q", "-f", &file, "-o", "/does/not/exist"], 73),
        (&["--help"], 0),
        (&["config", "mesh"], 0),
    ] {
        let output = program().args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert_eq!(code == 0, output.stderr.is_empty(), "{arguments:?}");
    }
}

#[test]
fn standard_output_that_takes_nothing_is_an_error() {
    let folder = Folder::new();
    let file = folder.file("d.yaml", DEPLOYMENT);
    for (redirection, problem) in [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device")]
    {
        let script = format!("exec \"$0\" inject -q -f \"$1\" {redirection}");
        let mut shell = std::process::Command::new("sh");
        let output =
            shell.args(["-c", &script, env!("CARGO_BIN_EXE_sidecar-injector"), &file]).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(73), "{redirection}: {errors}");
        let last = errors.lines().last().unwrap();
        assert!(last.starts_with(&format!("error: standard output: {problem}")), "{redirection}: {errors}");
    }
}
