//! Settings and addresses of interfaces with which the kernel drops what our rules capture: each is named,
//! and what is named is dropped.

use std::fs;
use std::net::SocketAddr;

use serde_json::Value;

use crate::check::check;
use crate::lab::fixture::at;
use crate::lab::program::{Ended, tool};
use crate::lab::{Family, Fixture, Outcome, Pod, Topology, for_each_backend_and_native, verdict};

for_each_backend_and_native!(
    source_validation_by_mark_drops_what_tproxy_captures,
    redirect_drops_connections_by_an_interface_without_address,
    captured_connections_need_the_loopback_interface,
    the_fix_of_a_setting_mends_it,
    connections_of_an_interface_without_carrier_are_lost,
    sockets_that_inherit_the_mark_of_tproxy_do_not_reply,
    tproxy_has_no_effect_on_packets_that_the_bridge_filters,
    connections_with_a_syn_cookie_do_not_reach_the_proxy_with_tproxy,
);

const EVERYTHING: [&str; 4] = ["-b", "*", "-i", "*"];
const TPROXY: [&str; 6] = ["-b", "*", "-i", "*", "-m", "TPROXY"];

fn set(pod: &Pod, settings: &str) {
    for setting in settings.split(' ') {
        let (name, value) = setting.split_once('=').unwrap();
        let path = format!("/proc/sys/net/ipv4/conf/{}", name.replace('.', "/"));
        pod.namespace.run(|| fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}")));
    }
}

/// The first line of the overview, and that of the report about a client's connection.
fn explained(pod: &Pod, family: Family, interface: &str) -> (String, String) {
    let of_pod = first_line(pod, &[]);
    let to = at(family.pod(), 8080).to_string();
    let words = ["explain", "--live", "--from", "outside", "--in", interface, "--to", &to];
    (of_pod, verdict(&pod.bare_istio_iptables(&words).run().succeeded().stdout()))
}

fn first_line(pod: &Pod, packet: &[&str]) -> String {
    let said = pod.bare_istio_iptables(&[&["explain", "--live"], packet].concat()).run().succeeded().stdout();
    verdict(&said)
}

/// Captured connections of the application go to the loopback address.
fn captured_connections_need_the_loopback_interface(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.outside_listens(&[80, 81]));
    let options = [&EVERYTHING[..], &["-o", "81"]].concat();
    let states = [
        ("link set lo down", "lo is down", &[Family::V4, Family::V6][..]),
        ("link set lo up", "lo is down", &[]),
        ("address del 127.0.0.1/8 dev lo", "127.0.0.1 is not on lo", &[Family::V4]),
        ("address add 127.0.0.1/8 dev lo", "127.0.0.1 is not on lo", &[]),
        ("-6 address del ::1/128 dev lo", "::1 is not on lo", &[Family::V6]),
        ("-6 address add ::1/128 dev lo", "::1 is not on lo", &[]),
    ];
    pod.apply(&options);
    for (change, why, families) in states {
        pod.ip(change);
        let runs = [pod.apply(&options), pod.apply(&[&options[..], &["--dry-run"]].concat())];
        for family in [Family::V4, Family::V6] {
            let is_dropped = families.contains(&family);
            let message = format!("captured connections do not reach the proxy ({family:?}): {why}")
                .replace("(V", "(IPv");
            for output in runs.iter().map(Ended::output) {
                assert_eq!(output.contains(&message), is_dropped, "{change}: {output}");
            }
            let (captured, excluded) = (at(family.service(), 80), at(family.service(), 81));
            assert_eq!(pod.app().gets_no_reply(captured, excluded), is_dropped, "{change}, {family:?}");
            let report = first_line(&pod, &["--to", &captured.to_string()]);
            assert_eq!(report.contains(why), is_dropped, "{change}: {report}");
            assert_eq!(first_line(&pod, &[]).matches(why).count(), families.len(), "{change}");
        }
    }
}

