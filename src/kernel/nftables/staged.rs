//! Sets that are loaded ahead: in transactions of their own, before the one that lets the rules refer to
//! them.
//!
//! A set of ranges that is created in the transaction that lets a rule refer to it holds nothing for packets
//! until some microseconds after that transaction (seen on Linux 6.18). So such a set is always loaded ahead,
//! or stays if it is live already; a set of single values is if the send buffer is too small for one
//! transaction.
//!
//! No rule refers to a set before the last transaction, so packets meet the previous rules until then, whole.
//! A run that is killed meanwhile leaves sets that no rule refers to; the next one deletes them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use nfnetlink::nftables::{Batch, Client, CommitError, Elements, Expression, Set, Table, TableName};

use super::commit::{Live, commit, failed};
use crate::nft::{SECOND, carry_counters};

/// The sets that are loaded ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ahead {
    /// The sets of ranges.
    Ranges,
    /// All with a name.
    Named,
}

/// Tables, and the transactions before the one that writes their rules.
struct Staged {
    /// The transactions: sets of a run that was killed are deleted, others are loaded.
    loading: Vec<Batch>,
    /// The tables, with the names of these sets.
    tables: Vec<Table>,
    /// The names of the sets that are live by then, by table.
    live: BTreeMap<TableName, BTreeSet<String>>,
}

/// Does what [`super::write`] does. Returns how many transactions there were before the last one.
///
/// # Errors
/// What the kernel refuses; then the rules are as they were.
pub(super) fn write(
    client: &mut Client,
    live: Live,
    tables: &[Table],
    delete: &[String],
) -> Result<usize, CommitError> {
    let limit = client.batch_limit();
    match write_after(Ahead::Ranges, client, live, (tables, delete), limit) {
        Err(error) if error.is_too_long() => {
            let live = Live::again(client).map_err(failed)?;
            write_after(Ahead::Named, client, live, (tables, delete), limit)
        }
        outcome => outcome,
    }
}

/// Does what [`write()`] does, with transactions of at most `limit` bytes, except the last one.
fn write_after(
    ahead: Ahead,
    client: &mut Client,
    live: Live,
    (tables, delete): (&[Table], &[String]),
    limit: usize,
) -> Result<usize, CommitError> {
    let staged = Staged::of(ahead, client, tables, limit).map_err(failed)?;
    let outcome = staged.loading.iter().try_for_each(|batch| client.commit(batch));
    let outcome =
        outcome.and_then(|()| commit(client, live, delete, |client, live| staged.switch(client, live)));
    if outcome.is_err() {
        // What is reported is why the rules are not written.
        let _ = delete_loaded(client, &staged);
    }
    outcome.map(|()| staged.loading.len())
}

/// Deletes the sets that were loaded, and that no rule refers to.
fn delete_loaded(client: &mut Client, staged: &Staged) -> Result<(), CommitError> {
    let mut batch = Batch::new();
    for table in staged.live.keys() {
        if let Some(live) = client.table_without_elements(table).map_err(failed)? {
            delete_unused(&mut batch, &live);
        }
    }
    if batch.is_empty() { Ok(()) } else { client.commit(&batch) }
}

/// Deletes the named sets that no rule refers to.
fn delete_unused(batch: &mut Batch, live: &Table) {
    for set in live.sets.iter().filter(|set| !set.anonymous && !is_used(live, set)) {
        batch.delete_set(&live.name, &set.name);
    }
}

fn is_used(table: &Table, set: &Set) -> bool {
    table.chains.iter().flat_map(|chain| &chain.rules).any(|rule| rule.refers_to(&set.name))
}

impl Ahead {
    fn includes(self, set: &Set) -> bool {
        !set.anonymous && (self == Self::Named || matches!(set.elements, Elements::Ranges(_)))
    }
}

