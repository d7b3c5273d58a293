//! Foreign rules that decide before ours see a packet, or over what ours have taken.

mod ambient;
mod base_chains;
mod captured_traffic;
mod chain_search;
mod expression_words;
mod later_chains;
mod mark_changes;
mod marks;
mod overwritten;
mod preceding_rules;
mod shared_tables;
mod translated;
mod translated_queries;

use std::collections::{BTreeMap, BTreeSet};

use crate::live_rules::{Effect, LiveRule, Zone};
use crate::model::{
    Backend, Chain, Family, FamilyRules, Hook, HookRules, PerFamily, Rule, Table, Target, Variant,
};
use crate::parse::{Line, Observed, ObservedTable};
use crate::reconcile::{is_our_jump, owned};
use crate::text::one_line;

pub use ambient::{AMBIENT_CHAIN, ambient_table, native_ambient_table};
pub use base_chains::{BaseChain, find_conflicting_base_chains};
use captured_traffic::CapturedTraffic;
use later_chains::AcceptedPorts;
pub use mark_changes::find_mark_changes;
pub use marks::find_tproxy_marks;
pub use overwritten::Network;
pub use preceding_rules::PrecedingRule;
use preceding_rules::{
    DNS_IN_ZONES, Found, IN_A_ZONE, PUBLISHED, Placement, REPLIES_ON_LO, Targets, UNTRACKED,
};
pub use shared_tables::is_of_backend;
pub use translated::find_translations_behind_tproxy;
pub use translated_queries::that_translate_queries;

/// A rule for a message, as iptables prints it.
fn shown(chain: &str, text: &str) -> String {
    format!("-A {chain} {}", one_line(text))
}

/// Depth limit for following jumps between foreign chains: iptables-legacy allows more nesting than the stack
/// does.
const DEEPEST: usize = 100;
/// The live rules in the tables of iptables.
#[derive(Clone, Copy, Debug)]
pub struct IptablesRules<'a> {
    /// The rules of each variant and family that has chains of ours, or in whose place they will be.
    pub rules: &'a BTreeMap<(Variant, Family), Observed>,
    /// The rules of iptables-legacy, where they are all foreign and another backend holds ours.
    pub legacy: &'a PerFamily<Observed>,
}

impl<'a> IptablesRules<'a> {
    /// The rules of a family in each variant.
    fn of_family(self, family: Family) -> impl Iterator<Item = (Variant, &'a Observed)> {
        let own = self.rules.iter().filter(move |((_, of), _)| *of == family);
        let legacy = self.legacy.get(&family).map(|rules| (Variant::Legacy, rules));
        own.map(|((variant, _), rules)| (*variant, rules)).chain(legacy)
    }
}

/// Foreign rules that decide before the desired rules, in the order in which packets traverse them.
#[must_use]
pub fn find_preceding_rules(
    desired: &PerFamily<FamilyRules>,
    backend: Backend,
    live: IptablesRules<'_>,
) -> Vec<PrecedingRule> {
    let mut found = Vec::new();
    for (family, rules) in desired.iter().filter(|(_, rules)| rules.count() > 0) {
        let own = backend.variant().and_then(|variant| Some((variant, live.rules.get(&(variant, *family))?)));
        let legacy = live.rules.get(&(Variant::Legacy, *family)).or_else(|| live.legacy.get(family));
        let other = legacy.map(|legacy| (Variant::Legacy, legacy));
        let other = other.filter(|_| backend != Backend::Iptables(Variant::Legacy));
        for ((variant, observed), of_other_variant) in
            own.map(|own| (own, false)).into_iter().chain(other.map(|other| (other, true)))
        {
            let of = Examined { family: *family, variant, of_other_variant, desired: rules };
            for (table, lines) in &observed.tables {
                for hook in Hook::ALL {
                    let ours = owned(*family, *table, hook, lines, observed.record.as_ref());
                    found.extend(of.rules(*table, hook, lines, &ours));
                    found.extend(of.policy(*table, hook, lines));
                }
            }
            found.extend(of.later(observed, backend));
        }
    }
    found
}

/// The rules of a family in one variant, and what is desired.
struct Examined<'a> {
    family: Family,
    variant: Variant,
    of_other_variant: bool,
    desired: &'a FamilyRules,
}

