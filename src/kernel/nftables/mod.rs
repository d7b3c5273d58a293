//! Reads nf_tables and deletes tables. Reading has no side effects on the rules.

mod commit;
mod device;
mod staged;
mod whole_tables;

use std::collections::BTreeMap;
use std::io;

pub use commit::{Live, delete_tables_at};
pub use nfnetlink::nftables::{Client, Family as TableFamily, Table, TableName};
pub use whole_tables::{
    limit_save_mark, members, read, read_without_elements, tables_in_path, try_scratch, write, write_by,
};

use super::netlink::{BatchError, Message, Reply, Socket};

const NFNL_SUBSYS_NFTABLES: u16 = 10;
/// Length of `struct nfgenmsg`.
const NFGENMSG: usize = 4;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_HANDLE: u16 = 2;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_POLICY: u16 = 5;
const NFTA_CHAIN_TYPE: u16 = 7;
/// `NF_DROP`, as a policy.
const POLICY_DROP: u32 = 0;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_HANDLE: u16 = 3;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFTA_TABLE_HANDLE: u16 = 4;
/// Flag of a table, of linux/netfilter/nf_tables.h: its chains are not hooked in, and no packet meets them.
const NFT_TABLE_F_DORMANT: u32 = 1;
const NFT_TABLE_F_OWNER: u32 = 2;

/// The message type; the numbers are those of linux/netfilter/nf_tables.h.
#[derive(Clone, Copy)]
#[repr(u16)]
enum Kind {
    NewTable = 0,
    GetTable = 1,
    DelTable = 2,
    NewChain = 3,
    GetChain = 4,
    NewRule = 6,
    GetRule = 7,
    DelRule = 8,
    GetGeneration = 16,
}

impl Kind {
    const fn number(self) -> u16 {
        (NFNL_SUBSYS_NFTABLES << 8) | self as u16
    }
}

/// A table of the family `inet`.
#[must_use]
pub fn inet(name: &str) -> TableName {
    TableName::new(TableFamily::Inet, name)
}

/// A socket for nf_tables, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Nftables {
    socket: Socket,
}

/// A table, as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTable {
    /// The name of the table.
    pub name: TableName,
    /// The handle of the table; 0 before Linux 4.16.
    pub handle: u64,
    /// Whether it is dormant: no packet meets its rules.
    pub is_dormant: bool,
    /// Whether it belongs to a running program, which allows no other to change it.
    pub is_owned: bool,
}

/// A chain, as the kernel lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedChain {
    /// The table of the chain.
    pub table: String,
    /// The name of the chain.
    pub name: String,
    /// The handle of the chain.
    pub handle: u64,
    /// Whether it is a base chain with the policy drop.
    pub drops: bool,
    /// Of a base chain: number of the hook, priority and type.
    pub base: Option<(u32, i32, String)>,
}

/// Where a chain is called from, if it is a base chain.
fn base(reply: &Reply<'_>) -> Option<(u32, i32, String)> {
    const HOOK: u16 = 1;
    const PRIORITY: u16 = 2;
    let hook = reply.attributes(NFGENMSG).of(NFTA_CHAIN_HOOK)?.nested();
    let priority = i32::from_be_bytes(hook.of(PRIORITY)?.be32()?.to_be_bytes());
    Some((hook.of(HOOK)?.be32()?, priority, text(reply, NFTA_CHAIN_TYPE)?))
}

/// Whether an error means that the kernel has no nf_tables: not built in, and no module that could be loaded.
fn means_absent(error: &io::Error) -> bool {
    let no_netlink = [libc::EPROTONOSUPPORT, libc::EAFNOSUPPORT, libc::ESOCKTNOSUPPORT];
    let no_subsystem = [libc::EINVAL, libc::EOPNOTSUPP, libc::ENOSYS, libc::ECONNREFUSED];
    error.raw_os_error().is_some_and(|errno| no_netlink.contains(&errno) || no_subsystem.contains(&errno))
}

