//! Rules as data, with the semantics of iptables.
//!
//! Everything that prints, applies, compares or explains rules is a function over these types. A chain is an
//! enum variant, so a misspelt or undeclared chain cannot exist. A dual-stack rule is written once: what
//! differs between the families is an [`Address::Pair`], and [`Ruleset::resolve`] picks one side.

mod chain;
mod constants;
mod device_hook;
mod family;
mod fib;
mod handles;
mod interface;
mod link;
mod matcher;
mod network;
mod per_family;
mod port;
mod target;
mod variant;
mod why;

use std::collections::BTreeMap;

use ipnetwork::IpNetwork;

pub use chain::{Chain, Hook, Table};
pub use constants::*;
pub use device_hook::DeviceHook;
pub use family::{Families, Family};
pub use fib::{
    DEFAULT_TABLE, Fib, FibRoute, IdRange, LOCAL_TABLE, MAIN_TABLE, PolicyAction, PolicyRule, RouteKind,
    SourceAddress,
};
pub use handles::TableHandles;
pub use interface::{Interface, InterfaceError};
pub use link::{Link, LinkKind, Links, SourceValidation};
pub use matcher::{Address, CtState, Mark, Match, Matcher, Owner, Protocol, Syn, Transport};
pub use network::{InterfaceAddress, Network};
pub use per_family::PerFamily;
pub use port::{Port, PortError, Ports};
pub use target::Target;
pub use variant::{Backend, NfTables, Tools, Variant};
pub use why::Why;

/// A rule without its reason: the part that the kernel knows. Equal statements have the same effect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Statement<A = IpNetwork> {
    /// Which packets.
    pub matcher: Matcher<A>,
    /// The target.
    pub target: Target,
}

/// A statement and the reason it exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule<A = IpNetwork> {
    /// Which packets, and what happens to them.
    pub statement: Statement<A>,
    /// The only family of the rule, where its addresses do not imply it.
    pub only: Option<Family>,
    /// Why the rule exists.
    pub why: Why,
}

impl Rule<Address> {
    /// The rule as one family has it; `None` if that family does not have it.
    fn resolve(&self, family: Family) -> Option<Rule> {
        if self.only.is_some_and(|only| only != family) {
            return None;
        }
        let Statement { matcher, target } = &self.statement;
        let statement = Statement { matcher: matcher.resolve(family)?, target: *target };
        Some(Rule { statement, only: self.only, why: self.why })
    }
}

/// Our rules in one built-in chain, around the foreign ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookRules<A = IpNetwork> {
    /// Put before what is there, in the order in which a packet sees them.
    pub head: Vec<Rule<A>>,
    /// Put behind what is there, in the order in which a packet sees them.
    pub tail: Vec<Rule<A>>,
}

impl<A> HookRules<A> {
    /// All our rules in the order in which a packet sees them.
    pub fn iter(&self) -> impl Iterator<Item = &Rule<A>> {
        self.head.iter().chain(&self.tail)
    }
}

impl<A> Default for HookRules<A> {
    fn default() -> Self {
        Self { head: Vec::new(), tail: Vec::new() }
    }
}

/// Our part of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableRules<A = IpNetwork> {
    /// Our rules in the shared chains.
    pub hooks: BTreeMap<Hook, HookRules<A>>,
    /// Our own chains with their rules in order. A chain may be empty.
    pub chains: BTreeMap<Chain, Vec<Rule<A>>>,
}

impl<A> TableRules<A> {
    /// Every rule of ours, hook chains first.
    pub fn rules(&self) -> impl Iterator<Item = &Rule<A>> {
        self.hooks.values().flat_map(HookRules::iter).chain(self.chains.values().flatten())
    }

    /// Whether nothing of ours is in the table.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chains.is_empty() && self.rules().next().is_none()
    }
}

impl<A> Default for TableRules<A> {
    fn default() -> Self {
        Self { hooks: BTreeMap::new(), chains: BTreeMap::new() }
    }
}

/// The rules of one family, with its own addresses filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyRules {
    /// Whose rules these are.
    pub family: Family,
    /// Our part of each table that has one.
    pub tables: BTreeMap<Table, TableRules>,
}

impl FamilyRules {
    /// No rules: the goal of a clean-up.
    #[must_use]
    pub const fn none(family: Family) -> Self {
        Self { family, tables: BTreeMap::new() }
    }

    /// The number of rules.
    #[must_use]
    pub fn count(&self) -> usize {
        self.tables.values().map(|table| table.rules().count()).sum()
    }
}

/// All desired rules, for all families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ruleset {
    /// The families that get rules.
    pub families: Families,
    /// Our part of each table.
    pub tables: BTreeMap<Table, TableRules<Address>>,
}

impl Ruleset {
    /// A rule set without rules.
    #[must_use]
    pub const fn new(families: Families) -> Self {
        Self { families, tables: BTreeMap::new() }
    }

    /// Adds `rule` at the end of one of our chains.
    pub fn append(&mut self, table: Table, chain: Chain, rule: Rule<Address>) {
        self.table(table).chains.entry(chain).or_default().push(rule);
    }

    /// Appends `rule` to a shared chain.
    pub fn hook_tail(&mut self, table: Table, hook: Hook, rule: Rule<Address>) {
        self.table(table).hooks.entry(hook).or_default().tail.push(rule);
    }

    /// Puts each of `rules` before everything in a shared chain, also before what was put there earlier: the
    /// last one is the first that a packet sees.
    pub fn hook_heads(&mut self, table: Table, hook: Hook, rules: Vec<Rule<Address>>) {
        if !rules.is_empty() {
            self.table(table).hooks.entry(hook).or_default().head.splice(0..0, rules.into_iter().rev());
        }
    }

    fn table(&mut self, table: Table) -> &mut TableRules<Address> {
        self.tables.entry(table).or_default()
    }

    /// The rules of one family. A chain exists there if it has rules there, or if something jumps to it.
    #[must_use]
    pub fn resolve(&self, family: Family) -> FamilyRules {
        let mut resolved = FamilyRules::none(family);
        if !self.families.contains(family) {
            return resolved;
        }
        for (table, rules) in &self.tables {
            let rules = resolve_table(rules, family);
            if !rules.is_empty() {
                resolved.tables.insert(*table, rules);
            }
        }
        resolved
    }
}

fn resolve_table(rules: &TableRules<Address>, family: Family) -> TableRules {
    let all = |rules: &[Rule<Address>]| -> Vec<Rule> {
        rules.iter().filter_map(|rule| rule.resolve(family)).collect()
    };
    let mut table = TableRules::default();
    for (hook, HookRules { head, tail }) in &rules.hooks {
        let resolved = HookRules { head: all(head), tail: all(tail) };
        if resolved.iter().next().is_some() {
            table.hooks.insert(*hook, resolved);
        }
    }
    for (chain, rules) in &rules.chains {
        let resolved = all(rules);
        if !resolved.is_empty() {
            table.chains.insert(*chain, resolved);
        }
    }
    let jumped: Vec<Chain> = table.rules().filter_map(|rule| rule.statement.target.jump()).collect();
    for chain in jumped {
        table.chains.entry(chain).or_default();
    }
    table
}
