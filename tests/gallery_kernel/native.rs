//! The native form of every scenario: its text loaded by `nft`, and its netlink messages, make the same tables.

use istio_iptables::nft;
use nfnetlink::nftables::{Batch, Client, Expression, Table};

use crate::namespace::{in_namespace, run, run_with_input};
use crate::scenario;

/// Our tables as they are read back, and as `nft` lists them.
fn live() -> (Vec<Table>, String) {
    let mut client = Client::open().expect("the kernel has nf_tables");
    let names = client.tables().expect("tables can be listed");
    let read =
        |name| client.table(name).expect("a table can be read").expect("the table is there").normalized();
    (names.iter().map(read).collect(), run("nft", &["list", "ruleset"], None))
}

fn loaded(text: &str) -> (Vec<Table>, String) {
    in_namespace(|| {
        run_with_input("nft", &["-f", "-"], text);
        live()
    })
}

fn programmed(tables: &[Table]) -> (Vec<Table>, String) {
    in_namespace(|| {
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

#[test]
fn text_and_messages_make_the_same_tables() {
    let mut rules = 0;
    for scenario in scenario::all() {
        let native = nft::tables(&scenario.make().rules);
        let text = nft::text(&native);
        let encoded: Vec<Table> = native.iter().map(nft::encode).collect();
        let (from_text, listed_text) = loaded(&text);
        let (from_messages, listed_messages) = programmed(&encoded);
        let name = &scenario.name;
        assert_eq!(from_messages, encoded, "{name}: what was written is read back\n{text}");
        assert_eq!(from_text, from_messages, "{name}: text and messages\n{text}");
        assert_eq!(listed_text, listed_messages, "{name}: as nft lists them");
        assert_eq!(without_counters(&listed_messages), text, "{name}: our text is nft's");
        let expressions = from_messages.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
        for rule in expressions {
            rules += 1;
            let counters =
                rule.expressions.iter().filter(|e| matches!(e, Expression::Counter { .. })).count();
            assert_eq!((counters, rule.comment.is_some()), (1, true), "{name}: {rule:?}");
        }
    }
    assert!(rules > 300, "{rules} rules");
}
