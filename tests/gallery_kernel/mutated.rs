//! A rule of a scenario is dropped, swapped or changed: the kernel treats the packet that `diff` names as it
//! says, with the rules as they were and with the changed ones, in every form of the rules.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use istio_iptables::config::Output;
use istio_iptables::diff::{self, Side};
use istio_iptables::explain::Rules;
use istio_iptables::model::{Family, InterfaceAddress, Network};
use istio_iptables::nft::LiveTables;
use istio_iptables::parse;
use netlab::process::{run, run_with_input};
use netlab::socket::{self, Binding};
use netlab::user::call_here;
use netlab::{Listen, Namespace, Outcome, User};
use nix::sys::socket::SockType;
use serde_json::Value;

use super::mutation::{self, Mutated};
use super::native;
use super::observer::{self, Delivery};
use super::scenario;

/// Packets that are sent for each form; `MUTATIONS` gives another number.
const PACKETS: usize = 8;
const REDIRECT: &[&str] =
    &["plain-sidecar", "excludes", "dns", "owner-groups", "outbound-include", "several-uids"];
const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 7);
const POD_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x10, 0x244, 1, 0, 0, 0, 7);
/// Where the proxy listens.
const PROXY: [u16; 3] = [15001, 15006, 15053];

/// A form of the rules, and the scenarios of which packets are sent. Those of TPROXY are in
/// [`super::mutated_tproxy`]: a difference is about one packet, and with changed rules the later ones of its
/// connection may take another way.
pub(super) struct Form {
    pub(super) family: Family,
    pub(super) file: &'static str,
    /// The program that reads such a file.
    pub(super) load: &'static [&'static str],
    pub(super) scenarios: &'static [&'static str],
}

impl Form {
    pub(super) const NFT: Self = Self {
        family: Family::V4,
        file: "iptables.rules",
        load: &["iptables-nft-restore", "--noflush"],
        scenarios: REDIRECT,
    };
    pub(super) const LEGACY: Self = Self { load: &["iptables-legacy-restore", "--noflush"], ..Self::NFT };
    pub(super) const V6: Self = Self {
        family: Family::V6,
        file: "ip6tables.rules",
        load: &["ip6tables-nft-restore", "--noflush"],
        scenarios: &["ipv6-only", "dual-stack"],
    };
    pub(super) const NATIVE: Self = Self { file: "nft.rules", load: &["nft", "-f", "-"], ..Self::NFT };

    fn is_native(&self) -> bool {
        self.load[0] == "nft"
    }

    pub(super) const fn pod(&self) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::V4(POD),
            Family::V6 => IpAddr::V6(POD_V6),
        }
    }

    pub(super) const fn loopback(&self) -> IpAddr {
        match self.family {
            Family::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Family::V6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }

    fn side(&self, name: &str, text: &str) -> Side {
        let side = Side::new(name.to_owned());
        if self.is_native() {
            let live = LiveTables::new(native::loaded(text), Vec::new());
            return side.rules(self.family, &Rules::native(&live, self.family));
        }
        let texts = diff::by_family(text, self.family).expect("a rules file");
        let text = texts.get(&self.family).expect("rules of the family");
        side.saved(&parse::iptables_save(self.family, text))
    }

    pub(super) fn mutations(&self, text: &str) -> Vec<Mutated> {
        if self.is_native() { native_mutations(text) } else { mutation::all(text) }
    }

    /// The rules of each scenario, and its routes as arguments of `ip`.
    pub(super) fn files(&self) -> Vec<(String, String)> {
        let read = |name: &str, file| fs::read_to_string(scenario::root().join(name).join(file));
        let of = |name: &&str| {
            let routes = read(name, "routing.sh").unwrap_or_default();
            let routes: Vec<&str> = routes.lines().filter_map(|line| line.strip_prefix("ip ")).collect();
            (read(name, self.file).expect(name), routes.join("\n"))
        };
        self.scenarios.iter().map(of).collect()
    }

    /// What `diff` says of two rule sets.
    pub(super) fn differences(&self, original: &str, mutated: &str) -> Vec<Value> {
        let address = |interface: &str, address: IpAddr, prefix| InterfaceAddress {
            interface: interface.to_owned(),
            address,
            prefix,
        };
        let network = Network {
            addresses: vec![
                address("lo", Ipv4Addr::LOCALHOST.into(), 8),
                address("lo", Ipv6Addr::LOCALHOST.into(), 128),
                address("eth0", self.pod(), if self.family == Family::V4 { 24 } else { 64 }),
            ],
            ipv6: true,
        };
        let sides = [self.side("original", original), self.side("mutated", mutated)];
        let (report, _) = diff::report(&sides, &network, Output::Json);
        let report: Value = serde_json::from_str(&report).expect("JSON");
        report["differences"].as_array().expect("a list").clone()
    }
}

