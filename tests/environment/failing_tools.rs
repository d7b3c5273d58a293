//! Tools that fail the way real ones do. The fakes replace one tool each.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::pod::{Ended, Pod, SIDECAR};

const DNS: [&str; 2] = ["--redirect-dns", "--capture-all-dns"];
const USUAL: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// A run in which the restore tool of a variant prints `complaint` and exits with `code`; nothing may be
/// applied.
fn with_failing(variant: &str, complaint: &str, code: i32) -> Ended {
    let pod = Pod::new();
    fs::write(pod.path("complaint"), complaint).unwrap();
    pod.program(
        "bin",
        &format!("iptables-{variant}-restore"),
        &format!(
            "while read -r line; do case $line in '*'*) t=$line;; esac; done; cat {} >&2; exit {code}",
            pod.path("complaint").display()
        ),
    );
    run(&pod, variant)
}

fn run(pod: &Pod, variant: &str) -> Ended {
    let before = pod.rules();
    let options = [&SIDECAR[..], &DNS, &["--force-iptables-binary", variant]].concat();
    let bin = pod.path("bin");
    let ended = pod.istio(&options).search(&[&bin, Path::new(USUAL)]).end();
    assert_eq!(pod.rules(), before, "{ended}");
    ended
}

/// The number of the first line of the rules file that contains `text`.
fn line_with(text: &str) -> (usize, String) {
    let pod = Pod::new();
    let file = pod.path("rules");
    pod.istio(&[&SIDECAR[..], &DNS, &["--rules-file", file.to_str().unwrap()]].concat()).good();
    let rules = fs::read_to_string(file).unwrap();
    let (number, line) = rules.lines().enumerate().find(|(_, line)| line.contains(text)).unwrap();
    (number + 1, line.to_owned())
}

#[test]
fn a_legacy_table_that_the_kernel_lacks_is_named_with_its_module() {
    with_failing(
        "legacy",
        "iptables-legacy-restore v1.8.9 (legacy): iptables-restore: unable to initialize table 'nat'\n\n\
         Error occurred at line: 1\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.\n",
        2,
    )
    .exits(70)
    .stderr_contains("unable to initialize table 'nat'")
    .stderr_contains("iptable_nat")
    .stderr_contains("modprobe ")
    .stderr_contains("--backend auto");
    with_failing(
        "legacy",
        "iptables-restore: can't initialize iptables table `raw': Table does not exist (do you need to insmod?)\n\
         Perhaps iptables or your kernel needs to be upgraded.\n",
        3,
    )
    .exits(70)
    .stderr_contains("iptable_raw");
}

#[test]
fn the_line_that_nft_refuses_is_shown_and_its_module_named() {
    let (number, line) = line_with("-j REDIRECT --to-ports 15006");
    with_failing(
        "nft",
        &format!("iptables-nft-restore: \nline {number}: RULE_APPEND failed (No such file or directory): rule in chain ISTIO_IN_REDIRECT\n"),
        4,
    )
    .exits(70)
    .stderr_contains(&format!("the line is: {line}"))
    .stderr_contains("xt_REDIRECT");
}

#[test]
fn kernel_without_ct_zones_reports_missing_module() {
    let (number, line) = line_with("-j CT --zone");
    with_failing(
        "nft",
        &format!("iptables-nft-restore v1.8.9 (nf_tables): \nline {number}: RULE_APPEND failed (No such file or directory): rule in chain ISTIO_OUTPUT_DNS\n"),
        4,
    )
    .exits(70)
    .stderr_contains(&line)
    .stderr_contains("xt_CT");
    with_failing(
        "legacy",
        &format!("iptables-restore: line {number} failed: No chain/target/match by that name.\n"),
        1,
    )
    .exits(70)
    .stderr_contains(&line)
    .stderr_contains("xt_CT");
}

