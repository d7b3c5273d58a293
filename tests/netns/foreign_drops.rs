//! Foreign rules by which captured connections end: every run and `check` name them, wherever they are. Those
//! that end none are not named.

use std::fs;

use netlab::socket::{self, Binding};

use crate::check::check;
use crate::explain_live::{Question, report};
use crate::lab::fixture::at;
use crate::lab::program::tool;
use crate::lab::server::Server;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(
    rules_that_end_captured_connections_are_named,
    rules_that_end_connections_of_the_proxy_are_named_by_check,
    rules_that_end_no_captured_connection_are_not_named,
    a_drop_is_one_problem_and_its_chain_none,
    filters_of_servers_are_named_where_the_app_listens,
    rules_for_no_address_are_not_named,
    translation_to_loopback_is_not_named_where_the_kernel_allows_it,
);

/// Ports that are not captured: markers go there.
const OPTIONS: [&str; 8] = ["-i", "*", "-b", "*", "-d", "7000", "-o", "9000"];

fn options(mode: &'static str) -> Vec<&'static str> {
    [&OPTIONS[..], &["-m", mode]].concat()
}

/// A pod with a foreign rule before or after ours, and the output of each run and of `check`, with its exit
/// code.
struct Beside {
    pod: Pod,
    runs: Vec<String>,
    check: (i32, String),
}

impl Beside {
    fn new(fixture: Fixture, mode: &'static str, rule: &str, is_before: bool) -> Self {
        let pod = fixture.pod();
        let options = options(mode);
        let add =
            || fixture.families().iter().for_each(|family| drop(pod.iptables(*family, &of(rule, *family))));
        if is_before {
            add();
        }
        let first = pod.apply(&options).output();
        if !is_before {
            add();
        }
        let dry = [&options[..], &["--dry-run"]].concat();
        let runs = [&dry, &options].map(|args| pod.apply(args).output());
        let runs = is_before.then_some(first).into_iter().chain(runs).collect();
        let check = pod.istio_iptables(&[&["check"], &options[..]].concat()).run();
        let check = (check.code(), check.output());
        Self { pod, runs, check }
    }
}

/// Whether a line is about the rule, or about the base chain that has it.
fn is_named(output: &str, rule: &str, family: Family) -> bool {
    let (rule, table) = (of(rule, family), rule.split(' ').nth(1).unwrap_or_default());
    let target = rule.split(" -j ").last().unwrap_or_default();
    let (name, chain) = match family {
        Family::V4 => ("(IPv4", format!(": ip {table} ")),
        Family::V6 => ("(IPv6", format!(": ip6 {table} ")),
    };
    output.lines().any(|line| {
        // Of traffic that ends the same way in both families, one is shown.
        let is_of_traffic = [" is lost: ", " captured, "].iter().any(|words| line.contains(words));
        let is_of_rule = is_of_traffic || (line.contains("foreign") && line.contains(name));
        line.contains(&chain) || (is_of_rule && line.contains(&format!("-j {target}")))
    })
}

/// The rule for a family.
fn of(rule: &str, family: Family) -> String {
    let (ttl, loopback, metadata) = match family {
        Family::V4 => ("ttl --ttl-lt", "127.0.0.1", "169.254.169.254"),
        Family::V6 => ("hl --hl-lt", "[::1]", "fd00:ec2::254"),
    };
    rule.replace("{ttl}", ttl).replace("{loopback}", loopback).replace("{metadata}", metadata)
}

/// Who gets no reply any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    App,
    Client,
    /// The proxy that hands a request to the app.
    ToApp,
    /// The proxy that hands a request to this port of the app.
    ToPort(u16),
    /// The proxy that calls a server.
    ToServer,
}

