//! Compares lookups with the kernel's own.

use std::process::Command;
use std::time::{Duration, Instant};

use netlab::in_new_namespace;
use netlab::process::{run, run_with_input};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::config::Tproxy;
use crate::kernel::rtnetlink::Rtnetlink;
use crate::model::{Family, Mark};
use crate::routing::{find_preceding_policy_rules, with_tproxy};

/// Something that is asked about.
#[derive(Clone, Debug)]
struct Question {
    family: Family,
    is_inbound: bool,
    destination: IpAddr,
    source: IpAddr,
    mark: u32,
    uid: u32,
    ports: (u8, u16, u16),
}

fn of(family: Family, v4: &'static str, v6: &'static str) -> &'static str {
    match family {
        Family::V4 => v4,
        Family::V6 => v6,
    }
}

fn flag(family: Family) -> &'static str {
    of(family, "-4", "-6")
}

impl Question {
    /// What the kernel does with it: `local`, `out` or `nowhere`.
    fn by_kernel(&self) -> &'static str {
        let Self { family, is_inbound, destination, source, mark, uid, ports: (protocol, from, to) } = self;
        let mut words = format!("{} -o route get {destination} mark {mark}", flag(*family));
        words += &format!(" ipproto {protocol} sport {from} dport {to}");
        words += &match is_inbound {
            true => format!(" from {source} iif eth0"),
            false => format!(" uid {uid}"),
        };
        let words: Vec<&str> = words.split(' ').collect();
        #[allow(clippy::disallowed_methods, reason = "a lookup may fail")]
        let output = Command::new("ip").args(&words).output().expect("start ip");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let kind = text.split(' ').next().unwrap_or_default();
        match kind {
            _ if !output.status.success() => "nowhere",
            "local" => "local",
            "blackhole" | "unreachable" | "prohibit" => "nowhere",
            _ => "out",
        }
    }

    /// What the rules and routes that were read do with the packet; `None` if a rule cannot be evaluated.
    fn by_lookup(&self, fib: &Fib) -> Option<&'static str> {
        let Self { is_inbound, destination, source, mark, uid, ports, .. } = self;
        let flow = Flow {
            source: *source,
            destination: *destination,
            mark: Some(*mark),
            uid: (!is_inbound).then_some(*uid),
            in_interface: if *is_inbound { "eth0" } else { "lo" },
            protocol: ports.0,
            ports: Some((ports.1, ports.2)),
        };
        let outcome = lookup(fib, &flow);
        let leaves_by = match outcome.decisive.map(|tried| tried.found) {
            Some(Found::Route(FibRoute { kind: RouteKind::Unicast, interface: Some(name), .. })) => name,
            _ => "lo",
        };
        // IPv4 refuses what comes from an address that is its own by the way back: what is forwarded comes
        // back by the interface that it leaves by.
        let back = Flow {
            source: *destination,
            destination: *source,
            mark: Some(0),
            uid: Some(0),
            in_interface: leaves_by,
            ports: None,
            ..flow
        };
        let back = lookup(fib, &back);
        let is_certain = |lookup: &Lookup<'_>| lookup.uncertain.is_empty();
        let is_refused = !is_certain(&back) || back.kind().is_some_and(|kind| kind != RouteKind::Unicast);
        if *is_inbound && self.family == Family::V4 && is_refused {
            return None;
        }
        outcome.uncertain.is_empty().then(|| match outcome.kind() {
            Some(RouteKind::Local) => "local",
            Some(RouteKind::Unicast | RouteKind::Other) => "out",
            _ => "nowhere",
        })
    }
}

