//! Handles of nf_tables.

use std::collections::{BTreeMap, BTreeSet};

/// The handles of a table of nf_tables and of what is in it. Rules and chains are numbered together, in the
/// order in which they are added, and no other transaction gets a number between those of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableHandles {
    /// Of the table.
    pub table: u64,
    /// Of its chains.
    pub chains: BTreeSet<u64>,
    /// Of its rules, by chain and in order.
    pub rules: BTreeMap<String, Vec<u64>>,
}

impl TableHandles {
    /// Whether all of it is in the table as it is later.
    #[must_use]
    pub fn are_in(&self, later: &Self) -> bool {
        let has_rules = |(chain, rules): (&String, &Vec<u64>)| {
            later.rules.get(chain).is_some_and(|now| rules.iter().all(|rule| now.contains(rule)))
        };
        self.table == later.table
            && self.chains.iter().all(|chain| later.chains.contains(chain))
            && self.rules.iter().all(has_rules)
    }
}