impl Lost {
    /// The question about the connection that the proxy gets first.
    fn question(self, family: Family) -> Question<'static> {
        let (from, to) = match self {
            Self::ToServer | Self::App => ("app", at(family.service(), 80)),
            Self::ToPort(port) => ("outside", at(family.pod(), port)),
            Self::ToApp | Self::Client => ("outside", at(family.pod(), 8080)),
        };
        Question { from, to, is_udp: false }
    }

    /// Whether that is so.
    fn is(self, pod: &Pod, family: Family) -> bool {
        let (user, to, marker) = match self {
            Self::App => (pod.app(), at(family.service(), 80), at(family.service(), 9000)),
            Self::Client => (pod.outside(), at(family.pod(), 8080), at(family.pod(), 7000)),
            Self::ToApp | Self::ToPort(_) | Self::ToServer => {
                let to = match self {
                    Self::ToPort(port) => at(family.pod(), port),
                    Self::ToApp => at(family.pod(), 8080),
                    Self::ToServer | Self::App | Self::Client => at(family.service(), 80),
                };
                let binding = Binding { source: None, spoofed_mark: Some(1337) };
                let binding = if self == Self::ToServer { Binding::default() } else { binding };
                let attempt = pod.user(0, 1337).run(|| socket::start_connect(to, binding));
                pod.outside().call(at(family.pod(), 7000)).response();
                return attempt.map_or(true, |attempt| attempt.peer_addr().is_err());
            }
        };
        user.gets_no_reply(to, marker)
    }
}

const BOTH: &[&str] = &["REDIRECT", "TPROXY"];
const TPROXY: &[&str] = &["TPROXY"];

fn servers(pod: &Pod) -> [Server; 3] {
    [pod.proxy_listens(), pod.app_listens(&[7000, 8080]), pod.outside_listens(&[80, 9000])]
}

fn rules_that_end_captured_connections_are_named(fixture: Fixture) {
    for (rule, lost, modes) in [
        ("-t mangle -A PREROUTING -i lo -p tcp --dport 15001 -j DROP", Lost::App, BOTH),
        ("-t mangle -A PREROUTING -i lo -j DROP", Lost::App, BOTH),
        ("-t mangle -A PREROUTING -i lo -m {ttl} 65 -j DROP", Lost::App, BOTH),
        (
            "-t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination {loopback}:8080",
            Lost::Client,
            TPROXY,
        ),
    ] {
        for mode in modes {
            for is_before in [true, false] {
                let Beside { pod, runs, check } = Beside::new(fixture, mode, rule, is_before);
                let _servers = servers(&pod);
                for &family in fixture.families() {
                    let case = format!("{rule}, {mode}, before ours: {is_before}, {family:?}");
                    assert!(lost.is(&pod, family), "{case}");
                    for run in &runs {
                        assert!(is_named(run, rule, family), "{case}: {run}");
                    }
                    assert!(check.0 == 1 && is_named(&check.1, rule, family), "{case}: {check:?}");
                }
            }
        }
    }
}

fn rules_that_end_connections_of_the_proxy_are_named_by_check(fixture: Fixture) {
    for (rule, lost, modes) in [
        ("-t filter -A OUTPUT -p tcp -m owner --gid-owner 1337 -j DROP", Lost::ToApp, BOTH),
        ("-t filter -A OUTPUT -p tcp -m owner --gid-owner 1337 ! -o lo -j DROP", Lost::ToServer, BOTH),
        ("-t filter -A OUTPUT -p tcp -m owner --gid-owner 1337 --dport 80 -j DROP", Lost::ToServer, BOTH),
        ("-t filter -A INPUT -p tcp --dport 8080 -j DROP", Lost::ToApp, &["REDIRECT"]),
        ("-t mangle -A PREROUTING -i lo -p tcp --dport 8080 -j DROP", Lost::ToApp, BOTH),
    ] {
        for mode in modes {
            let Beside { pod, check, .. } = Beside::new(fixture, mode, rule, false);
            let _servers = servers(&pod);
            for &family in fixture.families() {
                let case = format!("{rule}, {mode}, {family:?}");
                assert!(lost.is(&pod, family), "{case}");
                assert!(check.0 == 1 && is_named(&check.1, rule, family), "{case}: {check:?}");
                // The kernel does not tell the order of chains with the priority of our own.
                if fixture.backend == Backend::Native && rule.starts_with("-t mangle") {
                    continue;
                }
                is_the_answer(&pod, lost.question(family), &of(rule, family), &case);
            }
        }
    }
}

