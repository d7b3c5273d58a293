//! `--ca-out`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::stat::Mode;

fn start(ca_out: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidecar-injector"));
    command.env_clear().args(["webhook", "--self-signed", "--service", "a", "--namespace", "b"]);
    command.args(["--https-addr", "127.0.0.1:0", "--monitoring-addr", "127.0.0.1:0", "--ca-out", ca_out]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn refused(ca_out: &Path, why: &str) {
    let ca_out = ca_out.to_str().unwrap();
    let output = start(ca_out).wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(73), "{stderr}");
    let expected = format!("error: --ca-out {ca_out}: cannot write the CA: {why}");
    assert!(stderr.contains(&expected), "{stderr}");
}

#[test]
fn a_file_that_cannot_be_written_exits_with_73() {
    let folder = tempfile::tempdir().unwrap();
    refused(&folder.path().join("nowhere/ca.crt"), "No such file");
    refused(folder.path(), "it is a directory");
    let fifo = folder.path().join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o600)).unwrap();
    refused(&fifo, "it is a FIFO without a reader");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&fifo, &link).unwrap();
    refused(&link, "it is a FIFO without a reader");
    assert!(link.is_symlink());
}

#[test]
fn the_ca_is_written_to_standard_output() {
    let mut child = start("/dev/stdout");
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let text: Vec<String> = lines.map(Result::unwrap).take_while(|line| !line.contains("-----END")).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(text.first().map(String::as_str), Some("-----BEGIN CERTIFICATE-----"), "{text:?}");
    assert!(text.len() > 5, "{text:?}");
}