#[test]
fn a_kernel_without_nf_tables_is_recognised() {
    with_failing("nft", "iptables-nft-restore/1.8.9 Failed to initialize nft: Protocol not supported\n", 1)
        .exits(70)
        .stderr_contains("modprobe nf_tables")
        .stderr_contains("--backend auto");
    with_failing(
        "nft",
        "iptables-nft-restore: line 5: Could not fetch rule set generation id: Invalid argument\n",
        4,
    )
    .exits(70)
    .stderr_contains("nf_tables");
}

#[test]
fn a_missing_privilege_seen_by_the_tool_is_exit_77() {
    with_failing(
        "nft",
        "iptables-nft-restore v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)\n",
        4,
    )
    .exits(77)
    .stderr_contains("NET_ADMIN");
    with_failing(
        "legacy",
        "iptables-restore v1.8.9 (legacy): can't initialize iptables table `nat': Permission denied (you must be root)\n\
         Perhaps iptables or your kernel needs to be upgraded.\n",
        3,
    )
    .exits(77)
    .stderr_contains("NET_RAW");
}

#[test]
fn every_wording_of_a_busy_lock_is_exit_75() {
    for text in [
        "Another app is currently holding the xtables lock; still 0s 0us time ahead to have a chance to grab the lock...\n\
         Another app is currently holding the xtables lock. Stopped waiting after 30s.\n",
        "Another app is currently holding the xtables lock. Perhaps you want to use the -w option?\n",
    ] {
        with_failing("legacy", text, 4).exits(75).stderr_contains("/run/xtables.lock");
    }
}

#[test]
fn a_lock_file_that_cannot_be_opened_is_exit_73() {
    with_failing("legacy", "Fatal: can't open lock file /run/xtables.lock: Read-only file system\n", 4)
        .exits(73)
        .stderr_contains("/run");
}

#[test]
fn an_extension_missing_in_the_image_is_recognised() {
    with_failing(
        "nft",
        "iptables-nft-restore v1.8.9 (nf_tables): Couldn't load match `owner':No such file or directory\n\n\
         Error occurred at line: 12\nTry `iptables-restore -h' or 'iptables-restore --help' for more information.\n",
        2,
    )
    .exits(70)
    .stderr_contains("extension of iptables");
}

#[test]
fn silently_failing_tool_is_a_failure() {
    with_failing("nft", "", 1).exits(70).stderr_contains("exit code 1").stderr_contains("what to do: ");
}

#[test]
fn tool_that_writes_nothing_is_detected() {
    for variant in ["nft", "legacy"] {
        with_failing(variant, "", 0).exits(70).stderr_contains("ISTIO_OUTPUT: no chain");
    }
}

#[test]
fn a_tool_killed_by_a_signal_is_a_failure() {
    let pod = Pod::new();
    pod.program("bin", "iptables-nft-restore", "kill -9 $$");
    run(&pod, "nft").exits(70).stderr_contains("ended by a signal");
}

#[test]
fn a_tool_for_another_machine_is_exit_69() {
    let pod = Pod::new();
    let tool = pod.program("bin", "iptables-nft-restore", "");
    // An ELF head of a machine that is not this one.
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(64, 0);
    head[16] = 2;
    head[18] = 0xf7;
    fs::write(&tool, head).unwrap();
    run(&pod, "nft").exits(69).stderr_contains("Exec format error").stderr_contains("for this architecture");
}

#[test]
fn a_tool_whose_shared_library_is_missing_is_exit_69() {
    for complaint in [
        "/usr/sbin/iptables-nft-restore: error while loading shared libraries: libnftnl.so.11: cannot open shared object \
         file: No such file or directory\n",
        "Error loading shared library libnftnl.so.11: No such file or directory (needed by /sbin/iptables-nft-restore)\n\
         Error relocating /sbin/iptables-nft-restore: nftnl_rule_alloc: symbol not found\n",
    ] {
        with_failing("nft", complaint, 127)
            .exits(69)
            .stderr_contains("what to do: libnftnl.so.11 is missing in the image");
    }
}