impl Nftables {
    /// Opens a socket in the current thread's network namespace.
    ///
    /// # Errors
    /// The kernel refuses; `EPROTONOSUPPORT` if it has no netlink for netfilter.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: Socket::open_for_transactions()? })
    }

    /// Opens a socket in the current thread's network namespace, if the kernel has nf_tables.
    ///
    /// # Errors
    /// The kernel refuses; `EPERM` without CAP_NET_ADMIN.
    pub fn open_if_present() -> io::Result<Option<Self>> {
        let asked = Self::open().and_then(|mut socket| socket.generation().map(|_| socket));
        match asked {
            Ok(socket) => Ok(Some(socket)),
            Err(error) if means_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Turns the socket into a client for whole tables.
    #[must_use]
    pub fn into_client(self) -> Client {
        Client::over(self.socket)
    }

    /// The number of changes that the rules have seen.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn generation(&mut self) -> io::Result<u32> {
        const NFTA_GEN_ID: u16 = 1;
        self.socket.query(&message(Kind::GetGeneration, 0), |reply| {
            reply.attributes(NFGENMSG).of(NFTA_GEN_ID).and_then(|id| id.be32()).unwrap_or(0)
        })
    }

    /// The tables of the families `inet`, `ip` and `ip6`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn tables(&mut self) -> io::Result<Vec<TableName>> {
        Ok(self.listed_tables()?.into_iter().map(|table| table.name).collect())
    }

    /// The tables of the families `inet`, `ip` and `ip6`, with what the kernel says of each.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn listed_tables(&mut self) -> io::Result<Vec<ListedTable>> {
        self.socket.dump(&message(Kind::GetTable, 0), |list: &mut Vec<ListedTable>, reply| {
            if reply.kind == Kind::NewTable.number() {
                list.extend(read_table(reply));
            }
        })
    }

    /// The dormant tables.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn dormant_tables(&mut self) -> io::Result<Vec<TableName>> {
        let dormant = self.listed_tables()?.into_iter().filter(|table| table.is_dormant);
        Ok(dormant.map(|table| table.name).collect())
    }

    /// The handles of the rules of each chain of a table, in order; nothing if there is no such table.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn handles(&mut self, table: &TableName) -> io::Result<BTreeMap<String, Vec<u64>>> {
        let message = message(Kind::GetRule, table.family.number()).with_text(NFTA_RULE_TABLE, &table.name);
        let handles = self.socket.dump(&message, |handles: &mut BTreeMap<String, Vec<u64>>, reply| {
            let handle = reply.attributes(NFGENMSG).of(NFTA_RULE_HANDLE);
            if let Some((chain, handle)) =
                rule_of(&table.name, reply).zip(handle.and_then(|handle| handle.be64()))
            {
                handles.entry(chain).or_default().push(handle);
            }
        });
        match handles {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(BTreeMap::new()),
            other => other,
        }
    }

    /// Deletes rules by handle, in one transaction.
    ///
    /// # Errors
    /// The kernel refuses; `ENOENT` for a rule that is not there. Then none is deleted.
    pub fn delete_rules(&mut self, table: &TableName, rules: &[(&str, u64)]) -> Result<(), BatchError> {
        let messages: Vec<Message> = rules
            .iter()
            .map(|(chain, handle)| {
                message(Kind::DelRule, table.family.number())
                    .with_text(NFTA_RULE_TABLE, &table.name)
                    .with_text(NFTA_RULE_CHAIN, chain)
                    .with(NFTA_RULE_HANDLE, &handle.to_be_bytes())
            })
            .collect();
        self.socket.transaction(&messages)
    }

    /// The chains of all tables of a family, in the kernel's order: it lists no fewer.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn chains_of(&mut self, family: TableFamily) -> io::Result<Vec<ListedChain>> {
        let message = message(Kind::GetChain, family.number());
        self.socket.dump(&message, |list: &mut Vec<ListedChain>, reply| {
            if reply.kind == Kind::NewChain.number() {
                let policy =
                    reply.attributes(NFGENMSG).of(NFTA_CHAIN_POLICY).and_then(|policy| policy.be32());
                let drops = policy == Some(POLICY_DROP);
                let names = text(reply, NFTA_CHAIN_TABLE).zip(text(reply, NFTA_CHAIN_NAME));
                let handle = handle(reply, NFTA_CHAIN_HANDLE);
                let base = base(reply);
                list.extend(names.map(|(table, name)| ListedChain { table, name, handle, drops, base }));
            }
        })
    }

    /// The number of rules in each chain of a table; nothing if there is no such table.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn rule_counts(&mut self, table: &TableName) -> io::Result<BTreeMap<String, usize>> {
        let counts = self.all_rule_counts(table.family, std::slice::from_ref(table))?;
        Ok(counts.into_values().next().unwrap_or_default())
    }

    /// The number of rules in each chain of several tables of a family, of those that are there.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn all_rule_counts(
        &mut self,
        family: TableFamily,
        tables: &[TableName],
    ) -> io::Result<BTreeMap<TableName, BTreeMap<String, usize>>> {
        let mut chains: BTreeMap<TableName, Vec<String>> = BTreeMap::new();
        for chain in self.chains_of(family)? {
            if let Some(table) = tables.iter().find(|wanted| wanted.name == chain.table) {
                chains.entry(table.clone()).or_default().push(chain.name);
            }
        }
        let mut counts = BTreeMap::new();
        for (table, chains) in chains {
            let found = self.counted(&table, chains)?;
            counts.insert(table, found);
        }
        Ok(counts)
    }

    fn counted(&mut self, table: &TableName, chains: Vec<String>) -> io::Result<BTreeMap<String, usize>> {
        let message = message(Kind::GetRule, table.family.number()).with_text(NFTA_RULE_TABLE, &table.name);
        let counts = self.socket.dump(&message, |counts: &mut BTreeMap<String, usize>, reply| {
            count_rule(counts, &table.name, reply);
        });
        let mut counts = match counts {
            // Gone since its chains were listed.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(BTreeMap::new()),
            other => other?,
        };
        for chain in chains {
            counts.entry(chain).or_insert(0);
        }
        Ok(counts)
    }

    /// Activates dormant tables, in one transaction.
    ///
    /// # Errors
    /// The kernel refuses; then none is active.
    pub fn activate_tables(&mut self, tables: &[TableName]) -> Result<(), BatchError> {
        let no_flags = 0u32.to_be_bytes();
        let messages: Vec<Message> = tables
            .iter()
            .map(|table| {
                let message = message(Kind::NewTable, table.family.number());
                message.with_text(NFTA_TABLE_NAME, &table.name).with(NFTA_TABLE_FLAGS, &no_flags)
            })
            .collect();
        self.socket.transaction(&messages)
    }

    /// Deletes tables with everything in them, in one transaction.
    ///
    /// # Errors
    /// The kernel refuses; `ENOENT` for a table that is not there. Then none is deleted.
    pub fn delete_tables(&mut self, tables: &[TableName]) -> Result<(), BatchError> {
        let messages: Vec<Message> = tables
            .iter()
            .map(|table| {
                message(Kind::DelTable, table.family.number()).with_text(NFTA_TABLE_NAME, &table.name)
            })
            .collect();
        self.socket.transaction(&messages)
    }
}

