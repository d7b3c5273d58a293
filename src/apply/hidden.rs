//! Tables that the save tool does not show.
//!
//! `iptables-nft-save` leaves out a table, with a comment, in which another program put, by `nft`, what iptables does not
//! know: KubeVirt adds chains to `ip nat`. Taken for an empty one, every run would add its rules once more. Each chain that has
//! only rules of iptables can still be listed and changed by itself.

use crate::exit::Exit;
use crate::kernel::observe;
use crate::kernel::process::Host;
use crate::kernel::restore;
use crate::model::{Chain, Family, Hook, Table, Tools, Variant};
use crate::parse::UNREADABLE;
use crate::report::Failure;

use super::tool_error;

/// Adds the tables that were left out of what the tool printed, chain by chain.
///
/// # Errors
/// A chain of ours, or a shared one beside chains of ours, cannot be listed.
pub(super) fn complete(
    host: &impl Host,
    variant: Variant,
    family: Family,
    tools: &Tools,
    mut saved: String,
) -> Result<String, Failure> {
    let left_out: Vec<Table> = Table::ALL.into_iter().filter(|table| is_left_out(*table, &saved)).collect();
    if !left_out.is_empty() {
        saved += &listed(host, variant, family, tools, &left_out)?;
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
) -> Option<String> {
    let listed = match variant {
        Variant::Legacy => return None,
        Variant::Nft => listed(host, variant, family, tools, &Table::ALL),
    };
    listed.inspect_err(|failure| log::debug!("{failure}")).ok()
}

/// The rules of some tables, in the format of the save tool.
fn listed(
    host: &impl Host,
    variant: Variant,
    family: Family,
    tools: &Tools,
    tables: &[Table],
) -> Result<String, Failure> {
    let counts = observe::counts(variant).map_err(|error| {
        super::from_kernel(format!("cannot read the tables that are not shown: {error}"), &error)
    })?;
    let mut text = String::new();
    for table in tables {
        let Some(chains) = counts.get(&family).and_then(|counts| counts.get(table)) else { continue };
        let holds_ours = chains.keys().any(|chain| Chain::from_name(chain).is_some());
        text += &format!("*{}\n", table.name());
        for chain in chains.keys() {
            let listed = restore::list_chain(host, tools, table.name(), chain)
                .map_err(|error| tool_error::of_save(&error, variant, family))?;
            match listed {
                Some(rules) => text += &rules,
                None if holds_ours && is_needed(chain) => {
                    return Err(unreadable(variant, family, *table, chain));
                }
                None => text += &format!("-A {chain} -j \"{UNREADABLE}\"\n"),
            }
        }
        text += "COMMIT\n";
    }
    Ok(text)
}

fn is_left_out(table: Table, saved: &str) -> bool {
    let complaint = format!("# Table `{}' is incompatible", table.name());
    saved.lines().any(|line| line.starts_with(&complaint))
}

/// Whether rules of ours are in this chain, or may be.
fn is_needed(chain: &str) -> bool {
    Chain::from_name(chain).is_some() || Hook::ALL.iter().any(|hook| hook.name() == chain)
}

fn unreadable(variant: Variant, family: Family, table: Table, chain: &str) -> Failure {
    let (table, nft_family) = (
        table.name(),
        match family {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        },
    );
    Failure::new(
        Exit::Refused,
        format!("{variant} cannot read the {family} chain {chain} of the table {table}"),
    )
    .hint(format!(
        "another program added expressions by `nft` that iptables does not know (`nft list chain {nft_family} {table} {chain}` \
         shows them): move them to a table of its own"
    ))
}
