//! `show`: the live rules of ours with what they have counted.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::lab::fixture::at;
use crate::lab::program::BUILT;
use crate::lab::{Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    counters_and_reasons_of_live_rules_are_shown,
    without_rules_there_is_nothing_to_show,
    rates_are_printed_until_the_reader_leaves
);

const EXCLUDED: &str = "203.0.113.0/24,198.18.0.0/24,198.19.1.0/24";

fn show(pod: &Pod) -> Vec<Value> {
    let output = pod.bare_istio_iptables(&["show", "--output", "json"]).run().succeeded().output();
    let line = output.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{output}"));
    rules(line)
}

fn rules(line: &str) -> Vec<Value> {
    let said: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    said["rules"].as_array().unwrap_or_else(|| panic!("{said:#}")).clone()
}

/// The packets that the first rule with this reason in a family has counted.
fn packets(rules: &[Value], family: &str, why: &str) -> Option<u64> {
    let found = rules.iter().find(|rule| rule["family"] == family && rule["why"] == why)?;
    assert_eq!(found["never_matched"], found["packets"] == 0, "{found:#}");
    found["packets"].as_u64()
}

fn counters_and_reasons_of_live_rules_are_shown(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 443]));
    pod.apply(&["-i", "*", "-b", "*", "-o", "443", "-x", EXCLUDED]);
    let before = show(&pod);
    // The rules of all chains have reasons, and none has matched.
    assert!(before.len() > 20, "{before:#?}");
    for &family in fixture.families() {
        let name = format!("{family:?}").replace("V4", "IPv4").replace("V6", "IPv6");
        assert_eq!(packets(&before, &name, "excluded-outbound-port"), Some(0), "{before:#?}");
    }
    let family = fixture.families()[0];
    for port in [80, 80, 80, 443] {
        pod.app().call(at(family.service(), port));
    }
    let after = show(&pod);
    assert_eq!(packets(&after, "IPv4", "excluded-outbound-port"), Some(1), "{after:#?}");
    assert_eq!(packets(&after, "IPv4", "to-outbound-port"), Some(3), "{after:#?}");
    assert_eq!(packets(&after, "IPv4", "excluded-range"), Some(0), "{after:#?}");
    let text = pod.bare_istio_iptables(&["show"]).run().succeeded().stdout();
    let reason = "this outbound port is not captured (-o)";
    assert!(text.contains("nat ISTIO_OUTPUT (IPv4") && text.contains(reason), "{text}");
    assert!(text.lines().next().is_some_and(|first| !first.trim().is_empty()), "{text}");
    // The other commands have the same words for this rule.
    let to = at(crate::lab::Family::V4.service(), 443).to_string();
    let explained = pod.bare_istio_iptables(&["explain", "--live", "--to", &to]).run().succeeded().stdout();
    let without = ["diff", "options", "live", "-i", "*", "-b", "*", "-x", EXCLUDED];
    let compared = pod.bare_istio_iptables(&without).run().ended_with(1).stdout();
    assert_eq!(explained.lines().next(), Some(format!("not captured: {reason}").as_str()));
    assert!(compared.contains(&format!("\n  because  {reason}\n")), "{compared}");
}

fn without_rules_there_is_nothing_to_show(fixture: Fixture) {
    let pod = fixture.pod();
    assert_eq!(show(&pod), Vec::<Value>::new());
    pod.bare_istio_iptables(&["show"]).run().succeeded().output_contains("no capture rule is live");
    pod.bare_istio_iptables(&["show", "--output", "xml"])
        .run()
        .ended_with(64)
        .output_contains("text or json");
}

fn rates_are_printed_until_the_reader_leaves(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "*"]);
    let mut watching = pod.namespace.run(|| {
        let mut command = Command::new(&*BUILT);
        command.args(["show", "--watch", "--output", "json"]).stdout(Stdio::piped());
        command.spawn().expect("start istio-iptables")
    });
    let mut lines = BufReader::new(watching.stdout.take().expect("its output")).lines();
    let mut next = || rules(&lines.next().expect("a line").expect("text"));
    assert!(next().iter().all(|rule| rule["packets_per_second"].is_null()), "there is no earlier list");
    assert!(next().iter().all(|rule| rule["packets_per_second"] == 0.0), "no packet was sent");
    drop(lines);
    let ended = watching.wait().expect("it ends");
    assert_eq!(ended.signal(), Some(libc::SIGPIPE), "as that of other programs: {ended}");
}
