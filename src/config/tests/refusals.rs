//! Refused options: Istio accepts most of them and then does something else, or fails midway.

use super::*;

/// One wrong option, and the parts of its only error.
fn refused(words: &[&str], expected: &[&str]) {
    let errors = errors_of(words, &[]);
    assert_eq!(errors.len(), 1, "{words:?}: {errors:?}");
    for part in expected {
        assert!(errors[0].contains(part), "{words:?}: {part:?} is not in {:?}", errors[0]);
    }
}

#[test]
fn an_unknown_mode_is_not_redirect() {
    for word in ["TPROXI", "REDIRECT,TPROXY", "0"] {
        refused(&["-m", word], &["--istio-inbound-interception-mode (-m): ", "expected REDIRECT or TPROXY"]);
    }
    refused(&["-m", "NONE"], &["to capture nothing, leave --istio-inbound-ports (-b)"]);
}

#[test]
fn bad_booleans_and_durations_in_variables_are_errors() {
    for (variable, shown) in [
        ("DRY_RUN=maybe", "variable DRY_RUN: \"maybe\" is not accepted, expected true or false"),
        ("ISTIO_META_DNS_CAPTURE=yes", "variable ISTIO_META_DNS_CAPTURE: \"yes\""),
        ("PROBE_TIMEOUT=5", "variable PROBE_TIMEOUT: \"5\" is not accepted, expected a duration above zero"),
        ("PROBE_TIMEOUT=5", "a unit is missing: 5s?"),
        ("INVALID_DROP=on", "variable INVALID_DROP: \"on\""),
    ] {
        let errors = errors_of(&[], &[variable]);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains(shown), "{errors:?}");
    }
    // The bad first name is not passed over for the good second one.
    assert_eq!(errors_of(&[], &["ISTIO_META_DNS_CAPTURE=yes", "REDIRECT_DNS=1"]).len(), 1);
}

#[test]
fn ports_are_plain_numbers() {
    let lists = ["-b", "-d", "-q", "-o"];
    let single = ["-p", "-z", "-e", "--iptables-probe-port"];
    for text in ["8000:8010", "http", "0", "010", "0x50", "65536", "+80", "-1", "80 81", "８０", "1e3"] {
        // The probe's port is read as Go reads it.
        let hexadecimal = |flag: &str| text == "0x50" && flag == "--iptables-probe-port";
        for flag in lists.iter().chain(&single).filter(|flag| !hexadecimal(flag)) {
            refused(&[flag, text], &[flag.trim_start_matches('-'), "a plain port number from 1 to 65535"]);
        }
    }
    refused(&["-p", "15001-15010"], &["ranges are not accepted"]);
    refused(&["-p", "80,81"], &["--envoy-port (-p): \"80,81\""]);
    refused(&["-b", "*,80"], &["\"*\" is not accepted", "must be the only item"]);
    refused(&["-o", "*"], &["--istio-local-outbound-ports-exclude (-o): \"*\""]);
    assert_eq!(errors_of(&[], &["INBOUND_CAPTURE_PORT=x"]).len(), 1);
}

#[test]
fn ids_are_plain_numbers() {
    for text in ["1000-2000", "0x5", "nobody", "05", "4294967295", "4294967296", "-1", "1.0"] {
        for flag in ["-u", "-g"] {
            refused(&[flag, text], &["a decimal number from 0 to 4294967294", text]);
        }
    }
    for text in ["1000-2000", "0x5", "05", "nogroup", "4294967295", "ad*", "-1"] {
        for name in ["ISTIO_OUTBOUND_OWNER_GROUPS", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"] {
            let errors = errors_of(&[], &[&format!("{name}={text}")]);
            assert_eq!(errors.len(), 1, "{text}");
            assert!(errors[0].starts_with(&format!("variable {name}: \"{text}\"")), "{errors:?}");
        }
    }
    assert_eq!(errors_of(&[], &["ISTIO_OUTBOUND_OWNER_GROUPS=*,adm"]).len(), 1);
}

#[test]
fn nothing_is_pasted_into_a_rule() {
    for text in [
        "80 -s 10.0.0.0/8",
        "25 -d 1.2.3.4",
        "80 -j RETURN\n-A OUTPUT -p tcp --dport 9999",
        "80;reboot",
        "$(id)",
    ] {
        for flag in ["-b", "-d", "-q", "-o", "-u", "-g", "-i", "-x", "-c", "-k", "-t", "-r", "-m", "-p"] {
            let errors = errors_of(&[flag, text], &[]);
            assert!(errors.iter().all(|error| !error.contains('\n')), "{errors:?}");
        }
    }
}

