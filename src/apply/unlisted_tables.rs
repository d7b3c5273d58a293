//! Tables that the save tool does not show, or shows without a part.
//!
//! `iptables-nft-save` omits a table, with a comment, if another program has used `nft` to add what iptables does not
//! know: KubeVirt adds chains to `ip nat`. If such a table were taken for empty, every run would add its rules once
//! more. A chain that has only rules of iptables can still be listed and changed on its own. The rules of any other
//! chain are read from the kernel: the tool can add rules to such a chain, but not delete any. So are those of chains with
//! sets, verdict maps or ranges of addresses, which the tool prints without these tests.

use std::collections::BTreeSet;

use nfnetlink::nftables::{Chain, Expression, Operator, PayloadBase, Rule, Verdict};

use crate::kernel::observe;
use crate::kernel::process::Host;
use crate::kernel::{recording, restore};
use crate::model::{Chain as ChainName, Family, Hook, Table, Tools, Variant};
use crate::parse;
use crate::report::Failure;

use super::tool_error;

/// What there is.
pub(super) struct Saved {
    /// In the format of the save tool.
    pub(super) text: String,
    /// The shared chains that the tool cannot list.
    pub(super) unlisted: BTreeSet<(Table, Hook)>,
}

/// Adds the tables that were left out of what the tool printed, chain by chain.
///
/// # Errors
/// The kernel cannot be read.
pub(super) fn complete(
    host: &impl Host,
    variant: Variant,
    family: Family,
    tools: &Tools,
    text: String,
) -> Result<Saved, Failure> {
    let mut saved = Saved { text, unlisted: BTreeSet::new() };
    if variant == Variant::Legacy {
        return Ok(saved);
    }
    let is_complete = !Table::ALL.iter().any(|table| is_left_out(*table, &saved.text));
    if is_complete && !has_foreign_rules(&saved.text) && !has_foreign_jumps(family, &saved.text)? {
        return Ok(saved);
    }
    let mut live = observe::tables_of_iptables(family, &Table::ALL).map_err(|error| unreadable(&error))?;
    live.retain(|(table, chains)| {
        is_left_out(*table, &saved.text) || chains.iter().any(|chain| has_unprinted_test(&chain.rules))
    });
    for (table, _) in &live {
        saved.text = without_table(*table, &saved.text);
    }
    list(host, variant, family, tools, live, &mut saved)?;
    Ok(saved)
}

fn unreadable(error: &std::io::Error) -> Failure {
    super::from_kernel(format!("cannot read the tables that are not shown: {error}"), error)
}

/// All tables chain by chain, where iptables-nft-save fails: it ends at the first expression that some versions do not read,
/// in whichever chain. `None` where that does not help.
pub(super) fn without_save(
    host: &impl Host,
    variant: Variant,
    family: Family,
    tools: &Tools,
) -> Option<Saved> {
    let mut saved = Saved { text: String::new(), unlisted: BTreeSet::new() };
    if variant == Variant::Legacy {
        return None;
    }
    let live = observe::tables_of_iptables(family, &Table::ALL).map_err(|error| unreadable(&error));
    let listed = live.and_then(|live| list(host, variant, family, tools, live, &mut saved));
    listed.inspect_err(|failure| log::debug!("{failure}")).ok()?;
    Some(saved)
}

/// Adds the rules of some tables.
fn list(
    host: &impl Host,
    variant: Variant,
    family: Family,
    tools: &Tools,
    tables: Vec<(Table, Vec<Chain>)>,
    saved: &mut Saved,
) -> Result<(), Failure> {
    for (table, chains) in tables {
        saved.text += &format!("*{}\n", table.name());
        for chain in &chains {
            let listed = if has_unprinted_test(&chain.rules) {
                None
            } else {
                restore::list_chain(host, tools, table.name(), &chain.name)
                    .map_err(|error| tool_error::of_save(&error, variant, family))?
            };
            if listed.is_none() {
                log::debug!(
                    "{variant} cannot list all of the {family} chain {} of {}",
                    chain.name,
                    table.name()
                );
                let shared = Hook::ALL.into_iter().find(|hook| hook.name() == chain.name);
                saved.unlisted.extend(shared.map(|hook| (table, hook)));
            }
            saved.text += &listed.unwrap_or_else(|| words_of_chain(family, chain));
        }
        saved.text += "COMMIT\n";
    }
    Ok(())
}

