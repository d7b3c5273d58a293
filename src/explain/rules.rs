//! Rules in the form that a walk needs: those of the options, or the live ones, including foreign rules.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnetwork::IpNetwork;

use super::entry::Entry;
use super::reasons_by_form;
use super::stage::Stage;
use crate::live_rules::Effect;
use crate::model::{
    Chain, Family, FamilyRules, Hook, HookRules, Match, Port, Rule, Table, TableRules, Target, Variant, Why,
};
use crate::nft;
use crate::ordered::Ordered as _;
use crate::parse::{self, Line, NativeLine, NativeRules, Observed, ObservedTable};
use crate::reconcile::owned;

/// The rules of one family.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    pub(crate) tables: BTreeMap<Table, Chains>,
    /// The base chains of other programs' tables that packets meet before ours, and those of nat, in their
    /// order at each hook.
    pub(crate) before: Vec<BaseChain>,
    /// The base chains that packets meet behind ours, in their order at each hook.
    pub(crate) later: Vec<BaseChain>,
    /// The base chains that only forwarded packets meet.
    pub(crate) forward: Vec<BaseChain>,
}

/// The hook of packets for this machine, by the name of its chain.
pub(super) const INPUT: &str = parse::INPUT;
/// The hook of packets that leave, also over `lo`, by the name of its chain.
pub(super) const POSTROUTING: &str = parse::POSTROUTING;
/// The priority at which the kernel translates sources, in these two.
pub(super) const SOURCE_NAT_PRIORITY: i32 = 100;

/// The program whose tables a base chain is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This variant of iptables: its name for the table.
    Iptables(Variant, &'static str),
    /// Any program that writes tables of nftables; the table of ours, where it may be iptables-nft.
    Nftables(Option<Table>),
}

impl Holder {
    /// Whether chains of ours may be in the table, with their names.
    pub(crate) fn may_have_ours(self) -> bool {
        match self {
            Self::Iptables(_, table) => Table::ALL.iter().any(|ours| ours.name() == table),
            Self::Nftables(table) => table.is_some(),
        }
    }
}

/// A base chain before or behind ours.
#[derive(Clone, Debug)]
pub(crate) struct BaseChain {
    pub(crate) holder: Holder,
    pub(crate) stage: Stage,
    pub(crate) priority: i32,
    pub(crate) table: String,
    pub(crate) chain: String,
    pub(crate) rules: Vec<Entry>,
    /// Whether it translates addresses: it sees the first packet of a connection.
    pub(crate) is_nat: bool,
    /// Whether what leaves is routed again behind it, if it changes the mark (the type `route`).
    pub(crate) reroutes: bool,
    /// Whether its policy is to drop.
    pub(crate) drops: bool,
    /// The chains of its table, which it may jump to.
    pub(crate) chains: Arc<Chains>,
}

impl BaseChain {
    /// The priority at which the kernel runs it, and its own: all chains that translate sources are run in
    /// one place.
    pub(super) fn place(&self) -> (i32, i32) {
        let translates_sources = self.is_nat && self.stage.translates_sources();
        (if translates_sources { SOURCE_NAT_PRIORITY } else { self.priority }, self.priority)
    }
}

/// The chains of one table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chains {
    pub(crate) hooks: BTreeMap<Hook, Vec<Entry>>,
    /// All others, ours and foreign ones.
    pub(crate) named: BTreeMap<String, Vec<Entry>>,
    /// The shared chains with the policy DROP.
    pub(crate) drops: BTreeSet<Hook>,
}

/// A live rule of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The table of the rule.
    pub table: Table,
    /// The chain of the rule.
    pub chain: String,
    /// The number of the rule in the chain, foreign rules included.
    pub number: usize,
    /// The words of the rule behind `-A CHAIN`.
    pub text: String,
    /// How many more elements of a set it is for.
    pub more: usize,
    /// Why it exists.
    pub why: Why,
}

impl From<&FamilyRules> for Rules {
    fn from(rules: &FamilyRules) -> Self {
        let chains = |table: &TableRules| {
            let hooks = table.hooks.iter();
            let named = table.chains.iter();
            let all = |rules: &[Rule]| rules.iter().map(Entry::of).collect();
            Chains {
                hooks: hooks.map(|(hook, rules)| (*hook, rules.iter().map(Entry::of).collect())).into_map(),
                named: named.map(|(chain, rules)| (chain.name().to_owned(), all(rules))).into_map(),
                drops: BTreeSet::new(),
            }
        };
        let tables = rules.tables.iter().map(|(table, rules)| (*table, chains(rules))).into_map();
        Self { tables, ..Self::default() }
    }
}

