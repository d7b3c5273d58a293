//! Resource limits, closed standard streams, missing devices.

use std::time::{Duration, Instant};

use crate::pod::{Pod, SIDECAR, V4};

/// Runs the binary in a shell after `setup`; the exit code and the output.
fn run(pod: &Pod, setup: &str, args: &str) -> (String, String) {
    let code = pod.sh(&format!(
        "code=0; ( {setup}; exec \"$BIN\" {args} ) >$DIR/out 2>$DIR/err || code=$?; echo $code"
    ));
    (code.trim().to_owned(), pod.sh("cat $DIR/err"))
}

#[test]
fn too_low_open_file_limit_is_reported() {
    for limit in 4..=12 {
        let pod = Pod::new();
        let (code, output) = run(&pod, &format!("ulimit -n {limit}"), "-b '*' -i '*'");
        if code == "0" {
            assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"), "{limit}: {output}");
        } else {
            assert!(
                output.contains("ulimit -n") || output.contains("libraries"),
                "nofile {limit}: exit {code}: {output}"
            );
            assert!(["69", "70", "73"].contains(&code.as_str()), "nofile {limit}: exit {code}: {output}");
        }
    }
}

#[test]
fn a_limit_of_the_file_size_is_reported() {
    let pod = Pod::new();
    let before = pod.state();
    let file = pod.path("rules").display().to_string();
    let options = ["-b", "*", "-i", "*"];
    let cases =
        [&options[..], &[&options[..], &["--rules-file", &file]].concat(), &[&options[..], &["-n"]].concat()];
    for case in cases {
        pod.istio(case)
            .env("DRY_RUN_FILE_PATH", &file)
            .under(&["prlimit", "--fsize=0"])
            .end()
            .exits(73)
            .stderr_contains("ulimit -f");
    }
    assert_eq!(pod.state(), before);
}

#[test]
fn a_stack_overflow_is_reported() {
    let pod = Pod::new();
    let mut reported = 0;
    for limit in (24..=320).step_by(8) {
        let (code, output) = run(&pod, &format!("ulimit -s {limit}"), "-b '*' -i '*' -n");
        match code.as_str() {
            "0" => {}
            // SIGABRT; SIGSEGV would be 139, without a word.
            "134" => {
                assert!(output.contains("stack overflow"), "stack of {limit} KiB: {output}");
                reported += 1;
            }
            _ => panic!("stack of {limit} KiB: exit {code}: {output}"),
        }
    }
    assert!(reported > 0, "every stack was large enough");
}

#[test]
fn closed_streams_without_dev_are_no_obstacle() {
    for closed in ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"] {
        let pod = Pod::with(&format!("{V4}; mount -t tmpfs none /dev"));
        let code = pod.sh(&format!("code=0; \"$BIN\" -b '*' -i '*' {closed} || code=$?; echo $code"));
        assert_eq!(code, "0\n", "{closed}");
        assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"), "{closed}");
    }
}

#[test]
fn a_config_on_standard_input_without_end_is_refused() {
    let pod = Pod::new();
    let (code, output) = run(&pod, "ulimit -v 1000000; exec </dev/zero", "--config -");
    assert_eq!(code, "64", "{output}");
    assert!(output.contains("standard input") && output.contains("larger than 64 MiB"), "{output}");
}

#[test]
fn a_config_of_the_largest_size_is_read_from_standard_input() {
    let pod = Pod::new();
    let text = format!("{{\"istio-inbound-ports\": \"80\"{}}}", " ".repeat((64 << 20) - 29));
    assert_eq!(text.len(), 64 << 20);
    pod.istio(&["--config", "-"]).input(&text).good();
    assert!(pod.rules().contains("--dport 80"));
    pod.istio(&["--config", "-"])
        .input(&format!("{text} "))
        .end()
        .exits(64)
        .stderr_contains("larger than 64 MiB");
}

#[test]
fn a_killed_run_leaves_no_rules_file() {
    let pod = Pod::with(&format!("{V4}; for d in /tmp /dev/shm; do mount -t tmpfs none $d; done"));
    let started = pod.path("started");
    pod.program("slow", "iptables-nft-restore", &format!("touch {}; sleep 30", started.display()));
    let usual = ["/usr/sbin", "/usr/bin", "/bin"].map(std::path::Path::new);
    let run = pod.istio(&SIDECAR).search(&[&[pod.path("slow").as_path()], &usual[..]].concat()).start();
    let begin = Instant::now();
    while !started.exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the tool was not started");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(run.kill());
    let left = "find /tmp /run /dev/shm -path \"$DIR\" -prune -o -name '*tables*' -print";
    assert_eq!(pod.sh(left), "");
}
