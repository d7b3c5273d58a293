//! Standard input: what is not a configuration, and what does not end.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use crate::common::{PluginOutput, call, plugin};
use crate::{GOOD, conf, run};

#[test]
fn input_that_is_not_a_configuration_is_refused() {
    for command in ["ADD", "CHECK", "GC", "STATUS"] {
        for input in ["", "x", "[]", "{", "null", "{\"a\":1}{"] {
            run(command, input).error(6);
        }
        let bytes =
            call(plugin(), &[&[("CNI_COMMAND", command)], &GOOD[..]].concat(), b"{\"name\":\"\xff\"}");
        bytes.error(6);
        // Go refuses more than 10,000 levels.
        for (depth, code) in [(1 << 20, 6), (10_000, 6), (9_999, 7)] {
            let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
            let source = format!("{{\"cniVersion\":\"1.1.0\",\"name\":\"x\",\"source\":{deep}}}");
            run(command, &source).error(code);
        }
        run(command, "{\"cniVersion\":\"1.1.0\",\"name\":\"x\",\"other\":1e999}").error(6);
    }
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(9 << 20));
    let problem = "standard input: larger than 8 MiB, expected a network configuration";
    assert_eq!(run("ADD", &large).error(6), problem);
}

/// The plugin, waiting for its input.
fn pending() -> std::process::Child {
    pending_command("ADD")
}

fn pending_command(command: &str) -> std::process::Child {
    Command::new(plugin())
        .env_clear()
        .envs([("CNI_COMMAND", command)].into_iter().chain(GOOD))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Until the process watches signals, and counts its time.
fn wait_until_watching(child: &std::process::Child) {
    /// SIGINT and SIGTERM, as bits; the caller of the tests may block others.
    const WATCHED: u64 = 0x4002;
    let status = format!("/proc/{}/status", child.id());
    let is_watching = |status: &str| {
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t"));
        let blocked = blocked.map(|mask| u64::from_str_radix(mask, 16).unwrap());
        blocked.is_some_and(|mask| mask & WATCHED == WATCHED)
    };
    while !is_watching(&std::fs::read_to_string(&status).unwrap()) {
        std::thread::yield_now();
    }
}

fn output_of(child: std::process::Child) -> PluginOutput {
    let output = child.wait_with_output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    PluginOutput { success: output.status.success(), stdout, stderr: String::new() }
}

#[test]
fn input_that_does_not_end_meets_the_deadline() {
    let mut child = pending();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"{\"cniVersion\":").unwrap();
    // wait_with_output would close it.
    let output = output_of(child);
    assert!(output.error(11).contains("not done after 30000 ms"), "{output:?}");
    drop(input);
}

#[test]
fn sigterm_is_reported_as_an_error() {
    let mut child = pending();
    let input = child.stdin.take();
    // Until the signals are watched, one would end the process at once.
    wait_until_watching(&child);
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child.id().cast_signed()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    let output = output_of(child);
    assert!(output.error(11).contains("SIGTERM"), "{output:?}");
    drop(input);
}

/// VERSION and DEL wait neither for the deadline of the others, nor at all longer than about a second.
#[test]
fn version_and_del_do_not_wait_for_input_that_does_not_end() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("c1.eth0.json"), "{}").unwrap();
    let conf = conf(&folder, &json!({"cniVersion": "0.4.0"})).to_string();
    for (command, wanted) in [("VERSION", "\"cniVersion\":\"0.4.0\""), ("DEL", "")] {
        let mut child = pending_command(command);
        let mut input = child.stdin.take().unwrap();
        input.write_all(conf.as_bytes()).unwrap();
        // The end is not before the output, however long that takes.
        let output = output_of(child);
        assert!(output.printed().contains(wanted), "{output:?}");
        drop(input);
    }
    assert!(!state.join("c1.eth0.json").exists(), "the configuration that came was used");
}

/// On a node with too much to do: the input is there before the process gets to look at it.
#[test]
fn del_of_a_process_that_is_stopped_for_long_uses_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("c1.eth0.json"), "{}").unwrap();
    let conf = conf(&folder, &json!({"cniVersion": "0.4.0"})).to_string();
    let mut child = pending_command("DEL");
    wait_until_watching(&child);
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(conf.as_bytes()).unwrap();
    drop(input);
    std::thread::sleep(std::time::Duration::from_secs(2));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    assert_eq!(output_of(child).printed(), "");
    assert!(!state.join("c1.eth0.json").exists(), "the configuration was used");
}
