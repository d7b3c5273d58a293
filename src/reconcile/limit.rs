//! The live save rules of TPROXY mode, limited to `lo` before another rule set becomes live.

use std::collections::BTreeSet;

use super::{Change, HookChange, TableChange, ownership};
use crate::model::{Family, Hook, HookRules, Interface, Matcher, Rule, Statement, Table, Target, Why};
use crate::ordered::Ordered as _;
use crate::parse::{Line, Observed, ObservedTable};
use crate::record::Record;

impl Change {
    /// Limits the live save rules to `lo`, and changes nothing else: see `transition::Transition`.
    #[must_use]
    pub fn limiting_save_mark(observed: &Observed) -> Self {
        let (family, record) = (observed.family, observed.record.as_ref());
        let mangle = observed.tables.get(&Table::Mangle).and_then(|mangle| limit(family, mangle, record));
        Self { family, tables: mangle.into_iter().collect(), ambiguous: Vec::new() }
    }
}

/// One transaction: the limited rules take the place of the others.
fn limit(family: Family, observed: &ObservedTable, record: Option<&Record>) -> Option<TableChange> {
    const HOOK: Hook = Hook::Prerouting;
    let lines = observed.hook(HOOK);
    let ours = ownership::ours(family, Table::Mangle, observed, record).of(HOOK);
    let statement = |at: &usize| lines.get(*at).and_then(|line: &Line| line.statement.as_ref());
    let live: Vec<&Statement> = ours.iter().filter_map(statement).collect();
    let everywhere: BTreeSet<usize> = ours
        .iter()
        .copied()
        .filter(|at| statement(at).is_some_and(|s| limited_save_mark(s).is_some()))
        .into_set();
    let place = *everywhere.first()?;
    let limited = everywhere.iter().filter_map(|at| limited_save_mark(statement(at)?));
    let missing = limited.filter(|statement| !live.contains(&statement));
    let tail = missing.map(|statement| Rule { statement, only: None, why: Why::SaveMark }).collect();
    let foreign = super::hashes_without(lines, &everywhere);
    let behind = (place < foreign.len()).then_some(place);
    let rules = HookRules { head: Vec::new(), tail };
    let mut change = TableChange::of(Table::Mangle);
    super::delete(&mut change, HOOK, lines, &everywhere, observed.unlisted.contains(&HOOK));
    change.hooks.insert(HOOK, HookChange { rules, behind, foreign, leaving: 0 });
    Some(change)
}

/// The form of a save rule that matches only `lo`; `None` for every other rule, and for one that already
/// does.
#[must_use]
pub(crate) fn limited_save_mark(statement: &Statement) -> Option<Statement> {
    let Statement { matcher, target } = statement;
    let everywhere = *target == Target::SaveMark && matcher.in_interface.is_none();
    everywhere.then(|| Statement {
        matcher: Matcher { in_interface: Some(Interface::loopback()), ..matcher.clone() },
        target: *target,
    })
}
