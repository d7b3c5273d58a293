//! The shared chains that the tool cannot list, or lists without a part of a rule.
//!
//! It can add rules there, but may not find the one that it is to delete: iptables before 1.8.9 does not read
//! ports and marks that later versions wrote, and no version reads the sets and ranges of other programs.

use std::collections::BTreeSet;

use crate::kernel::process::Host;
use crate::kernel::{restore, tools};
use crate::model::{Family, Hook, Table, Variant};
use crate::parse::{self, KernelTable, Observed};
use crate::report::Failure;

use super::tool_error;

/// Lists those of which it is not known that each version lists them. Without the tool nothing is deleted
/// either.
///
/// # Errors
/// The tool cannot be run.
pub(super) fn of(
    host: &impl Host,
    family: Family,
    observed: &Observed,
    tables: &[KernelTable],
) -> Result<BTreeSet<(Table, Hook)>, Failure> {
    let mut unlisted = BTreeSet::new();
    let doubtful = parse::chains_to_be_listed(tables);
    if doubtful.is_empty() {
        return Ok(unlisted);
    }
    let Some(tools) = tools::tools(host, Variant::Nft, family) else { return Ok(unlisted) };
    for (table, hook) in doubtful {
        let listed = restore::list_chain(host, &tools, table.name(), hook.name())
            .map_err(|error| tool_error::of_save(&error, Variant::Nft, family))?;
        let lines = observed.tables.get(&table).map_or(&[][..], |table| table.hook(hook));
        if listed.is_none_or(|listed| !parse::is_listed_right(family, lines, &listed)) {
            log::debug!(
                "iptables-nft does not list all of the {family} chain {} of {}",
                hook.name(),
                table.name()
            );
            unlisted.insert((table, hook));
        }
    }
    Ok(unlisted)
}
