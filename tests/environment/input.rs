//! Values that cannot be followed: all are named, and nothing is applied.

use crate::pod::{Pod, SIDECAR};

#[test]
fn all_errors_are_reported_at_once() {
    let pod = Pod::new();
    let before = pod.state();
    let ended = pod
        .istio(&["-b", "80,http,99999", "-i", "10.0.0.1", "-m", "tproxi", "-u", "envoy", "-c", "a/b"])
        .env("INBOUND_CAPTURE_PORT", "x")
        .env("PROBE_TIMEOUT", "soon")
        .end()
        .exits(64)
        .stderr_contains("8 bad options");
    for wrong in [
        "\"http\"",
        "\"99999\"",
        "\"10.0.0.1\"",
        "10.0.0.1/32",
        "tproxi",
        "\"envoy\"",
        "\"a/b\"",
        "INBOUND_CAPTURE_PORT",
        "PROBE_TIMEOUT",
    ] {
        assert!(ended.stderr.contains(wrong), "{wrong} is not named: {ended}");
    }
    assert_eq!(pod.state(), before);
}

#[test]
fn long_differences_are_truncated() {
    let ended =
        Pod::new().istio(&["-b", &"x,".repeat(10_000)]).end().exits(64).stderr_contains("10000 bad options");
    assert_eq!(ended.stderr.matches("\"x\" is not accepted").count(), 50);
    assert!(ended.stderr.contains("and 9950 more"), "{ended}");
}

