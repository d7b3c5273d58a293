//! A kernel that has no more of netlink and of system calls than gVisor's, with Linux's legacy tables.
//! `make gvisor` runs the rest in gVisor itself.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::pod::{BUILT, Pod};
use crate::seccomp::{ALLOW, EQUAL, FIRST, LOAD, NUMBER, RETURN, THIRD, filtered_program, number, step};

/// Longer than an audit takes to come, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The pod's options for every run.
const CAPTURE: [&str; 9] = ["-b", "*", "-i", "*", "-d", "15090,15021,15020", "-u", "1337", "--dual-stack"];

/// The binary in such a sandbox: netlink has neither netfilter nor sockets, and there are no ids of the file
/// system.
fn sandboxed(args: &[&str]) -> Command {
    sandboxed_program(&BUILT, args)
}

/// A program, and those that it starts, in such a sandbox.
fn sandboxed_program(program: &str, args: &[&str]) -> Command {
    let error = |errno: i32| 0x0005_0000 | u32::try_from(errno).unwrap();
    let word = |number: i32| u32::try_from(number).unwrap();
    let filter = [
        step(LOAD, 0, 0, NUMBER),
        step(EQUAL, 9, 0, number(libc::SYS_setfsuid)),
        step(EQUAL, 8, 0, number(libc::SYS_setfsgid)),
        step(EQUAL, 0, 5, number(libc::SYS_socket)),
        step(LOAD, 0, 0, FIRST),
        step(EQUAL, 0, 3, word(libc::AF_NETLINK)),
        step(LOAD, 0, 0, THIRD),
        step(EQUAL, 2, 0, word(libc::NETLINK_NETFILTER)),
        step(EQUAL, 1, 0, word(libc::NETLINK_SOCK_DIAG)),
        step(RETURN, 0, 0, ALLOW),
        step(RETURN, 0, 0, error(libc::EPROTONOSUPPORT)),
        step(RETURN, 0, 0, error(libc::ENOSYS)),
    ];
    filtered_program(program, args, filter)
}

/// A run in the pod, whose rules are read by the tools.
fn run(pod: &Pod, args: &[&str]) -> (Option<i32>, String) {
    run_with(pod, args, |_| {})
}

fn run_with(pod: &Pod, args: &[&str], change: impl FnOnce(&mut Command)) -> (Option<i32>, String) {
    let namespace = format!("/proc/{}/ns/net", pod.pid());
    let query = args.first().is_some_and(|first| !first.starts_with('-'));
    let (words, options) = args.split_at(usize::from(query));
    let args = [words, &["--network-namespace", &namespace], options].concat();
    let mut command = sandboxed(&args);
    change(&mut command);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = [stderr, stdout].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (status.code(), text)
}

/// The rules and the addresses, without what a tool that only looked has left.
fn state(pod: &Pod) -> String {
    let rules = pod.sh(
        "for t in nat mangle raw; do iptables-legacy -t $t -S; ip6tables-legacy -t $t -S; done; ip -o address | grep -o 'inet.*/[0-9]*'",
    );
    rules.lines().filter(|line| !line.starts_with("-P ")).map(|line| format!("{line}\n")).collect()
}

/// A pod whose legacy tables are there, as in a sandbox.
fn pod() -> Pod {
    let pod = Pod::dual();
    state(&pod);
    pod
}