/// Runs the commands of the fixes of `check` about an interface.
fn run_fixes(pod: &Pod, options: &[&str]) -> Vec<String> {
    let (_, said) = check(pod, options);
    let problems = said["problems"].as_array().unwrap_or_else(|| panic!("{said:#}"));
    let of_interfaces = |problem: &&Value| {
        ["loopback-unusable", "interface-setting"].contains(&problem["id"].as_str().unwrap_or_default())
    };
    let fixes = problems.iter().filter(of_interfaces).filter_map(|problem| problem["fix"].as_str());
    let commands: Vec<String> =
        fixes.filter_map(|fix| Some(fix.strip_prefix('`')?.split_once('`')?.0.to_owned())).collect();
    for command in &commands {
        pod.namespace.run(|| tool("sh", &["-ec", command], ""));
    }
    commands
}

fn the_fix_of_a_setting_mends_it(fixture: Fixture) {
    let (lo_up, v4) = ("ip link set lo up", "ip addr add 127.0.0.1/8 dev lo");
    let v6 = "sysctl -w net.ipv6.conf.lo.disable_ipv6=0; ip -6 addr replace ::1/128 dev lo";
    for (options, change, expected) in [
        (&EVERYTHING[..], "ip link set lo down", &[lo_up, lo_up][..]),
        (&EVERYTHING, v4.replace(" add ", " del ").as_str(), &[v4]),
        (&EVERYTHING, "ip -6 addr del ::1/128 dev lo", &[v6]),
        (
            &TPROXY[..],
            "sysctl -w net.ipv4.tcp_fwmark_accept=1",
            &["sysctl -w net.ipv4.tcp_fwmark_accept=0", "sysctl -w net.ipv4.tcp_fwmark_accept=0"],
        ),
        (
            &TPROXY,
            "sysctl -w net.ipv4.conf.all.src_valid_mark=1",
            &["sysctl -w net.ipv4.conf.all.src_valid_mark=0"],
        ),
        (
            &TPROXY,
            "sysctl -w net.ipv4.tcp_syncookies=2",
            &["sysctl -w net.ipv4.tcp_syncookies=0", "sysctl -w net.ipv4.tcp_syncookies=0"],
        ),
    ] {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        pod.apply(options);
        pod.namespace.run(|| tool("sh", &["-ec", change], ""));
        assert_eq!(run_fixes(&pod, options), expected, "{change}");
        // What goes with an interface that is down comes back by a run.
        pod.apply(options);
        let (code, said) = check(&pod, options);
        assert_eq!(code, 0, "{change}: {said:#}");
    }
}

fn connections_of_an_interface_without_carrier_are_lost(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[7000]), pod.outside_listens(&[80]));
    pod.apply(&[&EVERYTHING[..], &["-d", "7000"]].concat());
    let words = "eth0 has no carrier";
    for is_lost in [false, true] {
        if is_lost {
            pod.outside().namespace().ip("link set eth0 down");
        }
        for family in [Family::V4, Family::V6] {
            let (service, loopback) = (at(family.service(), 80), at(family.loopback(), 7000));
            if is_lost {
                assert!(pod.proxy().gets_no_reply(service, loopback), "{family:?}");
            } else {
                pod.proxy().call(service).served_by("outside");
            }
            for (from, to) in
                [("proxy", service), ("outside", at(family.pod(), 7000)), ("outside", at(family.pod(), 8080))]
            {
                let line = first_line(&pod, &["--from", from, "--to", &to.to_string()]);
                assert_eq!(line.contains(words), is_lost, "{line}");
            }
            // What the proxy sends on is lost.
            let line = first_line(&pod, &["--to", &service.to_string()]);
            assert!(line.starts_with("captured: ") && line.contains(words) == is_lost, "{line}");
        }
        assert_eq!(first_line(&pod, &[]).contains(words), is_lost, "{}", first_line(&pod, &[]));
    }
}