#[test]
fn interface_names_that_mean_something_else() {
    for text in ["!eth0", "a/b", "e\"x", "seventeen-letters", "eth 0", "+", "-eth0", "..", "eth0;", "a*"] {
        for flag in ["-c", "-k"] {
            refused(&[flag, text], &["an interface name: 1 to 15 characters"]);
        }
    }
    let given = intent(&["-c", " eth0 ,veth+,eth0", "-k", "vnet0"]);
    let names: Vec<&str> = given.traffic.excluded_interfaces.iter().map(|name| name.as_str()).collect();
    assert_eq!(names, ["eth0", "veth+"]);
}

#[test]
fn marks_that_capture_the_wrong_packets() {
    for (text, hint) in [
        ("0", "mark 0 is that of every unmarked packet"),
        ("0x0", "mark 0 is that of every unmarked packet"),
        ("1338", "1338 marks the proxy's own outbound packets"),
        ("0x53a", "1338 marks the proxy's own outbound packets"),
        ("abc", ""),
        ("0x", ""),
        ("0x+5", ""),
        ("4294967296", ""),
        ("01337", ""),
        ("1337/0xff", ""),
        ("-1", ""),
    ] {
        refused(&["-m", "TPROXY", "-t", text], &["--istio-inbound-tproxy-mark (-t): ", hint]);
    }
}

#[test]
fn tables_of_the_kernel() {
    for text in ["0", "253", "254", "255"] {
        refused(&["-m", "TPROXY", "-r", text], &["(-r): ", "the kernel's own tables"]);
    }
    for text in ["-1", "abc", "4294967296", "0133", "main"] {
        refused(&["-r", text], &["expected a decimal number from 1 to 252 or from 256 to 4294967295"]);
    }
}

#[test]
fn ranges_as_strict_as_go() {
    for (text, hint) in [
        ("10.0.0.1", "10.0.0.1/32"),
        ("fd00::1", "fd00::1/128"),
        ("::ffff:10.0.0.1", "10.0.0.1/32"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::ffff:127.0.0.1/128", "127.0.0.1/32"),
        ("::ffff:0.0.0.0/90", "write the IPv4 range"),
        ("10.0.0.0/33", "from 0 to 32"),
        ("fd00::/129", "from 0 to 128"),
        ("10.0.0.0/08", "from 0 to 32"),
        ("10.0.0.0/+8", "from 0 to 32"),
        ("10.0.0.0/", "from 0 to 32"),
        ("10.0.0.0/8/8", "from 0 to 32"),
        ("10.0.0.0/255.0.0.0", "netmasks are not accepted"),
        ("fe80::%eth0/64", "a zone"),
        ("010.0.0.0/8", "an address range such as"),
        ("10/8", "an address range such as"),
        ("10.0.0.0 /8", "an address range such as"),
        ("example.com", "an address range such as"),
        ("!10.0.0.0/8", "an address range such as"),
    ] {
        for flag in ["-i", "-x"] {
            refused(&[flag, text], &[text, hint]);
        }
    }
    refused(&["-i", "*,10.0.0.0/8"], &["\"*\"", "must be the only item"]);
    refused(&["-x", "*"], &["(-x): \"*\"", "leave --istio-service-cidr (-i)"]);
}

#[test]
fn the_loopback_range_is_a_loopback_range() {
    for (text, hint) in [
        ("", "leave the variable out"),
        ("10.0.0.0/8", "an IPv4 loopback range"),
        ("126.0.0.0/7", "an IPv4 loopback range"),
        ("127.0.0.0/7", "an IPv4 loopback range"),
        ("127.0.0.1", "127.0.0.1/32"),
        ("::1/128", "always ::1/128"),
        ("127.0.0.1/32,127.0.0.2/32", "an IPv4 loopback range"),
        ("*", "an IPv4 loopback range"),
    ] {
        let errors = errors_of(&[], &[&format!("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR={text}")]);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(hint), "{errors:?}");
    }
}