/// A chain that the tool cannot list, in the format of the save tool.
fn words_of_chain(family: Family, chain: &Chain) -> String {
    let Chain { name, base, rules } = chain;
    let policy = match base.as_ref().map(|base| &base.policy) {
        Some(Verdict::Drop) => "DROP",
        Some(_) => "ACCEPT",
        None => "-",
    };
    let rules = rules.iter().map(|rule| format!("-A {name} {}\n", parse::words_of_rule(family, rule)));
    format!(":{name} {policy} [0:0]\n{}", rules.collect::<String>())
}

/// Whether a rule may be foreign: it is in a chain that is not ours, and does not jump to one of ours. Without such a rule the
/// kernel is not asked, because reading our own rules takes time with long lists.
fn has_foreign_rules(saved: &str) -> bool {
    let is_ours = |name: &str| ChainName::from_name(name).is_some();
    let mut rules = saved.lines().filter_map(|line| line.strip_prefix("-A "));
    rules.any(|rule| {
        let chain = rule.split(' ').next().is_some_and(is_ours);
        let target = rule.rsplit_once(" -j ").is_some_and(|(_, target)| is_ours(target));
        !chain && !target
    })
}

/// Whether a rule of the shared chains is foreign that the tool prints like one of our jumps. These chains are short.
fn has_foreign_jumps(family: Family, saved: &str) -> Result<bool, Failure> {
    let mut chains = BTreeSet::new();
    let mut table = None;
    for line in saved.lines() {
        if let Some(name) = line.strip_prefix('*') {
            table = Table::ALL.into_iter().find(|table| table.name() == name);
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let name = rule.split(' ').next().unwrap_or_default();
            chains.extend(table.zip(Hook::ALL.into_iter().find(|hook| hook.name() == name)));
        }
    }
    match recording::optional(|| observe::rules_of_chains(family, &chains)) {
        Ok(rules) => Ok(has_unprinted_test(&rules)),
        // Bundles of earlier versions do not have them.
        Err(_) if recording::is_replayed() => Ok(false),
        Err(error) => Err(unreadable(&error)),
    }
}

/// Whether the tool prints one of these rules without one of its tests. It prints ranges of ports.
fn has_unprinted_test(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| {
        // What was loaded last.
        let mut is_port = false;
        rule.expressions.iter().any(|expression| {
            if let Expression::Payload { base, .. } = expression {
                is_port = *base == PayloadBase::Transport;
            }
            is_port &= !matches!(expression, Expression::Meta { .. } | Expression::Ct { .. });
            is_of_set(expression) || is_of_range(expression) && !is_port
        })
    })
}

fn is_of_set(expression: &Expression) -> bool {
    let is_other_lookup =
        |expression: &_| matches!(expression, Expression::Foreign { name, .. } if name == "lookup");
    matches!(expression, Expression::Lookup { .. }) || is_other_lookup(expression)
}

/// A range, or one of its ends.
const fn is_of_range(expression: &Expression) -> bool {
    let is_end = matches!(expression, Expression::Compare { operator, .. }
        if !matches!(operator, Operator::Equal | Operator::NotEqual));
    is_end || matches!(expression, Expression::Range { .. })
}

/// The text of the save tool without one of its tables.
fn without_table(table: Table, saved: &str) -> String {
    let head = format!("*{}", table.name());
    let mut is_within = false;
    let kept = saved.lines().filter(|line| {
        is_within |= *line == head;
        let is_kept = !is_within;
        is_within &= *line != "COMMIT";
        is_kept
    });
    kept.flat_map(|line| [line, "\n"]).collect()
}

fn is_left_out(table: Table, saved: &str) -> bool {
    let complaint = format!("# Table `{}' is incompatible", table.name());
    saved.lines().any(|line| line.starts_with(&complaint))
}
