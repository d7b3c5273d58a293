//! The changes in shared chains, in the form of the record.

use std::collections::BTreeSet;

use super::Change;
use crate::model::{FamilyRules, Variant};
use crate::record::{Record, blocks_of};

impl Record {
    /// What is to be recorded for these rules. `changes` say which foreign rules are in their chains.
    #[must_use]
    pub fn of<'a>(
        rules: impl IntoIterator<Item = &'a FamilyRules>,
        changes: &[Change],
        passthrough: bool,
        variant: Variant,
    ) -> Self {
        let mut blocks = BTreeSet::new();
        for rules in rules {
            for (table, hook, hooks) in rules.tables.iter().flat_map(|(table, rules)| {
                rules.hooks.iter().map(move |(hook, hooks)| (*table, *hook, hooks))
            }) {
                let change = changes.iter().find(|change| change.family == rules.family);
                let foreign = change.and_then(|change| change.foreign_rules(table, hook));
                blocks.extend(blocks_of(variant, rules.family, (table, hook), hooks, foreign));
            }
        }
        Self::of_blocks([variant].into(), blocks, passthrough)
    }
}
