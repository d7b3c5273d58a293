//! Questions about live rules in an image without iptables: the kernel answers them. Runs are refused, as
//! they have to write.

use std::fs;

use serde_json::Value;

use crate::lab::fixture::at;
use crate::lab::program::{Ended, Program, tool};
use crate::lab::{Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(
    legacy: IptablesLegacy Dual, nft: IptablesNft Dual;
    [questions_need_no_tools, packets_are_counted_without_tools]
);
for_these_fixtures!(
    legacy_only: IptablesLegacy Dual;
    [a_run_without_tools_leaves_legacy_rules_as_they_are, an_unread_foreign_rule_is_uncertain_without_tools]
);

const OPTIONS: [&str; 6] = ["-i", "*", "-b", "*", "-o", "443"];
/// A folder that is not there.
const NO_TOOLS: &str = "/mnt/none";

fn without_tools(pod: &Pod, words: &[&str]) -> Ended {
    pod.plain_istio_iptables(words).env("PATH", NO_TOOLS).run()
}

/// What a command prints, which must be the same with and without tools.
#[track_caller]
fn same(pod: &Pod, words: &[&str]) -> String {
    let with = pod.plain_istio_iptables(words).run().succeeded().stdout();
    let without = without_tools(pod, words).succeeded().stdout();
    assert_eq!(with, without, "{words:?}");
    with
}

fn questions_need_no_tools(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    let options = [&OPTIONS[..], &["--dual-stack"]].concat();
    for family in fixture.families() {
        let to = at(family.service(), 80).to_string();
        let said = same(&pod, &["explain", "--live", "--to", &to]);
        assert!(said.starts_with("captured: "), "{said}");
    }
    same(&pod, &["explain", "--live"]);
    same(&pod, &[&["check"], &options[..]].concat());
    same(&pod, &[&["diff", "options", "live"], &options[..]].concat());
    same(&pod, &["show"]);
    let drift = ["check", "-i", "*", "-b", "*", "--dual-stack"];
    let found = |ended: Ended| (ended.code(), ended.stdout());
    let with = found(pod.plain_istio_iptables(&drift).run());
    assert_eq!(with, found(without_tools(&pod, &drift)));
    assert_ne!(with.0, 0, "{}", with.1);
    let bundle = without_tools(&pod, &[&["bundle"], &options[..]].concat()).succeeded().stdout();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), bundle).unwrap();
    let words = ["explain", "--bundle", file.path().to_str().unwrap()];
    let replayed = Program::anywhere(&words).run().succeeded().stdout();
    assert_eq!(replayed, pod.plain_istio_iptables(&["explain", "--live"]).run().succeeded().stdout());
}

fn packets_are_counted_without_tools(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[443]));
    pod.apply(&OPTIONS);
    for &family in fixture.families() {
        pod.app().call(at(family.service(), 443));
    }
    let said = without_tools(&pod, &["show", "--output", "json"]).succeeded().stdout();
    let said: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    for family in ["IPv4", "IPv6"] {
        let rules = said["rules"].as_array().unwrap().iter();
        let mut of_port = rules.filter(|rule| {
            (&rule["family"], &rule["why"]) == (&family.into(), &"excluded-outbound-port".into())
        });
        assert_eq!(of_port.next().map(|rule| &rule["packets"]), Some(&1.into()), "{family}: {said:#}");
    }
}

fn a_run_without_tools_leaves_legacy_rules_as_they_are(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    let before = pod.state();
    for change in [&OPTIONS[..], &["-i", "*", "-b", "*", "-o", "80"], &["--cleanup-only"]] {
        let run = pod.plain_istio_iptables(change).arg("--dual-stack").env("PATH", NO_TOOLS).run();
        run.ended_with(69).output_contains("iptables-legacy");
        assert_eq!(pod.state(), before, "{change:?}");
    }
}

/// Without its words, a match is not known: packets may be the rule's.
fn an_unread_foreign_rule_is_uncertain_without_tools(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    pod.apply(&OPTIONS);
    let rule = "--wait -t nat -I OUTPUT -p tcp -m time --timestart 01:00 --timestop 02:00 -j ACCEPT";
    pod.namespace.run(|| tool("iptables-legacy", &rule.split(' ').collect::<Vec<_>>(), ""));
    let to = at(Family::V4.service(), 80).to_string();
    let words = ["explain", "--live", "--to", &to];
    let with = pod.plain_istio_iptables(&words).run().succeeded().stdout();
    let without = without_tools(&pod, &words).succeeded().stdout();
    let first = |said: &str| said.lines().next().unwrap_or_default().to_owned();
    assert!(first(&with).contains("unless a foreign rule in"), "{with}");
    assert!(first(&without).contains("unless a foreign rule in"), "{without}");
}
