//! The connection to nf_tables of one network namespace.

use std::collections::BTreeMap;
use std::io;

use super::decode::{Object, RawElements};
use super::encode::message;
use super::number::{self, GEN_ID, Kind, NFGENMSG};
use super::{Batch, Chain, CommitError, Elements, Rule, Set, Table, TableName};
use crate::{BatchError, Message, Socket};

/// How often a table is read again that changes while it is read.
const ATTEMPTS: usize = 16;

/// The messages that begin and end a batch, and what the kernel keeps of the buffer (32 bytes), rounded up.
const BATCH_OVERHEAD: usize = 256;

/// A socket for nf_tables, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Client {
    pub(super) socket: Socket,
}

impl Client {
    /// Opens a socket in the current thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses; `EPROTONOSUPPORT` if it has no netlink for netfilter.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: Socket::open_for_transactions()? })
    }

    /// Goes on with an open socket of [`crate::Protocol::Netfilter`].
    #[must_use]
    pub const fn over(socket: Socket) -> Self {
        Self { socket }
    }

    /// The number of changes that the rules of this namespace have seen.
    ///
    /// # Errors
    /// The kernel refuses: it has no nf_tables, or `EPERM` without CAP_NET_ADMIN.
    pub fn generation(&mut self) -> io::Result<u32> {
        let request = Message::new(Kind::GetGeneration.number(), 0, &[0; NFGENMSG]);
        self.socket.query(&request, |reply| {
            reply.attributes(NFGENMSG).of(GEN_ID).and_then(|id| id.be32()).unwrap_or(0)
        })
    }

    /// Makes all changes of a batch, or none.
    ///
    /// # Errors
    /// What the kernel refuses, and why.
    pub fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        self.commit_at(batch, None)
    }

    /// Makes all changes of a batch, if the rules are still of this generation; otherwise the error [is
    /// stale](CommitError::is_stale).
    ///
    /// # Errors
    /// What the kernel refuses, and why.
    pub fn commit_at(&mut self, batch: &Batch, generation: Option<u32>) -> Result<(), CommitError> {
        let outcome = self.socket.transaction_at(batch.messages(), generation);
        outcome.map_err(|error: BatchError| CommitError {
            origin: error.message.and_then(|index| batch.origin(index)).cloned().map(Box::new),
            error,
        })
    }

    /// The size of the largest batch that can be committed, in bytes: what one send call may hold, with the
    /// send buffer as large as it may be made.
    #[must_use]
    pub fn batch_limit(&self) -> usize {
        self.socket.send_limit().saturating_sub(BATCH_OVERHEAD)
    }

    /// The names of the tables of the supported families.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tables(&mut self) -> io::Result<Vec<TableName>> {
        let request = Message::new(Kind::GetTable.number(), 0, &[0; NFGENMSG]);
        self.socket.dump(&request, |tables: &mut Vec<TableName>, reply| {
            if let Some(Object::Table(table)) = Object::read(reply) {
                tables.push(table.name);
            }
        })
    }

    /// A table with everything in it, as it was at one point in time; `None` if there is no such table.
    /// Objects other than chains, rules and sets (named counters, flow tables) are not read.
    ///
    /// # Errors
    /// The kernel refuses, or the rules change each time they are read.
    pub fn table(&mut self, name: &TableName) -> io::Result<Option<Table>> {
        Ok(self.at_one_time(std::slice::from_ref(name), true)?.1.pop())
    }

    /// Tables with everything in them, as far as they exist, and the generation of the rules in which they
    /// were so.
    ///
    /// # Errors
    /// The kernel refuses, or the rules change each time they are read.
    pub fn tables_of_generation(&mut self, names: &[TableName]) -> io::Result<(u32, Vec<Table>)> {
        self.at_one_time(names, true)
    }

    /// A table without the elements of its sets, as [`Self::table`] reads it.
    ///
    /// # Errors
    /// The kernel refuses, or the rules change each time they are read.
    pub fn table_without_elements(&mut self, name: &TableName) -> io::Result<Option<Table>> {
        Ok(self.at_one_time(std::slice::from_ref(name), false)?.1.pop())
    }

    fn at_one_time(&mut self, names: &[TableName], elements: bool) -> io::Result<(u32, Vec<Table>)> {
        for _ in 0..ATTEMPTS {
            let before = self.generation()?;
            let tables: io::Result<Vec<_>> =
                names.iter().map(|name| self.read_table(name, elements)).collect();
            if self.generation()? == before {
                return Ok((before, tables?.into_iter().flatten().collect()));
            }
        }
        Err(io::Error::other(format!("the rules changed each of the {ATTEMPTS} times they were read")))
    }

    fn read_table(&mut self, name: &TableName, elements: bool) -> io::Result<Option<Table>> {
        let request = message(Kind::GetTable, name.family, 0).with_text(number::table::NAME, &name.name);
        let found = absent(self.socket.query(&request, Object::read))?.flatten();
        let Some(Object::Table(table)) = found else { return Ok(None) };
        let mut rules = self.rules(name)?;
        let chains = self
            .chains(name)?
            .into_iter()
            .map(|chain| Chain { rules: rules.remove(&chain.name).unwrap_or_default(), ..chain });
        let chains = chains.collect();
        Ok(Some(Table { sets: self.sets(name, elements)?, chains, ..table }))
    }

    /// The chains of some tables of one family with their rules, as they were at one point in time. A table
    /// that is not there has none.
    ///
    /// # Errors
    /// The kernel refuses, or the rules change each time they are read.
    pub fn chains_with_rules(&mut self, tables: &[TableName]) -> io::Result<Vec<(TableName, Vec<Chain>)>> {
        let Some(family) = tables.first().map(|table| table.family) else { return Ok(Vec::new()) };
        for _ in 0..ATTEMPTS {
            let before = self.generation()?;
            let mut found: Vec<_> = tables.iter().map(|table| (table.clone(), Vec::new())).collect();
            let request = message(Kind::GetChain, family, 0);
            let chains = self.socket.dump(&request, |chains: &mut Vec<(TableName, Chain)>, reply| {
                if let Some(Object::Chain(table, chain)) = Object::read(reply) {
                    chains.push((table, chain));
                }
            })?;
            for (name, list) in &mut found {
                let mut rules = self.rules(name)?;
                let of_table = chains.iter().filter(|(table, _)| table == name);
                list.extend(of_table.map(|(_, chain)| Chain {
                    rules: rules.remove(&chain.name).unwrap_or_default(),
                    ..chain.clone()
                }));
            }
            if self.generation()? == before {
                return Ok(found);
            }
        }
        Err(io::Error::other(format!("the rules changed each of the {ATTEMPTS} times they were read")))
    }

    /// The chains of all tables of the supported families, without their rules.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn chains_of_all_tables(&mut self) -> io::Result<Vec<(TableName, Chain)>> {
        let request = Message::new(Kind::GetChain.number(), 0, &[0; NFGENMSG]);
        self.socket.dump(&request, |chains: &mut Vec<(TableName, Chain)>, reply| {
            if let Some(Object::Chain(table, chain)) = Object::read(reply) {
                chains.push((table, chain));
            }
        })
    }

    /// The kernel lists the chains of all tables of a family.
    fn chains(&mut self, table: &TableName) -> io::Result<Vec<Chain>> {
        let request = message(Kind::GetChain, table.family, 0);
        self.socket.dump(&request, |chains: &mut Vec<Chain>, reply| match Object::read(reply) {
            Some(Object::Chain(found, chain)) if found == *table => chains.push(chain),
            _ => {}
        })
    }

    fn rules(&mut self, table: &TableName) -> io::Result<BTreeMap<String, Vec<Rule>>> {
        let request = message(Kind::GetRule, table.family, 0).with_text(number::rule::TABLE, &table.name);
        let rules = self.socket.dump(&request, |rules: &mut BTreeMap<String, Vec<Rule>>, reply| {
            // Kernels before 4.7 list the rules of all tables.
            match Object::read(reply) {
                Some(Object::Rule { table: found, chain, rule }) if found == *table => {
                    rules.entry(chain).or_default().push(rule);
                }
                _ => {}
            }
        });
        Ok(absent(rules)?.unwrap_or_default())
    }

    fn sets(&mut self, table: &TableName, elements: bool) -> io::Result<Vec<Set>> {
        let request = message(Kind::GetSet, table.family, 0).with_text(number::set::TABLE, &table.name);
        let sets = self.socket.dump(&request, |sets: &mut Vec<Set>, reply| match Object::read(reply) {
            Some(Object::Set(found, set)) if found == *table => sets.push(set),
            _ => {}
        });
        let mut sets = absent(sets)?.unwrap_or_default();
        for set in sets.iter_mut().filter(|_| elements) {
            set.elements = self.elements(table, set)?;
        }
        Ok(sets)
    }

    fn elements(&mut self, table: &TableName, set: &Set) -> io::Result<Elements> {
        let request = message(Kind::GetElements, table.family, 0)
            .with_text(number::elements::TABLE, &table.name)
            .with_text(number::elements::SET, &set.name);
        let elements = self.socket.dump(&request, |elements: &mut RawElements, reply| {
            if let Some(Object::Elements(_, more)) = Object::read(reply) {
                elements.extend(more);
            }
        });
        Ok(absent(elements)?.unwrap_or_default().finish(&set.elements))
    }
}

/// `None` for what is not there.
fn absent<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}