#[test]
fn empty_lists_that_would_break_the_pod() {
    for flag in ["-b", "-u", "-g"] {
        for text in [",", " , ,"] {
            refused(&[flag, text], &["is an empty list"]);
        }
    }
    for text in ["", ",", " "] {
        let errors = errors_of(&[], &[&format!("ISTIO_OUTBOUND_OWNER_GROUPS={text}")]);
        assert_eq!(errors.len(), 1, "{text:?}");
        assert!(errors[0].contains("no outbound traffic would be captured"), "{errors:?}");
    }
}

#[test]
fn more_groups_than_a_rule_takes() {
    for (count, most) in [(50, 49), (64, 49), (65, 64)] {
        let groups: Vec<String> = (1..=count).map(|gid: u32| gid.to_string()).collect();
        let errors = errors_of(&[], &[&format!("ISTIO_OUTBOUND_OWNER_GROUPS={}", groups.join(","))]);
        assert_eq!(errors.len(), 1);
        assert!(errors[0].contains(&format!("{count} items, at most {most} are possible")), "{errors:?}");
    }
    let groups: Vec<String> = (1..=100).map(|gid: u32| gid.to_string()).collect();
    let excluded = format!("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE={}", groups.join(","));
    assert!(resolve(&raw_of(&[], &[&excluded]), &files()).is_ok());
}

#[test]
fn contradictions() {
    for (words, options) in [
        (&["--dual-stack", "--ip-family=ipv4"][..], "--dual-stack and --ip-family: "),
        (&["--dual-stack", "--ip-family=ipv6"], "--dual-stack and --ip-family: "),
        (
            &["--backend=iptables-nft", "--force-iptables-binary=legacy"],
            "--backend and --force-iptables-binary: ",
        ),
        (&["--cleanup-only", "--skip-rule-apply"], "--cleanup-only and --skip-rule-apply: "),
    ] {
        refused(words, &[options]);
    }
    for words in [
        ["--native-nftables", "--force-iptables-binary=nft"],
        ["--native-nftables", "--backend=iptables"],
        ["--backend=nftables", "--force-iptables-binary=nft"],
    ] {
        refused(&words, &["they ask for different backends"]);
    }
}

#[test]
fn words_of_backends_and_families() {
    refused(&["--backend=nft"], &["expected auto, iptables, iptables-nft, iptables-legacy or nftables"]);
    refused(&["--backend=nft"], &["did you mean iptables-nft, or nftables for rules without iptables?"]);
    refused(&["--backend=legacy"], &["did you mean iptables-legacy?"]);
    refused(&["--backend=native"], &["did you mean nftables?"]);
    refused(&["--force-iptables-binary=iptables-nft"], &["did you mean nft?"]);
    refused(&["--force-iptables-binary=iptables-legacy"], &["did you mean legacy?"]);
    refused(&["--ip-family=v4"], &["did you mean ipv4?"]);
    refused(&["--ip-family=6"], &["did you mean ipv6?"]);
    refused(&["--force-iptables-binary=iptables-nft"], &["expected legacy or nft"]);
    refused(&["--ip-family=v4"], &["expected auto, ipv4, ipv6 or dual"]);
}

#[test]
fn paths_and_log_flags() {
    for flag in ["--rules-file", "--network-namespace"] {
        refused(&[flag, "--dry-run"], &[flag, "it looks like a flag: is the value missing in front of it?"]);
    }
    for pid in ["0", "-1", "me", "4294967296"] {
        refused(&["--pid", pid], &["--pid", "the number of a process, from 1 to 2147483647"]);
    }
    refused(&["--pid=1", "--network-namespace=/x"], &["--pid", "each names a network namespace"]);
    refused(&["--log_output_level", "default:loud"], &["--log_output_level: \"default:loud\""]);
    refused(&["--log-format", "xml"], &["expected text or json"]);
    refused(&["-u", "-n"], &["(-u): \"-n\"", "it looks like a flag"]);
}

