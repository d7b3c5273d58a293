//! Tables of native nftables: reads, replaces and tests whole tables.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io;

use nfnetlink::nftables::{
    Base, Batch, Chain, ChainKind, Client, CommitError, CtKey, Elements, Expression, Family, Hook, KeyType,
    Members, MetaKey, PayloadBase, Register, Rule, Set, Table, TableName, Verdict,
};

use super::commit::{Live, commit, failed};
use super::{inet, staged};
use crate::ordered::Ordered as _;

/// A table that exists within one transaction only.
const SCRATCH: &str = "istio-iptables-scratch";
/// The name of `lo` as the kernel compares it: `IFNAMSIZ` bytes.
const LO: &[u8; 16] = b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// The tables of the family `inet` with these names, as far as they exist.
///
/// # Errors
/// The kernel refuses.
pub fn read(client: &mut Client, names: &[String]) -> io::Result<Vec<Table>> {
    let names: Vec<TableName> = names.iter().map(|name| inet(name)).collect();
    Ok(client.tables_of_generation(&names)?.1)
}

/// The tables with these names, as far as they exist, without the elements of sets.
///
/// # Errors
/// The kernel refuses.
pub fn read_without_elements<'a>(names: impl Iterator<Item = &'a TableName>) -> io::Result<Vec<Table>> {
    let mut client = Client::open()?;
    let tables = names.map(|name| client.table_without_elements(name));
    Ok(tables.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// The members of the sets and maps of tables; those of a table that cannot be read are left out.
#[must_use]
pub fn members(tables: &[Table]) -> Vec<(TableName, Vec<Members>)> {
    let with_sets = tables.iter().filter(|table| !table.sets.is_empty());
    let read = |table: &Table| Some((table.name.clone(), Client::open().ok()?.members(&table.name).ok()?));
    with_sets.filter_map(read).collect()
}

/// The tables with a base chain that captured packets pass. Asked about are those that `concerns` selects by
/// table and name.
///
/// # Errors
/// The kernel refuses.
pub fn tables_in_path(concerns: impl Fn(&TableName, &str) -> bool) -> io::Result<BTreeSet<TableName>> {
    let chains = Client::open()?.chains_of_all_tables()?.into_iter();
    let passed = chains.filter(|(table, chain)| {
        let base = chain.base.as_ref();
        base.is_some_and(|base| {
            matches!(base.hook, Hook::Prerouting | Hook::Output | Hook::Postrouting | Hook::Input)
        }) && concerns(table, &chain.name)
    });
    Ok(passed.map(|(table, _)| table).into_set())
}

/// Replaces what is in tables and deletes others of the family `inet`, in one transaction. Rules that stay
/// keep their counters, base chains their places at the hooks. Sets that cannot be part of that transaction
/// are loaded before it (see `staged.rs`): in as many transactions as are returned.
///
/// # Errors
/// What the kernel refuses; then no rule is changed.
pub fn write(tables: &[Table], delete: &[String]) -> Result<usize, CommitError> {
    let (live, mut client) = super::Nftables::open().and_then(Live::list).map_err(failed)?;
    write_by(&mut client, live, tables, delete)
}

/// Does what [`write()`] does, by the client that knows what is live: that is read again only if it has
/// changed.
///
/// # Errors
/// What the kernel refuses; then no rule is changed.
pub fn write_by(
    client: &mut Client,
    live: Live,
    tables: &[Table],
    delete: &[String],
) -> Result<usize, CommitError> {
    delete_dormant(client, &live.dormant, tables)?;
    staged::write(client, live, tables, delete)
}

/// Deletes those of these tables that are dormant: no packet meets them, and the kernel activates none in the
/// transaction that changes its base chains.
fn delete_dormant(client: &mut Client, dormant: &[TableName], tables: &[Table]) -> Result<(), CommitError> {
    let mut batch = Batch::new();
    for table in tables.iter().filter(|table| dormant.contains(&table.name)) {
        batch.delete_table(&table.name);
    }
    if batch.is_empty() { Ok(()) } else { client.commit(&batch) }
}

/// Limits the rules of a table that store packet marks in connections to packets from `lo`, in one
/// transaction; those that look at an input interface already stay as they are. Returns how many there were.
///
/// # Errors
/// What the kernel refuses; then nothing is changed.
pub fn limit_save_mark(name: &TableName) -> Result<usize, CommitError> {
    let saves = |rule: &Rule| {
        let has = |is: fn(&Expression) -> bool| rule.expressions.iter().any(is);
        has(|found| matches!(found, Expression::SetCt { key: CtKey::Mark, .. }))
            && !has(|found| matches!(found, Expression::Meta { key: MetaKey::InInterface, .. }))
    };
    let (live, mut client) = super::Nftables::open().and_then(Live::list).map_err(failed)?;
    let limited = Cell::new(0);
    commit(&mut client, live, &[], |client, _| {
        let mut batch = Batch::new();
        let Some(before) = client.table(name)? else { return Ok(batch) };
        let mut table = before.clone();
        limited.set(0);
        let rules = table.chains.iter_mut().flat_map(|chain| &mut chain.rules);
        for rule in rules.filter(|rule| saves(rule)) {
            rule.expressions.splice(0..0, [Expression::meta(MetaKey::InInterface), Expression::equal(*LO)]);
            limited.set(limited.get() + 1);
        }
        if limited.get() > 0 {
            let named = before.sets.iter().filter(|set| !set.anonymous);
            batch.replace_content(&before, &table, &named.map(|set| set.name.clone()).into_set());
        }
        Ok(batch)
    })?;
    Ok(limited.get())
}

/// Whether the kernel takes everything that native rules consist of: tried in a transaction that makes a
/// table and deletes it.
///
/// # Errors
/// What the kernel refuses.
pub fn try_scratch() -> Result<(), CommitError> {
    let mut batch = Batch::new();
    let table = scratch();
    batch.create_table(&table);
    batch.delete_table(&table.name);
    Client::open().map_err(failed)?.commit(&batch)
}

fn scratch() -> Table {
    let accept = || Expression::Verdict(Verdict::Accept);
    let port = || Expression::immediate(1_u16.to_be_bytes());
    let tcp = || [Expression::meta(MetaKey::TransportProtocol), Expression::equal([6])];
    let family = || [Expression::meta(MetaKey::NetworkProtocol), Expression::equal([2])];
    let lookup = || Expression::Lookup { set: "ranges".to_owned(), register: Register::ONE, inverted: false };
    let in_set =
        [family().to_vec(), vec![Expression::payload(PayloadBase::Network, 16, 4), lookup()]].concat();
    let redirect =
        [tcp().to_vec(), vec![port(), Expression::Redirect { port: Some(Register::ONE) }]].concat();
    let tproxy = Expression::Tproxy { family: Family::Ip, port: Register::ONE };
    let tproxy = [family().to_vec(), tcp().to_vec(), vec![port(), tproxy]].concat();
    let of_owner =
        vec![Expression::meta(MetaKey::SocketUid), Expression::equal(0_u32.to_ne_bytes()), accept()];
    let zone = Expression::SetCt { key: CtKey::Zone, register: Register::ONE };
    let zone = vec![Expression::immediate(1_u16.to_ne_bytes()), zone];
    let chain = |name: &str, kind, hook, priority, rules: Vec<Vec<Expression>>| Chain {
        name: name.to_owned(),
        base: Some(Base { kind, hook, priority, policy: Verdict::Accept }),
        rules: rules.into_iter().map(Rule::new).collect(),
    };
    let ranges = Elements::Ranges(vec![(vec![192, 0, 2, 0], vec![192, 0, 2, 9])]);
    let ranges =
        Set { name: "ranges".to_owned(), key: KeyType::Ipv4Address, anonymous: false, elements: ranges };
    Table {
        sets: vec![ranges],
        chains: vec![
            chain("raw", ChainKind::Filter, Hook::Output, -300, vec![zone]),
            chain("mangle", ChainKind::Filter, Hook::Prerouting, -150, vec![tproxy]),
            chain("nat", ChainKind::Nat, Hook::Output, -100, vec![in_set, of_owner, redirect]),
        ],
        ..Table::new(inet(SCRATCH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlab::in_new_namespace;
    use netlab::process::run;

    #[test]
    fn scratch_table_is_taken_and_leaves_nothing() {
        in_new_namespace(|| {
            try_scratch().unwrap();
            assert_eq!(run("nft", &["list", "ruleset"]), "");
        });
    }

    #[test]
    fn only_chains_with_other_rules_are_written_again() {
        in_new_namespace(|| {
            let rule = |ports: &[u16], verdict: Verdict| {
                let lookup =
                    Expression::Lookup { set: "__set0".to_owned(), register: Register::ONE, inverted: false };
                let elements = Elements::Values(ports.iter().map(|port| port.to_be_bytes().into()).collect());
                let set = Set { name: "__set0".to_owned(), key: KeyType::Port, anonymous: true, elements };
                let tcp = [Expression::meta(MetaKey::TransportProtocol), Expression::equal([6])];
                let port = Expression::payload(PayloadBase::Transport, 2, 2);
                let more = [port, lookup, Expression::counter(), Expression::Verdict(verdict)];
                (set, Rule::new([&tcp[..], &more[..]].concat()))
            };
            let table = |ports: &[u16], verdict: Verdict| {
                let (set, looks_up) = rule(ports, Verdict::Drop);
                let chain = |name: &str, rules| Chain { name: name.to_owned(), base: None, rules };
                let other = Rule::new(vec![Expression::counter(), Expression::Verdict(verdict)]);
                let chains = vec![chain("first", vec![looks_up]), chain("second", vec![other])];
                Table { sets: vec![set], chains, ..Table::new(inet("t")) }.numbered()
            };
            let handles = || -> Vec<Option<u64>> {
                let live = read(&mut Client::open().unwrap(), &["t".to_owned()]).unwrap();
                live.iter()
                    .flat_map(|table| &table.chains)
                    .flat_map(|chain| &chain.rules)
                    .map(|rule| rule.handle)
                    .collect()
            };
            let is_live = |table: &Table| {
                let live = read(&mut Client::open().unwrap(), &["t".to_owned()]).unwrap();
                assert_eq!(live[0].clone().normalized(), table.clone().normalized());
            };
            let written = table(&[7, 8], Verdict::Accept);
            write_over(&written);
            let first = handles();
            let changed = table(&[7, 8], Verdict::Drop);
            write_over(&changed);
            let second = handles();
            assert_ne!(first[1], second[1]);
            is_live(&changed);
            let changed = table(&[7, 9], Verdict::Drop);
            write_over(&changed);
            assert_ne!(second[0], handles()[0], "another list");
            assert_eq!(second[1], handles()[1]);
            is_live(&changed);
        });
    }

    /// Writes as a repair does: what is live is known with the elements of its sets.
    fn write_over(table: &Table) {
        let (mut live, mut client) = crate::kernel::nftables::Nftables::open().and_then(Live::list).unwrap();
        live.read_whole(&mut client, |_| true).unwrap();
        write_by(&mut client, live, std::slice::from_ref(table), &[]).unwrap();
    }

    #[test]
    fn rules_that_stay_keep_their_counters_and_base_chains_their_places() {
        in_new_namespace(|| {
            let drop = |port: u16| {
                Rule::new(vec![
                    Expression::meta(MetaKey::TransportProtocol),
                    Expression::equal([17]),
                    Expression::payload(PayloadBase::Transport, 2, 2),
                    Expression::equal(port.to_be_bytes()),
                    Expression::counter(),
                    Expression::Verdict(Verdict::Drop),
                ])
            };
            let table = |ports: &[u16]| {
                let base = Base {
                    kind: ChainKind::Filter,
                    hook: Hook::Output,
                    priority: 0,
                    policy: Verdict::Accept,
                };
                let rules = ports.iter().map(|port| drop(*port)).collect();
                let chain = Chain { name: "output".to_owned(), base: Some(base), rules };
                Table { chains: vec![chain], ..Table::new(inet("t")) }
            };
            let counts = || -> Vec<u64> {
                let live = read(&mut Client::open().unwrap(), &["t".to_owned()]).unwrap();
                let rules = live.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
                let counter = |rule: &Rule| match rule.expressions.get(4) {
                    Some(Expression::Counter { packets, .. }) => *packets,
                    other => panic!("{other:?}"),
                };
                rules.map(counter).collect()
            };
            let place = || {
                let listed = run("nft", &["-a", "list", "ruleset"]);
                listed.lines().find(|line| line.contains("chain output")).map(str::to_owned)
            };
            write(&[table(&[7, 8])], &[]).unwrap();
            let first = place();
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            for _ in 0..3 {
                socket.send_to(b"x", "127.0.0.1:8").unwrap_err();
            }
            assert_eq!(counts(), [0, 3]);
            write(&[table(&[9, 8, 7])], &[]).unwrap();
            assert_eq!(counts(), [0, 3, 0]);
            assert_eq!(
                place(),
                first,
                "a new base chain would be at the hook besides the old one for a moment"
            );
            write(&[], &["t".to_owned(), "absent".to_owned()]).unwrap();
            assert_eq!(run("nft", &["list", "ruleset"]), "");
        });
    }
}
