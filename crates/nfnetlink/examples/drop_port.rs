//! Drops TCP to a port of this network namespace, and counts it: `drop_port 8080`.

use std::error::Error;

use nfnetlink::nftables::{
    Base, Batch, Chain, ChainKind, Client, Comment, Expression, Family, Hook, MetaKey, PayloadBase, Rule,
    Table, TableName, Verdict,
};

const TCP: u8 = 6;

fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).ok_or("usage: drop_port PORT")?.parse()?;
    let rule = Rule::new(vec![
        Expression::meta(MetaKey::TransportProtocol),
        Expression::equal([TCP]),
        // The destination port is at offset 2 of the TCP header.
        Expression::payload(PayloadBase::Transport, 2, 2),
        Expression::equal(port.to_be_bytes()),
        Expression::counter(),
        Expression::Verdict(Verdict::Drop),
    ]);
    let rule = Rule { comment: Comment::new("not served"), ..rule };
    let base = Base { kind: ChainKind::Filter, hook: Hook::Input, priority: 0, policy: Verdict::Accept };
    let chain = Chain { name: "input".to_owned(), base: Some(base), rules: vec![rule] };
    let table = Table { chains: vec![chain], ..Table::new(TableName::new(Family::Inet, "drop-port")) };
    let mut batch = Batch::new();
    batch.replace_table(&table);
    Client::open()?.commit(&batch)?;
    Ok(())
}