#[test]
fn a_tool_without_its_interpreter_is_exit_69() {
    let pod = Pod::new();
    let tool = pod.program("bin", "iptables-nft-restore", "");
    fs::write(&tool, "#!/does/not/exist\n").unwrap();
    run(&pod, "nft").exits(69).stderr_contains("iptables-nft-restore").stderr_contains("what to do: ");
}

#[test]
fn a_tool_that_is_not_executable_is_passed_over() {
    let pod = Pod::new();
    for action in ["restore", "save"] {
        let tool = pod.program("bin", &format!("iptables-nft-{action}"), "exit 1");
        fs::set_permissions(tool, fs::Permissions::from_mode(0o644)).unwrap();
    }
    let options = [&SIDECAR[..], &["--backend", "iptables-nft"]].concat();
    pod.istio(&options).search(&[&pod.path("bin")]).end().exits(69);
    pod.istio(&options).search(&[&pod.path("bin"), Path::new(USUAL)]).good();
}

#[test]
fn failing_ipv6_tool_is_completed_by_next_run() {
    let options = [&SIDECAR[..], &DNS, &["--dual-stack", "-m", "TPROXY"]].concat();
    let fresh = Pod::dual();
    fresh.istio(&options).good();
    let pod = Pod::dual();
    pod.program(
        "bin",
        "ip6tables-nft-restore",
        "echo 'line 4: TABLE_ADD failed (Operation not supported)' >&2; exit 1",
    );
    pod.istio(&options)
        .search(&[&pod.path("bin"), Path::new(USUAL)])
        .end()
        .exits(70)
        .stderr_contains("ip6tables-nft-restore");
    pod.istio(&options).good();
    assert_eq!(pod.rules(), fresh.rules());
}

#[test]
fn an_image_without_the_extensions_is_recognised() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::new();
        let before = pod.rules();
        pod.istio(&[&SIDECAR[..], &["--force-iptables-binary", variant]].concat())
            .env("XTABLES_LIBDIR", "/does/not/exist")
            .end()
            .exits(70)
            .stderr_contains("the line is: ")
            .stderr_contains("extension of iptables");
        assert_eq!(pod.rules(), before, "{variant}");
    }
}

#[test]
fn foreign_nft_expressions_readable_by_iptables_survive() {
    let pod = Pod::new();
    pod.sh("nft add table ip nat; nft add chain ip nat mine '{ type nat hook output priority 5; }'; \
         nft add rule ip nat mine tcp dport '{ 80, 81 }' redirect to :8080");
    pod.istio(&SIDECAR).good();
    pod.istio(&SIDECAR).good().stderr_contains("already converged");
    pod.istio(&["cleanup"]).good();
    let left = pod.sh("nft list table ip nat");
    assert!(left.contains("redirect to :8080") && !left.contains("ISTIO"), "{left}");
}

#[test]
fn foreign_chain_unreadable_by_iptables_nft_is_not_changed() {
    let pod = Pod::new();
    pod.istio(&SIDECAR).good();
    pod.sh("nft add chain ip nat mine; nft add rule ip nat mine fib daddr type local accept");
    let before = pod.sh("nft list chain ip nat mine");
    pod.istio(&SIDECAR).good().stderr_contains("already converged");
    pod.istio(&["-b", "80", "--verify"]).good();
    pod.istio(&["cleanup"]).good().stderr_contains("no rules in place");
    assert_eq!(pod.sh("nft list chain ip nat mine"), before);
    assert!(!pod.sh("nft list ruleset").contains("ISTIO"));
}

