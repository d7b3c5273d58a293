//! The lockdown of the guard: while the rules differ, tables of its own drop what they would capture.

use std::io;

use crate::kernel::nftables::{self, Nftables, TableFamily, TableName};
use crate::nft::{self, LOCKDOWN_TABLES};
use crate::plan::DesiredState;

/// Begins it for these rules, in one transaction. Returns false if it was there.
///
/// # Errors
/// The kernel refuses; then nothing is changed.
pub fn begin(desired: &DesiredState) -> io::Result<bool> {
    let tables = nft::lockdown_tables(&desired.rules);
    let live = live()?;
    if tables.iter().all(|table| live.contains(&table.name)) {
        return Ok(false);
    }
    nftables::write(&tables, &[]).map_err(|error| error.error)?;
    Ok(true)
}

/// Ends it. Returns false if there was none.
///
/// # Errors
/// The kernel refuses; then nothing is changed.
pub fn end() -> io::Result<bool> {
    let live = live()?;
    if live.is_empty() {
        return Ok(false);
    }
    let names: Vec<String> = live.into_iter().map(|table| table.name).collect();
    nftables::write(&[], &names).map_err(|error| error.error)?;
    Ok(true)
}

/// The tables of it that are there.
fn live() -> io::Result<Vec<TableName>> {
    let Some(mut socket) = Nftables::open_if_present()? else { return Ok(Vec::new()) };
    let mut live = socket.tables()?;
    live.retain(|table| table.family == TableFamily::Inet && LOCKDOWN_TABLES.contains(&table.name.as_str()));
    Ok(live)
}
