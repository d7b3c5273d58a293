//! `rules/*/packets.json`: packets with what happens to them, checked against `explain` and against the
//! kernel.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use istio_iptables::cli::{self, Outcome as Parsed};
use istio_iptables::config::{self, CaptureConfig};
use istio_iptables::explain::{self, Pod};
use netlab::process::{run, run_with_input};
use netlab::{Listen, Namespace, Outcome, User};
use serde_json::Value;

use super::scenario::{self, Scenario};

/// Ports of the proxy, those with transparent sockets last.
const PROXY_PORTS: [u16; 3] = [15001, 15008, 15053];
const INBOUND: u16 = 15006;

/// A packet of the file.
struct Packet {
    from: String,
    to: SocketAddr,
    /// The port of the proxy; `None` if it is not captured.
    port: Option<u64>,
}

fn packets(scenario: &Scenario) -> Vec<Packet> {
    let path = scenario::root().join(&scenario.name).join("packets.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let list: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let packet = |value: &Value| {
        let word =
            |key: &str| value[key].as_str().unwrap_or_else(|| panic!("{}: {key}: {value}", path.display()));
        let port = value.get("captured").unwrap_or(&Value::Null);
        assert!(port.is_u64() || port == false, "{}: captured is a port or false: {value}", path.display());
        Packet {
            from: word("from").to_owned(),
            to: word("to").parse().expect("an address"),
            port: port.as_u64(),
        }
    };
    list.as_array().expect("a list of packets").iter().map(packet).collect()
}

/// The port that `explain` names.
fn explained(scenario: &Scenario, packet: &Packet) -> (Option<u64>, CaptureConfig) {
    let to = packet.to.to_string();
    let question = ["explain", "--from", &packet.from, "--to", &to, "--output", "json"];
    let args = ["istio-iptables"].into_iter().chain(question).chain(scenario.arguments());
    let env = scenario.variables().map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let no_file = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let parsed = cli::parse(args.map(OsString::from), env, &mut io::empty(), &no_file);
    let Ok(Parsed::Run(raw)) = parsed else { panic!("{}: {parsed:?}", scenario.name) };
    let resolved = config::resolve(&raw, scenario.files()).expect("valid options");
    let query = resolved.query.expect("a question");
    let (config, _) = resolved.intent.decide(scenario.network());
    let pod = Pod { config: &config, given: &resolved.given, network: scenario.network(), live: None };
    let report: Value = serde_json::from_str(&explain::report(&query, &pod).text).expect("JSON");
    (report.get("port").and_then(Value::as_u64), config)
}

/// A pod with the scenario's addresses and rules, and a neighbour that has every other address of IPv4, and
/// those of IPv6 in the files.
fn pod(scenario: &Scenario) -> (Namespace, Namespace) {
    let [pod, neighbour] = [(); 2].map(|()| Namespace::with_loopback());
    for namespace in [&pod, &neighbour] {
        namespace.run(|| {
            // Servers have an IPv4 and an IPv6 socket on the same port; addresses are used at once.
            for (setting, value) in [("bindv6only", "1"), ("conf/default/accept_dad", "0")] {
                fs::write(format!("/proc/sys/net/ipv6/{setting}"), value)
                    .expect("a setting of the namespace");
            }
        });
    }
    let mut interfaces: Vec<&str> =
        scenario.network().addresses.iter().map(|address| address.interface.as_str()).collect();
    interfaces.dedup();
    for (number, interface) in interfaces.iter().enumerate() {
        pod.connect(interface, &neighbour, &format!("c{number}"));
    }
    for address in &scenario.network().addresses {
        let (own, name) = (address.address, &address.interface);
        let number = interfaces.iter().position(|interface| interface == name).expect("the interface");
        let bits = if own.is_ipv4() { 32 } else { 128 };
        pod.add_address(own, bits, name);
        neighbour.ip(&format!("route add {own}/{bits} dev c{number}"));
    }
    neighbour.ip("address add 169.254.1.1/32 dev c0\naddress add fe80::1/64 dev c0 nodad");
    // In IPv6 the table `local` is asked before the routes to the pod: it gets no default.
    neighbour.ip(
        "route add local 0.0.0.0/0 dev lo\nroute add local fd00:10:96::/112 dev lo\nroute add local 2001:db8:9::/48 dev lo",
    );
    let first = interfaces.first().expect("an interface");
    pod.ip(&format!("route add default via 169.254.1.1 dev {first} onlink"));
    pod.ip(&format!("route add default via fe80::1 dev {first}"));
    pod.run(|| {
        let folder = scenario::root().join(&scenario.name);
        for (tool, file) in [("iptables", "iptables.rules"), ("ip6tables", "ip6tables.rules")] {
            if let Ok(rules) = fs::read_to_string(folder.join(file)) {
                run_with_input(&format!("{tool}-nft-restore"), &["--noflush"], &rules);
            }
        }
        if let Ok(routes) = fs::read_to_string(folder.join("routing.sh")) {
            run("sh", &["-e", "-c", &routes.replace("/128 dev lo proto 150", "/128 dev lo")]);
        }
    });
    [&pod, &neighbour].into_iter().for_each(Namespace::await_ipv6_addresses);
    (pod, neighbour)
}

