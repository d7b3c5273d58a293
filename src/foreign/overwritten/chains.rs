//! The base chains of other programs, and the foreign rules in those that they share with ours.

use std::collections::{BTreeMap, BTreeSet};

use nfnetlink::nftables::{Base, Chain as NftChain, ChainKind, Hook as NftHook, Table as NftTable};

use super::super::shared_tables::{foreign_chains, is_listed, is_of_iptables};
use super::super::{IptablesRules, shown};
use super::mark_paths::{Kind, MANGLE, Position, Side, Stage};
use crate::finding::{RuleId, Subject};
use crate::live_rules::LiveRule;
use crate::model::{Backend, Family, FamilyRules, Hook, Link, Table, Variant};
use crate::ordered::Ordered as _;
use crate::parse::{self, INPUT, Observed, ObservedTable};
use crate::reconcile::{is_our_jump, our_rules, owned};

const POSTROUTING: &str = "POSTROUTING";
/// The base chains of iptables that packets over `lo` traverse.
const BUILT_IN: [&str; 4] = ["PREROUTING", INPUT, "OUTPUT", POSTROUTING];

/// A base chain of another program, or the foreign rules of one that is shared with ours.
#[derive(Debug)]
pub(in crate::foreign) struct BaseChain {
    /// ` (IPv4, iptables-nft): mangle`, or the table of nftables.
    place: String,
    /// The table of the chain, if it is one of iptables.
    table: Option<String>,
    pub(in crate::foreign) chain: String,
    pub(in crate::foreign) kind: Kind,
    /// The rules of the chain before ours and behind them.
    pub(in crate::foreign) parts: Vec<Part>,
    /// The chains that the base chain may jump to.
    pub(in crate::foreign) chains: BTreeMap<String, Vec<LiveRule>>,
}

/// Consecutive rules of a base chain.
#[derive(Debug)]
pub(in crate::foreign) struct Part {
    pub(in crate::foreign) position: Position,
    pub(in crate::foreign) rules: Vec<LiveRule>,
}

impl BaseChain {
    /// A rule of one of its chains, for a message.
    pub(in crate::foreign) fn place(&self, chain: &str, rule: &LiveRule) -> Place {
        let Self { place, table, .. } = self;
        let Some(table) = table else { return Place { words: format!("{place} {chain}"), about: None } };
        let id = RuleId::of(table, chain, rule);
        let words = format!("{place} `{}`", shown(chain, &id.words));
        Place { words, about: Some(Subject::Rule(id)) }
    }
}

/// Where a rule is, in words, and as a value where it is one of iptables.
#[derive(Debug)]
pub(in crate::foreign) struct Place {
    pub(in crate::foreign) words: String,
    pub(in crate::foreign) about: Option<Subject>,
}

/// The base chains that TCP packets of a family traverse.
pub(in crate::foreign) fn base_chains(
    rules: &FamilyRules,
    backend: Backend,
    live: IptablesRules<'_>,
    (tables, links): (&[NftTable], &[Link]),
) -> Vec<BaseChain> {
    let family = rules.family;
    let mut found = Vec::new();
    for (variant, observed) in live.of_family(family) {
        // With the native backend, the tables of iptables-nft are in the dump of nftables.
        if !(variant == Variant::Nft && backend == Backend::Native) {
            found.extend(of_iptables(rules, variant, observed, backend == Backend::Iptables(variant)));
        }
    }
    for table in tables.iter().filter(|table| parse::has_packets_of(&table.name, family)) {
        let ours = handles_of_ours(family, live, table);
        found.extend(of_nftables(family, table, (links, &ours), is_listed(table, backend)));
    }
    found
}

/// The handles of our rules in the shared chains of a table of iptables-nft, which a move to another backend
/// deletes.
fn handles_of_ours(family: Family, live: IptablesRules<'_>, table: &NftTable) -> BTreeSet<u64> {
    let known = Table::ALL.into_iter().find(|known| known.name() == table.name.name);
    let observed = live.rules.get(&(Variant::Nft, family)).filter(|_| is_of_iptables(table));
    let Some((known, observed)) = known.zip(observed) else { return BTreeSet::new() };
    let of_ours = |hook| our_rules(observed, known, hook).into_iter().filter_map(|line| line.handle);
    Hook::ALL.into_iter().flat_map(of_ours).into_set()
}

/// Of two chains with the same priority the kernel does not show which comes first: both sides.
fn positions(stage: Stage, priority: i32) -> Vec<Position> {
    let at = |side| Position { stage, priority, side };
    if priority == MANGLE { vec![at(Side::Before), at(Side::Behind)] } else { vec![at(Side::Before)] }
}