/// The question about what the proxy has captured is answered with what becomes of it behind the proxy.
fn is_the_answer(pod: &Pod, question: Question<'static>, rule: &str, case: &str) {
    let target = rule.split(" -j ").last().unwrap_or_default();
    let answer = report(pod, &[], &question);
    assert_eq!(answer["verdict"], "captured", "{case}: {answer:#}");
    let problem = answer["problem"].as_str().unwrap_or_else(|| panic!("{case}: {answer:#}"));
    assert!(problem.contains(&format!("-j {target}")), "{case}: {problem}");
    let fix = answer["problems"][0]["fix"].as_str().unwrap_or_default();
    assert!([" -D ", "nft delete rule"].iter().any(|deletes| fix.contains(deletes)), "{case}: {answer:#}");
    let to = question.to.to_string();
    let words = ["explain", "--live", "--from", question.from, "--to", &to, "--expect", "captured"];
    let asked = pod.bare_istio_iptables(&words).run();
    assert_eq!(asked.code(), 1, "{case}: {}", asked.output());
    let out = asked.stdout();
    let line = out.lines().next().unwrap_or_default();
    assert!(
        line.starts_with("captured: goes to the proxy's ") && line.contains("but it fails"),
        "{case}: {out}"
    );
}

fn rules_that_end_no_captured_connection_are_not_named(fixture: Fixture) {
    for (rule, modes) in [
        ("-t mangle -A PREROUTING ! -i lo -p tcp --dport 9090 -j DROP", TPROXY),
        ("-t mangle -A PREROUTING -i eth0 -p tcp -j DROP", TPROXY),
        ("-t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination :9999", TPROXY),
        ("-t nat -A PREROUTING -p tcp --dport 8080 -j REDIRECT --to-ports 9999", TPROXY),
        ("-t nat -A PREROUTING -i lo -p tcp -j DNAT --to-destination {loopback}:8080", TPROXY),
        ("-t nat -A PREROUTING -p udp --dport 8080 -j DNAT --to-destination {loopback}:8080", BOTH),
        ("-t filter -A OUTPUT -d {metadata} -p tcp --dport 80 -j REJECT", BOTH),
    ] {
        for mode in modes {
            // Where the chains of native rules are, the kernel takes what iptables drops there from them.
            if fixture.backend == Backend::Native && rule.starts_with("-t mangle") {
                continue;
            }
            let Beside { pod, runs, check } = Beside::new(fixture, mode, rule, false);
            let _servers = servers(&pod);
            for &family in fixture.families() {
                let case = format!("{rule}, {mode}, {family:?}");
                assert!(runs.iter().all(|run| !is_named(run, rule, family)), "{case}: {runs:?}");
                assert_eq!(check.0, 0, "{case}: {check:?}");
                let (inbound, outbound) = (at(family.pod(), 8080), at(family.service(), 80));
                pod.outside().call(inbound).captured(15006, inbound);
                for lost in [Lost::Client, Lost::App] {
                    assert!(report(&pod, &[], &lost.question(family))["problem"].is_null(), "{case}");
                }
                pod.app().call(outbound).captured(15001, outbound);
            }
        }
    }
}

/// A test that fails for every address: iptables-nft refuses such a rule, iptables-legacy keeps it.
fn rules_for_no_address_are_not_named(fixture: Fixture) {
    for rule in [
        "-t mangle -A PREROUTING ! -s {any} -j DROP",
        "-t mangle -A OUTPUT ! -d {any} -p tcp -j DROP",
        "-t raw -A PREROUTING ! -d {any} -j DROP",
        "-t nat -A OUTPUT ! -s {any} -p tcp -j ACCEPT",
        "-t filter -A INPUT ! -s {any} -j DROP",
    ] {
        let pod = fixture.pod();
        let _servers = servers(&pod);
        for (tool_of_family, any) in [("iptables-legacy", "0.0.0.0/0"), ("ip6tables-legacy", "::/0")] {
            let words = rule.replace("{any}", any);
            let words: Vec<&str> = words.split(' ').collect();
            pod.namespace.run(|| tool(tool_of_family, &words, ""));
        }
        let run = pod.apply(&OPTIONS).output();
        assert!(!run.contains("foreign"), "{rule}: {run}");
        let check = pod.istio_iptables(&[&["check"], &OPTIONS[..]].concat()).run();
        assert_eq!(check.code(), 0, "{rule}: {}", check.output());
        for &family in fixture.families() {
            let inbound = at(family.pod(), 8080);
            pod.outside().call(inbound).captured(15006, inbound);
        }
    }
}

