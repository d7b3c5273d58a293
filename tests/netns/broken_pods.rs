//! Eight pods, each broken in one way that users report: the first command names the cause as the first
//! problem and the only one.

use std::net::TcpListener;

use netlab::Listen;
use serde_json::Value;

use crate::explain_runtime::{start, stop};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};
use crate::page::{page, parsed, verdict_and_problems};

for_these_fixtures!(
    nft: IptablesNft Dual, legacy: IptablesLegacy Dual, native: Native Dual;
    [
        foreign_accept_is_the_first_problem,
        proxy_without_listeners_is_the_first_problem,
        app_with_the_uid_of_the_proxy_is_the_first_problem,
        wide_exclusion_is_the_first_problem,
        flushed_rules_are_the_first_problem,
        a_pod_before_the_first_run_has_no_other_problem,
        a_pod_with_a_link_local_ipv6_address_only_has_one_row_of_ipv6,
        uncaptured_ipv6_is_the_first_problem,
        ipv4_rules_that_another_program_flushed_are_the_first_problem,
        ipv6_only_that_was_asked_for_is_no_problem,
        uncaptured_dns_is_the_first_problem,
        app_without_a_listener_is_the_first_problem,
        a_policy_that_drops_is_mended_by_the_fix,
        a_pod_that_works_has_no_problem
    ]
);

pub(crate) const OPTIONS: [&str; 4] = ["-i", "*", "-b", "*"];

/// The problems of a report, each with its id, its cause and its fix; text and JSON have the same ones.
pub(crate) fn problems(pod: &Pod, question: &[&str]) -> Vec<[String; 3]> {
    let report = |more: &[&str]| {
        let words = [&["explain", "--live"], question, more].concat();
        pod.bare_istio_iptables(&words).run().succeeded().stdout()
    };
    let said: Value = serde_json::from_str(&report(&["--output", "json"])).expect("JSON");
    let text = report(&[]);
    let first = text.lines().next().unwrap_or_default();
    assert!(first.chars().count() <= 100, "{first}");
    let found = said["problems"].as_array().unwrap_or_else(|| panic!("{said:#}"));
    let parts = |problem: &Value| {
        ["id", "cause", "fix"].map(|key| problem[key].as_str().unwrap_or_default().to_owned())
    };
    let found: Vec<_> = found.iter().map(parts).collect();
    for [id, _, fix] in &found {
        assert!(text.contains(id) && text.contains(fix), "{id}, {fix}: {text}");
    }
    let expected = [&["explain", "--live", "--expect", "no-problem"], question].concat();
    let for_scripts = pod.bare_istio_iptables(&expected).run().ended_with(i32::from(!found.is_empty()));
    assert_eq!(for_scripts.stdout(), text);
    if question.is_empty() {
        page_has_them(pod, first, &found);
    }
    found
}

/// The page begins with the same verdict, and lists the same problems in their order.
#[track_caller]
fn page_has_them(pod: &Pod, verdict: &str, problems: &[[String; 3]]) {
    let html = page(pod);
    let (title, listed) = verdict_and_problems(&parsed(&html));
    assert_eq!(title, verdict);
    let ids = |[id, _]: &[String; 2]| id.clone();
    let expected: Vec<&String> = problems.iter().map(|[id, ..]| id).collect();
    assert_eq!(listed.iter().map(ids).collect::<Vec<_>>(), expected.into_iter().cloned().collect::<Vec<_>>());
    for ([_, cause, fix], [_, words]) in problems.iter().zip(&listed) {
        // Commands are marked as code.
        let plain = |text: &str| text.replace('`', "");
        assert!(words.contains(&plain(cause)) && words.contains(&plain(fix)), "{cause}, {fix}: {words}");
    }
}

/// Where the rules are equal, `check` names the same problems, and without one it has no note.
#[track_caller]
fn check_names_them(pod: &Pod, problems: &[[String; 3]]) {
    let check = pod.bare_istio_iptables(&["check"]).run();
    let said = check.stdout();
    if said.starts_with("equal") {
        for [id, cause, fix] in problems {
            assert!(said.contains(id) && said.contains(cause) && said.contains(fix), "{id}, {cause}: {said}");
        }
        let count = said.matches("fix: ").count();
        assert_eq!(count, problems.len(), "{problems:?}: {said}");
    }
}

#[track_caller]
pub(crate) fn is_the_only_problem(pod: &Pod, question: &[&str], id: &str, cause: &str, fix: &str) {
    let found = problems(pod, question);
    if question.is_empty() {
        check_names_them(pod, &found);
    }
    let [[first, of_first, mend]] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(first, id, "{found:?}");
    assert!(of_first.contains(cause), "{of_first}");
    assert!(mend.contains(fix), "{mend}");
}

