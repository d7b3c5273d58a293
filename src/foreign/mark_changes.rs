//! Base chains of other programs that give a packet another mark before our rules.

use std::cell::RefCell;
use std::collections::BTreeSet;

use nfnetlink::nftables::{CtKey, Expression, Members, MetaKey, Rule, Table, TableName};

use super::base_chains::{Met, Ours, RuleReader};
use super::chain_search::Search;
use super::shared_tables::{hook_of, is_of_backend};
use crate::model::{Backend, FamilyRules, PerFamily};

/// Base chains before ours in which a packet may get another mark than it is asked about with, where rules of
/// ours test marks: in words, for `explain`.
#[must_use]
pub fn find_mark_changes(
    desired: &PerFamily<FamilyRules>,
    backend: Backend,
    tables: &[Table],
    sets: &[(TableName, Vec<Members>)],
) -> Vec<String> {
    let rules = || desired.values().flat_map(|rules| rules.tables.values()).flat_map(|table| table.rules());
    let tests_marks = rules()
        .any(|rule| rule.statement.matcher.mark.is_some() || rule.statement.matcher.connmark.is_some());
    let mut found = Vec::new();
    if !tests_marks {
        return found;
    }
    for table in tables {
        let sets = sets.iter().find(|(name, _)| *name == table.name).map_or(&[][..], |(_, sets)| sets);
        for chain in table.chains.iter().filter(|chain| !is_of_backend(table, chain, backend)) {
            let Some(base) = &chain.base else { continue };
            let Some((Some(hook), name)) = hook_of(base) else { continue };
            let Some(ours) = Ours::of(desired, table, Some(hook)) else { continue };
            if base.priority > ours.last {
                continue;
            }
            let changes = RefCell::new(BTreeSet::new());
            let reader = RuleReader { table, sets };
            let mapped = |rule: &Rule| ours.mapped(reader, rule, Met::Before);
            let may_match = |rule: &Rule| {
                let is_met = ours.may_match(reader, rule, Met::Before);
                if is_met {
                    changes.borrow_mut().extend(changes_of(rule));
                }
                is_met
            };
            Search { table, may_match: &may_match, mapped: &mapped, end: &|_| None, seen: BTreeSet::new() }
                .collect(&chain.rules, &mut BTreeSet::new());
            let changes: Vec<String> = changes.into_inner().into_iter().collect();
            if !changes.is_empty() {
                found.push(format!(
                    "a foreign base chain changes packets before ours: {} {} ({name}, priority {}): {}: a packet that it \
                     changes may meet other rules than these",
                    table.name, chain.name, base.priority, changes.join(", ")
                ));
            }
        }
    }
    found
}

/// What a rule changes in a packet.
fn changes_of(rule: &Rule) -> Vec<String> {
    let mut changes = Vec::new();
    let mut constant = None;
    for expression in &rule.expressions {
        let change = match expression {
            Expression::SetMeta { key: MetaKey::Mark, .. } => match constant {
                Some(mark) => format!("mark set to {mark}"),
                None => "mark changed".to_owned(),
            },
            Expression::SetCt { key: CtKey::Mark, .. } => "connection mark changed".to_owned(),
            Expression::Immediate { value, .. } => {
                constant = <[u8; 4]>::try_from(value.as_slice()).ok().map(u32::from_ne_bytes);
                continue;
            }
            Expression::Meta { .. } | Expression::Ct { .. } | Expression::Bitwise { .. } => {
                constant = None;
                continue;
            }
            Expression::SetMeta { .. }
            | Expression::SetCt { .. }
            | Expression::Payload { .. }
            | Expression::Compare { .. }
            | Expression::Range { .. }
            | Expression::Lookup { .. }
            | Expression::Counter { .. }
            | Expression::Verdict(_)
            | Expression::Redirect { .. }
            | Expression::Tproxy { .. }
            | Expression::Socket { .. }
            | Expression::Foreign { .. } => continue,
        };
        changes.push(change);
    }
    changes
}