fn read_table(reply: &Reply<'_>) -> Option<ListedTable> {
    let family = TableFamily::of(reply.byte(0))?;
    let flags = reply.attributes(NFGENMSG).of(NFTA_TABLE_FLAGS).and_then(|flags| flags.be32()).unwrap_or(0);
    Some(ListedTable {
        name: TableName { family, name: text(reply, NFTA_TABLE_NAME)? },
        handle: handle(reply, NFTA_TABLE_HANDLE),
        is_dormant: flags & NFT_TABLE_F_DORMANT != 0,
        is_owned: flags & NFT_TABLE_F_OWNER != 0,
    })
}

fn message(kind: Kind, family: u8) -> Message {
    Message::new(kind.number(), 0, &[family, 0, 0, 0])
}

fn text(reply: &Reply<'_>, attribute: u16) -> Option<String> {
    reply.attributes(NFGENMSG).of(attribute).map(|attribute| attribute.text())
}

fn handle(reply: &Reply<'_>, attribute: u16) -> u64 {
    reply.attributes(NFGENMSG).of(attribute).and_then(|handle| handle.be64()).unwrap_or_default()
}

fn count_rule(counts: &mut BTreeMap<String, usize>, table: &str, reply: &Reply<'_>) {
    if let Some(chain) = rule_of(table, reply) {
        *counts.entry(chain).or_insert(0) += 1;
    }
}

/// The chain of a rule, if that is in the table: old kernels do not filter by table.
fn rule_of(table: &str, reply: &Reply<'_>) -> Option<String> {
    let here = reply.kind == Kind::NewRule.number() && text(reply, NFTA_RULE_TABLE).as_deref() == Some(table);
    here.then(|| text(reply, NFTA_RULE_CHAIN)).flatten()
}

#[cfg(test)]
mod tests;