/// VPN clients such as wg-quick set `src_valid_mark`: the policy rule of TPROXY then makes each client an
/// address of the pod.
fn source_validation_by_mark_drops_what_tproxy_captures(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]), pod.outside_listens(&[80]));
    let (app, marker) = (at(Family::V4.pod(), 8080), at(Family::V6.pod(), 8080));
    let [outside, outside_marker] = [Family::V4, Family::V6].map(|family| at(family.service(), 80));
    let of_replies = "and replies to the pod's own";
    let message = "connections that arrive on eth0 are dropped (IPv4, mark 1337 of TPROXY)";
    let states = [
        (
            "all.src_valid_mark=0 eth0.src_valid_mark=0 all.accept_local=0 all.rp_filter=0 eth0.rp_filter=0",
            false,
        ),
        ("all.src_valid_mark=1", true),
        ("all.rp_filter=2", true),
        ("all.src_valid_mark=0 eth0.src_valid_mark=1", true),
        ("eth0.accept_local=1", false),
        ("eth0.rp_filter=1 all.rp_filter=0", true),
        ("eth0.src_valid_mark=0", false),
    ];
    pod.apply(&TPROXY);
    for (settings, is_dropped) in states {
        set(&pod, settings);
        let by_kernel = pod.outside().gets_no_reply(app, marker);
        assert_eq!(by_kernel, is_dropped, "{settings}");
        let output = pod.apply(&TPROXY).output();
        assert_eq!(output.contains(message), is_dropped, "{settings}: {output}");
        assert_eq!(pod.proxy().gets_no_reply(outside, outside_marker), is_dropped, "{settings}: replies");
        assert_eq!(output.contains(of_replies), is_dropped, "{settings}: {output}");
        let check = pod.istio_iptables(&[&["check"], &TPROXY[..]].concat()).run();
        assert_eq!(check.output().contains(message), is_dropped, "{settings}: {}", check.output());
        assert_eq!(check.code(), i32::from(is_dropped), "{settings}");
        let (of_pod, report) = explained(&pod, Family::V4, "eth0");
        assert_eq!(of_pod.contains(message), is_dropped, "{settings}: {of_pod}");
        assert_eq!(report.contains("src_valid_mark=1"), is_dropped, "{settings}: {report}");
        assert!(report.starts_with("captured: goes to the proxy's inbound port 15006"), "{report}");
        replies_are_named(&pod, (outside, outside_marker), is_dropped, settings);
    }
    set(&pod, "all.src_valid_mark=1");
    // Of listed ports only these packets are marked.
    let output = pod.apply(&["-b", "8080", "-i", "*", "-m", "TPROXY"]).output();
    assert!(output.contains(message), "{output}");
    assert!(!output.contains(of_replies), "{output}");
    pod.proxy().call(outside).served_by("outside");
    replies_are_named(&pod, (outside, outside_marker), false, "-b 8080");
    // Without TPROXY the mark is not set.
    assert!(!pod.apply(&EVERYTHING).output().contains("src_valid_mark"));
    pod.outside().call(app).captured(15006, app);
}

/// Of replies to the pod's own connections: the report about one packet, and the row of its kind.
#[track_caller]
fn replies_are_named(pod: &Pod, servers: (SocketAddr, SocketAddr), is_dropped: bool, settings: &str) {
    let problem =
        "and its replies do not arrive: the kernel drops what TPROXY has marked: with net.ipv4.conf.";
    let explain = |words: &[&str]| -> Value {
        let words = [&["explain", "--live", "-o", "json"], words].concat();
        serde_json::from_str(&pod.bare_istio_iptables(&words).run().succeeded().stdout()).expect("JSON")
    };
    for (server, is_lost) in [(servers.0, is_dropped), (servers.1, false)] {
        let said = explain(&["--from", "proxy", "--to", &server.to_string()]);
        let sentence = said["problem"].as_str().unwrap_or_default();
        assert_eq!(sentence.contains("src_valid_mark=1"), is_lost, "{settings}: {said:#}");
        let ids: Vec<_> = said["problems"].as_array().into_iter().flatten().map(|one| &one["id"]).collect();
        let expected: &[&str] = if is_lost { &["interface-setting"] } else { &[] };
        assert_eq!(ids, expected, "{settings}: {said:#}");
        let line = first_line(pod, &["--from", "proxy", "--to", &server.to_string()]);
        let begins = if is_lost { "not captured, and it fails: " } else { "not captured: " };
        assert!(line.starts_with(begins), "{settings}: {line}");
        assert_eq!(line.contains(problem), is_lost, "{settings}: {line}");
    }
    let text = pod.bare_istio_iptables(&["explain", "--live"]).run().succeeded().stdout();
    let is_marked = text.lines().any(|line| line.starts_with("! proxy to a server"));
    assert_eq!(is_marked, is_dropped, "{settings}: {text}");
}

