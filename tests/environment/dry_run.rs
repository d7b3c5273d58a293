//! Runs that only say what they would do, and files that are kept.

use std::fs;

use crate::pod::{Pod, SIDECAR};

fn dry(more: &[&'static str]) -> Vec<&'static str> {
    [&SIDECAR[..], &["--dry-run"], more].concat()
}

#[test]
fn a_dry_run_changes_nothing() {
    let pod = Pod::with(&format!("{}; mount -t tmpfs tmp /tmp", crate::pod::DUAL));
    // The folder that a call starts in may be below one of these.
    let folders = || (pod.sh("ls -A /tmp"), pod.sh("ls -A /run"));
    let before = (pod.state(), folders());
    for variant in ["nft", "legacy"] {
        let options = dry(&["--dual-stack", "-m", "TPROXY", "--redirect-dns", "--capture-all-dns"]);
        let ended = pod.istio(&[&options[..], &["--force-iptables-binary", variant]].concat()).good();
        assert!(ended.stdout.contains("-A ISTIO_OUTPUT"), "{ended}");
        assert!(ended.stdout.contains("ip -6 rule add fwmark 1337"), "{ended}");
        assert_eq!((pod.state(), folders()), before, "{variant}");
    }
}

#[test]
fn dry_run_prints_difference_to_live_rules() {
    let pod = Pod::new();
    pod.istio(&SIDECAR).good();
    let before = pod.state();
    let same = pod.istio(&dry(&[])).good();
    assert!(same.stdout.contains("already converged"), "{same}");
    let other = pod.istio(&dry(&["-o", "25"])).good();
    assert!(other.stdout.contains("--dport 25 -j RETURN"), "{other}");
    let cleanup = pod.istio(&["cleanup", "--dry-run"]).good();
    assert!(cleanup.stdout.contains("-X ISTIO_OUTPUT"), "{cleanup}");
    assert_eq!(pod.state(), before);
}

#[test]
fn a_dry_run_needs_no_privilege_and_no_tool() {
    let pod = Pod::new();
    let empty = pod.links("empty", &[]);
    let unprivileged = ["setpriv", "--reuid=1337", "--regid=1337", "--clear-groups"];
    let ended = pod.istio(&dry(&[])).under(&unprivileged).search(&[&empty]).good();
    assert!(ended.stdout.contains("empty namespace"), "{ended}");
    assert!(ended.stdout.contains("-A OUTPUT -j ISTIO_OUTPUT"), "{ended}");
    pod.istio(&dry(&[])).under(&["setpriv", "--bounding-set=-all", "--inh-caps=-all"]).good();
}

#[test]
fn dry_run_without_permission_reports_unknown_state() {
    let pod = Pod::new();
    pod.istio(&SIDECAR).good();
    let blind = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
    let ended = pod.istio(&dry(&[])).under(&blind).good();
    assert!(ended.stdout.contains("empty namespace"), "{ended}");
}

#[test]
fn the_plan_goes_to_standard_output_and_the_log_to_standard_error() {
    let pod = Pod::new();
    let ended = pod.istio(&dry(&["--log_as_json"])).good();
    assert!(ended.stdout.starts_with("# dry run"), "{ended}");
    assert!(ended.stderr.lines().all(|line| line.starts_with('{')), "{ended}");
    let applied = pod.istio(&SIDECAR).good();
    assert_eq!(applied.stdout, "");
}

#[test]
fn the_file_of_a_dry_run_holds_this_run_only() {
    let pod = Pod::dual();
    let file = pod.path("rules");
    let path = file.to_str().unwrap();
    let v6 = pod.path("rules.v6");
    let old = "x".repeat(1_000_000);
    fs::write(&file, &old).unwrap();
    pod.istio(&dry(&["--dual-stack"])).env("DRY_RUN_FILE_PATH", path).good();
    let (rules, rules_v6) = (fs::read_to_string(&file).unwrap(), fs::read_to_string(&v6).unwrap());
    assert!(rules.starts_with("*nat\n") && rules.ends_with("COMMIT\n"), "{rules}");
    assert!(rules_v6.contains("::6/128"), "{rules_v6}");
    pod.istio(&["cleanup", "--dry-run"]).env("DRY_RUN_FILE_PATH", path).good();
    assert_eq!(fs::read_to_string(&file).unwrap(), "", "rules of an earlier run");
}

#[test]
fn a_file_of_a_dry_run_that_cannot_be_written_is_exit_73() {
    let pod = Pod::new();
    for path in ["/does/not/exist", "/", "/dev/full"] {
        pod.istio(&dry(&[]))
            .env("DRY_RUN_FILE_PATH", path)
            .end()
            .exits(73)
            .stderr_contains("DRY_RUN_FILE_PATH")
            .stderr_contains(path);
    }
}

#[test]
fn the_rules_file_is_kept_one_per_family() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::dual();
        let file = pod.path("rules");
        pod.istio(
            &[
                &SIDECAR[..],
                &["--dual-stack", "--rules-file", file.to_str().unwrap(), "--force-iptables-binary", variant],
            ]
            .concat(),
        )
        .good()
        .stderr_contains(file.to_str().unwrap());
        let v4 = fs::read_to_string(&file).unwrap();
        let v6 = fs::read_to_string(pod.path("rules.v6")).unwrap();
        assert!(v4.contains("127.0.0.6/32") && !v4.contains("::6"), "{v4}");
        assert!(v6.contains("::6/128") && !v6.contains("127.0.0"), "{v6}");
        // What was kept is what was applied.
        let other = Pod::dual();
        other.sh(&format!(
            "iptables-{variant}-restore --noflush < {0}; ip6tables-{variant}-restore --noflush < {0}.v6; \
             ip addr add ::6/128 dev lo nodad",
            file.display()
        ));
        assert_eq!(other.rules(), pod.rules());
    }
}

