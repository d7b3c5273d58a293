//! Tables on the real kernel: written by this crate and by `nft`, and read back by both.
//!
//! Needs root and the program `nft` (Debian's package `nftables`). Each test has a network namespace of its
//! own.
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests start programs and fail by panicking"
)]

use std::io::Write;
use std::process::{Command, Stdio};

use netlab::in_new_namespace;
use nfnetlink::nftables::{
    Base, Batch, Chain, ChainKind, Client, Comment, Elements, Expression, Family, Hook, KeyType, MetaKey,
    Origin, PayloadBase, Register, Rule, Set, Table, TableName, Verdict, merge,
};

/// Rules with every expression that is supported, as `nft` writes them.
const RULES: &str = include_str!("rules.nft");

fn nft(arguments: &[&str], input: &str) -> String {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test needs the program nft");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "nft {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn list() -> String {
    nft(&["list", "ruleset"], "")
}

fn read_all() -> Vec<Table> {
    let mut client = Client::open().unwrap();
    let names = client.tables().unwrap();
    names.iter().map(|name| client.table(name).unwrap().unwrap()).collect()
}

fn write(tables: &[Table]) {
    let mut batch = Batch::new();
    tables.iter().for_each(|table| batch.replace_table(table));
    Client::open().unwrap().commit(&batch).unwrap_or_else(|error| panic!("{error}"));
}

fn foreign(table: &Table) -> Vec<&Expression> {
    let expressions = table.chains.iter().flat_map(|chain| &chain.rules).flat_map(|rule| &rule.expressions);
    expressions.filter(|expression| matches!(expression, Expression::Foreign { .. })).collect()
}

#[test]
fn rules_of_nft_are_read_in_full_and_written_back_alike() {
    let (tables, listed) = in_new_namespace(|| {
        nft(&["-f", "-"], RULES);
        (read_all(), list())
    });
    assert_eq!(tables.len(), 3);
    for table in &tables {
        assert_eq!(foreign(table), Vec::<&Expression>::new());
    }
    let (read_back, listed_again) = in_new_namespace(|| {
        write(&tables);
        // A second time over the first one.
        write(&tables);
        (read_all(), list())
    });
    let normalized = |tables: Vec<Table>| tables.into_iter().map(Table::normalized).collect::<Vec<_>>();
    assert_eq!(normalized(read_back), normalized(tables));
    assert_eq!(listed_again, listed);
}

#[test]
fn unknown_expressions_are_kept_and_written_back() {
    let rules = "table ip t {
        map m { type ipv4_addr : verdict; elements = { 10.0.0.1 : drop } }
        set timed { type ipv4_addr; timeout 1h; elements = { 10.0.0.2 } }
        chain c {
            limit rate 3/second burst 5 packets counter packets 7 bytes 420 accept comment \"seven\"
            fib daddr type local drop
            ip daddr vmap @m
        }
    }";
    in_new_namespace(|| {
        nft(&["-f", "-"], rules);
        let table = read_all().remove(0);
        let names: Vec<&str> = foreign(&table).iter().map(|expression| expression.name()).collect();
        assert_eq!(names, ["limit", "fib", "lookup"]);
        assert!(
            table.sets.iter().all(|set| matches!(set.elements, Elements::Foreign(_))),
            "{:?}",
            table.sets
        );
        let mut rules: Vec<Rule> = table.chains[0].rules.clone();
        rules.pop();
        let copy = Table {
            chains: vec![Chain { name: "c".to_owned(), base: None, rules: rules.clone() }],
            ..Table::new(TableName::new(Family::Ip, "copy"))
        };
        write(std::slice::from_ref(&copy));
        let listed = nft(&["list", "table", "ip", "copy"], "");
        let line = "limit rate 3/second counter packets 7 bytes 420 accept comment \"seven\"";
        assert!(listed.contains(line) && listed.contains("fib daddr type local drop"), "{listed}");
    });
}

fn table_with(rules: Vec<Rule>, sets: Vec<Set>) -> Table {
    let base = Base { kind: ChainKind::Filter, hook: Hook::Output, priority: 0, policy: Verdict::Accept };
    let chain = Chain { name: "output".to_owned(), base: Some(base), rules };
    Table { sets, chains: vec![chain], ..Table::new(TableName::new(Family::Inet, "ours")) }
}

#[test]
fn refusals_name_the_rule() {
    in_new_namespace(|| {
        let good = Rule::new(vec![Expression::counter()]);
        let unknown = Expression::Foreign { name: "no-such".to_owned(), data: Vec::new() };
        let jump = Expression::Verdict(Verdict::Jump("nowhere".to_owned()));
        let comment = Comment::new("excluded").unwrap();
        for (bad, detail) in
            [(unknown, "(os error 2): expression no-such"), (jump, "(os error 2): expression immediate")]
        {
            let bad = Rule::new(vec![Expression::counter(), bad]).with_comment(comment.clone());
            let mut batch = Batch::new();
            batch.create_table(&table_with(vec![good.clone(), bad, good.clone()], Vec::new()));
            let error = Client::open().unwrap().commit(&batch).unwrap_err();
            let Some(Origin::Rule { index: 1, chain, .. }) = error.origin.as_deref() else {
                panic!("{error:?}")
            };
            assert_eq!(chain, "output");
            let text = error.to_string();
            let begin = "the kernel refused rule 2 of chain output of table inet ours (excluded): ";
            assert!(text.starts_with(begin) && text.ends_with(detail), "{text}");
        }
        assert_eq!(list(), "", "a refused batch changes nothing");
    });
}

#[test]
fn overlapping_ranges_are_refused_as_the_set_s_and_merged_ones_are_not() {
    in_new_namespace(|| {
        let set = |ranges| Set {
            name: "ranges".to_owned(),
            key: KeyType::Ipv4Address,
            anonymous: false,
            elements: Elements::Ranges(ranges),
        };
        let ranges = vec![(vec![10, 0, 0, 0], vec![10, 0, 0, 255]), (vec![10, 0, 0, 7], vec![10, 1, 0, 0])];
        let mut batch = Batch::new();
        batch.create_table(&table_with(Vec::new(), vec![set(ranges.clone())]));
        let error = Client::open().unwrap().commit(&batch).unwrap_err();
        assert!(
            matches!(error.origin.as_deref(), Some(Origin::Set(_, name)) if name == "ranges"),
            "{error:?}"
        );
        assert_eq!(error.error.error.raw_os_error(), Some(libc_eexist()), "{error}");
        write(&[table_with(Vec::new(), vec![set(merge(ranges))])]);
        assert!(list().contains("10.0.0.0-10.1.0.0"), "{}", list());
    });
}

fn libc_eexist() -> i32 {
    nix::errno::Errno::EEXIST as i32
}

#[test]
fn a_batch_for_another_generation_is_stale_and_changes_nothing() {
    in_new_namespace(|| {
        let mut client = Client::open().unwrap();
        let generation = client.generation().unwrap();
        let table = table_with(vec![Rule::new(vec![Expression::counter()])], Vec::new());
        let mut batch = Batch::new();
        batch.replace_table(&table);
        client.commit_at(&batch, Some(generation)).unwrap();
        let error = client.commit_at(&batch, Some(generation)).unwrap_err();
        assert!(error.is_stale(), "{error}");
        let generation = client.generation().unwrap();
        client.commit_at(&batch, Some(generation)).unwrap();
        assert_eq!(client.table(&table.name).unwrap().map(Table::normalized), Some(table.clone()));
        let mut batch = Batch::new();
        batch.delete_table(&table.name);
        batch.delete_table(&TableName::new(Family::Ip6, "never there"));
        client.commit(&batch).unwrap();
        assert_eq!(client.table(&table.name).unwrap(), None);
        assert_eq!(list(), "");
    });
}

#[test]
fn sets_of_every_kind_of_key_are_listed_as_they_are_meant() {
    let name = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(16, 0);
        bytes
    };
    let number = |number: u32| number.to_ne_bytes().to_vec();
    let kinds: Vec<(KeyType, Vec<Vec<u8>>, &str)> = vec![
        (KeyType::Ipv4Address, vec![vec![10, 0, 0, 1], vec![10, 0, 0, 2]], "10.0.0.1, 10.0.0.2"),
        (KeyType::Port, vec![80_u16.to_be_bytes().to_vec(), 443_u16.to_be_bytes().to_vec()], "80, 443"),
        (KeyType::Mark, vec![number(1337), number(1338)], "0x00000539, 0x0000053a"),
        (KeyType::Uid, vec![number(1337), number(70_000)], "1337, 70000"),
        (KeyType::Gid, vec![number(0), number(1337)], "0, 1337"),
        (KeyType::InterfaceName, vec![name("eth0"), name("lo")], "\"eth0\", \"lo\""),
        (KeyType::Protocol, vec![vec![6], vec![17]], "tcp, udp"),
    ];
    in_new_namespace(|| {
        let sets = kinds.iter().enumerate().map(|(index, (key, values, _))| Set {
            name: format!("set{index}"),
            key: *key,
            anonymous: false,
            elements: Elements::Values(values.clone()),
        });
        let table = table_with(Vec::new(), sets.collect());
        write(std::slice::from_ref(&table));
        for (index, (.., shown)) in kinds.iter().enumerate() {
            let listed = nft(&["list", "set", "inet", "ours", &format!("set{index}")], "");
            let elements = listed.split(['{', '}']).nth(3).unwrap().split(',').map(str::trim);
            // nft sorts names by their first byte last.
            let mut elements: Vec<&str> = elements.collect();
            elements.sort_by_key(|element| shown.find(element));
            assert_eq!(elements.join(", "), *shown, "{listed}");
        }
        assert_eq!(read_all().remove(0).normalized(), table.normalized());
    });
}

/// One attribute holds at most 65,535 bytes, so the elements are in several messages.
#[test]
fn a_large_set_is_written_and_read_whole() {
    in_new_namespace(|| {
        let ranges = (0..20_000_u32).map(|n| {
            let first = n << 9;
            (first.to_be_bytes().to_vec(), (first + 255).to_be_bytes().to_vec())
        });
        let set = Set {
            name: "large".to_owned(),
            key: KeyType::Ipv4Address,
            anonymous: false,
            elements: Elements::Ranges(ranges.collect()),
        };
        let lookup = Rule::new(vec![
            Expression::meta(MetaKey::NetworkProtocol),
            Expression::equal([2]),
            Expression::payload(PayloadBase::Network, 16, 4),
            Expression::Lookup { set: set.name.clone(), register: Register::ONE, inverted: true },
            Expression::counter(),
        ]);
        let table = table_with(vec![lookup], vec![set]);
        write(std::slice::from_ref(&table));
        let live = Client::open().unwrap().table(&table.name).unwrap().unwrap();
        assert!(live.normalized() == table, "20,000 ranges read back differ");
        assert!(nft(&["list", "chain", "inet", "ours", "output"], "").contains("ip daddr != @large counter"));
    });
}
