//! Writes a fresh rule set in several commits.
//!
//! iptables-nft sends the rules of a table in one message. In a user namespace the kernel limits its length
//! (`net.core.wmem_max`) to about 500 rules. Before any rule jumps to our chains, they can be filled in
//! several commits: no packet meets them before the last commit, which adds the rules in the shared chains.

use std::mem::take;

use crate::model::Table;
use crate::parse::Observed;
use crate::plan::{CurrentState, Step};
use crate::reconcile::TableChange;

/// Rules in one commit. One takes 300 to 600 bytes of a message that may have 212,992 where nothing else is
/// set.
const MOST: usize = 200;

/// Whether a step has more rules for a table than a limited message may hold.
#[must_use]
pub fn is_long(step: &Step) -> bool {
    matches!(step, Step::Restore(restore) if restore.change.tables.iter().any(is_long_table))
}

fn is_long_table(change: &TableChange) -> bool {
    let chains = change.declare.len() + change.empty.len() + 2 * change.remove.len();
    chains + change.deletions.len() + change.added_rules().count() > MOST
}

/// Splits the commits of every long step that fills tables in which nothing of ours is hooked in.
#[must_use]
pub fn split(mut steps: Vec<Step>, current: &CurrentState) -> Vec<Step> {
    for step in &mut steps {
        if let Step::Restore(restore) = step {
            let observed = current.rules.get(&(restore.variant, restore.family()));
            let is_hooked = |table| observed.is_some_and(|observed| is_hooked(observed, table));
            let in_commits = |change: TableChange| {
                if is_hooked(change.table) { vec![change] } else { in_commits(change) }
            };
            restore.change.tables =
                take(&mut restore.change.tables).into_iter().flat_map(in_commits).collect();
        }
    }
    steps
}

/// Whether packets may meet our chains of a table.
fn is_hooked(observed: &Observed, table: Table) -> bool {
    let hooks = observed.tables.get(&table).map(|table| &table.hooks);
    hooks.is_some_and(|hooks| hooks.values().flatten().any(|line| line.jump.is_some()))
}

/// Declarations, the rules of our chains, and what goes into shared chains.
fn in_commits(mut change: TableChange) -> Vec<TableChange> {
    if !is_long_table(&change) || !change.deletions.is_empty() || !change.remove.is_empty() {
        return vec![change];
    }
    let none = TableChange::of(change.table);
    let mut rules = Vec::new();
    for (chain, declared) in &mut change.declare {
        rules.extend(take(declared).into_iter().map(|rule| (*chain, rule)));
    }
    let hooks = TableChange { hooks: take(&mut change.hooks), ..none.clone() };
    let filled = rules.chunks(MOST).map(|rules| TableChange { append: rules.to_vec(), ..none.clone() });
    let filled: Vec<_> = filled.collect();
    std::iter::once(change).chain(filled).chain([hooks]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        Chain, Family, Hook, HookRules, Matcher, Port, Protocol, Rule, Statement, Target, Transport, Why,
    };
    use crate::reconcile::{Change, Deleted, Deletion, HookChange};
    use crate::render;

    fn fresh(rules: u16) -> TableChange {
        let rule = |matcher, target| Rule {
            statement: Statement { matcher, target },
            only: None,
            why: Why::InvalidPacket,
        };
        let own = (0..rules).map(|port| {
            rule(
                Matcher {
                    protocol: Some(Protocol::to(Transport::Tcp, Port::constant(port + 1))),
                    ..Matcher::default()
                },
                Target::Return,
            )
        });
        let head = vec![rule(Matcher::default(), Target::Return)];
        let tail = vec![rule(Matcher::default(), Target::Jump(Chain::Output))];
        let hook =
            HookChange { rules: HookRules { head, tail }, behind: None, foreign: Vec::new(), leaving: 0 };
        TableChange {
            declare: [(Chain::Output, own.collect())].into(),
            hooks: [(Hook::Output, hook)].into(),
            ..TableChange::of(Table::Nat)
        }
    }

    fn text(tables: Vec<TableChange>) -> String {
        render::restore(&Change { tables, ..Change::empty(Family::V4) })
    }

    #[test]
    fn hooks_come_last_and_no_rule_is_lost() {
        let change = fresh(1000);
        let split = text(in_commits(change.clone()));
        assert_eq!(split.matches("COMMIT\n").count(), 7);
        assert!(split.starts_with("*nat\n:ISTIO_OUTPUT - [0:0]\nCOMMIT\n*nat\n-A ISTIO_OUTPUT"));
        assert!(split.ends_with("*nat\n-I OUTPUT -j RETURN\n-A OUTPUT -j ISTIO_OUTPUT\nCOMMIT\n"));
        assert!(split.split("COMMIT\n").all(|commit| commit.lines().count() <= MOST + 1));
        let rules = |text: &str| {
            text.lines().filter(|line| line.contains("--dport")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(rules(&split), rules(&text(vec![change])));
    }

    #[test]
    fn short_tables_and_changes_stay_whole() {
        let short = fresh(20);
        assert_eq!(in_commits(short.clone()), [short]);
        let what = Deleted::Specification("-j ISTIO_OUTPUT".to_owned());
        let deletions = vec![Deletion { hook: Hook::Output, what, jumps: true }];
        let change = TableChange { deletions, ..fresh(1000) };
        assert_eq!(in_commits(change.clone()), [change]);
    }
}