#[test]
fn everything_wrong_is_reported_at_once() {
    let words =
        ["-p", "0", "-m", "x", "-b", "80,a,b", "-i", "10.0.0.1", "--backend", "nft", "--ip-family", "5"];
    let variables = ["PROBE_TIMEOUT=soon", "ISTIO_OUTBOUND_OWNER_GROUPS=", "DUAL_STACK=2", "PROXY_UID=me"];
    assert_eq!(errors_of(&words, &variables).len(), 11);
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(32))]

    /// Any text gives options or errors, and each error is one line.
    #[test]
    fn any_text_is_accepted_or_refused_in_one_line(text in "(?s).{0,20}", list in "[0-9a-f:./*, x-]{0,20}") {
        for key in cli::Key::ALL.iter().filter(|key| **key != cli::Key::Config) {
            let spec = key.spec();
            for value in [&text, &list] {
                let flag = format!("--{}={value}", spec.name);
                let variable = format!("{}={value}", spec.name);
                let raw = if spec.has_flag() {
                    raw_of(&[&flag], &[])
                } else {
                    raw_of(&[], &[&variable])
                };
                for error in resolve(&raw, &files()).err().unwrap_or_default() {
                    let shown = error.to_string();
                    proptest::prop_assert!(!shown.contains('\n') && shown.contains(spec.name), "{}", shown);
                }
            }
        }
    }
}

#[test]
fn values_that_shells_complete_are_those_that_are_accepted() {
    for key in cli::Key::ALL.iter().filter(|key| !key.spec().words.is_empty()) {
        // A boolean has more spellings.
        let is_boolean = key.spec().kind == cli::Kind::Boolean;
        let spec = key.spec();
        for word in spec.words {
            resolved_of(&[&format!("--{}={word}", spec.name)], &[]);
        }
        let error = errors_of(&[&format!("--{}=neither", spec.name)], &[]).remove(0);
        let (_, expected) = error.split_once("expected ").unwrap();
        let listed = expected.split_once(" levels ").map_or(expected, |(_, levels)| levels);
        let listed = listed.split([',', ' ']).filter(|word| !["", "or", "and"].contains(word));
        let (mut listed, mut words): (Vec<_>, _) = (listed.collect(), spec.words.to_vec());
        listed.sort_unstable();
        words.sort_unstable();
        assert!(is_boolean || listed == words, "{key}: {listed:?}, not {words:?}");
    }
    for sub in cli::SubCommand::ALL {
        for key in sub.own_options() {
            for word in sub.words(*key) {
                let option = format!("--{}={word}", key.name());
                let (diff, explain) = (cli::SubCommand::Diff, cli::SubCommand::Explain);
                let sides: &[&str] = if sub == diff { &["options", "live"] } else { &[] };
                let more = match (sub == explain, *word) {
                    (true, "html" | "no-problem") => &["--live"],
                    (true, _) => &["--to=10.0.0.1:80"],
                    (false, _) => sides,
                };
                resolved_of(&[&[sub.name(), &option], more].concat(), &[]);
            }
        }
    }
}

#[test]
fn page_about_one_packet_or_about_options_is_refused() {
    for more in [&["--live", "--to=10.0.0.1:80"][..], &[]] {
        let errors = errors_of(&[&["explain", "--output=html"], more].concat(), &[]);
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(
            error.contains("text or json for this question") && error.contains("without --to"),
            "{error}"
        );
    }
}

#[test]
fn answers_that_the_question_cannot_have_are_refused() {
    for (more, expected) in [
        (&["--live", "--expect=captured"][..], "no-problem without --to"),
        (&["--expect=not-captured"], "no-problem without --to"),
        (&["--to=10.0.0.1:80", "--expect=no-problem"], "--live or --bundle as well"),
        (&["--live", "--expect=fine"], "captured, not-captured or no-problem"),
        (&["--live", "--output=html", "--expect=no-problem"], "no page"),
    ] {
        let errors = errors_of(&[&["explain"], more].concat(), &[]);
        let [error] = errors.as_slice() else { panic!("{more:?}: {errors:?}") };
        assert!(error.contains("--expect") && error.contains(expected), "{error}");
        assert!(!error.contains("did you mean"), "{error}");
    }
}

#[test]
fn a_config_file_without_a_name_is_not_skipped() {
    refused(
        &["--config", ""],
        &["--config: \"\" is not accepted, expected the path of a JSON file, or - for"],
    );
    assert_eq!(warnings_of(&[], &["ISTIO_IPTABLES_CONFIG="]), Vec::<String>::new());
}

