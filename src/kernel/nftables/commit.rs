//! A transaction, tried again while other programs change what it is based on.

use std::io;

use nfnetlink::nftables::{Batch, Client, CommitError, TableName};

use super::inet;

/// How often a transaction is tried whose base other programs change.
const ATTEMPTS: usize = 16;

/// Commits what `batch` makes of the live tables, and deletes others, in one transaction: again if the rules
/// change meanwhile.
pub(super) fn commit(
    client: &mut Client,
    delete: &[String],
    batch: impl Fn(&mut Client, &[TableName]) -> io::Result<Batch>,
) -> Result<(), CommitError> {
    let mut attempts = 0;
    loop {
        let generation = client.generation().map_err(failed)?;
        let names = client.tables().map_err(failed)?;
        let outcome = match batch(client, &names) {
            Ok(mut batch) => {
                for name in delete.iter().map(|name| inet(name)).filter(|name| names.contains(name)) {
                    batch.delete_table(&name);
                }
                client.commit_at(&batch, Some(generation))
            }
            Err(error) => Err(failed(error)),
        };
        attempts += 1;
        match outcome {
            Err(error) if error.is_stale() && attempts < ATTEMPTS => {}
            outcome => return outcome,
        }
    }
}

/// Deletes tables in one transaction, if the rules are still of this generation; otherwise the error [is
/// stale](CommitError::is_stale).
///
/// # Errors
/// The kernel refuses; then nothing is changed.
pub fn delete_tables_at(tables: &[TableName], generation: u32) -> Result<(), CommitError> {
    let mut batch = Batch::new();
    tables.iter().for_each(|table| batch.delete_table(table));
    Client::open().map_err(failed)?.commit_at(&batch, Some(generation))
}

pub(super) fn failed(error: io::Error) -> CommitError {
    CommitError { origin: None, error: error.into() }
}
