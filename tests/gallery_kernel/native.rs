//! The native form of every scenario: its text loaded by `nft`, and its netlink messages, make the same
//! tables.

use istio_iptables::model::{
    Chain, Family, FamilyRules, Hook, HookRules, Match, Matcher, Owner, PerFamily, Port, Protocol, Rule,
    Statement, Table as ModelTable, TableRules, Target, Transport, Why,
};
use istio_iptables::nft::{self, NativeTable};
use nfnetlink::nftables::{Batch, Client, Expression, Table};

use crate::scenario;
use netlab::in_new_namespace;
use netlab::process::{run, run_with_input};

/// The tables as they are read back.
fn tables() -> Vec<Table> {
    let mut client = Client::open().expect("the kernel has nf_tables");
    let names = client.tables().expect("tables can be listed");
    let read =
        |name| client.table(name).expect("a table can be read").expect("the table is there").normalized();
    names.iter().map(read).collect()
}

/// The tables, and how `nft` lists them.
fn live() -> (Vec<Table>, String) {
    (tables(), run("nft", &["list", "ruleset"]))
}

/// What the kernel makes of a text.
pub(super) fn loaded(text: &str) -> Vec<Table> {
    in_new_namespace(|| {
        run_with_input("nft", &["-f", "-"], text);
        tables()
    })
}

fn loaded_and_listed(text: &str) -> (Vec<Table>, String) {
    in_new_namespace(|| {
        run_with_input("nft", &["-f", "-"], text);
        live()
    })
}

fn programmed(tables: &[Table]) -> (Vec<Table>, String) {
    in_new_namespace(|| {
        let mut batch = Batch::new();
        tables.iter().for_each(|table| batch.replace_table(table));
        let mut client = Client::open().expect("the kernel has nf_tables");
        // Twice: a second run replaces everything.
        for _ in 0..2 {
            client.commit(&batch).unwrap_or_else(|error| panic!("{error}"));
        }
        live()
    })
}

/// `nft list ruleset` without what changes as packets pass.
fn without_counters(listed: &str) -> String {
    listed.replace("counter packets 0 bytes 0 ", "counter ")
}

/// Compares the two ways to the kernel; returns the rules that are there afterwards.
fn assert_text_and_messages_agree(name: &str, native: &[NativeTable]) -> Vec<nfnetlink::nftables::Rule> {
    let text = nft::text(native);
    let encoded: Vec<Table> = native.iter().map(nft::encode).collect();
    let (from_text, listed_text) = loaded_and_listed(&text);
    let (from_messages, listed_messages) = programmed(&encoded);
    // Lists are too long to be printed twice.
    let written: Vec<Table> = encoded.into_iter().map(Table::normalized).collect();
    assert!(from_messages == written, "{name}: what was written is not what is read back\n{text}");
    assert!(from_text == from_messages, "{name}: text and messages make different tables\n{text}");
    let differ = listed_text.lines().zip(listed_messages.lines()).find(|(a, b)| a != b);
    assert_eq!(
        (differ, listed_text.len()),
        (None, listed_messages.len()),
        "{name}: nft lists them differently"
    );
    // nft breaks lines of long lists, and sorts some by their bytes.
    if !text.contains("elements = ") {
        assert_eq!(without_counters(&listed_messages), text, "{name}: our text is nft's");
    }
    from_messages.into_iter().flat_map(|table| table.chains).flat_map(|chain| chain.rules).collect()
}

#[test]
fn text_and_messages_make_the_same_tables() {
    let mut rules = 0;
    for scenario in scenario::all() {
        let name = &scenario.name;
        for rule in assert_text_and_messages_agree(name, &nft::tables(&scenario.make().rules)) {
            rules += 1;
            let counters =
                rule.expressions.iter().filter(|e| matches!(e, Expression::Counter { .. })).count();
            assert_eq!((counters, rule.comment.is_some()), (1, true), "{name}: {rule:?}");
        }
    }
    assert!(rules > 300, "{rules} rules");
}

/// A rule for every value of each kind of list, in nat OUTPUT.
fn long_lists(family: Family) -> FamilyRules {
    let host = |n: u32| match family {
        Family::V4 => format!("10.{}.{}.1/32", n / 250, n % 250),
        Family::V6 => format!("fd00::{n:x}:1/128"),
    };
    let range = |n: u32| match family {
        Family::V4 => format!("172.{}.{}.0/{}", 16 + n / 250, n % 250, 22 + n % 7),
        Family::V6 => format!("fd01:{n:x}::/{}", 30 + n % 7),
    };
    let port = |n: u32| Port::new(u16::try_from(1000 + n * 3).expect("a port")).expect("a port");
    let number = |n: u32| 60_000 + n * n;
    let lists: Vec<Matcher> = (0..300)
        .flat_map(|n| {
            let all = Matcher::default;
            let to = |network: String| Some(Match::Is(network.parse().expect("a network")));
            [
                Matcher { destination: to(host(n)), in_interface: None, ..all() },
                Matcher {
                    destination: to(range(n)),
                    mark: Some(Match::Is(istio_iptables::model::Mark(7))),
                    ..all()
                },
                Matcher { protocol: Some(Protocol::to(Transport::Tcp, port(n))), ..all() },
                Matcher { protocol: Some(Protocol::to(Transport::Udp, port(n))), ..all() },
                Matcher { owners: vec![Match::Is(Owner::Uid(number(n)))], ..all() },
                Matcher { owners: vec![Match::Is(Owner::Gid(number(n)))], ..all() },
                Matcher { out_interface: Some(format!("veth{n}").parse().expect("a name")), ..all() },
            ]
        })
        .collect();
    let wildcard = Matcher { out_interface: Some("tun+".parse().expect("a name")), ..Matcher::default() };
    let rule = |matcher| Rule {
        statement: Statement { matcher, target: Target::Return },
        only: None,
        why: Why::ExcludedRange,
    };
    let jump = Statement { matcher: Matcher::default(), target: Target::Jump(Chain::Output) };
    let jump = Rule { statement: jump, only: None, why: Why::OutboundTraffic };
    let hooks = [(Hook::Output, HookRules { head: Vec::new(), tail: vec![jump] })].into();
    let rules = lists.into_iter().chain([wildcard]).map(rule).collect();
    let mut of_family = FamilyRules::none(family);
    let table = TableRules { hooks, chains: [(Chain::Output, rules)].into() };
    of_family.tables.insert(ModelTable::Nat, table);
    of_family
}

#[test]
fn long_lists_are_sets_in_text_and_messages() {
    let rules: PerFamily<_> = Family::ALL.into_iter().map(|family| (family, long_lists(family))).collect();
    let native = nft::tables(&rules);
    let rules = assert_text_and_messages_agree("long lists", &native);
    assert_eq!(rules.len(), 11, "the jump, the wildcard, and one rule for each list: {rules:?}");
    let [table] = native.as_slice() else { panic!("one table: {native:?}") };
    let sizes: Vec<(&str, usize)> =
        table.sets.iter().map(|(name, values)| (name.as_str(), values.len())).collect();
    assert_eq!(sizes.iter().filter(|(_, size)| *size == 300).count(), 6, "{sizes:?}");
}
