//! Executes the steps of native nftables.

use std::io;
use std::path::Path;
use std::sync::OnceLock;

use nfnetlink::nftables::{Client, CommitError, Table};

use super::{from_kernel, missing_modules, tool_error};
use crate::config::RunOptions;
use crate::kernel::{modules, nftables, observe, rules_file};
use crate::nft::{self, NativeTable};
use crate::plan::{DesiredState, ReplaceNative, Step};
use crate::report::Failure;

/// Writes the file that `--rules-file` keeps: the text of the final tables, which `nft -f` reads.
///
/// # Errors
/// The file cannot be written.
pub(super) fn keep_file(steps: &[Step], run: &RunOptions) -> Result<(), Failure> {
    let mut last = None;
    for step in steps {
        if let Step::ReplaceNative(replace) = step {
            last = Some(replace);
        }
    }
    let (Some(ReplaceNative { tables, delete: _ }), Some(path)) = (last, &run.rules_file) else {
        return Ok(());
    };
    let path = rules_file::native_path_of(path);
    let kept = rules_file::keep(&path, &nft::text(tables));
    let kept = kept.map_err(|error| tool_error::cannot_write("--rules-file", &path, &error))?;
    log::info!("the rules are written to {} (nftables)", kept.place);
    Ok(())
}

/// Writes the tables of a dry run to a file next to `path`.
///
/// # Errors
/// The file cannot be written.
pub(super) fn show_file(tables: &[NativeTable], path: &Path) -> Result<(), Failure> {
    let path = rules_file::native_path_of(path);
    rules_file::show(&path, &nft::text(tables))
        .map_err(|error| tool_error::cannot_write("DRY_RUN_FILE_PATH", &path, &error))
}

/// Replaces the tables.
///
/// # Errors
/// The kernel refuses; then nothing is changed.
pub(super) fn replace(step: &Step, tables: &[NativeTable], delete: &[String]) -> Result<(), Failure> {
    log::debug!("{}", nft::text(tables).trim_end());
    let encoded: Vec<Table> = tables.iter().map(nft::encode).collect();
    let loaded = nftables::write(&encoded, delete).map_err(|error| refused(step, &error))?;
    if loaded > 0 {
        log::debug!("the lists are loaded ahead, in {loaded} transactions");
    }
    Ok(())
}

/// A desired state whose native tables are kept once they have been needed: to make them takes as long as to
/// read the live ones.
#[derive(Debug)]
pub struct Guarded {
    /// What is to be live.
    pub state: DesiredState,
    /// As they are written, and as they are compared.
    native: OnceLock<(Vec<Table>, Vec<Table>)>,
}

impl Guarded {
    /// Nothing is made yet.
    #[must_use]
    pub const fn new(state: DesiredState) -> Self {
        Self { state, native: OnceLock::new() }
    }

    fn native(&self) -> &(Vec<Table>, Vec<Table>) {
        self.native.get_or_init(|| {
            let written: Vec<Table> = nft::tables(&self.state.rules).iter().map(nft::encode).collect();
            let compared = written.iter().cloned().map(Table::normalized).collect();
            (written, compared)
        })
    }
}

/// Native tables that are not as desired.
#[derive(Debug)]
pub struct Differing {
    /// The names of these tables.
    pub names: Vec<&'static str>,
    /// How many packets the rules of others in them have met, as far as they count.
    pub foreign_packets: u64,
    /// Closed when this is dropped, for which the kernel may need some milliseconds.
    _client: Option<Client>,
}

/// The native tables that are not as desired.
///
/// # Errors
/// They cannot be read.
pub fn differing(desired: &Guarded) -> io::Result<Differing> {
    let (tables, live) = observe::native_by_client()?;
    let client = live.map(|(_, client)| client);
    let names = tables.differing_from(&desired.native().1);
    Ok(Differing { names, foreign_packets: 0, _client: client })
}

/// Writes those native tables that are not as desired, in one transaction. Returns them.
///
/// # Errors
/// They cannot be read, or the kernel refuses; then nothing is changed.
pub fn restore(desired: &Guarded) -> io::Result<Differing> {
    let (before, live) = observe::native_by_client()?;
    let (written, compared) = desired.native();
    let names = before.differing_from(compared);
    let Some((live, mut client)) = live else {
        return Ok(Differing { names, foreign_packets: 0, _client: None });
    };
    let differing = live.whole().iter().filter(|table| names.contains(&table.name.name.as_str()));
    let foreign_packets = differing.map(nft::foreign_packets).sum();
    if !names.is_empty() {
        let tables = written.iter().filter(|table| names.contains(&table.name.name.as_str()));
        let tables: Vec<Table> = tables.cloned().collect();
        let delete = before.unwanted(written.iter().map(|table| table.name.name.as_str()));
        nftables::write_by(&mut client, live, &tables, &delete).map_err(|error| error.error)?;
    }
    Ok(Differing { names, foreign_packets, _client: Some(client) })
}

fn refused(step: &Step, error: &CommitError) -> Failure {
    let cause = io::Error::from_raw_os_error(error.error.error.raw_os_error().unwrap_or(libc::EIO));
    let failure = from_kernel(format!("the kernel refuses `{step}`: {error}"), &cause);
    let missing = missing_modules::of_commit(error, &modules::is_loaded);
    match hint(error).or_else(|| (!missing.is_empty()).then(|| missing_modules::hint(&missing))) {
        Some(hint) => failure.hint(hint).missing(missing),
        None => failure,
    }
}

fn hint(error: &CommitError) -> Option<String> {
    if error.is_too_long() {
        return Some(
            "in a user namespace a transaction is limited to net.core.wmem_max: raise it on the node, or give fewer \
             ports and ranges"
                .to_owned(),
        );
    }
    error
        .is_stale()
        .then(|| "another program keeps changing the rules: find it (`nft monitor`), or run again".to_owned())
}
