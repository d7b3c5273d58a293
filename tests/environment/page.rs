//! `explain -o html` where the program that writes pages is missing, beside, or in the search path.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

const BUNDLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pod.json");
const PROGRAM: &str = env!("CARGO_BIN_EXE_istio-iptables");
const REPORT_PROGRAM: &str = env!("CARGO_BIN_EXE_istio-iptables-report");

fn copied(program: &str, folder: &Path) -> std::path::PathBuf {
    let copy = folder.join(Path::new(program).file_name().unwrap());
    fs::copy(program, &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    copy
}

fn ask(program: &Path, path: &Path, options: &[&str]) -> Output {
    Command::new(program).args(options).env("PATH", path).output().unwrap()
}

fn is_page(output: &Output) -> bool {
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success() && text.starts_with("<!DOCTYPE html>\n") && text.ends_with("</html>\n")
}

#[test]
fn missing_report_program_is_one_error_that_names_it() {
    let (own, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = copied(PROGRAM, own.path());
    let question = ["explain", "--bundle", BUNDLE, "-o", "html"];
    let missing = ask(&program, other.path(), &question);
    let log = String::from_utf8_lossy(&missing.stderr);
    assert_eq!(missing.status.code(), Some(69), "{log}");
    assert!(missing.stdout.is_empty());
    assert!(
        log.contains("the program istio-iptables-report is neither beside this one nor in PATH"),
        "{log}"
    );
    assert!(log.contains("istio-iptables bundle > pod.json"), "{log}");

    let in_path = copied(REPORT_PROGRAM, other.path());
    assert!(is_page(&ask(&program, other.path(), &question)));
    fs::remove_file(in_path).unwrap();
    copied(REPORT_PROGRAM, own.path());
    assert!(is_page(&ask(&program, other.path(), &question)));
}

#[test]
fn report_program_takes_a_bundle_and_the_options_of_explain() {
    let folder = tempfile::tempdir().unwrap();
    let program = copied(REPORT_PROGRAM, folder.path());
    let same = ask(&program, folder.path(), &["explain", "--bundle", BUNDLE, "--output", "html"]);
    assert!(is_page(&same));
    for options in [
        &[BUNDLE][..],
        &["--wide", BUNDLE],
        &[BUNDLE, "--wide"],
        &["--log_output_level", "error", BUNDLE],
        &["-o", "html", BUNDLE],
    ] {
        assert_eq!(ask(&program, folder.path(), options).stdout, same.stdout, "{options:?}");
    }
    let help = ask(&program, folder.path(), &["--help"]);
    assert!(
        help.status.success()
            && String::from_utf8_lossy(&help.stdout).contains("istio-iptables-report --pid 4711")
    );
    for (options, code, part) in [
        (&["no-such-file.json"][..], 64, "no-such-file.json: cannot be read"),
        (&[BUNDLE, "--to", "10.0.0.1:80"], 64, "a page is about all traffic"),
        (&["explain", "--bundle", BUNDLE, "-o", "html", "--to", "10.0.0.1:80"], 64, "without --to"),
        (&[BUNDLE, "-o", "json"], 64, "expected html"),
        (&["check", "--bundle", BUNDLE], 64, "check: cannot be read"),
    ] {
        let refused = ask(&program, folder.path(), options);
        let log = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(code), "{options:?}: {log}");
        assert!(log.contains(part) && refused.stdout.is_empty(), "{options:?}: {log}");
    }
}

/// Rust opens `/dev/null` in the place of a closed standard output: the program that follows must not take it
/// for a file.
#[test]
fn page_for_closed_output_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let program = copied(PROGRAM, folder.path());
    copied(REPORT_PROGRAM, folder.path());
    let script = format!("'{}' explain --bundle '{BUNDLE}' -o html >&-", program.display());
    let closed = Command::new("sh").args(["-c", &script]).output().unwrap();
    let log = String::from_utf8_lossy(&closed.stderr);
    assert_eq!(closed.status.code(), Some(73), "{log}");
    assert!(log.contains("cannot write to standard output"), "{log}");
}
