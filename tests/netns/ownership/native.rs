//! Foreign tables beside native nftables, and foreign rules in its own tables: sequences of runs, kills and
//! foreign changes.
//!
//! The variables are those of [`super`].

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::{FORMS, OPTIONS, sequences};
use crate::chaos::random::Random;
use crate::lab::kill::When;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(native: Native Dual; [foreign_tables_survive_and_our_own_are_restored]);

/// The tables that are ours, in the family `inet`.
const OURS: [&str; 3] = ["istio-proxy-raw", "istio-proxy-mangle", "istio-proxy-nat"];

/// Names of foreign tables: ours in another family, those of iptables, and names that begin like ours.
const NAMES: [&str; 6] =
    ["istio-proxy-nat", "istio-proxy-mangle", "istio-proxy-raw", "istio-proxy", "istio-proxy-nat.2", "agent"];

/// Foreign base chains where ours are.
const BASES: [&str; 6] = [
    "type nat hook output priority -100;",
    "type nat hook prerouting priority -100;",
    "type filter hook prerouting priority -150;",
    "type route hook output priority -150;",
    "type filter hook output priority -300;",
    "type filter hook prerouting priority -300;",
];

/// Foreign rules of forms that ours have, with the comments of ours. No packet of an idle pod meets them.
const RULES: [&str; 6] = [
    "oifname \"net9\" counter packets 7 bytes 777 return",
    "iifname \"net9\" counter packets 7 bytes 777 return comment \"excluded-interface: -i net9\"",
    "meta l4proto tcp meta mark 0x539 counter packets 7 bytes 777 ct mark set mark comment \"save-mark\"",
    "meta skuid 1337 counter packets 7 bytes 777 return comment \"proxy-uid: the proxy's own\"",
    "tcp dport 15008 counter packets 7 bytes 777 return",
    "tcp dport 15006 ct state invalid counter packets 7 bytes 777",
];

/// A pod in which another program makes, changes and deletes tables.
struct ForeignTables {
    pod: Pod,
    /// Foreign tables in nft's words, with the family.
    tables: Vec<String>,
    /// How many were made.
    made: usize,
    steps: Vec<String>,
}

impl ForeignTables {
    fn nft(&self, commands: &str) -> String {
        self.pod.namespace.run(|| tool("nft", &["-f", "-"], commands))
    }

    /// Our tables, or all others with handles and counters, as nft lists them.
    fn listed(&self, ours: bool) -> String {
        let options = if ours { "-s" } else { "-a" };
        let listing = self.pod.namespace.run(|| tool("nft", &[options, "list", "ruleset"], ""));
        let is_ours =
            |table: &&str| OURS.iter().any(|name| table.starts_with(&format!("table inet {name} {{")));
        listing.split_inclusive("\n}\n").filter(|table| is_ours(table) == ours).collect()
    }

    /// Our tables with their parts, whose order says nothing.
    fn ours(&self) -> Vec<Vec<String>> {
        let ours = self.listed(true);
        let parts = |table: &str| {
            let mut parts: Vec<String> = table.split("\n\t}").map(|part| part.trim().to_owned()).collect();
            // The first one comes behind the name of the table.
            let name = parts[0].lines().next().unwrap_or_default().to_owned();
            parts[0] = parts[0].replacen(&name, "", 1).trim().to_owned();
            parts.sort();
            parts.insert(0, name);
            parts
        };
        let mut tables: Vec<_> = ours.split_inclusive("\n}\n").map(parts).collect();
        tables.sort();
        tables
    }

    /// Whatever belongs to other programs.
    fn foreign(&self) -> String {
        let legacy = [Family::V4, Family::V6].map(|family| {
            let save = Backend::IptablesLegacy.tool(family, "-save");
            let saved = self.pod.namespace.run(|| tool(&save, &["-c"], ""));
            // Without the counters of policies: any packet of the link counts.
            let lines = saved.lines().filter(|line| !line.starts_with('#'));
            let lines =
                lines.map(
                    |line| if line.starts_with(':') { line.split('[').next().unwrap_or(line) } else { line },
                );
            lines.collect::<Vec<_>>().join("\n")
        });
        self.listed(false) + &legacy.join("\n")
    }

    /// Policy rules, routes to this host, and the addresses of `lo`: whatever TPROXY and IPv6 need.
    fn routing(&self) -> Vec<String> {
        let ip =
            |words: &str| self.pod.namespace.run(|| tool("ip", &words.split(' ').collect::<Vec<_>>(), ""));
        let of = ["-4 rule", "-6 rule", "-4 route show table all dev lo", "-6 route show table all dev lo"];
        of.into_iter().chain(["address show lo"]).map(ip).collect()
    }