fn foreign_accept_is_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    if fixture.backend == Backend::Native {
        let table =
            "table ip agent { chain o { type nat hook output priority -110; ip daddr 10.0.0.0/8 accept; }; }";
        pod.namespace.run(|| tool("nft", &["-f", "-"], table));
        // An accept ends its own chain only: the packet meets ours next.
        assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
        accept_in_our_chain_is_the_first_problem(&pod);
        return;
    }
    pod.iptables(Family::V4, "-t nat -I OUTPUT -d 10.0.0.0/8 -j ACCEPT");
    // The plain name may be that of the other variant.
    let tool = if fixture.backend == Backend::IptablesLegacy { "iptables-legacy" } else { "iptables" };
    let command = "-t nat -D OUTPUT -d 10.0.0.0/8 -j ACCEPT";
    let fix = &format!("`{tool} {command}`");
    is_the_only_problem(&pod, &[], "foreign-rule", "-d 10.0.0.0/8 -j ACCEPT", fix);
    is_the_only_problem(&pod, &["--to", "10.3.4.5:80"], "foreign-rule", "-d 10.0.0.0/8 -j ACCEPT", fix);
    pod.iptables(Family::V4, command);
    assert_eq!(problems(&pod, &[]), [[""; 3]; 0], "the fix mends it");
}

/// In a chain of ours an accept of another program ends what we decide; the fix deletes that rule, and the
/// next run does.
fn accept_in_our_chain_is_the_first_problem(pod: &Pod) {
    let insert = |chain: &str| {
        let rule = format!("insert rule inet istio-proxy-nat {chain} ip daddr 10.0.0.0/8 accept\n");
        pod.namespace.run(|| tool("nft", &["-f", "-"], &rule));
    };
    let check = || pod.bare_istio_iptables(&["check"]).run();
    for chain in ["output", "istio-output", "istio-redirect"] {
        insert(chain);
        let mut fixes = [&[][..], &["--to", "10.3.4.5:80"]].map(|question| {
            let found = problems(pod, question);
            let [[id, cause, fix]] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!(id, "foreign-rule", "{found:?}");
            assert!(cause.contains("-d 10.0.0.0/8 -j ACCEPT"), "{cause}");
            fix.clone()
        });
        fixes.sort();
        assert_eq!(fixes[0], fixes[1]);
        let command = format!("`nft delete rule inet istio-proxy-nat {chain} handle ");
        assert!(fixes[0].starts_with(&command) && fixes[0].contains("or run `istio-iptables`"), "{fixes:?}");
        let different = check().ended_with(1).stdout();
        assert!(
            different.contains("-d 10.0.0.0/8 -j ACCEPT") && different.contains(&fixes[0]),
            "{different}"
        );
        run_fix(pod, &fixes[0]);
        let equal = check().ended_with(0).stdout();
        assert!(equal.starts_with("equal"), "{equal}");
        assert_eq!(problems(pod, &[]), [[""; 3]; 0], "the fix mends it");
    }
    insert("output");
    pod.apply(&OPTIONS);
    assert_eq!(problems(pod, &[]), [[""; 3]; 0], "a run mends it");
}

/// The fixes of lost traffic, none of which is the question about it; the first one of each is run.
#[track_caller]
pub(crate) fn fixes_of_lost_traffic(pod: &Pod, question: &[&str]) -> Vec<String> {
    fixes_of(pod, "traffic-lost", question)
}

pub(crate) fn fixes_of(pod: &Pod, problem: &str, question: &[&str]) -> Vec<String> {
    let found = problems(pod, question);
    let lost = found.into_iter().filter(|[id, ..]| id == problem);
    let fixes: Vec<String> = lost.map(|[_, _, fix]| fix).collect();
    assert!(!fixes.is_empty() && fixes.iter().all(|fix| !fix.contains("explain --live")), "{fixes:#?}");
    fixes
}

/// Runs the command of a fix, which is between the first two backquotes.
pub(crate) fn run_fix(pod: &Pod, fix: &str) {
    let command = fix.split('`').nth(1).unwrap_or_else(|| panic!("{fix}"));
    pod.namespace.run(|| tool("sh", &["-ec", command], ""));
}

