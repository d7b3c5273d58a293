//! A rule of a scenario is dropped, swapped or changed: the kernel treats the packet that `diff` names as it says, with the rules as
//! they were and with the changed ones.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use istio_iptables::compare::{self, Side};
use istio_iptables::config::Output;
use istio_iptables::model::{Family, InterfaceAddress, Network};
use istio_iptables::parse;
use netlab::process::run_with_input;
use netlab::socket::Binding;
use netlab::user::{ask_here, call_here};
use netlab::{Listen, Namespace, Outcome, User};
use serde_json::Value;

use super::mutation::{self, Mutated};
use super::scenario;

/// Packets that are sent; `MUTATIONS` gives another number.
const PACKETS: usize = 16;
/// Scenarios that redirect: a packet of TPROXY would need its routes too.
const SCENARIOS: [&str; 6] =
    ["plain-sidecar", "excludes", "dns", "owner-groups", "outbound-include", "several-uids"];
const POD: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 7);
/// Where the proxy listens.
const PROXY: [u16; 3] = [15001, 15006, 15053];

fn side(name: &str, text: &str) -> Side {
    let texts = compare::by_family(text, Family::V4).expect("a rules file");
    let text = texts.get(&Family::V4).expect("IPv4 rules");
    Side::new(name.to_owned()).saved(&parse::iptables_save(Family::V4, text))
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

fn flow(difference: &Value) -> Option<Flow> {
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
        && [Some(6), Some(17)].contains(&number("protocol"))
        && packet["opens"].as_bool() == Some(number("protocol") == Some(6))
        && !PROXY.contains(&destination.port())
        && claimed[0] != claimed[1]
        && (!is_inbound || destination.ip() == IpAddr::V4(POD))
        && (path != "within-pod" || destination.ip() == IpAddr::V4(POD) || destination.ip().is_loopback());
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

/// Who answers, on which port, with these rules.
fn sent(rules: &str, flow: &Flow) -> Option<(String, u16)> {
    let [pod, neighbour] = [(); 2].map(|()| Namespace::with_loopback());
    pod.connect("eth0", &neighbour, "c0");
    neighbour.ip("address add 10.244.1.1/24 dev c0");
    // Every address is the neighbour's but that of the pod.
    neighbour.ip("route add 10.244.1.7/32 dev c0 table local\nroute add local 0.0.0.0/0 dev lo table local");
    pod.ip("address add 10.244.1.7/24 dev eth0\nroute add default via 10.244.1.1");
    pod.run(|| run_with_input("iptables-nft-restore", &["--noflush"], rules));
    let loopback = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let mut proxy: Vec<Listen> = PROXY.map(Listen::Tcp).to_vec();
    proxy.extend(PROXY.map(|port| Listen::Udp(loopback(port))));
    let _proxy = User::new(&pod, 1337, 1337).serve("proxy", &proxy);
    let own = [Listen::Udp(flow.destination)];
    let own = if flow.is_udp { own } else { [Listen::Tcp(flow.destination.port())] };
    let (server, client) = if flow.is_local { (&pod, "app") } else { (&neighbour, "outside") };
    let _server = User::new(server, 1000, 1000).serve(client, &own);
    let from = if flow.is_inbound { &neighbour } else { &pod };
    let mut source = flow.source;
    // Any client port: that of the packet is one of many.
    if source.port() == 50000 {
        source.set_port(0);
    }
    let binding = Binding { source: Some(source), ..Binding::default() };
    let outcome = User::new(from, flow.uid, flow.gid).run(|| {
        if flow.is_udp { ask_here(flow.destination, binding) } else { call_here(flow.destination, binding) }
    });
    match outcome {
        Outcome::Answered(answer) => Some((answer.server, answer.port)),
        Outcome::Refused => None,
        Outcome::TimedOut | Outcome::Failed(_) => panic!("{}: {outcome:?} with\n{rules}", flow.words),
    }
}

/// Whether the kernel does with the packet what is claimed.
fn confirm(what: &str, rules: &str, flow: &Flow, claim: Claim) {
    let found = sent(rules, flow);
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
    let most = std::env::var("MUTATIONS").ok().filter(|text| !text.is_empty());
    let most: usize = most.map_or(PACKETS, |text| text.parse().expect("MUTATIONS is a number"));
    let address = |interface: &str, address: Ipv4Addr, prefix| InterfaceAddress {
        interface: interface.to_owned(),
        address: address.into(),
        prefix,
    };
    let network = Network {
        addresses: vec![address("lo", Ipv4Addr::LOCALHOST, 8), address("eth0", POD, 24)],
        ipv6: true,
    };
    let mut confirmed = 0;
    let files = SCENARIOS
        .map(|name| fs::read_to_string(scenario::root().join(name).join("iptables.rules")).expect(name));
    let all: Vec<Vec<Mutated>> = files.iter().map(|text| mutation::all(text)).collect();
    // One of each scenario in turn, spread over its mutations.
    let longest = all.iter().map(Vec::len).max().unwrap_or_default();
    let step = (longest * SCENARIOS.len() / (4 * most.max(1))).clamp(1, 7);
    let turns = (0..longest).step_by(step).chain((0..longest).filter(|at| at % step != 0));
    'packets: for at in turns {
        for (text, mutations) in files.iter().zip(&all) {
            let Some(mutated) = mutations.get(at) else { continue };
            let sides = [side("original", text), side("mutated", &mutated.text)];
            let (answer, _) = compare::answer(&sides, &network, Output::Json);
            let answer: Value = serde_json::from_str(&answer).expect("JSON");
            let found =
                answer["differences"].as_array().and_then(|differences| differences.iter().find_map(flow));
            let Some(flow) = found else { continue };
            confirm(&mutated.what, text, &flow, flow.claimed[0]);
            confirm(&mutated.what, &mutated.text, &flow, flow.claimed[1]);
            confirmed += 1;
            if confirmed == most {
                break 'packets;
            }
        }
    }
    eprintln!("{confirmed} packets that differ, sent with both rule sets");
    assert!(confirmed >= most.min(60), "{confirmed} packets");
}