#[test]
fn a_rules_file_that_cannot_be_written_applies_nothing() {
    let pod = Pod::dual();
    let before = pod.state();
    fs::create_dir(pod.path("rules.v6")).unwrap();
    let only_v6_fails = pod.path("rules").display().to_string();
    for path in ["/does/not/exist", "/", "/dev/full", &only_v6_fails] {
        pod.istio(&[&SIDECAR[..], &["--dual-stack", "--rules-file", path]].concat())
            .end()
            .exits(73)
            .stderr_contains("--rules-file")
            .stderr_contains(path);
        assert_eq!(pod.state(), before, "{path}");
    }
}

/// A file system of 16 kB with the file `rules` on it, and no room left.
const FULL: &str = "mkdir $DIR/full; mount -t tmpfs -o size=16k full $DIR/full; \
                    echo '# an earlier run' >$DIR/full/rules; cat /dev/zero >$DIR/full/rest 2>/dev/null || :";

#[test]
fn a_full_disk_keeps_the_earlier_rules_file_and_applies_nothing() {
    let pod = Pod::with(&format!("{}; {FULL}", crate::pod::V4));
    let before = pod.state();
    // More rules than fit into the page that the file has.
    let ports: Vec<String> = (1..400).map(|port| port.to_string()).collect();
    let options: [&'static str; 4] = ["-i", "*", "-b", ports.join(",").leak()];
    for name in ["rules", "new"] {
        let path = pod.path("full").join(name).display().to_string();
        let kept = [&options[..], &["--rules-file", &path]].concat();
        pod.istio(&kept).end().exits(73).stderr_contains("--rules-file").stderr_contains("No space left");
        pod.istio(&dry(&options))
            .env("DRY_RUN_FILE_PATH", &path)
            .end()
            .exits(73)
            .stderr_contains("DRY_RUN_FILE_PATH")
            .stderr_contains("No space left");
    }
    assert_eq!(pod.sh("cat $DIR/full/rules; ls $DIR/full"), "# an earlier run\nrest\nrules\n");
    assert_eq!(pod.state(), before);
}

#[test]
fn a_rules_file_that_is_a_link_or_a_device_is_refused_and_nothing_is_applied() {
    let pod = Pod::new();
    let before = pod.state();
    fs::write(pod.path("precious"), "precious").unwrap();
    std::os::unix::fs::symlink(pod.path("precious"), pod.path("link")).unwrap();
    let link = pod.path("link").display().to_string();
    for (path, why) in [(link.as_str(), "symbolic link"), ("/dev/null", "not a regular file")] {
        pod.istio(&[&SIDECAR[..], &["--rules-file", path]].concat()).end().exits(73).stderr_contains(why);
    }
    assert_eq!(fs::read_to_string(pod.path("precious")).unwrap(), "precious");
    assert_eq!(pod.state(), before);
}

#[test]
fn a_kept_rules_file_holds_everything_that_a_move_writes() {
    let options = [&SIDECAR[..], &["--dual-stack", "-m", "TPROXY"]].concat();
    let pod = Pod::dual();
    let file = pod.path("rules");
    pod.istio(&[&options[..], &["--force-iptables-binary", "nft"]].concat()).good();
    let keep = ["--force-iptables-binary", "legacy", "--rules-file", file.to_str().unwrap()];
    pod.istio(&[&options[..], &keep].concat()).good();
    for path in [file, pod.path("rules.v6")] {
        let rules = fs::read_to_string(path).unwrap();
        let place = |line: &str| rules.find(line).unwrap_or_else(|| panic!("no {line:?} in {rules}"));
        let first = place("-A PREROUTING -i lo -p tcp -m mark --mark 1337 -j CONNMARK --save-mark");
        let last = place("-A PREROUTING -p tcp -m mark --mark 1337 -j CONNMARK --save-mark");
        assert!(first < last, "{rules}");
    }
}
