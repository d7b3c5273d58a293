//! What a run leaves, and warns of.

use std::borrow::Cow;

use super::{CurrentState, DesiredState, changes, walked::Walked};
use crate::connections;
use crate::finding::{Finding, Problem};
use crate::foreign;
use crate::model::{Backend, Chain, Family, FamilyRules, PerFamily, Variant};
use crate::parse::Observed;
use crate::reconcile::{Change, Deleted, Deletion, TableChange, holder};
use crate::routing;

/// What a run leaves, and warns of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// Foreign rules that may keep packets from ours.
    pub deciding: Vec<Finding>,
    /// Everything else.
    pub others: Vec<Finding>,
    /// What this process may not read.
    pub unread: Vec<String>,
}

impl Notices {
    /// The notices, as text.
    #[must_use]
    pub fn all(self) -> Vec<String> {
        let found = self.deciding.into_iter().chain(self.others).map(|finding| finding.to_string());
        found.chain(self.unread).collect()
    }
}

/// Warnings to log before the steps are executed.
#[must_use]
pub fn notices(desired: &DesiredState, current: &CurrentState) -> Notices {
    let mut unread = Vec::new();
    if current.legacy_unlisted {
        unread.push(
            "the tables of iptables-legacy cannot be listed: rules of an earlier run in them are kept"
                .to_owned(),
        );
    }
    let (mut deciding, mut of_network) = (Vec::new(), Vec::new());
    add_foreign(desired, current, &mut deciding, &mut of_network);
    let lockdown = current.lockdown().into_iter();
    let others =
        lockdown.chain(held_chains(desired, current)).chain(of_network).chain(kept_rules(desired, current));
    Notices { deciding, others: others.collect(), unread }
}

impl CurrentState {
    /// The tables of the guard's lockdown, by their names.
    fn lockdown_tables(&self) -> Vec<String> {
        self.lockdown.iter().map(|table| table.name.to_string()).collect()
    }

    /// What the end of every run does to the lockdown of the guard, if there is one.
    #[must_use]
    pub fn end_of_lockdown(&self) -> Option<String> {
        let names = self.lockdown_tables();
        let words = || format!("end the lockdown of guard: delete the nftables tables {}", names.join(", "));
        (!names.is_empty()).then(words)
    }

    /// The finding that the guard keeps traffic from going out.
    #[must_use]
    pub fn lockdown(&self) -> Option<Finding> {
        let names = self.lockdown_tables();
        let cause = "the lockdown of guard drops new connections until the capture rules are live again";
        let cause = format!("{cause} ({})", names.join(", "));
        (!names.is_empty()).then(|| Finding::new(Problem::Lockdown, cause))
    }
}

/// Chains of ours that stay since a foreign rule jumps to them.
fn held_chains(desired: &DesiredState, current: &CurrentState) -> Vec<Finding> {
    let mut notices = Vec::new();
    for ((variant, family), observed) in &current.rules {
        let wanted = desired.rules.get(family).filter(|_| current.backend == Backend::Iptables(*variant));
        for (table, live) in &observed.tables {
            let wanted = wanted.and_then(|rules| rules.tables.get(table));
            let unwanted = |chain: &Chain| wanted.is_none_or(|rules| !rules.chains.contains_key(chain));
            let stays = live.chains.keys().filter(|chain| unwanted(chain));
            let held = stays.filter_map(|chain| Some((chain, holder(*table, live, *chain)?)));
            notices.extend(held.map(|(chain, holder)| {
                let (table, chain) = (table.name(), chain.name());
                kept(format!("{table} {chain} ({family}, {variant}) is kept, empty: a foreign rule in {holder} jumps to it"))
            }));
        }
    }
    notices
}

