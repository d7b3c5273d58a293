//! The first line of `explain --live` beside foreign rules, marks, zones and routes: each against the kernel.

mod case;

use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Fixture, for_each_backend_and_native, for_these_fixtures, verdict};

use case::all_hold;
pub(crate) use case::{address, later_packets_come_through, set_up};

for_each_backend_and_native!(
    marks_are_routed_where_they_are_set,
    zones_of_others_may_keep_replies_from_their_connection,
    masks_that_are_no_prefix_are_evaluated,
    packets_that_are_untracked_by_their_flags,
    untracked_packets_with_tproxy,
    translation_behind_tproxy,
    sockets_that_others_give_packets,
    our_mark_of_others,
    sources_are_chosen_as_the_kernel_does,
    packets_for_an_address_of_lo_arrive_on_another_interface,
    policy_rules_test_what_the_kernel_asks,
    replies_to_the_proxys_calls_to_its_own_pod,
    routes_of_others_are_followed,
    redirections_to_the_proxy_by_others,
    connections_of_packets_are_known,
    alternatives_that_lead_to_one_verdict_are_certain,
    later_packets_that_are_dropped_are_named,
    postrouting_is_followed,
    later_packets_of_direct_connections_are_followed,
    order_of_chains_with_one_priority_is_not_guessed,
    causes_are_those_without_which_packets_are_captured,
    policies_of_ipsec_are_noted,
    translations_of_the_other_family_are_skipped,
    marks_of_others_leave_no_proof_of_equality,
    values_that_rules_name_are_not_those_of_every_packet,
);

for_these_fixtures!(
    iptables_nft: IptablesNft Dual;
    [tables_that_are_switched_off_have_no_effect, switched_off_tables_of_ours_are_named_everywhere]
);

for_these_fixtures!(
    nft_off: IptablesNft Dual, native_off: Native Dual;
    [switched_off_tables_are_the_first_problem]
);

fn marks_are_routed_where_they_are_set(fixture: Fixture) {
    all_hold(fixture, include_str!("marks.txt"));
}

fn later_packets_of_direct_connections_are_followed(fixture: Fixture) {
    all_hold(fixture, include_str!("direct.txt"));
}

fn values_that_rules_name_are_not_those_of_every_packet(fixture: Fixture) {
    all_hold(fixture, include_str!("defaults.txt"));
}

fn zones_of_others_may_keep_replies_from_their_connection(fixture: Fixture) {
    all_hold(fixture, include_str!("zones.txt"));
}

fn replies_to_the_proxys_calls_to_its_own_pod(fixture: Fixture) {
    all_hold(fixture, include_str!("self_calls.txt"));
}

fn masks_that_are_no_prefix_are_evaluated(fixture: Fixture) {
    all_hold(fixture, include_str!("masks.txt"));
}

fn packets_that_are_untracked_by_their_flags(fixture: Fixture) {
    all_hold(fixture, include_str!("tcp_flags.txt"));
}

fn untracked_packets_with_tproxy(fixture: Fixture) {
    all_hold(fixture, include_str!("untracked.txt"));
}

fn translation_behind_tproxy(fixture: Fixture) {
    all_hold(fixture, include_str!("translation.txt"));
}

fn sockets_that_others_give_packets(fixture: Fixture) {
    all_hold(fixture, include_str!("sockets.txt"));
}

fn our_mark_of_others(fixture: Fixture) {
    all_hold(fixture, include_str!("our_mark.txt"));
}

fn sources_are_chosen_as_the_kernel_does(fixture: Fixture) {
    all_hold(fixture, include_str!("sources.txt"));
}

fn packets_for_an_address_of_lo_arrive_on_another_interface(fixture: Fixture) {
    all_hold(fixture, include_str!("unnumbered.txt"));
}

fn policy_rules_test_what_the_kernel_asks(fixture: Fixture) {
    all_hold(fixture, include_str!("policy_rules.txt"));
}

fn routes_of_others_are_followed(fixture: Fixture) {
    all_hold(fixture, include_str!("routes.txt"));
}

fn redirections_to_the_proxy_by_others(fixture: Fixture) {
    all_hold(fixture, include_str!("redirections.txt"));
}

fn connections_of_packets_are_known(fixture: Fixture) {
    all_hold(fixture, include_str!("connections.txt"));
}

fn alternatives_that_lead_to_one_verdict_are_certain(fixture: Fixture) {
    all_hold(fixture, include_str!("alternatives.txt"));
}

fn later_packets_that_are_dropped_are_named(fixture: Fixture) {
    all_hold(fixture, include_str!("established.txt"));
}

fn postrouting_is_followed(fixture: Fixture) {
    all_hold(fixture, include_str!("postrouting.txt"));
}

fn order_of_chains_with_one_priority_is_not_guessed(fixture: Fixture) {
    all_hold(fixture, include_str!("order.txt"));
}

