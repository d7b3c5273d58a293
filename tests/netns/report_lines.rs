//! What a report begins with and what its table shows: a first line of a verdict's length, a row that shows
//! what the first problem says, one problem for one rule, and addresses that hosts can have.

use serde_json::Value;

use crate::broken_pods::{OPTIONS, problems};
use crate::eight_pods::NOTE;
use crate::explain_runtime::{start, stop};
use crate::lab::fixture::at;
use crate::lab::program::{BUILT, tool};
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [
        first_lines_have_at_most_100_characters,
        the_table_shows_the_first_problem,
        a_port_without_a_listener_is_marked_in_the_table,
        a_flushed_chain_is_a_problem_of_its_packets,
        one_rule_is_one_problem,
        rows_of_dns_are_about_the_name_server_of_the_pod,
        processes_that_are_hidden_are_noted_in_every_report
    ]
);

const OPTION_SETS: [&[&str]; 8] = [
    &[],
    &["-i", "*", "-b", "*"],
    &["-i", "*", "-b", "*", "-x", "0.0.0.0/1", "-d", "15020,15021", "-o", "443,8443"],
    &["-i", "10.0.0.0/8,192.168.0.0/16", "-b", "80,8080", "-q", "9090", "-k", "net1"],
    &["-i", "*", "-b", "*", "-m", "TPROXY", "--drop-invalid"],
    &["-i", "*", "-b", "*", "--redirect-dns", "--capture-all-dns"],
    &["-u", "1337,4294967294", "-g", "1337,4294967294", "-b", "*", "-i", "*", "--redirect-dns"],
    &["-b", "*", "-i", "", "-c", "eth1,net1"],
];

fn is_short(pod: &Pod, words: &[&str]) {
    let said = pod.istio_iptables(words).run().stdout();
    let first = said.lines().next().unwrap_or_default();
    assert!(!first.is_empty() && first.chars().count() <= 100, "{words:?}: {}: {first}", first.len());
}

fn first_lines_have_at_most_100_characters(fixture: Fixture) {
    let long = "[2001:db8:1234:5678:9abc:def0:1234:5678]:65535";
    let before = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(before.path(), r#"{"istio-service-cidr": "2001:db8::/32,10.0.0.0/8"}"#).expect("written");
    let before = before.path().to_str().expect("UTF-8");
    let pod = fixture.pod();
    let _app = pod.app_listens(&[8080]);
    for options in OPTION_SETS {
        pod.apply(options);
        for question in [
            &["explain"][..],
            &["explain", "--to", long],
            &["explain", "--to", long, "--from", "uid:4294967290,gid:4294967290", "--state", "invalid"],
            &["explain", "--to", "10.0.0.1:53", "--proto", "udp"],
            &["diff", "options", before],
            &["diff", "options", "live"],
            &["check"],
        ] {
            is_short(&pod, &[question, options].concat());
        }
        for question in [
            &["explain", "--live"][..],
            &["explain", "--live", "--to", long],
            &["explain", "--live", "--from", "outside", "--to", "10.99.0.2:65535"],
            &["check"],
            &["check", "-i", "10.0.0.0/8"],
            &["show"],
            &["diff", "live", before],
        ] {
            is_short(&pod, question);
        }
    }
    let validated = pod.istio_iptables(&["--version"]).run().stdout();
    assert!(validated.lines().next().is_some_and(|line| line.chars().count() <= 100), "{validated}");
}

/// The rows of the table that are marked.
fn marked(pod: &Pod) -> Vec<String> {
    let said = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
    said.lines().filter_map(|line| line.strip_prefix("! ")).map(str::to_owned).collect()
}

fn the_table_shows_the_first_problem(fixture: Fixture) {
    for (rule, row) in [
        ("ip daddr 172.31.0.0/16", "app to 172.31.0.1:8080"),
        ("ip daddr 10.96.0.10 tcp dport 53", "app to 10.96.0.10:53"),
        ("ip daddr 0.0.0.0/6", "app to 1.0.0.1:8080"),
    ] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
        pod.apply(&OPTIONS);
        if fixture.backend == Backend::Native {
            let rule = format!("insert rule inet istio-proxy-nat output {rule} accept\n");
            pod.namespace.run(|| tool("nft", &["-f", "-"], &rule));
        } else {
            let rule = rule.replace("ip daddr", "-d").replace("tcp dport", "-p tcp --dport");
            pod.iptables(Family::V4, &format!("-t nat -I OUTPUT {rule} -j ACCEPT"));
        }
        let found = marked(&pod);
        let is_it = |line: &String| line.starts_with(row) && line.contains("not captured");
        assert!(found.iter().any(is_it), "{rule}: {found:#?}");
        // A kind of traffic that shows it already has no second row.
        assert_eq!(found.iter().filter(|line| is_it(line)).count(), 1, "{rule}: {found:#?}");
    }
}

fn a_port_without_a_listener_is_marked_in_the_table(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[9090]));
    pod.apply(&["-i", "*", "-b", "8080,9090"]);
    let found = marked(&pod);
    assert_eq!(found.len(), fixture.families().len(), "{found:#?}");
    assert!(found.iter().all(|line| line.starts_with("client to the app, port 8080 ")), "{found:#?}");
}

