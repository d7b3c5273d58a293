//! Runs from outside of the pod.

use std::process::Command;

use crate::pod::{BUILT, Ended, Pod, SIDECAR};

/// Runs the binary in another pod's namespaces (the "host"), for the pod at `path`.
fn from_outside(host: &Pod, path: &str, more: &[&str]) -> Ended {
    host.istio(&[&SIDECAR[..], &["--network-namespace", path], more].concat()).end()
}

#[test]
fn another_namespace_is_entered_by_process_and_by_name() {
    for variant in ["nft", "legacy"] {
        let forced = ["--force-iptables-binary", variant];
        let inside = Pod::new();
        inside.istio(&[&SIDECAR[..], &forced].concat()).good();
        let (host, pod) = (Pod::dual(), Pod::new());
        let before = host.state();
        let path = format!("/proc/{}/ns/net", pod.pid());
        from_outside(&host, &path, &forced).exits(0);
        assert_eq!(pod.rules(), inside.rules());
        assert_eq!(host.state(), before, "the host was changed");
        // The way `ip netns` and container runtimes keep one: a file with the namespace mounted on it.
        let named = host.sh(&format!("mkdir -p /run/netns; touch /run/netns/pod; mount --bind {path} /run/netns/pod; echo /run/netns/pod"));
        from_outside(&host, named.trim(), &forced).exits(0).stderr_contains("already converged");
        // The name alone, too, as `ip netns exec` takes it.
        from_outside(&host, "pod", &forced).exits(0).stderr_contains("already converged");
        from_outside(&host, "pad", &forced).exits(64).stderr_contains("network namespace pad: no such file");
        host.istio(&["cleanup", "--network-namespace", "pod"]).good();
        assert!(!pod.rules().contains("ISTIO"));
        assert_eq!(host.state(), before, "the host was changed");
    }
}

#[test]
fn a_namespace_that_cannot_be_entered_is_an_error_and_nothing_is_applied_here() {
    let host = Pod::new();
    let before = host.state();
    for path in ["/nope", "/proc/999999999/ns/net", "/proc/self/ns/net/x"] {
        from_outside(&host, path, &[]).exits(64).stderr_contains(path).stderr_contains("no such file");
    }
    for path in ["/etc/passwd", "/proc/self/ns/mnt", "/proc", "/dev/null"] {
        from_outside(&host, path, &[])
            .exits(64)
            .stderr_contains(path)
            .stderr_contains("is not a network namespace");
    }
    from_outside(&host, "/nope", &["--dry-run"]).exits(64);
    assert_eq!(host.state(), before);
}

/// `--pid` of a pod with hostNetwork.
#[test]
fn own_namespace_by_its_path_is_refused_and_nothing_is_applied() {
    let host = Pod::new();
    let before = host.state();
    let path = format!("/proc/{}/ns/net", host.pid());
    for more in [&[][..], &["--dry-run"]] {
        from_outside(&host, &path, more)
            .exits(64)
            .stderr_contains(&path)
            .stderr_contains("is the network namespace of this process")
            .stderr_contains("hostNetwork");
    }
    assert_eq!(host.state(), before);
    // Reading and removing are possible.
    from_outside(&host, &path, &["--cleanup-only"]).exits(0);
    host.istio(&["check", "--network-namespace", &path]).end().exits(1);
    host.istio(&SIDECAR).good();
}

#[test]
fn a_namespace_that_is_a_pipe_does_not_hang() {
    let host = Pod::new();
    host.sh("mkfifo $DIR/pipe");
    from_outside(&host, host.path("pipe").to_str().unwrap(), &[])
        .exits(64)
        .stderr_contains("is not a network namespace");
}

#[test]
fn entering_without_the_right_to_is_exit_77() {
    let (host, pod) = (Pod::new(), Pod::new());
    let path = format!("/proc/{}/ns/net", pod.pid());
    host.istio(&[&SIDECAR[..], &["--network-namespace", &path]].concat())
        .under(&["setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all"])
        .end()
        .exits(77)
        .stderr_contains(&path);
    assert!(!pod.rules().contains("ISTIO") && !host.rules().contains("ISTIO"));
}

#[test]
fn in_cni_mode_a_read_only_host_is_enough_and_stays_as_it_is() {
    let read_only = "for d in /run /tmp /var/tmp /dev/shm; do mount -t tmpfs -o ro none $d; done; mount -o remount,bind,ro /";
    for variant in ["nft", "legacy"] {
        let host = Pod::with(&format!("{}; {read_only}", crate::pod::V4));
        let pod = Pod::new();
        let before = (host.state(), host.sh("cat /proc/mounts; cat /etc/nsswitch.conf 2>/dev/null || :"));
        let path = format!("/proc/{}/ns/net", pod.pid());
        from_outside(&host, &path, &["--cni-mode", "--force-iptables-binary", variant])
            .exits(0)
            .stderr_lacks("\twarn\t");
        assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"), "{variant}");
        let after = (host.state(), host.sh("cat /proc/mounts; cat /etc/nsswitch.conf 2>/dev/null || :"));
        assert_eq!(after, before, "{variant}: the host was changed");
    }
}

#[test]
fn in_cni_mode_without_the_right_to_mount_it_warns_and_works() {
    let pod = Pod::new();
    pod.istio(&[&SIDECAR[..], &["--cni-mode"]].concat())
        .under(&["setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all"])
        .good()
        .stderr_contains("name service");
    assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"));
}

#[test]
fn in_cni_mode_runs_for_many_pods_at_once_do_not_wait_for_each_other() {
    let host = Pod::new();
    let pods: Vec<Pod> = (0..4).map(|_| Pod::new()).collect();
    let paths: Vec<String> = pods.iter().map(|pod| format!("/proc/{}/ns/net", pod.pid())).collect();
    let options = |path| {
        [&SIDECAR[..], &["--cni-mode", "--force-iptables-binary", "legacy", "--network-namespace", path]]
            .concat()
    };
    let runs: Vec<_> = paths.iter().map(|path| host.istio(&options(path)).start()).collect();
    for run in runs {
        run.end().exits(0);
    }
    assert!(pods.iter().all(|pod| pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT")));
    assert_eq!(host.sh("ls -A /run"), "", "the host's lock was used");
}

#[test]
fn addresses_are_those_of_the_target_namespace() {
    // The host has IPv6, the pod has not.
    let (host, pod) = (Pod::dual(), Pod::new());
    let path = format!("/proc/{}/ns/net", pod.pid());
    from_outside(&host, &path, &[]).exits(0).stderr_lacks("NOT captured").stderr_contains("IPv4");
}

#[test]
fn help_and_version_work_anywhere() {
    for word in ["--help", "--version", "-h"] {
        let output = Command::new(&*BUILT).arg(word).env_clear().output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        assert!(!output.stdout.is_empty());
    }
}
