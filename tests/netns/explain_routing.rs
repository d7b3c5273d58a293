//! `explain --live` and `check` beside foreign policy rules and routes, with TPROXY: each verdict against
//! connections.

use std::fs;
use std::net::{SocketAddr, TcpStream};

use netlab::User;
use netlab::socket::{self, Binding};
use serde_json::Value;

use crate::explain_live::{Question, report};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::{Family, Fixture, Pod, for_each_backend_and_native, verdict};

for_each_backend_and_native!(
    policy_routing_decides_where_marked_packets_go,
    marked_packets_to_own_addresses_are_delivered,
    rejected_packets_are_not_sent,
    packets_without_a_route_are_not_sent,
    packets_from_loopback_are_not_sent_to_other_hosts,
    replies_to_an_address_without_a_local_route_leave_the_pod,
    policy_rules_of_a_user_may_decide_over_replies,
    packets_to_a_local_route_stay_in_the_pod,
    connections_to_several_hosts_are_not_made,
    packets_within_the_pod_need_the_loopback_interface,
    what_a_foreign_rule_sends_to_loopback_arrives_only_where_that_is_routed,
    clients_to_which_another_way_leads_are_dropped_by_a_strict_reverse_path_filter,
    default_client_is_a_neighbour_where_no_route_leads_to_others,
);

const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];

/// Commands of `ip`, and whether they keep packets with our mark from the proxy: the app's replies, and calls
/// to an address that is only routed to the pod.
const COMMANDS: [(&str, bool, bool); 19] = [
    ("rule add pref 50 fwmark 0x539 lookup 200", false, false),
    (
        "rule add pref 50 fwmark 0x539 lookup 200\nroute add default via {outside} dev eth0 onlink table 200",
        true,
        true,
    ),
    ("rule add pref 50 fwmark 0x539 blackhole", true, true),
    ("rule add pref 50 fwmark 0x39/0xff prohibit", true, true),
    ("rule add pref 50 fwmark 0x38/0xff prohibit", false, false),
    ("rule add pref 50 fwmark 0x539 goto 32766", true, true),
    ("rule add pref 50 iif eth0 fwmark 0x539 unreachable", false, true),
    ("rule add pref 50 iif lo fwmark 0x539 unreachable", true, false),
    ("rule add pref 50 oif eth0 fwmark 0x539 unreachable", false, false),
    ("rule add pref 50 ipproto tcp dport 8080 iif eth0 fwmark 0x539 blackhole", false, true),
    ("rule add pref 50 ipproto udp fwmark 0x539 blackhole", false, false),
    ("rule add pref 50 not fwmark 0x539 lookup 133\nrule del pref 50", false, false),
    ("rule add pref 50 to {routed} lookup main suppress_prefixlength 0", false, false),
    ("rule add pref 50 to {outside} lookup main suppress_prefixlength 0", true, false),
    ("route add blackhole {routed} table 133", false, true),
    ("route add unreachable {outside} table 133", true, false),
    ("route add throw {outside} table 133", true, false),
    ("rule del fwmark 1337 lookup 133", true, true),
    ("route del local default dev lo table 133", true, true),
];

/// A connection that has sent its first packet.
fn start(user: &User, to: SocketAddr, binding: Binding) -> Option<TcpStream> {
    user.run(|| socket::start_connect(to, binding)).ok()
}

