//! `check` without options, of rules that were changed by hand or come from elsewhere.

use serde_json::Map;

use crate::bundle::reports_are_equal;
use crate::check::{OPTIONS, check, rules, signed};
use crate::istio_leftovers::{ISTIO_1_14, ISTIO_TODAY, istio_leftovers, istio_tproxy_ran_three_times};
use crate::lab::fixture::at;
use crate::lab::{Family, Fixture, for_each_backend};

for_each_backend!(
    manually_changed_rule_is_reported,
    rule_that_reads_like_an_option_is_ambiguous,
    rules_of_istios_binary_are_not_reported_as_changed,
    questions_about_rules_of_istios_binary_have_answers
);

/// A change of one family by hand, and the only rules that `check` names then.
const CHANGED: [(Family, &str, &str, &[&str]); 9] = [
    (
        Family::V4,
        "-D ISTIO_INBOUND -p tcp --dport 15090 -j RETURN",
        "ISTIO_INBOUND",
        &["+-p tcp --dport 15090 -j RETURN"],
    ),
    (
        Family::V6,
        "-D ISTIO_INBOUND -p tcp --dport 15020 -j RETURN",
        "ISTIO_INBOUND",
        &["+-p tcp --dport 15020 -j RETURN"],
    ),
    (
        Family::V4,
        "-D ISTIO_INBOUND -p tcp --dport 15008 -j RETURN",
        "ISTIO_INBOUND",
        &["+-p tcp --dport 15008 -j RETURN"],
    ),
    (
        Family::V4,
        "-R ISTIO_REDIRECT 1 -p tcp -j REDIRECT --to-ports 15099",
        "ISTIO_REDIRECT",
        &["--p tcp -j REDIRECT --to-ports 15099", "+-p tcp -j REDIRECT --to-ports 15001"],
    ),
    (
        Family::V4,
        "-I ISTIO_INBOUND -p tcp --dport 9999 -j RETURN",
        "ISTIO_INBOUND",
        &["--p tcp --dport 9999 -j RETURN"],
    ),
    (Family::V4, "-A ISTIO_OUTPUT -d 10.9.0.0/16 -j RETURN", "ISTIO_OUTPUT", &["--d 10.9.0.0/16 -j RETURN"]),
    (
        Family::V6,
        "-A ISTIO_OUTPUT -p tcp --dport 9000 -j ISTIO_REDIRECT",
        "ISTIO_OUTPUT",
        &["--p tcp --dport 9000 -j ISTIO_REDIRECT"],
    ),
    (
        Family::V4,
        "-R ISTIO_OUTPUT 4 -m owner --uid-owner 1338 -j RETURN",
        "ISTIO_OUTPUT",
        &["--m owner --uid-owner 1338 -j RETURN", "+-m owner --uid-owner 1337 -j RETURN"],
    ),
    (
        Family::V6,
        "-I ISTIO_OUTPUT -m owner --gid-owner 500 -j RETURN",
        "ISTIO_OUTPUT",
        &["--m owner --gid-owner 500 -j RETURN"],
    ),
];

fn manually_changed_rule_is_reported(fixture: Fixture) {
    let pod = fixture.pod();
    for (family, command, chain, rules) in CHANGED {
        pod.apply(&OPTIONS);
        pod.iptables(family, &format!("-t nat {command}"));
        let (code, said) = check(&pod, &[]);
        let options = &said["options_of_rules"];
        assert_eq!((code, &options["istio-local-exclude-ports"]), (1, &"15020,15090".into()), "{said:#}");
        assert_eq!(options.as_object().map(Map::len), Some(5), "{command}: {said:#}");
        let chains: Vec<_> =
            said["chains"].as_array().unwrap().iter().map(|one| (&one["family"], &one["chain"])).collect();
        let family = if family == Family::V4 { "IPv4" } else { "IPv6" };
        assert_eq!(chains, [(&family.into(), &chain.into())], "{command}: {said:#}");
        let found = &said["chains"][0]["rules"];
        let text: Vec<String> = found.as_array().unwrap().iter().map(signed).collect();
        assert_eq!(text, rules, "{command}: {said:#}");
    }
}

