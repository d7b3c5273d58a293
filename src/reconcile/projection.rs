//! Projects the state after a change: a later phase of a plan starts from it.

use std::collections::HashMap;

use super::{Change, Deleted, HookChange, RuleByHandle, TableChange, ownership};
use crate::model::{Family, Hook, Rule, Table};
use crate::parse::{Line, Observed, ObservedTable};
use crate::record::Record;

impl Change {
    /// `observed` as it will be after this change.
    #[must_use]
    pub fn project(&self, observed: &Observed) -> Observed {
        let mut projected = observed.clone();
        for (table, lines) in &mut projected.tables {
            know(observed.family, *table, lines, observed.record.as_ref());
        }
        for change in &self.tables {
            apply_change(change, projected.tables.entry(change.table).or_default());
        }
        projected
    }
}

/// Notes which lines are ours, which nothing says any more once others are gone.
fn know(family: Family, table: Table, observed: &mut ObservedTable, record: Option<&Record>) {
    let ours = ownership::ours(family, table, observed, record);
    for (hook, lines) in &mut observed.hooks {
        let places = ours.of(*hook);
        for (at, line) in lines.iter_mut().enumerate() {
            line.ours = Some(places.contains(&at));
        }
    }
}

/// Deletions by handle, then the rules file: what is left is the same in either order.
fn apply_change(change: &TableChange, table: &mut ObservedTable) {
    let TableChange {
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
    } = change;
    for RuleByHandle { hook, handle, text: _ } in by_handle {
        table.hooks.entry(*hook).or_default().retain(|line| line.handle != Some(*handle));
    }
    for (chain, rules) in declare {
        table.chains.insert(*chain, rules.iter().map(line).collect());
    }
    for (chain, rule) in append {
        table.chains.entry(*chain).or_default().push(line(rule));
    }
    for chain in empty {
        table.chains.insert(*chain, Vec::new());
    }
    for hook in Hook::ALL {
        if let Some(lines) = table.hooks.get_mut(&hook) {
            delete(
                lines,
                deletions.iter().filter(|deletion| deletion.hook == hook).map(|deletion| &deletion.what),
            );
        }
    }
    for (hook, HookChange { rules, behind, foreign: _, leaving: _ }) in hooks {
        let lines = table.hooks.entry(*hook).or_default();
        let place = behind.unwrap_or(lines.len()).min(lines.len());
        lines.splice(place..place, rules.tail.iter().map(line));
        lines.splice(0..0, rules.head.iter().map(line));
    }
    for chain in remove {
        table.chains.remove(chain);
    }
}

/// Takes out what deletions name: first those by number, which come from the last to the first, then of each
/// that is named by its words the first.
fn delete<'a>(lines: &mut Vec<Line>, deletions: impl Iterator<Item = &'a Deleted>) {
    let mut words: HashMap<&str, usize> = HashMap::new();
    for deletion in deletions {
        match deletion {
            Deleted::Number(number) => {
                let at = number.checked_sub(1).filter(|at| *at < lines.len());
                at.map(|at| lines.remove(at));
            }
            Deleted::Specification(text) => *words.entry(text).or_default() += 1,
        }
    }
    lines.retain(|line| match words.get_mut(&*line.text()) {
        Some(left @ 1..) => {
            *left -= 1;
            false
        }
        Some(0) | None => true,
    });
}

fn line(rule: &Rule) -> Line {
    Line { ours: Some(true), ..Line::modelled(None, rule.statement.clone()) }
}