fn policy_routing_decides_where_marked_packets_go(fixture: Fixture) {
    for (commands, keeps_replies, keeps_calls) in &COMMANDS {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 9090]));
        pod.apply(&TPROXY);
        for &family in fixture.families() {
            let flag = if family == Family::V4 { "-4" } else { "-6" };
            let commands = commands
                .replace("{outside}", &family.outside().to_string())
                .replace("{routed}", &family.routed_to_pod().to_string());
            for line in commands.lines() {
                pod.ip(&format!("{flag} {line}"));
            }
            let (own, routed) = (at(family.pod(), 8080), at(family.routed_to_pod(), 8080));
            // The proxy hands a call to the app, from the caller's address.
            let caller = Binding { source: Some(at(family.outside(), 0)), spoofed_mark: Some(1337) };
            let replied = start(&pod.user(0, 1337), own, caller);
            let called = start(&pod.outside(), routed, Binding::default());
            // Later packets have come through.
            pod.outside().call(own).captured(15006, own);
            pod.app().call(at(family.loopback(), 9090)).served_by("app");
            let is_open =
                |connection: Option<TcpStream>| connection.is_some_and(|one| one.peer_addr().is_ok());
            let by_kernel = (is_open(replied), is_open(called));
            assert_eq!(by_kernel, (!keeps_replies, !keeps_calls), "{commands}, {family:?}");

            let client = at(family.outside(), 40_000);
            let (from, source) = (own.to_string(), at(family.outside(), 50_000).to_string());
            let reply_of_app = Question { from: "app", to: client, is_udp: false };
            let options = ["--src", &from, "--state", "established", "--connmark", "1337"];
            let explained = report(&pod, &options, &reply_of_app);
            assert_eq!(explained["verdict"] == "captured-by-mark", by_kernel.0, "{commands}: {explained:#}");
            let call = Question { from: "outside", to: routed, is_udp: false };
            let explained = report(&pod, &["--src", &source, "--in", "eth0"], &call);
            assert_eq!(explained["port"] == 15006, by_kernel.1, "{commands}: {explained:#}");
            let to_pod = Question { from: "outside", to: own, is_udp: false };
            let explained = report(&pod, &["--src", &source], &to_pod);
            assert_eq!(explained["port"], 15006, "{commands}");
            let problem = explained["problem"].as_str().unwrap_or_default();
            assert_eq!(problem.contains("replies"), *keeps_replies, "{commands}: {explained:#}");
        }
        let check = pod.istio_iptables(&[&["check"], &TPROXY[..]].concat()).run();
        let overview = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
        let first = verdict(&overview);
        named_once(&pod, commands);
        if *keeps_replies || *keeps_calls {
            assert_eq!(check.code(), 1, "{commands}: {}", check.output());
            assert!(
                first.contains("policy rule") || first.contains("foreign route"),
                "{commands}: {overview}"
            );
        } else {
            assert_eq!(check.code(), 0, "{commands}: {}", check.output());
            assert!(!first.contains("policy rule"), "{commands}: {overview}");
        }
    }
}

/// What a policy rule does to several kinds of traffic is one problem of each family.
fn named_once(pod: &Pod, commands: &str) {
    let report = pod.bare_istio_iptables(&["explain", "--live", "--output", "json"]).run().succeeded();
    let report: Value = serde_json::from_str(&report.stdout()).unwrap();
    for family in ["IPv4", "IPv6"] {
        let problems = report["problems"].as_array().unwrap().iter();
        let causes = problems.filter_map(|problem| problem["cause"].as_str());
        let about: Vec<&str> =
            causes.filter(|cause| cause.contains("`50: ") && cause.contains(family)).collect();
        assert!(about.len() <= 1, "{commands}: {about:#?}");
    }
}

/// The kernel finds the pod's own addresses first, whatever the mark.
fn marked_packets_to_own_addresses_are_delivered(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&TPROXY);
    for family in fixture.families() {
        for address in [family.pod(), family.loopback()] {
            let to = at(address, 8080);
            let marked = Binding { source: None, spoofed_mark: Some(1337) };
            pod.user(0, 0).call_bound(to, marked).served_by("app");
            let question = Question { from: "uid:0,gid:0", to, is_udp: false };
            let explained = report(&pod, &["--mark", "1337"], &question);
            assert_eq!(explained["verdict"], "not-captured", "{explained:#}");
        }
    }
}

/// A policy rule that rejects is before every rule of the packet filter.
fn rejected_packets_are_not_sent(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80]));
    pod.apply(&["-i", "*", "-b", "*"]);
    for &family in fixture.families() {
        let flag = if family == Family::V4 { "-4" } else { "-6" };
        pod.ip(&format!("{flag} rule add pref 50 uidrange 1000-1000 to {} prohibit", family.service_range()));
        let to = at(family.service(), 80);
        let refused = pod.app().run(|| socket::start_connect(to, Binding::default()));
        assert!(refused.is_err(), "{refused:?}");
        let explained = report(&pod, &[], &Question { from: "uid:1000,gid:1000", to, is_udp: false });
        assert_eq!(explained["verdict"], "dropped", "{explained:#}");
        let because = explained["because"].as_str().unwrap_or_default().to_owned();
        assert!(because.contains("prohibit"), "{explained:#}");
        pod.user(1001, 1001).call(to).captured(15001, to);
        let explained: Value = report(&pod, &[], &Question { from: "uid:1001,gid:1001", to, is_udp: false });
        assert_eq!(explained["port"], 15001, "{explained:#}");
    }
}

