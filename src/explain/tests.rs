//! Verdicts and reasons, by options and packet. `tests/netns/backend_agreement.rs` compares them with the
//! kernel's.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;

use super::*;
use crate::cli::{self, Outcome};
use crate::config::{self, Resolved};
use crate::facts::Files;
use crate::model::InterfaceAddress;

fn network() -> Network {
    let address = |interface: &str, address: &str, prefix| InterfaceAddress {
        interface: interface.to_owned(),
        address: address.parse::<IpAddr>().expect("an address"),
        prefix,
    };
    Network {
        addresses: vec![
            address("lo", "127.0.0.1", 8),
            address("eth0", "10.1.0.5", 24),
            address("lo", "::1", 128),
            address("eth0", "fd00:1::5", 64),
        ],
        ipv6: true,
    }
}

fn resolved(options: &str, question: &str) -> Resolved {
    let words = ["istio-iptables", "explain"].into_iter().chain(options.split_whitespace());
    let words = words.chain(question.split_whitespace()).map(OsString::from);
    let no_file = |_: &std::path::Path| Err(io::ErrorKind::NotFound.into());
    let Ok(Outcome::Run(raw)) = cli::parse(words, [], &mut io::empty(), &no_file) else {
        panic!("{options} {question} cannot be read")
    };
    let files = Files {
        passwd: String::new(),
        group: String::new(),
        resolv_conf: Ok("nameserver 10.96.0.10\n".to_owned()),
    };
    config::resolve(&raw, &files).expect("valid options")
}

/// The configuration that options ask for.
pub(super) fn config_of(options: &str) -> CaptureConfig {
    resolved(options, "").intent.decide(&network()).0
}

fn ask(options: &str, question: &str) -> String {
    let resolved = resolved(options, question);
    let (config, _) = resolved.intent.decide(&network());
    let (network, query) = (network(), resolved.query.expect("a question"));
    report(&query, &Pod { config: &config, given: &resolved.given, network: &network, live: None }).text
}

const ALL: &str = "-i * -b * -d 15020,15090 -x 10.96.0.0/12 -o 9000 -u 1337";

/// Options, question, beginning of the verdict, and a part of the reason.
const VERDICTS: &[(&str, &str, &str, &str)] = &[
    (ALL, "--to 8.8.8.8:443", "captured: goes to the proxy's outbound port 15001", "(-i '*')"),
    (ALL, "--to 10.96.1.2:80", "not captured", "outbound range is not captured (-x)"),
    (ALL, "--to 8.8.8.8:9000", "not captured", "outbound port is not captured (-o)"),
    (ALL, "--from proxy --to 8.8.8.8:443", "not captured", "the proxy's own traffic"),
    (ALL, "--from gid:1337 --to 8.8.8.8:443", "not captured", "the proxy's own traffic"),
    (ALL, "--from uid:7,gid:1337 --to 8.8.8.8:443", "not captured", "the proxy's own traffic"),
    (ALL, "--from uid:7,gid:8 --to 8.8.8.8:443", "captured", "(-i '*')"),
    (ALL, "--from proxy --to 10.1.0.5:80", "captured: goes to the proxy's inbound port 15006", "own service"),
    (ALL, "--to 127.0.0.1:80", "not captured", "over loopback"),
    (ALL, "--from outside --to 10.1.0.5:80", "captured: goes to the proxy's inbound port 15006", "(-b '*')"),
    (ALL, "--from outside --to 10.1.0.5:15020", "not captured", "(-d)"),
    (ALL, "--from outside --to 10.1.0.5:15008", "not captured", "HBONE"),
    (ALL, "--to 8.8.8.8:53 --proto udp", "not captured", "--redirect-dns captures"),
    (ALL, "--to 8.8.8.8:443 --proto udp", "not captured", "UDP is not captured"),
    (ALL, "--to [2001:db8::1]:443", "not captured", "IPv6 traffic is not captured in this pod"),
    ("-i 10.0.0.0/8", "--to 8.8.8.8:443", "not captured", "8.8.8.8 is in no captured outbound range"),
    ("-b 80", "--from outside --to 10.1.0.5:81", "not captured", "port 81 is not among"),
    ("-c eth0 -i *", "--to 8.8.8.8:443", "not captured", "excluded interface (-c)"),
    (
        "-i * --redirect-dns",
        "--to 10.96.0.10:53 --proto udp",
        "captured: goes to the proxy's DNS port 15053",
        "DNS",
    ),
    (
        "-b * -m TPROXY",
        "--from outside --to 10.1.0.5:80",
        "captured: goes to the proxy's inbound port 15006",
        "(-b '*')",
    ),
    (
        "-b * -m TPROXY",
        "--from outside --to 10.1.0.5:80 --state established",
        "captured: its mark",
        "mark routes",
    ),
    (
        "-b * -m TPROXY",
        "--to 9.9.9.9:80 --connmark 1337 --state established",
        "captured: its mark",
        "get its mark back",
    ),
    (
        "-k vnet0 -i * -b * -m TPROXY",
        "--from outside --in vnet0 --to 9.9.9.9:80",
        "captured: goes to the proxy's inbound port 15006",
        "(-b '*')",
    ),
    ("-b * --drop-invalid", "--from outside --to 10.1.0.5:80 --state invalid", "dropped", "(--drop-invalid)"),
    ("-b *", "--from outside --to 10.1.0.5:80 --state established", "as its connection", "first packet"),
];

