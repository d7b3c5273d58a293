//! Chains of ours that are not as a run leaves them, because another program has removed or moved rules.

use std::collections::BTreeSet;
use std::fmt;

use super::entry::Entry;
use super::rules::Rules;
use crate::model::{Chain, FamilyRules, HookRules, Rule, Table, Target};
use crate::ordered::Ordered as _;

/// A chain of ours that is not as a run leaves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenChain {
    table: Table,
    chain: Chain,
    damage: Damage,
}

/// What is wrong with a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    NoJump,
    Empty,
    Incomplete,
}

impl Damage {
    /// As it stands before the name of the chain.
    const fn words(self) -> &'static str {
        match self {
            Self::NoJump => "no rule jumps to",
            Self::Empty => "no rule is in",
            Self::Incomplete => "rules are missing or out of order in",
        }
    }
}

/// Several of them, in one line.
pub(super) struct Listed<'a>(pub(super) &'a [BrokenChain]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = None;
        for BrokenChain { table, chain, damage } in self.0 {
            if before.is_some() {
                f.write_str(", ")?;
            }
            if before.replace((table, damage)) != Some((table, damage)) {
                write!(f, "{} {} ", damage.words(), table.name())?;
            }
            f.write_str(chain.name())?;
        }
        Ok(())
    }
}

impl BrokenChain {
    /// A chain that no rule jumps to.
    #[must_use]
    pub const fn without_jump(table: Table, chain: Chain) -> Self {
        Self { table, chain, damage: Damage::NoJump }
    }

    /// Whether both are about the same chain.
    pub(super) fn is_about_chain_of(&self, other: &Self) -> bool {
        (self.table, self.chain) == (other.table, other.chain)
    }

    /// Whether the chain is of a table that captures; those of `raw` are for the zones of DNS.
    pub(super) fn is_of_capture(&self) -> bool {
        self.table != Table::Raw
    }

    /// The chains in which live rules of ours are not those that a configuration makes. Rules that it does
    /// not make are none of these.
    #[must_use]
    pub fn all_of(live: &FamilyRules, wanted: &FamilyRules) -> Vec<Self> {
        let mut broken = Vec::new();
        for (table, wanted) in &wanted.tables {
            let live = live.tables.get(table);
            let jumps = live.into_iter().flat_map(|live| live.rules()).filter_map(jump).into_set();
            let wanted_jumps = wanted.hooks.values().flat_map(HookRules::iter).filter_map(jump);
            broken.extend(
                wanted_jumps
                    .filter(|chain| !jumps.contains(chain))
                    .map(|chain| Self::without_jump(*table, chain)),
            );
            for (chain, wanted) in &wanted.chains {
                let rules = live.and_then(|live| live.chains.get(chain)).map_or(&[][..], Vec::as_slice);
                if !has_in_order(rules, wanted) {
                    let damage = if rules.is_empty() { Damage::Empty } else { Damage::Incomplete };
                    broken.push(Self { table: *table, chain: *chain, damage });
                }
            }
        }
        broken
    }
}

fn jump(rule: &Rule) -> Option<Chain> {
    if let Target::Jump(chain) = rule.statement.target { Some(chain) } else { None }
}

/// Whether `live` has all of `wanted` in their order, whatever is between them.
fn has_in_order(live: &[Rule], wanted: &[Rule]) -> bool {
    let mut live = live.iter();
    wanted.iter().all(|wanted| live.any(|live| live.statement == wanted.statement))
}

impl Rules {
    /// Chains of ours that no rule jumps to, or that something jumps to and that are empty: another program
    /// has removed rules. No rule jumps to the chain that keeps translation.
    #[must_use]
    pub fn broken_chains(&self) -> Vec<BrokenChain> {
        let mut broken = Vec::new();
        for (table, chains) in &self.tables {
            let rules = chains.hooks.values().chain(chains.named.values()).flatten();
            let targets: BTreeSet<Chain> = rules.filter_map(Entry::jump).into_set();
            for (name, rules) in &chains.named {
                let Some(chain) = Chain::from_name(name).filter(|chain| *chain != Chain::Established) else {
                    continue;
                };
                let damage = match (targets.contains(&chain), rules.is_empty()) {
                    (false, false) => Damage::NoJump,
                    (true, true) => Damage::Empty,
                    (true, false) | (false, true) => continue,
                };
                broken.push(BrokenChain { table: *table, chain, damage });
            }
        }
        broken
    }
}
