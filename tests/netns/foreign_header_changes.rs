//! Foreign nftables chains that write addresses or ports into packets that our rules capture: a run and
//! `check` name them.

use std::net::SocketAddr;

use netlab::socket::{self, Binding};

use crate::check::check;
use crate::foreign_preserved::EVERYTHING;
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Pod, User, for_each_backend_and_native};

for_each_backend_and_native!(
    rewritten_packets_are_not_captured_and_their_chain_is_named,
    rewritten_redirected_packets_do_not_reach_the_proxy_and_their_chain_is_named,
    header_changes_that_concern_no_captured_packet_are_not_named,
);

const BEFORE: &str = "header field set: packets that it changes may meet other rules of ours";
const AFTER: &str = "header field set: packets that it changes may not reach the proxy";

fn load(pod: &Pod, table: &str, chain: &str) {
    let ruleset =
        format!("add table {table}; delete table {table}; table {table} {{ chain change {{ {chain}; }}; }}");
    pod.namespace.run(|| tool("nft", &["-f", "-"], &ruleset));
}

/// The lines of a run about foreign base chains; those of `check` with its exit code.
fn named(pod: &Pod, options: &[&str]) -> (Vec<String>, (i32, Vec<String>)) {
    let is_about = |line: &&str| line.contains("a foreign base chain ");
    let run = pod.apply(options).output().lines().filter(is_about).map(str::to_owned).collect();
    let (exit, found) = check(pod, options);
    let notices = found["notices"].as_array().expect("a list").iter();
    let notices = notices.filter_map(|notice| notice.as_str()).filter(is_about).map(str::to_owned);
    (run, (exit, notices.collect()))
}

#[track_caller]
fn is_named(pod: &Pod, options: &[&str], words: &str) {
    let (run, (exit, checked)) = named(pod, options);
    assert!(run.len() == 1 && run[0].contains(words), "{run:?}");
    assert!(exit == 1 && checked.len() == 1 && checked[0].contains(words), "{exit}: {checked:?}");
}

/// The reply has another source than the client expects. A later connection, whose packets are not changed,
/// is captured.
#[track_caller]
fn is_lost(user: &User, to: SocketAddr, port: u16) {
    let attempt = user.run(|| socket::start_connect(to, Binding::default()).expect("start to connect"));
    let marker = at(to.ip(), 9090);
    user.call(marker).captured(port, marker);
    assert!(!socket::is_ready(&attempt), "{to}");
}

/// Each is captured without the chain.
fn rewritten_packets_are_not_captured_and_their_chain_is_named(fixture: Fixture) {
    let options = ["-i", "192.0.2.0/24,2001:db8:2::/48", "-b", "*", "-d", "15020"];
    let app: fn(&Pod) -> User = Pod::app;
    let changes = [
        (
            "ip",
            "output",
            "ip daddr 192.0.2.10 tcp dport 80 ip daddr set 198.51.100.10",
            app,
            at(Family::V4.service(), 80),
        ),
        (
            "ip6",
            "output",
            "ip6 daddr 2001:db8:2::10 tcp dport 80 ip6 daddr set 2001:db8:3::10",
            app,
            at(Family::V6.service(), 80),
        ),
        (
            "inet",
            "output",
            "meta nfproto ipv4 tcp dport 80 ip daddr set 198.51.100.10",
            app,
            at(Family::V4.service(), 80),
        ),
        (
            "inet",
            "prerouting",
            "meta nfproto ipv4 tcp dport 8080 tcp dport set 15020",
            Pod::outside,
            at(Family::V4.pod(), 8080),
        ),
    ];
    for (family, hook, rule, user, to) in changes {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 15020]), pod.outside_listens(&[80]));
        assert_eq!(named(&pod, &options), (Vec::new(), (0, Vec::new())));
        user(&pod).call(to).captured(if hook == "output" { 15001 } else { 15006 }, to);
        load(&pod, &format!("{family} agent"), &format!("type filter hook {hook} priority -310; {rule}"));
        is_named(&pod, &options, BEFORE);
        is_lost(&user(&pod), to, if hook == "output" { 15001 } else { 15006 });
    }
}

fn rewritten_redirected_packets_do_not_reach_the_proxy_and_their_chain_is_named(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let to = at(Family::V4.service(), 80);
    pod.apply(&EVERYTHING);
    pod.app().call(to).captured(15001, to);
    load(&pod, "ip agent", "type filter hook input priority 0; tcp dport 15001 tcp dport set 15999");
    is_named(&pod, &EVERYTHING, AFTER);
    let attempt = pod.app().run(|| socket::start_connect(to, Binding::default()).expect("start to connect"));
    let marker = at(Family::V4.pod(), 9090);
    pod.outside().call(marker).captured(15006, marker);
    assert!(!socket::is_ready(&attempt));
}

fn header_changes_that_concern_no_captured_packet_are_not_named(fixture: Fixture) {
    let pod = fixture.pod();
    for (table, chain) in [
        ("ip agent", "type filter hook output priority -310; ip ttl set 3"),
        ("inet agent", "type filter hook output priority -310; meta nfproto ipv4 ip dscp set cs1"),
        ("inet agent", "type filter hook output priority -310; ip6 hoplimit set 70"),
        ("inet agent", "type filter hook output priority -310; udp dport 9999 udp dport set 9998"),
        ("inet agent", "type filter hook input priority 0; tcp dport 9 tcp dport set 10"),
        ("inet agent", "type filter hook output priority -310; tcp option maxseg size set 1200"),
    ] {
        load(&pod, table, chain);
        assert_eq!(named(&pod, &EVERYTHING), (Vec::new(), (0, Vec::new())), "{chain}");
        pod.namespace
            .run(|| tool("nft", &["delete", "table", table.split(' ').next().unwrap(), "agent"], ""));
    }
}
