//! Activates dormant tables of iptables-nft, which no run does: a person has switched them off.

use std::io;

use crate::apply;
use crate::kernel::nftables::{Nftables, TableFamily, TableName};
use crate::model::Family;
use crate::plan::DesiredState;
use crate::report::Failure;

/// Activates the dormant tables that are to hold these rules, in one transaction. All rules in them are as
/// they were.
///
/// # Errors
/// The kernel refuses.
pub fn activate_tables(desired: &DesiredState) -> Result<(), Failure> {
    let failed =
        |error: &io::Error| apply::from_kernel(format!("dormant tables cannot be activated: {error}"), error);
    let Some(mut socket) = Nftables::open_if_present().map_err(|error| failed(&error))? else {
        return Ok(());
    };
    let dormant = socket.dormant_tables().map_err(|error| failed(&error))?;
    let ours: Vec<_> = dormant.into_iter().filter(|table| is_desired(desired, table)).collect();
    if ours.is_empty() {
        return Ok(());
    }
    socket.activate_tables(&ours).map_err(|error| failed(&error.error))
}

fn is_desired(desired: &DesiredState, dormant: &TableName) -> bool {
    let family = match dormant.family {
        TableFamily::Ip => Family::V4,
        TableFamily::Ip6 => Family::V6,
        TableFamily::Inet => return false,
    };
    let rules = desired.rules.get(&family).map(|rules| &rules.tables);
    rules.into_iter().flatten().any(|(table, rules)| table.name() == dormant.name && !rules.is_empty())
}
