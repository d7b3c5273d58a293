//! `check`: the live state against the options, rule by rule.

use serde_json::Value;

use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    equal_after_a_run_and_different_with_other_options,
    missing_and_additional_rules_are_named_in_order,
    foreign_rule_that_decides_first_is_not_equal,
    options_are_read_from_the_rules_where_none_are_given,
    damage_is_found_without_options,
    missing_policy_rule_is_named,
    addresses_that_are_not_usable_yet_are_waited_for,
    ipv4_only_that_was_asked_for_is_no_note
);

pub(crate) const OPTIONS: [&str; 8] = ["-i", "*", "-x", "10.96.0.0/12", "-b", "*", "-d", "15020,15090"];

/// The exit code, and the report.
pub(crate) fn check(pod: &Pod, options: &[&str]) -> (i32, Value) {
    let ended = pod.istio_iptables(&[&["check", "--output", "json"], options].concat()).run();
    let output = ended.output();
    let line = output.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{output}"));
    (ended.code(), serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
}

fn equal(pod: &Pod, options: &[&str]) {
    let (code, said) = check(pod, options);
    assert_eq!((code, &said["equal"]), (0, &Value::Bool(true)), "{said:#}");
}

/// `+rule` or `-rule` of a chain in IPv4.
pub(crate) fn rules(said: &Value, table: &str, chain: &str) -> Vec<String> {
    let chains = said["chains"].as_array().unwrap_or_else(|| panic!("{said:#}")).iter();
    let chains = chains
        .filter(|found| found["table"] == table && found["chain"] == chain && found["family"] == "IPv4");
    let rules = chains.filter_map(|found| found["rules"].as_array()).flatten();
    rules.map(signed).collect()
}

/// `+rule` or `-rule`.
pub(crate) fn signed(rule: &Value) -> String {
    let sign = if rule["change"] == "missing" { '+' } else { '-' };
    format!("{sign}{}", rule["rule"].as_str().unwrap_or_default())
}

fn equal_after_a_run_and_different_with_other_options(fixture: Fixture) {
    let pod = fixture.pod();
    let before = pod.state();
    let (code, said) = check(&pod, &OPTIONS);
    assert_eq!(code, 1, "nothing is live: {said:#}");
    assert!(!rules(&said, "nat", "ISTIO_OUTPUT").is_empty(), "{said:#}");
    assert_eq!(pod.state(), before, "check writes nothing");
    for mode in ["REDIRECT", "TPROXY"] {
        let options = [&OPTIONS[..], &["--redirect-dns", "--capture-all-dns", "-m", mode]].concat();
        pod.apply(&options);
        equal(&pod, &options);
    }
    let (code, said) = check(&pod, &["-i", "*", "-b", "*", "-m", "TPROXY"]);
    assert_eq!(code, 1, "{said:#}");
    let output = rules(&said, "nat", "ISTIO_OUTPUT");
    assert!(output.contains(&"--d 10.96.0.0/12 -j RETURN".to_owned()), "{said:#}");
}

fn missing_and_additional_rules_are_named_in_order(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    if fixture.backend == Backend::Native {
        let chain = tool_in(&pod, &["-a", "list", "chain", "inet", "istio-proxy-nat", "istio-output"]);
        let rule = chain.lines().find(|line| line.contains("10.96.0.0/12")).expect("the excluded range");
        let handle = rule.rsplit(' ').next().expect("a handle");
        tool_in(&pod, &["delete", "rule", "inet", "istio-proxy-nat", "istio-output", "handle", handle]);
        let word =
            "insert rule inet istio-proxy-nat istio-output meta nfproto ipv4 ip daddr 10.0.0.0/8 return";
        tool_in(&pod, &word.split(' ').collect::<Vec<_>>());
    } else {
        pod.iptables(Family::V4, "-t nat -D ISTIO_OUTPUT -d 10.96.0.0/12 -j RETURN");
        pod.iptables(Family::V4, "-t nat -I ISTIO_OUTPUT -d 10.0.0.0/8 -j RETURN");
    }
    let (code, said) = check(&pod, &OPTIONS);
    assert_eq!(code, 1, "{said:#}");
    let found = rules(&said, "nat", "ISTIO_OUTPUT");
    assert_eq!(found, ["--d 10.0.0.0/8 -j RETURN", "+-d 10.96.0.0/12 -j RETURN"], "{said:#}");
    let ended = pod.istio_iptables(&[&["check"], &OPTIONS[..]].concat()).run().ended_with(1);
    ended
        .output_contains("different from what these options make: 1 chain or setting\n")
        .output_contains("-   1  -d 10.0.0.0/8 -j RETURN");
    pod.apply(&OPTIONS);
    equal(&pod, &OPTIONS);
}

fn tool_in(pod: &Pod, words: &[&str]) -> String {
    pod.namespace.run(|| tool("nft", words, ""))
}

fn foreign_rule_that_decides_first_is_not_equal(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    if fixture.backend == Backend::Native {
        let table = "table inet agent {\nchain early {\ntype filter hook output priority -200\ntcp dport 80 drop\n}\n}\n";
        pod.namespace.run(|| tool("nft", &["-f", "-"], table));
    } else {
        pod.iptables(Family::V4, "-t nat -I OUTPUT -d 10.0.0.0/8 -j ACCEPT");
    }
    let (code, said) = check(&pod, &OPTIONS);
    let notices = said["notices"].to_string();
    assert_eq!(code, 1, "{said:#}");
    assert!(said["chains"].as_array().is_some_and(Vec::is_empty), "{said:#}");
    let named =
        if fixture.backend == Backend::Native { "inet agent early" } else { "-d 10.0.0.0/8 -j ACCEPT" };
    assert!(notices.contains(named), "{said:#}");
}

fn missing_policy_rule_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let options = ["-i", "*", "-b", "*", "-m", "TPROXY"];
    pod.apply(&options);
    equal(&pod, &options);
    pod.ip("rule del fwmark 1337 lookup 133");
    let (code, said) = check(&pod, &options);
    assert_eq!(code, 1, "{said:#}");
    assert!(said["others"].to_string().contains("133"), "{said:#}");
}

