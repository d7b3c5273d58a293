//! A transaction, tried again while other programs change what it is based on.

use std::borrow::Cow;
use std::io;

use nfnetlink::nftables::{Batch, Client, CommitError, Table, TableName};

use super::{Nftables, inet};

/// How often a transaction is tried whose base other programs change.
const ATTEMPTS: usize = 16;

/// What is live: the base of a transaction.
#[derive(Debug)]
pub struct Live {
    /// The rules were so in this generation. Of another one, the kernel refuses the transaction.
    generation: u32,
    /// The names of all tables.
    pub(super) names: Vec<TableName>,
    /// The names of the dormant ones.
    pub(super) dormant: Vec<TableName>,
    /// The tables that have been read whole.
    whole: Vec<Table>,
}

impl Live {
    /// Lists the tables. The client is in the network namespace of the socket.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn list(mut socket: Nftables) -> io::Result<(Self, Client)> {
        let generation = socket.generation()?;
        let listed = socket.listed_tables()?;
        let dormant = listed.iter().filter(|table| table.is_dormant).map(|table| table.name.clone());
        let dormant = dormant.collect();
        let names = listed.into_iter().map(|table| table.name).collect();
        Ok((Self { generation, names, dormant, whole: Vec::new() }, socket.into_client()))
    }

    /// Reads tables whole, those of them that are there.
    ///
    /// # Errors
    /// The kernel refuses, or the rules change each time they are read.
    pub fn read_whole(
        &mut self,
        client: &mut Client,
        concerns: impl Fn(&TableName) -> bool,
    ) -> io::Result<&[Table]> {
        let names: Vec<_> = self.names.iter().filter(|name| concerns(name)).cloned().collect();
        self.whole = client.tables_of_generation(&names)?.1;
        Ok(&self.whole)
    }

    /// The tables that have been read whole.
    pub fn whole(&self) -> &[Table] {
        &self.whole
    }

    /// The names of the dormant tables.
    pub fn dormant(&self) -> &[TableName] {
        &self.dormant
    }

    /// What a table holds, apart from the elements of its sets.
    pub(super) fn content(
        &self,
        client: &mut Client,
        name: &TableName,
    ) -> io::Result<Option<Cow<'_, Table>>> {
        match self.whole.iter().find(|table| table.name == *name) {
            Some(table) => Ok(Some(Cow::Borrowed(table))),
            None if self.names.contains(name) => Ok(client.table_without_elements(name)?.map(Cow::Owned)),
            None => Ok(None),
        }
    }

    /// Lists the tables again, after they have changed.
    pub(super) fn again(client: &mut Client) -> io::Result<Self> {
        let generation = client.generation()?;
        Ok(Self { generation, names: client.tables()?, dormant: Vec::new(), whole: Vec::new() })
    }
}

/// Commits what `batch` makes of the live tables, and deletes others, in one transaction: again if the rules
/// change meanwhile.
pub(super) fn commit(
    client: &mut Client,
    mut live: Live,
    delete: &[String],
    batch: impl Fn(&mut Client, &Live) -> io::Result<Batch>,
) -> Result<(), CommitError> {
    for attempt in 1.. {
        let outcome = match batch(client, &live) {
            Ok(mut batch) => {
                for name in delete.iter().map(|name| inet(name)).filter(|name| live.names.contains(name)) {
                    batch.delete_table(&name);
                }
                client.commit_at(&batch, Some(live.generation))
            }
            Err(error) => Err(failed(error)),
        };
        match outcome {
            Err(error) if error.is_stale() && attempt < ATTEMPTS => {}
            outcome => return outcome,
        }
        live = Live::again(client).map_err(failed)?;
    }
    Ok(())
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
