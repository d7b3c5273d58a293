//! Concurrent runs, and other processes that hold a lock.

use std::path::Path;
use std::time::{Duration, Instant};

use istio_iptables::kernel::run_lock;

use crate::pod::{Pod, SIDECAR, real};
use crate::run::Started;

const LEGACY: [&str; 2] = ["--force-iptables-binary", "legacy"];

/// Holds a lock inside the pod from another process; returns when it is held.
fn held(pod: &Pod, file: &str, seconds: &str) {
    pod.sh(&format!(
        "flock {file} sh -c 'echo > $DIR/held; exec sleep {seconds}' >/dev/null 2>&1 </dev/null & \
         while [ ! -e $DIR/held ]; do sleep 0.01; done"
    ));
}

/// A run that is at work, and holds the lock, until the file `go` is there.
fn run_at_work(pod: &Pod) -> Started {
    let tool = real("iptables-nft-restore");
    let (started, go) = (pod.path("started"), pod.path("go"));
    pod.program(
        "slow",
        "iptables-nft-restore",
        &format!(
            "touch {}; while [ ! -e {} ]; do sleep 0.02; done; exec {} \"$@\"",
            started.display(),
            go.display(),
            tool.display()
        ),
    );
    let usual = ["/usr/sbin", "/usr/bin", "/bin"].map(Path::new);
    let run = pod.istio(&SIDECAR).search(&[&[pod.path("slow").as_path()], &usual[..]].concat()).start();
    while !started.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    run
}

#[test]
fn a_run_waits_for_the_xtables_lock() {
    let pod = Pod::new();
    pod.sh(
        "flock /run/xtables.lock sh -c 'echo > $DIR/held; while [ ! -e $DIR/release ]; do sleep 0.01; done' \
            >/dev/null 2>&1 </dev/null & while [ ! -e $DIR/held ]; do sleep 0.01; done",
    );
    let inode = pod.sh("stat -c %i /run/xtables.lock");
    let mut run = pod.istio(&[&SIDECAR[..], &LEGACY].concat()).start();
    // A process that waits is listed behind the one that holds the lock.
    let waits = || {
        let locks = pod.sh("cat /proc/locks");
        locks.lines().any(|lock| lock.contains("-> FLOCK") && lock.contains(&format!(":{} ", inode.trim())))
    };
    while !waits() {
        assert!(!run.has_ended(), "the lock was not respected");
        std::thread::sleep(Duration::from_millis(5));
    }
    std::fs::write(pod.path("release"), "").unwrap();
    run.end().exits(0);
    assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"));
}

#[test]
fn locks_that_stay_busy_are_exit_75_and_are_named() {
    // Both at once, for each takes the whole waiting time.
    let (shared, own) = (Pod::new(), Pod::new());
    let before = (shared.rules(), own.state());
    held(&shared, "/run/xtables.lock", "45");
    let at_work = run_at_work(&own);
    let runs = (shared.istio(&[&SIDECAR[..], &LEGACY].concat()).start(), own.istio(&SIDECAR).start());
    runs.0.end().exits(75).stderr_contains("/run/xtables.lock").stderr_contains("fuser");
    runs.1.end().exits(75).stderr_contains("another run").stderr_contains("what to do: ");
    assert_eq!((shared.rules(), own.state()), before);
    own.sh("touch $DIR/go");
    at_work.end().exits(0);
}

