//! A change: what is declared, deleted and put in, table by table.

use crate::text::shell_words;
use std::collections::BTreeMap;
use std::fmt;

use crate::model::{Chain, Family, Hook, HookRules, Rule, Table, Variant};
use crate::record::{self, Block, Part};

/// A rule to delete from a shared chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The chain that holds it.
    pub hook: Hook,
    /// How it is named.
    pub what: Deleted,
    /// Whether it jumps to a chain of ours. Any other rule may get an identical foreign one before it at any
    /// time.
    pub jumps: bool,
}

/// How a rule to be deleted is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// By its place, counted from 1, where an identical foreign rule is before it. The caller must make sure
    /// that the chain has not changed since it was read.
    Number(usize),
    /// By its rule specification: deletes the first rule that has these words.
    Specification(String),
}

/// A rule to delete by its handle, because an identical foreign rule is before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleByHandle {
    /// The chain of the rule.
    pub hook: Hook,
    /// The handle of the rule.
    pub handle: u64,
    /// The words of the rule.
    pub text: String,
}

impl fmt::Display for Deleted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Specification(words) => f.write_str(words),
        }
    }
}

/// A rule in a shared chain that may be ours or foreign.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ambiguous {
    /// The table of the rule.
    pub table: Table,
    /// The chain of the rule.
    pub hook: Hook,
    /// The words of the rule.
    pub text: String,
    /// Digest of its statement.
    pub digest: u32,
    /// How many identical rules of the chain may be ours or foreign, itself among them.
    pub identical: usize,
}

impl Ambiguous {
    /// The command that deletes it, or the first one of several identical ones.
    #[must_use]
    pub fn deletion(&self, variant: Variant, family: Family) -> String {
        let (table, hook) = (self.table.name(), self.hook.name());
        format!("{} -t {table} -D {hook} {}", variant.tool(family), shell_words(&self.text))
    }

    /// What the record says of it.
    #[must_use]
    pub fn block(&self, variant: Variant, family: Family) -> Block {
        Block {
            variant,
            family,
            table: self.table,
            hook: self.hook,
            part: Part::Tail,
            behind_jump: false,
            count: self.identical,
            digest: self.digest,
            at: None,
        }
    }
}

impl fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.table.name(), self.hook.name(), self.text)
    }
}

/// The changes of one table, in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableChange {
    /// The table.
    pub table: Table,
    /// Chains that are made or refilled.
    pub declare: BTreeMap<Chain, Vec<Rule>>,
    /// Rules that are appended to chains which an earlier commit has declared.
    pub append: Vec<(Chain, Rule)>,
    /// Whether INPUT and POSTROUTING are declared: the tool creates only base chains with rules or a policy.
    pub declare_reply_chains: bool,
    /// Rules that leave the shared chains.
    pub deletions: Vec<Deletion>,
    /// Rules that are put into the shared chains.
    pub hooks: BTreeMap<Hook, HookChange>,
    /// Chains that are emptied and deleted.
    pub remove: Vec<Chain>,
    /// Chains that are emptied only, since a foreign rule jumps to them.
    pub empty: Vec<Chain>,
    /// Rules to delete by handle, after the rules file: each has an identical foreign rule before it.
    pub by_handle: Vec<RuleByHandle>,
    /// What may be ours or foreign, is not asked for, and stays.
    pub ambiguous: Vec<Ambiguous>,
    /// Whether rules are deleted in a shared chain that the tool cannot list: by handle, and before our
    /// chains, to which they may jump.
    pub unlisted: bool,
}

impl TableChange {
    /// No change of this table.
    pub(crate) const fn of(table: Table) -> Self {
        Self {
            table,
            declare: BTreeMap::new(),
            append: Vec::new(),
            declare_reply_chains: false,
            deletions: Vec::new(),
            hooks: BTreeMap::new(),
            remove: Vec::new(),
            empty: Vec::new(),
            by_handle: Vec::new(),
            ambiguous: Vec::new(),
            unlisted: false,
        }
    }