/// Without `route_localnet` the interface lets no loopback address out.
fn packets_from_loopback_are_not_sent_to_other_hosts(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    pod.apply(&["-i", "*", "-b", "*"]);
    let to = at(Family::V4.service(), 80);
    let connect = || {
        let source = Some(SocketAddr::from(([127, 0, 0, 9], 0)));
        pod.app().run(|| socket::start_connect(to, Binding { source, ..Binding::default() }))
    };
    let explained = || report(&pod, &["--src", "127.0.0.9"], &Question { from: "app", to, is_udp: false });
    assert_eq!(connect().unwrap_err().raw_os_error(), Some(22), "EINVAL");
    let said = explained();
    assert_eq!(said["verdict"], "dropped", "{said:#}");
    let because = said["because"].as_str().unwrap_or_default();
    assert!(because.contains("net.ipv4.conf.eth0.route_localnet"), "{said:#}");
    pod.namespace.run(|| fs::write("/proc/sys/net/ipv4/conf/eth0/route_localnet", "1")).expect("a setting");
    connect().expect("a connection begins");
    assert_eq!(explained()["port"], 15001, "{:#}", explained());
}

/// The proxy replies to a program of the pod from the pod's address.
fn replies_to_an_address_without_a_local_route_leave_the_pod(fixture: Fixture) {
    for mode in ["REDIRECT", "TPROXY"] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[7000]));
        pod.apply(&["-i", "*", "-b", "*", "-m", mode]);
        for &family in fixture.families() {
            let to = at(family.service(), 80);
            pod.app().call(to).captured(15001, to);
            let explained = || report(&pod, &[], &Question { from: "app", to, is_udp: false });
            assert_eq!(explained()["problem"].as_str(), None, "{:#}", explained());
            let flag = if family == Family::V4 { "-4" } else { "-6" };
            pod.ip(&format!("{flag} route del local {} table local", family.pod()));
            let attempt = pod.app().run(|| socket::start_connect(to, Binding::default()));
            pod.app().call(at(family.loopback(), 7000)).response();
            assert!(attempt.is_err() || attempt.is_ok_and(|attempt| attempt.peer_addr().is_err()));
            let said = explained();
            let problem = said["problem"].as_str().unwrap_or_default();
            assert!(problem.contains("the proxy's replies do not arrive"), "{said:#}");
        }
    }
}

/// What a process sends has a route before it meets a rule.
fn packets_without_a_route_are_not_sent(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = pod.proxy_listens();
    pod.apply(&["-i", "*", "-b", "*"]);
    for &family in fixture.families() {
        let flag = if family == Family::V4 { "-4" } else { "-6" };
        let to = at(family.service(), 80);
        pod.app().call(to).captured(15001, to);
        pod.ip(&format!("{flag} route del default"));
        let refused = pod.app().run(|| socket::start_connect(to, Binding::default())).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(101), "ENETUNREACH: {refused}");
        let explained = report(&pod, &[], &Question { from: "app", to, is_udp: false });
        assert_eq!(explained["verdict"], "no-route", "{explained:#}");
        let text = pod.bare_istio_iptables(&["explain", "--live", "--to", &to.to_string()]).run().succeeded();
        text.output_contains(&format!("no route: no policy rule leads to a route to {}", to.ip()));
    }
}

