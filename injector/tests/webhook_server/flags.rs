//! Invalid flags, and addresses in use.

use std::net::TcpListener;

use super::server::{Ca, pair_volume, run_to_end};
use sidecar_injector::cli::{self, Environment, Exit};

fn problems(flags: &str) -> (Exit, Vec<String>) {
    let arguments = ["sidecar-injector", "webhook"].into_iter().chain(flags.split_whitespace());
    let failure = cli::run(arguments.map(Into::into), &Environment::default()).unwrap_err();
    (failure.exit, failure.problems)
}

#[test]
fn invalid_combinations_of_flags_are_all_reported() {
    let cases = [
        ("", vec!["--tls-cert and --tls-key, or --self-signed"]),
        ("--tls-cert a", vec!["--tls-cert needs --tls-key"]),
        ("--tls-key a", vec!["--tls-key needs --tls-cert"]),
        ("--self-signed", vec!["--self-signed needs --service and --namespace"]),
        ("--self-signed --service a --namespace b --tls-cert c", vec!["cannot be used with --tls-cert"]),
        ("--tls-cert a --tls-key b --service c --ca-out d", vec!["--service is for", "--ca-out is for"]),
        (
            "--tls-cert a --tls-key b --watch-configmap a/b --values c --mesh-config d",
            vec!["--values cannot be used with --watch-configmap", "--mesh-config cannot be used with"],
        ),
        ("--tls-cert a --tls-key b --inject-config -", vec!["--inject-config -: standard input"]),
        ("--tls-cert a --tls-key b --webhook-config c", vec!["--webhook-config is for --self-signed"]),
        (
            "--self-signed --service a --namespace b --webhook-config c --ca-managed-externally",
            vec!["--webhook-config cannot be used with --ca-managed-externally"],
        ),
        (
            "--drain-delay 10s --grace 5 --watch-interval 1ms",
            vec!["no certificate", "--drain-delay 10s is longer than --grace 5s", "--watch-interval 1ms"],
        ),
        ("--https-addr 15017", vec!["--https-addr", ":PORT"]),
        ("--watch-configmap istio", vec!["--watch-configmap", "NAMESPACE/NAME"]),
        ("--grace soon", vec!["--grace", "number of seconds"]),
        ("--max-requests 0", vec!["--max-requests", "1..=100000"]),
        ("--cache-mb 8", vec!["unexpected argument '--cache-mb'"]),
    ];
    for (flags, expected) in cases {
        let (exit, problems) = problems(flags);
        assert_eq!(exit, Exit::Usage, "{flags}: {problems:?}");
        let message = problems.join("\n");
        for text in expected {
            assert!(message.contains(text), "{flags}: expected {text:?} in {message}");
        }
    }
}

#[test]
fn names_must_be_valid_in_kubernetes() {
    let long = "a".repeat(300);
    for (flag, value) in [
        ("--service", "A B"),
        ("--service", ""),
        ("--service", &long),
        ("--namespace", "x/y"),
        ("--namespace", ""),
        ("--revision", "Bad Rev"),
        ("--webhook-config", "a b"),
        ("--watch-configmap", "a b/c"),
        ("--watch-configmap", "b/C"),
        ("--watch-configmap", "a/b/c"),
    ] {
        let arguments = ["sidecar-injector", "webhook", "--self-signed", &format!("{flag}={value}")];
        let failure = cli::run(arguments.map(Into::into), &Environment::default()).unwrap_err();
        assert_eq!((failure.exit, failure.problems.len()), (Exit::Usage, 1), "{failure}");
        let message = failure.to_string();
        assert!(
            message.contains(flag) && message.contains(value) && message.contains("of a-z, 0-9"),
            "{message}"
        );
    }
}

#[test]
fn unreadable_files_are_reported() {
    for (flags, expected) in [
        (
            "--tls-cert /nowhere/c --tls-key /proc",
            vec!["--tls-cert /nowhere/c: No such file", "--tls-key /proc: is a directory"],
        ),
        (
            "--self-signed --service a --namespace b --kubeconfig /nowhere/k --values /nowhere/v",
            vec!["--values /nowhere/v: No such", "--kubeconfig /nowhere/k: No such"],
        ),
    ] {
        let (exit, problems) = problems(flags);
        assert_eq!((exit, problems.len()), (Exit::NoInput, expected.len()), "{problems:?}");
        for (problem, expected) in problems.iter().zip(expected) {
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}

#[test]
fn addresses_in_use_are_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let pair = pair_volume(&Ca::new().leaf());
    let flags = ["--https-addr", &address, "--monitoring-addr", &address];
    let (code, output) = run_to_end(&pair, &flags);
    assert_eq!(code, Some(69), "{output}");
    for flag in ["--https-addr", "--monitoring-addr"] {
        let expected = format!("error: {flag}: cannot listen on {address}: Address already in use");
        assert!(output.contains(&expected), "{output}");
    }
}