fn causes_are_those_without_which_packets_are_captured(fixture: Fixture) {
    all_hold(fixture, include_str!("causes.txt"));
}

/// IPsec policies are not evaluated, so nothing is said of their consequences, and `check` does not fail.
fn policies_of_ipsec_are_noted(fixture: Fixture) {
    const NOTE: &str = "IPsec policies exist, they are not evaluated";
    let policy = "xfrm policy add dir out dst 192.0.2.0/24 action allow";
    let default = "xfrm policy setdefault out block";
    for words in [policy, default] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        pod.apply(&["-i", "*", "-b", "*"]);
        let to = at(fixture.families()[0].service(), 80).to_string();
        let reports = || {
            let check = pod.istio_iptables(&["check", "-i", "*", "-b", "*"]).run().succeeded().stdout();
            let explain = |more: &[&str]| {
                let words = [&["explain", "--live"], more].concat();
                pod.bare_istio_iptables(&words).run().succeeded().stdout()
            };
            [check, explain(&[]), explain(&["--to", &to]), explain(&["--to", &to, "--output", "json"])]
        };
        reports().iter().for_each(|report| assert!(!report.contains("IPsec"), "{report}"));
        pod.namespace.run(|| tool("ip", &words.split(' ').collect::<Vec<_>>(), ""));
        reports().iter().for_each(|report| assert!(report.contains(NOTE), "{words}: {report}"));
    }
}

fn tables_that_are_switched_off_have_no_effect(fixture: Fixture) {
    all_hold(fixture, include_str!("dormant.txt"));
}

fn switched_off_tables_of_ours_are_named_everywhere(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[7000]));
    pod.apply(&["-i", "*", "-b", "*"]);
    let first = |words: &[&str]| {
        let said = pod.bare_istio_iptables(words).run().stdout();
        verdict(&said)
    };
    let table = || pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
    let diff = ["diff", "live", "options", "-i", "*", "-b", "*", "--dual-stack"];
    assert!(!table().contains("dormant"), "{}", table());
    assert!(first(&diff).starts_with("equal"), "{}", first(&diff));
    pod.namespace.run(|| tool("nft", &["add", "table", "ip", "nat", "{ flags dormant; }"], ""));
    assert!(verdict(&table()).contains("ip nat is dormant"), "{}", table());
    assert!(first(&diff).starts_with("different"), "{}", first(&diff));
    let bundle = pod.bare_istio_iptables(&["bundle"]).run().succeeded().stdout();
    assert!(bundle.contains("ip nat is dormant"), "{bundle}");
}

/// The fix of the first problem makes the rules live again: a run refuses a dormant table of iptables.
fn switched_off_tables_are_the_first_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[7000]));
    pod.apply(&["-i", "*", "-b", "*"]);
    let tables: &[&str] = match fixture.backend {
        Backend::Native => &["inet istio-proxy-nat"],
        Backend::IptablesNft | Backend::IptablesLegacy => &["ip nat", "ip6 nat"],
    };
    let nft = |table: &str, flags: &str| {
        let commands = format!("add table {table} {flags}");
        pod.namespace.run(|| tool("nft", &["-f", "-"], &commands));
    };
    let said = |words: &[&str]| pod.bare_istio_iptables(words).run().stdout();
    let [before, _] = [said(&["check"]), said(&["explain", "--live"])];
    assert!(!before.contains("dormant"), "{before}");
    tables.iter().for_each(|table| nft(table, "{ flags dormant; }"));
    for words in [&["explain", "--live"][..], &["check"], &["check", "-i", "*", "-b", "*", "--dual-stack"]] {
        let said = said(words);
        assert!(!said.contains("no-rules"), "{words:?}: {said}");
        tables.iter().for_each(|table| assert!(said.contains(table), "{words:?}: {table}: {said}"));
    }
    let explained = said(&["explain", "--live"]);
    assert!(explained.contains(" 1. dormant-table: "), "{explained}");
    tables.iter().for_each(|table| nft(table, ""));
    assert_eq!(said(&["check"]), before, "the fix mends it");
}

fn translations_of_the_other_family_are_skipped(fixture: Fixture) {
    all_hold(fixture, include_str!("inet.txt"));
}

/// Policy rules may drop what they mark, which `diff` does not follow.
fn marks_of_others_leave_no_proof_of_equality(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-i", "*", "-b", "*"]);
    let diff = || {
        let stack = if fixture.families().len() == 2 { &["--dual-stack"][..] } else { &[] };
        pod.bare_istio_iptables(&[&["diff", "live", "options", "-i", "*", "-b", "*"], stack].concat()).run()
    };
    diff().ended_with(0).output_contains("equal");
    for &family in fixture.families() {
        pod.iptables(family, "-t mangle -A OUTPUT -p tcp --dport 9999 -j MARK --set-mark 0x20");
    }
    diff().ended_with(1);
}
