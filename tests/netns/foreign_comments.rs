//! Comments of foreign rules say nothing about packets: no report depends on them.

use crate::check::check;
use crate::explain_live::{Question, report};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    check_and_explain_report_the_same_whatever_the_comment,
    lost_calls_of_the_proxy_are_named_whatever_the_priority,
);

const EVERYTHING: [&str; 6] = ["-i", "*", "-b", "*", "-u", "1337"];

/// Each holds words by which a report could be led astray.
const COMMENTS: [&str; 8] = [
    "no replies",
    "app may not reply",
    "rule-owner net",
    "-p tcp --src-type LOCAL",
    "-m connmark --restore-mark",
    "-m unknown",
    "-j ACCEPT",
    "--tproxy-mark",
];

/// Calls iptables, with words between bars.
fn iptables(pod: &Pod, backend: Backend, rule: &str) {
    let words: Vec<&str> = rule.split('|').collect();
    pod.namespace.run(|| tool(&backend.tool(Family::V4, ""), &words, ""));
}

/// What `check` says, without the comment.
fn checked(pod: &Pod, comment: &str) -> (i32, String) {
    let (code, said) = check(pod, &EVERYTHING);
    let notices = said["notices"].as_array().unwrap_or_else(|| panic!("{said:#}")).iter();
    let notices: Vec<&str> = notices.filter_map(|notice| notice.as_str()).collect();
    let quoted = if comment.contains(' ') { format!("\"{comment}\"") } else { comment.to_owned() };
    (code, notices.join("\n").replace(&quoted, "COMMENT"))
}

fn check_and_explain_report_the_same_whatever_the_comment(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[7000]));
    pod.apply(&EVERYTHING);
    let mut reports = Vec::new();
    for comment in COMMENTS {
        let rule = format!("OUTPUT|-p|tcp|-d|127.0.0.6|-m|comment|--comment|{comment}|-j|DROP");
        iptables(&pod, fixture.backend, &format!("-I|{rule}"));
        let (code, notices) = checked(&pod, comment);
        assert_eq!(code, 1, "{comment}: the app's replies to the proxy are dropped: {notices}");
        assert!(notices.contains("do not arrive") || notices.contains("is lost"), "{comment}: {notices}");
        iptables(&pod, fixture.backend, &format!("-D|{rule}"));
        let chain = "type filter hook prerouting priority -200;";
        let commands = format!(
            "table ip agent {{ chain early {{ {chain} tcp dport 7000 drop comment \"{comment}\"; }}; }}"
        );
        pod.namespace.run(|| tool("nft", &["-f", "-"], &commands));
        let question = Question { from: "outside", to: at(Family::V4.pod(), 7000), is_udp: false };
        let verdict = report(&pod, &[], &question)["verdict"].clone();
        assert_eq!(verdict, "dropped", "{comment}");
        pod.namespace.run(|| tool("nft", &["delete", "table", "ip", "agent"], ""));
        reports.push(notices);
    }
    assert!(reports.iter().all(|report| report == &reports[0]), "{reports:#?}");
}

/// The chain is before ours or behind them: the proxy's connections end in both places.
fn lost_calls_of_the_proxy_are_named_whatever_the_priority(fixture: Fixture) {
    for priority in [-200, 0] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[7000]));
        pod.apply(&EVERYTHING);
        let commands = format!(
            "table ip agent {{ chain out {{ type filter hook output priority {priority}; meta skuid 1337 tcp dport 443 drop; }}; }}"
        );
        pod.namespace.run(|| tool("nft", &["-f", "-"], &commands));
        let (code, notices) = checked(&pod, "none");
        assert_eq!(code, 1, "{priority}: {notices}");
        let is_exact = |line: &str| {
            ["proxy to ", ":443", "is lost", "ip agent out"].iter().all(|part| line.contains(part))
        };
        assert!(notices.lines().any(is_exact), "{priority}: {notices}");
    }
}
