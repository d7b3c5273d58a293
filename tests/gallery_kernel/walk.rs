//! The walk of `rules/README.md`, walked: real packets, and the counters of the rules they meet.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::mpsc;
use std::thread;

use istio_iptables::model::Family;
use istio_iptables::parse;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use nix::unistd::{Gid, Uid, gettid, setfsgid, setfsuid};

use super::namespace::{in_namespace, run};
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

/// A pod with the rules of the plain sidecar in this thread's namespace, and a neighbour in another thread's.
fn with_pod(walk: impl FnOnce(&dyn Fn(&'static Step)) + Send) {
    let (ready, neighbour) = mpsc::channel();
    let (orders, todo) = mpsc::channel::<Option<&'static Step>>();
    let (done, finished) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            in_namespace(move || {
                ready.send(gettid()).expect("the pod waits");
                for step in todo {
                    match step {
                        Some(step) => send(step),
                        None => set_up("c0", &["10.244.1.1/24", "10.96.0.10/32", "10.96.0.50/32"]),
                    }
                    done.send(()).expect("the pod waits");
                }
            });
        });
        in_namespace(move || {
            let tid = neighbour.recv().expect("the neighbour has a namespace").to_string();
            let order = |step| {
                orders.send(step).expect("the neighbour listens");
                finished.recv().expect("the neighbour answers");
            };
            run("ip", &["link", "add", "eth0", "type", "veth", "peer", "name", "c0", "netns", &tid], None);
            order(None);
            set_up("eth0", &["10.244.1.7/24"]);
            run("ip", &["route", "add", "default", "via", "10.244.1.1"], None);
            let rules = scenario::root().join("plain-sidecar/iptables.rules");
            run("iptables-nft-restore", &["--noflush"], Some(&rules));
            let ports = [8080, 15001, 15006, 15008, 15021];
            let _listening =
                ports.map(|port| TcpListener::bind(("0.0.0.0", port)).expect("the port is free"));
            walk(&|step| {
                if step.outside { order(Some(step)) } else { send(step) }
            });
        });
    });
}

fn set_up(link: &str, addresses: &[&str]) {
    for address in addresses {
        run("ip", &["addr", "add", address, "dev", link], None);
    }
    run("ip", &["link", "set", link, "up"], None);
}

/// Sends a first packet. The owner of a socket is the file system identity of the thread that makes it, which a thread
/// has for itself.
fn send(step: &'static Step) {
    let walker = thread::spawn(|| {
        setfsgid(Gid::from_raw(step.user));
        setfsuid(Uid::from_raw(step.user));
        let [source, destination]: [SocketAddrV4; 2] =
            [step.source, step.destination].map(|text| text.parse().expect("an address and a port"));
        if !step.tcp {
            let socket = UdpSocket::bind(source).expect("any port");
            socket.send_to(b"query", destination).expect("it leaves");
            return;
        }
        let socket =
            socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        setsockopt(&socket, sockopt::SendTimeout, &TimeVal::new(2, 0)).expect("a time limit");
        bind(socket.as_raw_fd(), &SockaddrIn::from(source)).expect("the source is ours");
        // Whether a server answers does not matter here.
        let _ = connect(socket.as_raw_fd(), &SockaddrIn::from(destination));
    });
    walker.join().expect("the reason is printed above");
}

/// Each rule that has counted packets, as the rules file writes it. Counters are read and set to zero.
fn counted() -> BTreeSet<String> {
    let saved = run("iptables-nft-save", &["-c", "-t", "nat"], None);
    run("iptables-nft", &["-t", "nat", "-Z"], None);
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