fn a_policy_that_drops_is_mended_by_the_fix(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    let accept = if fixture.backend == Backend::Native {
        let table = "table inet wall { chain in { type filter hook input priority 0; policy drop; }; }";
        pod.namespace.run(|| tool("nft", &["-f", "-"], table));
        "`nft insert rule inet wall in tcp dport { 15001, 15006 } accept`"
    } else {
        pod.iptables(Family::V4, "-P INPUT DROP");
        "-I INPUT -p tcp -m multiport --dports 15001,15006 -j ACCEPT`"
    };
    let target = at(Family::V4.pod(), 8080);
    let question = ["--from", "outside", "--to", &target.to_string()];
    for words in [&[][..], &question] {
        let fixes = fixes_of_lost_traffic(&pod, words);
        assert!(fixes[0].contains(accept), "{words:?}: {fixes:#?}");
    }
    // Replies to the app and the proxy are dropped, too, and calls of the app itself.
    for _ in 0..6 {
        let found = problems(&pod, &[]);
        let Some([_, _, fix]) = found.iter().find(|[id, ..]| id == "traffic-lost") else { break };
        run_fix(&pod, fix);
    }
    assert_eq!(problems(&pod, &[]), [[""; 3]; 0], "the fixes mend it");
    pod.outside().call(target).captured(15006, target);
}

fn proxy_without_listeners_is_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&OPTIONS);
    let ports = "outbound port 15001, inbound port 15006: nothing listens there";
    is_the_only_problem(&pod, &[], "proxy-not-listening", ports, "kubectl logs");
    let to = at(Family::V4.service(), 80).to_string();
    is_the_only_problem(&pod, &["--to", &to], "proxy-not-listening", "nothing listens there", "kubectl logs");
}

fn app_with_the_uid_of_the_proxy_is_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let inbound = pod.proxy().serve("proxy", &[Listen::TcpTransparent(15006)]);
    let _servers = (inbound, pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    let outbound = pod.proxy().run(|| TcpListener::bind("0.0.0.0:15001").expect("a listener"));
    let outbound_v6 = pod.proxy().run(|| TcpListener::bind("[::]:15001").expect("a listener"));
    const AS_PROXY: &str = "setpriv --reuid=1337 --regid=1337 --clear-groups cat";
    let proxy = start(&pod, AS_PROXY, Some(&outbound));
    // Another container: its own mounts.
    let app = start(&pod, &format!("unshare -m {AS_PROXY}"), None);
    // Until the process of the app has its user and its mounts.
    let is_named = || {
        let said =
            pod.bare_istio_iptables(&["explain", "--live", "--output", "json"]).run().succeeded().stdout();
        let said: Value = serde_json::from_str(&said).expect("JSON");
        said["problems"].as_array().is_some_and(|found| !found.is_empty())
    };
    while !is_named() {
        std::thread::yield_now();
    }
    let cause = format!("process {} (cat) is not captured: it runs as uid 1337", app.id());
    is_the_only_problem(&pod, &[], "app-as-proxy", &cause, "runAsUser");
    let to = at(Family::V4.service(), 80).to_string();
    is_the_only_problem(&pod, &["--to", &to], "app-as-proxy", &cause, "runAsUser");
    pod.bare_istio_iptables(&["explain", "--live", "--to", &to])
        .run()
        .succeeded()
        .output_contains("not captured: ");
    [app, proxy].into_iter().for_each(stop);
    drop(outbound_v6);
}

fn wide_exclusion_is_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    let options = [&OPTIONS[..], &["-x", "0.0.0.0/2,10.0.0.0/8,64.0.0.0/2"]].concat();
    pod.apply(&options).output_contains("50 % of IPv4 are excluded");
    is_the_only_problem(&pod, &[], "wide-exclusion", "50 % of IPv4", "-x");
    // That is asked for, and no difference.
    for words in [&["check"][..], &[&["check"], &options[..]].concat()] {
        let said = pod.istio_iptables(words).run().ended_with(0).stdout();
        assert!(said.starts_with("equal: ") && said.contains("50 % of IPv4"), "{said}");
        assert!(said.contains("note: wide-exclusion: "), "{said}");
    }
}

fn flushed_rules_are_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    if fixture.backend == Backend::Native {
        pod.namespace.run(|| tool("nft", &["flush", "ruleset"], ""));
    } else {
        for family in [Family::V4, Family::V6] {
            pod.iptables(family, "-t nat -F");
        }
    }
    is_the_only_problem(&pod, &[], "no-rules", "no rule", "`istio-iptables -i '*' -b '*'`");
    let said = pod.istio_iptables(&["check"]).run().ended_with(1).stdout();
    assert!(said.starts_with("no capture rule is live\n"), "{said}");
}

