//! After everything is done: is it what was meant?

use std::collections::BTreeMap;

use super::{from_kernel, hidden, needed};
use crate::backend::Variant;
use crate::diff::Change;
use crate::exit::Exit;
use crate::kernel::observe;
use crate::kernel::process::Host;
use crate::kernel::restore;
use crate::model::{Chain, FamilyRules, Table};
use crate::parse;
use crate::plan::Goal;
use crate::render;
use crate::report::Failure;

/// Looks again, without another process: every chain of ours is there, with as many rules as it should have.
///
/// # Errors
/// Something is missing, or too much.
pub fn counts(goal: &Goal, variant: Variant) -> Result<(), Failure> {
    let counts = observe::counts(variant)
        .map_err(|error| from_kernel(format!("cannot count the rules that stand now: {error}"), &error))?;
    let nothing = observe::Counts::new();
    for (family, rules) in &goal.rules {
        let differences = count_differences(rules, counts.get(family).unwrap_or(&nothing));
        if !differences.is_empty() {
            return Err(Failure::new(Exit::Refused, format!("the {family} rules are not what was written"))
                .detail(differences.join("\n"))
                .hint("does something else change the rules at the same time? run again, with --verify for the details"));
        }
    }
    Ok(())
}

fn count_differences(rules: &FamilyRules, counts: &observe::Counts) -> Vec<String> {
    let mut differences = Vec::new();
    for table in Table::ALL {
        let (wanted, none) = (rules.tables.get(&table), BTreeMap::new());
        let standing = counts.get(&table).unwrap_or(&none);
        for chain in Chain::ALL {
            let wanted = wanted.and_then(|wanted| wanted.chains.get(&chain)).map(Vec::len);
            let standing = standing.get(chain.name()).copied();
            // A chain that somebody else still jumps to stays, empty.
            let kept = (wanted, standing) == (None, Some(0));
            if wanted != standing && !kept {
                let (standing, wanted) = (number(standing), number(wanted));
                differences.push(format!("{} {}: {standing}, not {wanted}", table.name(), chain.name()));
            }
        }
        for (hook, wanted) in wanted.iter().flat_map(|wanted| &wanted.hooks) {
            let wanted = wanted.iter().count();
            let standing = standing.get(hook.name()).copied().unwrap_or(0);
            if standing < wanted {
                differences.push(format!(
                    "{} {}: {standing} rules, fewer than our {wanted}",
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
/// The differences, as the rules file that would mend them.
pub fn rules(host: &impl Host, goal: &Goal, variant: Variant) -> Result<(), Failure> {
    for rules in goal.rules.values().filter(|rules| rules.count() > 0) {
        let tools = needed(host, variant, rules.family, "rules are read back with them")?;
        let saved = restore::save(host, variant, rules.family, &tools)?;
        hidden::none_of_ours(variant, rules.family, &saved)?;
        let change = Change::between(rules, &parse::iptables_save(rules.family, &saved), false);
        if !change.is_empty() {
            let what = format!("the {} rules are not what the options ask for; to mend them:", rules.family);
            return Err(Failure::new(Exit::Refused, what).detail(render::restore(&change)));
        }
    }
    // A family that is to have none is covered by the count: no chain of ours, so no jump to one.
    counts(goal, variant)
}
