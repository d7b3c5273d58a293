//! The base chains in which foreign rules are, as they are examined.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{CapturedTraffic, shown};
use crate::explain::{self, Entry, Holder, Rules};
use crate::finding::{RuleId, Subject};
use crate::live_rules::LiveRule;
use crate::model::{
    Backend, Chain, Family, FamilyRules, Fib, Hook, HookRules, Link, PerFamily, Rule, Table, Target, Variant,
};
use crate::parse::{FORWARD, INPUT, POSTROUTING};

/// Facts of the pod besides its rules.
#[derive(Clone, Copy, Debug)]
pub struct Network<'a> {
    /// The addresses of the pod.
    pub fib: &'a PerFamily<Fib>,
    /// The interfaces of the pod.
    pub links: &'a [Link],
}

/// The rules that packets of a family meet, with what is known of ours among them.
#[derive(Debug)]
pub struct Examined<'a> {
    pub(super) family: Family,
    /// Our rules.
    pub(super) desired: &'a FamilyRules,
    /// What our rules capture.
    pub(super) captured: CapturedTraffic,
    pub(super) backend: Backend,
    pub(super) fib: Option<&'a Fib>,
    pub(super) links: &'a [Link],
    rules: &'a Rules,
}

impl<'a> Examined<'a> {
    /// The families that have rules of ours. `rules` are those that packets meet, ours of `desired` among
    /// them.
    #[must_use]
    pub fn each(
        desired: &'a PerFamily<FamilyRules>,
        rules: &'a PerFamily<Rules>,
        backend: Backend,
        network: Network<'a>,
    ) -> Vec<Self> {
        let of = |(family, desired): (&Family, &'a FamilyRules)| {
            Some(Self {
                family: *family,
                desired,
                captured: CapturedTraffic::of(desired),
                backend,
                fib: network.fib.get(family),
                links: network.links,
                rules: rules.get(family).filter(|_| desired.count() > 0)?,
            })
        };
        desired.iter().filter_map(of).collect()
    }

    /// The base chains with foreign rules or policies, those of forwarded packets last.
    pub(super) fn chains(&self) -> Vec<BaseChain<'a>> {
        let mut chains = Vec::new();
        if let Some(variant) = self.backend.variant() {
            for (table, chains_of) in &self.rules.tables {
                let of_hook = |(hook, rules): (&Hook, &'a Vec<Entry>)| BaseChain {
                    holder: Holder::Iptables(variant, table.name()),
                    table: table.name(),
                    chain: hook.name(),
                    stage: Stage::of(hook.name()),
                    priority: table.priority(),
                    is_nat: *table == Table::Nat,
                    reroutes: *table == Table::Mangle,
                    drops: chains_of.drops.contains(hook),
                    shared: Some((*table, *hook)),
                    rules,
                    named: &chains_of.named,
                };
                chains.extend(chains_of.hooks.iter().map(of_hook));
            }
        }
        let Rules { before, later, forward, .. } = self.rules;
        chains.extend(before.iter().chain(later).chain(forward).map(BaseChain::from));
        chains
    }

    /// The rules of ours in a hook of a table.
    pub(super) fn hook_rules(&self, table: Table, hook: Hook) -> impl Iterator<Item = &Rule> {
        let rules = self.desired.tables.get(&table).and_then(|rules| rules.hooks.get(&hook));
        rules.into_iter().flat_map(HookRules::iter)
    }

    /// Whether rules of ours take packets there.
    pub(super) fn captures(&self, table: Table, hook: Hook) -> bool {
        let jumps =
            |rule: &Rule| matches!(rule.statement.target, Target::Jump(chain) if chain != Chain::Drop);
        self.hook_rules(table, hook).any(jumps)
    }

    /// The foreign rules among some of a base chain, with their places. One that is equal to a rule of ours
    /// is taken for that.
    pub(super) fn foreign<'r>(
        &self,
        base: &BaseChain<'_>,
        rules: &'r [Entry],
    ) -> impl Iterator<Item = (usize, &'r Entry)> {
        let shared = base.shared;
        let is_wanted = move |entry: &Entry| {
            let mut ours = shared.into_iter().flat_map(|(table, hook)| self.hook_rules(table, hook));
            entry.statement().is_some_and(|says| ours.any(|rule| rule.statement == *says))
        };
        let is_foreign = move |entry: &Entry| entry.is_foreign() && !entry.is_leftover && !is_wanted(entry);
        rules.iter().enumerate().filter(move |(_, entry)| is_foreign(entry))
    }
}

/// A base chain of another program, or one that is shared with ours.
#[derive(Clone, Debug)]
pub(super) struct BaseChain<'a> {
    pub(super) holder: Holder,
    /// The table, as findings name it.
    pub(super) table: &'a str,
    pub(super) chain: &'a str,
    pub(super) stage: Stage,
    pub(super) priority: i32,
    /// Whether only the first packet of a connection traverses it.
    pub(super) is_nat: bool,
    /// Whether outgoing packets are routed again behind it if their mark has changed.
    pub(super) reroutes: bool,
    /// Whether its policy is to drop.
    pub(super) drops: bool,
    /// The table and the hook, where our backend has its rules.
    pub(super) shared: Option<(Table, Hook)>,
    pub(super) rules: &'a [Entry],
    named: &'a BTreeMap<String, Vec<Entry>>,
}