/// The connection from 127.0.0.6 or ::6 to the app exists with capture only.
fn a_pod_before_the_first_run_has_no_other_problem(fixture: Fixture) {
    let pod = fixture.pod();
    is_the_only_problem(&pod, &[], "no-rules", "no rule", "kubectl delete pod");
}

fn a_pod_with_a_link_local_ipv6_address_only_has_one_row_of_ipv6(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    let off = match fixture.backend {
        Backend::Native => "nft add table inet istio-proxy-nat '{ flags dormant; }'",
        Backend::IptablesNft => {
            "nft add table ip nat '{ flags dormant; }'; nft add table ip6 nat '{ flags dormant; }'"
        }
        Backend::IptablesLegacy => "iptables-legacy -t nat -F; ip6tables-legacy -t nat -F",
    };
    let commands = format!(
        "way=$(ip route show default | sed 's/.* dev \\([^ ]*\\).*/\\1/')
         ip -6 addr flush dev $way; ip -6 addr add fe80::5/64 dev $way nodad; {off}"
    );
    pod.namespace.run(|| tool("sh", &["-ec", &commands], ""));
    let found = problems(&pod, &[]);
    assert!(found.iter().all(|[id, ..]| id != "traffic-lost"), "{found:?}");
    let words = ["explain", "--live", "--output", "json"];
    let said = pod.bare_istio_iptables(&words).run().succeeded().stdout();
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let rows = said["traffic"].as_array().unwrap_or_else(|| panic!("{said:#}"));
    let of_v6 = rows.iter().filter(|row| row["family"] == "IPv6");
    assert_eq!(of_v6.count(), 1, "{said:#}");
}

fn uncaptured_ipv6_is_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    pod.bare_istio_iptables(&OPTIONS).run().succeeded();
    let address = Family::V6.pod().to_string();
    is_the_only_problem(&pod, &[], "ipv6-not-captured", &address, "--dual-stack");
}

/// Shorewall (5.2.8) restores the tables of IPv4 as a whole, and leaves those of IPv6 to shorewall6.
fn ipv4_rules_that_another_program_flushed_are_the_first_problem(fixture: Fixture) {
    const SHOREWALL: &str = "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n\
        *nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n\
        *mangle\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
        :POSTROUTING ACCEPT [0:0]\nCOMMIT\n";
    if fixture.backend == Backend::Native {
        // The tables of both families are one.
        return;
    }
    for mode in ["REDIRECT", "TPROXY"] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
        pod.apply(&[&OPTIONS[..], &["-m", mode]].concat());
        let restore = fixture.backend.tool(Family::V4, "-restore");
        pod.namespace.run(|| tool(&restore, &[], SHOREWALL));
        let address = Family::V4.pod().to_string();
        let question = ["--to", &at(Family::V4.service(), 80).to_string()];
        for question in [&[][..], &question] {
            is_the_only_problem(&pod, question, "ipv4-not-captured", &address, "--ip-family ipv6");
        }
        let check = pod.bare_istio_iptables(&["check"]).run().ended_with(1);
        assert!(check.stdout().starts_with("different from "), "{}", check.stdout());
        pod.apply(&[&OPTIONS[..], &["-m", mode]].concat());
        assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
    }
}

fn ipv6_only_that_was_asked_for_is_no_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[8080]));
    let only = ["--ip-family", "ipv6"];
    pod.bare_istio_iptables(&[&OPTIONS[..], &only].concat()).run().succeeded();
    assert_eq!(problems(&pod, &only), [[""; 3]; 0]);
    pod.bare_istio_iptables(&[&["check"][..], &only].concat()).run().succeeded();
    let address = Family::V4.pod().to_string();
    is_the_only_problem(&pod, &[], "ipv4-not-captured", &address, "--ip-family ipv6");
}

fn uncaptured_dns_is_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&OPTIONS);
    is_the_only_problem(&pod, &[], "dns-not-captured", "15053", "--redirect-dns");
}

fn app_without_a_listener_is_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[9090]));
    pod.apply(&["-i", "*", "-b", "8080,9090"]);
    is_the_only_problem(&pod, &[], "app-not-listening", "TCP port 8080", "ss -lntp");
    let question = ["--from", "outside", "--to", &at(Family::V4.pod(), 8080).to_string()];
    is_the_only_problem(&pod, &question, "app-not-listening", "TCP port 8080", "ss -lntp");
}

fn a_pod_that_works_has_no_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&[&OPTIONS[..], &["--redirect-dns", "--capture-all-dns"]].concat());
    assert_eq!(problems(&pod, &[]), [[""; 3]; 0]);
    check_names_them(&pod, &[]);
}
