//! Another program that changes rules in the pod after ADD has written them, and before it reads them back.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};

use netlab::process::{command, find, run};
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::common::{INJECTED, PluginOutput, Pod, call, plugin};
use crate::runtime::Node;

const CHAIN: [&str; 3] = ["inet", "istio-proxy-nat", "istio-output"];

/// The input of ADD, and its variables.
fn add(node: &Node, pod: &Pod) -> (String, [(&'static str, String); 5]) {
    let mut input = node.configuration();
    input["prevResult"] = json!({"cniVersion": "1.1.0"});
    input["runtimeConfig"] = json!({"io.kubernetes.cri.pod-annotations": pod.annotations});
    let variables = [
        ("CNI_COMMAND", "ADD".to_owned()),
        ("CNI_CONTAINERID", pod.container.clone()),
        ("CNI_NETNS", pod.netns.path()),
        ("CNI_IFNAME", "eth0".to_owned()),
        ("CNI_ARGS", pod.args.clone()),
    ];
    (input.to_string(), variables)
}

#[track_caller]
fn expect_difference(node: &Node, pod: &Pod, chain: &str, output: &PluginOutput) {
    let message = output.error(102);
    assert!(message.contains("do not match the options"), "{message}");
    let lines = output.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let errors: Vec<Value> = lines.filter(|line| line["level"] == "error").collect();
    let [error] = errors.as_slice() else { panic!("{errors:?}") };
    assert!(error["details"].as_str().is_some_and(|details| details.contains(chain)), "{error}");
    assert!(node.state().is_empty(), "the pod does not count as captured");
    let rules = pod.netns.run(|| run("nft", &["list", "ruleset"]) + &run("iptables-legacy-save", &[]));
    assert!(rules.contains("15006"), "until the sandbox is deleted nothing bypasses the proxy: {rules}");
}

/// In the place of the tool that writes rules: it writes them, and one more.
#[test]
fn rules_of_iptables_that_another_program_changes_are_an_error() {
    for tool in ["iptables-nft", "iptables-legacy"] {
        let node = Node::new(tool);
        let pod = Pod::new("changed", &[INJECTED]);
        let restore = format!("{tool}-restore");
        let script = format!(
            "#!/bin/sh\n{} \"$@\" || exit $?\nexec {} -w -t nat -I ISTIO_OUTPUT -j RETURN\n",
            find(&restore).display(),
            find(tool).display()
        );
        let tools = node.folder.path().join("tools");
        fs::create_dir(&tools).unwrap();
        fs::write(tools.join(&restore), script).unwrap();
        fs::set_permissions(tools.join(&restore), fs::Permissions::from_mode(0o755)).unwrap();
        let (input, variables) = add(&node, &pod);
        let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
        let mut variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        variables.push(("PATH", &path));
        let output = node.namespace.run(|| call(plugin(), &variables, input.as_bytes()));
        expect_difference(&node, &pod, "ISTIO_OUTPUT", &output);
    }
}

/// Stopped behind the system call that has written the rules.
#[test]
fn rules_of_native_nftables_that_another_program_changes_are_an_error() {
    let node = Node::new("nftables");
    let pod = Pod::new("changed", &[INJECTED]);
    let (input, variables) = add(&node, &pod);
    let change = || {
        pod.netns.run(|| {
            let written = command("nft", &[&["list", "chain"], &CHAIN[..]].concat()).output().unwrap();
            if written.status.success() {
                run("nft", &[&["insert", "rule"], &CHAIN[..], &["return"]].concat());
            }
            written.status.success()
        })
    };
    let output = node.namespace.run(|| {
        let mut command = Command::new(plugin());
        command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path))).envs(variables);
        stopped_after_each_message(&mut command, input.as_bytes(), change)
    });
    expect_difference(&node, &pod, CHAIN[2], &output);
}

/// Runs the plugin, stopped after each system call that sends a message, until `done`.
fn stopped_after_each_message(
    command: &mut Command,
    input: &[u8],
    mut done: impl FnMut() -> bool,
) -> PluginOutput {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let main = Pid::from_raw(child.id().cast_signed());
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACECLONE;
    // It waits for its input, so that it has one thread.
    ptrace::seize(main, options).expect("trace the plugin");
    ptrace::interrupt(main).expect("stop the plugin");
    child.stdin.take().unwrap().write_all(input).unwrap();
    let (mut is_done, mut success) = (false, None);
    while success.is_none() {
        // Of this thread alone: other tests have processes, too.
        let event =
            waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)).expect("wait for the plugin");
        let (thread, signal) = match event {
            WaitStatus::Exited(pid, code) => {
                success = (pid == main).then_some(code == 0);
                continue;
            }
            WaitStatus::PtraceSyscall(thread) => {
                if !is_done && has_sent(thread) {
                    is_done = done();
                }
                (thread, None)
            }
            WaitStatus::Stopped(thread, signal) => (thread, Some(signal)),
            WaitStatus::PtraceEvent(thread, ..) => (thread, None),
            WaitStatus::Signaled(..) | WaitStatus::Continued(_) | WaitStatus::StillAlive => {
                panic!("{event:?}")
            }
        };
        // A thread that has ended meanwhile is reported next.
        let _ = if is_done { ptrace::cont(thread, signal) } else { ptrace::syscall(thread, signal) };
    }
    assert!(is_done, "the plugin wrote no rules");
    let text = |stream: &mut dyn std::io::Read| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    };
    let (stdout, stderr) = (text(&mut child.stdout.take().unwrap()), text(&mut child.stderr.take().unwrap()));
    // Its end has been collected already.
    let _ = child.wait();
    PluginOutput { success: success == Some(true), stdout, stderr }
}

/// Whether the thread stands at the beginning or the end of a call that sends a message.
fn has_sent(thread: Pid) -> bool {
    let call = fs::read_to_string(format!("/proc/{thread}/syscall")).unwrap_or_default();
    let number = call.split(' ').next().and_then(|word| word.parse::<libc::c_long>().ok());
    matches!(number, Some(libc::SYS_sendto | libc::SYS_sendmsg))
}
