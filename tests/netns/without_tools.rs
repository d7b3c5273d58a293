//! Questions about live rules in an image without iptables: the kernel answers them. So it does for runs,
//! which are refused only if they have to write.

use std::fs;

use serde_json::Value;

use crate::lab::fixture::at;
use crate::lab::program::{Ended, Program, tool};
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(
    legacy: IptablesLegacy Dual, nft: IptablesNft Dual;
    [
        questions_need_no_tools,
        packets_are_counted_without_tools,
        a_run_without_tools_is_converged_or_leaves_rules_as_they_are,
        rules_of_two_backends_have_one_answer,
        empty_native_tables_hide_no_rules
    ]
);
for_these_fixtures!(native: Native Dual; [rules_of_two_backends_have_one_answer]);
for_these_fixtures!(
    legacy_only: IptablesLegacy Dual;
    [
        an_unread_foreign_rule_is_uncertain_without_tools,
        a_dry_run_for_another_variant_without_tools_knows_the_live_rules
    ]
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

fn a_run_without_tools_is_converged_or_leaves_rules_as_they_are(fixture: Fixture) {
    let variant = fixture.backend.flag();
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    let before = pod.state();
    let run = |options: &[&str]| without_tools(&pod, &[options, &["--dual-stack"]].concat());
    run(&OPTIONS)
        .succeeded()
        .output_contains("already converged")
        .output_contains(&format!("backend {variant}: it holds the live rules"));
    let dry = run(&[&OPTIONS[..], &["--dry-run"]].concat()).succeeded();
    dry.output_contains("already converged").output_contains(&format!("backend {variant}"));
    for change in [&["-i", "*", "-b", "*", "-o", "80"][..], &["cleanup"]] {
        let missing = format!("{variant}-restore and {variant}-save are needed");
        let of_run = format!("{missing} (IPv4 rules of an earlier run are in {variant}");
        for more in [&[][..], &["--dry-run"]] {
            let family = if change == ["cleanup"] { &[][..] } else { &["--dual-stack"] };
            let run = without_tools(&pod, &[change, more, family].concat());
            let run = run.ended_with(69).output_contains(&of_run);
            assert_eq!(pod.state(), before, "{change:?}");
            // The plan is that against the live rules.
            if !more.is_empty() {
                let said = run.output_contains("step 1 of").output();
                assert!(!said.contains("empty namespace"), "{said}");
                assert!(said.contains("ISTIO_OUTPUT") && !said.contains("--to-ports 15001"), "{said}");
            }
        }
    }
}

fn a_dry_run_for_another_variant_without_tools_knows_the_live_rules(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    let words = [&OPTIONS[..], &["--dual-stack", "--backend", "iptables-nft", "--dry-run"]].concat();
    let run = without_tools(&pod, &words).ended_with(69);
    let said = run.output_contains("iptables-legacy-restore").output();
    assert!(said.contains("-X ISTIO_OUTPUT"), "the legacy rules are to go: {said}");
}

/// The rules of another backend, by another run elsewhere, beside those that are live: as a program leaves
/// them that knows the other backend only.
fn rules_of_two_backends_have_one_answer(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    pod.apply(&OPTIONS);
    let other = if fixture.backend == Backend::IptablesNft { "legacy" } else { "nft" };
    let elsewhere = fixture.pod();
    let backend = format!("iptables-{other}");
    let run = [&OPTIONS[..], &["--dual-stack", "--backend", &backend]].concat();
    elsewhere.plain_istio_iptables(&run).run().succeeded();
    for ip in ["iptables", "ip6tables"] {
        let save = format!("{ip}-{other}-save");
        let saved = elsewhere.namespace.run(|| tool(&save, &["-t", "nat"], ""));
        let restore = format!("{ip}-{other}-restore");
        pod.namespace.run(|| tool(&restore, &[], &saved));
    }
    let questions =
        [&["check", "--output", "json"][..], &["check", "--output", "json", "-i", "*", "-b", "*"]];
    for words in questions {
        let with = pod.plain_istio_iptables(words).run().ended_with(1).stdout();
        let without = without_tools(&pod, words).ended_with(1).stdout();
        assert_eq!(with, without, "{words:?}");
        let said: Value = serde_json::from_str(&with).unwrap_or_else(|error| panic!("{error}: {with}"));
        assert!(said["problems"].to_string().contains("two-backends"), "{said:#}");
    }
    let said = same(&pod, &["explain", "--live"]);
    assert!(said.contains("two-backends: "), "{said}");
    same(&pod, &["show"]);
    // A run removes one of them, and with it the problem.
    pod.plain_istio_iptables(&OPTIONS).arg("--dual-stack").run().succeeded();
    let said = same(&pod, &["check"]);
    assert!(said.starts_with("equal: "), "{said}");
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

/// Tables with the names of ours in which no packet meets a rule.
fn empty_native_tables_hide_no_rules(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    pod.apply(&OPTIONS);
    for table in
        ["istio-proxy-nat", "istio-proxy-raw { flags dormant; }", "istio-proxy-mangle { chain empty { }; }"]
    {
        pod.namespace.run(|| tool("nft", &["-f", "-"], &format!("table inet {table}")));
        for &family in fixture.families() {
            let to = at(family.service(), 80).to_string();
            let words = ["explain", "--live", "--to", &to];
            let said = pod.plain_istio_iptables(&words).run().succeeded().stdout();
            assert!(said.starts_with("captured: goes to the proxy's outbound port 15001"), "{table}: {said}");
        }
        let said = pod.plain_istio_iptables(&["check"]).run().ended_with(1).stdout();
        assert!(said.starts_with("different"), "{table}: {said}");
    }
    pod.plain_istio_iptables(&OPTIONS).arg("--dual-stack").run().succeeded();
    assert!(same(&pod, &["check"]).starts_with("equal: "));
}
