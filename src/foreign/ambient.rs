//! Istio's ambient mode, whose chain in `OUTPUT` has the name of one of ours, and its native nftables.

use nfnetlink::nftables;

use crate::model::{Chain, Table};
use crate::parse::Observed;

/// A chain that only ambient mode has.
pub const AMBIENT_CHAIN: &str = "ISTIO_PRERT";

/// The table in which rules of ambient mode are in chains with its names and one of ours.
#[must_use]
pub fn ambient_table(observed: &Observed) -> Option<Table> {
    let mut tables = observed.tables.iter();
    let found = tables.find(|(_, rules)| {
        rules.foreign.contains_key(AMBIENT_CHAIN) && rules.chains.contains_key(&Chain::Output)
    });
    found.map(|(table, _)| *table)
}

/// The beginning of the names of its tables of native nftables, in the family `inet`.
const AMBIENT_TABLES: &str = "istio-ambient-";

/// The native nftables table of ambient mode in which connections are redirected.
#[must_use]
pub fn native_ambient_table(tables: &[nftables::Table]) -> Option<&str> {
    let is_ambient = |table: &&nftables::Table| {
        table.name.family == nftables::Family::Inet && table.name.name.starts_with(AMBIENT_TABLES)
    };
    tables.iter().find(is_ambient).map(|table| table.name.name.as_str())
}
