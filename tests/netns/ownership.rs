//! Which of identical rules in shared chains are ours: sequences of runs, kills at exact steps and foreign changes.
//!
//! `OWNERSHIP_SEED`, `OWNERSHIP_FROM` and `OWNERSHIP_SEQUENCES` choose which, from a number up to another one; a failure prints its
//! seed, number and steps.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{RefUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use istio_iptables::kernel::observe;
use istio_iptables::model::Family as Of;
use nfnetlink::nftables::{Batch, Client, Family as NftFamily, TableName};

use crate::chaos::random::Random;
use crate::lab::kill::When;
use crate::lab::program::tool;
use crate::lab::tools::KillingTools;
use crate::lab::{Backend, Family, Fixture, Pod, for_each_backend};

for_each_backend!(
    identical_foreign_rules_survive_runs_that_are_killed_and_ours_go,
    rules_of_a_killed_run_go_where_foreign_rules_changed_since,
    identical_foreign_rule_in_place_of_another_one_survives,
    foreign_rule_where_a_killed_run_was_to_write_one_survives,
    rules_that_a_killed_run_could_not_take_out_are_named,
    rules_that_a_killed_cleanup_has_passed_are_named,
);

/// Sequences in a test run without variables, if they fit into the time.
const SEQUENCES: u64 = 12;
const TIME: Duration = Duration::from_secs(20);

const FAMILIES: [(Family, Of, NftFamily); 2] =
    [(Family::V4, Of::V4, NftFamily::Ip), (Family::V6, Of::V6, NftFamily::Ip6)];

/// Rules that ours are identical to, by table and chain; `LO` is the loopback range.
pub(crate) const FORMS: [(&str, &str, &[&str]); 4] = [
    ("nat", "PREROUTING", &["-i net9 -j RETURN", "-i net8 -j RETURN", "-i net1 -j RETURN"]),
    ("nat", "OUTPUT", &["-o net9 -j RETURN", "-o net8 -j RETURN", "-o net1 -j RETURN"]),
    (
        "mangle",
        "PREROUTING",
        &[
            "-i net9 -j RETURN",
            "-i net8 -j RETURN",
            "-p tcp -m mark --mark 1337 -j CONNMARK --save-mark",
            "-i lo -p tcp -m mark --mark 1337 -j CONNMARK --save-mark",
        ],
    ),
    (
        "mangle",
        "OUTPUT",
        &[
            "-o net9 -j RETURN",
            "-o lo -p tcp -m mark --mark 1337 -j RETURN",
            "! -d LO -o lo -p tcp -m owner --uid-owner 1337 -j MARK --set-mark 1338",
            "-p tcp -m connmark --mark 1337 -j CONNMARK --restore-mark",
        ],
    ),
];

pub(crate) const OPTIONS: [&[&str]; 10] = [
    &["-i", "*", "-b", "*"],
    &["-i", "*", "-b", "*", "-c", "net9"],
    &["-i", "*", "-b", "80", "-c", "net8,net9"],
    &["-i", "*", "-b", "*", "-c", "net1,net8"],
    &["-i", "*", "-b", "*", "-c", "net9", "-k", "net1"],
    &["-i", "10.0.0.0/8", "-b", "80", "-k", "net9"],
    &["-i", "*", "-b", "*", "-m", "TPROXY"],
    &["-i", "*", "-b", "*", "-m", "TPROXY", "-c", "net9"],
    &["-i", "*", "-b", "80,81", "-m", "TPROXY", "-c", "net9,net8", "-k", "net1", "--drop-invalid"],
    &["-i", "*", "-b", "", "-m", "TPROXY", "-c", "net8"],
];

/// A rule in a shared chain.
#[derive(Clone, Debug)]
struct Live {
    /// Its handle in iptables-nft; else its packet counter, or 0 if another program did not set that.
    id: u64,
    text: String,
    /// Packets and bytes.
    counters: String,
}

type Place = (usize, &'static str, &'static str);

/// A pod in which another program adds, moves and deletes rules.
struct Shared {
    pod: Pod,
    /// The foreign rules in order, and their counters where the tools set them.
    foreign: BTreeMap<Place, Vec<(u64, String)>>,
    added: u64,
    /// What runs printed that ended by themselves.
    said: String,
    steps: Vec<String>,
}