/// Options, and the command line that `check` reads from their rules.
const READ: [(&str, &str); 8] = [
    ("-i * -b * -d 15020,15090 -x 10.96.0.0/12", "-u 1337 -b '*' -d 15020,15090 -i '*' -x 10.96.0.0/12"),
    (
        "-p 15101 -z 15106 -u 5,6 -g 7 -b 80,443 -i 10.0.0.0/8 -q 9000 -o 22",
        "-p 15101 -z 15106 -u 5,6 -g 7 -b 80,443 -i 10.0.0.0/8 -q 9000 -o 22",
    ),
    (
        "-i * -b * -m TPROXY -r 200 --redirect-dns --capture-all-dns",
        "-u 1337 -m TPROXY -r 200 -b '*' -i '*' --redirect-dns --capture-all-dns",
    ),
    ("-i * -b * --drop-invalid -c eth1 -k vnet0", "-u 1337 -b '*' -i '*' --drop-invalid -c eth1 -k vnet0"),
    ("-i 127.9.9.9/7 -b *", "-u 1337 -b '*' -i 127.0.0.1/7"),
    // Native nftables merges adjacent ranges.
    ("-i * -b * -x 0.0.0.0/1,128.0.0.0/1", "-u 1337 -b '*' -i '*' -x 0.0.0.0/1,128.0.0.0/1"),
    ("-i ::/1,8000::/1 -b *", "-u 1337 -b '*' -i ::/1,8000::/1"),
    ("", "-u 1337"),
];

