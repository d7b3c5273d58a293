//! Network namespaces of threads, and programs in them.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, unshare};

/// Runs `test` in a fresh network namespace: of a thread, so that the others keep theirs, and gone with it.
pub(crate) fn in_namespace<T: Send>(test: impl FnOnce() -> T + Send) -> T {
    let inside = || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap_or_else(|error| {
            panic!("this test makes network namespaces and must run as root (CAP_SYS_ADMIN): {error}")
        });
        run("ip", &["link", "set", "lo", "up"], None);
        test()
    };
    thread::scope(|scope| scope.spawn(inside).join().expect("the reason is printed above"))
}

/// The output of a program that must succeed, with `input` on its standard input.
pub(crate) fn run_with_input(program: &str, args: &[&str], input: &str) -> String {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(input.as_bytes()).expect("the file can be written");
    run(program, args, Some(file.path()))
}

/// The output of a program that must succeed.
pub(crate) fn run(program: &str, args: &[&str], input: Option<&Path>) -> String {
    let stdin =
        input.map_or_else(Stdio::null, |path| fs::File::open(path).expect("the file can be opened").into());
    let output = Command::new(program)
        .args(args)
        .stdin(stdin)
        .output()
        .unwrap_or_else(|error| panic!("this test needs the program {program}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {}{}: {}\n{stderr}",
        args.join(" "),
        input.map(|path| format!(" < {}", path.display())).unwrap_or_default(),
        output.status
    );
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}
