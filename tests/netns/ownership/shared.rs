//! A pod with rules of ours and of another program in the shared chains of iptables.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use istio_iptables::kernel::observe;
use istio_iptables::model::Family as Of;
use nfnetlink::nftables::{Batch, Client, Family as NftFamily, TableName};

use super::FORMS;
use crate::chaos::random::Random;
use crate::lab::kill::When;
use crate::lab::program::{Program, tool};
use crate::lab::tools::KillingTools;
use crate::lab::{Backend, Family, Fixture, Pod};

pub(super) const FAMILIES: [(Family, Of, NftFamily); 2] =
    [(Family::V4, Of::V4, NftFamily::Ip), (Family::V6, Of::V6, NftFamily::Ip6)];

/// A rule in a shared chain.
#[derive(Clone, Debug)]
pub(super) struct LiveRule {
    /// The rule's handle in iptables-nft; else its packet counter, or 0 if another program did not set that.
    pub(super) id: u64,
    pub(super) text: String,
    /// Packets and bytes.
    counters: String,
}

pub(super) type ChainKey = (usize, &'static str, &'static str);

/// When a run is killed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Moment {
    /// At a message to the kernel.
    Message(usize, When),
    /// At a call of a restore tool.
    Restore(usize, When),
}

impl Moment {
    /// Among the first so many messages, or calls.
    pub(super) fn random(random: &mut Random, messages: usize, calls: usize) -> Self {
        let when = [When::Before, When::After][random.below(2)];
        if random.chance(50) {
            Self::Message(random.below(messages) + 1, when)
        } else {
            Self::Restore(random.below(calls) + 1, when)
        }
    }
}

/// A pod in which another program adds, moves and deletes rules of one variant of iptables.
pub(super) struct Shared {
    pub(super) pod: Rc<Pod>,
    backend: Backend,
    /// The foreign rules in order, and their counters where the tools set them.
    pub(super) foreign: BTreeMap<ChainKey, Vec<(u64, String)>>,
    added: u64,
    /// What the last run printed that ended by itself.
    pub(super) said: String,
    /// What all runs printed that ended by themselves.
    all_said: String,
    /// Foreign rules that were deleted. Identical rules are not named any more then: one of them was not
    /// needed.
    deleted: Vec<(ChainKey, String)>,
    pub(super) steps: Vec<String>,
}

impl Shared {
    pub(super) fn new(fixture: Fixture, name: String) -> Self {
        Self::of_variant(Rc::new(fixture.pod()), fixture.backend, name)
    }

    pub(super) fn of_variant(pod: Rc<Pod>, backend: Backend, name: String) -> Self {
        Self {
            pod,
            backend,
            foreign: BTreeMap::new(),
            added: 0,
            said: String::new(),
            all_said: String::new(),
            deleted: Vec::new(),
            steps: vec![name],
        }
    }

    pub(super) fn is_nft(&self) -> bool {
        self.backend == Backend::IptablesNft
    }

    /// The rules of the shared chains.
    pub(super) fn live(&self) -> BTreeMap<ChainKey, Vec<LiveRule>> {
        let mut live = BTreeMap::new();
        for (number, (family, of, _)) in FAMILIES.into_iter().enumerate() {
            let save = self.backend.tool(family, "-save");
            let (saved, handles) =
                self.pod.namespace.run(|| (tool(&save, &["-c"], ""), observe::handles(of).expect("handles")));
            for (table, chain, _) in FORMS {
                let section = saved.split(&format!("\n*{table}\n")).nth(1).unwrap_or_default();
                let section = section.split("\nCOMMIT").next().unwrap_or_default();
                let mut rules: Vec<LiveRule> = section
                    .lines()
                    .filter_map(|line| line.strip_prefix('[')?.split_once(&format!("] -A {chain} ")))
                    .map(|(counters, text)| LiveRule {
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

    fn iptables(&self, (number, table, chain): ChainKey, command: &str, rest: &str) {
        let (family, ..) = FAMILIES[number];
        self.command(family, &format!("-t {table} {command} {chain} {rest}"));
    }

    fn command(&self, family: Family, words: &str) {
        let program = self.backend.tool(family, "");
        self.pod.namespace.run(|| tool(&program, &words.split(' ').collect::<Vec<_>>(), ""));
    }

    /// Another program inserts a rule at a place, 0 for the first one.
    fn insert(&mut self, random: &mut Random, place: ChainKey, form: &str) {
        let length = self.live()[&place].len();
        let at = if random.chance(70) { [0, length][random.below(2)] } else { random.below(length + 1) };
        self.insert_at(place, form, at);
    }

    pub(super) fn insert_at(&mut self, place: ChainKey, form: &str, at: usize) {
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

    fn delete(&mut self, place: ChainKey, at: usize) {
        let (id, _) = self.foreign.get_mut(&place).unwrap().remove(at);
        let rules = self.live().remove(&place).unwrap();
        let number = rules.iter().position(|rule| rule.id == id).unwrap() + 1;
        self.deleted.push((place, rules[number - 1].text.clone()));
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
            self.command(family, &format!("-t {table} -F"));
            self.command(family, &format!("-t {table} -X"));
        }
        self.foreign.retain(|(of, name, _), _| (*of, *name) != (number, table));
    }

    pub(super) fn change(&mut self, random: &mut Random) {
        let places: Vec<ChainKey> =
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
    pub(super) fn run(&mut self, random: &mut Random, args: &[&str], killed: bool) {
        let moment = killed.then(|| Moment::random(random, 12, 3));
        self.run_program(self.pod.istio_iptables(args), &format!("{args:?}"), moment);
    }

    /// A run that is killed at this moment, if it gets there.
    pub(super) fn run_program(&mut self, program: Program, name: &str, moment: Option<Moment>) {
        let ended = match moment {
            None => program.run(),
            Some(Moment::Message(number, when)) => program.run_and_kill_at_send(number, when),
            Some(Moment::Restore(call, when)) => {
                let tools = KillingTools::at_call(call, when);
                program.env("PATH", &tools.path()).run()
            }
        };
        let alias = self.pod.namespace.run(|| tool("ip", &["link", "show", "lo"], ""));
        let alias = alias.split("alias ").nth(1).unwrap_or("-").trim().to_owned();
        self.steps.push(format!("run {name} killed at {moment:?}: {}, {alias}", ended.code()));
        match ended.code() {
            0 => {
                self.said = ended.output();
                self.all_said += &self.said;
            }
            -1 if moment.is_some() => {}
            _ => panic!("{}{}", self.steps.join("\n"), ended.output()),
        }
    }

    /// Foreign rules are what they were: rules, counters and order.
    pub(super) fn check(&self, what: &str) {
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

    /// The last run has named each of these rules; an earlier one, if an identical rule was deleted since.
    pub(super) fn is_named(&self, left: &[(ChainKey, String)], deleted: &[&Self]) {
        for (place, text) in left {
            let (_, table, chain) = place;
            let is_one_less =
                deleted.iter().flat_map(|shared| &shared.deleted).any(|rule| rule == &(*place, text.clone()));
            let said = if is_one_less { &self.all_said } else { &self.said };
            let (steps, named) = (self.steps.join("\n"), said.contains(&format!("`{table} {chain} {text}`")));
            assert!(named, "{steps}\n{table} {chain} {text} is left and not named:\n{said}");
        }
    }

    /// Our rules that are left, by their words.
    pub(super) fn left(&self) -> Vec<(ChainKey, String)> {
        let foreign = |place: &ChainKey, id: u64| {
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
