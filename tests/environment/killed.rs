//! Runs that are killed half way.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::pod::{Pod, real};

const ONE: [&str; 9] = [
    "-b",
    "*",
    "-i",
    "*",
    "--dual-stack",
    "-m",
    "TPROXY",
    "--redirect-dns",
    "--capture-all-dns",
];
const OTHER: [&str; 9] = [
    "-b",
    "80",
    "-i",
    "10.0.0.0/8,fd00::/8",
    "--dual-stack",
    "-o",
    "25",
    "-c",
    "eth1",
];

/// Kills runs at moments spread over `rounds`, then checks that one more run makes what it makes in a fresh pod.
fn killed_then_run(variant: &str, rounds: u32) {
    let forced = ["--force-iptables-binary", variant];
    let fresh = |options: &[&str]| {
        let pod = Pod::dual();
        let begin = Instant::now();
        pod.istio(&[options, &forced].concat()).good();
        (pod.rules(), begin.elapsed())
    };
    let (one, took) = fresh(&ONE);
    let (other, _) = fresh(&OTHER);
    let pod = Pod::dual();
    let empty = pod.rules();
    for round in 0..rounds {
        let options = [&ONE, &OTHER][usize::from(round % 2 == 1)];
        let run = pod.istio(&[&options[..], &forced].concat()).start();
        // The moments go a bit beyond the time that a whole run takes.
        std::thread::sleep(
            took.mul_f64(1.2 * f64::from(round) / f64::from(rounds))
                .max(Duration::from_millis(1)),
        );
        run.kill();
        if round % 5 == 4 {
            let (options, expected) = if round % 2 == 0 {
                (&ONE, &one)
            } else {
                (&OTHER, &other)
            };
            pod.istio(&[&options[..], &forced].concat()).good();
            assert_eq!(&pod.rules(), expected, "{variant}, after round {round}");
        }
        if round % 10 == 9 {
            pod.istio(&[&ONE[..], &forced].concat()).start().kill();
            pod.istio(&["cleanup"]).good();
            assert_eq!(pod.rules(), empty, "{variant}, after round {round}");
        }
    }
}

#[test]
fn a_run_killed_at_any_moment_is_mended_by_the_next_with_nft() {
    killed_then_run("nft", 30);
}

#[test]
fn a_run_killed_at_any_moment_is_mended_by_the_next_with_legacy() {
    killed_then_run("legacy", 30);
}

#[test]
fn a_tool_that_outlives_its_killed_run_is_waited_for() {
    for variant in ["nft", "legacy"] {
        let forced = ["--force-iptables-binary", variant];
        let fresh = Pod::new();
        fresh.istio(&[&OTHER[..], &forced].concat()).good();
        let pod = Pod::new();
        let tool = real(&format!("iptables-{variant}-restore"));
        let started = pod.path("started");
        pod.program(
            "slow",
            &format!("iptables-{variant}-restore"),
            &format!(
                "touch {}; sleep 0.7; exec {} \"$@\"",
                started.display(),
                tool.display()
            ),
        );
        let run = pod
            .istio(&[&ONE[..], &forced].concat())
            .search(&[
                &pod.path("slow"),
                Path::new("/usr/sbin"),
                Path::new("/usr/bin"),
                Path::new("/bin"),
            ])
            .start();
        while !started.exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        run.kill();
        pod.istio(&[&OTHER[..], &forced].concat()).good();
        assert_eq!(pod.rules(), fresh.rules(), "{variant}");
        std::thread::sleep(Duration::from_millis(800));
        assert_eq!(
            pod.rules(),
            fresh.rules(),
            "{variant}: the tool of the killed run came later"
        );
    }
}
