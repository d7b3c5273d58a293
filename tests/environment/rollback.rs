//! First runs that fail at each of their steps: nothing captures, and nothing of the run is left.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use nix::sched::{CloneFlags, setns};

use crate::pod::{Ended, Pod, SIDECAR, real};

const USUAL: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// What a failed run could leave: rules, routes, addresses, the alias of `lo`.
fn whole(pod: &Pod) -> String {
    pod.rules() + &pod.sh("nft list ruleset | grep -i istio || :; ip -d link show dev lo | grep alias || :")
}

/// A restore tool that carries out as many commits of the run as the file `left` says, and refuses the next
/// one. Later calls find one that works. Its files are in `dir`.
pub(crate) fn limited_tool(dir: &str, name: &str) -> String {
    let tool = real(name).display().to_string();
    format!(
        "[ -e {dir}/refused ] && exec {tool} \"$@\"\nsection=\n\
         while IFS= read -r line; do\nsection=\"$section$line\n\"\n\
         [ \"$line\" = COMMIT ] || continue\nleft=$(cat {dir}/left)\n\
         [ $left != 0 ] || {{ touch {dir}/refused; echo 'line 1 failed: refused by the test' >&2; exit 1; }}\n\
         echo $((left - 1)) > {dir}/left\nprintf %s \"$section\" | {tool} \"$@\" || exit 1\nsection=\ndone"
    )
}

fn limited(pod: &Pod, variant: &str) {
    for ip in ["iptables", "ip6tables"] {
        let name = format!("{ip}-{variant}-restore");
        pod.program("bin", &name, &limited_tool(&pod.path("").display().to_string(), &name));
    }
}

/// A run whose commit number `good + 1` is refused.
fn refused_after(pod: &Pod, good: u32, options: &[&str], variant: &str) -> Ended {
    limited(pod, variant);
    fs::write(pod.path("left"), format!("{good}\n")).unwrap();
    let options = [options, &["--force-iptables-binary", variant]].concat();
    pod.istio(&options).search(&[&pod.path("bin"), Path::new(USUAL)]).end()
}

/// Refuses every commit in turn, in a fresh pod each time; returns how many a good run has.
fn every_commit(variant: &str, pod: impl Fn() -> Pod, options: &[&str]) -> u32 {
    for good in 0..100 {
        let pod = pod();
        let before = whole(&pod);
        let ended = refused_after(&pod, good, options, variant);
        if ended.code == Some(0) {
            assert!(whole(&pod).contains("ISTIO_OUTPUT"));
            return good;
        }
        let ended =
            ended.exits(70).stderr_contains("refused by the test").stderr_lacks("cannot be rolled back");
        assert_eq!(whole(&pod), before, "{variant} {options:?}, after {good} commits: {ended}");
        if good > 0 {
            ended.stderr_contains("rolled back: nothing of this run is left");
        }
    }
    panic!("the run does not end");
}

const DNS: [&str; 2] = ["--redirect-dns", "--capture-all-dns"];
const TPROXY: [&str; 2] = ["-m", "TPROXY"];
const DUAL: [&str; 1] = ["--dual-stack"];

fn every_form(variant: &str) {
    let both = [&SIDECAR[..], &DNS].concat();
    assert_eq!(every_commit(variant, Pod::new, &both), 2);
    assert_eq!(every_commit(variant, Pod::new, &[&both[..], &TPROXY].concat()), 3);
    assert_eq!(every_commit(variant, Pod::dual, &[&both[..], &DUAL].concat()), 4);
    assert_eq!(every_commit(variant, Pod::dual, &[&both[..], &TPROXY, &DUAL].concat()), 6);
}

#[test]
fn failed_first_run_leaves_nothing_with_nft() {
    every_form("nft");
}

#[test]
fn failed_first_run_leaves_nothing_with_legacy() {
    every_form("legacy");
}

#[test]
fn foreign_rules_and_routes_survive_a_failed_first_run() {
    for variant in ["nft", "legacy"] {
        let foreign = || with_foreign(variant);
        let options = [&SIDECAR[..], &DNS, &TPROXY, &DUAL, &["-k", "vnet0", "-c", "vnet0"]].concat();
        assert_eq!(every_commit(variant, foreign, &options), 6);
    }
}

#[test]
fn foreign_rules_survive_a_first_run_that_was_killed_before_its_first_commit() {
    for variant in ["nft", "legacy"] {
        let pod = with_foreign(variant);
        let before = whole(&pod);
        pod.program("bin", &format!("iptables-{variant}-restore"), "kill -9 $PPID");
        let options = [&SIDECAR[..], &TPROXY, &["-k", "vnet0", "--force-iptables-binary", variant]].concat();
        let ended = pod.istio(&options).search(&[&pod.path("bin"), Path::new(USUAL)]).end();
        assert_eq!(ended.code, None, "{ended}");
        pod.istio(&["cleanup"]).good();
        assert_eq!(whole(&pod), before, "{variant}");
    }
}