/// Without an included range `-j RETURN` at the end is what `-x 0.0.0.0/0` makes.
fn rule_that_reads_like_an_option_is_ambiguous(fixture: Fixture) {
    let pod = fixture.pod();
    let options = ["-b", "*"];
    pod.apply(&options);
    let said = check(&pod, &[]).1["notices"].to_string();
    assert!(!said.contains("-j RETURN"), "{said}");
    pod.iptables(Family::V4, "-t nat -A ISTIO_OUTPUT -j RETURN");
    let said = check(&pod, &[]).1["notices"].to_string();
    assert!(said.contains("-x with a range of all addresses and a rule that another program"), "{said}");
    let (code, said) = check(&pod, &options);
    assert_eq!((code, rules(&said, "nat", "ISTIO_OUTPUT")), (1, vec!["--j RETURN".to_owned()]), "{said:#}");
}

fn rules_of_istios_binary_are_not_reported_as_changed(fixture: Fixture) {
    let pod = fixture.pod();
    istio_leftovers(&pod, ISTIO_TODAY);
    pod.istio_iptables(&["check"]).run().ended_with(0).output_contains("equal: the live rules");
    let pod = fixture.pod();
    istio_tproxy_ran_three_times(&pod);
    let ended = pod.istio_iptables(&["check"]).run().ended_with(0);
    ended
        .output_contains("equal: the live rules")
        .output_contains("note: addresses, policy rules and routes are those of Istio");
    pod.ip("-4 route del local default dev lo table 133");
    let ended = pod.istio_iptables(&["check"]).run().ended_with(1);
    ended.output_contains("a run would `ip -4 route");
    // What earlier versions wrote differs in the rules that later ones changed, and in no other.
    let pod = fixture.pod();
    istio_leftovers(&pod, ISTIO_1_14);
    let (code, said) = check(&pod, &[]);
    assert_eq!(
        (code, &said["options_of_rules"]["istio-local-exclude-ports"]),
        (1, &"15090,15021,15020".into()),
        "{said:#}"
    );
    let missing = [
        "+! -d 127.0.0.1/32 -o lo -p tcp ! --dport 15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT",
        "+! -d 127.0.0.1/32 -o lo -p tcp ! --dport 15008 -m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT",
    ];
    let found = rules(&said, "nat", "ISTIO_OUTPUT");
    assert!(found.len() == 4 && missing.iter().all(|rule| found.contains(&(*rule).to_owned())), "{said:#}");
    assert_eq!(rules(&said, "nat", "OUTPUT"), ["--p tcp -j ISTIO_OUTPUT", "+-j ISTIO_OUTPUT"], "{said:#}");
    assert_eq!(said["chains"].as_array().map(Vec::len), Some(4), "{said:#}");
}

/// Each command that asks, on the rules of a pod that Istio's own binary captured.
fn questions_about_rules_of_istios_binary_have_answers(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    istio_leftovers(&pod, ISTIO_TODAY);
    let ask = |words: &[&str]| pod.bare_istio_iptables(words).run().succeeded().stdout();
    let overview = ask(&["explain", "--live", "--expect", "no-problem"]);
    let shown = ask(&["show"]);
    for family in fixture.families() {
        let to = at(family.service(), 80).to_string();
        let said = ask(&["explain", "--live", "--to", &to]);
        assert!(
            said.starts_with("captured: ") && said.contains("nat ISTIO_OUTPUT -j ISTIO_REDIRECT"),
            "{said}"
        );
        for line in ["client to the app, port 8080 ", "app to a server ", "proxy to its own pod's address "] {
            let rows: Vec<&str> = overview.lines().filter(|row| row.trim_start().starts_with(line)).collect();
            assert!(rows.len() == 2 && rows.iter().all(|row| row.contains(" captured, 150")), "{overview}");
        }
        let name = if family == &Family::V4 { "IPv4" } else { "IPv6" };
        for chain in ["ISTIO_INBOUND", "ISTIO_IN_REDIRECT", "ISTIO_OUTPUT", "ISTIO_REDIRECT"] {
            assert!(shown.contains(&format!("nat {chain} ({name}, ")), "{chain}, {name}: {shown}");
        }
    }
    let reasons = ["tunnel-port: ", "inbound-passthrough: ", "proxy-traffic: ", "every-range: "];
    assert!(reasons.iter().all(|reason| shown.matches(reason).count() >= 2), "{shown}");
    let options = ["--dual-stack", "-i", "*", "-b", "*", "-d", "15090,15021,15020"];
    let diff = [&["diff", "options", "live"], &options[..]].concat();
    assert!(ask(&diff).starts_with("equal"), "{}", ask(&diff));
    // Each question, about a bundle and on the machine.
    reports_are_equal(&pod, &options);
}