/// The kernel asks about packets that were marked by a rule without their user in IPv4, and with it in IPv6.
fn policy_rules_of_a_user_may_decide_over_replies(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&TPROXY);
    pod.ip("-4 rule add pref 50 fwmark 0x539 uidrange 1000-1000 blackhole");
    let question = Question { from: "app", to: at(Family::V4.outside(), 40_000), is_udp: false };
    let source = at(Family::V4.pod(), 8080).to_string();
    let options = ["--src", &source, "--state", "established", "--connmark", "1337"];
    let explained = report(&pod, &options, &question);
    let named = explained["routed"].to_string();
    assert!(named.contains("may_decide") && named.contains("uidrange 1000-1000"), "{explained:#}");
    let words = ["explain", "--live", "--to", &question.to.to_string()];
    let text = pod.bare_istio_iptables(&[&words[..], &options].concat()).run().succeeded();
    text.output_contains("unless   a policy rule decides that cannot be evaluated: policy rule `50:");
}

/// A range that is routed to this machine, of which no interface has an address.
fn packets_to_a_local_route_stay_in_the_pod(fixture: Fixture) {
    for mode in ["REDIRECT", "TPROXY"] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        for family in fixture.families() {
            pod.namespace.ip(&format!(
                "route add local {}/{} dev lo",
                family.service(),
                family.host_prefix()
            ));
        }
        pod.apply(&["-b", "*", "-i", "*", "-m", mode]);
        for family in fixture.families() {
            let to = at(family.service(), 8080);
            pod.app().call(to).served_by("app");
            let app = pod.bare_istio_iptables(&["explain", "--live", "--to", &to.to_string()]);
            let said = app.run().succeeded().stdout();
            assert!(said.starts_with("not captured: ") && said.contains("leaving by lo"), "{mode}: {said}");
            // In IPv6 the kernel chooses ::6 on lo as the source, which is the proxy's for requests to the
            // app.
            if *family == Family::V6 {
                continue;
            }
            pod.proxy().call(to).captured(15006, to);
            let proxy = ["explain", "--live", "--from", "proxy", "--to", &to.to_string()];
            let said = pod.bare_istio_iptables(&proxy).run().succeeded().stdout();
            assert!(said.starts_with("captured: goes to the proxy's inbound port 15006"), "{mode}: {said}");
        }
    }
}

fn connections_to_several_hosts_are_not_made(fixture: Fixture) {
    let pod = fixture.pod();
    pod.apply(&["-b", "*", "-i", "*"]);
    for to in ["10.1.0.255:80", "224.0.0.1:80", "255.255.255.255:80", "[ff02::1]:80", "[ff0e::1]:80"] {
        let to: SocketAddr = to.parse().expect("an address");
        let attempt = pod.app().run(|| socket::start_connect(to, Binding::default()));
        assert!(attempt.is_err(), "{to}: {attempt:?}");
        let explained = report(&pod, &[], &Question { from: "app", to, is_udp: false });
        assert_eq!(explained["verdict"], "no-route", "{explained:#}");
        assert!(explained["because"].to_string().contains("is for several hosts"), "{explained:#}");
    }
}

fn packets_within_the_pod_need_the_loopback_interface(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[7000]), pod.outside_listens(&[80]));
    pod.apply(&["-b", "*", "-i", "*", "-d", "7000"]);
    pod.namespace.ip("link set lo down");
    let first_line = |words: &[&str]| {
        let said =
            pod.bare_istio_iptables(&[&["explain", "--live"], words].concat()).run().succeeded().stdout();
        verdict(&said)
    };
    for &family in fixture.families() {
        for to in [at(family.service(), 80), at(family.pod(), 7000)] {
            let attempt = pod.app().run(|| socket::start_connect(to, Binding::default()));
            pod.outside().call(at(family.pod(), 7000)).served_by("app");
            assert!(attempt.is_err() || attempt.is_ok_and(|attempt| attempt.peer_addr().is_err()), "{to}");
            let said = first_line(&["--to", &to.to_string()]);
            assert!(said.contains("lo is down; bring it up"), "{said}");
        }
    }
    let said = first_line(&[]);
    assert!(said.contains("lo is down"), "{said}");
    pod.namespace.ip("link set lo up");
    let to = at(Family::V4.service(), 80);
    pod.app().call(to).captured(15001, to);
}

