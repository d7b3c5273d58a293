//! `guard`: changes of the live rules are reported with the program that made them, and repaired.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use netlab::Namespace;
use nfnetlink::nftables::{Batch, Client, Family, Table, TableName};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use crate::foreign_preserved::EVERYTHING;
use crate::lab::fixture::at;
use crate::lab::program::{BUILT, tool};
use crate::lab::{Backend, Fixture, Pod, for_each_backend_and_native, for_these_fixtures};

for_each_backend_and_native!(
    rules_that_another_program_removes_are_repaired,
    rules_are_not_repaired_unless_that_is_asked_for,
    foreign_rules_that_decide_are_problems_and_others_are_not,
    what_changed_before_the_start_is_found,
    guard_ends_with_the_process_and_by_a_signal,
    nothing_to_guard_is_refused,
    rules_are_repaired_before_that_is_reported,
    a_repair_is_logged_as_drift_and_repaired,
);
for_these_fixtures!(only_nft: IptablesNft Dual; [every_table_flushed_by_a_script_is_repaired_at_once]);
for_these_fixtures!(only_native: Native Dual; [
    fights_are_paced,
    many_changes_of_others_hide_none_of_ours,
    rules_whose_notice_is_lost_are_repaired_before_the_audit,
]);

/// Transactions of which the guard's buffer holds fewer: it has 8 MiB, and each notice takes some 800 bytes.
const MORE_THAN_THE_BUFFER_HOLDS: usize = 30_000;
/// Longer than an event takes to come, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `guard` with `--output json`.
pub(crate) struct Guard {
    child: Child,
    events: Receiver<Value>,
}

impl Guard {
    pub(crate) fn start(pod: &Pod, args: &[&str]) -> Self {
        Self::start_in(&pod.namespace, pod.fixture.backend, &[], args)
    }

    /// Starts one in a namespace, by other programs, which start it.
    pub(crate) fn start_in(namespace: &Namespace, backend: Backend, by: &[&str], args: &[&str]) -> Self {
        let words = [by, &[BUILT.as_str()]].concat();
        let mut child = namespace.run(|| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).args(["guard", "--dual-stack", "--output", "json"]);
            command.args(["--backend", backend.flag()]).args(args);
            command.stdout(Stdio::piped()).spawn().expect("start istio-iptables")
        });
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let (sender, events) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let event = serde_json::from_str(&line).expect("an event");
                if sender.send(event).is_err() {
                    break;
                }
            }
        });
        let guard = Self { child, events };
        guard.next("guarding");
        guard
    }

    /// The next event, which is of this kind.
    pub(crate) fn next(&self, kind: &str) -> Value {
        let event = self.events.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{kind}: no event"));
        assert_eq!(event["event"], kind, "{event}");
        event
    }

    /// The next event of this kind, after any others.
    pub(crate) fn until(&self, kind: &str) -> Value {
        loop {
            let event = self.events.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{kind}: no event"));
            if event["event"] == kind {
                return event;
            }
        }
    }

    fn is_silent(&self) {
        let event = self.events.recv_timeout(Duration::from_secs(2));
        assert_eq!(event, Err(RecvTimeoutError::Timeout), "nothing is to be reported");
    }

    /// The next event.
    pub(crate) fn event(&self) -> Value {
        self.events.recv_timeout(PATIENCE).expect("an event")
    }

    /// Ends it without a chance to clean up.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("kill it");
        self.child.wait().expect("it ends");
    }

    /// Ends it by a signal, which it answers with exit code 0.
    pub(crate) fn end(mut self) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), Signal::SIGTERM).expect("send a signal");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // It has ended, but for a test that fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line of `check`.
pub(crate) fn checked(pod: &Pod) -> String {
    let output = pod.istio_iptables(&[&["check"], &EVERYTHING[..]].concat()).run().output();
    output
        .lines()
        .find(|line| line.starts_with("equal") || line.starts_with("different"))
        .unwrap_or_default()
        .to_owned()
}

pub(crate) fn is_captured(pod: &Pod) {
    for family in pod.fixture.families() {
        let outbound = at(family.service(), 80);
        pod.app().call(outbound).captured(15001, outbound);
    }
}

