//! Single reads and changes of nf_tables, and of the alias of `lo`, without a child process: counts, handles,
//! deletions.

use std::collections::BTreeMap;
use std::io;

use nfnetlink::nftables::{Chain, Expression, Members, Rule};

use super::capabilities::Capabilities;
use super::legacy;
use super::netlink::{Protocol, Socket};
use super::nftables::{Client, Live, Nftables, TableFamily, TableName};
use super::rtnetlink::Rtnetlink;
use crate::model::{Family, Hook, NATIVE_TABLES, PerFamily, Table, TableHandles, Variant};
use crate::nft::LiveTables;
use crate::ordered::Ordered as _;

/// The names of all tables that iptables has.
const IPTABLES_TABLES: [&str; 5] = ["raw", "mangle", "nat", "filter", "security"];

/// A table of iptables-nft: its name, its chains, and what its sets and maps hold.
pub type IptablesTable = (TableName, Vec<Chain>, Vec<Members>);

/// Number of rules per chain, per table: of our tables those that exist.
pub type Counts = BTreeMap<Table, BTreeMap<String, usize>>;

/// The tables of iptables-nft in one family, as nf_tables holds them, each with the members of its sets and
/// maps; and the generation of the rules, read first.
///
/// # Errors
/// The kernel refuses.
pub fn tables_of_iptables(family: Family) -> io::Result<(u32, Vec<IptablesTable>)> {
    let Some(mut socket) = Nftables::open_if_present()? else { return Ok((0, Vec::new())) };
    let generation = socket.generation()?;
    let family = name_of(family, Table::Nat).family;
    let is_of_iptables =
        |name: &TableName| name.family == family && IPTABLES_TABLES.contains(&name.name.as_str());
    let names: Vec<_> = socket.tables()?.into_iter().filter(is_of_iptables).collect();
    let mut client = socket.into_client();
    let mut tables = Vec::new();
    for (name, chains) in client.chains_with_rules(&names)? {
        let looks_up = chains.iter().flat_map(|chain| &chain.rules).any(looks_up);
        let members = if looks_up { client.members(&name)? } else { Vec::new() };
        tables.push((name, chains, members));
    }
    Ok((generation, tables))
}

/// Whether a rule asks a set or a map.
fn looks_up(rule: &Rule) -> bool {
    let in_map = |expression: &_| matches!(expression, Expression::Foreign { name, .. } if name == "lookup");
    let in_set = |expression: &_| matches!(expression, Expression::Lookup { .. });
    rule.expressions.iter().any(|expression| in_set(expression) || in_map(expression))
}

/// What everything in the tables of iptables-nft is numbered with.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Handles {
    /// The generation of the rules, read first: while it is the same, so are the handles.
    pub generation: u32,
    /// The handles by table.
    pub tables: BTreeMap<Table, TableHandles>,
}

impl Handles {
    /// Whether a table, a chain or a rule is not in later ones.
    #[must_use]
    pub fn lack_in(&self, later: &Self) -> bool {
        let is_in = |(table, before): (&Table, &TableHandles)| {
            later.tables.get(table).is_some_and(|now| before.are_in(now))
        };
        later.generation != self.generation && !self.tables.iter().all(is_in)
    }
}

/// The handles in our tables of a family.
///
/// # Errors
/// The kernel refuses.
pub fn handles(family: Family) -> io::Result<Handles> {
    let Some(mut socket) = Nftables::open_if_present()? else { return Ok(Handles::default()) };
    let mut handles = Handles { generation: socket.generation()?, tables: BTreeMap::new() };
    let listed = socket.listed_tables()?.into_iter();
    let numbers: BTreeMap<_, _> = listed.map(|table| (table.name, table.handle)).into_map();
    let tables = ours(&numbers.keys().cloned().collect::<Vec<_>>(), &[family]);
    let listed =
        tables.first().map(|(_, _, name)| socket.chains_of(name.family)).transpose()?.unwrap_or_default();
    for (_, table, name) in tables {
        let chains =
            listed.iter().filter(|chain| chain.table == name.name).map(|chain| chain.handle).into_set();
        let number = numbers.get(&name).copied().unwrap_or_default();
        handles.tables.insert(table, TableHandles { table: number, chains, rules: socket.handles(&name)? });
    }
    Ok(handles)
}

/// The number of changes that the rules of nf_tables have seen; 0 on a kernel without them.
///
/// # Errors
/// The kernel refuses.
pub fn generation() -> io::Result<u32> {
    Nftables::open_if_present()?.map_or(Ok(0), |mut socket| socket.generation())
}

/// Deletes rules of iptables-nft by handle, all or none.
///
/// # Errors
/// The kernel refuses.
pub fn delete_rules(family: Family, table: Table, rules: &[(Hook, u64)]) -> io::Result<()> {
    let rules: Vec<_> = rules.iter().map(|(hook, handle)| (hook.name(), *handle)).collect();
    let table = name_of(family, table);
    Nftables::open()?.delete_rules(&table, &rules).map_err(|error| error.error)
}