impl Rules {
    /// The live rules, ours and foreign ones.
    #[must_use]
    pub fn live(observed: &Observed) -> Self {
        let tables = observed.tables.iter();
        let tables = tables.map(|(table, live)| (*table, live_chains(observed, *table, live))).into_map();
        Self { tables, ..Self::default() }
    }

    /// The live rules of native nftables, by what the kernel holds.
    #[must_use]
    pub fn native(live: &nft::LiveTables, family: Family) -> Self {
        let entries = |lines: Vec<NativeLine>| lines.into_iter().map(Entry::native).collect();
        let chains = |NativeRules { hooks, chains, drops }| Chains {
            hooks: hooks.into_iter().map(|(hook, lines)| (hook, entries(lines))).into_map(),
            named: chains.into_iter().map(|(name, lines)| (name, entries(lines))).into_map(),
            drops,
        };
        let tables = parse::native(&live.active_tables(), family);
        let tables = tables.into_iter().map(|(table, rules)| (table, chains(rules))).into_map();
        Self { tables, ..Self::default() }
    }

    /// The tables that hold ours, without what packets meet beside them.
    #[must_use]
    pub fn without_other_tables(&self) -> Self {
        Self { tables: self.tables.clone(), ..Self::default() }
    }

    /// The rules of ours, without those that are not understood.
    #[must_use]
    pub fn own(&self, family: Family) -> FamilyRules {
        let mut own = FamilyRules::none(family);
        let rule = |entry: &Entry| {
            Some(Rule { statement: entry.statement().cloned()?, only: None, why: entry.why? })
        };
        for (table, chains) in &self.tables {
            let rules = own.tables.entry(*table).or_default();
            for (hook, entries) in &chains.hooks {
                let tail = entries.iter().filter_map(rule).collect();
                rules.hooks.insert(*hook, HookRules { head: Vec::new(), tail });
            }
            for (name, entries) in &chains.named {
                // Native rules behind a negated owner are in a chain of their own.
                if let Some(chain) = Chain::from_name(parse::first_part(name)) {
                    let rules = rules.chains.entry(chain).or_default();
                    let mut leaving = Vec::new();
                    for entry in entries {
                        leaving.extend(parse::leaving_owner(&entry.rule));
                        let Some(mut rule) = rule(entry) else { continue };
                        rule.statement
                            .matcher
                            .owners
                            .extend(std::mem::take(&mut leaving).into_iter().map(Match::Not));
                        rules.push(rule);
                    }
                }
            }
        }
        own
    }

    /// The rules of ours, in the order of tables and chains.
    #[must_use]
    pub fn listed(&self) -> Vec<Listed> {
        let mut listed: Vec<Listed> = Vec::new();
        for (table, chains) in &self.tables {
            let hooks = chains.hooks.iter().map(|(hook, entries)| (hook.name(), entries));
            let named = chains.named.iter().map(|(name, entries)| (name.as_str(), entries));
            for (chain, entries) in hooks.chain(named) {
                for (entry, why) in entries.iter().filter_map(|entry| Some((entry, entry.why?))) {
                    let (table, number) = (*table, entry.number);
                    match listed.last_mut() {
                        Some(last)
                            if (last.table, last.chain.as_str(), last.number) == (table, chain, number) =>
                        {
                            last.more += 1;
                        }
                        _ => {
                            let (chain, text) = (chain.to_owned(), entry.rule.words().into_owned());
                            listed.push(Listed { table, chain, number, text, more: 0, why });
                        }
                    }
                }
            }
        }
        listed
    }

    /// The foreign rules, each with its hook; in chains that others jump to there may be several.
    pub(crate) fn foreign(&self) -> Vec<(Option<&'static str>, &Entry)> {
        let mut found = Vec::new();
        let mut add = |hook, rules| {
            let rules: &Vec<Entry> = rules;
            found.extend(rules.iter().filter(|entry| entry.is_foreign()).map(|entry| (hook, entry)));
        };
        for chains in self.tables.values() {
            chains.hooks.iter().for_each(|(hook, rules)| add(Some(hook.name()), rules));
            chains.named.values().for_each(|rules| add(None, rules));
        }
        for base in self.before.iter().chain(&self.later) {
            add(Some(base.stage.chain()), &base.rules);
            base.chains.named.values().for_each(|rules| add(None, rules));
        }
        found
    }