/// The report on one packet has the problem and the fix of the report on all traffic.
fn a_flushed_chain_is_a_problem_of_its_packets(fixture: Fixture) {
    if fixture.backend == Backend::Native {
        return;
    }
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    pod.iptables(Family::V4, "-t nat -F ISTIO_OUTPUT");
    let all = problems(&pod, &[]);
    assert_eq!(all.iter().map(|[id, ..]| &**id).collect::<Vec<_>>(), ["broken-chain"], "{all:?}");
    let to = at(Family::V4.service(), 80).to_string();
    let asked = pod.bare_istio_iptables(&["explain", "--live", "--to", &to, "--expect", "not-captured"]);
    let said = asked.run().ended_with(1).stdout();
    assert!(said.contains("  problem  broken-chain\n  fix      "), "{said}");
    let excluded = ["explain", "--live", "--to", &to, "--proto", "udp", "--output", "json"];
    let said: Value = serde_json::from_str(&pod.bare_istio_iptables(&excluded).run().stdout()).expect("JSON");
    assert_eq!(said["problems"], serde_json::json!([]), "{said:#}");
}

fn one_rule_is_one_problem(fixture: Fixture) {
    if fixture.backend == Backend::Native {
        // Another table: its chain is no rule.
        return;
    }
    let own = Family::V4.pod();
    for rule in [
        "-I OUTPUT -m owner --uid-owner 1337 -j DROP",
        "-I OUTPUT -m owner --uid-owner 1337 -d 10.0.0.0/8 -j DROP",
        &format!("-I OUTPUT -m owner --gid-owner 1337 -d {own} -j REJECT"),
        "-t mangle -I OUTPUT -m owner --uid-owner 1337 -d 10.3.0.0/16 -p tcp -j DROP",
        "-t nat -I OUTPUT -p tcp --dport 443 -j ACCEPT",
        "-I INPUT -s 10.0.0.0/8 -p tcp -j DROP",
    ] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
        pod.apply(&OPTIONS);
        pod.iptables(Family::V4, rule);
        let found = problems(&pod, &[]);
        assert_eq!(found.len(), 1, "{rule}: {found:#?}");
        let check = pod.bare_istio_iptables(&["check", "--output", "json"]).run().ended_with(1).stdout();
        let check: Value = serde_json::from_str(&check).expect("JSON");
        assert_eq!(check["problems"].as_array().map(Vec::len), Some(1), "{rule}: {check:#}");
    }
    // A policy is one problem for each command that mends it.
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    pod.iptables(Family::V4, "-P INPUT DROP");
    let mut fixes: Vec<String> = problems(&pod, &[]).into_iter().map(|[_, _, fix]| fix).collect();
    let count = fixes.len();
    fixes.sort();
    fixes.dedup();
    assert_eq!(fixes.len(), count, "{fixes:#?}");
}

fn rows_of_dns_are_about_the_name_server_of_the_pod(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    for dns in [&[][..], &["--redirect-dns", "--capture-all-dns"]] {
        pod.apply(&[&OPTIONS[..], dns].concat());
        let words = ["explain", "--live", "--output", "json"];
        let asked = pod.plain_istio_iptables(&words).file("/etc/resolv.conf", "nameserver 10.96.0.10\n");
        let said: Value = serde_json::from_str(&asked.run().succeeded().stdout()).expect("JSON");
        let rows = said["traffic"].as_array().expect("rows");
        let is_dns = |row: &&Value| {
            row["family"] == "IPv4" && row["kind"].as_str().is_some_and(|kind| kind.contains("name server"))
        };
        let to: Vec<&str> = rows.iter().filter(is_dns).filter_map(|row| row["packet"].as_str()).collect();
        assert_eq!(to.len(), 4, "{said:#}");
        assert!(to.iter().all(|packet| packet.contains(" to 10.96.0.10:53")), "{to:#?}");
    }
}

/// As in an ephemeral container of `kubectl debug` without `--target`.
fn processes_that_are_hidden_are_noted_in_every_report(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    let app = pod.app().run(|| std::net::TcpListener::bind("0.0.0.0:9090").expect("a listener"));
    let process = start(&pod, "cat", Some(&app));
    let _proxy = pod.proxy_listens_without_dns();
    let to = at(Family::V4.service(), 80).to_string();
    for words in [
        &["explain", "--live"][..],
        &["explain", "--live", "--to", &to],
        &["explain", "--live", "--from", "outside", "--to", "10.99.0.2:9090"],
        &["check"],
        &["check", "-i", "'*'", "-b", "'*'", "--ip-family", "dual"],
    ] {
        let hiding = ["unshare", "--pid", "--fork", "--mount-proc", &**BUILT];
        let words = [&hiding[..], words].concat();
        let script = format!("{} || true", words.join(" "));
        let said = pod.namespace.run(|| tool("sh", &["-c", &script], ""));
        assert!(said.contains("are in another PID namespace"), "{words:?}: {said}");
        assert!(!said.contains(NOTE), "{said}");
    }
    stop(process);
}