#[test]
fn foreign_chain_at_which_iptables_nft_save_fails_is_not_changed() {
    let pod = Pod::new();
    pod.sh(
        "nft add table ip mangle; nft add chain ip mangle vpn; nft add rule ip mangle vpn meta mark set 7; \
         nft add table ip nat; nft add chain ip nat vpn; nft add rule ip nat vpn meta mark set 7",
    );
    let before = pod.sh("nft list table ip mangle");
    pod.istio(&SIDECAR).good().stderr_contains("done: ");
    pod.istio(&SIDECAR).good().stderr_contains("already converged");
    pod.istio(&["-b", "80", "--verify"]).good();
    pod.istio(&["cleanup"]).good().stderr_contains("no rules in place");
    assert_eq!(pod.sh("nft list table ip mangle"), before);
    let left = pod.sh("nft list table ip nat");
    assert!(left.contains("mark set 0x00000007") && !left.contains("ISTIO"), "{left}");
}

#[test]
fn shared_chain_unreadable_by_iptables_nft_is_read_from_the_kernel() {
    let pod = Pod::new();
    pod.istio(&SIDECAR).good();
    pod.sh("nft add rule ip nat PREROUTING fib daddr type local accept");
    for (options, jump) in [(&["-b", "80"][..], true), (&SIDECAR, true), (&["cleanup"], false)] {
        pod.istio(options).good();
        let chain = pod.sh("nft list chain ip nat PREROUTING");
        assert_eq!(chain.matches("fib daddr type local accept").count(), 1, "{options:?}: {chain}");
        assert_eq!(chain.matches("jump ISTIO_INBOUND").count(), usize::from(jump), "{options:?}: {chain}");
    }
    assert!(!pod.sh("nft list ruleset").contains("ISTIO_"));
}

#[test]
fn deeply_nested_foreign_chains_are_no_obstacle() {
    let pod = Pod::new();
    let deepest = 5_000;
    let mut rules = String::from("*nat\n");
    (0..=deepest).for_each(|number| rules += &format!(":DEEP{number} - [0:0]\n"));
    rules += "-A OUTPUT -j DEEP0\n";
    (0..deepest).for_each(|number| rules += &format!("-A DEEP{number} -j DEEP{}\n", number + 1));
    fs::write(pod.path("deep"), rules + "COMMIT\n").unwrap();
    pod.sh(&format!("iptables-legacy-restore --noflush < {}", pod.path("deep").display()));
    let named = "-A OUTPUT -j DEEP0`: packets that it hands to DEEP0 (";
    for _ in 0..2 {
        pod.istio(&SIDECAR)
            .good()
            .stderr_contains(named)
            .stderr_contains("chains nested more than 100 deep")
            .stderr_contains("may not be captured");
    }
    pod.istio(&["cleanup"]).good();
}

#[test]
fn foreign_table_unreadable_by_iptables_nft_is_ignored() {
    let pod = Pod::new();
    pod.sh("nft add table ip mangle; nft add chain ip mangle mine; nft add rule ip mangle mine fib daddr type local accept");
    for _ in 0..2 {
        pod.istio(&SIDECAR).good();
    }
    pod.istio(&["cleanup"]).good();
    assert!(pod.sh("nft list table ip mangle").contains("fib daddr"));
}

#[test]
fn a_save_tool_that_fails_leaves_everything_as_it_was() {
    for script in ["echo no >&2; exit 1", "echo '*nat'; kill -9 $$"] {
        let pod = Pod::new();
        let options = ["--backend", "iptables-legacy"];
        pod.istio(&[&SIDECAR[..], &options].concat()).good();
        only_the_tool_reads(&pod);
        let before = pod.rules();
        pod.program("bin", "iptables-legacy-save", script);
        pod.istio(&["-b", "80"])
            .search(&[&pod.path("bin"), Path::new(USUAL)])
            .end()
            .exits(70)
            .stderr_contains("iptables-legacy-save")
            .stderr_contains("what to do: ");
        assert_eq!(pod.rules(), before);
    }
}

/// Adds a rule of another program to both families that is not read from the kernel.
fn only_the_tool_reads(pod: &Pod) {
    for family in ["ip", "ip6"] {
        pod.sh(&format!("{family}tables-legacy -t nat -A POSTROUTING -m limit --limit 1/second -j LOG"));
    }
}