    /// Whether another program has a rule or a policy that may end connections.
    #[must_use]
    pub fn has_foreign_end(&self) -> bool {
        let ends = |entry: &Entry| {
            let effect = entry.rule.effect();
            effect.stops_packets() || *effect == Effect::Takes || effect.is_to_loopback()
        };
        self.foreign().into_iter().any(|(_, entry)| ends(entry))
            || self.tables.values().any(|chains| !chains.drops.is_empty())
            || self.before.iter().chain(&self.later).any(|base| base.drops)
    }

    /// Whether a rule of ours hands packets to this port: the proxy has it.
    pub(super) fn has_proxy_port(&self, port: Port) -> bool {
        self.any_of_ours(&|entry| {
            let target = entry.target();
            matches!(target, Some(Target::Redirect(to) | Target::Tproxy { port: to, .. }) if to == port)
        })
    }

    /// Whether a rule reads the marks of connections.
    pub(super) fn reads_connmark(&self) -> bool {
        let reads = |entry: &Entry| entry.rule.reads_connmark();
        let base = |base: &BaseChain| base.rules.iter().any(reads) || base.chains.any(&reads);
        self.tables.values().any(|chains| chains.any(&reads))
            || self.before.iter().chain(&self.later).any(base)
    }

    /// Whether a rule of ours is for packets from this address.
    pub(super) fn looks_for(&self, source: impl Into<IpAddr>) -> bool {
        let source = Match::Is(IpNetwork::from(source.into()));
        self.any_of_ours(&|entry| {
            entry.statement().is_some_and(|statement| statement.matcher.source == Some(source))
        })
    }

    /// Whether a rule of ours is among them, apart from the one that keeps translation.
    #[must_use]
    pub fn has_ours(&self) -> bool {
        self.any_of_ours(&|entry| entry.why != Some(Why::KeepsTranslation))
    }

    fn any_of_ours(&self, is_it: &dyn Fn(&Entry) -> bool) -> bool {
        self.tables.values().any(|chains| chains.any(&|entry| !entry.is_foreign() && is_it(entry)))
    }
}

impl Chains {
    fn any(&self, is_it: &dyn Fn(&Entry) -> bool) -> bool {
        self.hooks.values().chain(self.named.values()).flatten().any(is_it)
    }
}

fn live_chains(observed: &Observed, table: Table, live: &ObservedTable) -> Chains {
    let statements = |chain: Chain| {
        live.chains.get(&chain).into_iter().flatten().filter_map(|line| line.statement.as_ref())
    };
    let proxy = reasons_by_form::proxy_owners(statements(Chain::Output));
    let hooks = Hook::ALL.into_iter().map(|hook| {
        let ours = owned(observed.family, table, hook, live, observed.record.as_ref());
        let why = |at: &usize, line: &Line| {
            let statement = line.statement.as_ref().filter(|_| ours.contains(at))?;
            let why = reasons_by_form::why_in_hook(hook, statement)?;
            // Of an excluded interface there is a pair.
            let is_alone =
                why == Why::ExcludedInterfaceIn && !reasons_by_form::has_outbound_half(live, statement);
            Some(if is_alone { Why::VirtualInterfaceLocal } else { why })
        };
        let lines = live.hook(hook).iter().enumerate();
        (hook, lines.map(|(at, line)| Entry::read(observed.family, (at, line), why(&at, line))).collect())
    });
    let own = live.chains.iter().map(|(chain, lines)| {
        let why = |at: usize, line: &Line| {
            reasons_by_form::why_in_chain((table, *chain), at, line.statement.as_ref()?, &proxy)
        };
        let lines = lines.iter().enumerate();
        (
            chain.name().to_owned(),
            lines.map(|(at, line)| Entry::read(observed.family, (at, line), why(at, line))).collect(),
        )
    });
    let foreign = live
        .foreign
        .iter()
        .map(|(name, lines)| (name.clone(), lines.iter().cloned().enumerate().map(Entry::foreign).collect()));
    Chains { hooks: hooks.into_map(), named: own.chain(foreign).into_map(), drops: live.drops.clone() }
}
