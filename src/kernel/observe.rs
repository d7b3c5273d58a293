//! What stands in the kernel, without starting a process and without side effects.

use std::collections::BTreeMap;
use std::io;

use super::nftables::{self, Nftables, Presence, TableFamily, TableName};
use super::process::Host;
use super::rtnetlink::Rtnetlink;
use super::{legacy, tools};
use crate::backend::{Findings, NfTables, Variant};
use crate::model::{Chain, Family, Table};
use crate::plan::NATIVE_TABLES;
use crate::routing::{self, MarkRule, Route};

/// Number of rules per chain, per table: of our tables those that exist.
pub type Counts = BTreeMap<Table, BTreeMap<String, usize>>;

/// Everything that the choice of a backend rests on.
///
/// # Errors
/// The kernel refuses to tell.
pub fn findings(host: &impl Host) -> io::Result<Findings> {
    let nf_tables = match nftables::presence()? {
        Presence::Missing => NfTables::Absent,
        Presence::NoPermission => NfTables::Forbidden,
        Presence::Present => NfTables::Present,
    };
    let mut legacy_tables = Vec::new();
    for family in Family::ALL {
        let in_use = legacy::all(family)?
            .into_iter()
            .filter(|(_, table)| table.in_use());
        legacy_tables.extend(in_use.map(|(name, _)| format!("{name} ({family})")));
    }
    let of = |variant| tools::tools(host, variant, Family::V4);
    Ok(Findings {
        nf_tables,
        legacy_tables,
        nft: of(Variant::Nft),
        legacy: of(Variant::Legacy),
    })
}

/// How many rules stand in each chain of our tables.
///
/// # Errors
/// The kernel refuses.
pub fn counts(variant: Variant, family: Family) -> io::Result<Counts> {
    match variant {
        Variant::Legacy => {
            let mut tables = legacy::all(family)?;
            let of = |table: Table| Some((table, tables.remove(table.name())?.chains()));
            Ok(Table::ALL.into_iter().filter_map(of).collect())
        }
        Variant::Nft => each_nft_table(family, |nftables, name| nftables.rule_counts(name)),
    }
}

/// Whether any chain of ours stands.
///
/// # Errors
/// The kernel refuses.
pub fn stands(variant: Variant, family: Family) -> io::Result<bool> {
    let ours = |name: &String| Chain::from_name(name).is_some();
    match variant {
        Variant::Legacy => Ok(counts(variant, family)?
            .values()
            .flat_map(BTreeMap::keys)
            .any(ours)),
        Variant::Nft => {
            let chains = each_nft_table(family, |nftables, name| nftables.chains(name))?;
            Ok(chains.values().flatten().any(ours))
        }
    }
}

/// Asks about each of our tables that exists. Without nf_tables there is none.
fn each_nft_table<T>(
    family: Family,
    ask: impl Fn(&mut Nftables, &TableName) -> io::Result<T>,
) -> io::Result<BTreeMap<Table, T>> {
    let mut answers = BTreeMap::new();
    if nftables::presence()? != Presence::Present {
        return Ok(answers);
    }
    let mut nftables = Nftables::open()?;
    let existing = nftables.tables()?;
    for table in Table::ALL {
        let name = TableName::new(table_family(family), table.name());
        if existing.contains(&name) {
            answers.insert(table, ask(&mut nftables, &name)?);
        }
    }
    Ok(answers)
}

const fn table_family(family: Family) -> TableFamily {
    match family {
        Family::V4 => TableFamily::Ip,
        Family::V6 => TableFamily::Ip6,
    }
}

/// The tables that a native nftables backend made here.
///
/// # Errors
/// The kernel refuses.
pub fn native_tables() -> io::Result<Vec<String>> {
    if nftables::presence()? != Presence::Present {
        return Ok(Vec::new());
    }
    let inet = Nftables::open()?
        .tables()?
        .into_iter()
        .filter(|table| table.family == TableFamily::Inet);
    Ok(inet
        .map(|table| table.name)
        .filter(|name| NATIVE_TABLES.contains(&name.as_str()))
        .collect())
}

/// Deletes tables of the family `inet`, all or none.
///
/// # Errors
/// The kernel refuses.
pub fn delete_native_tables(names: &[String]) -> io::Result<()> {
    let tables: Vec<TableName> = names
        .iter()
        .map(|name| TableName::new(TableFamily::Inet, name.as_str()))
        .collect();
    Nftables::open()?
        .delete_tables(&tables)
        .map_err(|error| error.error)
}

/// The passthrough address, policy rules by mark, and routes in other than the standard tables.
///
/// # Errors
/// The kernel refuses.
pub fn routing() -> io::Result<routing::Observed> {
    let mut socket = Rtnetlink::open()?;
    let mut observed = routing::Observed {
        passthrough: socket.six_on_lo()?.map(|six| six.protocol.unwrap_or(0)),
        ..routing::Observed::default()
    };
    for family in Family::ALL {
        let rules = socket
            .mark_rules(family)?
            .into_iter()
            .filter(|rule| rule.plain && rule.mask == u32::MAX);
        observed.rules.extend(rules.map(|rule| MarkRule {
            family,
            mark: rule.mark,
            table: rule.table,
            priority: rule.priority,
            protocol: rule.protocol.unwrap_or(0),
        }));
        let routes = socket.routes_of_other_tables(family)?.into_iter();
        observed.routes.extend(routes.map(|route| Route {
            family,
            table: route.table,
            protocol: route.protocol,
            local_default: route.is_local_default(),
        }));
    }
    Ok(observed)
}
