//! Fewer rights than expected.

use std::process::{Command, Output};

use netlab::{Holder, Kinds};

use crate::pod::{BUILT, Pod, SIDECAR};
use crate::rollback::limited_tool;

const NFT: &str = "nft";
const LEGACY: &str = "legacy";

/// What to do about missing privileges: one sentence, whichever call finds that they are missing.
const GRANT: &str =
    "run as root (sudo); in a container: securityContext.capabilities.add: [NET_ADMIN] and runAsUser: 0";

fn forced(variant: &str) -> Vec<&str> {
    [&SIDECAR[..], &["--force-iptables-binary", variant]].concat()
}

#[test]
fn missing_net_admin_is_reported() {
    let pod = Pod::new();
    for variant in [NFT, LEGACY] {
        let before = pod.state();
        pod.istio(&forced(variant))
            .under(&["setpriv", "--bounding-set=-net_admin", "--inh-caps=-all"])
            .end()
            .exits(77)
            .stderr_contains("NET_ADMIN")
            .stderr_contains(GRANT);
        assert_eq!(pod.state(), before);
    }
}

#[test]
fn missing_capability_is_reported_for_every_action() {
    let pod = Pod::new();
    let before = pod.state();
    for action in ["apply", "cleanup"] {
        pod.istio(&[action])
            .under(&["setpriv", "--bounding-set=-all", "--inh-caps=-all"])
            .end()
            .exits(77)
            .stderr_contains("NET_ADMIN");
    }
    assert_eq!(pod.state(), before);
}

#[test]
fn non_root_user_gets_run_as_root_hint() {
    let pod = Pod::new();
    let before = pod.state();
    for variant in [NFT, LEGACY] {
        pod.istio(&forced(variant))
            .under(&["setpriv", "--reuid=1337", "--regid=1337", "--clear-groups"])
            .end()
            .exits(77)
            .stderr_contains("NET_ADMIN")
            .stderr_contains(GRANT);
    }
    assert_eq!(pod.state(), before);
}

#[test]
fn net_admin_alone_is_enough_for_nft() {
    let pod = Pod::dual();
    let only_net_admin = ["setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all"];
    let options =
        [&SIDECAR[..], &["--dual-stack", "-m", "TPROXY", "--redirect-dns", "--capture-all-dns"]].concat();
    pod.istio(&options).under(&only_net_admin).good().stderr_contains("backend iptables-nft");
    assert!(pod.rules().contains("-A PREROUTING -p tcp -j ISTIO_INBOUND"));
    pod.istio(&options).under(&only_net_admin).good().stderr_contains("already converged");
    pod.istio(&["cleanup"]).under(&only_net_admin).good();
    assert!(!pod.rules().contains("ISTIO"), "{}", pod.rules());
}

#[test]
fn legacy_without_net_raw_reports_missing_capability() {
    let pod = Pod::new();
    let before = pod.rules();
    pod.istio(&forced(LEGACY))
        .under(&["setpriv", "--bounding-set=-all,+net_admin", "--inh-caps=-all"])
        .end()
        .exits(77)
        .stderr_contains("NET_RAW");
    assert_eq!(pod.rules(), before);
}

#[test]
fn legacy_with_net_admin_and_net_raw_works() {
    let pod = Pod::new();
    pod.istio(&forced(LEGACY))
        .under(&["setpriv", "--bounding-set=-all,+net_admin,+net_raw", "--inh-caps=-all"])
        .good();
    assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"));
}

#[test]
fn legacy_as_a_user_outside_roots_group_applies_and_validates() {
    let pod = Pod::new();
    // Such a user may neither list legacy tables nor become the proxy's: the rules are compared.
    let unprivileged = [
        "setpriv",
        "--reuid=1000",
        "--regid=1000",
        "--clear-groups",
        "--inh-caps=-all,+net_admin,+net_raw",
        "--ambient-caps=-all,+net_admin,+net_raw",
    ];
    let options = [&forced(LEGACY)[..], &["--run-validation"]].concat();
    pod.istio(&options)
        .under(&unprivileged)
        .good()
        .stderr_contains("the rules are compared")
        .stderr_contains("validation passed");
    pod.istio(&options)
        .under(&unprivileged)
        .good()
        .stderr_contains("already converged")
        .stderr_contains("validation passed");
    let only = [&options[..], &["--skip-rule-apply"]].concat();
    // The record says that the tables are there: they can be read by name.
    pod.istio(&only).under(&unprivileged).good().stderr_contains("validation passed");
    pod.sh("ip link set lo alias ''");
    pod.istio(&only).under(&unprivileged).end().exits(126).stderr_contains("runAsGroup: 0");
}