#[test]
fn a_value_never_becomes_a_part_of_a_rule() {
    let pod = Pod::new();
    let before = pod.state();
    let attacks: [&[&str]; 12] = [
        &["-b", "80 -s 10.0.0.0/8"],
        &["-o", "25 -d 1.2.3.4"],
        &["-b", "80 -j RETURN\n-A OUTPUT -p tcp --dport 9999"],
        &["-i", "10.0.0.0/8 -j ACCEPT"],
        &["-x", "10.0.0.0/8\nCOMMIT\n*filter\n-A INPUT -j DROP"],
        &["-c", "eth0 -j ACCEPT"],
        &["-c", "eth0\n-F"],
        &["-c", "$(reboot)"],
        &["-k", "e\"x"],
        &["-u", "1337 -j ACCEPT"],
        &["-p", "15001-15010"],
        &["-m", "TPROXY", "-t", "1337/0x1"],
    ];
    for attack in attacks {
        pod.istio(attack).end().exits(64).stderr_contains("bad option");
    }
    for (name, value) in [
        ("ISTIO_OUTBOUND_OWNER_GROUPS", "root -j ACCEPT"),
        ("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", "root\n-A OUTPUT -j DROP"),
        ("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "127.0.0.1/32 -j ACCEPT"),
        ("ISTIO_INBOUND_PORTS", "80\n-A OUTPUT -j DROP"),
    ] {
        pod.istio(&SIDECAR[2..]).env(name, value).end().exits(64).stderr_contains(name);
    }
    assert_eq!(pod.state(), before);
}

#[test]
fn unparsable_dry_run_variable_applies_nothing() {
    let pod = Pod::new();
    let before = pod.state();
    pod.istio(&SIDECAR)
        .env("DRY_RUN", "maybe")
        .end()
        .exits(64)
        .stderr_contains("DRY_RUN")
        .stderr_contains("maybe");
    assert_eq!(pod.state(), before);
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    let pod = Pod::new();
    let before = pod.state();
    for command in
        ["\"$BIN\" -b \"$(printf '80\\377')\"", "ISTIO_INBOUND_PORTS=\"$(printf '80\\377')\" \"$BIN\""]
    {
        let code = pod.sh(&format!(
            "code=0; {{ {command}; }} 2>$DIR/err || code=$?; echo $code; ! grep -i panic $DIR/err"
        ));
        assert_eq!(code, "64\n", "{command}");
    }
    assert_eq!(pod.state(), before);
}

#[test]
fn unrelated_pod_variables_are_ignored() {
    let pod = Pod::new();
    pod.istio(&SIDECAR)
        .env("CONFIG", "x")
        .env("OUTPUT", "x")
        .env("BACKEND", "x")
        .env("VERIFY", "maybe")
        .env("ENVOY_PORT", "x")
        .good();
}

#[test]
fn unreadable_or_invalid_config_file_applies_nothing() {
    let pod = Pod::new();
    let before = pod.state();
    for text in ["{\"istio-inbound-portz\": \"*\"}", "{", "[]", "{\"dry-run\": \"maybe\"}", "\u{0}"] {
        pod.istio(&["--config", "-"]).input(text).end().exits(64);
    }
    pod.istio(&["--config", "/does/not/exist"]).end().exits(64).stderr_contains("/does/not/exist");
    pod.istio(&["--config", "/"]).end().exits(64).stderr_contains("config file /");
    assert_eq!(pod.state(), before);
}

#[test]
fn istio_command_line_is_accepted() {
    let pod = Pod::new();
    pod.istio(&[
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
    ])
    .good();
    let istios = pod.rules();
    let plain = Pod::new();
    plain.istio(&[&["apply"], &SIDECAR[..]].concat()).good();
    assert_eq!(plain.rules(), istios);
    pod.istio(&["istio-iptables", "cleanup"]).good();
    assert!(!pod.rules().contains("ISTIO"));
    pod.istio(&["istio-iptables", "--cleanup-only"]).good();
}

#[test]
fn cleanup_of_empty_namespace_changes_nothing_and_is_repeatable() {
    let pod = Pod::dual();
    let fresh = pod.state();
    for options in [&["cleanup"][..], &["--cleanup-only", "--dual-stack", "-m", "TPROXY", "-b", "*"]] {
        pod.istio(options).good();
        assert_eq!(pod.state(), fresh);
    }
    let fresh = pod.rules();
    pod.istio(&[&SIDECAR[..], &["-m", "TPROXY", "--dual-stack"]].concat()).good();
    assert_ne!(pod.rules(), fresh);
    for _ in 0..2 {
        pod.istio(&["--cleanup-only", "-b", "80"]).good();
        assert_eq!(pod.rules(), fresh);
    }
}

#[test]
fn forcing_writes_although_nothing_differs() {
    for variant in ["nft", "legacy"] {
        let pod = Pod::new();
        let options = [&SIDECAR[..], &["--force-iptables-binary", variant]].concat();
        pod.istio(&options).good();
        let before = pod.rules();
        pod.istio(&[&options[..], &["--force-apply", "--verify"]].concat())
            .good()
            .stderr_contains("Writing following contents")
            .stderr_lacks("already converged");
        assert_eq!(pod.rules(), before);
    }
}

#[test]
fn skip_rule_apply_changes_nothing() {
    let pod = Pod::new();
    let before = pod.state();
    pod.istio(&[&SIDECAR[..], &["--skip-rule-apply"]].concat())
        .good()
        .stderr_contains("rules are not changed");
    assert_eq!(pod.state(), before);
}

#[test]
fn unusual_process_attributes_are_ignored() {
    for oddity in [
        "export FOO=\"$(printf 'a\\377')\"",
        "mkdir $DIR/gone; cd $DIR/gone; rmdir $DIR/gone",
        "ulimit -n 12",
        "umask 777",
        "export LANG=xx_XX.UTF-8 LC_ALL=xx",
        "exec </dev/full",
        "unset PATH",
        "export PATH=relative::$PATH",
        "export TMPDIR=",
        "export RUST_LOG=trace RUST_BACKTRACE=full",
    ] {
        let pod = Pod::new();
        pod.sh(&format!("{oddity}; \"$BIN\" -b '*' -i '*' 2>$DIR/err || {{ cat $DIR/err >&2; exit 1; }}"));
        assert!(pod.rules().contains("-A OUTPUT -j ISTIO_OUTPUT"), "{oddity}");
    }
}

#[test]
fn non_utf8_name_does_not_hide_other_names() {
    let files = "mkdir $DIR/etc; printf 'j:x:7:7:J\\374rgen:/:/bin/sh\\nistio-proxy:x:2000:2000::/:\\n' > $DIR/etc/passwd; \
         printf 'gr\\374n:x:8:\\njava:x:9:\\n' > $DIR/etc/group; \
         printf '# \\374ber\\nnameserver 10.9.9.9\\n' > $DIR/etc/resolv.conf; \
         for f in passwd group resolv.conf; do mount --bind $DIR/etc/$f /etc/$f; done";
    let pod = Pod::with(&format!("{}; {files}", crate::pod::V4));
    pod.istio(&["-b", "*", "-i", "*", "--redirect-dns"]).env("ISTIO_OUTBOUND_OWNER_GROUPS", "java").good();
    let state = pod.state();
    for rule in ["--uid-owner 2000 -j RETURN", "! --gid-owner 9 -j RETURN", "-d 10.9.9.9/32"] {
        assert!(state.contains(rule), "{rule}: {state}");
    }
}

#[test]
fn a_config_file_without_end_is_refused() {
    let pod = Pod::new();
    pod.istio(&["--config", "/dev/zero"]).end().exits(64).stderr_contains("larger than 64 MiB");
}

#[test]
fn config_pipe_without_writer_is_refused_and_one_with_a_late_writer_is_read() {
    let pod = Pod::new();
    let before = pod.state();
    pod.sh("mkfifo $DIR/silent $DIR/late");
    let (silent, late) = (pod.path("silent"), pod.path("late"));
    let runs = ["--config", silent.to_str().unwrap()];
    pod.istio(&runs).end().exits(64).stderr_contains("silent").stderr_contains("nothing arrived for 10 s");
    let code = pod.sh("exec 3<>$DIR/silent; code=0; \"$BIN\" --config - <&3 2>$DIR/err || code=$?; echo $code; cat $DIR/err");
    assert!(code.starts_with("64") && code.contains("nothing arrived for 10 s"), "{code}");
    assert_eq!(pod.state(), before);
    pod.sh("{ sleep 1; echo '{\"istio-inbound-ports\": \"80\"}' > $DIR/late; } >/dev/null 2>&1 &");
    pod.istio(&["--config", late.to_str().unwrap()]).good();
    assert!(pod.rules().contains("--dport 80"));
}
