//! Foreign rules in pods whose rules move between iptables-nft, iptables-legacy and native nftables, with
//! foreign tables beside.
//!
//! The variables are those of [`super`].

use std::rc::Rc;

use super::shared::{ChainKey, Moment, Shared};
use super::{OPTIONS, sequences};
use crate::chaos::random::Random;
use crate::lab::program::tool;
use crate::lab::{Backend, Family, Fixture, Pod, for_these_fixtures};

for_these_fixtures!(dual: Native Dual; [foreign_rules_survive_moves_between_backends_and_ours_go]);

const BACKENDS: [Backend; 3] = [Backend::IptablesNft, Backend::IptablesLegacy, Backend::Native];

/// Foreign tables with names and rules like ours.
const TABLES: [&str; 4] = ["inet agent", "ip istio-proxy-nat", "ip6 istio-proxy-mangle", "inet istio-proxy"];
const RULES: [&str; 3] = [
    "oifname \"net9\" counter packets 7 bytes 777 return comment \"excluded-interface: -c net9\"",
    "meta l4proto tcp meta mark 0x539 counter packets 7 bytes 777 ct mark set mark",
    "tcp dport 15006 ct state invalid counter packets 7 bytes 777",
];

/// A pod in which other programs use both variants of iptables and nftables.
struct MixedPod {
    pod: Rc<Pod>,
    /// iptables-nft and iptables-legacy.
    variants: [Shared; 2],
    tables: Vec<&'static str>,
    steps: Vec<String>,
}

impl MixedPod {
    fn new(fixture: Fixture, name: String) -> Self {
        let pod = Rc::new(fixture.pod());
        let of = |backend| Shared::of_variant(Rc::clone(&pod), backend, format!("{backend:?}"));
        let variants = [of(Backend::IptablesNft), of(Backend::IptablesLegacy)];
        Self { variants, pod, tables: Vec::new(), steps: vec![name] }
    }

    /// What the parts did since the last time.
    fn note(&mut self) -> String {
        for shared in &mut self.variants {
            self.steps.append(&mut shared.steps);
        }
        self.steps.join("\n")
    }

    fn nft(&self, args: &[&str], input: &str) -> String {
        self.pod.namespace.run(|| tool("nft", args, input))
    }

    /// The names of all tables of nftables.
    fn names(&self) -> Vec<String> {
        let tables = self.nft(&["list", "tables"], "");
        tables.lines().filter_map(|line| line.strip_prefix("table ")).map(str::to_owned).collect()
    }

    /// The foreign tables, with handles and counters.
    fn foreign(&self) -> Vec<String> {
        let list = |table: &&str| {
            let words: Vec<&str> = ["-a", "list", "table"].into_iter().chain(table.split(' ')).collect();
            self.nft(&words, "")
        };
        self.tables.iter().map(list).collect()
    }

    /// Other programs change something.
    fn change(&mut self, random: &mut Random) {
        match random.below(10) {
            0..8 => self.variants[random.below(2)].change(random),
            _ => {
                let table = random.pick(&TABLES);
                let known = self.tables.iter().position(|known| *known == table);
                let command = if let Some(known) = known {
                    self.tables.remove(known);
                    format!("delete table {table}")
                } else {
                    self.tables.push(table);
                    let hook = "type filter hook output priority -150;";
                    let rules = [random.pick(&RULES), random.pick(&RULES)].join("\n");
                    format!("table {table} {{ chain agent {{ {hook}\n{rules}\n}}\n}}")
                };
                self.nft(&["-f", "-"], &command);
                self.steps.push(command);
            }
        }
        self.note();
    }

    /// A run, perhaps killed, after which everything foreign is as it was.
    fn run(&mut self, args: &[&str], moment: Option<Moment>) {
        let before = self.foreign();
        let program = self.pod.plain_istio_iptables(args).arg("--dual-stack");
        self.variants[0].steps = std::mem::take(&mut self.steps);
        self.variants[0].run_program(program, &format!("{args:?}"), moment);
        let steps = self.note();
        self.variants.iter().for_each(|shared| shared.check(&steps));
        assert_eq!(self.foreign(), before, "{steps}");
    }

    fn chains_of_ours(&self, backend: Backend) -> bool {
        if backend == Backend::Native {
            let ours = ["raw", "mangle", "nat"].map(|name| format!("inet istio-proxy-{name}"));
            return self.names().iter().any(|name| ours.contains(name));
        }
        let saved = |family: Family| {
            let save = backend.tool(family, "-save");
            self.pod.namespace.run(|| tool(&save, &[], ""))
        };
        [Family::V4, Family::V6].into_iter().any(|family| saved(family).contains("ISTIO_"))
    }

    /// The rules of ours without a chain of ours that are left.
    fn left(&self) -> Vec<(ChainKey, String)> {
        self.variants.iter().flat_map(Shared::left).collect()
    }
}

/// Returns how many of our rules are left and named.
fn sequence(fixture: Fixture, seed: u64, number: u64) -> usize {
    let mut random = Random::new(seed, number);
    let mut pod = MixedPod::new(fixture, format!("{seed} {number}"));
    for _ in 0..random.below(3) {
        pod.change(&mut random);
    }
    for _ in 0..=random.below(5) {
        let backend = random.pick(&BACKENDS);
        let is_cleanup = random.chance(15);
        let mut args = if is_cleanup { vec!["--cleanup-only"] } else { random.pick(&OPTIONS).to_vec() };
        if !is_cleanup || random.chance(50) {
            args.extend(["--backend", backend.flag()]);
        }
        if !is_cleanup && random.chance(20) {
            args.push("--verify");
        }
        let moment = random.chance(45).then(|| Moment::random(&mut random, 40, 8));
        pod.run(&args, moment);
        if moment.is_none() {
            let live: Vec<_> = BACKENDS.into_iter().filter(|of| pod.chains_of_ours(*of)).collect();
            let expected = if is_cleanup { vec![] } else { vec![backend] };
            assert_eq!(live, expected, "{}", pod.steps.join("\n"));
        }
        for _ in 0..random.below(3) {
            pod.change(&mut random);
        }
    }
    pod.run(&["--cleanup-only"], None);
    let (steps, left) = (pod.steps.join("\n"), pod.left());
    pod.variants[0].steps = vec![steps.clone()];
    let [nft, legacy] = &pod.variants;
    nft.is_named(&left, &[nft, legacy]);
    assert!(BACKENDS.into_iter().all(|backend| !pod.chains_of_ours(backend)), "{steps}");
    if !left.is_empty() {
        eprintln!("{steps}\nnamed: {left:?}");
    }
    left.len()
}

fn foreign_rules_survive_moves_between_backends_and_ours_go(fixture: Fixture) {
    let named = sequences(|seed, number| sequence(fixture, seed, number));
    eprintln!("{named} rules of ours are left and named");
}