/// Rules are read from the kernel: what the tool prints depends on its version.
#[test]
fn the_save_tool_is_not_asked() {
    for backend in ["iptables-nft", "iptables-legacy"] {
        let pod = Pod::new();
        pod.program("bin", &format!("{backend}-save"), "echo no >&2; exit 1");
        let options = [&SIDECAR[..], &["--backend", backend]].concat();
        let search = [pod.path("bin"), Path::new(USUAL).to_path_buf()];
        let search = search.each_ref().map(|path| path.as_path());
        pod.istio(&options).search(&search).good().stderr_contains("done: ");
        pod.istio(&options).search(&search).good().stderr_contains("already converged");
        pod.istio(&["-b", "80"]).search(&search).good().stderr_contains("done: ");
        pod.istio(&["check"]).search(&search).good();
        pod.istio(&["explain", "--live"]).search(&search).good();
        // Of iptables-legacy, the tool has the counters.
        if backend == "iptables-nft" {
            pod.istio(&["show"]).search(&search).good();
        }
        pod.istio(&["cleanup"]).search(&search).good().stderr_contains("no rules in place");
    }
}

/// A save tool whose output ends in the middle: it prints this many of the lines that the real one prints,
/// and ends as if all was well.
fn cut_save_tool(pod: &Pod, tool: &str, lines: &str) {
    pod.program("bin", tool, &format!("/usr/sbin/{tool} \"$@\" | head -n {lines}"));
}

#[test]
fn incomplete_output_of_a_save_tool_is_refused() {
    for family in ["ip", "ip6"] {
        // Without the COMMIT of the last table, and without the rules of the first one.
        for lines in ["-2", "4"] {
            let pod = Pod::dual();
            let options = [&SIDECAR[..], &["--dual-stack", "--backend", "iptables-legacy"]].concat();
            pod.istio(&options).good();
            only_the_tool_reads(&pod);
            let before = pod.rules();
            let tool = format!("{family}tables-legacy-save");
            cut_save_tool(&pod, &tool, lines);
            let file = pod.path("saved");
            pod.sh(&format!("{}/{tool} > {}", pod.path("bin").display(), file.display()));
            let saved = fs::read_to_string(&file).unwrap();
            assert!(saved.contains("*nat\n") && !saved.ends_with("COMMIT\n"), "{saved}");
            for args in
                [&options[..], &["-b", "80"], &["cleanup"], &["check"], &["show"], &["-b", "80", "--dry-run"]]
            {
                let ended = pod.istio(args).search(&[&pod.path("bin"), Path::new(USUAL)]).end();
                ended
                    .exits(70)
                    .stderr_contains(&format!("{tool}` printed an incomplete list: `*nat` has no COMMIT"));
                assert_eq!(pod.rules(), before, "{args:?}");
            }
            let live = "explain --live --to 10.0.0.1:80".split(' ').collect::<Vec<_>>();
            let ended = pod.istio(&live).search(&[&pod.path("bin"), Path::new(USUAL)]).end();
            ended.exits(70).stderr_contains("printed an incomplete list");
        }
    }
}

#[test]
fn foreign_rules_that_cannot_be_read_are_reported() {
    let pod = Pod::new();
    pod.sh("iptables-legacy -t nat -A OUTPUT -p tcp --dport 25 -j ACCEPT");
    only_the_tool_reads(&pod);
    cut_save_tool(&pod, "iptables-legacy-save", "-2");
    let options = [&SIDECAR[..], &["--backend", "iptables-legacy"]].concat();
    let ended = pod.istio(&options).search(&[&pod.path("bin"), Path::new(USUAL)]).end();
    ended
        .exits(0)
        .stderr_contains("foreign IPv4 rules of iptables-legacy cannot be read")
        .stderr_contains("has no COMMIT");
    pod.istio(&options).good().stderr_contains("a foreign rule decides before ours");
}