impl Shared {
    fn new(pod: Pod, name: String) -> Self {
        Self { pod, foreign: BTreeMap::new(), added: 0, said: String::new(), steps: vec![name] }
    }

    fn is_nft(&self) -> bool {
        self.pod.fixture.backend == Backend::IptablesNft
    }

    /// The rules of the shared chains.
    fn live(&self) -> BTreeMap<Place, Vec<Live>> {
        let mut live = BTreeMap::new();
        for (number, (family, of, _)) in FAMILIES.into_iter().enumerate() {
            let save = self.pod.fixture.backend.tool(family, "-save");
            let (saved, handles) =
                self.pod.namespace.run(|| (tool(&save, &["-c"], ""), observe::handles(of).expect("handles")));
            for (table, chain, _) in FORMS {
                let section = saved.split(&format!("\n*{table}\n")).nth(1).unwrap_or_default();
                let section = section.split("\nCOMMIT").next().unwrap_or_default();
                let mut rules: Vec<Live> = section
                    .lines()
                    .filter_map(|line| line.strip_prefix('[')?.split_once(&format!("] -A {chain} ")))
                    .map(|(counters, text)| Live {
                        id: 0,
                        text: text.to_owned(),
                        counters: counters.to_owned(),
                    })
                    .collect();
                if self.is_nft() {
                    let of_table = handles.tables.iter().find(|(name, _)| name.name() == table);
                    let of_chain = of_table.and_then(|(_, handles)| handles.rules.get(chain));
                    let of_chain = of_chain.map_or(&[][..], Vec::as_slice);
                    assert_eq!(of_chain.len(), rules.len(), "{saved}");
                    rules.iter_mut().zip(of_chain).for_each(|(rule, handle)| rule.id = *handle);
                } else {
                    for rule in &mut rules {
                        let packets =
                            rule.counters.strip_suffix(":777").map(|packets| packets.parse().unwrap());
                        rule.id = packets.unwrap_or(0);
                    }
                }
                live.insert((number, table, chain), rules);
            }
        }
        live
    }

    fn iptables(&self, (number, table, chain): Place, command: &str, rest: &str) {
        let (family, ..) = FAMILIES[number];
        self.pod.iptables(family, &format!("-t {table} {command} {chain} {rest}"));
    }

    /// Another program inserts a rule at a place, 0 for the first one.
    fn insert(&mut self, random: &mut Random, place: Place, form: &str) {
        let length = self.live()[&place].len();
        let at = if random.chance(70) { [0, length][random.below(2)] } else { random.below(length + 1) };
        self.insert_at(place, form, at);
    }

    fn insert_at(&mut self, place: Place, form: &str, at: usize) {
        let (number, ..) = place;
        let rules = self.live().remove(&place).unwrap();
        self.added += 1;
        let form = form.replace("LO", ["127.0.0.1/32", "::1/128"][number]);
        self.iptables(place, "-I", &format!("{} {form} -c {} 777", at + 1, 1000 + self.added));
        let now = self.live().remove(&place).unwrap();
        let new = now.iter().find(|rule| !rules.iter().any(|old| old.id == rule.id)).expect("the new rule");
        let known = self.foreign.entry(place).or_default();
        let before = rules[..at].iter().filter(|rule| known.iter().any(|(id, _)| *id == rule.id)).count();
        known.insert(before, (new.id, new.counters.clone()));
        self.steps.push(format!("foreign {place:?} {} {form}: {}", at + 1, new.id));
    }

    fn delete(&mut self, place: Place, at: usize) {
        let (id, _) = self.foreign.get_mut(&place).unwrap().remove(at);
        let rules = self.live().remove(&place).unwrap();
        let number = rules.iter().position(|rule| rule.id == id).unwrap() + 1;
        self.steps.push(format!("foreign {place:?} -D {number}: {id}"));
        self.iptables(place, "-D", &number.to_string());
    }

    /// Another program deletes a table with everything in it.
    fn clear(&mut self, number: usize, table: &'static str) {
        let (family, _, of) = FAMILIES[number];
        self.steps.push(format!("clear {number} {table}"));
        if self.is_nft() {
            self.pod.namespace.run(|| {
                let mut client = Client::open().expect("nf_tables");
                let name = TableName::new(of, table);
                if client.tables().expect("tables").contains(&name) {
                    let mut batch = Batch::new();
                    batch.delete_table(&name);
                    client.commit(&batch).expect("delete the table");
                }
            });
        } else {
            self.pod.iptables(family, &format!("-t {table} -F"));
            self.pod.iptables(family, &format!("-t {table} -X"));
        }
        self.foreign.retain(|(of, name, _), _| (*of, *name) != (number, table));
    }