/// A listing without one rule, or with it behind the next one.
fn native_mutations(text: &str) -> Vec<Mutated> {
    let lines: Vec<&str> = text.lines().collect();
    let is_rule = |line: &&str| line.starts_with("\t\t") && line.contains("counter ");
    let mut mutated = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_rule(line)) {
        let mut without = lines.clone();
        without.remove(at);
        mutated.push(Mutated { what: format!("without {line}"), text: without.join("\n") + "\n" });
        if lines.get(at + 1).is_some_and(is_rule) {
            let mut swapped = lines.clone();
            swapped.swap(at, at + 1);
            let what = format!("{line} behind the next one");
            mutated.push(Mutated { what, text: swapped.join("\n") + "\n" });
        }
    }
    mutated
}

/// A packet that a test can send, and what both rule sets do with it.
struct Flow {
    is_inbound: bool,
    is_udp: bool,
    uid: u32,
    gid: u32,
    source: SocketAddr,
    destination: SocketAddr,
    is_local: bool,
    claimed: [Claim; 2],
    words: String,
}

/// The port of the proxy, or `None` if it is not captured.
type Claim = Option<u16>;

fn flow(form: &Form, difference: &Value) -> Option<Flow> {
    let packet = &difference["packet"];
    let number = |key: &str| packet[key].as_u64();
    let word = |key: &str| packet[key].as_str().unwrap_or_default();
    let path = word("path");
    let is_inbound = path == "from-outside";
    let socket = |address: &str, port: &str| -> Option<SocketAddr> {
        Some(SocketAddr::new(word(address).parse().ok()?, u16::try_from(number(port)?).ok()?))
    };
    let claim = |side: &str| match difference[side]["verdict"].as_str()? {
        "captured" => Some(Some(u16::try_from(difference[side]["port"].as_u64()?).ok()?)),
        "not-captured" => Some(None),
        _ => None,
    };
    let claimed = [claim("a")?, claim("b")?];
    let (source, destination) =
        (socket("source", "source_port")?, socket("destination", "destination_port")?);
    let id = |key: &str| number(key).and_then(|id| u32::try_from(id).ok());
    let is_sendable = ["from-outside", "within-pod", "to-outside"].contains(&path)
        && word("state") == "new"
        && ["eth0", "lo"].contains(&word("interface"))
        && (number("mark"), number("connmark")) == (Some(0), Some(0))
        && (number("protocol") == Some(6) || number("protocol") == Some(17) && !is_inbound)
        && packet["opens"].as_bool() == Some(number("protocol") == Some(6))
        && !PROXY.contains(&destination.port())
        && claimed[0] != claimed[1]
        && destination.ip().is_ipv4() == form.pod().is_ipv4()
        && (!is_inbound || destination.ip() == form.pod())
        && (path != "within-pod" || destination.ip() == form.pod() || destination.ip().is_loopback());
    let (uid, gid) = if is_inbound { (0, 0) } else { (id("uid")?, id("gid")?) };
    is_sendable.then(|| Flow {
        is_inbound,
        is_udp: number("protocol") == Some(17),
        uid,
        gid,
        source,
        destination,
        is_local: path != "to-outside",
        claimed,
        words: difference["words"].as_str().unwrap_or_default().to_owned(),
    })
}

