//! The problems in the first line of `explain --live` without a packet are those that it names when asked
//! about the packet, which the kernel confirms.

use std::thread;

use serde_json::Value;

use crate::explain_foreign::{address, set_up};
use crate::explain_live::{Question, report};
use crate::lab::fixture::at;
use crate::lab::{Backend, Family, Fixture, Outcome, Pod, for_each_backend_and_native};

for_each_backend_and_native!(problems_of_the_pod_are_those_of_its_packets);

/// What changes a pod after our rules, and a packet that it concerns.
struct Change {
    options: &'static str,
    /// As in the cases of `explain_beside`, with iptables and with native rules.
    commands: [&'static str; 2],
    /// The sender, the name of an address and a port.
    flow: (&'static str, &'static str, u16),
    /// The program that responds, and its port; [`NO_REPLY`] with a port of the same server that responds.
    by: Option<(&'static str, u16)>,
    /// Words of both reports, with iptables and with native rules; without any there is no problem.
    says: [&'static str; 2],
}

/// The packets get lost.
const NO_REPLY: &str = "no reply";
/// The port that the app has for another mesh.
const OTHER_MESH: u16 = 9090;

const CHANGES: [Change; 17] = [
    Change {
        options: "-i * -b *",
        commands: [
            "-t nat -I ISTIO_OUTPUT -d {other} -j RETURN",
            "insert rule inet istio-proxy-nat output FAMILY daddr {other} accept",
        ],
        flow: ("app", "other", 80),
        by: Some(("outside", 80)),
        says: ["a foreign rule in nat ISTIO_OUTPUT decides: ", "a foreign rule in nat OUTPUT decides: "],
    },
    Change {
        options: "-i * -b *",
        commands: [
            "-t nat -N CORP\n-t nat -A CORP -d {other} -j RETURN\n-t nat -A CORP -g ISTIO_OUTPUT\n\
             -t nat -D OUTPUT -j ISTIO_OUTPUT\n-t nat -A OUTPUT -j CORP",
            "insert rule inet istio-proxy-nat output FAMILY daddr {other} return",
        ],
        flow: ("app", "other", 80),
        by: Some(("outside", 80)),
        says: ["a foreign rule in nat CORP decides: ", "a foreign rule in nat OUTPUT decides: "],
    },
    Change {
        options: "-i * -b *",
        commands: [
            "-t mangle -A OUTPUT -p tcp --dport 443 -j MARK --set-mark 0x40\nip rule add pref 50 fwmark 0x40 blackhole",
            "-t mangle -A OUTPUT -p tcp --dport 443 -j MARK --set-mark 0x40\nip rule add pref 50 fwmark 0x40 blackhole",
        ],
        flow: ("app", "service", 443),
        by: None,
        says: ["policy routing drops it: policy rule `50: ", "policy routing drops it: policy rule `50: "],
    },
    // The packets of these, only the policy rule names.
    Change {
        options: "-i * -b *",
        commands: ["ip rule add pref 50 ipproto tcp dport 443 prohibit"; 2],
        flow: ("app", "service", 443),
        by: None,
        says: ["policy routing drops it: policy rule `50: "; 2],
    },
    Change {
        options: "-i 192.0.2.0/24,2001:db8:2::/48 -b *",
        commands: ["ip rule add pref 50 ipproto tcp dport 443 prohibit"; 2],
        flow: ("app", "service", 443),
        by: None,
        says: ["policy routing drops it: policy rule `50: "; 2],
    },
    Change {
        options: "-i * -b *",
        commands: ["ip rule add pref 50 to {other} unreachable"; 2],
        flow: ("app", "other", 80),
        by: None,
        says: ["policy routing drops it: policy rule `50: "; 2],
    },
    Change {
        options: "-i * -b *",
        commands: ["ip rule add pref 50 uidrange 900-1000 blackhole"; 2],
        flow: ("app", "service", 80),
        by: None,
        says: ["policy routing drops it: policy rule `50: "; 2],
    },
    Change {
        options: "-i * -b *",
        commands: [
            "-t nat -N PROXY_INIT_OUTPUT\n-t nat -A PROXY_INIT_OUTPUT -p tcp -j REDIRECT --to-port 9090\n\
             -t nat -A OUTPUT -j PROXY_INIT_OUTPUT",
            "-t nat -A OUTPUT -p tcp -j REDIRECT --to-port 9090",
        ],
        flow: ("proxy", "service", 80),
        by: Some(("app", OTHER_MESH)),
        says: ["PROXY_INIT_OUTPUT decides: -p tcp -j REDIRECT --to-ports 9090", " nat OUTPUT"],
    },
    Change {
        options: "-i * -b * -m TPROXY",
        commands: ["ip rule add pref 32765 lookup local\nip rule del pref 0"; 2],
        flow: ("outside", "pod", 8080),
        by: Some(("proxy", 15006)),
        says: [""; 2],
    },
    Change {
        options: "-i * -b *",
        commands: ["ip rule add pref 5 lookup main\nip rule add pref 40000 lookup local\nip rule del pref 0";
            2],
        flow: ("app", "service", 80),
        by: None,
        says: ["policy routing does not bring it to the proxy: policy rule `5: "; 2],
    },
    Change {
        options: "-i * -b *",
        commands: ["ip -6 addr del ::6/128 dev lo"; 2],
        flow: ("outside", "pod", 8080),
        by: Some(("proxy", 15006)),
        says: ["::6 is not on lo"; 2],
    },
    // What the app sends there, the proxy sends again.
    Change {
        options: "-i * -b *",
        commands: ["-t filter -A OUTPUT -p tcp --dport 50000 -j REJECT"; 2],
        flow: ("proxy", "service", 50000),
        by: None,
        says: ["--dport 50000 -j REJECT"; 2],
    },
    Change {
        options: "-i * -b *",
        commands: ["-t filter -A OUTPUT -d {other} -p tcp -j REJECT"; 2],
        flow: ("proxy", "other", 80),
        by: None,
        says: ["filter OUTPUT decides: -d "; 2],
    },
    Change {
        options: "-i * -b *",
        commands: ["-t filter -A INPUT -p tcp --sport 443 -j DROP"; 2],
        flow: ("proxy", "service", 443),
        by: Some((NO_REPLY, 80)),
        says: ["--sport 443 -j DROP"; 2],
    },
    // What a client sends there, the proxy sends again.
    Change {
        options: "-i * -b *",
        commands: ["-t filter -A INPUT -p tcp --dport 9090 -j REJECT"; 2],
        flow: ("passthrough", "pod", OTHER_MESH),
        by: None,
        says: ["--dport 9090 -j REJECT"; 2],
    },
    Change {
        options: "-i * -b *",
        commands: ["ip -4 addr del 127.0.0.1/8 dev lo\nip -4 addr add 127.0.0.1/32 dev lo"; 2],
        flow: ("outside", "pod", 8080),
        by: Some(("proxy", 15006)),
        says: ["127.0.0.6 is not on lo"; 2],
    },
    Change {
        options: "-i * -b *",
        commands: ["ip -4 route add unreachable 198.51.100.0/24\nip -4 route add blackhole 192.0.2.0/24\n\
                    ip -6 route add unreachable 2001:db8::/32"; 2],
        flow: ("outside", "pod", 8080),
        by: Some(("proxy", 15006)),
        says: [""; 2],
    },
];

fn problems_of_the_pod_are_those_of_its_packets(fixture: Fixture) {
    // Each has a pod of its own, and waits for replies that do not come.
    let wrong: Vec<String> = thread::scope(|scope| {
        let cases: Vec<_> = CHANGES.iter().map(|change| scope.spawn(|| wrong(fixture, change))).collect();
        cases.into_iter().flat_map(|case| case.join().expect("a case ends")).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What the reports and the kernel do not have alike.
fn wrong(fixture: Fixture, case: &Change) -> Vec<String> {
    let is_native = usize::from(fixture.backend == Backend::Native);
    let Change { options, commands, flow: (from, to, port), by, says } = case;
    let (commands, says) = (commands[is_native], says[is_native]);
    let pod = fixture.pod();
    let _servers = (
        pod.proxy_listens_without_dns(),
        pod.app_listens(&[8080, OTHER_MESH]),
        pod.outside_listens(&[80, 443]),
    );
    pod.apply(&options.split(' ').collect::<Vec<_>>());
    let mut wrong = Vec::new();
    let mut expect = |is_right: bool, what: String| {
        if !is_right {
            wrong.push(format!("{commands}\n  {what}"));
        }
    };
    let before = problems(&pod);
    expect(before.is_empty(), format!("before: {before}"));
    let check = || pod.istio_iptables(&["check"]).run();
    let before = check();
    expect(before.code() == 0, format!("check before: {}", before.output()));
    commands.lines().for_each(|line| change(&pod, line));
    let said = problems(&pod);
    expect(said.contains(says) && said.is_empty() == says.is_empty(), format!("of the pod: {said}"));
    if says.starts_with("policy routing ") {
        let found = check();
        expect(found.code() == 1 && found.output().contains(says), format!("check: {}", found.output()));
    }
    let call = |family: Family| (family, at(address(to, family), *port), responder(case, &pod, family));
    // Some wait for a reply that does not come.
    let calls: Vec<_> = thread::scope(|scope| {
        let calls = fixture.families().iter().map(|family| scope.spawn(|| call(*family)));
        let calls: Vec<_> = calls.collect();
        calls.into_iter().map(|call| call.join().expect("a call ends")).collect()
    });
    for (family, to, responder) in calls {
        let server = responder.as_ref().map(|(server, port)| (server.as_str(), *port));
        expect(server == *by, format!("{from} to {to}: {responder:?}"));
        let source = family.passthrough().to_string();
        let (args, from) =
            if *from == "passthrough" { (vec!["--src", &source], "proxy") } else { (Vec::new(), *from) };
        let words = words(&report(&pod, &args, &Question { from, to, is_udp: false }));
        let is_of_other = commands.contains(if family == Family::V4 { "ip -6" } else { "ip -4" });
        let says = if is_of_other { "" } else { says };
        let is_said = words.contains(says) && words.is_empty() == says.is_empty();
        expect(is_said, format!("{from} to {to}: {words}"));
    }
    wrong
}

/// The program that responds to a packet, and its port.
fn responder(case: &Change, pod: &Pod, family: Family) -> Option<(String, u16)> {
    let (from, to, port) = case.flow;
    let to = at(address(to, family), port);
    if let Some((NO_REPLY, marker)) = case.by {
        let is_lost = pod.proxy().gets_no_reply(to, at(to.ip(), marker));
        return is_lost.then(|| (NO_REPLY.to_owned(), marker));
    }
    let outcome = match from {
        "outside" => pod.outside().call(to),
        "proxy" => pod.proxy().call(to),
        "passthrough" => pod.proxy().call_from(at(family.passthrough(), 0), to),
        _ => pod.app().call(to),
    };
    match outcome {
        Outcome::Responded(response) => Some((response.server, response.port)),
        Outcome::Refused | Outcome::TimedOut | Outcome::Failed(_) => None,
    }
}

fn change(pod: &Pod, line: &str) {
    match line.strip_prefix("ip -") {
        Some(words) => pod.ip(&format!("-{words}")),
        None if line.contains("FAMILY") => {
            for (family, name) in [(Family::V4, "ip"), (Family::V6, "ip6")] {
                if pod.fixture.families().contains(&family) {
                    set_up(pod, Some(family), &line.replace("FAMILY", name));
                }
            }
        }
        None => set_up(pod, None, line),
    }
}

/// The problems in the first line about all kinds of traffic.
fn problems(pod: &Pod) -> String {
    let output =
        pod.bare_istio_iptables(&["explain", "--live", "--output", "json"]).run().succeeded().output();
    let line = output.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{output}"));
    let said: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let problems = said["problems"].as_array().unwrap_or_else(|| panic!("{said:#}"));
    problems.iter().filter_map(|problem| problem["cause"].as_str()).collect::<Vec<_>>().join("; ")
}

/// Why a packet is not captured, or what is wrong behind its capture.
fn words(explained: &Value) -> String {
    let because = explained["because"].as_str().filter(|_| explained["verdict"] != "captured");
    because.into_iter().chain(explained["problem"].as_str()).collect::<Vec<_>>().join("; ")
}
