//! Istio's ambient mode, whose chain in `OUTPUT` has the name of one of ours.

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
