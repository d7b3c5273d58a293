//! The lockdown of the guard: while the rules differ, tables of its own drop what they would capture.

use std::io;

use crate::kernel::nftables::{self, Client, Nftables, TableFamily, TableName};
use crate::kernel::observe::{self, Handles};
use crate::model::PerFamily;
use crate::nft::{self, LOCKDOWN_TABLES, LiveTables};
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

/// How a lockdown ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// There was none.
    Before,
    /// This call has ended it.
    Now,
    /// Rules have changed meanwhile: it goes on.
    RulesChanged,
}

/// Ends it; where a generation of the rules is given, only if the rules are still of that one.
///
/// # Errors
/// The kernel refuses; then nothing is changed.
pub fn end(generation: Option<u32>) -> io::Result<Ended> {
    let live = live()?;
    if live.is_empty() {
        return Ok(Ended::Before);
    }
    let names = || live.iter().map(|table| table.name.clone()).collect::<Vec<_>>();
    let ended = match generation {
        Some(generation) => nftables::delete_tables_at(&live, generation),
        None => nftables::write(&[], &names()).map(drop),
    };
    match ended {
        Ok(()) => Ok(Ended::Now),
        Err(error) if error.is_stale() => Ok(Ended::RulesChanged),
        Err(error) => Err(error.error.error),
    }
}

/// Whether what is dropped is what these rules would capture; true if nothing is.
///
/// # Errors
/// The kernel refuses.
pub fn is_for(desired: &DesiredState) -> io::Result<bool> {
    let names: Vec<String> = live()?.into_iter().map(|table| table.name).collect();
    if names.is_empty() {
        return Ok(true);
    }
    let live = LiveTables::new(nftables::read(&mut Client::open()?, &names)?, Vec::new());
    let mut wanted = nft::lockdown_tables(&desired.rules).into_iter();
    Ok(wanted.len() == live.tables().len() && wanted.all(|table| live.tables().contains(&table.normalized())))
}

/// The generation of the rules of nf_tables.
///
/// # Errors
/// The kernel refuses.
pub fn generation() -> io::Result<u32> {
    observe::generation()
}

/// The handles of the tables, chains and rules of iptables-nft at one moment.
#[derive(Debug, PartialEq, Eq)]
pub struct HandleSnapshot(PerFamily<Handles>);

impl HandleSnapshot {
    /// Reads those of the families for which rules are desired.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn read(desired: &DesiredState) -> io::Result<Self> {
        let mut handles = PerFamily::new();
        for family in desired.rules.keys() {
            handles.insert(*family, observe::handles(*family)?);
        }
        Ok(Self(handles))
    }

    /// Whether a table, chain or rule was deleted since. Additions are ignored.
    #[must_use]
    pub fn has_deletions(&self) -> bool {
        self.0.iter().any(|(family, before)| observe::handles(*family).is_ok_and(|now| before.lack_in(&now)))
    }
}

/// The tables of it that are there.
fn live() -> io::Result<Vec<TableName>> {
    let Some(mut socket) = Nftables::open_if_present()? else { return Ok(Vec::new()) };
    let mut live = socket.tables()?;
    live.retain(|table| table.family == TableFamily::Inet && LOCKDOWN_TABLES.contains(&table.name.as_str()));
    Ok(live)
}
