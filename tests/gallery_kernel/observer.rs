//! Chains behind all others that note where one packet goes and which marks it has.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use netlab::Namespace;
use netlab::process::run;
use serde_json::Value;

/// How long a packet may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// The port of a datagram that the pod sends itself behind the packet.
const MARKER: u16 = 9;

/// What the kernel did with it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Observation {
    pub(super) delivery: Delivery,
    pub(super) mark: u32,
    pub(super) connmark: u32,
    pub(super) port: u16,
}

/// Where its way through the hooks ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Delivery {
    Pod,
    /// In the pod, for a socket that TPROXY may have assigned.
    TransparentSocket,
    Outside,
}

/// The table of these chains for the packets that `packet` matches, and of `more` chains.
pub(super) fn table(packet: &str, more: &str) -> String {
    let key = "meta mark . ct mark . th dport";
    let set = |name: &str| format!("set {name} {{ typeof {key}; size 64; flags dynamic; }}\n");
    let sets = ["transparent", "delivered", "left", "entered", "marker"].map(set).concat();
    format!(
        "table inet observer {{\n{sets}{more}\
         chain begun {{ type filter hook output priority -160; {packet} update @entered {{ {key} }}; }}\n\
         chain entered {{ type filter hook prerouting priority -160; {packet} update @entered {{ {key} }};\n\
         iifname \"lo\" udp sport {MARKER} udp dport {MARKER} update @marker {{ {key} }}; }}\n\
         chain delivered {{ type filter hook input priority 400;\n\
         {packet} socket transparent 1 update @transparent {{ {key} }} accept\n\
         {packet} update @delivered {{ {key} }}; }}\n\
         chain leaving {{ type filter hook postrouting priority 400;\n\
         oifname != \"lo\" {packet} update @left {{ {key} }}; }}\n}}\n",
    )
}

/// What the chains noted of a packet that has an end, or of one that is dropped on its way.
pub(super) fn observations(pod: &Namespace, is_dropped: bool) -> BTreeSet<Observation> {
    if is_dropped {
        wait_for(pod, "entered");
        // What is behind it on the same way has passed.
        pod.run(|| {
            for own in [SocketAddr::from((Ipv4Addr::LOCALHOST, MARKER)), (Ipv6Addr::LOCALHOST, MARKER).into()]
            {
                // A pod may be without one of the families.
                let _ = UdpSocket::bind(own).and_then(|socket| socket.send_to(b"marker", own));
            }
        });
        wait_for(pod, "marker");
        return ends(&listed(pod));
    }
    let end = Instant::now() + LIMIT;
    loop {
        let seen = ends(&listed(pod));
        if !seen.is_empty() || Instant::now() > end {
            return seen;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// The sets of the table.
fn listed(pod: &Namespace) -> Vec<Value> {
    let listed = pod.run(|| run("nft", &["-j", "list", "sets", "table", "inet", "observer"]));
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let sets = listed["nftables"].as_array().expect("a list").iter().filter_map(|item| item.get("set"));
    sets.cloned().collect()
}

fn wait_for(pod: &Namespace, name: &str) {
    let end = Instant::now() + LIMIT;
    let has_element = |set: &Value| set["name"] == name && set["elem"].as_array().is_some();
    while !listed(pod).iter().any(has_element) {
        assert!(Instant::now() < end, "no packet in the set {name}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn ends(sets: &[Value]) -> BTreeSet<Observation> {
    let is_end = |set: &&Value| !["entered", "marker"].map(Value::from).contains(&set["name"]);
    sets.iter().filter(is_end).flat_map(of_set).collect()
}

fn of_set(set: &Value) -> Vec<Observation> {
    let delivery = match set["name"].as_str() {
        Some("transparent") => Delivery::TransparentSocket,
        Some("delivered") => Delivery::Pod,
        _ => Delivery::Outside,
    };
    let elements = set["elem"].as_array().into_iter().flatten();
    let number = |element: &Value, at: usize| {
        u32::try_from(element["concat"][at].as_u64().unwrap_or_else(|| panic!("{element}"))).expect("32 bits")
    };
    let seen = |element: &Value| Observation {
        delivery,
        mark: number(element, 0),
        connmark: number(element, 1),
        port: u16::try_from(number(element, 2)).expect("a port"),
    };
    elements.map(seen).collect()
}
