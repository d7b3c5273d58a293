//! Reads the kernel's state without starting a process and without side effects.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::capabilities::Capabilities;
use super::legacy::{self, LegacyTable};
use super::netlink::{Protocol, Socket};
use super::nftables::{self, Nftables, TableFamily, TableName};
use super::rtnetlink::Rtnetlink;
use crate::model::{Chain, Family, Hook, NATIVE_TABLES, NfTables, Table, Variant};
use crate::nft::Live;

/// Names of the chains in each of our tables that exists.
type Chains = BTreeMap<Table, Vec<String>>;

/// Number of rules per chain, per table: of our tables those that exist.
pub type Counts = BTreeMap<Table, BTreeMap<String, usize>>;

/// A snapshot of the packet filter, as far as it concerns us; taken once at the start of a run.
#[derive(Debug)]
pub struct Snapshot {
    /// Whether nf_tables is there.
    pub nf_tables: NfTables,
    /// The tables of a native backend.
    pub native: Live,
    /// Tables of iptables-nft that are switched off (`flags dormant`): no packet meets their rules.
    pub dormant: Vec<(Family, Table)>,
    nft: BTreeMap<Family, Chains>,
    /// Every table of nf_tables but those of a native backend.
    others: Vec<TableName>,
    /// The families in whose tables of iptables-nft there are rules in the shared chains.
    nft_in_use: BTreeSet<Family>,
    legacy: BTreeMap<Family, BTreeMap<String, LegacyTable>>,
    /// Whether legacy tables may not be listed: the list is for root and its group only, and in a user namespace that
    /// was made together with its network namespace for those outside.
    pub legacy_unlisted: bool,
}