/// A pod with the routes of the scenario, and its neighbour.
pub(super) fn connected(form: &Form, interface: &str, routes: &str) -> (Namespace, Namespace) {
    let [pod, neighbour] = [(); 2].map(|()| Namespace::with_loopback());
    for namespace in [&pod, &neighbour] {
        // Addresses are used at once.
        namespace.run(|| fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0")).expect("a setting");
    }
    pod.connect(interface, &neighbour, "c0");
    // Every address is the neighbour's but that of the pod.
    match form.family {
        Family::V4 => {
            neighbour.ip("address add 10.244.1.1/24 dev c0\nroute add 10.244.1.7/32 dev c0 table local");
            neighbour.ip("route add local 0.0.0.0/0 dev lo table local");
            pod.ip(&format!("address add 10.244.1.7/24 dev {interface}\nroute add default via 10.244.1.1"));
        }
        Family::V6 => {
            neighbour.ip("address add fd00:10:244:1::1/64 dev c0 nodad");
            neighbour.ip(&format!("route add {POD_V6}/128 dev c0 table local"));
            neighbour.ip("route add local ::/0 dev lo table local");
            pod.ip(&format!("address add {POD_V6}/64 dev {interface} nodad"));
            pod.ip("route add default via fd00:10:244:1::1");
        }
    }
    for line in routes.lines() {
        // Debian 12's `ip` does not know the protocol of an address.
        let line = if line.contains(" addr ") { line.replace(" proto 150", "") } else { line.to_owned() };
        pod.run(|| run("ip", &line.split(' ').collect::<Vec<_>>()));
    }
    [&pod, &neighbour].into_iter().for_each(Namespace::await_ipv6_addresses);
    (pod, neighbour)
}

/// Which server responds, on which port, with these rules and the routes of the scenario.
fn sent(form: &Form, routes: &str, rules: &str, flow: &Flow) -> Option<(String, u16)> {
    let (pod, neighbour) = connected(form, "eth0", routes);
    pod.run(|| run_with_input(form.load[0], &form.load[1..], rules));
    if flow.is_udp {
        return sent_by_udp(&pod, flow);
    }
    let _proxy = User::new(&pod, 1337, 1337).serve("proxy", &PROXY.map(Listen::Tcp));
    let own = [Listen::Tcp(flow.destination.port())];
    let (server, client) = if flow.is_local { (&pod, "app") } else { (&neighbour, "outside") };
    // The port of the packet may be a low one.
    server
        .run(|| fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"))
        .expect("any port for any user");
    let _server = User::new(server, 1000, 1000).serve(client, &own);
    let from = if flow.is_inbound { &neighbour } else { &pod };
    let mut source = flow.source;
    // Any client port: that of the packet is one of many.
    if source.port() == 50000 {
        source.set_port(0);
    }
    // The neighbour has every address, which IPv6 lets a socket bind to only if it is transparent.
    let spoofed_mark = flow.is_inbound.then_some(0);
    let binding = Binding { source: Some(source), spoofed_mark };
    let outcome = User::new(from, flow.uid, flow.gid).run(|| call_here(flow.destination, binding));
    match outcome {
        Outcome::Responded(response) => Some((response.server, response.port)),
        Outcome::Refused => None,
        Outcome::TimedOut | Outcome::Failed(_) => panic!("{}: {outcome:?} with\n{rules}", flow.words),
    }
}

/// Where the first datagram goes: with changed rules the reply may be lost in another zone of connection
/// tracking.
fn sent_by_udp(pod: &Namespace, flow: &Flow) -> Option<(String, u16)> {
    let packet = format!("udp sport {}", flow.source.port());
    pod.run(|| run_with_input("nft", &["-f", "-"], &observer::table(&packet, "")));
    pod.run(|| fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"))
        .expect("any port for any user");
    let binding = Binding { source: Some(flow.source), spoofed_mark: None };
    User::new(pod, flow.uid, flow.gid).run(|| {
        let socket =
            UdpSocket::from(socket::bound(flow.destination, binding, SockType::Datagram).expect("a socket"));
        socket.send_to(b"?", flow.destination).expect("a datagram is sent");
    });
    let seen = observer::observations(pod, false);
    let seen = seen.first().unwrap_or_else(|| panic!("{}: nothing arrived", flow.words));
    match seen.delivery {
        Delivery::Outside => Some(("outside".to_owned(), seen.port)),
        Delivery::Pod | Delivery::TransparentSocket => {
            let own = (seen.port == flow.destination.port()).then_some("app");
            let server = if PROXY.contains(&seen.port) { Some("proxy") } else { own };
            server.map(|server| (server.to_owned(), seen.port))
        }
    }
}

/// Whether the kernel does with the packet what is claimed.
fn confirm(form: &Form, (what, routes, rules): (&str, &str, &str), flow: &Flow, claim: Claim) {
    let found = sent(form, routes, rules, flow);
    let server = if flow.is_local { "app" } else { "outside" };
    let expected = match claim {
        Some(port) if PROXY.contains(&port) => Some(("proxy".to_owned(), port)),
        // Nothing listens where the changed rule redirects to.
        Some(_) => None,
        None => Some((server.to_owned(), flow.destination.port())),
    };
    assert_eq!(found, expected, "{what}: {} with\n{rules}", flow.words);
}

#[test]
fn kernel_confirms_the_packets_that_diff_names() {
    kernel_confirms(&Form::NFT);
}

#[test]
fn kernel_confirms_the_packets_of_legacy_rules() {
    kernel_confirms(&Form::LEGACY);
}

#[test]
fn kernel_confirms_the_packets_of_ipv6_rules() {
    kernel_confirms(&Form::V6);
}

#[test]
fn kernel_confirms_the_packets_of_native_rules() {
    kernel_confirms(&Form::NATIVE);
}

fn kernel_confirms(form: &Form) {
    let most = std::env::var("MUTATIONS").ok().filter(|text| !text.is_empty());
    let most: usize = most.map_or(PACKETS, |text| text.parse().expect("MUTATIONS is a number"));
    let mut confirmed = 0;
    let files = form.files();
    let all: Vec<Vec<Mutated>> = files.iter().map(|(text, _)| form.mutations(text)).collect();
    // One of each scenario in turn, spread over its mutations.
    let longest = all.iter().map(Vec::len).max().unwrap_or_default();
    let step = (longest * form.scenarios.len() / (4 * most.max(1))).clamp(1, 7);
    let turns = (0..longest).step_by(step).chain((0..longest).filter(|at| at % step != 0));
    'packets: for at in turns {
        for ((text, routes), mutations) in files.iter().zip(&all) {
            let Some(mutated) = mutations.get(at) else { continue };
            let differences = form.differences(text, &mutated.text);
            let Some(flow) = differences.iter().find_map(|one| flow(form, one)) else { continue };
            for (rules, claim) in [text, &mutated.text].into_iter().zip(flow.claimed) {
                confirm(form, (&mutated.what, routes, rules), &flow, claim);
            }
            confirmed += 1;
            if confirmed == most {
                break 'packets;
            }
        }
    }
    eprintln!("{confirmed} packets that differ, sent with both rule sets");
    assert!(confirmed >= most.min(PACKETS), "{confirmed} packets");
}