#[test]
fn first_run_beside_listeners_writes_final_rules_at_once_and_cleanup_removes_all() {
    let pod = pod();
    let before = state(&pod);
    let (code, done) = run(&pod, &CAPTURE);
    assert_eq!(code, Some(0), "{done}");
    let rules = state(&pod);
    let (code, log) = run(&pod, &["--cleanup-only"]);
    assert!(code == Some(0) && log.contains("done: no rules in place"), "{log}");
    assert_eq!(state(&pod), before);
    assert!(!log.contains("warn"), "{log}");
    // In a thread of its own, which stays in the pod.
    let namespace = fs::File::open(format!("/proc/{}/ns/net", pod.pid())).unwrap();
    let listener = std::thread::spawn(move || {
        nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        TcpListener::bind("[::]:8080").unwrap()
    });
    let listener = listener.join().unwrap();
    let (code, log) = run(&pod, &CAPTURE);
    assert!(code == Some(0) && !log.contains("warn"), "{log}");
    assert!(!log.contains("--syn") && !log.contains("conntrack"), "{log}");
    assert_eq!(log.matches("Writing following contents").count(), 2, "{log}");
    assert_eq!(state(&pod), rules);
    drop(listener);
    let (code, log) = run(&pod, &CAPTURE);
    assert!(code == Some(0) && log.contains("already converged, nothing written"), "{log}");
    let (code, log) = run(&pod, &[&["check"], &CAPTURE[..]].concat());
    assert_eq!(code, Some(0), "{log}");
    assert!(!pod.sh("ip link show lo").contains("alias"), "a sandbox takes none");
    run(&pod, &["--cleanup-only"]);
    assert_eq!(state(&pod), before);
}

#[test]
fn rules_are_those_of_any_other_kernel() {
    let (sandbox, linux) = (pod(), pod());
    for more in [&[][..], &["--redirect-dns", "--capture-all-dns"], &["-o", "22,23"]] {
        let options = [&CAPTURE[..], more].concat();
        let (code, log) = run(&sandbox, &options);
        assert_eq!(code, Some(0), "{log}");
        linux.istio(&[&options[..], &["--backend", "iptables-legacy"]].concat()).good();
        assert_eq!(state(&sandbox), state(&linux));
    }
}

#[test]
fn options_that_need_more_are_refused_before_anything_is_written() {
    let pod = pod();
    let before = state(&pod);
    for (more, code, words) in [
        (&["-m", "TPROXY"][..], 70, "has no TPROXY"),
        (&["--drop-invalid"], 70, "--drop-invalid"),
        (&["--backend", "nftables"], 69, "gVisor has iptables-legacy only"),
        (&["--backend", "iptables-nft"], 69, "gVisor has iptables-legacy only"),
    ] {
        let (exit, log) = run(&pod, &[&CAPTURE[..], more].concat());
        assert!(exit == Some(code) && log.contains(words), "{more:?}: {log}");
        assert_eq!(state(&pod), before, "{more:?}");
    }
    let nothing = pod.path("nothing");
    fs::create_dir(&nothing).unwrap();
    let (code, log) = run_with(&pod, &CAPTURE, |command| _ = command.env("PATH", &nothing));
    assert!(code == Some(69) && log.contains("put iptables-legacy into the image"), "{log}");
}

/// The tool of a kernel that refuses some rules: it takes them if `test` ends well, with the file as `$file`.
fn refusing(pod: &Pod, test: &str) -> String {
    for tool in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
        let (real, file) = (crate::pod::real(tool), pod.path("file"));
        let script = format!(
            "file={}.$$; cat > $file; if {test}; then exec {} \"$@\" < $file; fi; echo 'line 1 failed' >&2; exit 1",
            file.display(),
            real.display()
        );
        pod.program("bin", tool, &script);
    }
    format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", pod.path("bin").display())
}

#[test]
fn refused_rule_is_named_and_nothing_is_written() {
    let pod = pod();
    let before = state(&pod);
    let path = refusing(&pod, "! grep -q -e '! --dport' $file");
    let (code, log) = run_with(&pod, &CAPTURE, |command| _ = command.env("PATH", &path));
    let rule = "refuses the IPv4 rule `-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp ! --dport 15008 -m owner --uid-owner 1337 -j \
                ISTIO_IN_REDIRECT`";
    assert!(code == Some(70) && log.contains(rule), "{log}");
    assert!(!log.contains("Writing following contents"), "{log}");
    assert_eq!(state(&pod), before);
}

#[test]
fn number_of_rules_that_fit_is_named() {
    let pod = pod();
    let before = state(&pod);
    let path = refusing(&pod, "[ $(grep -c -e '^-[AI]' $file) -le 30 ]");
    let ranges: Vec<String> = (1..=40).map(|number| format!("10.{number}.0.0/24")).collect();
    let list = ranges.join(",");
    let options = [&CAPTURE[..], &["-x", &list]].concat();
    let (code, log) = run_with(&pod, &options, |command| _ = command.env("PATH", &path));
    assert!(code == Some(70) && log.contains("takes 30 of the ") && log.contains("32 KiB"), "{log}");
    assert_eq!(state(&pod), before);
}