/// A filter of what leaves the pod is for servers, until a process of the app listens on its port.
fn filters_of_servers_are_named_where_the_app_listens(fixture: Fixture) {
    for (rule, port) in [
        ("-t filter -A OUTPUT -p tcp --dport 25 -j DROP", 25),
        ("-t filter -A OUTPUT -p tcp --dport 53 -j DROP", 53),
        ("-t filter -A OUTPUT -p tcp --dport 8080 -j REJECT", 8080),
        ("-t filter -A OUTPUT -p tcp -m multiport --dports 25,465,587 -j DROP", 465),
        ("-t filter -A OUTPUT ! -o tun0 -p tcp --dport 1024:9999 -j DROP", 8080),
        ("-t mangle -A POSTROUTING -p tcp --dport 25 -j DROP", 25),
    ] {
        for mode in BOTH {
            for is_before in [true, false] {
                let Beside { pod, runs, check } = Beside::new(fixture, mode, rule, is_before);
                let case = format!("{rule}, {mode}, before ours: {is_before}");
                for &family in fixture.families() {
                    assert!(runs.iter().all(|run| !is_named(run, rule, family)), "{case}: {runs:?}");
                }
                assert_eq!(check.0, 0, "{case}: {check:?}");
                if is_before {
                    continue;
                }
                let _servers = [pod.proxy_listens(), pod.app_listens(&[7000, port])];
                let options = options(mode);
                let run = pod.apply(&options).output();
                let check = pod.istio_iptables(&[&["check"], &options[..]].concat()).run();
                for &family in fixture.families() {
                    assert!(Lost::ToPort(port).is(&pod, family), "{case}, {family:?}");
                    assert!(is_named(&run, rule, family), "{case}, {family:?}: {run}");
                    assert!(
                        is_named(&check.output(), rule, family),
                        "{case}, {family:?}: {}",
                        check.output()
                    );
                }
                assert_eq!(check.code(), 1, "{case}: {}", check.output());
            }
        }
    }
}

fn translation_to_loopback_is_not_named_where_the_kernel_allows_it(fixture: Fixture) {
    let rule = "-t nat -A PREROUTING -p tcp --dport 8080 -j DNAT --to-destination 127.0.0.1:8080";
    let pod = fixture.pod();
    let path = "/proc/sys/net/ipv4/conf/eth0/route_localnet";
    pod.namespace.run(|| fs::write(path, "1")).expect("a setting is written");
    let options = options("TPROXY");
    pod.apply(&options);
    pod.iptables(Family::V4, rule);
    let run = pod.apply(&options).output();
    assert!(!is_named(&run, rule, Family::V4), "{run}");
    let _servers = servers(&pod);
    assert_eq!(pod.outside().call(at(Family::V4.pod(), 8080)).response().server, "proxy");
}

/// What is known of a rule is reported once, and not again by what its chain may do.
fn a_drop_is_one_problem_and_its_chain_none(fixture: Fixture) {
    let rules =
        ["INPUT -p tcp --dport 15006 -j DROP", "OUTPUT -p tcp -m owner --uid-owner 1337 --dport 443 -j DROP"];
    for rule in rules {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[8080]));
        pod.apply(&OPTIONS);
        let command = format!("-t filter -A {rule}");
        let words: Vec<&str> = command.split(' ').collect();
        pod.namespace.run(|| tool("iptables-nft", &words, ""));
        let (code, said) = check(&pod, &OPTIONS);
        let problems = said["problems"].as_array().unwrap_or_else(|| panic!("{said:#}"));
        let ids: Vec<&str> = problems.iter().filter_map(|problem| problem["id"].as_str()).collect();
        assert_eq!((code, &ids[..]), (1, &["traffic-lost"][..]), "{rule}: {said:#}");
    }
}
