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