/// Two links, addresses on them, default routes, forwarding; TPROXY's rule and route.
fn network() {
    for setting in [
        "net.ipv4.ip_forward=1",
        "net.ipv6.conf.all.forwarding=1",
        "net.ipv6.conf.default.accept_dad=0",
        "net.ipv4.conf.all.rp_filter=0",
        "net.ipv4.conf.default.rp_filter=0",
    ] {
        run("sysctl", &["-qw", setting]);
    }
    for (flag, links) in [
        (
            "-4",
            "link add eth0 type veth peer name peer0\nlink set eth0 up\nlink set peer0 up\n\
             link add eth1 type veth peer name peer1\nlink set eth1 up\nlink set peer1 up\n\
             address add 10.1.0.2/24 dev eth0\naddress add 10.2.0.2/24 dev eth1\n\
             route add default via 10.1.0.1 dev eth0 onlink\n",
        ),
        (
            "-6",
            "address add fd00:1::2/64 dev eth0 nodad\naddress add fd00:2::2/64 dev eth1 nodad\n\
             route add default via fd00:1::1 dev eth0 onlink\n",
        ),
    ] {
        let tproxy = "rule add pref 1337 fwmark 1337 lookup 133\nroute add local default dev lo table 133\n";
        run_with_input("ip", &[flag, "-batch", "-"], &format!("{links}{tproxy}"));
    }
    // The kernel adds these routes a moment after the addresses.
    let deadline = Instant::now() + Duration::from_secs(30);
    while ["fd00:1::2", "fd00:2::2"].iter().any(|address| {
        !run("ip", &["-6", "route", "show", "table", "local"]).contains(&format!("local {address} "))
    }) {
        assert!(Instant::now() < deadline, "no local routes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The tests of a policy rule.
fn selector() -> impl Strategy<Value = [&'static str; 2]> {
    let both = |words| [words, words];
    select(vec![
        both(""),
        both("fwmark 0x539"),
        both("fwmark 0x39/0xff"),
        both("fwmark 0/0xf"),
        both("iif lo"),
        both("iif eth0"),
        both("iif eth1"),
        both("oif eth0"),
        both("uidrange 1000-1001"),
        both("uidrange 0-0"),
        both("ipproto tcp dport 80"),
        both("ipproto udp"),
        both("sport 1000-2000"),
        both("dport 8080"),
        ["to 203.0.113.0/24", "to 2001:db8:4::/64"],
        ["from 10.1.0.0/24", "from fd00:1::/64"],
        ["from 10.9.0.0/16", "from fd00:9::/32"],
        ["to 10.0.0.0/8 fwmark 0x539", "to fd00::/8 fwmark 0x539"],
    ])
}

fn rule() -> impl Strategy<Value = [String; 2]> {
    let action = select(vec![
        "lookup 200",
        "lookup 201",
        "lookup 133",
        "lookup main suppress_prefixlength 0",
        "lookup 200 suppress_prefixlength 8",
        "blackhole",
        "unreachable",
        "prohibit",
        "nop",
        "goto 30000",
        "goto 32766",
    ]);
    (select(vec![0, 0, 50, 50, 51, 1337, 1400, 30000, 33000]), any::<bool>(), selector(), action).prop_map(
        |(priority, is_negated, selector, action)| {
            let not = if is_negated { "not " } else { "" };
            selector.map(|words| format!("rule add pref {priority} {not}{words} {action}"))
        },
    )
}

fn route() -> impl Strategy<Value = [String; 2]> {
    let to = select(vec![
        ["default", "default"],
        ["203.0.113.0/24", "2001:db8:4::/64"],
        ["203.0.113.10/32", "2001:db8:4::10/128"],
        ["10.0.0.0/8", "fd00::/8"],
    ]);
    let kind = select(vec!["", "", "local", "blackhole", "unreachable", "prohibit", "throw"]);
    (kind, to, select(vec![133, 200, 200, 201, 254]), select(vec!["", "metric 5", "metric 2000"])).prop_map(
        |(kind, to, table, metric)| {
            let dev = match kind {
                "" => "dev eth1",
                "local" => "dev lo",
                _ => "",
            };
            to.map(|to| format!("route add {kind} {to} {dev} table {table} {metric}"))
        },
    )
}

fn question() -> impl Strategy<Value = Question> {
    let destinations = select(vec![
        ["10.1.0.2", "fd00:1::2"],
        ["10.1.0.9", "fd00:1::9"],
        ["203.0.113.10", "2001:db8:4::10"],
        ["203.0.113.77", "2001:db8:4::77"],
        ["198.51.100.1", "2001:db8:9::1"],
        ["10.77.0.1", "fd00:77::1"],
    ]);
    let sources = select(vec![["10.9.0.9", "fd00:9::9"], ["192.0.2.9", "2001:db8:2::9"]]);
    let ports = (select(vec![6, 17]), select(vec![1500, 50000]), select(vec![80, 8080]));
    let rest = (select(vec![0, 1, 8, 0x39, 1337]), select(vec![0, 1000, 1002]), ports);
    (any::<bool>(), any::<bool>(), destinations, sources, rest).prop_map(
        |(is_v6, is_inbound, destinations, sources, (mark, uid, ports))| {
            let family = if is_v6 { Family::V6 } else { Family::V4 };
            let pick = |[v4, v6]: [&'static str; 2]| of(family, v4, v6).parse().expect("an address");
            let unspecified = of(family, "0.0.0.0", "::").parse().expect("an address");
            let source = if is_inbound { pick(sources) } else { unspecified };
            Question { family, is_inbound, destination: pick(destinations), source, mark, uid, ports }
        },
    )
}

#[test]
fn lookup_is_that_of_the_kernel() {
    let strategy = (
        proptest::collection::vec(rule(), 0..4),
        proptest::collection::vec(route(), 0..5),
        proptest::collection::vec(question(), 40),
    );
    let mut runner = TestRunner::new(Config { cases: 40, max_shrink_iters: 60, ..Config::default() });
    let outcome = runner.run(&strategy, |(rules, routes, questions)| {
        let wrong = in_new_namespace(|| {
            network();
            for words in rules.iter().chain(&routes) {
                for (family, words) in [Family::V4, Family::V6].into_iter().zip(words) {
                    // What the kernel refuses is not there.
                    let words: Vec<&str> =
                        [flag(family)].into_iter().chain(words.split_whitespace()).collect();
                    #[allow(clippy::disallowed_methods, reason = "a lookup may fail")]
                    let _ = Command::new("ip").args(&words).output().expect("start ip");
                }
            }
            let mut socket = Rtnetlink::open().expect("a socket");
            let fibs =
                [Family::V4, Family::V6].map(|family| socket.fib(family).expect("policy rules and routes"));
            let mut wrong = Vec::new();
            for question in &questions {
                let [v4, v6] = &fibs;
                let fib = if question.family == Family::V4 { v4 } else { v6 };
                let (expected, found) = (question.by_kernel(), question.by_lookup(fib));
                if found.is_some_and(|found| found != expected) {
                    wrong.push(format!("{question:?}: {found:?}, kernel: {expected}\n{fib:#?}"));
                }
            }
            wrong
        });
        prop_assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// An address, or a route that may say which source packets get.
fn choice() -> impl Strategy<Value = [&'static str; 2]> {
    select(vec![
        ["address add 10.1.0.3/24 dev eth0", "address add fd00:1::3/64 dev eth0 nodad"],
        ["address add 10.1.5.1/16 dev eth0", "address add 2001:db8:4::1/64 dev eth1 nodad"],
        ["address add 10.9.0.1/24 dev eth0 scope link", "address add fe80::2/64 dev eth0 nodad"],
        ["address add 203.0.113.5/32 dev lo", "address add 2001:db8:9::5/128 dev lo nodad"],
        ["address add 10.1.0.1/32 dev lo scope host", "address add ::6/128 dev lo nodad"],
        ["address del 10.1.0.2/24 dev eth0", "address del fd00:1::2/64 dev eth0"],
        [
            "address add 198.51.100.7/24 dev eth1",
            "address add 2001:db8:9::7/64 dev eth0 nodad valid_lft 1000 preferred_lft 0",
        ],
        ["address add 10.1.0.77/25 dev eth0", "address add 2002:a00::1/64 dev eth0 nodad"],
        ["route add default dev eth1 metric 1", "route add default dev eth1 metric 1"],
        [
            "route replace default via 10.1.0.1 dev eth0 onlink src 10.2.0.2",
            "route add 2001:db8::/32 dev eth0 src fd00:2::2",
        ],
        ["route add 203.0.113.0/24 dev eth0", "route add 2001:db8:4::/64 dev eth0"],
        ["route add local 203.0.113.0/24 dev lo", "route add local 2001:db8:4::/64 dev lo"],
        [
            "route add 203.0.113.0/24 via 10.2.0.9 dev eth1 onlink",
            "route add 2001:db8:4::/64 via fd00:2::9 dev eth1",
        ],
        ["rule add pref 50 from 10.1.0.0/24 lookup 200", "rule add pref 50 from fd00:1::/64 lookup 200"],
        [
            "rule add pref 50 not from 10.1.0.0/24 lookup 200",
            "rule add pref 50 not from fd00:1::/64 lookup 200",
        ],
        ["route add default dev eth1 table 200", "route add default dev eth1 table 200"],
    ])
}

#[test]
fn source_is_that_of_the_kernel() {
    const TO: [[&str; 2]; 6] = [
        ["127.0.0.6", "::1"],
        ["10.1.0.2", "fd00:1::2"],
        ["10.1.0.9", "fd00:1::9"],
        ["203.0.113.10", "2001:db8:4::10"],
        ["198.51.100.1", "2001:db8:9::1"],
        ["10.77.0.1", "fd00:77::1"],
    ];
    let mut runner = TestRunner::new(Config { cases: 60, max_shrink_iters: 60, ..Config::default() });
    let outcome = runner.run(&proptest::collection::vec(choice(), 0..6), |commands| {
        let wrong = in_new_namespace(|| {
            network();
            run("ip", &["link", "set", "lo", "up"]);
            let mut wrong = Vec::new();
            for (at, family) in [Family::V4, Family::V6].into_iter().enumerate() {
                for words in commands.iter().map(|words| words[at]) {
                    let words: Vec<&str> = [flag(family)].into_iter().chain(words.split(' ')).collect();
                    #[allow(clippy::disallowed_methods, reason = "the kernel may refuse it")]
                    let _ = Command::new("ip").args(&words).output().expect("start ip");
                }
                let fib = Rtnetlink::open().unwrap().fib(family).unwrap();
                for to in TO {
                    let destination: IpAddr = to[at].parse().unwrap();
                    let expected = kernels_source(family, destination);
                    let flow = Flow {
                        source: of(family, "0.0.0.0", "::").parse().unwrap(),
                        destination,
                        mark: Some(0),
                        uid: Some(0),
                        in_interface: "lo",
                        protocol: 6,
                        ports: Some((0, 80)),
                    };
                    let found = lookup(&fib, &flow);
                    let found = crate::routing::source(&fib, &found, destination);
                    if expected.is_some() && expected != found {
                        wrong.push(format!("{destination}: {found:?}, kernel: {expected:?}\n{fib:#?}"));
                    }
                }
            }
            wrong
        });
        prop_assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// The source that a socket gets, if it can send at all.
fn kernels_source(family: Family, destination: IpAddr) -> Option<IpAddr> {
    let words = format!("{} -o route get {destination} ipproto tcp dport 80", flag(family));
    #[allow(clippy::disallowed_methods, reason = "a lookup may fail")]
    let output = Command::new("ip").args(words.split(' ')).output().expect("start ip");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|word| *word != "src");
    words.nth(1)?.parse().ok()
}

/// The kernel looks up the table of the interface's VRF, which the rule does not name.
#[test]
fn rule_for_vrfs_may_decide() {
    in_new_namespace(|| {
        network();
        for (family, source) in [(Family::V4, "10.9.0.9"), (Family::V6, "fd00:9::9")] {
            run("ip", &[flag(family), "rule", "add", "pref", "1000", "l3mdev"]);
            let fib = Rtnetlink::open().unwrap().fib(family).unwrap();
            let rule = fib.rules.iter().find(|rule| rule.priority == 1000).unwrap();
            assert_eq!(rule.to_string(), "1000: from all lookup [l3mdev-table]");
            let source: IpAddr = source.parse().unwrap();
            let flow = Flow {
                source,
                destination: source,
                mark: Some(1337),
                uid: None,
                in_interface: "eth0",
                protocol: 6,
                ports: Some((1500, 80)),
            };
            let found = lookup(&fib, &flow);
            assert!(found.is_local(), "{found:?}");
            let uncertain: Vec<_> = found.uncertain.iter().map(|tried| tried.rule.priority).collect();
            assert_eq!(uncertain, [1000], "{found:?}");
            for fib in [fib.clone(), with_tproxy(&fib, Tproxy { mark: Mark(1337), table: 133 })] {
                let first = find_preceding_policy_rules(family, &fib, Mark(1337));
                assert!(first.len() == 1 && first[0].cause.contains("[l3mdev-table]"), "{first:?}");
            }
        }
    });
}

/// Before the first run, its policy rule and route are not there yet.
#[test]
fn route_in_the_table_of_tproxy_is_seen_before_the_first_run() {
    in_new_namespace(|| {
        network();
        for (family, range) in [(Family::V4, "10.9.0.0/24"), (Family::V6, "fd00:9::/64")] {
            let of_run = Tproxy { mark: Mark(2000), table: 200 };
            let planned = || with_tproxy(&Rtnetlink::open().unwrap().fib(family).unwrap(), of_run);
            assert_eq!(find_preceding_policy_rules(family, &planned(), of_run.mark), Vec::new());
            run("ip", &[flag(family), "route", "add", range, "dev", "eth0", "table", "200"]);
            let found = find_preceding_policy_rules(family, &planned(), of_run.mark);
            assert!(
                found.len() == 1 && found[0].cause.contains("a foreign route takes precedence over ours"),
                "{found:?}"
            );
        }
    });
}