impl Examined<'_> {
    fn named(
        &self,
        (table, hook): (Table, Hook),
        place: Placement,
        found: Found,
        targets: Targets,
    ) -> PrecedingRule {
        let Self { family, variant, of_other_variant, desired: _ } = *self;
        let table = table.name();
        let hands_to =
            |name: &str| targets.any(&|one| matches!(one, Targets::Name(target) if target == name));
        let translates = ["DNAT", "REDIRECT", "NETMAP"].into_iter().any(hands_to);
        let publishes = translates && hook == Hook::Prerouting;
        let translates_dns = translates
            && hook == Hook::Output
            && CapturedTraffic::of(self.desired).dns
            && !found.is_for_tcp();
        let drops_sources = hook == Hook::Prerouting && found.tests_source_type() && hands_to("DROP");
        // CT that sets no zone exempts from connection tracking.
        let is_untracked = hands_to("NOTRACK") || hands_to("CT");
        let is_by_tproxy =
            is_untracked && hook == Hook::Prerouting && CapturedTraffic::of(self.desired).keeps_port;
        PrecedingRule {
            family,
            variant,
            table,
            found,
            targets,
            of_other_variant,
            place,
            translates_dns,
            publishes,
            drops_sources,
            is_by_tproxy,
        }
    }

    fn policy(&self, table: Table, hook: Hook, observed: &ObservedTable) -> Option<PrecedingRule> {
        if !observed.drops.contains(&hook) {
            return None;
        }
        let captured = CapturedTraffic::of(self.desired);
        let captures_at = |matches: &dyn Fn(i32) -> bool| {
            Table::ALL.into_iter().any(|at| matches(at.priority()) && self.captures(at, hook))
        };
        let is_output = hook == Hook::Output;
        let before = |rule: &LiveRule| captured.may_match(rule);
        let behind = |rule: &LiveRule| captured.may_match_taken(rule, is_output);
        let accept_all = |kinds: Vec<_>, may_match: &dyn Fn(&LiveRule) -> bool| {
            let rules: Vec<LiveRule> =
                observed.hook(hook).iter().map(|line| line.live(self.family)).collect();
            later_chains::Search::new(&kinds, may_match, &observed.foreign).accept_all(&rules)
        };
        // In the chain itself captured packets leave by our jump.
        let (place, are_accepted) = if self.captures(table, hook) {
            (Placement::Beside, false)
        } else if captures_at(&|priority| priority > table.priority()) {
            (Placement::Before, accept_all(captured.arriving().collect(), &before))
        } else if captures_at(&|priority| priority < table.priority()) {
            let ports = AcceptedPorts::of(std::slice::from_ref(&captured));
            (Placement::Later(ports), accept_all(captured.taken(is_output).collect(), &behind))
        } else {
            (Placement::Beside, false)
        };
        let found = || self.named((table, hook), place, Found::Policy(hook.name()), Targets::of("DROP"));
        (!are_accepted).then(found)
    }

    /// The foreign rules of a shared chain that can decide.
    fn rules(
        &self,
        table: Table,
        hook: Hook,
        observed: &ObservedTable,
        ours: &BTreeSet<usize>,
    ) -> Vec<PrecedingRule> {
        let captured = CapturedTraffic::of(self.desired);
        // What is dropped or not tracked in raw or mangle gets nowhere, whatever the direction.
        if table == Table::Nat && !self.captures(table, hook) {
            return Vec::new();
        }
        let wanted = || self.hook_rules(table, hook);
        let lines = observed.hook(hook);
        let jump = |line: &Line| is_our_jump(table, hook, line) && !rerouted(line);
        // Without our jump ours will be behind what is there.
        let first = lines.iter().position(jump).unwrap_or(lines.len());
        let has_capture = !self.of_other_variant && self.captures(table, hook);
        let asked_for = |line: &Line| {
            line.statement.as_ref().is_some_and(|says| wanted().any(|rule| rule.statement == *says))
        };
        let foreign = lines.iter().enumerate().filter(|(at, line)| !ours.contains(at) && !asked_for(line));
        foreign
            .filter_map(|(at, line)| {
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
                    captured: &captured,
                    chains: &observed.foreign,
                    seen: BTreeSet::new(),
                };
                let rule = line.live(self.family);
                let targets = search.decides(&rule, true, 0)?;
                Some(self.named((table, hook), place, Found::rule(hook.name(), &rule), targets))
            })
            .collect()
    }

    fn hook_rules(&self, table: Table, hook: Hook) -> impl Iterator<Item = &Rule> {
        let rules = self.desired.tables.get(&table).and_then(|rules| rules.hooks.get(&hook));
        rules.into_iter().flat_map(HookRules::iter)
    }

    fn captures(&self, table: Table, hook: Hook) -> bool {
        let jumps = |rule: &Rule| rule.statement.target.jump().is_some_and(|chain| chain != Chain::Drop);
        self.hook_rules(table, hook).any(jumps)
    }
}

/// A jump for a virtual interface: it is before the rules that were there, and depends on none of those.
fn rerouted(line: &Line) -> bool {
    line.statement.as_ref().is_some_and(|statement| {
        statement.matcher.in_interface.is_some() && matches!(statement.target, Target::Jump(_))
    })
}

/// The search for the target of a rule, and of those in chains that it jumps to.
struct Search<'a> {
    table: Table,
    hook: Hook,
    place: Placement,
    is_behind_tproxy: bool,
    captured: &'a CapturedTraffic,
    chains: &'a BTreeMap<String, Vec<LiveRule>>,
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
        let chains = self.chains;
        let rules = chains.get(name).filter(|_| self.seen.insert(name.to_owned()))?;
        if depth == DEEPEST {
            return Some(Targets::TooDeep(name.to_owned()));
        }
        let mut inner: Vec<Targets> = Vec::new();
        for found in rules.iter().filter_map(|rule| self.decides(rule, in_hook, depth + 1)) {
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
