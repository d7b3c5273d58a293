//! `diff` as a process: files of every form, exit codes, what is refused.

use std::fs;

use crate::pod::Pod;

/// What the kernel has of this text for `nft`, in a bundle; its path.
fn bundle_of(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let pod = Pod::dual();
    load(&pod, text);
    bundle(&pod, directory, name)
}

/// Loads a text of `nft`.
pub(crate) fn load(pod: &Pod, text: &str) {
    fs::write(pod.path("rules"), text).unwrap();
    pod.sh("nft -f $DIR/rules");
}

/// A bundle of the pod; its path.
pub(crate) fn bundle(pod: &Pod, directory: &tempfile::TempDir, name: &str) -> String {
    let ended = pod.istio(&["bundle"]).end().exits(0);
    file(directory, name, &ended.stdout)
}

/// A file with this text; its path.
pub(crate) fn file(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = directory.path().join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

const SAVED: &str = "*nat\n:PREROUTING ACCEPT [0:0]\n:ISTIO_INBOUND - [0:0]\n-A PREROUTING -p tcp -j ISTIO_INBOUND\n\
     -A ISTIO_INBOUND -p tcp -j REDIRECT --to-ports 15006\nCOMMIT\n";

#[test]
fn changed_annotation_is_reported_with_the_simplest_packet() {
    let directory = tempfile::tempdir().unwrap();
    let before = file(&directory, "before.json", r#"{"istio-service-cidr": "*", "ip-family": "ipv4"}"#);
    let after =
        r#"{"istio-service-cidr": "*", "ip-family": "ipv4", "istio-service-exclude-cidr": "10.0.0.0/8"}"#;
    let after = file(&directory, "after.json", after);
    let pod = Pod::new();
    let ended = pod.istio(&["diff", &before, &after]).end().exits(1);
    let command = format!("explain  istio-iptables explain --config {after} --to 10.0.0.1:8080");
    for part in [
        "different: TCP, first packet of a connection",
        "to 10.0.0.1:8080",
        "(-x)",
        "destination 10.0.0.0/8",
        &command,
    ] {
        assert!(ended.stdout.contains(part), "{part}: {ended}");
    }
    // The command that is shown shows it.
    let ended = pod.istio(&["explain", "--config", &after, "--to", "10.0.0.1:8080"]).end().exits(0);
    assert!(ended.stdout.starts_with("not captured"), "{ended}");
    let ended = pod.istio(&["diff", &before, &before]).end().exits(0);
    assert!(ended.stdout.starts_with("equal for all IPv4 and IPv6 packets"), "{ended}");
    let args = ["diff", "options", &before, "--ip-family", "ipv4", "-i", "*", "--output", "json"];
    let ended = pod.istio(&args).end().exits(0);
    assert!(ended.stdout.contains("\"result\":\"equal\""), "{ended}");
}

#[test]
fn rule_that_cannot_be_evaluated_is_named_and_nothing_is_called_equal() {
    let directory = tempfile::tempdir().unwrap();
    let saved = file(&directory, "saved", SAVED);
    let with_set = SAVED
        .replace("-A PREROUTING", "-A PREROUTING -m set --match-set allowed src -j ACCEPT\n-A PREROUTING");
    let with_set = file(&directory, "with-set", &with_set);
    let ended = Pod::new().istio(&["diff", &saved, &with_set]).end().exits(1);
    assert!(ended.stdout.starts_with("not proved"), "{ended}");
    assert!(ended.stdout.contains("-m set --match-set allowed src -j ACCEPT"), "{ended}");
    assert!(ended.stdout.contains("not compared: IPv6"), "{ended}");
    let marks = "*mangle\n-A PREROUTING -p tcp -j MARK --set-xmark 0x4000/0x4000\nCOMMIT\n";
    let marks = file(&directory, "marks", &format!("{marks}{SAVED}"));
    let ended = Pod::new().istio(&["diff", &saved, &marks]).end().exits(1);
    assert!(ended.stdout.starts_with("not proved"), "{ended}");
    assert!(ended.stdout.contains("-j MARK --set-xmark 0x4000/0x4000"), "{ended}");
    let later =
        SAVED.to_owned() + "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p tcp --dport 15006 -j DROP\nCOMMIT\n";
    let later = file(&directory, "later", &later);
    let ended = Pod::new().istio(&["diff", &saved, &later]).end().exits(1);
    assert!(
        ended.stdout.contains("filter INPUT -p tcp --dport 15006 -j DROP (its chain is not evaluated)"),
        "{ended}"
    );
}

/// Tests of a connection are true or false by packets that went before.
#[test]
fn tests_of_connections_are_named_as_not_proved() {
    let directory = tempfile::tempdir().unwrap();
    let (pod, saved) = (Pod::new(), file(&directory, "saved", SAVED));
    for test in [
        "--ctstatus SEEN_REPLY",
        "--ctdir REPLY",
        "--ctorigsrc 10.0.0.0/8",
        "--ctorigdst 10.0.0.0/8",
        "--ctorigsrcport 80",
        "--ctorigdstport 80",
        "--ctreplsrc 10.0.0.0/8",
        "--ctrepldst 10.0.0.0/8",
        "--ctproto udp",
        "--ctstate DNAT",
        "--ctstate RELATED",
        "--ctexpire 5",
    ] {
        let rule = format!("-m conntrack {test} -j ACCEPT");
        let with_test = SAVED.replace("-A PREROUTING", &format!("-A PREROUTING {rule}\n-A PREROUTING"));
        let with_test = file(&directory, "with-test", &with_test);
        let ended = pod.istio(&["diff", &saved, &with_test]).end().exits(1);
        assert!(ended.stdout.starts_with("not proved for all IPv4 packets"), "{ended}");
        assert!(
            ended.stdout.contains("packets that these rules match may be treated differently"),
            "{ended}"
        );
        assert!(ended.stdout.contains(&format!("not proved: {with_test}: nat PREROUTING {rule}")), "{ended}");
    }
    file(&directory, "saved.v6", SAVED);
    for (test, words) in [
        ("ct status dnat", "--ctstatus DNAT"),
        ("ct direction reply", "--ctdir REPLY"),
        ("ct original ip daddr 10.0.0.0/9", "--ctorigdst 10.0.0.0/9"),
        // By one byte only.
        ("ct original ip daddr 10.0.0.0/8", "--ctorigdst 10.0.0.0/8"),
        ("tcp dport 1-65535 ct original proto-dst 80", "--ctorigdstport 80"),
    ] {
        let rules = format!(
            "table inet x {{\n\tchain p {{\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\
             \t\t{test} accept\n\t\tmeta l4proto tcp redirect to :15006\n\t}}\n}}\n"
        );
        let bundle = bundle_of(&directory, "pod.json", &rules);
        let ended = pod.istio(&["diff", &saved, &bundle]).end().exits(1);
        assert!(ended.stdout.starts_with("not proved for all IPv4"), "{ended}");
        let named = |line: &str| line.contains("pod.json: inet x p") && line.contains(words);
        assert!(ended.stdout.lines().any(named), "{words}: {ended}");
    }
}

#[test]
fn both_families_are_read_from_files() {
    let directory = tempfile::tempdir().unwrap();
    let pod = Pod::new();
    let one = file(&directory, "one", SAVED);
    file(&directory, "one.v6", SAVED);
    let both =
        format!("# Generated by iptables-save v1.8.9\n{SAVED}# Generated by ip6tables-save v1.8.9\n{SAVED}");
    let both = file(&directory, "both", &both);
    let ended = pod.istio(&["diff", &one, &both]).end().exits(0);
    assert!(ended.stdout.starts_with("equal for all IPv4 and IPv6 packets"), "{ended}");
    let none = file(&directory, "none", "");
    let ended = pod.istio(&["diff", &none, &none]).end().exits(0);
    assert!(ended.stdout.starts_with("equal for all IPv4 packets (1 class compared)"), "{ended}");
    let rules = "table inet x {\n\tchain p {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\
         \t\tmeta l4proto tcp counter redirect to :15006\n\t}\n}\n";
    let bundle = bundle_of(&directory, "pod.json", rules);
    let ended = pod.istio(&["diff", &both, &bundle]).end().exits(0);
    assert!(ended.stdout.starts_with("equal for all IPv4 and IPv6 packets"), "{ended}");
}

#[test]
fn invalid_rule_set_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let saved = file(&directory, "saved", SAVED);
    let pod = Pod::new();
    for (name, text) in [
        ("commands", "*nat\n-F PREROUTING\nCOMMIT\n"),
        ("nft-json", r#"{"nftables": []}"#),
        ("nft", "# Warning: table ip nat is managed by iptables-nft\ntable ip nat {\n}\n"),
        ("bundle", r#"{"bundle": 2, "program": "istio-iptables 0.1.0"}"#),
        ("options", r#"{"istio-inbound-ports": "http"}"#),
        ("unknown-key", r#"{"inbound": "80"}"#),
        ("cut-bundle", "{\"bundle\": 2,"),
        ("words", "hello\n"),
        ("no-commit", "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j ACCEPT\n"),
        ("no-commit-between", "*nat\n:OUTPUT ACCEPT [0:0]\n*mangle\nCOMMIT\n"),
    ] {
        let other = file(&directory, name, text);
        pod.istio(&["diff", &saved, &other]).end().exits(64).stderr_contains(&other);
    }
    for name in ["nft", "nft-json"] {
        let listed = directory.path().join(name).display().to_string();
        let ended = pod.istio(&["diff", &listed, &saved]).end().exits(64);
        ended
            .stderr_contains(&format!("{listed} cannot be read: it is output of nft"))
            .stderr_contains("istio-iptables bundle > FILE");
    }
    let other = file(&directory, "other-format", r#"{"bundle": 1, "program": "istio-iptables 0.0.9"}"#);
    let ended = pod.istio(&["diff", &other, &saved]).end().exits(64);
    ended.stderr_contains("written by istio-iptables 0.0.9 in format 1; this version reads format 2");
    pod.istio(&["diff", &saved]).end().exits(64).stderr_contains("two rule sets");
    pod.istio(&["diff", &saved, "/nowhere"]).end().exits(64).stderr_contains("/nowhere cannot be read");
}

#[test]
fn live_rules_are_equal_to_their_own_options_only() {
    for backend in ["iptables-nft", "iptables-legacy", "nftables"] {
        let pod = Pod::new();
        let options = ["-b", "*", "-d", "15020", "-i", "*", "-x", "10.0.0.0/8", "--backend", backend];
        pod.istio(&options).end().exits(0);
        let diff = [&["diff", "options", "live"][..], &options].concat();
        let ended = pod.istio(&diff).end().exits(0);
        assert!(ended.stdout.starts_with("equal for all IPv4"), "{backend}: {ended}");
        let other = [&["diff", "options", "live"][..], &options[..6], &["--backend", backend]].concat();
        let ended = pod.istio(&other).end().exits(1);
        assert!(ended.stdout.contains("to 10.0.0.1:8080"), "{backend}: {ended}");
    }
}

/// Foreign policy rules are not followed: nothing is called equal where they may decide.
#[test]
fn foreign_policy_rules_for_the_mark_leave_nothing_proved() {
    for backend in ["iptables-nft", "nftables"] {
        let pod = Pod::new();
        let options = ["-b", "*", "-i", "*", "-m", "TPROXY", "--backend", backend];
        pod.istio(&options).end().exits(0);
        let diff = [&["diff", "options", "live"][..], &options].concat();
        pod.istio(&diff).end().exits(0);
        pod.sh("ip rule add pref 50 fwmark 0x38/0xff prohibit");
        pod.istio(&diff).end().exits(0);
        pod.sh("ip rule add pref 60 fwmark 0x539 iif eth0 blackhole");
        let ended = pod.istio(&diff).end().exits(1);
        assert!(ended.stdout.starts_with("not proved"), "{backend}: {ended}");
        assert!(ended.stdout.contains("fwmark 0x539 iif eth0 blackhole"), "{backend}: {ended}");
        pod.istio(&["diff", "live", "live", "--backend", backend]).end().exits(0);
    }
}

/// Spellings of one rule are equal; what `iptables-restore` refuses is refused.
#[test]
fn spellings_are_equal_and_what_the_tools_refuse_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let head = "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:ISTIO_OUTPUT - [0:0]\n-A OUTPUT -p tcp -j ISTIO_OUTPUT\n";
    let pod = Pod::new();
    let made = |name: &str, rules: &str| file(&directory, name, &format!("{head}{rules}COMMIT\n"));
    let plain = made("plain", "-A ISTIO_OUTPUT -p tcp -m mark --mark 8 -j REDIRECT --to-ports 15001\n");
    for (number, rules) in [
        "-A ISTIO_OUTPUT -p 0x6 -m mark --mark 8 -j REDIRECT --to-ports 15001\n",
        "-A ISTIO_OUTPUT -p 006 -m mark --mark 010 -j REDIRECT --to-ports 15001\n",
        "-A ISTIO_OUTPUT -p TCP -m mark --mark 0X8/0xffffffff -j REDIRECT --to-ports 15001\n",
        "-A OUTPUT -p 0 -j MARK --set-xmark 0x0/0x0\n-A ISTIO_OUTPUT -p tcp -m mark --mark 0x8 -j REDIRECT --to-ports 15001\n",
        "-A ISTIO_OUTPUT -p 1 -j RETURN\n-A ISTIO_OUTPUT -p tcp -m mark --mark 0x8 -j REDIRECT --to-ports 15001\n",
    ]
    .into_iter()
    .enumerate()
    {
        let other = made(&format!("spelling-{number}"), rules);
        let ended = pod.istio(&["diff", &plain, &other]).end().exits(0);
        assert!(ended.stdout.starts_with("equal for all IPv4"), "{rules}: {ended}");
    }
    let all = made("all", "-A ISTIO_OUTPUT -p 0 -j ACCEPT\n");
    let none = made("none", "-A ISTIO_OUTPUT -j ACCEPT\n");
    pod.istio(&["diff", &all, &none]).end().exits(0);
    let redirects = made(
        "redirects",
        "-A ISTIO_OUTPUT -p 0 -j RETURN\n-A ISTIO_OUTPUT -p tcp -j REDIRECT --to-ports 15001\n",
    );
    let nothing = made("nothing", "");
    pod.istio(&["diff", &redirects, &nothing]).end().exits(0);
    for (rule, problem) in [
        ("-A CORP -j ACCEPT", "chain CORP is not declared: `:CORP -` before it is accepted"),
        ("-A ISTIO_OUTPUT -j CORP", "-j CORP: a declared chain or a target of iptables is accepted"),
        ("-A ISTIO_OUTPUT -g LOG", "-g LOG: a declared chain or a target of iptables is accepted"),
        ("-A ISTIO_OUTPUT -j OUTPUT", "-j OUTPUT: a declared chain or a target of iptables is accepted"),
        ("-A FORWARD -j ACCEPT", "chain FORWARD is not declared"),
        ("-A ISTIO_OUTPUT -p 300 -j ACCEPT", "-p 300: a number from 0 to 255 or a name is accepted"),
        ("-A ISTIO_OUTPUT ! -p 0 -j ACCEPT", "! -p 0: no packet has none: another protocol is accepted"),
        ("-A ISTIO_OUTPUT -p 0x6x -j ACCEPT", "-p 0x6x: a number from 0 to 255 or a name is accepted"),
    ] {
        let wrong = made("wrong", &format!("{rule}\n"));
        pod.istio(&["diff", &plain, &wrong]).end().exits(64).stderr_contains(problem);
    }
    let table = file(&directory, "table", "*foo\nCOMMIT\n");
    let ended = pod.istio(&["diff", &plain, &table]).end().exits(64);
    ended.stderr_contains("table foo: raw, mangle, nat, filter and security are accepted");
}

/// Targets for which iptables has a library, and those that need none.
#[test]
fn every_target_of_iptables_is_accepted_and_no_match() {
    let directory = tempfile::tempdir().unwrap();
    let libraries = fs::read_dir("/usr/lib")
        .unwrap()
        .filter_map(|entry| fs::read_dir(entry.ok()?.path().join("xtables")).ok());
    let names = libraries.flatten().filter_map(|file| {
        let name = file.ok()?.file_name().into_string().ok()?;
        let (family, name) = name.strip_prefix("lib")?.strip_suffix(".so")?.split_once('_')?;
        ["xt", "ipt"].contains(&family).then(|| name.to_owned())
    });
    // That one holds several.
    let (targets, matches): (Vec<_>, Vec<_>) =
        names.filter(|name| name != "NAT").partition(|name| name.chars().all(|c| !c.is_lowercase()));
    assert!(targets.len() > 20 && matches.len() > 20, "{targets:?} {matches:?}");
    let pod = Pod::new();
    let saved = |name: &str| {
        let rule = format!("-A PREROUTING -j {name}\n-A PREROUTING -p");
        file(&directory, "saved", &SAVED.replace("-A PREROUTING -p", &rule))
    };
    for name in ["ACCEPT", "DROP", "QUEUE", "RETURN"].into_iter().chain(targets.iter().map(String::as_str)) {
        let saved = saved(name);
        pod.istio(&["diff", &saved, &saved]).end().exits(0);
    }
    for name in &matches {
        let saved = saved(name);
        pod.istio(&["diff", &saved, &saved])
            .end()
            .exits(64)
            .stderr_contains(&format!("-j {name}: a declared chain"));
    }
}
