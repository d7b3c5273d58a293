//! `explain --live` of IPv4 packets that the kernel drops because of their addresses: whether it replies to
//! them, by a counter.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::thread;
use std::time::{Duration, Instant};

use crate::explain_live::{Question, report};
use crate::lab::program::tool;
use crate::lab::segment::send_syn;
use crate::lab::{Family, Fixture, Pod, for_each_backend_and_native};

for_each_backend_and_native!(packets_with_invalid_addresses_are_dropped);

/// Ports of clients, one for each packet, and that of the marker behind it.
const PORTS: u16 = 5000;
const MARKERS: u16 = 6000;
/// How long the kernel may take to reply to the marker, which it always does.
const LIMIT: Duration = Duration::from_secs(60);

/// Settings of `eth0`, source, destination, and whether the packet is dropped with REDIRECT and with TPROXY.
/// 8080 is captured, 7000 is not.
const PACKETS: [(&str, &str, &str, [bool; 2]); 19] = [
    ("", "10.1.0.1", "10.1.0.2:8080", [false, false]),
    ("", "10.66.0.9", "10.1.0.2:8080", [true, true]),
    ("", "10.66.0.9", "10.1.0.2:7000", [true, true]),
    ("accept_local", "10.66.0.9", "10.1.0.2:7000", [false, false]),
    ("", "10.1.0.2", "10.1.0.2:8080", [true, true]),
    ("", "127.0.0.1", "10.1.0.2:8080", [true, true]),
    ("route_localnet", "127.0.0.1", "10.1.0.2:7000", [true, true]),
    ("route_localnet accept_local", "127.0.0.1", "10.1.0.2:7000", [false, false]),
    ("", "0.0.0.5", "10.1.0.2:8080", [false, false]),
    ("", "224.0.0.5", "10.1.0.2:8080", [true, true]),
    ("", "255.255.255.255", "10.1.0.2:8080", [true, true]),
    // Without policy rules the kernel looks for own addresses only.
    ("", "10.1.0.255", "10.1.0.2:8080", [false, true]),
    ("", "10.1.0.1", "127.0.0.1:7000", [true, true]),
    ("route_localnet", "10.1.0.1", "127.0.0.1:7000", [false, false]),
    ("", "10.1.0.1", "127.0.0.1:8080", [false, true]),
    ("", "10.1.0.1", "0.0.0.0:7000", [true, true]),
    ("", "10.1.0.1", "224.0.0.1:7000", [true, true]),
    ("", "10.1.0.1", "255.255.255.255:7000", [true, true]),
    ("", "10.1.0.1", "10.1.0.255:7000", [true, true]),
];

/// Destinations that REDIRECT replaces.
const WITH_TPROXY: [&str; 4] = ["0.0.0.0:8080", "224.0.0.1:8080", "255.255.255.255:8080", "10.1.0.255:8080"];

fn packets_with_invalid_addresses_are_dropped(fixture: Fixture) {
    for (is_tproxy, mode) in ["REDIRECT", "TPROXY"].into_iter().enumerate() {
        let pod = fixture.pod();
        let _servers = (pod.proxy_listens(), pod.app_listens(&[7000, 8080]));
        pod.apply(&["-b", "*", "-d", "7000", "-m", mode]);
        pod.ip("addr add 10.66.0.9/32 dev lo");
        set(&pod, "all.rp_filter", 0);
        set(&pod, "eth0.rp_filter", 0);
        let packets =
            PACKETS.map(|(settings, from, to, is_dropped)| (settings, from, to, is_dropped[is_tproxy]));
        let others = WITH_TPROXY.map(|to| ("", "10.1.0.1", to, true));
        let others = others.iter().filter(|_| mode == "TPROXY");
        for (number, (settings, from, to, is_dropped)) in (0..).zip(packets.iter().chain(others)) {
            settings.split_whitespace().for_each(|name| set(&pod, &format!("eth0.{name}"), 1));
            let (from, to) = (from.parse().expect("an address"), to.parse().expect("an address"));
            let packet = format!("{mode} {settings} {from} to {to}");
            assert_eq!(gets_reply(&pod, number, from, to), !is_dropped, "{packet}");
            let question = Question { from: "outside", to: to.into(), is_udp: false };
            let explained = report(&pod, &["--in", "eth0", "--src", &from.to_string()], &question);
            assert_eq!(explained["verdict"] == "dropped", *is_dropped, "{packet}: {explained:#}");
            let because = explained["because"].as_str().unwrap_or_default();
            assert_eq!(because.contains("the kernel "), *is_dropped, "{packet}: {because}");
            assert!(!because.contains("by then it is for port"), "{packet}: {because}");
            settings.split_whitespace().for_each(|name| set(&pod, &format!("eth0.{name}"), 0));
        }
    }
}

fn set(pod: &Pod, name: &str, value: u8) {
    let path = format!("/proc/sys/net/ipv4/conf/{}", name.replace('.', "/"));
    pod.namespace.run(|| std::fs::write(&path, value.to_string()).expect("a setting"));
}

/// Whether the pod replies to a SYN. One behind it gets a reply in any case.
fn gets_reply(pod: &Pod, number: u16, from: Ipv4Addr, to: SocketAddrV4) -> bool {
    let (port, marker) = (PORTS + number, MARKERS + number);
    let count = |port| format!("tcp flags & (syn | ack) == syn | ack tcp dport {port} counter; ");
    let table = format!(
        "table inet replies {{ }}; delete table inet replies; table inet replies {{ chain out {{ type filter hook output priority 300; {}{} }}; }}",
        count(port),
        count(marker)
    );
    pod.namespace.run(|| tool("nft", &["-f", "-"], &table));
    let std::net::IpAddr::V4(own) = Family::V4.pod() else { unreachable!("an IPv4 address") };
    pod.outside().namespace().run(|| {
        netlab::socket::pin_to_current_cpu().expect("one processor");
        let client = Ipv4Addr::new(10, 1, 0, 1);
        send_syn(SocketAddrV4::new(from, port), to, own).expect("send a raw packet");
        send_syn(SocketAddrV4::new(client, marker), SocketAddrV4::new(own, 7000), own)
            .expect("send a raw packet");
    });
    let end = Instant::now() + LIMIT;
    loop {
        let listed = pod.namespace.run(|| tool("nft", &["list", "table", "inet", "replies"], ""));
        let is_counted = |port: u16| {
            let rule = listed.lines().find(|line| line.contains(&format!("dport {port} ")));
            !rule.expect("a rule").contains("packets 0 ")
        };
        if is_counted(marker) {
            return is_counted(port);
        }
        assert!(Instant::now() < end, "the marker got no reply");
        thread::sleep(Duration::from_millis(5));
    }
}
