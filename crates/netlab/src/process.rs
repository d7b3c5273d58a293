//! Programs that a test needs, run in the calling thread's namespaces.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

/// A program with arguments, yet to be started.
#[must_use]
pub fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// The program under test: the one that the environment variable names, for instance as it is shipped, or the
/// one that cargo has built for the tests.
#[must_use]
pub fn under_test(variable: &str, built: &str) -> String {
    let Some(named) = env::var_os(variable) else { return built.to_owned() };
    let path = PathBuf::from(&named);
    assert!(
        path.is_absolute() && path.is_file(),
        "{variable}={}: expected the path of a program, from /",
        path.display()
    );
    named.into_string().expect("UTF-8")
}

/// Where a program is.
#[must_use]
pub fn find(program: &str) -> PathBuf {
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("this test needs the program {program}, which is not in PATH"))
}

/// The output of a program; it has to succeed.
#[track_caller]
pub fn run(program: &str, arguments: &[&str]) -> String {
    run_with_input(program, arguments, "")
}

/// The output of a program with `input` on standard input; it has to succeed.
#[track_caller]
pub fn run_with_input(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = command(program, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs the program {program}: {error}"));
    let mut stdin = child.stdin.take().expect("it is a pipe");
    let output = thread::scope(|scope| {
        scope.spawn(move || {
            // A program that ends early reports why on its standard error, which is shown below.
            let _ = stdin.write_all(input.as_bytes());
        });
        child.wait_with_output().expect("wait for a child")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {}: {}: {errors}\ninput:\n{input}",
        arguments.join(" "),
        output.status
    );
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}
