//! Options that are accepted with a warning: each option without effect once.

use super::*;

fn without_effect(words: &[&str], variables: &[&str], expected: &[&str]) {
    let warnings = warnings_of(words, variables);
    assert_eq!(warnings.len(), expected.len(), "{words:?} {variables:?}: {warnings:?}");
    for (warning, expected) in warnings.iter().zip(expected) {
        assert!(warning.starts_with(&format!("{expected} has no effect: ")), "{warning}");
    }
}

#[test]
fn options_that_do_nothing_here() {
    for (words, variables, expected) in [
        (&["-d", "80"][..], &[][..], &["--istio-local-exclude-ports (-d)"][..]),
        (&["-b", "80", "-d", "80"], &[], &["--istio-local-exclude-ports (-d)"]),
        (
            &["-t", "5", "-r", "6"],
            &[],
            &["--istio-inbound-tproxy-mark (-t)", "--istio-inbound-tproxy-route-table (-r)"],
        ),
        (&["--capture-all-dns"], &[], &["--capture-all-dns"]),
        (&[], &["CAPTURE_ALL_DNS=true"], &["variable CAPTURE_ALL_DNS"]),
        (&[], &["DRY_RUN_FILE_PATH=/x"], &["variable DRY_RUN_FILE_PATH"]),
        (
            &["--iptables-probe-port=5", "--probe-timeout=9s"],
            &[],
            &["--iptables-probe-port", "--probe-timeout"],
        ),
        (&["--verify", "--skip-rule-apply"], &[], &["--verify"]),
        (&["--force-apply", "--skip-rule-apply"], &[], &["--force-apply"]),
        (&["--rules-file=/x", "--skip-rule-apply"], &[], &["--rules-file"]),
        (&["--keep-connections", "--skip-rule-apply"], &[], &["--keep-connections"]),
        (&["--keep-connections"], &[], &["--keep-connections"]),
        (&["-n"], &["ISTIO_IPTABLES_KEEP_CONNECTIONS=1"], &["variable ISTIO_IPTABLES_KEEP_CONNECTIONS"]),
        (&["--run-validation", "-n"], &[], &["--run-validation"]),
        (&["--verify", "-n"], &[], &["--verify"]),
        (&["--run-validation", "--cleanup-only"], &[], &["--run-validation"]),
        (&["-x", "10.0.0.0/8"], &[], &["--istio-service-exclude-cidr (-x)"]),
        (&["-u", "5"], &["ENVOY_USER=envoy"], &["variable ENVOY_USER"]),
        (
            &[],
            &["ISTIO_OUTBOUND_OWNER_GROUPS=adm", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=4"],
            &["variable ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"],
        ),
    ] {
        without_effect(words, variables, expected);
    }
}

#[test]
fn options_that_have_an_effect_or_ask_for_nothing() {
    for (words, variables) in [
        (&["-b", "*", "-d", "80"][..], &[][..]),
        (&["-m", "TPROXY", "-t", "5", "-r", "6"], &[]),
        (&["-t", "1337", "-r", "133"], &[]),
        (&["--capture-all-dns", "--redirect-dns"], &[]),
        (&["--capture-all-dns=false"], &[]),
        (&["-n"], &["DRY_RUN_FILE_PATH=/x"]),
        (&["--keep-connections", "--cleanup-only"], &[]),
        (&["--keep-connections", "cleanup", "-n"], &[]),
        (&["--keep-connections=false"], &[]),
        (&["--run-validation", "--iptables-probe-port=5"], &[]),
        (&["--iptables-probe-port=15002", "--probe-timeout=5s"], &[]),
        (&["--verify=false", "--skip-rule-apply", "--run-validation"], &[]),
        (&["-q", "80", "-x", "10.0.0.0/8"], &[]),
        (&["-d", "", "-x", ""], &["ENVOY_USER=envoy"]),
        (&["--reconcile"], &[]),
    ] {
        without_effect(words, variables, &[]);
    }
}

#[test]
fn template_options_cause_no_warning() {
    let words = [
        "istio-iptables",
        "-p",
        "15001",
        "-z",
        "15006",
        "-u",
        "1337",
        "-m",
        "REDIRECT",
        "-i",
        "*",
        "-x",
        "",
        "-b",
        "*",
        "-d",
        "15090,15021,15020",
        "--log_output_level=default:info",
        "--log_as_json",
    ];
    assert_eq!(warnings_of(&words, &[]), Vec::<String>::new());
}

#[test]
fn no_probe_where_nothing_is_applied() {
    for words in [["--run-validation", "-n"], ["--run-validation", "--cleanup-only"]] {
        assert_eq!(resolved_of(&words, &[]).run.validation, None, "{words:?}");
    }
}

#[test]
fn host_bits_are_cleared_with_a_warning() {
    assert_eq!(
        warnings_of(&["-i", "10.1.2.3/8,fd00::1/64,10.0.0.0/8"], &[]),
        [
            "--istio-service-cidr (-i): 10.1.2.3/8 has bits set beyond its prefix; 10.0.0.0/8 is used",
            "--istio-service-cidr (-i): fd00::1/64 has bits set beyond its prefix; fd00::/64 is used"
        ]
    );
    assert_eq!(warnings_of(&[], &["ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR=127.0.0.1/8"]).len(), 1);
}

#[test]
fn lists_of_empty_items_count_as_unset() {
    for flag in ["-d", "-i", "-x", "-q", "-o", "-c", "-k"] {
        let warnings = warnings_of(&[flag, " ,,"], &[]);
        assert!(
            warnings.iter().any(|warning| warning.contains("\",,\" has no item and is treated as unset")),
            "{flag}: {warnings:?}"
        );
        assert_eq!(intent(&[flag, ",,"]), intent(&[]), "{flag}");
    }
}

#[test]
fn ports_that_the_proxy_would_use_twice() {
    let dns = "--redirect-dns";
    let probe = ["--run-validation", "--iptables-probe-port"];
    for (words, port, other) in [
        (&["-z", "15001"][..], "--inbound-capture-port (-z): 15001 ", "--envoy-port (-p)"),
        (&["-p", "15006"], "--envoy-port (-p): 15006 ", "--inbound-capture-port (-z)"),
        (&["-z", "15008"], "--inbound-capture-port (-z): 15008 ", "--inbound-tunnel-port (-e)"),
        (&["-p", "15008"], "--envoy-port (-p): 15008 ", "--inbound-tunnel-port (-e)"),
        (&["-e", "15006"], "--inbound-tunnel-port (-e): 15006 ", "--inbound-capture-port (-z)"),
        (&[dns, "-z", "15053"], "--inbound-capture-port (-z): 15053 ", "DNS capture"),
        (&[dns, "-p", "15053"], "--envoy-port (-p): 15053 ", "DNS capture"),
        (&[dns, "-e", "15053"], "--inbound-tunnel-port (-e): 15053 ", "DNS capture"),
        (&[probe[0], probe[1], "15008"], "--iptables-probe-port: 15008 ", "--inbound-tunnel-port (-e)"),
        (&[probe[0], "-e", "15002"], "--inbound-tunnel-port (-e): 15002 ", "--iptables-probe-port"),
    ] {
        let warnings = warnings_of(words, &[]);
        let [warning] = warnings.as_slice() else { panic!("{words:?}: {warnings:?}") };
        assert!(warning.starts_with(port) && warning.contains(other), "{words:?}: {warning}");
    }
    assert_eq!(warnings_of(&["-p", "9", "-z", "9", "-e", "9"], &[]).len(), 3);
    // The probe goes to another loopback address than that of the proxy's listeners.
    for words in [
        &["-z", "15053"][..],
        &[probe[0], probe[1], "15006"],
        &["--run-validation"],
        &[dns],
        &["-p", "1", "-z", "2", "-e", "3"],
    ] {
        assert_eq!(warnings_of(words, &[]), Vec::<String>::new(), "{words:?}");
    }
}

#[test]
fn local_resolver_with_all_dns_captured_is_a_warning() {
    let warnings = |words: &[&str], resolv_conf: &str| {
        let files = Files { resolv_conf: Ok(resolv_conf.to_owned()), ..files() };
        let resolved = resolve(&raw_of(words, &[]), &files).unwrap();
        resolved.warnings.iter().map(Warning::to_string).collect::<Vec<_>>()
    };
    let all = ["--redirect-dns", "--capture-all-dns"];
    for (server, is_local) in [("127.0.0.53", true), ("::1", true), ("10.96.0.10", false)] {
        let said = warnings(&all, &format!("nameserver {server}\n"));
        assert_eq!(
            said.iter().any(|one| one.contains(&format!("the local resolver {server} "))),
            is_local,
            "{said:?}"
        );
        assert_eq!(said.len(), usize::from(is_local), "{said:?}");
        assert_eq!(warnings(&all[..1], &format!("nameserver {server}\n")), Vec::<String>::new());
    }
}
