//! Foreign rules in chains of ours, which have the form of one of ours.

use std::collections::HashSet;

use super::rules::Rules;
use crate::model::{Chain, FamilyRules, Statement, Target};

impl Rules {
    /// Takes rules in chains of ours that let packets pass or drop them for foreign ones, unless they are
    /// among these.
    pub fn disown(&mut self, wanted: &FamilyRules) {
        for (table, chains) in &mut self.tables {
            let wanted = wanted.tables.get(table);
            for (name, entries) in &mut chains.named {
                let wanted = Chain::from_name(name).and_then(|chain| wanted?.chains.get(&chain));
                let wanted: HashSet<&Statement> =
                    wanted.into_iter().flatten().map(|rule| &rule.statement).collect();
                for entry in entries {
                    let Some(statement) = entry.statement() else { continue };
                    let ends = matches!(statement.target, Target::Accept | Target::Drop | Target::Return);
                    if ends && !wanted.contains(statement) {
                        entry.why = None;
                    }
                }
            }
        }
    }
}
