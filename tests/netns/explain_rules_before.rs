//! `explain --live` and what decides before our rules, or has removed them.

use netlab::socket::{self, Binding};

use crate::explain_live::{Question, report};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native, verdict};

for_each_backend_and_native!(
    base_chains_before_our_rules_are_walked,
    base_chain_of_the_same_priority_may_decide,
    removed_rules_are_a_problem,
    uncaptured_ipv6_is_a_problem,
    lost_traffic_is_a_problem,
    own_address_is_a_call_of_the_app_unless_another_sender_is_named,
);

const EVERYTHING: [&str; 6] = ["-i", "*", "-b", "*", "-d", "7000"];

fn nft(pod: &Pod, commands: &str) {
    pod.namespace.run(|| tool("nft", &["-f", "-"], commands));
}

/// Whether a connection comes to be; what takes it elsewhere finds no listener there.
fn gets_reply(pod: &Pod, from: &str, to: std::net::SocketAddr) -> bool {
    let user = if from == "outside" { pod.outside() } else { pod.app() };
    let Ok(attempt) = user.run(|| socket::start_connect(to, Binding::default())) else { return false };
    // Later packets have come through.
    pod.outside().call(at(if to.is_ipv4() { Family::V4 } else { Family::V6 }.pod(), 7000)).response();
    attempt.peer_addr().is_ok()
}

fn base_chains_before_our_rules_are_walked(fixture: Fixture) {
    for (chain, verdict, (from, port)) in [
        (
            "type nat hook output priority -150; tcp dport 80 redirect to :9999",
            "taken-by-foreign-rule",
            ("app", 80),
        ),
        (
            "type nat hook prerouting priority -150; tcp dport 8080 redirect to :9999",
            "taken-by-foreign-rule",
            ("outside", 8080),
        ),
        ("type filter hook output priority -200; tcp dport 80 drop", "dropped", ("app", 80)),
        ("type filter hook prerouting priority -300; tcp dport 8080 drop", "dropped", ("outside", 8080)),
        ("type filter hook prerouting priority -50; tcp dport 15006 drop", "dropped", ("outside", 8080)),
        ("type filter hook output priority -200; tcp dport 81 drop", "captured", ("app", 80)),
    ] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[7000, 8080]), pod.outside_listens(&[80]));
        pod.apply(&EVERYTHING);
        nft(&pod, &format!("table inet agent {{ chain early {{ {chain}; }}; }}"));
        for &family in fixture.families() {
            let to = at(if from == "app" { family.service() } else { family.pod() }, port);
            assert_eq!(gets_reply(&pod, from, to), verdict == "captured", "{chain}: {from} to {to}");
            let explained = report(&pod, &[], &Question { from, to, is_udp: false });
            assert_eq!(explained["verdict"], verdict, "{chain}: {explained:#}");
            let because = explained["because"].as_str().unwrap_or_default();
            assert!(verdict == "captured" || because.contains("dport"), "{chain}: {explained:#}");
        }
    }
}

/// Which of them is first depends on which was made last.
fn base_chain_of_the_same_priority_may_decide(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    nft(
        &pod,
        "table inet agent { chain same { type nat hook output priority -100; tcp dport 80 redirect to :9999; }; }",
    );
    for &family in fixture.families() {
        let question = Question { from: "app", to: at(family.service(), 80), is_udp: false };
        let explained = report(&pod, &[], &question);
        assert_eq!(explained["verdict"], "captured", "{explained:#}");
        assert!(explained["may_decide"].to_string().contains("9999"), "{explained:#}");
    }
}

/// The first line of the table of all traffic, and the list of problems.
fn first_line(pod: &Pod) -> String {
    let output = pod.istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
    verdict(&output)
}

fn removed_rules_are_a_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[7000]));
    for (damage, native, problem) in [
        ("-t nat -F OUTPUT", "output", "no rule jumps to nat ISTIO_OUTPUT"),
        ("-t nat -F PREROUTING", "prerouting", "no rule jumps to nat ISTIO_INBOUND"),
        ("-t nat -F ISTIO_OUTPUT", "istio-output", "no rule is in nat ISTIO_OUTPUT"),
        ("-t nat -F ISTIO_REDIRECT", "istio-redirect", "no rule is in nat ISTIO_REDIRECT"),
    ] {
        pod.apply(&EVERYTHING);
        assert!(first_line(&pod).ends_with("no problem found"), "{}", first_line(&pod));
        match fixture.backend {
            Backend::Native => nft(&pod, &format!("flush chain inet istio-proxy-nat {native}")),
            Backend::IptablesNft | Backend::IptablesLegacy => {
                pod.iptables(Family::V4, damage);
            }
        }
        let line = first_line(&pod);
        assert!(line.contains(&format!("{problem} (IPv4)")), "{damage}: {line}");
    }
}

fn uncaptured_ipv6_is_a_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[7000]));
    let apply =
        |families| pod.bare_istio_iptables(&[&EVERYTHING[..], &["--ip-family", families]].concat()).run();
    apply("ipv4").succeeded();
    let line = first_line(&pod);
    assert!(line.contains("no rule is for IPv6"), "{line}");
    apply("dual").succeeded();
    assert!(!first_line(&pod).contains("IPv6 is not captured"));
}

fn lost_traffic_is_a_problem(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens_without_dns(), pod.app_listens(&[7000]));
    pod.apply(&EVERYTHING);
    nft(&pod, "table inet agent { chain in { type filter hook input priority 0; policy drop; }; }");
    let line = first_line(&pod);
    assert!(line.contains("is lost: ") && line.contains("agent"), "{line}");
}

fn own_address_is_a_call_of_the_app_unless_another_sender_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&EVERYTHING);
    let to = at(Family::V4.pod(), 7000).to_string();
    let explain = |from: &[&str]| {
        let words = [&["explain", "--live", "--to", &to], from].concat();
        pod.istio_iptables(&words).run().succeeded().output()
    };
    let (by_app, from_outside) = (explain(&[]), explain(&["--from", "outside"]));
    assert!(by_app.contains("for a client, add --from outside"), "{by_app}");
    assert!(!from_outside.contains("for a client"), "{from_outside}");
    assert!(from_outside.contains("(-d)"), "{from_outside}");
}