/// The pod's address is on another interface than that of its routes.
fn redirect_drops_connections_by_an_interface_without_address(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::SecondNic);
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    let family = Family::V4;
    let (address, outside) = (family.pod(), family.outside());
    pod.ip(&format!("address add {address}/32 dev lo"));
    pod.ip(&format!("address del {address}/{} dev eth0", family.link_prefix()));
    pod.ip(&format!("route replace {outside} dev eth0"));
    pod.ip(&format!("route replace default via {outside} dev eth0 src {address}"));
    let (app, marker) = (at(address, 8080), at(family.pod_second(), 8080));
    assert!(!pod.outside().gets_no_reply(app, marker));
    let words = "connections that arrive on eth0 are dropped: REDIRECT needs an IPv4 address";
    let excluded = [&EVERYTHING[..], &["-c", "eth0"]].concat();
    for (options, is_dropped) in [(&EVERYTHING[..], true), (&TPROXY, false), (&excluded, false)] {
        let run = pod.apply(options).output();
        let check = pod.istio_iptables(&[&["check"], options].concat()).run().output();
        assert_eq!(pod.outside().gets_no_reply(app, marker), is_dropped, "{options:?}");
        assert_eq!(run.contains(words), is_dropped, "{options:?}: {run}");
        assert_eq!(check.contains(words), is_dropped, "{options:?}: {check}");
        let (of_pod, report) = explained(&pod, family, "eth0");
        assert_eq!(of_pod.contains(words), is_dropped, "{options:?}: {of_pod}");
        assert_eq!(report.contains("REDIRECT needs an"), is_dropped, "{options:?}: {report}");
        // That of the other interface has an address.
        assert!(!run.contains("connections that arrive on eth1"), "{run}");
    }
}

/// `tcp_fwmark_accept` gives the proxy's sockets the mark by which packets are routed to `lo`.
fn sockets_that_inherit_the_mark_of_tproxy_do_not_reply(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080, 15020]));
    let options = [&TPROXY[..], &["-d", "15020"]].concat();
    for is_set in [false, true] {
        let value = if is_set { "1" } else { "0" };
        pod.namespace.run(|| fs::write("/proc/sys/net/ipv4/tcp_fwmark_accept", value).unwrap());
        for options in [&options[..], &EVERYTHING] {
            let is_silent = is_set && options != EVERYTHING;
            let run = pod.apply(options).output();
            let check = pod.istio_iptables(&[&["check"], options].concat()).run();
            assert_eq!(check.code(), i32::from(is_silent), "{options:?}: {}", check.output());
            for &family in fixture.families() {
                let (app, marker) = (at(family.pod(), 8080), at(family.pod(), 15020));
                assert_eq!(pod.outside().gets_no_reply(app, marker), is_silent, "{options:?} {family:?}");
                let name = if family == Family::V4 { "IPv4" } else { "IPv6" };
                let words =
                    format!("connections that arrive on eth0 get no reply ({name}, mark 1337 of TPROXY)");
                for output in [&run, &check.output()] {
                    assert_eq!(output.contains(&words), is_silent, "{options:?}: {output}");
                }
                let (_, report) = explained(&pod, family, "eth0");
                assert_eq!(report.contains("tcp_fwmark_accept=1"), is_silent, "{options:?}: {report}");
            }
        }
    }
}

