//! Two agents on one node, as in an upgrade: whichever ends first, the other one responds.

use crate::node::{Node, injected, until};
use crate::server::{Mode, Server};

/// In containers each agent has process id 1.
#[test]
fn agent_that_stays_responds_whichever_ends_first() {
    for first_ends in [true, false] {
        let server = Server::start(Mode::Well, &[injected("web-0", "u-0")]);
        let first = Node::start_contained(&server);
        first.is_ready();
        let second = first.beside_contained(&server);
        second.is_ready();
        first.captured("web-0", "u-0");
        let (mut ends, mut stays) = if first_ends { (first, second) } else { (second, first) };
        ends.kill();
        until("the agent that stays responds", || stays.is_captured("web-0", "u-0"));
        stays.kill();
        assert!(stays.refused("web-0", "u-0").contains("Connection refused"));
    }
}

#[test]
fn agents_that_start_at_once_have_one_socket() {
    let server = Server::start(Mode::Well, &[injected("web-0", "u-0")]);
    let first = Node::start_contained(&server);
    let mut others: Vec<Node> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| first.beside_contained(&server))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    first.is_ready();
    while let Some(mut one) = others.pop() {
        one.is_ready();
        one.kill();
        until("another agent responds", || first.is_captured("web-0", "u-0"));
    }
}
