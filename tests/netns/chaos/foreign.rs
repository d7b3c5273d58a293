//! Foreign rules, routes and addresses: a node agent adds and removes rules while runs are at work.
//!
//! None of them matches a packet of any flow, so that every counter must stay what it was.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::random::Random;
use crate::lab::program::{tool, try_tool};
use crate::lab::{Backend, Family, Pod};

/// Counters that foreign rules begin with.
const COUNTERS: [&str; 3] = ["-c", "7", "777"];
const BACKENDS: [Backend; 2] = [Backend::IptablesNft, Backend::IptablesLegacy];
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
/// Where rules begin with counters of zero.
const NO_COUNTERS: (Backend, Family) = (Backend::IptablesNft, Family::V6);
/// How many rules there are at most.
const MOST: usize = 30;
/// Time between two changes of the node agent.
const PAUSE: Duration = Duration::from_millis(60);
/// How often a tool is tried: another writer in the same moment makes it fail.
const TRIES: usize = 50;

/// Which rules, routes and addresses there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shapes {
    /// Rules that differ from the program's in a match.
    Distinct,
    /// Rules of the program's own shapes as well, its route and its address.
    All,
}

/// A foreign rule.
#[derive(Clone, Debug)]
struct Rule {
    backend: Backend,
    family: Family,
    table: &'static str,
    chain: &'static str,
    spec: Vec<String>,
    /// What distinguishes it from every other rule.
    token: String,
    /// Whether the rule may be one of ours: the counters tell them apart, and it is never removed.
    is_identical: bool,
    /// The line of the rule in a dump, once seen.
    line: Option<String>,
    added: Instant,
}

/// Something that is not as the node agent left it.
#[derive(Debug)]
pub(super) struct Difference {
    /// What it is, for people.
    pub(super) text: String,
    /// A rule that is gone, if iptables-nft held it and it may be identical to one of ours.
    pub(super) identical: Option<IdenticalRule>,
}

impl Difference {
    const fn of(text: String) -> Self {
        Self { text, identical: None }
    }
}

/// A foreign rule that may be identical to one of ours.
#[derive(Debug)]
pub(super) struct IdenticalRule {
    pub(super) added: Instant,
    /// How a dump ends that names one like it.
    pub(super) words: String,
}

impl Rule {
    fn is(&self, line: &str) -> bool {
        line.contains(&self.token) && (!self.is_identical || line.starts_with(self.counters()))
    }

    fn identical(&self) -> Option<IdenticalRule> {
        let words = format!("-A {} {}", self.chain, self.spec.join(" "));
        (self.is_identical && self.backend == Backend::IptablesNft)
            .then_some(IdenticalRule { added: self.added, words })
    }

    /// `ip6tables-nft` ignores `-c`.
    fn counters(&self) -> &'static str {
        if (self.backend, self.family) == NO_COUNTERS { "[0:0] " } else { "[7:777] " }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tool = self.backend.tool(self.family, "");
        write!(f, "{tool} -t {} {} {:?}", self.table, self.chain, self.spec)
    }
}

/// The node agent of one pod.
#[derive(Debug)]
pub(super) struct Agent {
    shapes: Shapes,
    random: Mutex<Random>,
    /// In the order in which they are in their chains.
    rules: Mutex<Vec<Rule>>,
    network: Vec<String>,
    number: Mutex<usize>,
    pub(super) stop: AtomicBool,
}

impl Agent {
    /// Adds what there is before the first run.
    pub(super) fn new(pod: &Pod, mut random: Random, shapes: Shapes) -> Self {
        pod.namespace.run(|| {
            let mut lines = vec![
                "-4 rule add fwmark 0x77 lookup 77 priority 700",
                "-6 rule add fwmark 0x77 lookup 77 priority 700",
                "-4 route add local default dev lo table 77",
                "-6 route add local default dev lo table 77",
                "-4 address add 10.88.0.1/32 dev lo",
            ];
            if shapes == Shapes::All && random.chance(30) {
                lines.push("-6 address add ::6/128 dev lo nodad");
            }
            if shapes == Shapes::All && random.chance(30) {
                lines.push("-4 route add local default dev lo table 133");
            }
            for line in lines {
                tool("ip", &line.split_whitespace().collect::<Vec<_>>(), "");
            }
            tool("nft", &["-f", "-"], TABLE);
        });
        pod.namespace.await_ipv6_addresses();
        let agent = Self {
            shapes,
            random: Mutex::new(random),
            rules: Mutex::default(),
            network: network(pod),
            number: Mutex::new(0),
            stop: AtomicBool::new(false),
        };
        pod.namespace.run(|| (0..4).for_each(|_| agent.act()));
        agent
    }

    /// Adds and removes rules until it is stopped.
    pub(super) fn act_in_a_loop(&self, pod: &Pod) {
        pod.namespace.enter();
        while !self.stop.load(Ordering::Relaxed) {
            self.act();
            thread::sleep(PAUSE);
        }
    }

    /// How many changes it has made.
    pub(super) fn changes(&self) -> usize {
        *self.number.lock().unwrap()
    }