fn what_a_foreign_rule_sends_to_loopback_arrives_only_where_that_is_routed(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[7000, 8080]));
    pod.apply(&["-b", "*", "-d", "7000,8443"]);
    let (family, to) = (Family::V4, at(Family::V4.pod(), 8443));
    pod.iptables(family, "-t nat -I PREROUTING -p tcp --dport 8443 -j DNAT --to-destination 127.0.0.1:8080");
    for is_routed in [false, true] {
        let value = u8::from(is_routed).to_string();
        pod.namespace
            .run(|| fs::write("/proc/sys/net/ipv4/conf/eth0/route_localnet", value).expect("a setting"));
        let attempt =
            pod.outside().run(|| socket::start_connect(to, Binding::default())).expect("a connection begins");
        pod.outside().call(at(family.pod(), 7000)).served_by("app");
        assert_eq!(attempt.peer_addr().is_ok(), is_routed);
        let explained = report(&pod, &[], &Question { from: "outside", to, is_udp: false });
        assert_eq!(explained["verdict"], "taken-by-foreign-rule", "{explained:#}");
        let problem = explained["problem"].as_str().unwrap_or_default();
        let says =
            "the kernel drops what arrives on eth0 for 127.0.0.1: net.ipv4.conf.eth0.route_localnet is 0";
        assert_eq!(problem, if is_routed { "" } else { says }, "{explained:#}");
    }
}

/// The mark of the proxy's replies brings them back; the filter looks for a way without it.
fn clients_to_which_another_way_leads_are_dropped_by_a_strict_reverse_path_filter(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[7000, 8080]));
    pod.apply(&["-b", "*", "-d", "7000"]);
    let (family, to) = (Family::V4, at(Family::V4.pod(), 8080));
    let client = family.outside().to_string();
    for line in [
        "link add other type veth peer name other-peer",
        "link set other up",
        "link set other-peer up",
        &format!("route add {client}/32 dev other"),
        "rule add pref 50 fwmark 5 lookup 200",
        &format!("route add default via {client} dev eth0 onlink table 200"),
    ] {
        pod.ip(line);
    }
    let marks = "table inet agent { chain out { type route hook output priority -150; tcp sport 15006 meta mark set 5; }; }";
    pod.namespace.run(|| tool("nft", &["-f", "-"], marks));
    for (filter, is_valid) in [("0", true), ("1", false), ("2", true)] {
        pod.namespace.run(|| fs::write("/proc/sys/net/ipv4/conf/eth0/rp_filter", filter).expect("a setting"));
        let attempt =
            pod.outside().run(|| socket::start_connect(to, Binding::default())).expect("a connection begins");
        let elsewhere = Binding { source: Some(at(family.service(), 0)), spoofed_mark: None };
        pod.outside().call_bound(at(family.pod(), 7000), elsewhere).served_by("app");
        assert_eq!(attempt.peer_addr().is_ok(), is_valid, "{filter}");
        let explained = report(&pod, &["--src", &client], &Question { from: "outside", to, is_udp: false });
        let verdict = if is_valid { "captured" } else { "dropped" };
        assert_eq!(explained["verdict"], verdict, "{filter}: {explained:#}");
        let because = explained["because"].as_str().unwrap_or_default();
        assert_eq!(because.contains("net.ipv4.conf.eth0.rp_filter=1"), !is_valid, "{explained:#}");
        assert_eq!(explained["problem"].as_str(), None, "{explained:#}");
        // Without a client of its own the question is about one that the interface leads to.
        let explained = report(&pod, &[], &Question { from: "outside", to, is_udp: false });
        assert_eq!(explained["verdict"], "captured", "{filter}: {explained:#}");
    }
}

fn default_client_is_a_neighbour_where_no_route_leads_to_others(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.apply(&["-b", "*"]);
    for &family in fixture.families() {
        let flag = if family == Family::V4 { "-4" } else { "-6" };
        pod.ip(&format!("{flag} route del default"));
        let to = at(family.pod(), 8080);
        pod.outside().call(to).captured(15006, to);
        let explained = report(&pod, &[], &Question { from: "outside", to, is_udp: false });
        assert_eq!(explained["port"], 15006, "{explained:#}");
        assert_eq!(explained["problem"].as_str(), None, "{explained:#}");
    }
}