/// The rules of IPv4 are written by then, and a sandbox has neither `--syn` nor conntrack states to exempt
/// open connections: with none of these the rule that keeps them would be first, for all packets.
#[test]
fn rules_of_ipv4_are_rolled_back_if_those_of_ipv6_are_refused() {
    for is_running in [false, true] {
        let pod = pod();
        let namespace = fs::File::open(format!("/proc/{}/ns/net", pod.pid())).unwrap();
        let listener = std::thread::spawn(move || {
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            is_running.then(|| TcpListener::bind("[::]:8080").unwrap())
        });
        let _listener = listener.join().unwrap();
        let before = state(&pod);
        let written = pod.path("written");
        for tool in ["iptables-legacy-restore", "ip6tables-legacy-restore"] {
            let real = crate::pod::real(tool);
            // What is tried out in a namespace of its own is accepted, as by a kernel that is short of memory
            // a moment later.
            let refuses = if tool.starts_with("ip6") { "grep -q -e ISTIO_OUTPUT $file" } else { "false" };
            let script = format!(
                "file={0}/file.$$; cat > $file; \
                 if [ $(readlink /proc/self/ns/net) = $(readlink /proc/{1}/ns/net) ]; then \
                 if {refuses}; then echo 'line 1 failed' >&2; exit 1; fi; cat $file >> {2}; fi; exec {3} \"$@\" < $file",
                pod.path("").display(),
                pod.pid(),
                written.display(),
                real.display()
            );
            pod.program("bin", tool, &script);
        }
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", pod.path("bin").display());
        let (code, log) = run_with(&pod, &CAPTURE, |command| _ = command.env("PATH", &path));
        assert_eq!(code, Some(70), "{log}");
        assert!(log.contains("rolled back: nothing of this run is left"), "{log}");
        assert_eq!(state(&pod), before, "{log}");
        let written = fs::read_to_string(&written).unwrap();
        assert!(written.contains("-A ISTIO_OUTPUT "), "IPv4 was written: {written}");
        assert!(!written.contains("--syn") && !written.contains("conntrack"), "{written}");
    }
}

#[test]
fn probe_has_the_uid_of_the_proxy_without_ids_of_the_file_system() {
    let pod = pod();
    let (code, log) = run(&pod, &[&CAPTURE[..], &["--run-validation", "--probe-timeout", "60s"]].concat());
    assert!(code == Some(0) && log.contains("validation passed: the probe was captured"), "{log}");
}

/// gVisor's owner match asks which ids the process has when it sends, not which it had when it made the
/// socket.
#[test]
fn probe_is_sent_with_the_uid_of_the_proxy() {
    let pod = pod();
    assert_eq!(run(&pod, &CAPTURE).0, Some(0));
    let namespace = format!("/proc/{}/ns/net", pod.pid());
    let validation = ["--network-namespace", &namespace, "--skip-rule-apply", "--run-validation"];
    let uids = uids_that_connect(&mut sandboxed(&[&CAPTURE[..], &validation].concat()));
    assert!(!uids.is_empty() && uids.iter().all(|uid| *uid == 1337), "{uids:?}");
}

/// The effective uids with which a run connects to addresses of the internet's families.
#[allow(unsafe_code, reason = "a run asks to be traced between fork and exec")]
fn uids_that_connect(command: &mut Command) -> Vec<u32> {
    // SAFETY: what runs in the child makes one system call.
    unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let pid = Pid::from_raw(run.id().try_into().unwrap());
    let (mut uids, mut signal) = (Vec::new(), None);
    waitpid(pid, None).unwrap();
    ptrace::setoptions(pid, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL).unwrap();
    let end = loop {
        ptrace::syscall(pid, signal.take()).unwrap();
        let status = waitpid(pid, None).unwrap();
        if matches!(status, WaitStatus::PtraceSyscall(_)) {
            uids.extend(connects(pid).then(|| effective_uid(pid)));
        } else if let WaitStatus::Stopped(_, sent) = status {
            signal = Some(sent);
        } else {
            break status;
        }
    };
    // Its end has been collected already.
    let _ = run.wait();
    assert_eq!(end, WaitStatus::Exited(pid, 0));
    uids
}

