//! The walk of `rules/README.md`, walked: real packets, and the counters of the rules they meet.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddrV4, TcpListener, UdpSocket};
use std::time::Duration;

use istio_iptables::model::Family;
use istio_iptables::parse;
use netlab::process::{run, run_with_input};
use netlab::socket::{self, Binding};
use netlab::{Namespace, User};

use super::scenario;

const APP: u32 = 1000;
const PROXY: u32 = 1337;

/// A step of the walk: the letter of its section, and who sends what where.
struct Step {
    section: &'static str,
    outside: bool,
    user: u32,
    source: &'static str,
    destination: &'static str,
    tcp: bool,
}

const fn tcp(section: &'static str, user: u32, source: &'static str, destination: &'static str) -> Step {
    Step { section, outside: false, user, source, destination, tcp: true }
}

const fn outside(section: &'static str, destination: &'static str) -> Step {
    Step { outside: true, ..tcp(section, 0, "0.0.0.0:0", destination) }
}

const STEPS: [Step; 11] = [
    outside("a", "10.244.1.7:8080"),
    outside("a", "10.244.1.7:15008"),
    tcp("b", PROXY, "127.0.0.6:0", "10.244.1.7:8080"),
    tcp("c", APP, "0.0.0.0:0", "10.96.0.50:80"),
    tcp("d", PROXY, "0.0.0.0:0", "10.96.0.50:15008"),
    tcp("e", APP, "0.0.0.0:0", "10.244.1.7:8080"),
    tcp("e", APP, "0.0.0.0:0", "127.0.0.1:8080"),
    tcp("f", PROXY, "0.0.0.0:0", "10.244.1.7:8080"),
    outside("g", "10.244.1.7:15021"),
    Step { tcp: false, ..tcp("h", APP, "0.0.0.0:0", "10.96.0.10:53") },
    tcp("c", APP, "0.0.0.0:0", "10.96.0.10:53"),
];

/// A pod with the rules of the plain sidecar in this thread's namespace, and a neighbour in another one.
fn with_pod(walk: impl FnOnce(&dyn Fn(&'static Step)) + Send) {
    let [pod, neighbour] = [(); 2].map(|()| Namespace::with_loopback());
    pod.connect("eth0", &neighbour, "c0");
    for address in ["10.244.1.1/24", "10.96.0.10/32", "10.96.0.50/32"] {
        neighbour.ip(&format!("address add {address} dev c0"));
    }
    pod.ip("address add 10.244.1.7/24 dev eth0\nroute add default via 10.244.1.1");
    let rules = scenario::root().join("plain-sidecar/iptables.rules");
    let rules = fs::read_to_string(rules).expect("the rules can be read");
    pod.run(|| {
        run_with_input("iptables-nft-restore", &["--noflush"], &rules);
        let ports = [8080, 15001, 15006, 15008, 15021];
        let _listening = ports.map(|port| TcpListener::bind(("0.0.0.0", port)).expect("the port is free"));
        walk(&|step| send(if step.outside { &neighbour } else { &pod }, step));
    });
}

/// Sends a first packet. The owner of a socket is the user of the thread that makes it.
fn send(namespace: &Namespace, step: &'static Step) {
    User::new(namespace, step.user, step.user).run(|| {
        let [source, destination]: [SocketAddrV4; 2] =
            [step.source, step.destination].map(|text| text.parse().expect("an address and a port"));
        if !step.tcp {
            let socket = UdpSocket::bind(source).expect("any port");
            socket.send_to(b"query", destination).expect("it leaves");
            return;
        }
        let binding = Binding { source: Some(source.into()), ..Binding::default() };
        // Whether a server responds does not matter here.
        let _ = socket::connect_tcp(destination.into(), binding, Duration::from_secs(2));
    });
}

/// Each rule that has counted packets, as the rules file writes it. Counters are read and set to zero.
fn counted() -> BTreeSet<String> {
    let saved = run("iptables-nft-save", &["-c", "-t", "nat"]);
    run("iptables-nft", &["-t", "nat", "-Z"]);
    let canonical = |line: &str| {
        let (count, rule) = line.strip_prefix('[')?.split_once("] -A ")?;
        let (chain, words) = rule.split_once(' ')?;
        let statement = parse::statement(Family::V4, words)?;
        (!count.starts_with("0:")).then(|| format!("-A {chain} {statement}"))
    };
    saved.lines().filter_map(canonical).collect()
}

/// The rules that a section of the walk quotes.
fn quoted(text: &str, section: &str) -> BTreeSet<String> {
    let heading = format!("### ({section}) ");
    let (_, rest) =
        text.split_once(&heading).unwrap_or_else(|| panic!("rules/README.md has no section {heading}"));
    let section = rest.split("\n### ").next().unwrap_or(rest);
    section.lines().filter(|line| line.starts_with("-A ")).map(str::to_owned).collect()
}

#[test]
fn the_packets_of_the_walk_meet_the_rules_that_it_quotes() {
    let text = fs::read_to_string(scenario::root().join("README.md")).expect("the walk can be read");
    let entries = ["-A PREROUTING -p tcp -j ISTIO_INBOUND", "-A OUTPUT -j ISTIO_OUTPUT"];
    with_pod(|send| {
        counted();
        for step in &STEPS {
            send(step);
            let counted = counted();
            let entry = entries[usize::from(!step.outside)];
            assert!(counted.contains(entry), "({}) to {}: {counted:?}", step.section, step.destination);
            let met: BTreeSet<_> = counted.into_iter().filter(|rule| rule != entry).collect();
            let quoted = quoted(&text, step.section);
            assert!(
                !met.is_empty() && met.is_subset(&quoted),
                "({}) to {} meets {met:#?}, the walk quotes {quoted:#?}",
                step.section,
                step.destination
            );
        }
    });
}