/// Commands that change the rules of a backend, with the name of the program that the kernel announces.
pub(crate) fn removals(backend: Backend) -> Vec<(&'static str, Vec<&'static str>)> {
    let of = |lines: &[&'static str]| {
        lines.iter().map(|line| (line.split(' ').next().unwrap(), line.split(' ').collect())).collect()
    };
    match backend {
        Backend::Native => of(&[
            "nft flush ruleset",
            "nft delete table inet istio-proxy-nat",
            "nft flush chain inet istio-proxy-nat istio-output",
            "nft insert rule inet istio-proxy-nat istio-output accept",
        ]),
        Backend::IptablesNft => of(&[
            "nft flush ruleset",
            "iptables-nft -t nat -F",
            "iptables-nft -t nat -D ISTIO_OUTPUT 1",
            "iptables-nft -t nat -I ISTIO_OUTPUT -j RETURN",
            "ip6tables-nft -t nat -F OUTPUT",
        ]),
        Backend::IptablesLegacy => of(&["iptables-legacy -t nat -F", "ip6tables-legacy -t nat -D OUTPUT 1"]),
    }
}

fn rules_that_another_program_removes_are_repaired(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&EVERYTHING);
    let guard = Guard::start(&pod, &["--action", "repair", "--audit", "1"]);
    for (program, command) in removals(fixture.backend) {
        pod.namespace.run(|| tool(program, &command[1..], ""));
        let drift = guard.until("drift");
        let by = drift["by"].as_array().expect("programs");
        if fixture.backend == Backend::IptablesLegacy {
            assert!(by.is_empty(), "nothing announces it: {drift}");
        } else {
            // The kernel cuts the name after 15 bytes.
            let is_named = |one: &Value| {
                let name = one["program"].as_str().unwrap();
                program.starts_with(name) || name.starts_with("xtables-nft") && one["pid"].as_u64() > Some(0)
            };
            assert!(by.iter().any(is_named), "{command:?}: {drift}");
        }
        // Three in a row are repaired at once; the next ones wait for a pause.
        guard.until("repaired");
        assert!(checked(&pod).starts_with("equal"), "{command:?}: {}", checked(&pod));
        is_captured(&pod);
    }
    guard.end();
    is_captured(&pod);
}

/// What a run tells about itself is not repeated at each repair.
fn a_repair_is_logged_as_drift_and_repaired(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let backend = fixture.backend;
    let mut child = pod.namespace.run(|| {
        let mut command = Command::new(&*BUILT);
        command.args([
            "guard",
            "--dual-stack",
            "--action",
            "repair",
            "--audit",
            "1",
            "--backend",
            backend.flag(),
        ]);
        command.stderr(Stdio::piped()).spawn().expect("start istio-iptables")
    });
    let mut lines = BufReader::new(child.stderr.take().expect("its log")).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("\tguard: ")), "it begins");
    let (program, command) = removals(backend).remove(0);
    pod.namespace.run(|| tool(program, &command[1..], ""));
    let mut repair = Vec::new();
    while !repair.last().is_some_and(|line: &String| line.contains("\trepaired: ")) {
        repair.push(lines.next().unwrap_or_else(|| panic!("the log ends: {repair:#?}")));
    }
    // Longer than until the next audit.
    std::thread::sleep(Duration::from_secs(3));
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGTERM).expect("send a signal");
    repair.extend(lines);
    child.wait().expect("it ends");
    let words: Vec<&str> = repair.iter().map(|line| line.split('\t').nth(2).unwrap_or(line)).collect();
    assert!(
        matches!(words[..], [drift, repaired, ends]
            if drift.starts_with("drift: ") && repaired.starts_with("repaired: ") && ends.starts_with("guard ends: ")),
        "{repair:#?}"
    );
}