fn sender(packet: &Packet, config: &CaptureConfig, (pod, neighbour): &(Namespace, Namespace)) -> User {
    const APP: u32 = 1000;
    let first = |ids: &[u32]| ids.first().copied().unwrap_or_default();
    let number = |id: &str| id.parse().expect("a number");
    match packet.from.split_once(':') {
        Some(("uid", id)) => User::new(pod, number(id), number(id)),
        Some(("gid", id)) => User::new(pod, APP, number(id)),
        _ if packet.from == "outside" => User::new(neighbour, 0, 0),
        _ if packet.from == "proxy" => {
            User::new(pod, first(&config.traffic.proxy.uids), first(&config.traffic.proxy.gids))
        }
        _ => User::new(pod, APP, APP),
    }
}

#[test]
fn packets_of_each_scenario_are_explained_as_the_kernel_decides() {
    let (mut captured, mut others, mut wrong) = (0, 0, Vec::new());
    for scenario in scenario::all() {
        let packets = packets(&scenario);
        assert!(packets.len() >= 3, "{}: {} packets", scenario.name, packets.len());
        let namespaces = pod(&scenario);
        let (proxy, app) = (User::new(&namespaces.0, 1337, 1337), User::new(&namespaces.0, 1000, 1000));
        let own: Vec<_> = scenario.network().addresses.iter().map(|own| own.address).collect();
        let listen = PROXY_PORTS.map(Listen::Tcp).into_iter().chain([Listen::TcpTransparent(INBOUND)]);
        let listen: Vec<Listen> = listen.collect();
        let mut ports: Vec<u16> = packets.iter().map(|packet| packet.to.port()).collect();
        ports.sort_unstable();
        ports.dedup();
        let is_own = |port: &u16| {
            let mut to = packets.iter().map(|packet| packet.to).filter(|to| to.port() == *port);
            to.any(|to| own.contains(&to.ip()) || to.ip().is_loopback()) && !PROXY_PORTS.contains(port)
        };
        let of_app: Vec<Listen> = ports.iter().copied().filter(is_own).map(Listen::Tcp).collect();
        let outside: Vec<Listen> = ports.iter().copied().map(Listen::Tcp).collect();
        let _servers = (
            proxy.serve("proxy", &listen),
            app.serve("app", &of_app),
            User::new(&namespaces.1, 0, 0).serve("outside", &outside),
        );
        for packet in &packets {
            let (explained, config) = explained(&scenario, packet);
            let outcome = sender(packet, &config, &namespaces).call(packet.to);
            let found = match &outcome {
                Outcome::Responded(response)
                    if response.server == "proxy" && packet.to.port() != response.port =>
                {
                    Some(u64::from(response.port))
                }
                Outcome::Responded(_) => None,
                Outcome::Refused | Outcome::TimedOut | Outcome::Failed(_) => Some(0),
            };
            if explained != packet.port || found != packet.port {
                wrong.push(format!(
                    "{}: {} to {}: the file says {:?}, explain {explained:?}, the kernel {outcome:?}",
                    scenario.name, packet.from, packet.to, packet.port
                ));
            }
            *if packet.port.is_some() { &mut captured } else { &mut others } += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(captured > 50 && others > 50, "captured and not captured: {captured}, {others}");
}
