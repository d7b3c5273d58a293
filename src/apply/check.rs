//! Checks the live rules after a run.

use std::collections::BTreeMap;

use super::{from_kernel, inspect, needed};
use crate::diff::Change;
use crate::exit::Exit;
use crate::kernel::observe;
use crate::kernel::process::Host;
use crate::model::{Chain, FamilyRules, Table, Variant};
use crate::plan::DesiredState;
use crate::record::Record;
use crate::render;
use crate::report::Failure;

/// Counts the live rules through netlink: every chain of ours exists with the expected number of rules.
///
/// # Errors
/// Something is missing, or too much.
pub fn counts(desired: &DesiredState, variant: Variant) -> Result<(), Failure> {
    let counts = observe::counts(variant)
        .map_err(|error| from_kernel(format!("cannot count the live rules: {error}"), &error))?;
    let nothing = observe::Counts::new();
    for (family, rules) in &desired.rules {
        let differences = count_differences(rules, counts.get(family).unwrap_or(&nothing));
        if !differences.is_empty() {
            return Err(Failure::new(Exit::Refused, format!("the {family} rules are not what was written"))
                .detail(differences.join("\n"))
                .hint("check whether another program changes the rules at the same time; run again with --verify for the details"));
        }
    }
    Ok(())
}

fn count_differences(rules: &FamilyRules, counts: &observe::Counts) -> Vec<String> {
    let mut differences = Vec::new();
    for table in Table::ALL {
        let (wanted, none) = (rules.tables.get(&table), BTreeMap::new());
        let live = counts.get(&table).unwrap_or(&none);
        for chain in Chain::ALL {
            let wanted = wanted.and_then(|wanted| wanted.chains.get(&chain)).map(Vec::len);
            let live = live.get(chain.name()).copied();
            // A chain that a foreign rule still jumps to is kept, empty.
            let kept = (wanted, live) == (None, Some(0));
            if wanted != live && !kept {
                let (live, wanted) = (number(live), number(wanted));
                differences.push(format!("{} {}: {live}, not {wanted}", table.name(), chain.name()));
            }
        }
        for (hook, wanted) in wanted.iter().flat_map(|wanted| &wanted.hooks) {
            let wanted = wanted.iter().count();
            let live = live.get(hook.name()).copied().unwrap_or(0);
            if live < wanted {
                differences.push(format!(
                    "{} {}: {live} rules, fewer than our {wanted}",
                    table.name(),
                    hook.name()
                ));
            }
        }
    }
    differences
}

fn number(rules: Option<usize>) -> String {
    rules.map_or_else(|| "no chain".to_owned(), |rules| format!("{rules} rules"))
}

/// Reads everything back and compares it rule by rule: one more process per family that has rules, or had some.
///
/// # Errors
/// The differences, as the rules file that would correct them.
pub fn rules(host: &impl Host, desired: &DesiredState, variant: Variant) -> Result<(), Failure> {
    let alias = observe::alias()
        .map_err(|error| from_kernel(format!("cannot read the alias of lo: {error}"), &error))?;
    let record: Option<Record> = alias.and_then(|alias| alias.parse().ok());
    let record = record.and_then(|record| record.of_variant(variant));
    for rules in desired.rules.values().filter(|rules| rules.count() > 0) {
        let tools = needed(host, variant, rules.family, "rules are read back with them")?;
        let mut observed = inspect::read(host, variant, rules.family, &tools)?;
        observed.record.clone_from(&record);
        let change = Change::between(rules, &observed, false);
        if !change.is_empty() {
            let what = format!("the {} rules do not match the options; to correct them:", rules.family);
            return Err(Failure::new(Exit::Refused, what).detail(render::restore(&change)));
        }
    }
    // A family that is to have none is covered by the count: no chain of ours, so no jump to one.
    counts(desired, variant)
}