impl<'a> From<&'a explain::BaseChain> for BaseChain<'a> {
    fn from(base: &'a explain::BaseChain) -> Self {
        Self {
            holder: base.holder,
            table: &base.table,
            chain: &base.chain,
            stage: Stage::of(base.hook),
            priority: base.priority,
            is_nat: base.is_nat,
            reroutes: base.reroutes,
            drops: base.drops,
            shared: None,
            rules: &base.rules,
            named: &base.chains.named,
        }
    }
}

impl<'a> BaseChain<'a> {
    /// The rules before ours and those behind them. In PREROUTING of mangle captured packets leave at the
    /// jump; other packets continue to the rule that saves their mark.
    pub(super) fn around_ours(&self) -> (&'a [Entry], &'a [Entry]) {
        let is_ours = |entry: &Entry| !entry.is_foreign();
        let first = || self.rules.iter().position(is_ours);
        let border = if self.stage == Stage::Output { first() } else { self.rules.iter().rposition(is_ours) };
        self.rules.split_at(border.unwrap_or(self.rules.len()))
    }

    /// The rules of a chain that it may jump to, if that is none of ours.
    pub(super) fn named(&self, name: &str) -> Option<(&'a str, &'a [Entry])> {
        let (name, rules) = self.named.get_key_value(name)?;
        (!self.is_ours(name)).then_some((name.as_str(), rules.as_slice()))
    }

    fn is_ours(&self, chain: &str) -> bool {
        self.holder.may_have_ours() && Chain::from_name(chain).is_some()
    }

    /// The rules of all chains of its table that are none of ours.
    pub(super) fn all_named(&self) -> impl Iterator<Item = (&'a str, &'a [Entry])> {
        let foreign = self.named.iter().filter(|(name, _)| !self.is_ours(name));
        foreign.map(|(name, rules)| (name.as_str(), rules.as_slice()))
    }

    /// Whether our rules about marks are in it.
    pub(super) const fn has_our_marks(&self) -> bool {
        matches!(self.shared, Some((Table::Mangle, _)))
    }

    /// The variant of iptables that holds it, and the table's name there. The tables of iptables-nft in which
    /// none of ours are may have been read as those of nftables.
    pub(super) fn of_iptables(&self) -> Option<(Variant, &'static str)> {
        match self.holder {
            Holder::Iptables(Variant::Nft, table) if Table::ALL.iter().all(|ours| ours.name() != table) => {
                None
            }
            Holder::Iptables(variant, table) => Some((variant, table)),
            Holder::Nftables(_) => None,
        }
    }

    /// The table, as nftables names it, if it is not examined as one of iptables.
    pub(super) fn of_nftables(&self, family: Family) -> Option<Cow<'a, str>> {
        let of_family = if family == Family::V4 { "ip" } else { "ip6" };
        match self.holder {
            Holder::Nftables(_) => Some(Cow::Borrowed(self.table)),
            Holder::Iptables(_, table) if self.of_iptables().is_none() => {
                Some(Cow::Owned(format!("{of_family} {table}")))
            }
            Holder::Iptables(..) => None,
        }
    }

    /// A rule of one of its chains, for a message.
    pub(super) fn place(&self, family: Family, chain: &str, rule: &LiveRule) -> Place {
        let Some((variant, table)) = self.of_iptables() else {
            let table = self.of_nftables(family).unwrap_or_default();
            return Place { words: format!(": {table} {chain}"), about: None };
        };
        let id = RuleId::of(self.table, chain, rule);
        let words = format!(" ({family}, {variant}): {table} `{}`", shown(chain, &id.words));
        Place { words, about: Some(Subject::Rule(id)) }
    }
}

/// Where a rule is, in words, and as a value where it is one of iptables.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) words: String,
    pub(super) about: Option<Subject>,
}

/// The hooks that a packet traverses over `lo`, in order; and that of forwarded packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Output,
    Postrouting,
    Prerouting,
    Input,
    Forward,
}

impl Stage {
    /// The hooks in which the way of a packet is chosen already.
    pub(super) const ROUTED: [Self; 3] = [Self::Input, Self::Forward, Self::Postrouting];

    fn of(hook: &str) -> Self {
        match hook {
            INPUT => Self::Input,
            POSTROUTING => Self::Postrouting,
            FORWARD => Self::Forward,
            _ if hook == Hook::Output.name() => Self::Output,
            _ => Self::Prerouting,
        }
    }

    /// The hook, if rules of ours may be in it.
    pub(super) const fn hook(self) -> Option<Hook> {
        match self {
            Self::Output => Some(Hook::Output),
            Self::Prerouting => Some(Hook::Prerouting),
            Self::Input | Self::Postrouting | Self::Forward => None,
        }
    }

    /// Whether what is met there leaves the pod, or the process.
    pub(super) const fn is_sent(self) -> bool {
        matches!(self, Self::Output | Self::Postrouting)
    }

    /// The chain of iptables at the hook.
    pub(super) const fn chain(self) -> &'static str {
        match self {
            Self::Output => Hook::Output.name(),
            Self::Postrouting => POSTROUTING,
            Self::Prerouting => Hook::Prerouting.name(),
            Self::Input => INPUT,
            Self::Forward => FORWARD,
        }
    }

    /// The name of the hook in nftables.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Postrouting => "postrouting",
            Self::Prerouting => "prerouting",
            Self::Input => "input",
            Self::Forward => "forward",
        }
    }
}
