//! Checks the live rules after a run.

use std::collections::{BTreeMap, BTreeSet};

use super::{from_kernel, inspect};
use crate::exit::Exit;
use crate::kernel::observe;
use crate::kernel::process::Host;
use crate::model::{Backend, Chain, FamilyRules, NATIVE_TABLES, Table, Variant};
use crate::nft;
use crate::ordered::Ordered as _;
use crate::plan::DesiredState;
use crate::reconcile::Change;
use crate::record::Record;
use crate::render;
use crate::report::Failure;
use crate::text::count;

/// Counts the live rules through netlink: every chain of ours exists with the expected number of rules.
///
/// # Errors
/// Something is missing, or too much.
pub fn counts(desired: &DesiredState, backend: Backend) -> Result<(), Failure> {
    match backend {
        Backend::Iptables(variant) => iptables_counts(desired, variant),
        Backend::Native => native_counts(desired),
    }
}

fn iptables_counts(desired: &DesiredState, variant: Variant) -> Result<(), Failure> {
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

fn native_counts(desired: &DesiredState) -> Result<(), Failure> {
    let live = observe::native_counts(&NATIVE_TABLES)
        .map_err(|error| from_kernel(format!("cannot count the live rules: {error}"), &error))?;
    let tables = nft::tables(&desired.rules);
    let wanted: BTreeMap<&str, BTreeMap<String, usize>> = tables
        .iter()
        .map(|table| {
            let chains = table.chains.iter().map(|chain| (chain.name.to_string(), chain.rules.len()));
            (table.name(), chains.into_map())
        })
        .into_map();
    let none = BTreeMap::new();
    let mut differences = Vec::new();
    for (table, live) in &live {
        let wanted = wanted.get(table.as_str()).unwrap_or(&none);
        let chains: BTreeSet<&String> = live.keys().chain(wanted.keys()).into_set();
        for chain in chains.into_iter().filter(|chain| live.get(*chain) != wanted.get(*chain)) {
            let (live, wanted) = (number(live.get(chain).copied()), number(wanted.get(chain).copied()));
            differences.push(format!("inet {table} {chain}: {live}, not {wanted}"));
        }
    }
    if differences.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Refused, "the nftables rules are not what was written")
        .detail(differences.join("\n"))
        .hint("check whether another program changes the rules at the same time; run again with --verify for the details"))
}

/// Reads the native tables back and compares them.
fn native_rules(desired: &DesiredState) -> Result<(), Failure> {
    let live = observe::native()
        .map_err(|error| from_kernel(format!("cannot read the nftables tables: {error}"), &error))?;
    let tables = nft::tables(&desired.rules);
    let differing = live.differing(&tables);
    if differing.is_empty() {
        return Ok(());
    }
    let what = format!(
        "the nftables tables do not match the options: inet {}; they are to be:",
        differing.join(", inet ")
    );
    let wanted: Vec<_> = tables.into_iter().filter(|table| differing.contains(&table.name())).collect();
    Err(Failure::new(Exit::Refused, what).detail(nft::text(&wanted)))
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
                    "{} {}: {}, fewer than our {wanted}",
                    table.name(),
                    hook.name(),
                    count(live, "rule")
                ));
            }
        }
    }
    differences
}

fn number(rules: Option<usize>) -> String {
    rules.map_or_else(|| "no chain".to_owned(), |rules| count(rules, "rule"))
}

/// Reads everything back and compares it rule by rule: with iptables-legacy one more process per family that
/// has rules.
///
/// # Errors
/// The differences, as the rules file that would correct them.
pub fn rules(host: &impl Host, desired: &DesiredState, backend: Backend) -> Result<(), Failure> {
    let Backend::Iptables(variant) = backend else { return native_rules(desired) };
    let alias = observe::alias()
        .map_err(|error| from_kernel(format!("cannot read the alias of lo: {error}"), &error))?;
    let record: Option<Record> = alias.and_then(|alias| alias.parse().ok());
    let record = record.and_then(|record| record.of_variant(variant));
    for rules in desired.rules.values().filter(|rules| rules.count() > 0) {
        let mut observed = inspect::read(host, variant, rules.family, true)?;
        observed.record.clone_from(&record);
        let change = Change::between(rules, &observed, false);
        if !change.is_empty() {
            let what = format!("the {} rules do not match the options; to correct them:", rules.family);
            return Err(Failure::new(Exit::Refused, what).detail(render::restore(&change)));
        }
    }
    // A family that is to have none is covered by the count: no chain of ours, so no jump to one.
    iptables_counts(desired, variant)
}