#[test]
fn nft_ignores_the_xtables_lock() {
    let pod = Pod::new();
    held(&pod, "/run/xtables.lock", "20");
    let begin = Instant::now();
    pod.istio(&SIDECAR).good();
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn cni_mode_ignores_the_hosts_xtables_lock() {
    let pod = Pod::new();
    held(&pod, "/run/xtables.lock", "20");
    let begin = Instant::now();
    pod.istio(&[&SIDECAR[..], &LEGACY, &["--cni-mode"]].concat()).good();
    assert!(begin.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_run_waits_for_another_run_in_the_same_namespace() {
    let pod = Pod::new();
    let at_work = run_at_work(&pod);
    let mut waiting = pod.istio(&SIDECAR).start();
    std::thread::sleep(Duration::from_millis(500));
    assert!(!waiting.has_ended(), "the other run was not waited for");
    assert!(!pod.rules().contains("ISTIO"));
    pod.sh("touch $DIR/go");
    at_work.end().exits(0);
    waiting.end().exits(0).stderr_contains("already converged");
}

#[test]
fn runs_in_different_namespaces_do_not_wait_for_each_other() {
    let (pod, other) = (Pod::new(), Pod::new());
    let at_work = run_at_work(&pod);
    let begin = Instant::now();
    other.istio(&SIDECAR).good();
    assert!(begin.elapsed() < Duration::from_secs(15));
    pod.sh("touch $DIR/go");
    at_work.end().exits(0);
}

#[test]
fn unprivileged_process_cannot_block_a_run() {
    let pod = Pod::new();
    pod.sh("setpriv --reuid=1000 --regid=1000 --clear-groups flock -x /proc/self/ns/net sh -c 'echo > $DIR/held; exec sleep 60' \
            >/dev/null 2>&1 </dev/null & while [ ! -e $DIR/held ]; do sleep 0.01; done");
    for options in [&SIDECAR[..], &["cleanup"]] {
        let begin = Instant::now();
        pod.istio(options).good().stderr_lacks("not serialized");
        assert!(begin.elapsed() < Duration::from_secs(15), "{options:?}");
    }
}

/// Set in the process without the capability, which runs the same test again.
const WITHOUT_NET_ADMIN: &str = "TEST_WITHOUT_NET_ADMIN";

fn lock_is_refused() {
    let error = run_lock::lock(Duration::ZERO).unwrap_err();
    assert!(
        matches!(&error, run_lock::LockError::Failed(cause) if cause.raw_os_error() == Some(libc::EPERM)),
        "{error}"
    );
    println!("the lock is refused");
}

#[test]
fn lock_needs_net_admin() {
    if std::env::var_os(WITHOUT_NET_ADMIN).is_some() {
        return lock_is_refused();
    }
    let myself = std::env::current_exe().unwrap();
    // Free or held: who may not hold it is refused, and does not take the one for the other.
    for held in [false, true] {
        let pod = Pod::new();
        let at_work = held.then(|| run_at_work(&pod));
        let pid = pod.pid().to_string();
        let output = std::process::Command::new(real("nsenter"))
            .args(["--net", "--target", &pid, "setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"])
            .arg(&myself)
            .env(WITHOUT_NET_ADMIN, "1")
            .args(["contention::lock_needs_net_admin", "--exact", "--nocapture"])
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && printed.contains("the lock is refused"), "{output:?}");
        pod.sh("touch $DIR/go");
        if let Some(run) = at_work {
            run.end().exits(0);
        }
    }
}

#[test]
fn five_runs_started_at_once_end_well_with_one_set_of_rules() {
    for variant in ["nft", "legacy"] {
        let options =
            [&SIDECAR[..], &["--dual-stack", "-m", "TPROXY", "--force-iptables-binary", variant]].concat();
        let alone = Pod::dual();
        alone.istio(&options).good();
        let pod = Pod::dual();
        let runs: Vec<_> = (0..5).map(|_| pod.istio(&options).start()).collect();
        let ended: Vec<_> = runs.into_iter().map(|run| run.end().exits(0)).collect();
        let wrote = ended.iter().filter(|run| run.stderr.contains("\tdone:")).count();
        assert_eq!(wrote, 1, "{variant}: one run writes, the others find it done");
        assert_eq!(pod.rules(), alone.rules(), "{variant}");
    }
}

#[test]
fn two_runs_with_different_options_leave_the_rules_of_one_of_them() {
    let first = ["-b", "*", "-i", "*", "-o", "25"];
    let second = ["-b", "80,81", "-i", "10.0.0.0/8", "-m", "TPROXY"];
    let expected = [first.as_slice(), second.as_slice()].map(|options| {
        let pod = Pod::new();
        pod.istio(options).good();
        pod.rules()
    });
    let pod = Pod::new();
    for _ in 0..100 {
        let runs = [pod.istio(&first).start(), pod.istio(&second).start()];
        for run in runs {
            run.end().exits(0);
        }
        let rules = pod.rules();
        assert!(expected.contains(&rules), "neither of the two:\n{rules}");
    }
}

#[test]
fn constant_changes_of_foreign_rules_are_no_obstacle() {
    for variant in ["nft", "legacy"] {
        let options = [&SIDECAR[..], &["-m", "TPROXY", "--force-iptables-binary", variant]].concat();
        let fresh = Pod::new();
        fresh.istio(&options).good();
        let pod = Pod::new();
        pod.sh(&format!(
            "{{ while [ ! -e $DIR/stop ]; do iptables-{variant} -w -t nat -A POSTROUTING -s 10.7.7.7 -j ACCEPT; \
             iptables-{variant} -w -t mangle -A FORWARD -s 10.7.7.7 -j ACCEPT; \
             iptables-{variant} -w -t nat -D POSTROUTING 1; iptables-{variant} -w -t mangle -D FORWARD 1; \
             done; touch $DIR/stopped; }} >/dev/null 2>$DIR/complaints </dev/null &"
        ));
        for _ in 0..6 {
            pod.istio(&options).good();
            pod.istio(&["-b", "80", "--force-iptables-binary", variant]).good();
        }
        pod.istio(&options).good();
        pod.sh("touch $DIR/stop; while [ ! -e $DIR/stopped ]; do sleep 0.01; done");
        assert_eq!(pod.sh("cat $DIR/complaints"), "", "{variant}: the other one failed");
        assert_eq!(pod.rules(), fresh.rules(), "{variant}");
    }
}

#[test]
fn lock_file_that_is_a_pipe_does_not_block() {
    let pod = Pod::new();
    pod.sh("mkfifo /run/xtables.lock");
    pod.istio(&[&SIDECAR[..], &LEGACY].concat()).good();
    assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"));
    pod.istio(&["cleanup"]).good();
    assert!(!pod.rules().contains("ISTIO"));
}

#[test]
fn tool_that_hangs_is_killed_and_nothing_is_applied() {
    // At the same time: each takes the whole waiting time.
    let runs = ["nft", "legacy"].map(|variant| {
        let pod = Pod::new();
        let before = pod.rules();
        pod.program("slow", &format!("iptables-{variant}-restore"), "exec sleep 1000");
        let usual = ["/usr/sbin", "/usr/bin", "/bin"].map(Path::new);
        let options = [&SIDECAR[..], &["-m", "TPROXY", "--force-iptables-binary", variant]].concat();
        let run = pod.istio(&options).search(&[&[pod.path("slow").as_path()], &usual[..]].concat()).start();
        (pod, before, run)
    });
    for (pod, before, run) in runs {
        let ended = run.end().exits(75).stderr_contains("did not end within").stderr_contains("what to do: ");
        assert_eq!(pod.rules(), before, "{ended}");
    }
}