/// A user namespace, and one with its own network.
const USER: Kinds = Kinds { user: true, net: false, mount: false };
const USER_AND_NET: Kinds = Kinds { net: true, ..USER };

/// Runs a script as root of a user namespace, unmapped outside.
fn in_a_user_namespace(kinds: Kinds, script: &str) -> Output {
    let holder = Holder::new(kinds, "", [("", ""); 0]);
    holder.enter().args(["sh", "-euc", script]).env("BIN", &*BUILT).output().unwrap()
}

/// Applies twice and cleans up. Returns the rules after the first run.
fn apply_twice_and_clean_up(kinds: Kinds, options: &str) -> String {
    let script = format!(
        "ip link set lo up; ip addr add 10.4.4.4/32 dev lo; \"$BIN\" {options}; \
         iptables-nft-save; iptables-legacy-save 2>/dev/null || :; \"$BIN\" {options}; \"$BIN\" cleanup; \
         echo; iptables-nft-save; iptables-legacy-save 2>/dev/null || :"
    );
    let output = if kinds == USER {
        // As container runtimes do it: first the ids are mapped, then the network is made.
        in_a_user_namespace(kinds, &format!("exec unshare --net sh -euc '{}'", script.replace('\'', "'\\''")))
    } else {
        in_a_user_namespace(kinds, &script)
    };
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    assert!(errors.contains("already converged"), "{errors}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let (applied, cleaned) = printed.split_once("\n\n").unwrap();
    assert!(!cleaned.contains("ISTIO"), "{cleaned}");
    applied.to_owned()
}

#[test]
fn in_a_user_namespace_nft_works_with_hundreds_of_rules() {
    let applied = apply_twice_and_clean_up(USER, &format!("-b \"*\" -i \"*\" -o {}", ports(200)));
    assert_eq!(applied.matches("--dport 20").count(), 400);
}

fn ports(number: u16) -> String {
    let ports: Vec<String> = (0..number).map(|port| (20_000 + port).to_string()).collect();
    ports.join(",")
}

/// Runs a script in a network namespace as container runtimes make it: first the ids are mapped, then the
/// network is made.
fn in_a_pod_with_its_own_users(script: &str) -> (String, String) {
    let script = format!("ip link set lo up; ip addr add 10.4.4.4/32 dev lo; {script}; :");
    let output =
        in_a_user_namespace(USER, &format!("exec unshare --net sh -uc '{}'", script.replace('\'', "'\\''")));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{output:?}");
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn in_a_user_namespace_a_fresh_rule_set_of_any_length_is_written_in_parts() {
    for lists in [format!("-o {0} -d {0}", ports(200)), format!("-o {}", ports(3000))] {
        let run = format!("\"$BIN\" -b \"*\" -i \"*\" {lists}");
        let (printed, errors) = in_a_pod_with_its_own_users(&format!(
            "{run} --verify; {run}; iptables-nft-save -t nat | grep -c -e dport; \"$BIN\" cleanup; iptables-nft-save | grep -c ISTIO"
        ));
        assert!(errors.contains("already converged"), "{errors}");
        let rules = if lists.contains("-d") { 603 } else { 6003 };
        assert_eq!(printed, format!("{rules}\n0\n"), "{errors}");
        // Nothing is captured before everything is there.
        let written = errors.split("Writing following contents").nth(1).unwrap();
        let hooked = written.find("-A OUTPUT -j ISTIO_OUTPUT").unwrap();
        assert!(hooked > written.rfind("-A ISTIO_").unwrap(), "{written}");
    }
}

#[test]
fn in_a_user_namespace_native_nftables_and_legacy_write_and_change_lists_of_any_length() {
    for backend in ["nftables", "iptables-legacy"] {
        for lists in [format!("-o {0} -d {0}", ports(200)), format!("-o {}", ports(3000))] {
            let run = format!("\"$BIN\" -b \"*\" -i \"*\" --backend {backend}");
            let (printed, errors) = in_a_pod_with_its_own_users(&format!(
                "{run} {lists} --verify; echo $?; {run} {lists}; {run} {lists},9,10 --verify; echo $?; {run}; echo $?; \
                 \"$BIN\" cleanup; echo $?; nft list tables | grep istio; iptables-legacy-save | grep -c ISTIO"
            ));
            assert_eq!(printed, "0\n0\n0\n0\n0\n", "{backend}: {errors}");
            assert!(errors.contains("already converged"), "{backend}: {errors}");
        }
    }
}

#[test]
fn in_a_user_namespace_a_fresh_rule_set_that_was_interrupted_is_completed() {
    let run = format!("\"$BIN\" -b \"*\" -i \"*\" -o {}", ports(400));
    let (printed, errors) = in_a_pod_with_its_own_users(&format!(
        "{run} --dry-run 2>/dev/null | sed -n \"/^\\*nat/,/^COMMIT/p\" | awk \"{{print}} /^COMMIT/{{if(++n==3)exit}}\" > /tmp/part.$$; \
         iptables-nft-restore --noflush < /tmp/part.$$; rm /tmp/part.$$; iptables-nft-save | grep -c -e \"-A ISTIO_OUTPUT\"; \
         iptables-nft-save | grep -c -e \"-A OUTPUT\"; {run} --verify; iptables-nft-save | grep -c dport; {run}"
    ));
    assert_eq!(printed, "396\n0\n803\n", "{errors}");
    assert!(errors.contains("already converged"), "{errors}");
}

#[test]
fn in_a_user_namespace_a_change_too_long_for_one_message_is_explained_and_legacy_takes_it() {
    let change = |backend: &str| {
        format!(
            "\"$BIN\" -b 80 -o {0} {backend}; \"$BIN\" -b 80 -o 25,{0} {backend}; echo $?; \
             iptables-nft-save -t nat | grep -c dport; iptables-legacy-save -t nat | grep -c dport",
            ports(3000)
        )
    };
    let (printed, errors) = in_a_pod_with_its_own_users(&change(""));
    assert_eq!(printed, "70\n6004\n0\n", "{errors}");
    assert!(errors.contains("net.core.wmem_max") && errors.contains("--backend iptables-legacy"), "{errors}");
    let (printed, errors) = in_a_pod_with_its_own_users(&change("--backend iptables-legacy"));
    assert_eq!(printed, "0\n0\n6006\n", "{errors}");
}

#[test]
fn in_a_user_namespace_entries_of_the_previous_rules_are_deleted() {
    for backend in ["iptables-nft", "iptables-legacy"] {
        let dns = format!(
            "\\\"$BIN\\\" --backend {backend} --ip-family ipv4 -i \\\"*\\\" --redirect-dns --capture-all-dns"
        );
        let query = "logger --udp --server 127.0.0.1 --port 53 query";
        let script = format!(
            "exec unshare --net sh -euc \"ip link set lo up; {dns} -o 53; {query}; \
             cat /proc/sys/net/netfilter/nf_conntrack_count; {dns}; cat /proc/sys/net/netfilter/nf_conntrack_count\""
        );
        let output = in_a_user_namespace(USER, &script);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // One entry before the second run; neither that nor a note after it.
        assert_eq!(String::from_utf8_lossy(&output.stdout), "1\n0\n", "{errors}");
        let done = "1 deleted: conntrack entries of UDP to port 53 (IPv4, not captured before); \
                    0 to be replaced at the next SYN after the connection has ended: conntrack entries of TCP (IPv4)";
        assert!(errors.contains(done), "{errors}");
        assert!(!errors.contains("ctnetlink"), "{errors}");
    }
}

#[test]
fn in_a_user_namespace_legacy_works_though_it_may_not_lock_run() {
    let applied = apply_twice_and_clean_up(USER, "-b \"*\" -i \"*\" --force-iptables-binary legacy");
    assert!(applied.contains("-A OUTPUT -j ISTIO_OUTPUT"), "{applied}");
}

#[test]
fn in_a_user_namespace_that_may_not_list_legacy_tables_both_variants_work() {
    // As `unshare -Urn` makes it: what /proc shows of the network belongs to root outside.
    let applied = apply_twice_and_clean_up(USER_AND_NET, "-b \"*\" -i \"*\"");
    assert!(applied.contains("-A OUTPUT -j ISTIO_OUTPUT"), "{applied}");
    let legacy = "\"$BIN\" -b 80 --force-iptables-binary legacy";
    let output = in_a_user_namespace(
        USER_AND_NET,
        &format!(
            "{legacy}; iptables-legacy-save -t nat; {legacy} --verify; {legacy} --cleanup-only; echo; iptables-legacy-save -t nat"
        ),
    );
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.contains("already converged"), "{errors}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let (applied, cleaned) = printed.split_once("\n\n").unwrap();
    assert!(applied.contains("-A OUTPUT -j ISTIO_OUTPUT") && !cleaned.contains("ISTIO"), "{printed}");
}

#[test]
fn dry_run_creates_no_legacy_table() {
    let output = in_a_user_namespace(USER_AND_NET, "\"$BIN\" -b 80 --force-iptables-binary legacy --dry-run");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && printed.contains("reading them by name would create them"),
        "{printed}"
    );
}

#[test]
fn in_a_user_namespace_unmapped_proxy_uid_is_reported_and_nothing_is_left() {
    let built = &*BUILT;
    for (backend, variant) in [("iptables-nft", NFT), ("iptables-legacy", LEGACY), ("nftables", NFT)] {
        let script = format!(
            "ip link set lo up; code=0; {built} -b '*' -i '*' -m TPROXY --backend {backend} || code=$?; \
             nft list ruleset | grep -i istio; iptables-{variant}-save | grep -i -e istio -e 1337; \
             for f in -4 -6; do ip $f rule | grep 1337; ip $f route show table 133; done 2>/dev/null; \
             ip addr show lo | grep ::6; ip -d link show lo | grep alias; exit $code"
        );
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net", "sh", "-c", &script])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(70), "{errors}");
        assert!(
            errors.contains("uid 1337 is not mapped") && errors.contains("/proc/self/uid_map"),
            "{errors}"
        );
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{backend}: {errors}");
    }
}

#[test]
fn in_a_user_namespace_failed_first_run_with_long_lists_leaves_nothing() {
    let pod = Pod::new();
    let dir = pod.path("").display().to_string();
    pod.program("bin", "iptables-nft-restore", &limited_tool(&dir, "iptables-nft-restore"));
    let ports: Vec<String> = (2000..2600).map(|port| port.to_string()).collect();
    for good in [0, 1, 3] {
        let script = format!(
            "echo {good} > {dir}/left; rm -f {dir}/refused; ip link set lo up; ip addr add 10.4.4.4/32 dev lo; \
             code=0; PATH={dir}/bin:$PATH \"$BIN\" -b {} -i '*' || code=$?; nft list ruleset | grep -i istio; exit $code",
            ports.join(",")
        );
        let script = format!("exec unshare --net sh -uc '{}'", script.replace('\'', "'\\''"));
        let output = in_a_user_namespace(USER, &script);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(70), "{errors}");
        assert!(errors.contains("refused by the test"), "{errors}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "", "after {good} commits: {errors}");
    }
}

#[test]
fn a_container_that_may_not_gain_privileges_works() {
    for variant in [NFT, LEGACY] {
        let pod = Pod::new();
        pod.istio(&forced(variant))
            .under(&[
                "setpriv",
                "--no-new-privs",
                "--bounding-set=-all,+net_admin,+net_raw",
                "--inh-caps=-all",
            ])
            .good();
        assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"), "{variant}");
    }
}