#[test]
fn lists_and_destinations_as_people_type_them_get_a_hint() {
    refused(&["-x", "10.0.0.0/8;fd00::/8"], &["commas separate the items of a list"]);
    refused(&["-d", "80 81"], &["commas separate the items of a list"]);
    refused(&["explain", "--to", "http://10.0.0.1:80"], &["leave the scheme and the path out"]);
    refused(&["explain", "http://10.0.0.1:80"], &["--to", "leave the scheme and the path out"]);
    refused(&["explain", "web:80"], &["--to", "names are not resolved"]);
    refused(&["explain", "--live", "pod/web"], &["--to", "`kubectl capture explain pod/NAME`"]);
    refused(&["explain", "-o", "jsn"], &["--output", "jsn", "json"]);
    for (to, hint) in [
        ("10.0.0.1:53/udp", "--to 10.0.0.1:53 --proto udp"),
        ("[fd00::1]:80/tcp", "--to [fd00::1]:80 --proto tcp"),
        ("10.0.0.1:53/UDP", "--to 10.0.0.1:53 --proto udp"),
        ("10.0.0.1/udp", "--to 10.0.0.1:PORT --proto udp"),
        ("web:80/udp", "--to web:80 --proto udp; names are not resolved: give the address"),
    ] {
        refused(&["explain", "--to", to], &["ADDRESS:PORT", &format!("the protocol is an option: {hint}")]);
    }
    refused(
        &["explain", "--to", "10.0.0.1:80", "--src", "10.0.0.2:53/udp"],
        &["--src: \"10.0.0.2:53/udp\"", "the protocol is an option: --src 10.0.0.2:53 --proto udp"],
    );
    for to in ["10.0.0.1:53/sctp", "10.0.0.1:443/https"] {
        let (meant, _) = to.split_once('/').unwrap();
        refused(&["explain", "--to", to], &[&format!("TCP and UDP alone are ever captured: --to {meant}")]);
    }
    for (from, hint) in [
        ("1337", "did you mean uid:1337?"),
        ("user:1000", "did you mean uid:1000?"),
        ("gid=1337", "did you mean gid:1337?"),
        ("10.0.0.1", "the sender's address is an option: --from outside --src 10.0.0.1"),
        ("[fd00::1]:80", "--from outside --src [fd00::1]:80"),
    ] {
        refused(&["explain", "--to", "10.0.0.1:80", "--from", from], &["expected app, proxy", hint]);
    }
    for name in ["web-6d4c", "0-web", "pod/web", "envoy"] {
        refused(
            &["check", "--pid", name],
            &["the number of a process", "`pgrep -n PROGRAM`", "`kubectl capture explain pod/NAME`"],
        );
    }
    refused(&["-i", "all"], &["\"all\" is not accepted, expected an address range", "; `*` means all"]);
    refused(&["-b", "ALL"], &["\"ALL\" is not accepted, expected a plain port number", "; `*` means all"]);
    refused(&["-q", "any"], &["give `*` to --istio-service-cidr (-i)"]);
    refused(&["-x", "all"], &["\"all\" is not accepted", "leave --istio-service-cidr (-i)"]);
    refused(&["-i", "'*'"], &["\"'*'\" is not accepted", "the quotes are part of the value: write *"]);
    refused(&["-b", "\"80\""], &["the quotes are part of the value: write 80"]);
    refused(&["-p", "'15001'"], &["the quotes are part of the value: write 15001"]);
    refused(&["explain", "--to", "'10.0.0.1:80'"], &["the quotes are part of the value: write 10.0.0.1:80"]);
    refused(&["--backend", "NFTABLES"], &["expected auto, iptables", "did you mean nftables?"]);
    refused(&["--backend", "NFT"], &["did you mean iptables-nft, or nftables for rules without iptables?"]);
    refused(&["--backend", "nf_tables"], &["did you mean nftables?"]);
    refused(&["check", "-o", "JSON"], &["--output: \"JSON\" is not accepted", "did you mean json?"]);
}

#[test]
fn half_of_ipv4_is_a_wide_exclusion() {
    let warns = |list: &str| {
        let warnings = resolved_of(&["-i", "*", "-x", list], &[]).warnings;
        warnings.iter().any(|warning| warning.to_string().contains("% of IPv4 are excluded"))
    };
    for list in ["0.0.0.0/1", "0.0.0.0/0", "0.0.0.0/2,64.0.0.0/2", "128.0.0.0/1,10.0.0.0/8"] {
        assert!(warns(list), "{list}");
    }
    for list in ["0.0.0.0/2,10.0.0.0/8", "0.0.0.0/2,0.0.0.0/3,32.0.0.0/3", "::/0", ""] {
        assert!(!warns(list), "{list}");
    }
}
