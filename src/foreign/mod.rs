//! Foreign rules that decide before ours see a packet, or over what ours have taken.

mod ambient;
mod base_chain;
mod captured_traffic;
mod conflicting_chains;
mod later_chains;
mod mark_changes;
mod marks;
mod preceding_rules;
mod translated_queries;

use std::collections::BTreeSet;

use crate::explain::{Entry, Stage};
use crate::live_rules::{Effect, LiveRule, Zone};
use crate::model::{Chain, Hook, Table, Target};
use crate::text::one_line;

pub use ambient::{AMBIENT_CHAIN, ambient_table, native_ambient_table};
use base_chain::{BaseChain, Place};
pub use base_chain::{Examined, Network};
use captured_traffic::CapturedTraffic;
pub use conflicting_chains::{ConflictingChain, find_conflicting_chains};
use later_chains::AcceptedPorts;
pub use mark_changes::find_mark_changes;
pub use marks::find_tproxy_marks;
pub use preceding_rules::PrecedingRule;
use preceding_rules::{
    DNS_IN_ZONES, Found, IN_A_ZONE, PUBLISHED, Placement, REPLIES_ON_LO, Targets, UNTRACKED,
};
pub use translated_queries::{captures_queries, that_translate_queries};

/// A rule for a message, as iptables prints it.
fn shown(chain: &str, text: &str) -> String {
    format!("-A {chain} {}", one_line(text))
}

/// Depth limit for following jumps between foreign chains: iptables-legacy allows more nesting than the stack
/// does.
const DEEPEST: usize = 100;

/// Foreign rules of iptables that decide before the desired rules, in the order in which packets traverse
/// them.
#[must_use]
pub fn find_preceding_rules(examined: &[Examined<'_>]) -> Vec<PrecedingRule> {
    let mut found = Vec::new();
    for family in examined {
        for base in family.chains() {
            let Some((_, name)) = base.of_iptables() else { continue };
            let table = Table::ALL.into_iter().find(|table| table.name() == name);
            match table.zip(base.stage.hook()) {
                Some(at) => {
                    found.extend(family.rules(&base, at));
                    found.extend(family.policy(&base, at));
                }
                None => found.extend(family.later(&base)),
            }
        }
    }
    found
}

impl Examined<'_> {
    fn named(
        &self,
        base: &BaseChain<'_>,
        place: Placement,
        found: Found,
        targets: Targets,
    ) -> Option<PrecedingRule> {
        let (variant, table) = base.of_iptables()?;
        let hook = base.stage.hook();
        let hands_to =
            |name: &str| targets.any(&|one| matches!(one, Targets::Name(target) if target == name));
        let is_first = matches!(place, Placement::Before | Placement::Beside);
        let translates = is_first && ["DNAT", "REDIRECT", "NETMAP"].into_iter().any(hands_to);
        let publishes = translates && hook == Some(Hook::Prerouting);
        let translates_dns =
            translates && hook == Some(Hook::Output) && self.captured.dns && !found.is_for_tcp();
        let drops_sources = hook == Some(Hook::Prerouting) && found.tests_source_type() && hands_to("DROP");
        // CT that sets no zone exempts from connection tracking.
        let is_untracked = hands_to("NOTRACK") || hands_to("CT");
        let is_by_tproxy = is_untracked && hook == Some(Hook::Prerouting) && self.captured.keeps_port;
        Some(PrecedingRule {
            family: self.family,
            variant,
            table,
            of_other_variant: self.backend.variant() != Some(variant),
            found,
            targets,
            place,
            translates_dns,
            publishes,
            drops_sources,
            is_by_tproxy,
        })
    }

    fn policy(&self, base: &BaseChain<'_>, (table, hook): (Table, Hook)) -> Option<PrecedingRule> {
        if !base.drops {
            return None;
        }
        let captures_at = |matches: &dyn Fn(i32) -> bool| {
            Table::ALL.into_iter().any(|at| matches(at.priority()) && self.captures(at, hook))
        };
        let is_output = hook == Hook::Output;
        let before = |rule: &LiveRule| self.captured.may_match(rule);
        let behind = |rule: &LiveRule| self.captured.may_match_taken(rule, is_output);
        let accept_all = |kinds: Vec<_>, may_match: &dyn Fn(&LiveRule) -> bool| {
            later_chains::Search::new(&kinds, may_match, (self, base)).accept_all(base.rules)
        };
        // In the chain itself captured packets leave by our jump.
        let (place, are_accepted) = if self.captures(table, hook) {
            (Placement::Beside, false)
        } else if captures_at(&|priority| priority > table.priority()) {
            (Placement::Before, accept_all(self.captured.arriving().collect(), &before))
        } else if captures_at(&|priority| priority < table.priority()) {
            let ports = AcceptedPorts::of([&self.captured]);
            (Placement::Later(ports), accept_all(self.captured.taken(is_output).collect(), &behind))
        } else {
            (Placement::Beside, false)
        };
        self.named(base, place, Found::Policy(hook.name()), Targets::of("DROP")).filter(|_| !are_accepted)
    }

    /// The foreign rules of a chain before ours, or beside them, that can decide.
    fn rules(&self, base: &BaseChain<'_>, (table, hook): (Table, Hook)) -> Vec<PrecedingRule> {
        // What is dropped or not tracked in raw or mangle gets nowhere, whatever the direction.
        if table == Table::Nat && !self.captures(table, hook) {
            return Vec::new();
        }
        // Without our jump ours will be behind what is there.
        let first = base.rules.iter().position(Entry::is_jump_of_ours).unwrap_or(base.rules.len());
        let has_capture = base.shared.is_some() && self.captures(table, hook);
        let find = |(at, entry): (usize, &Entry)| {
            let place = if has_capture && at < first { Placement::Before } else { Placement::Beside };
            // Behind our jump in nat there is only what we did not take.
            let is_behind = has_capture && place == Placement::Beside;
            if is_behind && table == Table::Nat {
                return None;
            }
            let mut search = Search {
                table,
                hook,
                place: place.clone(),
                is_behind_tproxy: is_behind && table == Table::Mangle,
                captured: &self.captured,
                base,
                seen: BTreeSet::new(),
            };
            let targets = search.decides(&entry.rule, true, 0)?;
            self.named(base, place, Found::rule(hook.name(), &entry.rule), targets)
        };
        self.foreign(base, base.rules).filter_map(find).collect()
    }
}