#[test]
fn verdict_names_port_reason_and_option() {
    for (options, question, verdict, because) in VERDICTS {
        let report = ask(options, question);
        let mut lines = report.lines();
        let first = lines.next().unwrap_or_default();
        assert!(first.starts_with(verdict), "{options} {question}: {report}");
        // What is not captured says so with the reason.
        let is_captured = !first.starts_with("not captured") && !first.starts_with("dropped");
        let reason = if is_captured { lines.next().unwrap_or_default() } else { first };
        assert!(reason.contains(because), "{options} {question}: {report}");
        assert!(!is_captured || reason.starts_with("  because  "), "{options} {question}: {report}");
    }
}

#[test]
fn option_is_named_with_its_origin_and_annotation() {
    let report = ask("-b * -d 15020", "--from outside --to 10.1.0.5:15020");
    let option = "--istio-local-exclude-ports (-d) is 15020; pod annotation: traffic.sidecar.istio.io/excludeInboundPorts";
    assert!(report.contains(option), "{report}");
    let report = ask("-b *", "--to 9.9.9.9:80");
    assert!(report.contains("--istio-service-cidr (-i) is not given"), "{report}");
}

#[test]
fn report_about_options_points_to_the_live_rules() {
    for question in ["", "--to 10.0.0.1:80"] {
        let said = ask("-i * -b *", question);
        assert!(said.contains("note") && said.contains("--live follows those of this network"), "{said}");
    }
}

#[test]
fn long_lists_are_shortened() {
    let ranges: Vec<String> = (0..100).map(|third| format!("10.9.{third}.0/24")).collect();
    let report = ask(&format!("-i * -x {}", ranges.join(",")), "--to 8.8.8.8:443");
    assert!(report.contains("more rules that are not for this packet"), "{report}");
    assert!(report.lines().count() < 40, "{report}");
    let last = ask(&format!("-i * -x {}", ranges.join(",")), "--to 10.9.99.1:443");
    assert!(last.contains("rule     nat ISTIO_OUTPUT -d 10.9.99.0/24 -j RETURN"), "{last}");
}

#[test]
fn every_kind_of_traffic_is_listed() {
    let report = ask("-i * -b * -d 15020 -x 10.96.0.0/12 --redirect-dns", "");
    for row in [
        "client to the app, port 8080",
        "client to the app, port 15020",
        "app to the excluded range 10.96.0.0/12",
        "proxy to its own pod's address",
        "app to a name server, UDP",
        "app to a server, IPv6",
    ] {
        assert!(report.contains(row), "{row}: {report}");
    }
}

#[test]
fn table_has_rows_of_a_pod_whose_address_is_on_lo() {
    let mut network = network();
    network.addresses.retain(|own| own.interface == "lo");
    let added = [("10.1.0.5", 32), ("fd00:1::5", 128), ("::6", 128)].map(|(address, prefix)| {
        InterfaceAddress { interface: "lo".to_owned(), address: address.parse().expect("an address"), prefix }
    });
    network.addresses.extend(added);
    let (config, _) = resolved(&format!("{ALL} --dual-stack"), "").intent.decide(&network);
    let rows = overview::packets(&Pod { config: &config, given: &[], network: &network, live: None });
    for own in ["10.1.0.5:8080", "[fd00:1::5]:8080"] {
        let inbound = |packet: &Packet| packet.is_inbound && packet.destination.to_string() == own;
        let found = rows.iter().find(|(_, packet)| inbound(packet)).map(|(_, packet)| &packet.interface);
        assert_eq!(found.map(String::as_str), Some("eth0"), "{own}");
    }
}

#[test]
fn a_diagram_leads_from_the_packet_over_each_chain_to_the_verdict() {
    let mermaid = ask(ALL, "--to 10.96.0.1:443 --output mermaid");
    let packet = "TCP, first packet of a connection, from the app with uid 1000, gid 1000 (10.1.0.5:50000) to 10.96.0.1:443, leaving by eth0";
    let expected = format!(
        "flowchart TD\n  packet[\"{packet}\"]\n  c0[\"nat OUTPUT\"]\n  packet --> c0\n  c1[\"nat ISTIO_OUTPUT\"]\n  \
         c0 -->|\"-j ISTIO_OUTPUT\"| c1\n  verdict[\"not captured: this outbound range is not captured (-x)\"]\n  \
         c1 -->|\"-d 10.96.0.0/12 -j RETURN\"| verdict\n"
    );
    assert_eq!(mermaid, expected);
}
