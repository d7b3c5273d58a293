//! Writes a fresh rule set in several commits.
//!
//! iptables-nft sends the rules of a table in one message. In a user namespace the kernel limits its length
//! (`net.core.wmem_max`) to about 500 rules. Before any rule jumps to our chains, they can be filled in several
//! commits: no packet meets them before the last commit, which adds the rules in the shared chains.

use crate::model::{Chain, Table};
use crate::parse::Observed;
use crate::plan::{CurrentState, Restore, Step};

/// Rules in one commit. One takes 300 to 600 bytes of a message that may have 212,992 where nothing else is set.
const MOST: usize = 200;

/// Whether a step has more rules for a table than a limited message may hold.
#[must_use]
pub fn is_long(step: &Step) -> bool {
    matches!(step, Step::Restore(restore) if sections(&restore.text).iter().any(|section| section.lines.len() > MOST))
}

/// Splits the commits of every long step that fills tables in which nothing of ours is hooked in.
#[must_use]
pub fn split(mut steps: Vec<Step>, current: &CurrentState) -> Vec<Step> {
    for step in &mut steps {
        if let Step::Restore(restore) = step {
            restore.text = split_text(restore, current);
        }
    }
    steps
}

fn split_text(restore: &Restore, current: &CurrentState) -> String {
    let observed = current.rules.get(&(restore.variant, restore.family));
    let hooked = |name: &str| observed.is_some_and(|observed| is_hooked(observed, name));
    sections(&restore.text)
        .into_iter()
        .map(|section| if hooked(section.table) { section.whole() } else { section.in_commits() })
        .collect()
}

/// Whether packets may meet our chains of a table.
fn is_hooked(observed: &Observed, name: &str) -> bool {
    let table = Table::ALL.into_iter().find(|table| table.name() == name);
    let hooks = table.and_then(|table| observed.tables.get(&table)).map(|table| &table.hooks);
    hooks.is_some_and(|hooks| hooks.values().flatten().any(|line| line.jump.is_some()))
}

/// One table of a rules file: the lines between its name and `COMMIT`.
struct Section<'a> {
    table: &'a str,
    lines: Vec<&'a str>,
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut sections: Vec<Section<'_>> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix('*'), sections.last_mut()) {
            (Some(table), _) => sections.push(Section { table, lines: Vec::new() }),
            (None, Some(section)) if line != "COMMIT" => section.lines.push(line),
            (None, _) => {}
        }
    }
    sections
}

impl Section<'_> {
    fn whole(&self) -> String {
        commit(self.table, &self.lines)
    }

    /// Declarations with the first rules of our chains, the other rules of our chains, and what goes into shared chains.
    fn in_commits(&self) -> String {
        let is_declaration = |line: &&str| line.starts_with(':');
        let is_own = |line: &&str| {
            let chain = line.strip_prefix("-A ").and_then(|rest| rest.split(' ').next());
            chain.is_some_and(|chain| Chain::from_name(chain).is_some())
        };
        let is_shared = |line: &&str| !is_own(line) && (line.starts_with("-A ") || line.starts_with("-I "));
        let known = |line: &&str| is_declaration(line) || is_own(line) || is_shared(line);
        if self.lines.len() <= MOST || !self.lines.iter().all(known) {
            return self.whole();
        }
        let of = |is: &dyn Fn(&&str) -> bool| {
            self.lines.iter().copied().filter(|line| is(line)).collect::<Vec<_>>()
        };
        let mut text = commit(self.table, &of(&is_declaration));
        for rules in of(&is_own).chunks(MOST) {
            text += &commit(self.table, rules);
        }
        text + &commit(self.table, &of(&is_shared))
    }
}

fn commit(table: &str, lines: &[&str]) -> String {
    let lines: String = lines.iter().flat_map(|line| [line, "\n"]).collect();
    format!("*{table}\n{lines}COMMIT\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh(rules: usize) -> String {
        let own: String =
            (0..rules).map(|n| format!("-A ISTIO_OUTPUT -p tcp --dport {n} -j RETURN\n")).collect();
        format!(
            "*nat\n:ISTIO_OUTPUT - [0:0]\n-I PREROUTING -i v0 -j RETURN\n-A OUTPUT -j ISTIO_OUTPUT\n{own}COMMIT\n"
        )
    }

    fn in_commits(text: &str) -> String {
        sections(text).iter().map(Section::in_commits).collect()
    }

    #[test]
    fn hooks_come_last_and_no_rule_is_lost() {
        let text = fresh(1000);
        let split = in_commits(&text);
        assert_eq!(split.matches("COMMIT\n").count(), 7);
        assert!(split.ends_with("*nat\n-I PREROUTING -i v0 -j RETURN\n-A OUTPUT -j ISTIO_OUTPUT\nCOMMIT\n"));
        assert!(split.split("COMMIT\n").all(|commit| commit.lines().count() <= MOST + 1));
        let rules = |text: &str| {
            text.lines().filter(|line| line.contains("--dport")).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(rules(&split), rules(&text));
    }

    #[test]
    fn short_sections_and_changes_stay_whole() {
        assert_eq!(in_commits(&fresh(20)), fresh(20));
        let change = fresh(1000).replace("-A OUTPUT -j ISTIO_OUTPUT", "-D OUTPUT -j ISTIO_OUTPUT");
        assert_eq!(in_commits(&change), change);
    }
}
