//! Tables that their own tool does not show.
//!
//! `iptables-nft-save` leaves out a table, with a comment, in which another program put, by `nft`, what iptables does not
//! know. Taken for an empty one, every run would add its rules once more.

use crate::exit::Exit;
use crate::kernel::observe;
use crate::model::{Chain, Family, Table, Variant};
use crate::report::Failure;

/// Makes sure that no table with rules of ours was left out of what the tool printed.
///
/// # Errors
/// One was.
pub(super) fn none_of_ours(variant: Variant, family: Family, saved: &str) -> Result<(), Failure> {
    let left_out: Vec<Table> = Table::ALL.into_iter().filter(|table| is_left_out(*table, saved)).collect();
    if left_out.is_empty() {
        return Ok(());
    }
    let counts = observe::counts(variant).map_err(|error| {
        super::from_kernel(format!("cannot read the tables that are not shown: {error}"), &error)
    })?;
    let holds_ours = |table: &&Table| {
        counts
            .get(&family)
            .and_then(|counts| counts.get(table))
            .is_some_and(|chains| chains.keys().any(|name| Chain::from_name(name).is_some()))
    };
    left_out.iter().find(holds_ours).map_or(Ok(()), |table| Err(unreadable(variant, family, table.name())))
}

fn is_left_out(table: Table, saved: &str) -> bool {
    let complaint = format!("# Table `{}' is incompatible", table.name());
    saved.lines().any(|line| line.starts_with(&complaint))
}

fn unreadable(variant: Variant, family: Family, table: &str) -> Failure {
    let nft_family = match family {
        Family::V4 => "ip",
        Family::V6 => "ip6",
    };
    Failure::new(
        Exit::Refused,
        format!("the {family} table {table} holds our rules, and {variant} cannot read it any more"),
    )
    .hint(format!(
        "another program added expressions by `nft` that iptables does not know (`nft list table {nft_family} {table}` shows it): \
         move it to a table of its own"
    ))
}
