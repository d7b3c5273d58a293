//! Base chains of other programs that give a packet another mark before our rules.

use std::collections::BTreeSet;

use super::Examined;
use super::conflicting_chains::Met;
use super::later_chains::Search;
use crate::explain::Holder;
use crate::live_rules::{LiveRule, MarkChange};

/// Base chains of nftables before ours in which a packet may get another mark than it is asked about with,
/// where rules of ours test marks: in words, for `explain`.
#[must_use]
pub fn find_mark_changes(examined: &[Examined<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    for family in examined.iter().filter(|family| family.tests_marks()) {
        for base in family.chains().iter().filter(|base| matches!(base.holder, Holder::Nftables(_))) {
            let Some(met @ Met::Before(_)) = family.met(base) else { continue };
            let may_match = |rule: &LiveRule| family.may_match(rule, met);
            let rules = Search::new(&[], &may_match, (family, base)).all_met();
            let changes: BTreeSet<String> = rules.iter().filter_map(|entry| change(&entry.rule)).collect();
            if changes.is_empty() {
                continue;
            }
            let changes: Vec<String> = changes.into_iter().collect();
            let words = format!(
                "a foreign base chain changes packets before ours: {} {} ({}, priority {}): {}: a packet that it \
                 changes may meet other rules than these",
                base.table,
                base.chain,
                base.stage.name(),
                base.priority,
                changes.join(", ")
            );
            if !found.contains(&words) {
                found.push(words);
            }
        }
    }
    found
}

impl Examined<'_> {
    fn tests_marks(&self) -> bool {
        let mut rules = self.desired.tables.values().flat_map(|table| table.rules());
        rules.any(|rule| {
            let matcher = &rule.statement.matcher;
            matcher.mark.is_some() || matcher.connmark.is_some()
        })
    }
}

/// What a rule changes in a packet or its connection.
fn change(rule: &LiveRule) -> Option<String> {
    match rule.effect().mark_change()? {
        Some(MarkChange::Packet(bits)) if bits.mask == u32::MAX => {
            Some(format!("mark set to {}", bits.value))
        }
        Some(MarkChange::Connection(_) | MarkChange::Save { .. }) => {
            Some("connection mark changed".to_owned())
        }
        Some(MarkChange::Packet(_) | MarkChange::Restore { .. }) | None => Some("mark changed".to_owned()),
    }
}
