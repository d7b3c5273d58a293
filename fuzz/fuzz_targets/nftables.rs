//! Whatever a dump of nf_tables holds: reading it never panics, and what was read is written and read again
//! alike.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nfnetlink::Reply;
use nfnetlink::nftables::{Batch, Chain, Elements, Object, Table};

fuzz_target!(|data: (u8, &[u8])| {
    let (kind, body) = data;
    let reply = Reply { kind: 0x0a00 | u16::from(kind % 16), flags: 0, sequence: 0, port: 0, body };
    match Object::read(&reply) {
        Some(Object::Rule { table, chain, rule }) => {
            let chains = vec![Chain { name: chain, base: None, rules: vec![rule.clone()] }];
            let mut batch = Batch::new();
            batch.create_table(&Table { chains, ..Table::new(table) });
            let Some(message) = batch.messages().last() else { return };
            let reply = Reply { kind: 0x0a06, flags: 0, sequence: 0, port: 0, body: message.body() };
            // Names and data may be too long for an attribute once they are written again.
            if let Some(Object::Rule { rule: again, .. }) = Object::read(&reply).filter(|_| body.len() < 1000)
            {
                assert_eq!(again.expressions, rule.expressions);
            }
        }
        Some(Object::Elements(_, elements)) => {
            let _ = elements.clone().finish(&Elements::Ranges(Vec::new()));
            let _ = elements.finish(&Elements::Values(Vec::new()));
        }
        Some(Object::Table(table)) => drop(table.normalized()),
        Some(Object::Chain(..) | Object::Set(..)) | None => {}
    }
});
