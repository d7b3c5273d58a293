//! System calls that a seccomp profile forbids.
#![allow(unsafe_code, reason = "a filter is installed between fork and exec, by a raw system call")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::pod::{BUILT, Pod};

pub(crate) const ALLOW: u32 = 0x7fff_0000;
const EPERM: u32 = 0x0005_0001;
/// Loads the word of `struct seccomp_data` at the offset `k`.
pub(crate) const LOAD: u16 = 0x20;
/// Skips `jt` steps if the loaded word is `k`, `jf` steps if it is not.
pub(crate) const EQUAL: u16 = 0x15;
pub(crate) const RETURN: u16 = 0x06;
/// Offsets of the number of the system call and of its arguments.
pub(crate) const NUMBER: u32 = 0;
pub(crate) const FIRST: u32 = 16;
const SECOND: u32 = 24;
pub(crate) const THIRD: u32 = 32;

pub(crate) const fn step(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

pub(crate) fn number(call: libc::c_long) -> u32 {
    u32::try_from(call).unwrap()
}

/// The binary with a filter for its system calls.
pub(crate) fn filtered<const N: usize>(args: &[&str], filter: [libc::sock_filter; N]) -> Command {
    filtered_program(&BUILT, args, filter)
}

/// A program with a filter for its system calls, and for those of what it starts.
pub(crate) fn filtered_program<const N: usize>(
    program: &str,
    args: &[&str],
    mut filter: [libc::sock_filter; N],
) -> Command {
    let install = move || {
        let len = u16::try_from(N).unwrap_or(0);
        let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
        // SAFETY: the program and its filter live until the call returns.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let mut command = Command::new(program);
    // SAFETY: what runs in the child makes two system calls and allocates nothing.
    unsafe { command.args(args).pre_exec(install) };
    command
}

/// Runs the binary with a filter under which no netlink socket can be made.
fn without_netlink(args: &[&str]) -> Output {
    let filter = [
        step(LOAD, 0, 0, NUMBER),
        step(EQUAL, 0, 3, number(libc::SYS_socket)),
        step(LOAD, 0, 0, FIRST),
        step(EQUAL, 0, 1, u32::try_from(libc::AF_NETLINK).unwrap()),
        step(RETURN, 0, 0, EPERM),
        step(RETURN, 0, 0, ALLOW),
    ];
    filtered(args, filter).output().unwrap()
}

/// The binary with a filter under which the kernel has no netlink for netfilter: neither nf_tables nor the
/// locks and dumps that go by it.
fn without_nf_tables(args: &[&str]) -> Command {
    let absent = 0x0005_0000 | u32::try_from(libc::EPROTONOSUPPORT).unwrap();
    let filter = [
        step(LOAD, 0, 0, NUMBER),
        step(EQUAL, 0, 5, number(libc::SYS_socket)),
        step(LOAD, 0, 0, FIRST),
        step(EQUAL, 0, 3, u32::try_from(libc::AF_NETLINK).unwrap()),
        step(LOAD, 0, 0, THIRD),
        step(EQUAL, 0, 1, u32::try_from(libc::NETLINK_NETFILTER).unwrap()),
        step(RETURN, 0, 0, absent),
        step(RETURN, 0, 0, ALLOW),
    ];
    filtered(args, filter)
}

/// The binary with a filter under which no send buffer can be made larger than `net.core.wmem_default`: as in
/// a user namespace on a node that limits it to that.
fn with_default_send_buffer(args: &[&str]) -> Command {
    let word = |number: libc::c_int| u32::try_from(number).unwrap();
    let filter = [
        step(LOAD, 0, 0, NUMBER),
        step(EQUAL, 0, 6, number(libc::SYS_setsockopt)),
        step(LOAD, 0, 0, SECOND),
        step(EQUAL, 0, 4, word(libc::SOL_SOCKET)),
        step(LOAD, 0, 0, THIRD),
        step(EQUAL, 1, 0, word(libc::SO_SNDBUF)),
        step(EQUAL, 0, 1, word(libc::SO_SNDBUFFORCE)),
        step(RETURN, 0, 0, EPERM),
        step(RETURN, 0, 0, ALLOW),
    ];
    filtered(args, filter)
}

#[test]
fn forbidden_netlink_names_seccomp_and_not_the_capability() {
    // A dry run: it writes nothing wherever it is run.
    let output = without_netlink(&["-b", "80", "--dry-run"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(77), "{errors}");
    assert!(errors.contains("seccompProfile") && !errors.contains("capabilities.add"), "{errors}");
}

#[test]
fn the_network_of_another_user_namespace_is_named_as_a_cause() {
    let pod = Pod::new();
    let before = pod.state();
    pod.istio(&["-b", "80"])
        .under(&["unshare", "--user", "--map-root-user"])
        .end()
        .exits(77)
        .stderr_contains("another user namespace")
        .stderr_lacks("capabilities.add");
    assert_eq!(pod.state(), before);
}

#[test]
fn kernel_without_nf_tables_and_legacy_tables_is_exit_69_with_both_findings() {
    let pod = Pod::new();
    let before = pod.rules();
    let tool = "cat > /dev/null; echo \"iptables-restore: unable to initialize table 'nat'\" >&2; exit 2";
    pod.program("bin", "iptables-legacy-restore", tool);
    let namespace = format!("/proc/{}/ns/net", pod.pid());
    let both = "iptable_nat` (iptables-legacy), or `modprobe -a nf_tables` (iptables-nft)";
    for (choice, fix) in [
        ("auto", both),
        ("iptables", both),
        ("iptables-nft", "(`modprobe nf_tables`), or use --backend auto"),
        ("nftables", "(`modprobe nf_tables`), or use --backend auto"),
    ] {
        let args = ["--network-namespace", &namespace, "-b", "*", "--backend", choice];
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", pod.path("bin").display());
        let output = without_nf_tables(&args).env("PATH", path).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(69), "{errors}");
        assert!(errors.contains("found: the kernel has no nf_tables; ") && errors.contains(fix), "{errors}");
        let tried = choice == "auto" || choice == "iptables";
        assert_eq!(errors.contains("unable to initialize table 'nat'"), tried, "{errors}");
        assert_eq!(pod.rules(), before);
    }
}

/// A pod with native rules, whose lists are longer than a message may be.
struct LongLists {
    pod: Pod,
    namespace: String,
}

impl LongLists {
    /// Ranges in a list: more than one message with the usual send buffer may have, as the tests assert.
    const RANGES: usize = 10_000;

    fn new() -> Self {
        let pod = Pod::with("ip addr add 192.0.2.1/24 dev eth0; ip route add 10.0.0.0/8 dev eth0");
        let namespace = format!("/proc/{}/ns/net", pod.pid());
        for prefix in [25, 26] {
            let ranges: Vec<String> =
                (0..Self::RANGES).map(|i| format!("\"10.{}.{}.0/{prefix}\"", i / 256, i % 256)).collect();
            let document = format!("{{\"istio-service-exclude-cidr\":[{}]}}", ranges.join(","));
            std::fs::write(pod.path(&prefix.to_string()), document).unwrap();
        }
        Self { pod, namespace }
    }

    /// A run that excludes 10.X.Y.0/`prefix`.
    fn run(&self, prefix: u8) -> Command {
        let config = self.pod.path(&prefix.to_string());
        with_default_send_buffer(&[
            "--network-namespace",
            &self.namespace,
            "--backend",
            "nftables",
            "-b",
            "*",
            "-i",
            "*",
            "--config",
            config.to_str().unwrap(),
            "--verify",
            "--log_output_level",
            "debug",
        ])
    }

    /// The log of a run that succeeds, without its list of options.
    fn log(&self, prefix: u8) -> String {
        let output = self.run(prefix).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        let log: Vec<&str> = errors.lines().filter(|line| line.len() < 1000).collect();
        assert!(output.status.success(), "{}", log.join("\n"));
        log.join("\n")
    }

    /// Captured, a connection is refused: nothing listens there. Excluded, it finds no neighbour.
    fn captures(&self, host: &str) -> bool {
        let call = format!("bash -c 'echo > /dev/tcp/{host}/80' 2>&1 || :");
        let outcome = self.pod.sh(&call);
        let captured = outcome.contains("Connection refused");
        assert!(captured || outcome.contains("No route to host"), "{outcome}");
        captured
    }

    fn sets(&self) -> usize {
        self.pod.sh("nft --terse list sets").matches("set ").count()
    }
}

#[test]
fn lists_that_do_not_fit_the_send_buffer_are_loaded_ahead() {
    let lists = LongLists::new();
    let done = format!("done: {} IPv4", LongLists::RANGES + 15);
    for prefix in [25, 26, 25] {
        let log = lists.log(prefix);
        assert!(log.contains("the lists are loaded ahead, in ") && log.contains(&done), "{log}");
        assert_eq!(lists.sets(), 1);
        assert!(!lists.captures("10.3.4.5") && lists.captures("10.3.4.200"), "{log}");
        assert_eq!(lists.captures("10.3.4.100"), prefix == 26, "{log}");
        let log = lists.log(prefix);
        assert!(log.contains("already converged"), "{log}");
    }
}

#[test]
fn a_run_that_is_killed_while_it_loads_lists_is_completed_by_the_next_one() {
    let lists = LongLists::new();
    let begin = Instant::now();
    lists.log(25);
    let took = begin.elapsed();
    let (mut interrupted, rounds) = (0, 24);
    for round in 0..rounds {
        let (before, after) = if round % 2 == 0 { (25, 26) } else { (26, 25) };
        let mut run = lists.run(after).stderr(Stdio::null()).spawn().unwrap();
        if round % 4 < 2 {
            std::thread::sleep(took.mul_f64(f64::from(round) / f64::from(rounds)));
        } else {
            // The next list is there, and the rules use the previous one.
            while run.try_wait().unwrap().is_none() && lists.sets() < 2 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        run.kill().unwrap();
        run.wait().unwrap();
        interrupted += usize::from(lists.sets() == 2);
        assert!(lists.captures("10.3.4.200"), "{before} to {after}, round {round}");
        lists.log(after);
        assert_eq!(lists.sets(), 1, "{before} to {after}, round {round}");
        // Not captured, it takes seconds to find out.
        assert!(after == 25 || lists.captures("10.3.4.100"), "{before} to {after}, round {round}");
    }
    assert!(interrupted > 0, "no run was killed while it loaded a list");
}
