//! Chains behind all others that note where one packet goes and which marks it has.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use netlab::Namespace;
use netlab::process::run;
use serde_json::Value;

/// How long a packet may take to the end of its way.
const LIMIT: Duration = Duration::from_millis(400);

/// What the kernel did with it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Seen {
    pub(super) place: Place,
    pub(super) mark: u32,
    pub(super) connmark: u32,
    pub(super) port: u16,
}

/// Where its way through the hooks ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Pod,
    /// In the pod, for a socket that TPROXY may have assigned.
    TransparentSocket,
    Outside,
}

/// The table of these chains for the packets that `packet` matches, and of `more` chains.
pub(super) fn table(packet: &str, more: &str) -> String {
    let key = "meta mark . ct mark . th dport";
    let set = |name: &str| format!("set {name} {{ typeof {key}; size 64; flags dynamic; }}\n");
    format!(
        "table inet observer {{\n{}{}{}{more}\
         chain delivered {{ type filter hook input priority 400;\n\
         {packet} socket transparent 1 update @transparent {{ {key} }} accept\n\
         {packet} update @delivered {{ {key} }}; }}\n\
         chain leaving {{ type filter hook postrouting priority 400;\n\
         oifname != \"lo\" {packet} update @left {{ {key} }}; }}\n}}\n",
        set("transparent"),
        set("delivered"),
        set("left"),
    )
}

/// What the chains noted.
pub(super) fn seen(pod: &Namespace) -> BTreeSet<Seen> {
    let end = Instant::now() + LIMIT;
    loop {
        let listed = pod.run(|| run("nft", &["-j", "list", "sets", "table", "inet", "observer"]));
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        let sets = listed["nftables"].as_array().expect("a list").iter().filter_map(|item| item.get("set"));
        let seen: BTreeSet<Seen> = sets.flat_map(of_set).collect();
        if !seen.is_empty() || Instant::now() > end {
            return seen;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn of_set(set: &Value) -> Vec<Seen> {
    let place = match set["name"].as_str() {
        Some("transparent") => Place::TransparentSocket,
        Some("delivered") => Place::Pod,
        _ => Place::Outside,
    };
    let elements = set["elem"].as_array().into_iter().flatten();
    let number = |element: &Value, at: usize| {
        u32::try_from(element["concat"][at].as_u64().unwrap_or_else(|| panic!("{element}"))).expect("32 bits")
    };
    let seen = |element: &Value| Seen {
        place,
        mark: number(element, 0),
        connmark: number(element, 1),
        port: u16::try_from(number(element, 2)).expect("a port"),
    };
    elements.map(seen).collect()
}
