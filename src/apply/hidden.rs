//! Tables that the save tool does not show.
//!
//! `iptables-nft-save` omits a table, with a comment, if another program has used `nft` to add what iptables does not
//! know: KubeVirt adds chains to `ip nat`. If such a table were taken for empty, every run would add its rules once
//! more. A chain that has only rules of iptables can still be listed and changed on its own. The rules of any other
//! chain are read from the kernel: the tool can add rules to such a chain, but not delete any.

use std::collections::BTreeSet;

use nfnetlink::nftables::{Chain, Verdict};

use crate::kernel::observe;
use crate::kernel::process::Host;
use crate::kernel::restore;
use crate::model::{Family, Hook, Table, Tools, Variant};
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
    let left_out: Vec<Table> = Table::ALL.into_iter().filter(|table| is_left_out(*table, &text)).collect();
    let mut saved = Saved { text, unlisted: BTreeSet::new() };
    if !left_out.is_empty() {
        list(host, variant, family, tools, &left_out, &mut saved)?;
    }
    Ok(saved)
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
    let listed = match variant {
        Variant::Legacy => return None,
        Variant::Nft => list(host, variant, family, tools, &Table::ALL, &mut saved),
    };
    listed.inspect_err(|failure| log::debug!("{failure}")).ok()?;
    Some(saved)
}

/// Adds the rules of some tables.
fn list(
    host: &impl Host,
    variant: Variant,
    family: Family,
    tools: &Tools,
    tables: &[Table],
    saved: &mut Saved,
) -> Result<(), Failure> {
    let unreadable = |error: std::io::Error| {
        super::from_kernel(format!("cannot read the tables that are not shown: {error}"), &error)
    };
    let live = observe::tables_of_iptables(family, tables).map_err(unreadable)?;
    for (table, chains) in live {
        saved.text += &format!("*{}\n", table.name());
        for chain in &chains {
            let listed = restore::list_chain(host, tools, table.name(), &chain.name)
                .map_err(|error| tool_error::of_save(&error, variant, family))?;
            if listed.is_none() {
                log::debug!("{variant} cannot list the {family} chain {} of {}", chain.name, table.name());
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

fn is_left_out(table: Table, saved: &str) -> bool {
    let complaint = format!("# Table `{}' is incompatible", table.name());
    saved.lines().any(|line| line.starts_with(&complaint))
}
