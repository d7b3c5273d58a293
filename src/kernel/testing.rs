//! For tests that need a kernel: a namespace of their own, and commands within it.

use std::io::Write;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};

/// Runs `test` in a thread with a fresh network namespace whose `lo` is up; the caller stays where it is.
pub(crate) fn in_new_namespace<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    let outcome = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET)
                .expect("this test makes a network namespace, which takes root (CAP_SYS_ADMIN)");
            run("ip", &["link", "set", "lo", "up"]);
            test()
        });
        thread.join()
    });
    outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A command that is started in this thread's namespaces.
#[allow(
    clippy::disallowed_methods,
    reason = "the process seam is for what the program does, not for its tests"
)]
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// The output of `program`; it has to succeed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    run_with_input(program, arguments, "")
}

/// The output of `program` with `input` on standard input; it has to succeed.
pub(crate) fn run_with_input(program: &str, arguments: &[&str], input: &str) -> String {
    let mut child = command(program, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs the program {program}: {error}"));
    // A program that ends early reports why on its standard error, which is shown below.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
