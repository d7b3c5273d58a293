//! Changes of nf_tables that are applied together or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::encode::{self, SetIds};
use super::number::{self, Kind};
use super::{Comment, Set, Table, TableName};
use crate::{Attributes, BatchError, Message};

/// The object that a message of a batch is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A table that is created.
    Create(TableName),
    /// A table that is deleted.
    Delete(TableName),
    /// A set, or elements of it.
    Set(TableName, String),
    /// A set, chain or rule that is deleted; its name, or the chain of the rules.
    Deletion(TableName, String),
    /// A chain.
    Chain(TableName, String),
    /// A rule.
    Rule {
        /// The table of the rule.
        table: TableName,
        /// The chain of the rule.
        chain: String,
        /// The place of the rule in the chain, from 0.
        index: usize,
        /// The comment on it.
        comment: Option<Comment>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(table) => write!(f, "table {table}"),
            Self::Delete(table) => write!(f, "deletion of table {table}"),
            Self::Set(table, set) => write!(f, "set {set} of table {table}"),
            Self::Deletion(table, name) => write!(f, "deletion of {name} of table {table}"),
            Self::Chain(table, chain) => write!(f, "chain {chain} of table {table}"),
            Self::Rule { table, chain, index, comment } => {
                write!(f, "rule {} of chain {chain} of table {table}", index + 1)?;
                comment.as_ref().map_or(Ok(()), |comment| write!(f, " ({comment})"))
            }
        }
    }
}

/// A transaction that the kernel refused: nothing of it was applied.
#[derive(Debug)]
pub struct CommitError {
    /// The object at fault; `None` if it was the transaction as a whole.
    pub origin: Option<Box<Origin>>,
    /// The kernel's reply.
    pub error: BatchError,
}

impl CommitError {
    /// The name of the expression at fault: one that the kernel lacks, and cannot load a module for, gives
    /// `ENOENT`.
    #[must_use]
    pub fn expression(&self) -> Option<String> {
        let attributes = Attributes::new(self.error.attribute.as_deref()?);
        let in_rule = matches!(self.origin.as_deref(), Some(Origin::Rule { .. }));
        in_rule.then(|| attributes.of(number::expression::NAME)).flatten().map(|name| name.text())
    }

    /// Whether the rules had changed since the generation that was given: read them again, then try again.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.error.error.raw_os_error() == Some(libc::ERESTART)
    }

    /// Whether the batch does not fit the send buffer. In a user namespace the system's limit holds
    /// (`net.core.wmem_max`).
    #[must_use]
    pub fn is_too_long(&self) -> bool {
        self.error.error.raw_os_error() == Some(libc::EMSGSIZE)
    }
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(origin) => {
                write!(f, "the kernel refused {origin}: {}", self.error.details())?;
                self.expression().map_or(Ok(()), |name| write!(f, ": expression {name}"))
            }
            None => self.error.fmt(f),
        }
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error.error)
    }
}

/// Changes in the order in which the kernel makes them.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    messages: Vec<Message>,
    origins: Vec<Origin>,
    sets: u32,
}

impl Batch {
    /// A batch without changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a table with everything in it. Where the table exists already, everything is added to it.
    pub fn create_table(&mut self, table: &Table) {
        self.push(encode::table(table), Origin::Create(table.name.clone()));
        self.fill_table(table, &BTreeMap::new(), &BTreeSet::new());
    }

    /// The chains, sets and rules of a table, without the chains in `kept` and the sets in `loaded`: those
    /// are there. Whether its rules are there, too, is the value of a chain.
    fn fill_table(&mut self, table: &Table, kept: &BTreeMap<&str, bool>, loaded: &BTreeSet<String>) {
        let name = &table.name;
        // Before the rules that jump to them.
        for chain in table.chains.iter().filter(|chain| !kept.contains_key(chain.name.as_str())) {
            let origin = Origin::Chain(name.clone(), chain.name.clone());
            self.push(encode::chain(table, chain), origin);
        }
        let mut ids = SetIds::default();
        for set in table.sets.iter().filter(|set| !set.anonymous && !loaded.contains(&set.name)) {
            self.create_set(table, set, &mut ids);
        }
        for chain in table.chains.iter().filter(|chain| kept.get(chain.name.as_str()) != Some(&true)) {
            for (index, rule) in chain.rules.iter().enumerate() {
                // The kernel binds an anonymous set to the rule that follows.
                for set in table.sets.iter().filter(|set| set.anonymous && rule.refers_to(&set.name)) {
                    self.create_set(table, set, &mut ids);
                }
                let origin = Origin::Rule {
                    table: name.clone(),
                    chain: chain.name.clone(),
                    index,
                    comment: rule.comment.clone(),
                };
                self.push(encode::rule(table, &chain.name, rule, &ids), origin);
            }
        }
    }

