//! Runs that are killed half way.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::pod::{Pod, real};

const ONE: [&str; 9] =
    ["-b", "*", "-i", "*", "--dual-stack", "-m", "TPROXY", "--redirect-dns", "--capture-all-dns"];
const OTHER: [&str; 9] = ["-b", "80", "-i", "10.0.0.0/8,fd00::/8", "--dual-stack", "-o", "25", "-c", "eth1"];

/// Kills runs at moments spread over `rounds`: changes to and fro, and clean-ups. Now and then, checks that
/// one more run makes what it makes in a fresh pod.
fn killed_then_run(first: &str, second: &str, rounds: u32) {
    let one = [&ONE[..], &["--force-iptables-binary", first]].concat();
    let other = [&OTHER[..], &["--force-iptables-binary", second]].concat();
    let cleanup = vec!["cleanup"];
    let expected = [&one, &other, &cleanup].map(|options| {
        let pod = Pod::dual();
        pod.istio(options).good();
        (options, pod.rules())
    });
    let pod = Pod::dual();
    pod.istio(&one).good();
    let begin = Instant::now();
    pod.istio(&other).good();
    let took = begin.elapsed();
    let mut cut_short = 0;
    for round in 0..rounds {
        // To the one, to the other, to the one, away.
        let options = [&one, &other, &one, &cleanup][(round % 4) as usize];
        let run = pod.istio(options).start();
        std::thread::sleep(took.mul_f64(f64::from(round * 7 % rounds) / f64::from(rounds)));
        cut_short += u32::from(run.kill());
        if round % 3 == 2 {
            let (options, rules) = &expected[(round / 3 % 3) as usize];
            pod.istio(options).good();
            assert_eq!(&pod.rules(), rules, "{options:?}, after round {round}");
        }
    }
    assert!(cut_short > rounds / 4, "most runs came to their end: {cut_short} of {rounds} did not");
}

#[test]
fn killed_run_is_completed_by_next_run_with_nft() {
    killed_then_run("nft", "nft", 30);
}

#[test]
fn killed_run_is_completed_by_next_run_with_legacy() {
    killed_then_run("legacy", "legacy", 30);
}

#[test]
fn killed_backend_change_is_completed_by_next_run() {
    killed_then_run("nft", "legacy", 30);
}

#[test]
fn a_tool_that_outlives_its_killed_run_is_waited_for() {
    for variant in ["nft", "legacy"] {
        let forced = ["--force-iptables-binary", variant];
        let fresh = Pod::new();
        fresh.istio(&[&OTHER[..], &forced].concat()).good();
        let pod = Pod::new();
        let tool = real(&format!("iptables-{variant}-restore"));
        let [started, killed, ended] = ["started", "killed", "ended"].map(|name| pod.path(name));
        pod.program(
            "slow",
            &format!("iptables-{variant}-restore"),
            // It goes on only when the run is dead for certain, and leaves a mark when it has ended.
            &format!(
                "touch {}; while [ ! -e {} ]; do sleep 0.01; done; sleep 0.7; {} \"$@\"; touch {}",
                started.display(),
                killed.display(),
                tool.display(),
                ended.display()
            ),
        );
        let run = pod
            .istio(&[&ONE[..], &forced].concat())
            .search(&[&pod.path("slow"), Path::new("/usr/sbin"), Path::new("/usr/bin"), Path::new("/bin")])
            .start();
        while !started.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        run.kill();
        std::fs::write(&killed, "").unwrap();
        pod.istio(&[&OTHER[..], &forced].concat()).good();
        while !ended.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(pod.rules(), fresh.rules(), "{variant}: the tool of the killed run came later");
    }
}
