//! Foreign rules that decide before ours see a packet.

mod base_chains;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::diff::{is_our_jump, owned};
use crate::model::{Chain, Family, FamilyRules, Hook, HookRules, Table, TableRules, Target, Variant};
use crate::parse::{self, Line, Observed, ObservedTable, UNREADABLE};

pub use base_chains::{BaseChain, before_ours};

/// A foreign rule before our jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidesFirst {
    family: Family,
    variant: Variant,
    table: Table,
    hook: Hook,
    text: String,
    target: String,
}

impl fmt::Display for DecidesFirst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { family, variant, table, hook, text, target } = self;
        let (table, hook) = (table.name(), hook.name());
        let are = if target.contains(UNREADABLE) { "may not be" } else { "are not" };
        write!(
            f,
            "a foreign rule decides before ours ({family}, {variant}): {table} `-A {hook} {text}`: packets that it \
             hands to {target} {are} captured; move it behind our rule or delete it, if that is not meant"
        )
    }
}

/// Foreign rules that decide before the desired rules, in the order in which packets traverse them. `live` are the rules of
/// `variant`.
#[must_use]
pub fn that_decide_first(
    desired: &BTreeMap<Family, FamilyRules>,
    variant: Variant,
    live: &BTreeMap<(Variant, Family), Observed>,
) -> Vec<DecidesFirst> {
    let mut found = Vec::new();
    for (family, rules) in desired.iter().filter(|(_, rules)| rules.count() > 0) {
        let Some(observed) = live.get(&(variant, *family)) else { continue };
        let record = observed.record.as_ref();
        for (table, observed) in &observed.tables {
            let wanted = rules.tables.get(table);
            for hook in Hook::ALL {
                let ours = owned(*family, *table, hook, observed, record);
                let lines = deciding(*table, hook, wanted, observed, &ours);
                found.extend(lines.into_iter().map(|(line, target)| DecidesFirst {
                    family: *family,
                    variant,
                    table: *table,
                    hook,
                    text: line.text.escape_debug().to_string().replace("\\\"", "\""),
                    target,
                }));
            }
        }
    }
    found
}

/// The foreign rules of a shared chain that can decide, with their target.
fn deciding<'a>(
    table: Table,
    hook: Hook,
    wanted: Option<&TableRules>,
    observed: &'a ObservedTable,
    ours: &BTreeSet<usize>,
) -> Vec<(&'a Line, String)> {
    let captures = wanted.and_then(|rules| rules.hooks.get(&hook)).is_some_and(|rules| {
        rules.iter().any(|rule| rule.statement.target.jump().is_some_and(|chain| chain != Chain::Drop))
    });
    let lines = observed.hook(hook);
    // What is not tracked never gets to nat; what is dropped gets nowhere: wherever they are.
    let before_nat = table == Table::Raw;
    if !captures && !before_nat {
        return Vec::new();
    }
    let jump = |line: &Line| is_our_jump(table, hook, line) && !rerouted(line);
    let first = lines.iter().position(jump).filter(|_| !before_nat).unwrap_or(lines.len());
    let asked_for = |line: &Line| {
        let mut rules = wanted.and_then(|rules| rules.hooks.get(&hook)).into_iter().flat_map(HookRules::iter);
        line.statement.as_ref().is_some_and(|statement| rules.any(|rule| rule.statement == *statement))
    };
    let foreign =
        lines.iter().enumerate().take(first).filter(|(at, line)| !ours.contains(at) && !asked_for(line));
    foreign
        .filter_map(|(_, line)| {
            let target = decides(table, &line.text, &observed.foreign, true, &mut BTreeSet::new())?;
            Some((line, target))
        })
        .collect()
}

/// A jump for a virtual interface: it is before the rules that were there, and says nothing of those.
fn rerouted(line: &Line) -> bool {
    line.statement.as_ref().is_some_and(|statement| {
        statement.matcher.in_interface.is_some() && matches!(statement.target, Target::Jump(_))
    })
}

/// The target that takes a packet away from the rules behind this one, if it has such a target, or jumps to a chain
/// with one.
fn decides(
    table: Table,
    text: &str,
    chains: &BTreeMap<String, Vec<String>>,
    in_hook: bool,
    seen: &mut BTreeSet<String>,
) -> Option<String> {
    let words = parse::target_words(text)?;
    let (option, name) = (words.first()?.as_str(), words.get(1)?.as_str());
    let raw = table == Table::Raw;
    let at_once = match name {
        "DROP" | "REJECT" | "QUEUE" | "NFQUEUE" | UNREADABLE => true,
        "ACCEPT" | "DNAT" | "REDIRECT" | "NETMAP" | "TPROXY" => !raw,
        // In a chain of its own it leads back to the shared chain.
        "RETURN" => !raw && in_hook,
        "NOTRACK" => raw,
        "CT" => raw && words.iter().any(|word| word == "--notrack"),
        _ => false,
    };
    if at_once {
        return Some(name.to_owned());
    }
    let rules = chains.get(name).filter(|_| seen.insert(name.to_owned()))?;
    // Behind a `goto` a RETURN leaves the shared chain.
    let in_hook = in_hook && option == "-g";
    let inner = rules.iter().find_map(|rule| decides(table, rule, chains, in_hook, seen))?;
    Some(format!("{name} ({inner})"))
}