/// Whether it is at the beginning of a connection to such an address.
#[allow(unsafe_code, reason = "a member of a union")]
fn connects(pid: Pid) -> bool {
    let info = ptrace::syscall_info(pid).unwrap();
    // SAFETY: at the beginning of a system call this is the member of the union.
    info.op == libc::PTRACE_SYSCALL_INFO_ENTRY && {
        let call = unsafe { info.u.entry };
        call.nr == libc::SYS_connect.cast_unsigned() && call.args[2] >= size_of::<libc::sockaddr_in>() as u64
    }
}

fn effective_uid(pid: Pid) -> u32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    uids.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// As Istio's validation container behind its CNI plugin: the user of the proxy, without a capability.
#[test]
fn probe_of_the_proxys_own_user_needs_no_other_ids() {
    let pod = pod();
    let (code, log) = run(&pod, &CAPTURE);
    assert_eq!(code, Some(0), "{log}");
    let validate = |uid: &str| {
        let ids = [format!("--reuid={uid}"), format!("--regid={uid}")];
        let words = ["setpriv", &ids[0], &ids[1], "--clear-groups", "--bounding-set=-all"];
        let options = ["--run-validation", "--skip-rule-apply", "--probe-timeout", "20s"];
        let namespace = format!("--net=/proc/{}/ns/net", pod.pid());
        let all = [&[namespace.as_str()][..], &words, &[&BUILT], &CAPTURE, &options].concat();
        let Output { status, stderr, .. } = sandboxed_program("nsenter", &all).output().unwrap();
        (status.code(), String::from_utf8_lossy(&stderr).into_owned())
    };
    let (code, log) = validate("1337");
    assert!(code == Some(0) && log.contains("validation passed: the probe was captured"), "{log}");
    // Another user cannot become it.
    let (code, log) = validate("1000");
    assert!(code != Some(0) && !log.contains("validation passed"), "{log}");
}

#[test]
fn long_lists_of_ports_are_compact_and_read_back() {
    let pod = pod();
    let ports: Vec<String> = (20_000..20_100).map(|port: u32| port.to_string()).collect();
    let list = ports.join(",");
    let options = [&CAPTURE[..], &["-o", &list]].concat();
    let (code, log) = run(&pod, &options);
    assert_eq!(code, Some(0), "{log}");
    let rules = pod.sh("iptables-legacy -t nat -S ISTIO_OUTPUT");
    assert!(rules.lines().count() < 30 && rules.contains("-m multiport --dports 20000,"), "{rules}");
    let (code, log) = run(&pod, &[&["check"], &options[..]].concat());
    assert_eq!(code, Some(0), "{log}");
    // Without options, they are those of the rules.
    let (code, log) = run(&pod, &["check"]);
    assert!(code == Some(0) && log.contains("20001,") && log.contains("(100 entries)"), "{log}");
}

/// No netlink of netfilter, no lock: `guard` says so at its start, not at each audit.
#[test]
fn guard_says_once_that_runs_are_not_serialized() {
    let pod = pod();
    let (code, output) = run(&pod, &CAPTURE);
    assert_eq!(code, Some(0), "{output}");
    let (captured, pid) = (state(&pod), pod.pid().to_string());
    let options = ["guard", "--audit", "1", "--action", "repair", "--pid", &pid];
    let mut command = sandboxed(&[&options[..], &CAPTURE].concat());
    let mut guard = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..3 {
        pod.sh("iptables-legacy -t nat -D OUTPUT 1");
        let begin = Instant::now();
        while state(&pod) != captured {
            assert!(
                guard.try_wait().unwrap().is_none() && begin.elapsed() < PATIENCE,
                "no audit has repaired it"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    kill(Pid::from_raw(guard.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let output = String::from_utf8(guard.wait_with_output().unwrap().stderr).unwrap();
    assert_eq!(output.matches("concurrent runs are not serialized").count(), 1, "{output}");
}