fn rules_are_not_repaired_unless_that_is_asked_for(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let guard = Guard::start(&pod, &["--audit", "1"]);
    let (program, command) = removals(fixture.backend).remove(0);
    pod.namespace.run(|| tool(program, &command[1..], ""));
    let drift = guard.next("drift");
    assert!(!drift["differences"].as_array().unwrap().is_empty(), "{drift}");
    guard.is_silent();
    assert!(checked(&pod).starts_with("different"), "{}", checked(&pod));
    // A further change is reported, too.
    pod.apply(&EVERYTHING);
    guard.until("restored");
    for command in removals(fixture.backend).into_iter().rev().take(2) {
        pod.namespace.run(|| tool(command.0, &command.1[1..], ""));
        guard.until("drift");
    }
    pod.apply(&EVERYTHING);
    guard.until("restored");
    guard.is_silent();
    guard.end();
}

/// What an administrator's script does.
fn every_table_flushed_by_a_script_is_repaired_at_once(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&EVERYTHING);
    let guard = Guard::start(&pod, &["--action", "repair", "--audit", "3600"]);
    let script = "for t in nat raw mangle; do for i in iptables-nft ip6tables-nft; do $i -t $t -F; $i -t $t -X; done; done";
    pod.namespace.run(|| tool("sh", &["-c", script], ""));
    guard.until("repaired");
    let begin = std::time::Instant::now();
    while !checked(&pod).starts_with("equal") {
        assert!(begin.elapsed() < PATIENCE, "{}", checked(&pod));
    }
    is_captured(&pod);
    guard.end();
}

/// Nothing reads what it reports: it repairs all the same before it ends.
fn rules_are_repaired_before_that_is_reported(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let flag = fixture.backend.flag();
    let mut child = pod.namespace.run(|| {
        let mut command = Command::new(&*BUILT);
        command.args([
            "guard",
            "--dual-stack",
            "--output",
            "json",
            "--backend",
            flag,
            "--action",
            "repair",
            "--audit",
            "1",
        ]);
        command.stdout(Stdio::piped()).spawn().expect("start istio-iptables")
    });
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    lines.next().expect("a line").expect("text");
    drop(lines);
    let (program, command) = removals(fixture.backend).remove(0);
    pod.namespace.run(|| tool(program, &command[1..], ""));
    child.wait().expect("it ends");
    assert!(checked(&pod).starts_with("equal"), "{}", checked(&pod));
}

fn foreign_rules_that_decide_are_problems_and_others_are_not(fixture: Fixture) {
    let pod = fixture.pod();
    let options = [&EVERYTHING[..], &["-o", "9999"]].concat();
    pod.apply(&options);
    let guard = Guard::start(&pod, &[&options[..], &["--audit", "1"]].concat());
    let nft = |commands: &str| pod.namespace.run(|| tool("nft", &["-f", "-"], commands));
    let table = |rule: &str| {
        format!(
            "table inet agent {{ chain out {{ type filter hook output priority -310; oifname != lo {rule}; }}; }}"
        )
    };
    nft(&table("tcp dport 9998 accept"));
    guard.is_silent();
    nft(&format!("delete table inet agent\n{}", table("tcp dport 9998 drop")));
    let problem = guard.next("problem");
    assert_eq!(problem["id"], "traffic-lost", "{problem}");
    assert!(problem["cause"].as_str().unwrap().contains("inet agent out decides"), "{problem}");
    assert_eq!(problem["by"][0]["program"], "nft", "{problem}");
    nft("delete table inet agent");
    guard.until("problem-gone");
    guard.end();
    assert!(checked_with(&pod, &options).starts_with("equal"));
}

fn checked_with(pod: &Pod, options: &[&str]) -> String {
    pod.istio_iptables(&[&["check"], options].concat()).run().output()
}

fn what_changed_before_the_start_is_found(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&EVERYTHING);
    let (program, command) = removals(fixture.backend).remove(0);
    pod.namespace.run(|| tool(program, &command[1..], ""));
    let guard = Guard::start(&pod, &[&EVERYTHING[..], &["--action", "repair"]].concat());
    assert_eq!(guard.next("drift")["by"], serde_json::json!([]));
    guard.next("repaired");
    is_captured(&pod);
    guard.end();
}