    fn act(&self) {
        let mut rules = self.rules.lock().unwrap();
        let mut random = self.random.lock().unwrap();
        let mut number = self.number.lock().unwrap();
        *number += 1;
        if random.chance(20) {
            tool("nft", &["-f", "-"], PASSING);
        }
        let removable: Vec<_> = (0..rules.len()).filter(|&i| !rules[i].is_identical).collect();
        if rules.len() >= MOST || (!removable.is_empty() && random.chance(40)) {
            if removable.is_empty() {
                return;
            }
            let rule = rules.remove(random.pick(&removable));
            run(&rule, "-D", &[]);
            return;
        }
        let rule = rule(&mut random, *number, self.shapes);
        let first = random.chance(50);
        run(&rule, if first { "-I" } else { "-A" }, &COUNTERS);
        let place = if first { 0 } else { rules.len() };
        rules.insert(place, rule);
    }

    /// What is not as the node agent left it. With `nothing_else`, rules that are not its own count as well.
    pub(super) fn differences(&self, pod: &Pod, nothing_else: bool) -> Vec<Difference> {
        let mut rules = self.rules.lock().unwrap();
        let mut differences = Vec::new();
        for backend in BACKENDS {
            for family in FAMILIES {
                let saved = pod.namespace.run(|| tool(&backend.tool(family, "-save"), &["-c"], ""));
                let mut mine: Vec<_> = rules
                    .iter_mut()
                    .filter(|rule| (rule.backend, rule.family) == (backend, family))
                    .collect();
                compare(&saved, &mut mine, nothing_else, &mut differences);
            }
        }
        let now = network(pod);
        let gone = self.network.iter().filter(|line| !now.contains(line)).map(|l| format!("gone: {l}"));
        differences.extend(gone.map(Difference::of));
        if nothing_else {
            let left = now.iter().filter(|l| !self.network.contains(l)).map(|l| format!("left: {l}"));
            differences.extend(left.map(Difference::of));
        }
        // What has been reported once is not reported again.
        rules.retain(|rule| rule.line.is_some());
        differences
    }
}

/// Compares one dump with the rules that must be in it; what is gone loses its line.
fn compare(saved: &str, mine: &mut [&mut Rule], nothing_else: bool, differences: &mut Vec<Difference>) {
    let mut table = "";
    let mut found: Vec<usize> = Vec::new();
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        }
        let Some((_, rule)) = line.strip_prefix('[').and_then(|rest| rest.split_once(" -A ")) else {
            if nothing_else && line.starts_with(':') && line.contains(" - ") {
                differences.push(Difference::of(format!("left: {table} {line}")));
            }
            continue;
        };
        let chain = rule.split(' ').next().unwrap();
        let this = mine.iter().enumerate().position(|(i, known)| {
            (known.table, known.chain) == (table, chain) && known.is(line) && !found.contains(&i)
        });
        let Some(this) = this else {
            if nothing_else {
                differences.push(Difference::of(format!("left: {table} {line}")));
            }
            continue;
        };
        let same_chain = |i: &&usize| (mine[**i].table, mine[**i].chain) == (table, chain);
        if found.iter().filter(same_chain).any(|&earlier| earlier > this) {
            differences.push(Difference::of(format!("in another order: {}", mine[this])));
        }
        found.push(this);
        let counters = mine[this].counters();
        let expected = mine[this].line.get_or_insert_with(|| line.to_owned());
        if expected != line || !line.starts_with(counters) {
            differences.push(Difference::of(format!("was {expected}, is {line}")));
            line.clone_into(expected);
        }
    }
    for (_, gone) in mine.iter_mut().enumerate().filter(|(i, _)| !found.contains(i)) {
        differences.push(Difference { text: format!("gone: {gone}"), identical: gone.identical() });
        gone.line = None;
    }
}

/// Changes one rule where the calling thread is.
fn run(rule: &Rule, how: &str, counters: &[&str]) {
    let name = rule.backend.tool(rule.family, "");
    let args: Vec<_> = ["-w", "-t", rule.table, how, rule.chain]
        .into_iter()
        .chain(rule.spec.iter().map(String::as_str))
        .chain(counters.iter().copied())
        .collect();
    let mut error = String::new();
    for _ in 0..TRIES {
        match try_tool(&name, &args, "") {
            Ok(_) => return,
            Err(text) => error = text,
        }
        thread::sleep(Duration::from_millis(20));
    }
    // A rule that is gone already is reported when the rules are compared.
    assert_eq!(how, "-D", "the node agent cannot add a rule: {error}");
}