fn options_are_read_from_the_rules_where_none_are_given(fixture: Fixture) {
    let pod = fixture.pod();
    for (options, read) in READ {
        pod.apply(&options.split_whitespace().collect::<Vec<_>>());
        let ended = pod.istio_iptables(&["check"]).run().ended_with(0);
        ended
            .output_contains("equal")
            .output_contains("no options were given: the live rules come from")
            .output_contains(&format!("\n  istio-iptables {read}\n"));
        // Options with their defaults are given, too.
        pod.istio_iptables(&["check", "-p", "15001", "-b", ""])
            .run()
            .ended_with(i32::from(!options.is_empty()));
    }
    let groups = [("ISTIO_OUTBOUND_OWNER_GROUPS", "101,102")];
    pod.istio_iptables(&["-i", "*"]).env(groups[0].0, groups[0].1).run().ended_with(0);
    let ended = pod.istio_iptables(&["check"]).run().ended_with(0);
    ended.output_contains("\n  ISTIO_OUTBOUND_OWNER_GROUPS=101,102 istio-iptables -u 1337 -i '*'\n");
}

fn damage_is_found_without_options(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    let (code, said) = check(&pod, &[]);
    assert_eq!(
        (code, &said["options_of_rules"]["istio-local-exclude-ports"]),
        (0, &"15020,15090".into()),
        "{said:#}"
    );
    if fixture.backend == Backend::Native {
        tool_in(&pod, &["flush", "chain", "inet", "istio-proxy-nat", "istio-redirect"]);
    } else {
        pod.iptables(Family::V4, "-t nat -F ISTIO_REDIRECT");
    }
    let (code, said) = check(&pod, &[]);
    assert_eq!(code, 1, "{said:#}");
    assert_eq!(rules(&said, "nat", "ISTIO_REDIRECT"), ["+-p tcp -j REDIRECT --to-ports 15001"], "{said:#}");
    let ended = pod.istio_iptables(&["check"]).run().ended_with(1);
    ended
        .output_contains("different from what the options below make")
        .output_contains("are nearest to\n  istio-iptables -u 1337");
}

/// While the kernel looks for duplicates of an address it delivers nothing there: what would be reported then
/// is wrong a second later.
fn addresses_that_are_not_usable_yet_are_waited_for(fixture: Fixture) {
    if !fixture.families().contains(&Family::V6) {
        return;
    }
    let tproxy = ["-i", "*", "-b", "*", "-m", "TPROXY"];
    for options in [&tproxy[..], &tproxy[..4]] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        pod.apply(options);
        equal(&pod, options);
        let (_, before) = check(&pod, options);
        let (address, length) = (Family::V6.pod(), Family::V6.link_prefix());
        pod.namespace.run(|| tool("sysctl", &["-qw", "net.ipv6.conf.eth0.accept_dad=1"], ""));
        pod.ip(&format!(
            "-6 address del {address}/{length} dev eth0\n-6 address add {address}/{length} dev eth0"
        ));
        pod.ip(&format!("-6 route replace default via {}", Family::V6.outside()));
        let tentative = || pod.namespace.run(|| tool("ip", &["-6", "address", "show", "tentative"], ""));
        assert!(tentative().contains(&address.to_string()), "{options:?}: detection runs");
        let (code, said) = check(&pod, options);
        assert_eq!((code, &said["notices"]), (0, &before["notices"]), "{options:?}: {said:#}");
        assert_eq!(tentative(), "", "{options:?}: it has ended");
    }
}

/// Without the option it is not known whether that was meant.
fn ipv4_only_that_was_asked_for_is_no_note(fixture: Fixture) {
    let only = ["--ip-family", "ipv4"];
    let pod = fixture.pod();
    let all = [&OPTIONS[..], &only].concat();
    let run = |words: &[&str], options: &[&str]| {
        let backend = ["--backend", fixture.backend.flag()];
        pod.bare_istio_iptables(&[words, options, &backend].concat()).run().succeeded().stdout()
    };
    run(&[], &all);
    for (options, is_named) in [(&only[..], false), (&all, false), (&[], true), (&OPTIONS, true)] {
        let checked = run(&["check"], options);
        assert!(checked.starts_with("equal: "), "{options:?}: {checked}");
        assert_eq!(checked.matches("note: ipv6-not-captured: ").count(), usize::from(is_named), "{checked}");
        let live = run(&["explain", "--live"], options);
        assert_eq!(
            live.matches(". ipv6-not-captured: ").count(),
            usize::from(is_named),
            "{options:?}: {live}"
        );
    }
}