/// With br_netfilter a bridge evaluates the rules itself, and hands the packet on without the socket that
/// TPROXY gave it: to the app.
fn tproxy_has_no_effect_on_packets_that_the_bridge_filters(fixture: Fixture) {
    let pod = fixture.pod_in(Topology::Guest);
    // The guest calls the pod only.
    for path in ["/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"] {
        pod.namespace.run(|| fs::write(path, "0").unwrap_or_else(|error| panic!("{path}: {error}")));
    }
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    for value in ["1", "0"] {
        for name in ["iptables", "ip6tables"] {
            let path = format!("/proc/sys/net/bridge/bridge-nf-call-{name}");
            pod.namespace.run(|| fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}")));
        }
        for options in [&TPROXY[..], &EVERYTHING] {
            let is_ineffective = value == "1" && options == TPROXY;
            let run = pod.apply(options).output();
            let check = pod.istio_iptables(&[&["check"], options].concat()).run();
            assert_eq!(check.code(), i32::from(is_ineffective), "{options:?}: {}", check.output());
            for &family in fixture.families() {
                let app = at(family.pod(), 8080);
                let call = pod.guest().call(app);
                if is_ineffective {
                    call.served_by("app");
                } else {
                    call.captured(15006, app);
                }
                let name = if family == Family::V4 { "IPv4" } else { "IPv6" };
                let words = format!(
                    "connections that arrive on br0 do not reach the proxy ({name}, mark 1337 of TPROXY)"
                );
                for output in [&run, &check.output()] {
                    assert_eq!(output.contains(&words), is_ineffective, "{options:?}: {output}");
                }
                let guest = at(family.guest(), 40000).to_string();
                let packet = ["--from", "outside", "--in", "br0", "--src", &guest, "--to", &app.to_string()];
                let report = first_line(&pod, &packet);
                assert_eq!(report.contains("TPROXY has no effect"), is_ineffective, "{options:?}: {report}");
                let setting = format!(
                    "bridge-nf-call-{}=0",
                    if family == Family::V4 { "iptables" } else { "ip6tables" }
                );
                let is_fix = check.output().contains(&format!("fix: `sysctl -w net.bridge.{setting}`"));
                assert_eq!(is_fix, is_ineffective, "{options:?}: {}", check.output());
            }
        }
    }
}

/// The acknowledgement of a SYN cookie is of an established connection without a socket: rules of TPROXY as
/// Istio's do not hand it to the proxy's listener. That of the application takes it, if it has sent cookies
/// of its own.
fn connections_with_a_syn_cookie_do_not_reach_the_proxy_with_tproxy(fixture: Fixture) {
    let pod = fixture.pod();
    let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
    pod.namespace.run(|| fs::write("/proc/sys/net/ipv4/tcp_syncookies", "2").unwrap());
    for &family in fixture.families() {
        let (app, other) = (at(family.pod(), 8080), at(family.pod(), 9090));
        let run = pod.apply(&TPROXY).output();
        let name = if family == Family::V4 { "IPv4" } else { "IPv6" };
        let words = format!("connections that arrive on eth0 are reset ({name}, mark 1337 of TPROXY)");
        assert!(run.contains(&words), "{run}");
        let check = pod.istio_iptables(&[&["check"], &TPROXY[..]].concat()).run();
        check.ended_with(1).output_contains(&words).output_contains("sysctl -w net.ipv4.tcp_syncookies=0");
        let (of_pod, report) = explained(&pod, family, "eth0");
        assert!(of_pod.contains(&words), "{of_pod}");
        assert!(report.contains(", but it fails: with net.ipv4.tcp_syncookies=2"), "{report}");
        assert!(
            !matches!(pod.outside().call(app), Outcome::Responded(_)),
            "{family:?}: no cookie of the app"
        );
        pod.proxy().call(at(family.loopback(), 8080)).served_by("app");
        pod.outside().call(app).served_by("app");
        let run = pod.apply(&EVERYTHING).output();
        let (of_pod, report) = explained(&pod, family, "eth0");
        for said in [run, of_pod, report] {
            assert!(!said.contains("are reset") && !said.contains("tcp_syncookies"), "{said}");
        }
        pod.outside().call(app).captured(15006, app);
        pod.outside().call(other).captured(15006, other);
    }
}
