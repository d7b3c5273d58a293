//! Other programs that write the configuration or the program, too.

use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

use super::agent::{Agent, LIMIT};
use super::node::{LIST, Node, SINGLE, program};
use super::reader::{Reader, wanted};

/// A network plugin that writes its list again and again, by rename.
#[test]
fn writers_that_fight_are_delayed_and_named() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    let reader = Reader::start(node.net.clone());
    let overwrite = || {
        let new = node.net.join("new");
        std::fs::write(&new, LIST).unwrap();
        std::fs::rename(new, node.net.join("10-a.conflist")).unwrap();
    };
    overwrite();
    // Not earlier than the first delay, 1 s after the installation.
    let line = agent.logged("another program changed the configuration: entry written again");
    assert!(line["file"].as_str().unwrap().ends_with("/10-a.conflist"), "{line}");
    // The delay doubles: sooner or later it is longer than this test is kept from running.
    let begin = Instant::now();
    let line = loop {
        overwrite();
        let line = agent.logged("another program ");
        let is_delayed = line["msg"].as_str().unwrap().contains("took the entry out again: delayed");
        let waits = || agent.readyz().contains("another program takes the entry out of");
        if is_delayed && (0..50).any(|_| waits()) {
            break line;
        }
        assert!(begin.elapsed() < LIMIT, "{line}");
    };
    assert!(line["file"].as_str().unwrap().ends_with("/10-a.conflist"), "{line}");
    agent.logged("another program changed the configuration: entry written again");
    assert!(line["delay_s"].as_f64().unwrap() > 0.0, "{line}");
    agent.readyz_is("HTTP/1.1 200 ");
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    while reader.readings() < wanted() {
        std::thread::yield_now();
    }
    reader.finish();
    agent.end();
}

#[test]
fn configuration_of_another_network_that_becomes_first_gets_the_entry() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    node.write("05-b.conf", SINGLE);
    let line = agent.logged("entry written again");
    assert!(line["file"].as_str().unwrap().ends_with("/05-b-istio.conflist"), "{line}");
    agent.end();
    node.uninstall(&[]);
    assert_eq!(node.names(), ["05-b.conf", "10-a.conflist"]);
    assert_eq!((node.read("05-b.conf").as_str(), node.read("10-a.conflist").as_str()), (SINGLE, LIST));
}

/// The version before and the next one, as during an update of the DaemonSet: each installs its own program.
#[test]
fn two_versions_of_the_agent_do_not_overwrite_each_other_without_delay() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let next = node.path("next");
    std::fs::copy(program(), &next).unwrap();
    std::fs::OpenOptions::new().append(true).open(&next).unwrap().write_all(b"next").unwrap();
    let options = ["--listen=127.0.0.1:0", "--no-dry-add"];
    let first = Agent::spawn(node.command("install", &options));
    first.readyz_is("HTTP/1.1 200 ");
    let inner = node.command("install", &options);
    let mut command = Command::new(&next);
    command.args(inner.get_args());
    let second = Agent::spawn(command);
    second.logged("program written");
    let (begin, mut writes) = (Instant::now(), 0);
    // Delays of 1, 2, 4 and 8 s each: without them there are hundreds.
    while begin.elapsed() < Duration::from_secs(10) {
        for agent in [&first, &second] {
            let lines = agent.log.try_iter();
            writes += lines.filter(|line| line["msg"].as_str().unwrap().contains("program written")).count();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(writes <= 12, "{writes} writes in 10 s");
    // The one that stays has its program.
    first.end();
    second.readyz_is("HTTP/1.1 200 ");
    let begin = Instant::now();
    while std::fs::read(node.bin.join("istio-cni")).unwrap() != std::fs::read(&next).unwrap() {
        assert!(begin.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(20));
    }
    second.end();
}