    /// What the restore tool does, and what it does after rules have been deleted by handle.
    pub(crate) fn around_deletion(&self) -> [Self; 2] {
        let none = Self { by_handle: Vec::new(), ..self.clone() };
        if !self.unlisted {
            return [none, Self::of(self.table)];
        }
        let after = Self { remove: self.remove.clone(), empty: self.empty.clone(), ..Self::of(self.table) };
        [Self { remove: Vec::new(), empty: Vec::new(), ..none }, after]
    }

    /// The rules that it adds to our chains and to the shared ones.
    pub(crate) fn added_rules(&self) -> impl Iterator<Item = &Rule> {
        let hooks = self.hooks.values().flat_map(|hook| hook.rules.iter());
        self.declare.values().flatten().chain(self.append.iter().map(|(_, rule)| rule)).chain(hooks)
    }

    /// Whether the restore tool has something to do.
    pub(crate) fn needs_restore(&self) -> bool {
        !Self { by_handle: Vec::new(), ..self.clone() }.writes_nothing()
    }

    /// Whether nothing is written.
    pub(super) fn writes_nothing(&self) -> bool {
        let Self {
            table: _,
            declare,
            append,
            declare_reply_chains: _,
            deletions,
            hooks,
            remove,
            empty,
            by_handle,
            ambiguous: _,
            unlisted: _,
        } = self;
        declare.is_empty()
            && append.is_empty()
            && deletions.is_empty()
            && hooks.is_empty()
            && remove.is_empty()
            && empty.is_empty()
            && by_handle.is_empty()
    }
}

/// The changes of a shared chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookChange {
    /// The rules.
    pub rules: HookRules,
    /// Behind how many of the remaining rules those of the tail are inserted, where ours were before; `None`
    /// for all of them. Foreign rules added behind ours stay behind ours: an ACCEPT there did no harm before.
    pub behind: Option<usize>,
    /// Hashes of the rules that stay in the chain, in order.
    pub foreign: Vec<u32>,
    /// How many rules of ours before that place are deleted only afterwards, by handle.
    pub leaving: usize,
}

/// The changes of one family: its tables in the order in which they are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whose tables.
    pub family: Family,
    /// One transaction each.
    pub tables: Vec<TableChange>,
    /// What may be ours or foreign, is not asked for, and stays.
    pub ambiguous: Vec<Ambiguous>,
}

impl Change {
    /// No change.
    #[must_use]
    pub const fn empty(family: Family) -> Self {
        Self { family, tables: Vec::new(), ambiguous: Vec::new() }
    }

    /// Whether a table is written to.
    #[must_use]
    pub fn writes(&self, table: Table) -> bool {
        self.tables.iter().any(|change| change.table == table)
    }

    /// Takes out what it changes of this table.
    #[must_use]
    pub fn take(&mut self, table: Table) -> Self {
        let taken = self.tables.extract_if(.., |change| change.table == table).collect();
        Self { tables: taken, ..Self::empty(self.family) }
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The foreign rules of a shared chain; `None` if that chain is not written.
    #[must_use]
    pub fn foreign_rules(&self, table: Table, hook: Hook) -> Option<record::ForeignRules<'_>> {
        let change = self.tables.iter().find(|change| change.table == table)?.hooks.get(&hook)?;
        let HookChange { rules: _, behind, foreign, leaving: _ } = change;
        Some(record::ForeignRules { hashes: foreign, before: behind.unwrap_or(foreign.len()) })
    }

    /// Whether it deletes a rule by its place, which another program may shift.
    #[must_use]
    pub fn depends_on_positions(&self) -> bool {
        let by_number = |deletion: &Deletion| matches!(deletion.what, Deleted::Number(_));
        self.tables.iter().flat_map(|table| &table.deletions).any(by_number)
    }

    /// Whether it deletes a rule that another program may write as well, and put before ours meanwhile.
    #[must_use]
    pub fn may_match_foreign_rule(&self) -> bool {
        self.tables.iter().flat_map(|table| &table.deletions).any(|deletion| !deletion.jumps)
    }
}