/// A rule of some shape, most of them shapes that the program makes too.
fn rule(random: &mut Random, number: usize, shapes: Shapes) -> Rule {
    let (backend, family) = (random.pick(&BACKENDS), random.pick(&FAMILIES));
    let address = match family {
        Family::V4 => format!("10.99.{}.{}/32", number / 250, number % 250 + 1),
        Family::V6 => format!("fd99::{number:x}/128"),
    };
    let nowhere = match family {
        Family::V4 => "10.9.9.9/32",
        Family::V6 => "fd98::9/128",
    };
    let shapes = match shapes {
        Shapes::Distinct => &SHAPES[ALIKE..],
        // Without counters an identical one could not be distinguished from one of ours.
        Shapes::All if (backend, family) == NO_COUNTERS => &SHAPES[IDENTICAL..],
        Shapes::All => &SHAPES[..],
    };
    let (table, chain, spec) = random.pick(shapes);
    let comment = format!("node agent {number}: keep -j ISTIO_OUTPUT");
    let user = (50_000 + number).to_string();
    let is_identical = !spec.contains("ADDRESS") && !spec.contains("COMMENT") && !spec.contains("USER");
    let token = if spec.contains("ADDRESS") {
        format!(" {address} ")
    } else if spec.contains("COMMENT") {
        comment.clone()
    } else if spec.contains("USER") {
        format!("-owner {user} ")
    } else {
        format!("{chain} {spec}")
    };
    let word = |word: &str| match word {
        "ADDRESS" => address.clone(),
        "NOWHERE" => nowhere.to_owned(),
        "COMMENT" => comment.clone(),
        "USER" => user.clone(),
        other => other.to_owned(),
    };
    let spec = spec.split(' ').map(word).collect();
    Rule { backend, family, table, chain, spec, token, is_identical, line: None, added: Instant::now() }
}

/// The first shapes are exactly those of the program.
const IDENTICAL: usize = 2;
/// So many differ from the program's in a comment or a user at most.
const ALIKE: usize = 5;
/// Table, chain and rule.
const SHAPES: [(&str, &str, &str); 17] = [
    ("nat", "OUTPUT", "-o net9 -j RETURN"),
    ("nat", "PREROUTING", "-i net9 -j RETURN"),
    ("nat", "PREROUTING", "-i eth7 -m comment --comment COMMENT -j RETURN"),
    ("nat", "OUTPUT", "-o net9 -m comment --comment COMMENT -j RETURN"),
    (
        "mangle",
        "OUTPUT",
        "! -d NOWHERE -o lo -p tcp -m owner --uid-owner USER -j MARK --set-xmark 0x53a/0xffffffff",
    ),
    ("nat", "PREROUTING", "-i vnet9 -s ADDRESS -j RETURN"),
    ("nat", "POSTROUTING", "-s ADDRESS -j MASQUERADE"),
    ("nat", "OUTPUT", "-d ADDRESS -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 15001"),
    ("nat", "PREROUTING", "-s ADDRESS -p tcp -j RETURN"),
    ("nat", "OUTPUT", "-d ADDRESS -p udp -m udp --dport 53 -j REDIRECT --to-ports 15053"),
    ("mangle", "PREROUTING", "-s ADDRESS -p tcp -m mark --mark 0x539 -j CONNMARK --save-mark"),
    ("mangle", "OUTPUT", "-d ADDRESS -p tcp -m connmark --mark 0x539 -j CONNMARK --restore-mark"),
    ("mangle", "PREROUTING", "-s ADDRESS -m conntrack --ctstate INVALID -j DROP"),
    ("raw", "OUTPUT", "-d ADDRESS -p udp -m udp --dport 53 -j CT --zone 2"),
    ("raw", "PREROUTING", "-s ADDRESS -p udp -m udp --sport 53 -j CT --zone 1"),
    ("filter", "OUTPUT", "-d ADDRESS -p tcp -j DROP"),
    ("filter", "INPUT", "-s ADDRESS -m conntrack --ctstate INVALID -j DROP"),
];

/// The node agent's own nftables table. Its chains run before the program's.
const TABLE: &str = "table inet node-agent {
    set peers { type ipv4_addr; flags interval; elements = { 10.99.0.0/16 }; }
    chain prerouting {
        type nat hook prerouting priority -105; policy accept;
        ip saddr @peers counter packets 7 bytes 777 accept
    }
    chain output {
        type nat hook output priority -105; policy accept;
        ip daddr @peers counter packets 7 bytes 777 accept
    }
}";
/// Another table that comes and goes in one transaction: every other transaction that is being prepared has
/// to begin again.
const PASSING: &str = "add table inet node-agent-passing\ndelete table inet node-agent-passing\n";

/// Policy rules, the routes of their tables, the addresses of `lo` and the nftables tables.
fn network(pod: &Pod) -> Vec<String> {
    let shown = [
        "-4 rule",
        "-6 rule",
        "-o -4 route show table all type local",
        "-o -6 route show table all type local",
    ];
    pod.namespace.run(|| {
        let mut lines = Vec::new();
        for args in shown {
            let text = tool("ip", &args.split(' ').collect::<Vec<_>>(), "");
            lines.extend(text.lines().map(|line| format!("ip {args}: {}", line.trim_end())));
        }
        let text = tool("ip", &["-o", "address", "show", "dev", "lo"], "");
        lines.extend(text.lines().map(|line| format!("ip address: {}", line.trim_end())));
        let tables = tool("nft", &["list", "tables", "inet"], "");
        lines.extend(tables.lines().map(|line| format!("nft: {line}")));
        lines.push(format!("nft: {}", tool("nft", &["list", "table", "inet", "node-agent"], "")));
        lines
    })
}
