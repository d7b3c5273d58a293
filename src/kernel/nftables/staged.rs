//! Lists that do not fit one transaction: sets are loaded ahead, in transactions of their own, and one more lets the rules
//! refer to them.
//!
//! No rule refers to such a set before the last transaction, so packets meet the previous rules until then, whole. A run that
//! is killed meanwhile leaves sets that nothing uses; the next one deletes them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use nfnetlink::nftables::{Batch, Client, CommitError, Expression, Set, Table, TableName};

use super::commit::{commit, failed};
use crate::nft::{SECOND, carry_counters};
use crate::ordered::Ordered as _;

/// Tables whose named sets are loaded ahead.
struct Staged {
    /// The transactions that load the sets.
    loading: Vec<Batch>,
    /// The tables, with the names of these sets.
    tables: Vec<Table>,
    /// The names of these sets, by table.
    loaded: BTreeMap<TableName, BTreeSet<String>>,
}

/// Does what [`super::write`] does, with transactions of at most `limit` bytes, except the last one. Returns how many there
/// were before that.
///
/// # Errors
/// What the kernel refuses; then the rules are as they were.
pub(super) fn write(
    client: &mut Client,
    tables: &[Table],
    delete: &[String],
    limit: usize,
) -> Result<usize, CommitError> {
    delete_unused(client, tables)?;
    let staged = Staged::of(client, tables, limit).map_err(failed)?;
    let outcome = staged.loading.iter().try_for_each(|batch| client.commit(batch));
    let outcome = outcome.and_then(|()| commit(client, delete, |client, names| staged.switch(client, names)));
    if outcome.is_err() {
        // What is reported is why the rules are not written.
        let _ = delete_unused(client, tables);
    }
    outcome.map(|()| staged.loading.len())
}

/// Deletes the sets that no rule refers to: those of a run that was killed.
fn delete_unused(client: &mut Client, tables: &[Table]) -> Result<(), CommitError> {
    let mut batch = Batch::new();
    for table in tables {
        let Some(live) = client.table_without_elements(&table.name).map_err(failed)? else { continue };
        let rules = || live.chains.iter().flat_map(|chain| &chain.rules);
        let unused = |set: &&Set| !set.anonymous && !rules().any(|rule| rule.refers_to(&set.name));
        for set in live.sets.iter().filter(unused) {
            batch.delete_set(&table.name, &set.name);
        }
    }
    if batch.is_empty() { Ok(()) } else { client.commit(&batch) }
}

impl Staged {
    fn of(client: &mut Client, tables: &[Table], limit: usize) -> io::Result<Self> {
        let mut staged = Self { loading: Vec::new(), tables: tables.to_vec(), loaded: BTreeMap::new() };
        for table in &mut staged.tables {
            let live = client.table_without_elements(&table.name)?;
            let taken: BTreeSet<String> =
                live.into_iter().flat_map(|live| live.sets).map(|set| set.name).into_set();
            let names = table.sets.iter().filter(|set| !set.anonymous).map(|set| set.name.clone());
            for name in names.filter(|name| taken.contains(name)).collect::<Vec<_>>() {
                rename(table, &name, &format!("{name}{SECOND}"));
            }
            let named = || table.sets.iter().filter(|set| !set.anonymous);
            staged.loading.extend(named().flat_map(|set| Batch::load_set(&table.name, set, limit)));
            staged.loaded.insert(table.name.clone(), named().map(|set| set.name.clone()).into_set());
        }
        Ok(staged)
    }

    /// The transaction that lets the rules refer to the loaded sets. `names` are the live tables.
    fn switch(&self, client: &mut Client, names: &[TableName]) -> io::Result<Batch> {
        let mut batch = Batch::new();
        let mut tables = self.tables.clone();
        for table in &mut tables {
            let live =
                if names.contains(&table.name) { client.table_without_elements(&table.name)? } else { None };
            match (live, self.loaded.get(&table.name)) {
                (Some(live), Some(loaded)) => {
                    carry_counters(std::slice::from_mut(table), std::slice::from_ref(&live));
                    batch.replace_content(&live, table, loaded);
                }
                _ => batch.create_table(table),
            }
        }
        Ok(batch)
    }
}