    /// Deletes a table with everything in it, if there is one. A deletion of a table that may be missing is
    /// not tried: a failed transaction costs 7 to 15 ms.
    pub fn delete_table(&mut self, name: &TableName) {
        self.push(encode::table(&Table::new(name.clone())), Origin::Create(name.clone()));
        let mut message = encode::message(Kind::DelTable, name.family, 0);
        message.push_text(number::table::NAME, &name.name);
        self.push(message, Origin::Delete(name.clone()));
    }

    /// Replaces a table with everything in it. For a moment packets meet the base chains of both: see
    /// [`Self::replace_content`].
    pub fn replace_table(&mut self, table: &Table) {
        self.delete_table(&table.name);
        self.create_table(table);
    }

    /// Replaces what is in a table, except for the sets in `loaded`, which exist, and for chains whose rules
    /// are there already. `live` is what the table holds.
    ///
    /// Base chains of the same name and place stay, and get other rules: in one chain a packet meets the
    /// rules of before or those of behind. The kernel takes a base chain that is deleted off its hook after
    /// the new rules are in force, and leaves it its rules until then, so that meanwhile packets meet it
    /// besides the one that takes its place.
    ///
    /// A set of ranges that is not in `loaded` is empty to packets for some microseconds after the
    /// transaction (seen on Linux 6.18): load it with [`Self::load_set`] in a transaction before.
    pub fn replace_content(&mut self, live: &Table, table: &Table, loaded: &BTreeSet<String>) {
        let name = &table.name;
        let mut kept: BTreeMap<&str, bool> = BTreeMap::new();
        for chain in &live.chains {
            let same = table.chains.iter().find(|new| (&new.name, &new.base) == (&chain.name, &chain.base));
            kept.extend(same.map(|new| (new.name.as_str(), chain.has_rules_of(new, loaded))));
        }
        let deletion = |what: &str| Origin::Deletion(name.clone(), what.to_owned());
        let changed = || live.chains.iter().filter(|chain| kept.get(chain.name.as_str()) != Some(&true));
        let deleted = changed().filter(|chain| !kept.contains_key(chain.name.as_str()));
        let of_rules = (Kind::DelRule, number::rule::TABLE, number::rule::CHAIN);
        let of_chain = (Kind::DelChain, number::chain::TABLE, number::chain::NAME);
        let rules = changed().map(|chain| (of_rules, chain));
        for ((kind, in_table, named), chain) in rules.chain(deleted.map(|chain| (of_chain, chain))) {
            let mut message = encode::message(kind, name.family, 0);
            message.push_text(in_table, &name.name);
            message.push_text(named, &chain.name);
            self.push(message, deletion(&chain.name));
        }
        // Anonymous sets go with their rules.
        for set in live.sets.iter().filter(|set| !set.anonymous && !loaded.contains(&set.name)) {
            self.delete_set(name, &set.name);
        }
        self.fill_table(table, &kept, loaded);
    }

    /// Deletes a set that no rule refers to.
    pub fn delete_set(&mut self, table: &TableName, set: &str) {
        let mut message = encode::message(Kind::DelSet, table.family, 0);
        message.push_text(number::set::TABLE, &table.name);
        message.push_text(number::set::NAME, set);
        self.push(message, Origin::Deletion(table.clone(), set.to_owned()));
    }

    /// Creates a named set, and its table where that does not exist, in batches of at most `limit` bytes
    /// each. To be committed one after the other, before any rule refers to the set.
    #[must_use]
    pub fn load_set(table: &TableName, set: &Set, limit: usize) -> Vec<Self> {
        let in_table = Table::new(table.clone());
        let origin = Origin::Set(table.clone(), set.name.clone());
        let mut batch = Self { sets: 1, ..Self::default() };
        batch.push(encode::table(&in_table), Origin::Create(table.clone()));
        batch.push(encode::set(&in_table, set, 1), origin.clone());
        let mut batches = Vec::new();
        for message in encode::elements(&in_table, set, &SetIds::default(), limit / 2) {
            if batch.size() + message.size() + crate::HEADER > limit {
                batches.push(std::mem::take(&mut batch));
            }
            batch.push(message, origin.clone());
        }
        batches.push(batch);
        batches
    }

    /// Number of messages.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether nothing is changed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Size in bytes, without the messages that begin and end it.
    #[must_use]
    pub fn size(&self) -> usize {
        self.messages.iter().map(|message| message.size() + crate::HEADER).sum()
    }

    /// The messages, in order.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The object that the message with this index is about.
    #[must_use]
    pub fn origin(&self, index: usize) -> Option<&Origin> {
        self.origins.get(index)
    }

    fn create_set<'a>(&mut self, table: &Table, set: &'a Set, ids: &mut SetIds<'a>) {
        self.sets += 1;
        ids.insert(set, self.sets);
        let origin = Origin::Set(table.name.clone(), set.name.clone());
        self.push(encode::set(table, set, self.sets), origin.clone());
        for message in encode::elements(table, set, ids, usize::MAX) {
            self.push(message, origin.clone());
        }
    }

    fn push(&mut self, message: Message, origin: Origin) {
        self.messages.push(message);
        self.origins.push(origin);
    }
}