    /// Another program changes something that is its own.
    fn change(&mut self, random: &mut Random) {
        let step = match random.below(100) {
            0..20 if !self.tables.is_empty() => {
                let table = self.tables.remove(random.below(self.tables.len()));
                format!("delete table {table}")
            }
            20..45 => {
                let backend = [Backend::IptablesNft, Backend::IptablesLegacy][random.below(2)];
                let (table, chain, forms) = random.pick(&FORMS);
                let family = [Family::V4, Family::V6][random.below(2)];
                let form = random.pick(forms).replace("LO", &format!("{}", family.loopback()));
                let rule = format!("-t {table} -I {chain} {form} -c 7 777");
                let program = backend.tool(family, "");
                self.pod.namespace.run(|| tool(&program, &rule.split(' ').collect::<Vec<_>>(), ""));
                self.steps.push(format!("{program} {rule}"));
                return;
            }
            _ => {
                self.made += 1;
                let name = random.pick(&NAMES);
                let family = if OURS.contains(&name) { "ip" } else { random.pick(&["ip", "ip6", "inet"]) };
                let table = format!("{family} {name}");
                let rules = [random.pick(&RULES), random.pick(&RULES)].join("\n");
                let step = format!(
                    "table {table} {{ chain c{} {{ {}\n{rules}\n}}\n chain istio-output {{ }}\n }}",
                    self.made,
                    random.pick(&BASES)
                );
                if !self.tables.contains(&table) {
                    self.tables.push(table);
                }
                step
            }
        };
        self.nft(&step);
        self.steps.push(step);
    }

    /// Another program changes one of our tables.
    fn spoil(&mut self, random: &mut Random) {
        let ours = self.listed(true);
        let chains: Vec<(String, String)> = ours
            .split_inclusive("\n}\n")
            .flat_map(|table| {
                let name = table.split(' ').nth(2).unwrap_or_default().to_owned();
                let chains = table.lines().filter_map(|line| line.trim().strip_prefix("chain "));
                chains
                    .filter_map(|chain| chain.strip_suffix(" {"))
                    .map(move |chain| (name.clone(), chain.to_owned()))
                    .collect::<Vec<_>>()
            })
            .collect();
        if chains.is_empty() {
            return;
        }
        let (table, chain) = random.pick(&chains);
        let step = match random.below(6) {
            0 => format!("insert rule inet {table} {chain} {}", random.pick(&RULES)),
            1 => format!("add rule inet {table} {chain} {}", random.pick(&RULES)),
            2 => format!("flush chain inet {table} {chain}"),
            3 => format!("delete table inet {table}"),
            4 => format!("add set inet {table} agent {{ type inet_service; elements = {{ 1, 2 }} }}"),
            _ => {
                let base = random.pick(&BASES);
                // Its own name each time: the type of a chain cannot be changed.
                let name = format!("agent{}", self.steps.len());
                format!("table inet {table} {{ chain {name} {{ {base}\n{}\n}}\n}}", random.pick(&RULES))
            }
        };
        self.nft(&step);
        self.steps.push(step);
    }

    /// A run, perhaps killed; foreign tables are as they were.
    fn run(&mut self, random: &mut Random, args: &[&str], killed: bool) {
        let before = self.foreign();
        let program = self.pod.istio_iptables(args);
        let (how, ended) = if killed {
            let (number, when) = (random.below(25) + 1, [When::Before, When::After][random.below(2)]);
            (format!(" killed {when:?} message {number}"), program.run_and_kill_at_send(number, when))
        } else {
            (String::new(), program.run())
        };
        self.steps.push(format!("run {args:?}{how}: {}", ended.code()));
        let steps = self.steps.join("\n");
        assert!(ended.code() == 0 || (killed && ended.code() == -1), "{steps}\n{}", ended.output());
        assert_eq!(self.foreign(), before, "{steps}");
    }
}

/// Our tables in a fresh pod.
fn expected(fixture: Fixture, args: &[&'static str]) -> Vec<Vec<String>> {
    static KNOWN: Mutex<BTreeMap<Vec<&str>, Vec<Vec<String>>>> = Mutex::new(BTreeMap::new());
    let of_fresh_pod = || {
        let fresh = ForeignTables { pod: fixture.pod(), tables: Vec::new(), made: 0, steps: Vec::new() };
        fresh.pod.apply(args);
        fresh.ours()
    };
    KNOWN.lock().unwrap().entry(args.to_vec()).or_insert_with(of_fresh_pod).clone()
}

/// Returns how often our tables were restored.
fn sequence(fixture: Fixture, seed: u64, number: u64) -> usize {
    let mut random = Random::new(seed, number);
    let (pod, tables, steps) = (fixture.pod(), Vec::new(), vec![format!("{seed} {number}")]);
    let mut foreign = ForeignTables { pod, tables, made: 0, steps };
    let routing = foreign.routing();
    let mut restored = 0;
    for _ in 0..=random.below(5) {
        for _ in 0..random.below(3) {
            foreign.change(&mut random);
        }
        let spoils = random.chance(60);
        if spoils {
            foreign.spoil(&mut random);
        }
        let args = if random.chance(15) { vec!["--cleanup-only"] } else { random.pick(&OPTIONS).to_vec() };
        let killed = random.chance(40);
        foreign.run(&mut random, &args, killed);
        if killed {
            continue;
        }
        assert_eq!(foreign.ours(), expected(fixture, &args), "{}", foreign.steps.join("\n"));
        restored += usize::from(spoils);
    }
    foreign.run(&mut random, &["--cleanup-only"], false);
    assert_eq!(
        (foreign.listed(true).as_str(), foreign.routing()),
        ("", routing),
        "{}",
        foreign.steps.join("\n")
    );
    restored
}

fn foreign_tables_survive_and_our_own_are_restored(fixture: Fixture) {
    let restored = sequences(|seed, number| sequence(fixture, seed, number));
    eprintln!("own tables were changed and restored in {restored} runs");
}