/// Rules of an earlier run that a run deletes without a record, or keeps.
#[must_use]
pub fn kept_rules(desired: &DesiredState, current: &CurrentState) -> Vec<Finding> {
    let mut notices = Vec::new();
    for variant in Variant::ALL {
        let changes = changes(desired, current, variant);
        for change in &changes {
            let observed = current.rules.get(&(variant, change.family));
            let lines = observed.map(|observed| unrecorded_deletions(change, observed)).unwrap_or_default();
            if !lines.is_empty() {
                notices.push(kept(format!(
                    "deleted as rules of Istio's binary (no run record, identified by form and position) ({}, {variant}): {}",
                    change.family,
                    lines.join(", ")
                )));
            }
        }
        for change in changes.iter().filter(|change| !change.ambiguous.is_empty()) {
            let lines: Vec<_> = change.ambiguous.iter().map(|line| format!("`{line}`")).collect();
            let mut commands: Vec<String> = Vec::new();
            for line in &change.ambiguous {
                let command = line.deletion(variant, change.family);
                if !commands.contains(&command) {
                    commands.push(command);
                }
            }
            notices.push(kept(format!(
                "ambiguous rules kept (ours or foreign) ({}, {variant}): {}: delete them if they are not needed: {}",
                change.family,
                lines.join(", "),
                commands.join("; ")
            )));
        }
    }
    notices
}

/// A finding about rules of an earlier run.
fn kept(cause: String) -> Finding {
    Finding::new(Problem::KeptRules, cause)
}

/// Rules in the shared chains that a run deletes although they jump to no chain of ours and no record names
/// them: a foreign rule of the same form in the same place would be among them.
fn unrecorded_deletions(change: &Change, observed: &Observed) -> Vec<String> {
    if observed.record.is_some() {
        return Vec::new();
    }
    let of_table = |change: &TableChange| {
        let live = observed.tables.get(&change.table);
        let deletions = change.deletions.iter().filter(|deletion| !deletion.jumps);
        let text = |deletion: &Deletion| {
            let words = match &deletion.what {
                Deleted::Specification(words) => words.into(),
                Deleted::Number(number) => live?.hook(deletion.hook).get(number.checked_sub(1)?)?.text(),
            };
            Some(format!("`{} {} {words}`", change.table.name(), deletion.hook.name()))
        };
        deletions.filter_map(text).collect::<Vec<_>>()
    };
    change.tables.iter().flat_map(of_table).collect()
}

/// Foreign rules beside which captured DNS gets no response.
#[must_use]
pub fn lost_queries(desired: &DesiredState, current: &CurrentState) -> Vec<Finding> {
    if !foreign::captures_queries(&desired.rules) || !current.has_foreign_rules() {
        return Vec::new();
    }
    let planned = current.planned(&desired.rules);
    foreign::that_translate_queries(&current.examined(&desired.rules, &planned)).sure
}

/// Foreign rules, chains and routes that decide over the packets of the desired rules, and interfaces on
/// which the kernel drops them.
fn add_foreign(
    desired: &DesiredState,
    current: &CurrentState,
    deciding: &mut Vec<Finding>,
    notices: &mut Vec<Finding>,
) {
    // What only keeps translation captures nothing.
    let captures = |(_, rules): &(&Family, &FamilyRules)| !connections::only_keeps_translation(rules);
    let capturing: PerFamily<FamilyRules> =
        desired.rules.iter().filter(captures).map(|(family, rules)| (*family, rules.clone())).collect();
    if current.has_foreign_rules() {
        let planned = current.planned(&capturing);
        let examined = current.examined(&capturing, &planned);
        let walked = || Walked { rules: Cow::Borrowed(&planned), fib: &current.network.fib };
        let first = Walked::deciding(&walked, foreign::find_preceding_rules(&examined));
        deciding.extend(first.iter().map(Finding::from));
        deciding.extend(foreign::find_tproxy_marks(&examined));
        notices.extend(foreign::that_translate_queries(&examined).possible);
        for chain in foreign::find_conflicting_chains(&examined) {
            let list = if chain.is_before() { &mut *deciding } else { &mut *notices };
            list.push((&chain).into());
        }
        if let Some(config) = &desired.config {
            let named: Vec<Finding> = deciding.iter().chain(notices.iter()).cloned().collect();
            deciding.extend(super::lost::connections(config, current, planned.clone(), &named));
        }
    }
    for (family, tproxy) in desired.network.tproxy.iter() {
        let fib = current.network.fib.get(family).into_iter();
        let planned = fib.map(|fib| routing::with_tproxy(fib, *tproxy));
        deciding
            .extend(planned.flat_map(|fib| routing::find_preceding_policy_rules(*family, &fib, tproxy.mark)));
    }
    for (family, rules) in capturing.iter() {
        let fib = current.network.fib.get(family);
        let dropping = routing::find_dropping_interfaces(rules, &current.network.links, fib);
        notices.extend(dropping);
        notices.extend(routing::captured_as_inbound(rules, &current.network.links, fib));
    }
}
