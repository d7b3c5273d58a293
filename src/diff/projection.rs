//! What will be live once a change is carried out: a later phase of a plan begins there.

use super::{Change, Deleted, Deletion, HookChange, TableChange};
use crate::model::Rule;
use crate::parse::{Line, Observed, ObservedTable};

impl Change {
    /// `observed` as it will be after this change.
    #[must_use]
    pub fn project(&self, observed: &Observed) -> Observed {
        let mut projected = observed.clone();
        for change in &self.tables {
            carry_out(change, projected.tables.entry(change.table).or_default());
        }
        projected
    }
}

/// In the order of the rules file.
fn carry_out(change: &TableChange, table: &mut ObservedTable) {
    let TableChange { table: _, declare, deletions, hooks, remove, empty, by_form: _ } = change;
    for (chain, rules) in declare {
        table.chains.insert(*chain, rules.iter().map(line).collect());
    }
    for chain in empty {
        table.chains.insert(*chain, Vec::new());
    }
    for Deletion { hook, what } in deletions {
        let lines = table.hooks.entry(*hook).or_default();
        let at = match what {
            Deleted::Number(number) => number.checked_sub(1).filter(|at| *at < lines.len()),
            Deleted::Words(words) => lines.iter().position(|line| line.text == *words),
        };
        at.map(|at| lines.remove(at));
    }
    for (hook, HookChange { rules, behind }) in hooks {
        let lines = table.hooks.entry(*hook).or_default();
        let place = behind.unwrap_or(lines.len()).min(lines.len());
        lines.splice(place..place, rules.tail.iter().map(line));
        lines.splice(0..0, rules.head.iter().map(line));
    }
    for chain in remove {
        table.chains.remove(chain);
    }
}

fn line(rule: &Rule) -> Line {
    Line {
        text: rule.statement.to_string(),
        statement: Some(rule.statement.clone()),
        jump: rule.statement.target.jump(),
    }
}