    fn change(&mut self, random: &mut Random) {
        let places: Vec<Place> =
            self.foreign.iter().filter(|(_, rules)| !rules.is_empty()).map(|(place, _)| *place).collect();
        let number = random.below(2);
        match random.below(100) {
            0..5 => self.clear(number, ["nat", "mangle"][random.below(2)]),
            5..30 if !places.is_empty() => {
                let place = random.pick(&places);
                let at = random.below(self.foreign[&place].len());
                self.delete(place, at);
                if random.chance(60) {
                    let (_, _, forms) =
                        FORMS.into_iter().find(|(t, c, _)| (*t, *c) == (place.1, place.2)).unwrap();
                    self.insert(random, place, random.clone().pick(forms));
                }
            }
            _ => {
                let (table, chain, forms) = random.pick(&FORMS);
                let form = random.pick(forms);
                self.insert(random, (number, table, chain), form);
            }
        }
    }

    /// A run, perhaps killed.
    fn run(&mut self, random: &mut Random, args: &[&str], killed: bool) {
        let program = self.pod.istio_iptables(args);
        let when = [When::Before, When::After][random.below(2)];
        let (how, ended) = if !killed {
            (String::new(), program.run())
        } else if random.chance(50) {
            let number = random.below(12) + 1;
            (format!(" killed {when:?} message {number}"), program.run_and_kill_at_send(number, when))
        } else {
            let call = random.below(3) + 1;
            let tools = KillingTools::at_call(call, when);
            let ended = program.env("PATH", &tools.path()).run();
            (format!(" killed {when:?} restore {call}"), ended)
        };
        let alias = self.pod.namespace.run(|| tool("ip", &["link", "show", "lo"], ""));
        let alias = alias.split("alias ").nth(1).unwrap_or("-").trim().to_owned();
        self.steps.push(format!("run {args:?}{how}: {}, {alias}", ended.code()));
        match ended.code() {
            0 => self.said += &ended.output(),
            -1 if killed => {}
            _ => panic!("{}{}", self.steps.join("\n"), ended.output()),
        }
    }

    /// Foreign rules are what they were: rules, counters and order.
    fn check(&self, what: &str) {
        let live = self.live();
        for (place, foreign) in &self.foreign {
            let ids: BTreeSet<u64> = foreign.iter().map(|(id, _)| *id).collect();
            let there: Vec<_> = live[place]
                .iter()
                .filter(|rule| ids.contains(&rule.id))
                .map(|rule| (rule.id, rule.counters.clone()))
                .collect();
            assert_eq!(&there, foreign, "{what}: {place:?}: {:#?}", live[place]);
        }
    }

    /// A run has named each of these rules.
    fn is_named(&self, left: &[(Place, String)]) {
        let (steps, said) = (self.steps.join("\n"), &self.said);
        for ((_, table, chain), text) in left {
            let named = said.contains(&format!("`{table} {chain} {text}`"));
            assert!(named, "{steps}\n{table} {chain} {text} is left and not named:\n{said}");
        }
    }

    /// Our rules that are left, by their words.
    fn left(&self) -> Vec<(Place, String)> {
        let foreign = |place: &Place, id: u64| {
            self.foreign.get(place).is_some_and(|rules| rules.iter().any(|(known, _)| *known == id))
        };
        let live = self.live().into_iter();
        live.flat_map(|(place, rules)| {
            let ours = rules.into_iter().filter(|rule| !foreign(&place, rule.id));
            ours.map(|rule| (place, rule.text)).collect::<Vec<_>>()
        })
        .collect()
    }
}