impl Staged {
    fn of(ahead: Ahead, client: &mut Client, tables: &[Table], limit: usize) -> io::Result<Self> {
        let mut staged = Self { loading: Vec::new(), tables: tables.to_vec(), live: BTreeMap::new() };
        for table in &mut staged.tables {
            let sets: Vec<Set> = table.sets.iter().filter(|set| ahead.includes(set)).cloned().collect();
            if sets.is_empty() {
                continue;
            }
            let live =
                client.table(&table.name)?.unwrap_or_else(|| Table::new(table.name.clone())).numbered();
            let mut unused = Batch::new();
            delete_unused(&mut unused, &live);
            staged.loading.extend((!unused.is_empty()).then_some(unused));
            let used: Vec<&Set> = live.sets.iter().filter(|set| is_used(&live, set)).collect();
            let names = staged.live.entry(table.name.clone()).or_default();
            for set in sets {
                let second = format!("{}{SECOND}", set.name);
                let is_taken = |name: &str| used.iter().any(|live| live.name == name);
                let holds_the_same = |live: &&&Set| {
                    (live.name == set.name || live.name == second)
                        && (live.key, &live.elements) == (set.key, &set.elements)
                };
                let name = match used.iter().find(holds_the_same) {
                    Some(live) => live.name.clone(),
                    None if !is_taken(&set.name) => set.name.clone(),
                    None if !is_taken(&second) => second,
                    // Not ours: replaced together with the rules.
                    None => continue,
                };
                rename(table, &set.name, &name);
                if !is_taken(&name) {
                    let set = Set { name: name.clone(), ..set };
                    staged.loading.extend(Batch::load_set(&table.name, &set, limit));
                }
                names.insert(name);
            }
        }
        Ok(staged)
    }

    /// The transaction that lets the rules refer to the sets.
    fn switch(&self, client: &mut Client, live: &Live) -> io::Result<Batch> {
        let mut batch = Batch::new();
        let none = BTreeSet::new();
        let mut tables = self.tables.clone();
        for table in &mut tables {
            let Some(before) = live.content(client, &table.name)? else {
                batch.create_table(table);
                continue;
            };
            carry_counters(std::slice::from_mut(table), std::slice::from_ref(&before));
            batch.replace_content(&before, table, self.live.get(&table.name).unwrap_or(&none));
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

    /// Writes, with sets loaded ahead.
    fn loaded(client: &mut Client, tables: &[Table]) -> Result<usize, CommitError> {
        let live = Live::again(client).unwrap();
        write_after(Ahead::Ranges, client, live, (tables, &[]), LIMIT)
    }

    fn written(client: &mut Client, table: &Table) {
        loaded(client, std::slice::from_ref(table)).unwrap();
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
                let count = Staged::of(Ahead::Ranges, &mut client, std::slice::from_ref(&after), LIMIT)
                    .unwrap()
                    .loading
                    .len();
                assert!(count > 5, "{count}");
                for killed_after in 0..=count {
                    let _ = client.commit(&{
                        let mut batch = Batch::new();
                        batch.delete_table(&after.name);
                        batch
                    });
                    before.iter().for_each(|before| written(&mut client, before));
                    let staged =
                        Staged::of(Ahead::Ranges, &mut client, std::slice::from_ref(&after), LIMIT).unwrap();
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
    fn set_that_has_not_changed_stays_and_another_one_is_loaded_under_a_second_name() {
        in_new_namespace(|| {
            let mut client = Client::open().unwrap();
            let mut write = |table: &Table| {
                let loading = loaded(&mut client, std::slice::from_ref(table));
                let sets = run("nft", &["-t", "-a", "list", "sets"]);
                let sets: Vec<String> = sets
                    .lines()
                    .filter_map(|line| line.trim().strip_prefix("set "))
                    .map(str::to_owned)
                    .collect();
                (loading.unwrap(), sets)
            };
            let mut table = drops(0..3);
            let (loading, first) = write(&table);
            assert_eq!((loading, first.len()), (1, 1), "{first:?}");
            table.chains[0].rules.push(Rule::new(vec![Expression::Verdict(Verdict::Accept)]));
            assert_eq!(write(&table), (0, first), "the handle of the set is the same");
            for name in ["ranges.2", "ranges", "ranges.2"] {
                let from = if name == "ranges" { 0 } else { 1 };
                let (loading, sets) = write(&drops(from..from + 3));
                assert_eq!((loading, sets.len()), (1, 1), "{sets:?}");
                assert!(sets[0].starts_with(&format!("{name} {{")), "{sets:?}");
                assert_eq!(live(), [drops(from..from + 3)]);
            }
        });
    }

    #[test]
    fn set_is_replaced_if_a_rule_of_another_program_uses_the_second_name() {
        in_new_namespace(|| {
            let mut client = Client::open().unwrap();
            written(&mut client, &drops(0..3));
            let foreign = format!(
                "add set inet {NAME} ranges.2 {{ type ipv4_addr; flags interval; elements = {{ 198.51.100.0/24 }}; }}\n\
                 add rule inet {NAME} output ip daddr @ranges.2 accept"
            );
            netlab::process::run_with_input("nft", &["-f", "-"], &foreign);
            written(&mut client, &drops(1..4));
            assert_eq!(live(), [drops(1..4)]);
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
            loaded(&mut client, &[wrong]).unwrap_err();
            assert_eq!(run("nft", &["list", "ruleset"]), before);
        });
    }
}
