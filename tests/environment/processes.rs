//! `explain --live` where processes of the proxy's user cannot be examined, or not be listed.

use std::process::Command;

use crate::pod::{Pod, SIDECAR};

/// What a container without further privileges has.
const ONLY_NET_ADMIN: [&str; 3] = ["setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all"];

/// A process of uid 1337 in the pod; ended when this is dropped.
struct Exempt(String);

impl Exempt {
    fn start(pod: &Pod) -> Self {
        let pid = pod
            .sh("setpriv --reuid=1337 --regid=1337 --clear-groups sleep 1000 >/dev/null 2>&1 & pid=$!; \
             until [ \"$(cat /proc/$pid/comm)\" = sleep ]; do :; done; echo $pid");
        Self(pid.trim().to_owned())
    }
}

impl Drop for Exempt {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", &self.0]).status();
    }
}

#[test]
fn processes_that_cannot_be_examined_are_named() {
    let pod = Pod::new();
    pod.istio(&SIDECAR).end().exits(0);
    let exempt = Exempt::start(&pod);
    let note = format!(
        "note: process {} (sleep) runs as uid 1337, gid 1337: whether in this network namespace cannot be read without CAP_SYS_PTRACE \
         in its user namespace",
        exempt.0
    );
    let line = format!("  {} sleep, uid 1337, gid 1337", exempt.0);
    let ended = pod.istio(&["explain", "--live"]).under(&ONLY_NET_ADMIN).end().exits(0);
    assert!(ended.stdout.contains(&note) && !ended.stdout.contains(&line), "{ended}");
    let ended = pod.istio(&["explain", "--live"]).end().exits(0);
    assert!(!ended.stdout.contains(&note) && ended.stdout.contains(&line), "{ended}");
}

#[test]
fn processes_that_cannot_be_listed_are_a_note() {
    let pod = Pod::new();
    pod.istio(&SIDECAR).end().exits(0);
    pod.sh("mount -t tmpfs hidden /proc");
    let ended = pod.istio(&["explain", "--live"]).end().exits(0);
    assert!(ended.stdout.contains("note: the processes cannot be listed: /proc is not mounted"), "{ended}");
}
