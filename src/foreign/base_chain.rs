//! The base chains in which foreign rules are, as they are examined.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use super::{CapturedTraffic, shown};
use crate::explain::{self, Entry, Holder, Rules, Stage, Step};
use crate::finding::{Finding, RuleId, Subject};
use crate::live_rules::LiveRule;
use crate::model::{
    Backend, Chain, Family, FamilyRules, Fib, Hook, HookRules, Link, PerFamily, Rule, Table, Target, Variant,
};

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
    pub(super) rules: &'a Rules,
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
            let is_marked =
                |rules: &Rules| rules.foreign().iter().any(|(_, entry)| entry.rule.effect().may_mark());
            Some(Self {
                family: *family,
                desired,
                captured: CapturedTraffic::of(desired, rules.get(family).is_some_and(is_marked)),
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
                    stage: (*hook).into(),
                    priority: table.priority(),
                    is_nat: *table == Table::Nat,
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

    /// The base chain in which a rule was met, or from which a packet came to it.
    pub(super) fn base_of(&self, step: &Step<'_>) -> Option<BaseChain<'a>> {
        let is_in = |base: &BaseChain<'_>| (base.stage.chain(), base.table) == (step.hook, step.table);
        self.chains().into_iter().find(is_in)
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

    /// The foreign rules among some of a base chain, with their places.
    pub(super) fn foreign<'r>(
        &self,
        base: &BaseChain<'_>,
        rules: &'r [Entry],
    ) -> impl Iterator<Item = (usize, &'r Entry)> {
        rules.iter().enumerate().filter(|(_, entry)| self.is_foreign(base, entry))
    }

    /// Whether a rule of a base chain is foreign. One that is equal to a rule of ours is taken for that.
    pub(super) fn is_foreign(&self, base: &BaseChain<'_>, entry: &Entry) -> bool {
        let mut ours = base.shared.into_iter().flat_map(|(table, hook)| self.hook_rules(table, hook));
        let mut is_wanted = || entry.statement().is_some_and(|says| ours.any(|rule| rule.statement == *says));
        entry.is_foreign() && !entry.is_leftover && !is_wanted()
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
            stage: base.stage,
            priority: base.priority,
            is_nat: base.is_nat,
            drops: base.drops,
            shared: None,
            rules: &base.rules,
            named: &base.chains.named,
        }
    }
}

impl<'a> BaseChain<'a> {
    /// The rules of a chain that it may jump to, if that is none of ours.
    pub(super) fn named(&self, name: &str) -> Option<(&'a str, &'a [Entry])> {
        let (name, rules) = self.named.get_key_value(name)?;
        (!self.is_ours(name)).then_some((name.as_str(), rules.as_slice()))
    }

    pub(super) fn is_ours(&self, chain: &str) -> bool {
        self.holder.may_have_ours() && Chain::from_name(chain).is_some()
    }

    /// The rules of all chains of its table that are none of ours.
    pub(super) fn all_named(&self) -> impl Iterator<Item = (&'a str, &'a [Entry])> {
        let foreign = self.named.iter().filter(|(name, _)| !self.is_ours(name));
        foreign.map(|(name, rules)| (name.as_str(), rules.as_slice()))
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
        match self.of_iptables() {
            Some((variant, table)) => {
                Place::Iptables { family, variant, table, rule: RuleId::of(self.table, chain, rule) }
            }
            None => {
                let table = self.of_nftables(family).unwrap_or_default().into_owned();
                Place::Nftables { table, chain: chain.to_owned() }
            }
        }
    }
}

/// Where a rule is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Iptables {
        family: Family,
        variant: Variant,
        table: &'static str,
        rule: RuleId,
    },
    /// One of the rules of this chain.
    Nftables {
        table: String,
        chain: String,
    },
}

impl Place {
    /// The finding, about the rule if that is known.
    pub(super) fn about(self, finding: Finding) -> Finding {
        match self {
            Self::Iptables { rule, .. } => finding.about([Subject::Rule(rule)]),
            Self::Nftables { .. } => finding,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iptables { family, variant, table, rule } => {
                write!(f, " ({family}, {variant}): {table} `{}`", shown(&rule.chain, &rule.words))
            }
            Self::Nftables { table, chain } => write!(f, ": {table} {chain}"),
        }
    }
}
