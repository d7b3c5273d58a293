//! A snapshot of the packet filter: which tables and chains there are, read without starting a process and
//! without side effects.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;

use super::legacy::{self, LegacyTable};
use super::nftables::{self, ListedChain, ListedTable, Nftables, TableFamily, TableName};
use super::observe::ours;
use super::sandbox;
use crate::model::{Chain, Family, Hook, NATIVE_TABLES, NfTables, PerFamily, Table, Variant};
use crate::nft::LiveTables;
use crate::ordered::Ordered as _;

/// The built-in chains that captured packets pass.
const PASSED: [&str; 3] = ["PREROUTING", "OUTPUT", "INPUT"];
/// The chain in which a packet to `lo` may get another mark behind them, in these tables.
const MARKED_BEHIND: (&str, [&str; 2]) = ("POSTROUTING", ["mangle", "nat"]);
/// The legacy tables in which packets are after our rules.
const BEHIND: [&str; 2] = ["filter", "security"];

/// Names of the chains in each of our tables that exists.
type Chains = BTreeMap<Table, Vec<String>>;

/// A snapshot of the packet filter, as far as it concerns us; taken once at the start of a run.
#[derive(Debug)]
pub struct Snapshot {
    /// Whether nf_tables is there.
    pub nf_tables: NfTables,
    /// The tables of a native backend.
    pub native: LiveTables,
    /// The dormant tables `ip` and `ip6` of nf_tables (`flags dormant`): no packet meets their rules.
    pub dormant: Vec<(Family, String)>,
    /// Chains that iptables-nft cannot use: they have the name of one of its own, or of ours, and another
    /// type, hook or priority.
    pub unsuitable: Vec<(Family, Table, String)>,
    /// The tables of nf_tables that running programs own (`flags owner`): the kernel lets no other change
    /// them.
    pub owned: Vec<TableName>,
    nft: PerFamily<Chains>,
    /// Every table of nf_tables but those of a native backend.
    others: Vec<TableName>,
    /// The families in whose tables of iptables-nft there are rules in the shared chains.
    nft_in_use: BTreeSet<Family>,
    legacy: PerFamily<BTreeMap<String, LegacyTable>>,
    /// Whether legacy tables may not be listed: the list is for root and its group only, and in a user
    /// namespace that was made together with its network namespace for those outside.
    pub legacy_unlisted: bool,
    /// Whether the kernel is a sandbox's.
    pub is_sandbox: bool,
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
        let NfTablesSnapshot { native, dormant, unsuitable, owned, chains: nft, in_use: nft_in_use, others } =
            socket.map(nf_tables_snapshot).transpose()?.unwrap_or_default();
        let mut legacy = PerFamily::new();
        let mut legacy_unlisted = false;
        for family in Family::ALL {
            match legacy::all(family) {
                Ok(tables) => drop(legacy.insert(family, tables)),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => legacy_unlisted = true,
                Err(error) => return Err(error),
            }
        }
        Ok(Self {
            nf_tables,
            native,
            dormant,
            unsuitable,
            owned,
            nft,
            others,
            nft_in_use,
            legacy,
            legacy_unlisted,
            is_sandbox: nf_tables == NfTables::Absent && sandbox::is_sandbox(),
        })
    }

    /// Looks at our legacy tables without the list, which creates them.
    ///
    /// # Errors
    /// The kernel refuses to list them.
    pub fn read_legacy_by_name(&mut self) -> io::Result<()> {
        for family in Family::ALL {
            self.legacy.insert(family, legacy::by_name(family, &Table::ALL.map(Table::name))?);
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

    /// Whether there are rules, of ours or foreign ones, in the built-in chains that captured packets pass,
    /// or one has the policy drop.
    #[must_use]
    pub fn hooks_in_use(&self, variant: Variant, family: Family) -> bool {
        match variant {
            Variant::Legacy => self.legacy.get(&family).into_iter().flatten().any(|(name, table)| {
                let relevant =
                    BEHIND.contains(&name.as_str()) || Table::ALL.iter().any(|table| table.name() == name);
                let decides =
                    |chain: &&str| table.rules(chain).unwrap_or(0) > 0 || table.drops.contains(*chain);
                let (behind, tables) = MARKED_BEHIND;
                let is_marked_behind = tables.contains(&name.as_str()) && decides(&behind);
                relevant && (is_marked_behind || PASSED.iter().any(decides))
            }),
            Variant::Nft => self.nft_in_use.contains(&family),
        }
    }

    /// A table of iptables-nft that a running program owns.
    #[must_use]
    pub fn owned_of_iptables(&self) -> Option<TableName> {
        ours(&self.owned, &Family::ALL).into_iter().map(|(_, _, name)| name).next()
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
struct NfTablesSnapshot {
    native: LiveTables,
    dormant: Vec<(Family, String)>,
    unsuitable: Vec<(Family, Table, String)>,
    owned: Vec<TableName>,
    chains: PerFamily<Chains>,
    in_use: BTreeSet<Family>,
    others: Vec<TableName>,
}

fn nf_tables_snapshot(mut socket: Nftables) -> io::Result<NfTablesSnapshot> {
    let mut snapshot = NfTablesSnapshot::default();
    let listed = socket.listed_tables()?;
    let tables: Vec<TableName> = listed.iter().map(|table| table.name.clone()).collect();
    let is_native = |table: &&TableName| {
        table.family == TableFamily::Inet && NATIVE_TABLES.contains(&table.name.as_str())
    };
    let native: Vec<&TableName> = tables.iter().filter(is_native).collect();
    snapshot.others = tables.iter().filter(|table| !is_native(table)).cloned().collect();
    snapshot.dormant = dormant_of_iptables(&listed);
    let with = |flag: fn(&ListedTable) -> bool| -> Vec<TableName> {
        listed.iter().filter(|table| flag(table)).map(|table| table.name.clone()).collect()
    };
    let dormant = with(|table| table.is_dormant);
    snapshot.owned = with(|table| table.is_owned);
    let of_iptables = ours(&tables, &Family::ALL);
    if of_iptables.is_empty() && native.is_empty() {
        return Ok(snapshot);
    }
    let names: Vec<String> = native.iter().map(|table| table.name.clone()).collect();
    let ours_with = |flagged: &[TableName]| -> Vec<String> {
        native.iter().filter(|table| flagged.contains(table)).map(|table| table.name.clone()).collect()
    };
    let (ours_dormant, ours_owned) = (ours_with(&dormant), ours_with(&snapshot.owned));
    let mut listed: PerFamily<Vec<ListedChain>> = PerFamily::new();
    for (family, table, name) in of_iptables {
        if !listed.contains_key(&family) {
            listed.insert(family, socket.chains_of(name.family)?);
        }
        let chains: Vec<_> =
            listed.get(&family).into_iter().flatten().filter(|chain| chain.table == name.name).collect();
        let unsuitable = chains.iter().filter(|chain| !is_suitable(table, chain));
        snapshot.unsuitable.extend(unsuitable.map(|chain| (family, table, chain.name.clone())));
        let has_own_chain = chains.iter().any(|chain| Chain::from_name(&chain.name).is_some());
        let drops = chains.iter().any(|chain| chain.drops && PASSED.contains(&chain.name.as_str()));
        let names = chains.into_iter().map(|chain| chain.name.clone()).collect();
        snapshot.chains.or_default(family).insert(table, names);
        // What holds rules of ours is read whole in any case.
        if has_own_chain || drops || snapshot.in_use.contains(&family) {
            snapshot.in_use.insert(family);
            continue;
        }
        let rules = socket.rule_counts(&name)?;
        let has_rules = |chain: &&str| rules.get(*chain).copied().unwrap_or(0) > 0;
        let (behind, tables) = MARKED_BEHIND;
        let is_marked_behind = tables.contains(&table.name()) && has_rules(&behind);
        if is_marked_behind || PASSED.iter().any(has_rules) {
            snapshot.in_use.insert(family);
        }
    }
    let tables = nftables::read(&mut socket.into_client(), &names)?;
    snapshot.native = LiveTables::with_handles(tables, ours_dormant).with_owned(ours_owned);
    Ok(snapshot)
}

/// The dormant tables of the families in which iptables-nft keeps its own.
fn dormant_of_iptables(listed: &[ListedTable]) -> Vec<(Family, String)> {
    let dormant = listed.iter().filter(|table| table.is_dormant).map(|table| &table.name);
    let of_family = |table: &TableName| match table.family {
        TableFamily::Ip => Some((Family::V4, table.name.clone())),
        TableFamily::Ip6 => Some((Family::V6, table.name.clone())),
        TableFamily::Inet => None,
    };
    dormant.filter_map(of_family).collect()
}

/// Whether iptables-nft can add rules to a chain of this name.
fn is_suitable(table: Table, chain: &ListedChain) -> bool {
    let hook = Hook::ALL.into_iter().find(|hook| hook.name() == chain.name);
    let number = |hook: Hook| match hook {
        Hook::Prerouting => libc::NF_INET_PRE_ROUTING.cast_unsigned(),
        Hook::Output => libc::NF_INET_LOCAL_OUT.cast_unsigned(),
    };
    let expected = hook.map(|hook| (number(hook), table.priority(), table.chain_type(hook)));
    let base = chain.base.as_ref().map(|(hook, priority, kind)| (*hook, *priority, kind.as_str()));
    base == expected || (hook.is_none() && Chain::from_name(&chain.name).is_none())
}

/// Other programs' tables with a base chain that captured packets pass, before our rules or behind them;
/// without the elements of sets. Dormant ones are left out, and on request those in which only the built-in
/// chains of iptables are such.
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
    let of_iptables: BTreeSet<TableName> = of_iptables.into_iter().map(|(_, _, name)| name).into_set();
    let is_foreign = |table: &TableName, chain: &str| !(of_iptables.contains(table) && is_built_in(chain));
    let passed = nftables::tables_in_path(is_foreign)?;
    let foreign: Vec<&TableName> = snapshot.others.iter().filter(|table| passed.contains(table)).collect();
    if foreign.is_empty() {
        return Ok(Vec::new());
    }
    let dormant = Nftables::open()?.dormant_tables()?;
    nftables::read_without_elements(foreign.into_iter().filter(|table| !dormant.contains(table)))
}

/// Whether iptables itself makes a base chain of this name. Other base chains in its tables are other
/// programs'.
fn is_built_in(chain: &str) -> bool {
    ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"].contains(&chain)
}