/// The search for the target of a rule, and of those in chains that it jumps to.
struct Search<'a> {
    table: Table,
    hook: Hook,
    place: Placement,
    is_behind_tproxy: bool,
    captured: &'a CapturedTraffic,
    base: &'a BaseChain<'a>,
    seen: BTreeSet<String>,
}

impl Search<'_> {
    /// The target that takes a captured packet away from our rules, if the rule has such a target, or jumps
    /// to a chain with one; `depth` chains deep.
    fn decides(&mut self, rule: &LiveRule, in_hook: bool, depth: usize) -> Option<Targets> {
        let is_left = !self.is_behind_tproxy || self.captured.may_match_behind_tproxy(rule);
        if !is_left || !self.captured.may_match(rule) {
            return None;
        }
        let effect = rule.effect();
        if self.takes(&effect, in_hook) {
            let is_zone = matches!(*effect, Effect::Known(Target::ConntrackZone(_)) | Effect::SetsZone(_));
            let name = rule.target();
            return Some(if is_zone { Targets::Zone(name.to_owned()) } else { Targets::of(name) });
        }
        let (name, is_goto) = rule.chain()?;
        // Behind a `goto` a RETURN leaves the shared chain, and so does the end of the chain.
        let in_hook = in_hook && is_goto;
        let leaves = in_hook && Chain::from_name(name).is_none();
        let inside = self.in_chain(name, in_hook, depth);
        if leaves && self.takes(&Effect::Known(Target::Return), in_hook) {
            return Some(Targets::Goto(name.to_owned(), inside.into_iter().collect()));
        }
        inside
    }

    /// The targets that the rules of a chain have.
    fn in_chain(&mut self, name: &str, in_hook: bool, depth: usize) -> Option<Targets> {
        let (_, rules) = self.base.named(name).filter(|_| self.seen.insert(name.to_owned()))?;
        if depth == DEEPEST {
            return Some(Targets::TooDeep(name.to_owned()));
        }
        let mut inner: Vec<Targets> = Vec::new();
        for found in rules.iter().filter_map(|entry| self.decides(&entry.rule, in_hook, depth + 1)) {
            if !inner.contains(&found) {
                inner.push(found);
            }
        }
        (!inner.is_empty()).then(|| Targets::Chain(name.to_owned(), inner))
    }

    fn takes(&self, effect: &Effect, in_hook: bool) -> bool {
        let Self { table, hook, place, .. } = self;
        let before = *place == Placement::Before;
        match effect {
            Effect::Known(Target::Drop) | Effect::Rejects | Effect::Queues { .. } | Effect::Takes => true,
            Effect::Untracks => *table == Table::Raw,
            // See `IN_A_ZONE`.
            Effect::Known(Target::ConntrackZone(_)) => *table == Table::Raw,
            Effect::SetsZone(zone) => *table == Table::Raw && *zone != Some(Zone::default()),
            Effect::Known(Target::Tproxy { .. }) | Effect::ToSocket { .. } | Effect::GivesSocket(..) => {
                *hook == Hook::Prerouting && *table == Table::Mangle
            }
            Effect::Known(Target::Redirect(_)) | Effect::Translates(_) => *table == Table::Nat,
            // It ends this table only.
            Effect::Known(Target::Accept) => before && *table != Table::Raw,
            // In a chain of its own it leads back to the shared chain.
            Effect::Known(Target::Return) => before && in_hook && *table != Table::Raw,
            Effect::Known(Target::Jump(_) | Target::RestoreMark | Target::SaveMark | Target::SetMark(_))
            | Effect::Chain { .. }
            | Effect::ChangesMark(_)
            | Effect::Continues
            | Effect::Marks
            | Effect::RewritesEnds
            | Effect::TranslatesSource => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_in_a_message_is_as_iptables_prints_it() {
        let rule = r#"-m comment --comment "say \"hi\" \\ to me" -j ACCEPT"#;
        assert_eq!(shown("OUTPUT", rule), format!("-A OUTPUT {rule}"));
        assert_eq!(shown("OUTPUT", "--comment \"a\nb\u{1b}\""), "-A OUTPUT --comment \"a\\nb\\u{1b}\"");
    }
}