fn of_iptables<'a>(
    wanted: &'a FamilyRules,
    variant: Variant,
    observed: &'a Observed,
    is_ours: bool,
) -> impl Iterator<Item = BaseChain> + 'a {
    let named = Table::ALL.iter().filter_map(|table| Some((*table, observed.tables.get(table)?)));
    let ours = named.map(|(table, live)| (table.name(), Some(table), table.priority(), live));
    // With iptables-nft, these are in the dump of nftables.
    let others = observed.later_tables().map(|(name, priority, live)| (name, None, priority, live));
    let others = others.into_iter().filter(move |_| variant == Variant::Legacy);
    ours.chain(others).flat_map(move |(name, table, priority, live)| {
        let hooks = [(Stage::Output, Hook::Output), (Stage::Prerouting, Hook::Prerouting)];
        let chains = [(Stage::Postrouting, POSTROUTING), (Stage::Input, INPUT)];
        let place = format!(" ({}, {variant}): {name}", observed.family);
        let shown_table = if is_ours { name.to_owned() } else { format!("{variant} {name}") };
        let is_nat = table == Some(Table::Nat);
        let reroutes = table == Some(Table::Mangle);
        let base = move |chain: &str, is_shared, parts| BaseChain {
            place: place.clone(),
            table: Some(shown_table.clone()),
            chain: chain.to_owned(),
            kind: Kind { is_nat, reroutes, is_shared },
            parts,
            chains: live.foreign.clone(),
        };
        let base_of_hook = base.clone();
        let of_hook = hooks.into_iter().map(move |(stage, hook)| {
            let is_shared = is_ours && table == Some(Table::Mangle);
            let of_ours =
                table.map(|table| owned(observed.family, table, hook, live, observed.record.as_ref()));
            let of_ours = of_ours.unwrap_or_default();
            let parts = if is_shared {
                shared(wanted, live, (stage, hook), &of_ours)
            } else {
                // Ours in this variant are deleted.
                let lines = live.hook(hook).iter().enumerate().filter(|(at, _)| !of_ours.contains(at));
                let rules: Vec<LiveRule> = lines.map(|(_, line)| line.live(observed.family)).collect();
                let part = |position| Part { position, rules: rules.clone() };
                positions(stage, priority).into_iter().map(part).collect()
            };
            base_of_hook(hook.name(), is_shared, parts)
        });
        let of_chain = chains.into_iter().map(move |(stage, chain)| {
            // NF_IP_PRI_NAT_SRC.
            let priority = if is_nat { 100 } else { priority };
            let rules = live.foreign.get(chain).cloned().unwrap_or_default();
            let part = Part { position: Position { stage, priority, side: Side::Before }, rules };
            base(chain, false, vec![part])
        });
        of_hook.chain(of_chain).collect::<Vec<_>>()
    })
}

/// The foreign rules before ours in a chain, and those behind.
fn shared(
    wanted: &FamilyRules,
    live: &ObservedTable,
    (stage, hook): (Stage, Hook),
    ours: &BTreeSet<usize>,
) -> Vec<Part> {
    let lines = live.hook(hook);
    let is_jump = |at: &usize| lines.get(*at).is_some_and(|line| is_our_jump(Table::Mangle, hook, line));
    let all = || (0..lines.len()).filter(|at| ours.contains(at) || is_jump(at));
    // In PREROUTING captured packets leave at the jump; other packets continue to the rule that saves their
    // mark.
    let border = if stage == Stage::Output { all().next() } else { all().next_back() };
    let border = border.unwrap_or(lines.len());
    let hooks = wanted.tables.get(&Table::Mangle).and_then(|rules| rules.hooks.get(&hook));
    let is_wanted = |line: &parse::Line| {
        let statement = line.statement.as_ref();
        statement
            .is_some_and(|says| hooks.is_some_and(|rules| rules.iter().any(|rule| rule.statement == *says)))
    };
    let foreign = |at: &usize| !ours.contains(at) && !is_jump(at);
    let part = |side, range: std::ops::Range<usize>| {
        let lines = range.filter(foreign).filter_map(|at| lines.get(at)).filter(|line| !is_wanted(line));
        Part {
            position: Position { stage, priority: MANGLE, side },
            rules: lines.map(|line| line.live(wanted.family)).collect(),
        }
    };
    vec![part(Side::Before, 0..border), part(Side::Behind, border..lines.len())]
}

fn of_nftables(
    family: Family,
    table: &NftTable,
    (links, ours): (&[Link], &BTreeSet<u64>),
    is_listed: bool,
) -> Vec<BaseChain> {
    let beside = parse::RuleContext { sets: &[], links };
    let texts = |chain: &NftChain| -> Vec<LiveRule> {
        let rules =
            chain.rules.iter().filter(|rule| rule.handle.is_none_or(|handle| !ours.contains(&handle)));
        rules.flat_map(|rule| parse::foreign_rules(family, rule, beside)).collect()
    };
    let others = foreign_chains(table).filter(|chain| chain.base.is_none());
    let chains: BTreeMap<String, Vec<LiveRule>> =
        others.map(|chain| (chain.name.clone(), texts(chain))).into_map();
    let of_base = |chain: &NftChain| {
        let base = chain.base.as_ref().filter(|_| !(is_listed && BUILT_IN.contains(&chain.name.as_str())))?;
        let part = |position| Part { position, rules: texts(chain) };
        let parts = positions(stage_of(base)?, base.priority).into_iter().map(part).collect();
        Some(BaseChain {
            place: format!(": {}", table.name),
            table: None,
            chain: chain.name.clone(),
            kind: Kind {
                is_nat: base.kind == ChainKind::Nat,
                reroutes: base.kind == ChainKind::Route,
                is_shared: false,
            },
            parts,
            chains: chains.clone(),
        })
    };
    foreign_chains(table).filter_map(of_base).collect()
}

const fn stage_of(base: &Base) -> Option<Stage> {
    match base.hook {
        NftHook::Output => Some(Stage::Output),
        NftHook::Postrouting => Some(Stage::Postrouting),
        NftHook::Prerouting => Some(Stage::Prerouting),
        NftHook::Input => Some(Stage::Input),
        NftHook::Forward | NftHook::Foreign(_) => None,
    }
}
