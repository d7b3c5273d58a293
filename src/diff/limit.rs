//! The live save rules of TPROXY mode, limited to `lo` before another rule set becomes live.

use std::collections::{BTreeMap, BTreeSet};

use super::{Change, Deleted, Deletion, HookChange, TableChange, ownership};
use crate::model::{Hook, HookRules, Rule, Statement, Table, Why};
use crate::parse::{Line, Observed, ObservedTable};
use crate::transition::limited_save_mark;

impl Change {
    /// Limits the live save rules to `lo`, and changes nothing else: see [`crate::transition::Transition`].
    #[must_use]
    pub fn limiting_save_mark(observed: &Observed) -> Self {
        let mangle = observed.tables.get(&Table::Mangle).and_then(limit);
        Self { family: observed.family, tables: mangle.into_iter().collect() }
    }
}

/// One transaction: the limited rules take the place of the others.
fn limit(observed: &ObservedTable) -> Option<TableChange> {
    const HOOK: Hook = Hook::Prerouting;
    let lines = observed.hook(HOOK);
    let ours = ownership::ours(Table::Mangle, observed).of(HOOK);
    let statement = |at: &usize| lines.get(*at).and_then(|line: &Line| line.statement.as_ref());
    let live: Vec<&Statement> = ours.iter().filter_map(statement).collect();
    let everywhere: BTreeSet<usize> = ours
        .iter()
        .copied()
        .filter(|at| statement(at).is_some_and(|s| limited_save_mark(s).is_some()))
        .collect();
    let place = *everywhere.first()?;
    let limited = everywhere.iter().filter_map(|at| limited_save_mark(statement(at)?));
    let missing = limited.filter(|statement| !live.contains(&statement));
    let tail = missing.map(|statement| Rule { statement, only: None, why: Why::SaveMark }).collect();
    let deletions = super::deletions(lines, &everywhere);
    let behind = (place < lines.len() - everywhere.len()).then_some(place);
    Some(TableChange {
        table: Table::Mangle,
        declare: BTreeMap::new(),
        deletions: deletions.into_iter().map(|what: Deleted| Deletion { hook: HOOK, what }).collect(),
        hooks: BTreeMap::from([(HOOK, HookChange { rules: HookRules { head: Vec::new(), tail }, behind })]),
        remove: Vec::new(),
        empty: Vec::new(),
        matched_by_shape: Vec::new(),
    })
}