/// The chain is as long as recorded, and our recorded place holds the foreign rule: with iptables-legacy only the words of
/// all rules say that the chain has changed.
fn identical_foreign_rule_in_place_of_another_one_survives(fixture: Fixture) {
    const TWIN: &str = "-o net9 -j RETURN";
    let mut shared = Shared::new(fixture.pod(), "replaced".to_owned());
    let mut random = Random::new(1, 1);
    for (number, (family, ..)) in FAMILIES.into_iter().enumerate() {
        let place = (number, "nat", "OUTPUT");
        shared.pod.iptables(family, "-t nat -A OUTPUT -p tcp --dport 9 -j ACCEPT");
        shared.run(&mut random, &["-i", "*", "-b", "*", "-c", "net9"], false);
        let text = |shared: &Shared| -> Vec<String> {
            shared.live().remove(&place).unwrap().into_iter().map(|rule| rule.text).collect()
        };
        let before = text(&shared);
        assert_eq!(before.iter().position(|text| text == TWIN), Some(1), "{before:?}");
        shared.pod.iptables(family, "-t nat -D OUTPUT 1");
        shared.insert_at(place, TWIN, 1);
        assert_eq!(text(&shared).len(), before.len());
        shared.run(&mut random, &["--cleanup-only"], false);
        shared.check("replaced");
        let left = shared.left();
        let expected = if shared.is_nft() { vec![] } else { vec![(place, TWIN.to_owned())] };
        assert_eq!(left, expected, "{}", shared.steps.join("\n"));
        for ((_, table, chain), text) in left {
            assert!(shared.said.contains(&format!("`{table} {chain} {text}`")), "{}", shared.said);
        }
        shared.pod.iptables(family, "-t nat -F OUTPUT");
        shared.foreign.clear();
    }
}

/// The chain is as that run was to leave it. The table is not: the run would have written the other half of the pair too.
fn foreign_rule_where_a_killed_run_was_to_write_one_survives(fixture: Fixture) {
    let mut shared = Shared::new(fixture.pod(), "half a pair".to_owned());
    let mut random = Random::new(1, 1);
    shared.run(&mut random, &["-i", "*", "-b", "*"], false);
    // Before the rules of IPv6.
    let tools = KillingTools::at_call(2, When::Before);
    let excluded = shared.pod.istio_iptables(&["-i", "*", "-b", "*", "-c", "net9"]);
    excluded.env("PATH", &tools.path()).run().ended_with(-1);
    shared.insert_at((1, "nat", "PREROUTING"), "-i net9 -j RETURN", 0);
    shared.run(&mut random, &["--cleanup-only"], false);
    shared.check("half a pair");
    assert_eq!(shared.left(), []);
}

/// The chain is not as that run left it. A whole set of rules that each are in one place only is no chance.
fn rules_of_a_killed_run_go_where_foreign_rules_changed_since(fixture: Fixture) {
    let (family, ..) = FAMILIES[1];
    for call in 1..=5 {
        let pod = fixture.pod();
        pod.iptables(family, "-t mangle -A OUTPUT -p udp --dport 9 -j ACCEPT");
        let mut shared = Shared::new(pod, format!("killed after tool call {call}"));
        let tools = KillingTools::at_call(call, When::After);
        let tproxy = shared.pod.istio_iptables(&["-i", "*", "-b", "*", "-m", "TPROXY"]);
        tproxy.env("PATH", &tools.path()).run();
        shared.pod.iptables(family, "-t mangle -D OUTPUT -p udp --dport 9 -j ACCEPT");
        shared.insert_at((1, "mangle", "OUTPUT"), "-p udp -m udp --dport 10 -j ACCEPT", 0);
        shared.run(&mut Random::new(1, 1), &["--cleanup-only"], false);
        shared.check(&shared.steps.join("\n"));
        assert_eq!(shared.left(), [], "killed after tool call {call}");
    }
}

/// Identical foreign rules are beside ours when the options change, so with iptables-legacy ours stay. The change is killed after
/// that, and the next run is the last one that knows of it: its options ask for one of the identical rules.
fn rules_that_a_killed_run_could_not_take_out_are_named(fixture: Fixture) {
    let mut shared = Shared::new(fixture.pod(), "left".to_owned());
    let mut random = Random::new(1, 1);
    let (prerouting, output) = ((0, "mangle", "PREROUTING"), (0, "mangle", "OUTPUT"));
    shared.insert_at(prerouting, "-i net8 -j RETURN", 0);
    shared.run(&mut random, &["-i", "*", "-b", "", "-m", "TPROXY", "-c", "net8"], false);
    shared.insert_at(output, "-p tcp -m connmark --mark 1337 -j CONNMARK --restore-mark", 0);
    shared.insert_at(prerouting, "-p tcp -m mark --mark 1337 -j CONNMARK --save-mark", 0);
    let others = ["-i", "*", "-b", "*", "-m", "TPROXY", "-c", "net9"];
    let tools = KillingTools::at_call(2, When::Before);
    shared.pod.istio_iptables(&others).env("PATH", &tools.path()).run();
    for args in [&others[..], &["--cleanup-only"]] {
        shared.run(&mut random, args, false);
        shared.check(&shared.steps.join("\n"));
    }
    let left = shared.left();
    assert_eq!(left.is_empty(), shared.is_nft(), "{left:?}");
    shared.is_named(&left);
}

