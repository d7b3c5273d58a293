//! Odd input that Istio accepts or reads in its own way: where we follow it.

use super::*;

#[test]
fn empty_boolean_flag_is_refused() {
    for (flag, name) in [
        ("--dry-run=", "--dry-run (-n)"),
        ("--cleanup-only=", "--cleanup-only"),
        ("--log_as_json=", "--log_as_json"),
    ] {
        let errors = errors_of(&[flag], &[]);
        assert!(
            errors[0].starts_with(&format!("{name}: \"\" is not accepted, expected true or false")),
            "{errors:?}"
        );
    }
    // An empty variable is one that a template left empty: unset.
    assert!(!resolved_of(&[], &["DRY_RUN="]).run.dry_run);
}

#[test]
fn target_without_value_is_refused() {
    for (flag, accepted) in [
        ("--pid=", "--pid: \"\" is not accepted, expected the number of a process"),
        (
            "--network-namespace=",
            "--network-namespace: \"\" is not accepted, expected the path of a network namespace",
        ),
    ] {
        let errors = errors_of(&[flag], &[]);
        assert!(errors[0].starts_with(accepted), "{errors:?}");
    }
    assert_eq!(resolved_of(&[], &["NETWORK_NAMESPACE="]).run.network_namespace, None);
}

#[test]
fn loopback_is_decided_by_the_address_as_written() {
    for (range, expected) in [
        ("127.9.9.9/7", true),
        ("126.0.0.0/7", false),
        ("::1/0", true),
        ("::/0", false),
        ("127.0.0.0/8", true),
        ("10.0.0.0/8,::1/128", true),
        ("10.0.0.0/8", false),
    ] {
        assert_eq!(intent(&["-i", range]).traffic.outbound.loopback, expected, "{range}");
    }
    // Only what is included counts.
    assert!(!intent(&["-i", "*", "-x", "127.0.0.0/8"]).traffic.outbound.loopback);
}

#[test]
fn empty_envoy_user_matches_no_user() {
    let uids = |variables: &[&str]| resolved_of(&[], variables).intent.traffic.proxy.uids;
    assert_eq!(uids(&[]), [1234]);
    assert_eq!(uids(&["ENVOY_USER=envoy"]), [555]);
    assert_eq!(uids(&["ENVOY_USER="]), [1337]);
}

#[test]
fn blanks_around_values_and_items_are_dropped() {
    let spaced =
        intent(&["-m", "TPROXY ", "-i", "10.0.0.0/8, 192.168.0.0/16", "-b", " 80 ,\t81", "-u", " 5"]);
    assert_eq!(
        spaced,
        intent(&["-m", "TPROXY", "-i", "10.0.0.0/8,192.168.0.0/16", "-b", "80,81", "-u", "5"])
    );
    assert_eq!(intent(&["-b", " * "]), intent(&["-b", "*"]));
}

#[test]
fn empty_first_variable_leaves_the_decision_to_the_second() {
    for (first, second) in [
        ("ISTIO_META_DNS_CAPTURE=", "REDIRECT_DNS=1"),
        ("ISTIO_DUAL_STACK=", "DUAL_STACK=1"),
        ("INVALID_DROP=", "DROP_INVALID=1"),
    ] {
        assert_eq!(resolved_of(&[], &[first, second]).intent, resolved_of(&[], &[second]).intent, "{first}");
    }
}

#[test]
fn marks_and_tables_that_tproxy_could_not_use_are_a_warning_without_tproxy() {
    for words in [["-t", "0"], ["-t", "1338"], ["-r", "254"], ["-r", "0"]] {
        let warnings = warnings_of(&words, &[]);
        assert!(warnings.len() == 1 && warnings[0].contains("has no effect"), "{warnings:?}");
        let with_tproxy = [&words[..], &["-m", "TPROXY"]].concat();
        assert_eq!(errors_of(&with_tproxy, &[]).len(), 1, "{words:?}");
    }
    // What is not a number was not understood, in either mode.
    assert_eq!(errors_of(&["-r", "edirect-dns"], &[]).len(), 1);
}

#[test]
fn probe_port_may_be_hexadecimal() {
    let port = |text: &str| {
        resolved_of(&["--run-validation"], &[&format!("IPTABLES_PROBE_PORT={text}")])
            .run
            .validation
            .unwrap()
            .port
    };
    assert_eq!(port("0x50"), port("80"));
    for text in ["0x0", "0x10000", "0xg", "0x"] {
        assert_eq!(errors_of(&[], &[&format!("IPTABLES_PROBE_PORT={text}")]).len(), 1, "{text}");
    }
}

#[test]
fn removed_istio_log_flags_are_unknown() {
    for flag in
        ["--log_rotate=x", "--log_rotate_max_age=1", "--log_rotate_max_backups=1", "--log_rotate_max_size=1"]
    {
        let outcome = cli::parse(["istio-iptables", flag].map(OsString::from), [], &mut io::empty(), &|_| {
            Err(io::ErrorKind::NotFound.into())
        });
        let errors = outcome.unwrap_err().errors;
        assert!(errors[0].to_string().contains("unknown option"), "{errors:?}");
    }
    for flag in ["--log_target=x", "--log_caller=x", "--log_stacktrace_level=x", "--vklog=9"] {
        resolved_of(&[flag], &[]);
    }
}
