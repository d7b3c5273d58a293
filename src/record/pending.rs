//! Rules that are deleted by handle: what a run that is killed before it does so leaves to the next one.

use super::digest;
use crate::model::{Family, Hook, Table};

/// Consecutive rules of iptables-nft in a shared chain that are deleted by handle, since identical foreign ones are before
/// them. The rest of their table is written first, and nothing of the same transaction is left then to tell them by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PendingDeletion {
    /// Their family.
    pub family: Family,
    /// Their table.
    pub table: Table,
    /// Their chain.
    pub hook: Hook,
    /// The handle of the first one. No other rule of the table ever gets it.
    pub first: u64,
    /// How many rules; their handles follow each other.
    pub count: usize,
    /// Digest of the rules by handle, in case that the table has been deleted and made again.
    pub digest: u32,
}

impl PendingDeletion {
    /// Those of one chain, from the handles of the rules and the hashes of their statements.
    pub(crate) fn of(
        (family, table, hook): (Family, Table, Hook),
        mut rules: Vec<(u64, u32)>,
    ) -> impl Iterator<Item = Self> {
        rules.sort_unstable();
        let runs: Vec<Self> = rules
            .chunk_by(|(one, _), (next, _)| one + 1 == *next)
            .filter_map(|run| {
                let (first, _) = *run.first()?;
                let digest = digest(run.iter().map(|(_, hash)| *hash));
                Some(Self { family, table, hook, first, count: run.len(), digest })
            })
            .collect();
        runs.into_iter()
    }

    /// Whether these rules, by handle, are all of those that are to be deleted.
    pub(crate) fn is(&self, rules: &[(u64, u32)]) -> bool {
        rules.len() == self.count && digest(rules.iter().map(|(_, hash)| *hash)) == self.digest
    }

    /// Whether it speaks of a rule with this handle.
    #[must_use]
    pub fn has(&self, handle: u64) -> bool {
        let past = u64::try_from(self.count).ok().and_then(|count| self.first.checked_add(count));
        (self.first..past.unwrap_or(u64::MAX)).contains(&handle)
    }
}