impl Snapshot {
    /// Looks at both kinds of tables, in both families.
    ///
    /// # Errors
    /// The kernel refuses to list them.
    pub fn take() -> io::Result<Self> {
        let (nf_tables, socket) = match Nftables::open_if_present() {
            Ok(Some(socket)) => (NfTables::Present, Some(socket)),
            Ok(None) => (NfTables::Absent, None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => (NfTables::Forbidden, None),
            Err(error) => return Err(error),
        };
        let NfTablesPicture { native, dormant, chains: nft, in_use: nft_in_use, others } =
            socket.map(nf_tables_picture).transpose()?.unwrap_or_default();
        let mut legacy = BTreeMap::new();
        let mut legacy_unlisted = false;
        for family in Family::ALL {
            match legacy::all(family) {
                Ok(tables) => drop(legacy.insert(family, tables)),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => legacy_unlisted = true,
                Err(error) => return Err(error),
            }
        }
        Ok(Self { nf_tables, native, dormant, nft, others, nft_in_use, legacy, legacy_unlisted })
    }

    /// Looks at our legacy tables without the list, which creates them.
    ///
    /// # Errors
    /// The kernel refuses to list them.
    pub fn read_legacy_by_name(&mut self) -> io::Result<()> {
        for family in Family::ALL {
            self.legacy.insert(family, legacy::asked_for(family, &Table::ALL.map(Table::name))?);
        }
        self.legacy_unlisted = false;
        Ok(())
    }

    /// Whether any chain of ours exists.
    #[must_use]
    pub fn has_chains(&self, variant: Variant, family: Family) -> bool {
        self.names(variant, family).any(|name| Chain::from_name(name).is_some())
    }

    /// How many chains of ours a variant holds, in both families.
    #[must_use]
    pub fn chains_of_ours(&self, variant: Variant) -> usize {
        let names = Family::ALL.into_iter().flat_map(|family| self.names(variant, family));
        names.filter(|name| Chain::from_name(name).is_some()).count()
    }

    /// The names of the chains in tables that we write to.
    fn names(&self, variant: Variant, family: Family) -> impl Iterator<Item = &String> {
        let relevant = |name: &str| Table::ALL.iter().any(|table| table.name() == name);
        let (legacy, nft) = match variant {
            Variant::Legacy => (self.legacy.get(&family), None),
            Variant::Nft => (None, self.nft.get(&family)),
        };
        let legacy = legacy.into_iter().flatten().filter(move |(name, _)| relevant(name));
        legacy
            .flat_map(|(_, table)| table.user.keys())
            .chain(nft.into_iter().flat_map(|nft| nft.values().flatten()))
    }

    /// Whether there are rules, of ours or foreign ones, in the shared chains that ours go into, or one has the policy drop.
    #[must_use]
    pub fn hooks_in_use(&self, variant: Variant, family: Family) -> bool {
        match variant {
            Variant::Legacy => self.legacy.get(&family).into_iter().flatten().any(|(name, table)| {
                let relevant = Table::ALL.iter().any(|table| table.name() == name);
                let decides = |hook: &Hook| {
                    table.rules(hook.name()).unwrap_or(0) > 0 || table.drops.contains(hook.name())
                };
                relevant && Hook::ALL.iter().any(decides)
            }),
            Variant::Nft => self.nft_in_use.contains(&family),
        }
    }

    /// The legacy tables that hold rules or chains, ours or foreign.
    #[must_use]
    pub fn legacy_tables_in_use(&self) -> Vec<String> {
        let all =
            self.legacy.iter().flat_map(|(family, tables)| tables.iter().map(move |table| (family, table)));
        let in_use = all.filter(|(_, (_, table))| table.in_use());
        in_use.map(|(family, (name, _))| format!("{name} ({family})")).collect()
    }
}

/// What nf_tables holds.
#[derive(Default)]
struct NfTablesPicture {
    native: Live,
    dormant: Vec<(Family, Table)>,
    chains: BTreeMap<Family, Chains>,
    in_use: BTreeSet<Family>,
    others: Vec<TableName>,
}

fn nf_tables_picture(mut socket: Nftables) -> io::Result<NfTablesPicture> {
    let mut snapshot = NfTablesPicture::default();
    let tables = socket.tables()?;
    let is_native = |table: &&TableName| {
        table.family == TableFamily::Inet && NATIVE_TABLES.contains(&table.name.as_str())
    };
    let native: Vec<&TableName> = tables.iter().filter(is_native).collect();
    snapshot.others = tables.iter().filter(|table| !is_native(table)).cloned().collect();
    let of_iptables = ours(&tables, &Family::ALL);
    if of_iptables.is_empty() && native.is_empty() {
        return Ok(snapshot);
    }
    let dormant = socket.dormant_tables()?;
    let names: Vec<String> = native.iter().map(|table| table.name.clone()).collect();
    let ours_dormant =
        native.into_iter().filter(|table| dormant.contains(table)).map(|table| table.name.clone());
    snapshot.native = Live::new(nftables::read(&names)?, ours_dormant.collect());
    for (family, table, name) in of_iptables {
        if dormant.contains(&name) {
            snapshot.dormant.push((family, table));
        }
        let chains = socket.chains(&name)?;
        let has_own_chain = chains.iter().any(|chain| Chain::from_name(&chain.name).is_some());
        let drops =
            chains.iter().any(|chain| chain.drops && Hook::ALL.iter().any(|hook| hook.name() == chain.name));
        let names = chains.into_iter().map(|chain| chain.name).collect();
        snapshot.chains.entry(family).or_default().insert(table, names);
        // What holds rules of ours is read whole in any case.
        if has_own_chain || drops || snapshot.in_use.contains(&family) {
            snapshot.in_use.insert(family);
            continue;
        }
        let rules = socket.rule_counts(&name)?;
        if Hook::ALL.iter().any(|hook| rules.get(hook.name()).copied().unwrap_or(0) > 0) {
            snapshot.in_use.insert(family);
        }
    }
    Ok(snapshot)
}

/// Other programs' tables with a base chain that packets pass before our last rules, or together with them; without the elements
/// of sets. Those that are switched off are left out, and on request those in which only the built-in chains of iptables are
/// such.
///
/// # Errors
/// The kernel refuses.
pub fn foreign_tables(snapshot: &Snapshot, without_iptables: bool) -> io::Result<Vec<nftables::Table>> {
    let of_iptables = if without_iptables { ours(&snapshot.others, &Family::ALL) } else { Vec::new() };
    let has_other_chains = |name: &TableName| {
        let known = of_iptables.iter().find(|(_, _, table)| table == name);
        let chains = known.and_then(|(family, table, _)| snapshot.nft.get(family)?.get(table));
        let own = |chain: &String| is_built_in(chain) || Chain::from_name(chain).is_some();
        chains.is_none_or(|chains| !chains.iter().all(own))
    };
    if !snapshot.others.iter().any(has_other_chains) {
        return Ok(Vec::new());
    }
    let of_iptables: BTreeSet<TableName> = of_iptables.into_iter().map(|(_, _, name)| name).collect();
    let is_foreign = |table: &TableName, chain: &str| !(of_iptables.contains(table) && is_built_in(chain));
    let early = nftables::tables_with_early_chains(is_foreign)?;
    let foreign: Vec<&TableName> = snapshot.others.iter().filter(|table| early.contains(table)).collect();
    if foreign.is_empty() {
        return Ok(Vec::new());
    }
    let dormant = Nftables::open()?.dormant_tables()?;
    nftables::read_without_elements(foreign.into_iter().filter(|table| !dormant.contains(table)))
}

/// The chains of those of these tables that exist, with their rules as nf_tables holds them.
///
/// # Errors
/// The kernel refuses.
pub fn tables_of_iptables(
    family: Family,
    wanted: &[Table],
) -> io::Result<Vec<(Table, Vec<nfnetlink::nftables::Chain>)>> {
    let Some(mut socket) = Nftables::open_if_present()? else { return Ok(Vec::new()) };
    let existing = ours(&socket.tables()?, &[family]);
    let mut tables = Vec::new();
    for (_, table, name) in existing.into_iter().filter(|(_, table, _)| wanted.contains(table)) {
        let found = nftables::read_without_elements(std::iter::once(&name))?;
        tables.extend(found.into_iter().map(|found| (table, found.chains)));
    }
    Ok(tables)
}

/// What every rule of iptables-nft is numbered with.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Handles {
    /// The generation of the rules, read first: while it is the same, so are the handles.
    pub generation: u32,
    /// The handles by table and chain, in order.
    pub tables: BTreeMap<Table, BTreeMap<String, Vec<u64>>>,
}