fn rename(table: &mut Table, from: &str, to: &str) {
    for set in table.sets.iter_mut().filter(|set| set.name == from) {
        to.clone_into(&mut set.name);
    }
    let rules = table.chains.iter_mut().flat_map(|chain| &mut chain.rules);
    for expression in rules.flat_map(|rule| &mut rule.expressions) {
        if let Expression::Lookup { set, .. } = expression
            && set == from
        {
            to.clone_into(set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::nftables::read;
    use crate::nft::LiveTables;
    use netlab::in_new_namespace;
    use netlab::process::run;
    use nfnetlink::nftables::{
        Base, Chain, ChainKind, Elements, Family, Hook, KeyType, MetaKey, PayloadBase, Register, Rule,
        Verdict,
    };

    const NAME: &str = "istio-proxy-nat";
    const LIMIT: usize = 2000;

    /// Packets to these hosts of 192.0.0.0/16 are dropped.
    fn drops(hosts: std::ops::Range<u16>) -> Table {
        let ranges = hosts.map(|host| {
            let [high, low] = (host * 4).to_be_bytes();
            (vec![192, 0, high, low], vec![192, 0, high, low + 1])
        });
        let name = || "ranges".to_owned();
        let set = Set {
            name: name(),
            key: KeyType::Ipv4Address,
            anonymous: false,
            elements: Elements::Ranges(ranges.collect()),
        };
        let rule = Rule::new(vec![
            Expression::meta(MetaKey::NetworkProtocol),
            Expression::equal([2]),
            Expression::payload(PayloadBase::Network, 16, 4),
            Expression::Lookup { set: name(), register: Register::ONE, inverted: false },
            Expression::counter(),
            Expression::Verdict(Verdict::Drop),
        ]);
        let base = Base { kind: ChainKind::Filter, hook: Hook::Output, priority: 0, policy: Verdict::Accept };
        let chain = Chain { name: "output".to_owned(), base: Some(base), rules: vec![rule] };
        Table { sets: vec![set], chains: vec![chain], ..Table::new(TableName::new(Family::Inet, NAME)) }
            .normalized()
    }

    fn written(client: &mut Client, table: &Table) {
        write(client, std::slice::from_ref(table), &[], LIMIT).unwrap();
    }

    fn live() -> Vec<Table> {
        let live =
            LiveTables::new(read(&mut Client::open().unwrap(), &[NAME.to_owned()]).unwrap(), Vec::new());
        live.tables().to_vec()
    }

    fn is_dropped(host: u16) -> bool {
        let [high, low] = (host * 4).to_be_bytes();
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let sent = socket.send_to(b"x", format!("192.0.{high}.{low}:9"));
        sent.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    /// Without a route no packet gets to the output hook.
    fn routed() {
        run("ip", &["route", "add", "192.0.0.0/16", "dev", "lo"]);
    }

    #[test]
    fn a_list_of_any_length_is_written_and_replaced_in_transactions_of_limited_size() {
        in_new_namespace(|| {
            routed();
            let mut client = Client::open().unwrap();
            for table in [drops(0..1000), drops(500..1500), drops(500..1500), drops(0..700)] {
                written(&mut client, &table);
                assert_eq!(live(), std::slice::from_ref(&table));
                let Elements::Ranges(ranges) = &table.sets[0].elements else { panic!("{table:?}") };
                let host = u16::from_be_bytes([ranges[0].0[2], ranges[0].0[3]]) / 4;
                assert!(is_dropped(host));
            }
        });
    }

    #[test]
    fn a_run_that_is_killed_while_it_loads_changes_no_rule_and_the_next_one_deletes_its_sets() {
        in_new_namespace(|| {
            routed();
            let mut client = Client::open().unwrap();
            for (before, after) in [(None, drops(0..300)), (Some(drops(0..300)), drops(100..500))] {
                let count =
                    Staged::of(&mut client, std::slice::from_ref(&after), LIMIT).unwrap().loading.len();
                assert!(count > 5, "{count}");
                for killed_after in 0..=count {
                    let _ = client.commit(&{
                        let mut batch = Batch::new();
                        batch.delete_table(&after.name);
                        batch
                    });
                    before.iter().for_each(|before| written(&mut client, before));
                    let staged = Staged::of(&mut client, std::slice::from_ref(&after), LIMIT).unwrap();
                    for batch in staged.loading.iter().take(killed_after) {
                        client.commit(batch).unwrap();
                    }
                    let shown = LiveTables::new(
                        read(&mut Client::open().unwrap(), &[NAME.to_owned()]).unwrap(),
                        Vec::new(),
                    );
                    assert_eq!(shown.captures(crate::model::Family::V4), before.is_some(), "{killed_after}");
                    if before.is_some() {
                        assert!(is_dropped(0) && !is_dropped(400), "{killed_after}");
                    }
                    written(&mut client, &after);
                    assert_eq!(live(), std::slice::from_ref(&after), "{killed_after}");
                }
            }
        });
    }

    #[test]
    fn sets_of_a_failed_write_are_deleted() {
        in_new_namespace(|| {
            let mut client = Client::open().unwrap();
            written(&mut client, &drops(0..300));
            let before = run("nft", &["list", "ruleset"]);
            let mut wrong = drops(100..400);
            wrong.chains[0].rules[0]
                .expressions
                .push(Expression::Verdict(Verdict::Jump("absent".to_owned())));
            write(&mut client, &[wrong], &[], LIMIT).unwrap_err();
            assert_eq!(run("nft", &["list", "ruleset"]), before);
        });
    }
}