/// The alias of `lo`, in which runs leave their record.
///
/// # Errors
/// The kernel refuses.
pub fn alias() -> io::Result<Option<String>> {
    Rtnetlink::open()?.loopback_alias()
}

/// Sets the alias of `lo`; an empty one takes it away.
///
/// # Errors
/// The kernel refuses.
pub fn set_alias(alias: &str) -> io::Result<()> {
    Rtnetlink::open()?.set_loopback_alias(alias)
}

fn name_of(family: Family, table: Table) -> TableName {
    let number = match family {
        Family::V4 => TableFamily::Ip,
        Family::V6 => TableFamily::Ip6,
    };
    TableName::new(number, table.name())
}

/// The existing tables that we write to.
pub(super) fn ours(existing: &[TableName], families: &[Family]) -> Vec<(Family, Table, TableName)> {
    let names = families.iter().flat_map(|family| {
        Table::ALL.into_iter().map(move |table| (*family, table, name_of(*family, table)))
    });
    names.filter(|(_, _, name)| existing.contains(name)).collect()
}

/// The number of live rules per chain of our tables, in each family.
///
/// # Errors
/// The kernel refuses.
pub fn counts(variant: Variant) -> io::Result<PerFamily<Counts>> {
    let mut counts: PerFamily<Counts> = PerFamily::new();
    match variant {
        Variant::Legacy => {
            for family in Family::ALL {
                let mut tables = match legacy::all(family) {
                    // They exist by now: they have been written.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        legacy::by_name(family, &Table::ALL.map(Table::name))
                    }
                    listed => listed,
                }?;
                let of = |table: Table| Some((table, tables.remove(table.name())?.chains()));
                counts.insert(family, Table::ALL.into_iter().filter_map(of).into_map());
            }
        }
        Variant::Nft => {
            if let Some(mut socket) = Nftables::open_if_present()? {
                for (family, table, name) in ours(&socket.tables()?, &Family::ALL) {
                    counts.or_default(family).insert(table, socket.rule_counts(&name)?);
                }
            }
        }
    }
    Ok(counts)
}

/// The number of live rules per chain of tables of a native backend.
///
/// # Errors
/// The kernel refuses.
pub fn native_counts(names: &[&str]) -> io::Result<BTreeMap<String, BTreeMap<String, usize>>> {
    let tables: Vec<_> = names.iter().map(|name| TableName::new(TableFamily::Inet, *name)).collect();
    let mut counts = Nftables::open()?.all_rule_counts(TableFamily::Inet, &tables)?;
    let of = |table: TableName| (counts.remove(&table).unwrap_or_default(), table.name);
    Ok(tables.into_iter().map(of).map(|(counts, name)| (name, counts)).into_map())
}

/// The live tables of a native backend.
///
/// # Errors
/// The kernel refuses.
pub fn native() -> io::Result<LiveTables> {
    native_by_client().map(|(tables, _)| tables)
}

/// The live tables of a native backend, with what can write them; `None` without nf_tables. It is for what
/// has to be fast right after another program's transaction: when a socket is closed, the kernel waits for
/// the end of what that has deleted, some milliseconds.
///
/// # Errors
/// The kernel refuses.
pub fn native_by_client() -> io::Result<(LiveTables, Option<(Live, Client)>)> {
    let Some(socket) = Nftables::open_if_present()? else { return Ok((LiveTables::default(), None)) };
    let (mut live, mut client) = Live::list(socket)?;
    let is_native =
        |name: &TableName| name.family == TableFamily::Inet && NATIVE_TABLES.contains(&name.name.as_str());
    let tables = live.read_whole(&mut client, is_native)?.to_vec();
    let dormant = live.dormant().iter().filter(|name| is_native(name)).map(|name| name.name.clone());
    let tables = LiveTables::with_handles(tables, dormant.collect());
    Ok((tables, Some((live, client))))
}

/// Limits the rules of a table of the family `inet` that store packet marks in connections to packets from
/// `lo`.
///
/// # Errors
/// The kernel refuses.
pub fn limit_save_mark(table: &str) -> io::Result<usize> {
    super::nftables::limit_save_mark(&super::nftables::inet(table)).map_err(|error| error.error.error)
}

/// Deletes tables of the family `inet`, all or none.
///
/// # Errors
/// The kernel refuses.
pub fn delete_native_tables(names: &[String]) -> io::Result<()> {
    let tables: Vec<TableName> =
        names.iter().map(|name| TableName::new(TableFamily::Inet, name.as_str())).collect();
    Nftables::open()?.delete_tables(&tables).map_err(|error| error.error)
}

/// Whether the kernel limits the length of a message to nf_tables: outside of the initial user namespace,
/// where the send buffer cannot be made larger by force.
#[must_use]
pub fn is_message_limited() -> bool {
    // Without the capability nothing is sent at all: a dry run shows what a run with it would do.
    let may_write = Capabilities::current().is_ok_and(|has| has.net_admin);
    may_write && Socket::open(Protocol::Netfilter).is_ok_and(|socket| !socket.can_force_buffer())
}
