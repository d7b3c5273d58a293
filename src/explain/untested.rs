//! What a question leaves open gets a value that no foreign rule names: a client's port or address that one does name is that of few
//! clients, and the answer would be theirs.

use super::rules::{BaseChain, Chains, Entry, Rules};
use crate::parse::matches::{self, Field, FieldMatch};

/// The tests of foreign rules for addresses, ports and users.
#[derive(Clone, Debug, Default)]
pub struct Tested(Vec<FieldMatch>);

impl Tested {
    /// Those of a family's rules.
    #[must_use]
    pub fn by(rules: &Rules) -> Self {
        let read = |(_, entry): (_, &Entry)| matches::read(&entry.text()).unwrap_or_default().known;
        Self(foreign(rules).flat_map(read).collect())
    }

    /// The first of these values that none of the tests of `fields` names; the first one at all if every one is named.
    pub(super) fn untested<T: Copy>(
        &self,
        fields: &[Field],
        candidates: impl Iterator<Item = T> + Clone,
        number: impl Fn(T) -> u128,
    ) -> Option<T> {
        let tests = || self.0.iter().filter(|test| fields.contains(&test.field));
        let is_named = |value: T| tests().any(|test| test.lists(number(value)));
        candidates.clone().find(|value| !is_named(*value)).or_else(|| { candidates }.next())
    }
}

/// The foreign rules, each with its hook; in chains that others jump to there may be several.
pub(super) fn foreign(rules: &Rules) -> impl Iterator<Item = (Option<&'static str>, &Entry)> {
    fn named(chains: &Chains) -> impl Iterator<Item = (Option<&'static str>, &Entry)> {
        chains.named.values().flatten().map(|entry| (None, entry))
    }
    let of_table = |chains| {
        let Chains { hooks, .. }: &Chains = chains;
        let hooks = hooks.iter();
        let hooks = hooks.flat_map(|(hook, rules)| rules.iter().map(|entry| (Some(hook.name()), entry)));
        hooks.chain(named(chains))
    };
    let of_base = |base| {
        let BaseChain { hook, rules, chains, .. }: &BaseChain = base;
        rules.iter().map(|entry| (Some(*hook), entry)).chain(named(chains))
    };
    let beside = rules.before.iter().chain(&rules.later).flat_map(of_base);
    rules.tables.values().flat_map(of_table).chain(beside).filter(|(_, entry)| entry.is_foreign())
}