fn guard_ends_with_the_process_and_by_a_signal(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let mut process =
        pod.namespace.run(|| Command::new("sleep").arg("1000").spawn().expect("start a process"));
    let pid = process.id().to_string();
    let mut guard = Guard::start(&pod, &["--pid", &pid]);
    guard.is_silent();
    process.kill().expect("end the process");
    process.wait().expect("it ends");
    assert_eq!(guard.child.wait().expect("it ends").code(), Some(0));
    let guard = Guard::start(&pod, &[]);
    guard.is_silent();
    guard.end();
    assert!(checked(&pod).starts_with("equal"));
}

fn nothing_to_guard_is_refused(fixture: Fixture) {
    let pod = fixture.pod();
    pod.istio_iptables(&["guard"]).run().ended_with(64).output_contains("no capture rule is live");
    let refused = |args: &[&str], part: &str| {
        drop(pod.istio_iptables(&[&["guard"], args].concat()).run().ended_with(64).output_contains(part));
    };
    refused(&["--action", "mend"], "report, repair or lockdown");
    refused(&["--audit", "0"], "a number of seconds from 1 to 86400");
    refused(&["--audit", "soon"], "--audit: \"soon\"");
    refused(&["--pid", "4194304"], "--pid");
}

/// Repairs against a program that keeps changing the same rules have growing pauses between them.
fn fights_are_paced(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let guard = Guard::start(&pod, &["--action", "repair"]);
    // Three repairs follow at once, and more if this machine is slower than the first pauses.
    let waiting = (0..10).find_map(|_| {
        pod.namespace.run(|| tool("nft", &["delete", "table", "inet", "istio-proxy-nat"], ""));
        guard.next("drift");
        let event = guard.events.recv_timeout(PATIENCE).expect("an event");
        (event["event"] == "waiting").then_some(event)
    });
    let waiting = waiting.expect("a pause");
    assert!(waiting["seconds"].as_u64() >= Some(1), "{waiting}");
    assert_eq!(waiting["by"][0]["program"], "nft", "{waiting}");
    guard.next("repaired");
    assert!(checked(&pod).starts_with("equal"));
    guard.end();
}

fn many_changes_of_others_hide_none_of_ours(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let guard = Guard::start(&pod, &["--action", "repair"]);
    let one =
        "add table inet busy\nadd chain inet busy c\nadd rule inet busy c counter\ndelete table inet busy\n";
    let busy = one.repeat(200);
    for _ in 0..10 {
        pod.namespace.run(|| tool("nft", &["-f", "-"], &busy));
        pod.namespace.run(|| tool("nft", &["add", "table", "inet", "quiet"], ""));
    }
    guard.is_silent();
    pod.namespace.run(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| (0..5).for_each(|_| drop(tool("nft", &["-f", "-"], &busy))));
            tool("nft", &["delete", "table", "inet", "istio-proxy-nat"], "");
        });
    });
    guard.next("drift");
    guard.next("repaired");
    assert!(checked(&pod).starts_with("equal"));
    guard.end();
}

/// A guard that gets no processor for a while: the kernel drops notices once their buffer is full.
fn rules_whose_notice_is_lost_are_repaired_before_the_audit(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let guard = Guard::start(&pod, &["--action", "repair", "--audit", "3600"]);
    let pid = Pid::from_raw(guard.child.id().try_into().unwrap());
    kill(pid, Signal::SIGSTOP).expect("pause it");
    // It stops some time after the signal.
    waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("it stops");
    pod.namespace.run(|| {
        let mut client = Client::open().expect("nf_tables");
        let table = Table::new(TableName::new(Family::Inet, "busy"));
        for _ in 0..MORE_THAN_THE_BUFFER_HOLDS {
            let mut batch = Batch::new();
            batch.replace_table(&table);
            client.commit(&batch).expect("a table");
        }
        tool("nft", &["delete", "table", "inet", "istio-proxy-nat"], "");
    });
    kill(pid, Signal::SIGCONT).expect("continue it");
    guard.next("drift");
    guard.next("repaired");
    assert!(checked(&pod).starts_with("equal"));
    guard.is_silent();
    guard.end();
}