/// The handles of all rules in our tables of a family.
///
/// # Errors
/// The kernel refuses.
pub fn handles(family: Family) -> io::Result<Handles> {
    let Some(mut socket) = Nftables::open_if_present()? else { return Ok(Handles::default()) };
    let mut handles = Handles { generation: socket.generation()?, tables: BTreeMap::new() };
    for (_, table, name) in ours(&socket.tables()?, &[family]) {
        handles.tables.insert(table, socket.handles(&name)?);
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
    let number = match family {
        Family::V4 => TableFamily::Ip,
        Family::V6 => TableFamily::Ip6,
    };
    let rules: Vec<_> = rules.iter().map(|(hook, handle)| (hook.name(), *handle)).collect();
    let table = TableName::new(number, table.name());
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

/// Whether iptables itself makes a base chain of this name. Other base chains in its tables are other programs'.
fn is_built_in(chain: &str) -> bool {
    ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"].contains(&chain)
}

/// Those of the existing tables that we write to.
fn ours(existing: &[TableName], families: &[Family]) -> Vec<(Family, Table, TableName)> {
    let names = families.iter().flat_map(|family| {
        let number = match family {
            Family::V4 => TableFamily::Ip,
            Family::V6 => TableFamily::Ip6,
        };
        Table::ALL.into_iter().map(move |table| (*family, table, TableName::new(number, table.name())))
    });
    names.filter(|(_, _, name)| existing.contains(name)).collect()
}

/// The number of live rules per chain of our tables, in each family.
///
/// # Errors
/// The kernel refuses.
pub fn counts(variant: Variant) -> io::Result<BTreeMap<Family, Counts>> {
    let mut counts: BTreeMap<Family, Counts> = BTreeMap::new();
    match variant {
        Variant::Legacy => {
            for family in Family::ALL {
                let mut tables = match legacy::all(family) {
                    // They exist by now: they have been written.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        legacy::asked_for(family, &Table::ALL.map(Table::name))
                    }
                    listed => listed,
                }?;
                let of = |table: Table| Some((table, tables.remove(table.name())?.chains()));
                counts.insert(family, Table::ALL.into_iter().filter_map(of).collect());
            }
        }
        Variant::Nft => {
            if let Some(mut socket) = Nftables::open_if_present()? {
                for (family, table, name) in ours(&socket.tables()?, &Family::ALL) {
                    counts.entry(family).or_default().insert(table, socket.rule_counts(&name)?);
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
    Ok(tables.into_iter().map(of).map(|(counts, name)| (name, counts)).collect())
}

/// The live tables of a native backend.
///
/// # Errors
/// The kernel refuses.
pub fn native() -> io::Result<Live> {
    let Some(mut socket) = Nftables::open_if_present()? else { return Ok(Live::default()) };
    let names = NATIVE_TABLES.map(str::to_owned);
    let dormant = socket.dormant_tables()?;
    let ours_dormant =
        dormant.into_iter().filter(|table| table.family == TableFamily::Inet).map(|table| table.name);
    Ok(Live::new(nftables::read(&names)?, ours_dormant.collect()))
}

/// Limits the rules of a table of the family `inet` that store packet marks in connections to packets from `lo`.
///
/// # Errors
/// The kernel refuses.
pub fn limit_save_mark(table: &str) -> io::Result<usize> {
    Nftables::open()?.limit_save_mark(&TableName::new(TableFamily::Inet, table))
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

/// Whether the kernel limits the length of a message to nf_tables: outside of the initial user namespace, where the send
/// buffer cannot be made larger by force.
#[must_use]
pub fn is_message_limited() -> bool {
    // Without the capability nothing is sent at all: a dry run shows what a run with it would do.
    let may_write = Capabilities::current().is_ok_and(|has| has.net_admin);
    may_write && Socket::open(Protocol::Netfilter).is_ok_and(|socket| !socket.can_force_buffer())
}