/// Some of it looks like ours.
fn with_foreign(variant: &str) -> Pod {
    let pod = Pod::dual();
    pod.sh(&format!(
                "for ip in iptables ip6tables; do t=$ip-{variant}; \
                 $t -t nat -A PREROUTING -i vnet0 -j RETURN; $t -t nat -A OUTPUT -o vnet0 -j RETURN; \
                 $t -t nat -A PREROUTING -p tcp --dport 22 -m comment --comment keep -j ACCEPT; \
                 $t -t nat -N FOREIGN; $t -t nat -A OUTPUT -j FOREIGN; \
                 $t -t mangle -A PREROUTING -j MARK --set-mark 7; $t -t raw -A OUTPUT -p udp --dport 99 -j CT --zone 1; done; \
                 ip rule add fwmark 1337 lookup 200; ip route add local default dev lo table 200; \
                 ip -6 rule add fwmark 1337 lookup 200"
    ));
    pod
}

/// Connections within the pod that are open until the sender is dropped.
fn connected(pod: &Pod) -> Vec<TcpStream> {
    let path = format!("/proc/{}/ns/net", pod.pid());
    let open = std::thread::spawn(move || {
        setns(fs::File::open(path).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        let to = |address: SocketAddr| {
            let listener = TcpListener::bind(address).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            [client, listener.accept().unwrap().0]
        };
        let loopback = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), (Ipv6Addr::LOCALHOST, 0).into()];
        loopback.into_iter().flat_map(to).collect()
    });
    open.join().unwrap()
}

#[test]
fn failed_first_capture_of_a_running_pod_leaves_nothing_and_its_connections_open() {
    for variant in ["nft", "legacy"] {
        let options = [&SIDECAR[..], &DNS, &TPROXY, &DUAL].concat();
        for good in 0..8 {
            let pod = Pod::dual();
            let mut streams = connected(&pod);
            let before = whole(&pod);
            let ended = refused_after(&pod, good, &options, variant).exits(70);
            assert_eq!(whole(&pod), before, "{variant}, after {good} commits: {ended}");
            for pair in streams.chunks_mut(2) {
                pair[0].write_all(b"x").unwrap();
                pair[1].read_exact(&mut [0]).unwrap();
            }
        }
    }
}

#[test]
fn refused_route_or_address_leaves_nothing() {
    for variant in ["nft", "legacy"] {
        let options = [&SIDECAR[..], &TPROXY, &DUAL, &["--force-iptables-binary", variant]].concat();
        for obstacle in [
            "ip -6 route add default dev eth0 table 133",
            "ip route add default via 10.4.4.1 table 133",
            "echo 1 > /proc/sys/net/ipv6/conf/lo/disable_ipv6",
        ] {
            let pod = Pod::dual();
            pod.sh(obstacle);
            let before = whole(&pod);
            let ended = pod.istio(&options).end().exits(70);
            assert_eq!(whole(&pod), before, "{variant}, {obstacle}: {ended}");
        }
    }
}

#[test]
fn failed_change_of_rules_is_not_rolled_back() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::new();
        pod.istio(&[&SIDECAR[..], &["--force-iptables-binary", variant]].concat()).good();
        refused_after(&pod, 1, &["-b", "80", "-m", "TPROXY"], variant).exits(70).stderr_lacks("rolled back");
        assert!(whole(&pod).contains("-A OUTPUT -j ISTIO_OUTPUT"), "{variant}");
    }
}

#[test]
fn rollback_that_fails_is_reported() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::new();
        limited(&pod, variant);
        let tool = pod.path(&format!("bin/iptables-{variant}-restore"));
        let script = fs::read_to_string(&tool).unwrap().replace("[ -e", "[ -e /does/not/exist -a -e");
        fs::write(&tool, script).unwrap();
        fs::write(pod.path("left"), "1\n").unwrap();
        let options = [&SIDECAR[..], &TPROXY, &["--force-iptables-binary", variant]].concat();
        pod.istio(&options)
            .search(&[&pod.path("bin"), Path::new(USUAL)])
            .end()
            .exits(70)
            .stderr_contains("cannot be rolled back, run `istio-iptables cleanup`");
        pod.istio(&["cleanup"]).good();
        assert_eq!(whole(&pod), whole(&Pod::new()));
    }
}