/// Identical foreign rules are beside all of ours, and the clean-up is killed when it has taken out the chains, so nothing but the
/// record tells the next one of the rules that are left with iptables-legacy.
fn rules_that_a_killed_cleanup_has_passed_are_named(fixture: Fixture) {
    for call in 1..=2 {
        let mut shared = Shared::new(fixture.pod(), format!("passed, {call}"));
        let mut random = Random::new(1, 1);
        shared.run(&mut random, &["-i", "*", "-b", "*", "-c", "net9"], false);
        for number in 0..FAMILIES.len() {
            for (chain, form) in [("PREROUTING", "-i net9 -j RETURN"), ("OUTPUT", "-o net9 -j RETURN")] {
                shared.insert_at((number, "nat", chain), form, 0);
            }
        }
        let tools = KillingTools::at_call(call, When::After);
        shared.pod.istio_iptables(&["--cleanup-only"]).env("PATH", &tools.path()).run().ended_with(-1);
        shared.run(&mut random, &["--cleanup-only"], false);
        shared.check(&shared.steps.join("\n"));
        let left = shared.left();
        assert_eq!(left.len(), if shared.is_nft() { 0 } else { 4 }, "killed after restore {call}: {left:?}");
        shared.is_named(&left);
    }
}

/// Returns how many of our rules are left and named.
fn sequence(fixture: Fixture, seed: u64, number: u64) -> usize {
    let mut random = Random::new(seed, number);
    let mut shared = Shared::new(fixture.pod(), format!("{seed} {number}"));
    for _ in 0..random.below(3) {
        shared.change(&mut random);
    }
    for _ in 0..=random.below(4) {
        let mut args =
            if random.chance(15) { vec!["--cleanup-only"] } else { random.pick(&OPTIONS).to_vec() };
        if args.len() > 1 && random.chance(20) {
            args.push("--verify");
        }
        let killed = random.chance(55);
        shared.run(&mut random, &args, killed);
        shared.check(&shared.steps.join("\n"));
        for _ in 0..random.below(3) {
            shared.change(&mut random);
        }
    }
    shared.run(&mut random, &["--cleanup-only"], false);
    shared.check(&shared.steps.join("\n"));
    let left = shared.left();
    shared.is_named(&left);
    let state = shared.pod.save(Family::V4) + &shared.pod.save(Family::V6);
    assert!(!state.contains("ISTIO_"), "{}\n{state}", shared.steps.join("\n"));
    if !left.is_empty() {
        eprintln!("{}\nnamed: {left:?}", shared.steps.join("\n"));
    }
    left.len()
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

fn identical_foreign_rules_survive_runs_that_are_killed_and_ours_go(fixture: Fixture) {
    let named = sequences(|seed, number| sequence(fixture, seed, number));
    eprintln!("{named} rules of ours are left and named");
}

/// Runs the sequences that the variables ask for, and adds up what they return.
pub(crate) fn sequences(sequence: impl Fn(u64, u64) -> usize + RefUnwindSafe) -> usize {
    let seed = variable("OWNERSHIP_SEED").unwrap_or(1);
    let asked = variable("OWNERSHIP_SEQUENCES");
    let start = Instant::now();
    let (mut sum, mut failed, mut done) = (0, Vec::new(), 0);
    for number in variable("OWNERSHIP_FROM").unwrap_or(0)..asked.unwrap_or(SEQUENCES) {
        if asked.is_none() && start.elapsed() > TIME {
            break;
        }
        match catch_unwind(|| sequence(seed, number)) {
            Ok(found) => sum += found,
            Err(_) => failed.push(number),
        }
        done += 1;
    }
    eprintln!("OWNERSHIP_SEED={seed}: {done} sequences, failed: {failed:?}");
    assert!(failed.is_empty(), "OWNERSHIP_SEED={seed}: {failed:?}");
    sum
}
