//! Other programs that write the configuration or the program, too.

use std::io::Write as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::agent::{Agent, LIMIT};
use super::node::{self, LIST, Node, SINGLE, program};
use super::reader::Reader;

/// A network plugin that writes its list again and again, by rename.
#[test]
fn writers_that_fight_are_delayed_and_named() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    let reader = Reader::start(node.net.clone());
    let overwrite = || node.replace("10-a.conflist", LIST);
    overwrite();
    // Not earlier than the first delay, 1 s after the installation.
    let line = agent.logged("another program changed the configuration: entry written again");
    assert!(line["file"].as_str().unwrap().ends_with("/10-a.conflist"), "{line}");
    // The delay doubles: sooner or later it is longer than this test is kept from running.
    let begin = Instant::now();
    let line = loop {
        overwrite();
        let line = agent.logged("another program ");
        let is_delayed = line["msg"].as_str().unwrap().contains("removed the entry again: delayed");
        let waits = || agent.readyz().contains("another program removes the entry from");
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
    reader.wait();
    reader.finish();
    agent.end();
}

/// A network plugin that has a template, and writes its list from that whenever the list is another, as
/// Cilium does with `cni.exclusive`.
struct Template {
    ended: Arc<AtomicBool>,
    writer: Option<JoinHandle<u32>>,
}

impl Template {
    fn start(node: &Node, name: &'static str) -> Self {
        Self::writing(node, name, LIST, |text| text.is_some_and(|text| text != LIST))
    }

    /// Writes a file when it is missing.
    fn restoring(node: &Node, name: &'static str, template: &'static str) -> Self {
        Self::writing(node, name, template, |text| text.is_none())
    }

    fn writing(
        node: &Node,
        name: &'static str,
        template: &'static str,
        is_another: fn(Option<&str>) -> bool,
    ) -> Self {
        let (ended, net) = (Arc::<AtomicBool>::default(), node.net.clone());
        let end = Arc::clone(&ended);
        let writer = std::thread::spawn(move || {
            let mut writes = 0;
            while !end.load(Ordering::SeqCst) {
                if is_another(std::fs::read_to_string(net.join(name)).ok().as_deref()) {
                    node::replace(&net, name, template);
                    writes += 1;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            writes
        });
        Self { ended, writer: Some(writer) }
    }

    /// How often it has written.
    fn end(mut self) -> u32 {
        self.ended.store(true, Ordering::SeqCst);
        self.writer.take().unwrap().join().unwrap()
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

#[test]
fn writer_that_restores_its_list_at_every_change_is_met_with_growing_delays() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    let reader = Reader::start(node.net.clone());
    let template = Template::start(&node, "10-a.conflist");
    let begin = Instant::now();
    let mut writes = 0;
    loop {
        let line = agent.logged("another program ");
        let Some(delay) = line["delay_s"].as_f64() else {
            writes += 1;
            continue;
        };
        agent.readyz_is("/10-a.conflist; pods start without capture until it is written again in ");
        // The first ones are 1 and 2 s.
        if delay > 2.0 {
            break;
        }
    }
    let (restored, took) = (template.end(), begin.elapsed());
    println!("{writes} writes in {took:?}, {restored} by the other program");
    assert!(f64::from(restored) <= took.as_secs_f64() + 2.0, "{restored} in {took:?}");
    assert!(restored <= writes + 2, "{restored} after {writes} of ours");
    // Once the other program has ended, the entry stays.
    agent.readyz_is("HTTP/1.1 200 ");
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    reader.wait();
    reader.finish();
    agent.end();
}

/// A network plugin that writes its list now and then, whatever is in it: each time it is restarted, for
/// instance.
#[test]
fn writer_that_does_not_react_is_corrected_at_once_however_often() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    let with_entry = node.read("10-a.conflist");
    let reader = Reader::start(node.net.clone());
    let mut missing = Vec::new();
    for _ in 0..8 {
        // Longer than any reaction to the entry.
        std::thread::sleep(Duration::from_millis(2_200));
        let begin = Instant::now();
        node.replace("10-a.conflist", LIST);
        let line = agent.logged("another program ");
        let message = line["msg"].as_str().unwrap();
        assert_eq!(message, "another program changed the configuration: entry written again", "{line}");
        assert!(line["missing_s"].as_f64().is_some(), "{line}");
        missing.push(begin.elapsed());
        assert_eq!(node.read("10-a.conflist"), with_entry);
        agent.readyz_is("HTTP/1.1 200 ");
    }
    println!("the entry was missing for {missing:?}");
    agent.until("/metrics", "\nistio_cni_conflicts_total 8\n");
    reader.wait();
    reader.finish();
    agent.end();
}

/// Many changes while the entry is missing are one conflict, and one line.
#[test]
fn delay_is_logged_once_however_often_the_other_program_writes() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    let (begin, mut last, mut written) = (Instant::now(), String::new(), 0);
    // After delays of 1, 2 and 4 s.
    while written < 4 {
        node.replace("10-a.conflist", LIST);
        for line in agent.log.try_iter() {
            let message = line["msg"].as_str().unwrap();
            let is_write = message.contains("entry written again");
            assert!(is_write || message != last, "{line}");
            written += u32::from(is_write);
            message.clone_into(&mut last);
        }
        assert!(begin.elapsed() < LIMIT, "{written} times");
        std::thread::sleep(Duration::from_millis(5));
    }
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

/// Pods start uncaptured until the entry is in the new first file, so it is written without a delay.
#[test]
fn file_that_becomes_first_is_never_a_conflict() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    for name in ["09-b.conflist", "08-c.conf", "07-d.conflist", "06-e.json", "05-f.conflist"] {
        node.replace(name, if name.ends_with("list") { LIST } else { SINGLE });
        let line = agent.logged("another program ");
        assert_eq!(line["msg"], "another program changed the configuration: entry written again", "{line}");
    }
    agent.end();
    node.uninstall(&[]);
    let names =
        ["05-f.conflist", "06-e.json", "07-d.conflist", "08-c.conf", "09-b.conflist", "10-a.conflist"];
    assert_eq!(node.names(), names);
    assert!(names.iter().all(|name| node.read(name) == if name.ends_with("list") { LIST } else { SINGLE }));
}

/// A network plugin that is reinstalled deletes its list and writes it again. That is not a conflict, so
/// there is no back-off.
#[test]
fn list_that_is_removed_and_written_again_gets_the_entry_without_delay() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    for _ in 0..3 {
        // Longer than any reaction to the entry.
        std::thread::sleep(Duration::from_millis(2_200));
        std::fs::remove_file(node.net.join("10-a.conflist")).unwrap();
        agent.readyz_is("no valid network configuration in");
        node.write("10-a.conflist", "");
        agent.readyz_is("10-a.conflist: ");
        node.write("10-a.conflist", LIST);
        let line = agent.logged("another program ");
        assert_eq!(line["msg"], "another program changed the configuration: entry written again", "{line}");
        agent.readyz_is("HTTP/1.1 200 ");
    }
    agent.end();
}

/// A network plugin that writes its configuration of one plugin whenever that is missing.
#[test]
fn configuration_that_is_restored_unchanged_is_left() {
    let node = Node::new(&[("10-a.conf", SINGLE)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.logged("entry written and read back");
    agent.readyz_is("HTTP/1.1 200 ");
    let restoring = Template::restoring(&node, "10-a.conf", SINGLE);
    // Each iteration makes the agent reconcile once.
    for _ in 0..5 {
        let begin = Instant::now();
        while !node.net.join("10-a.conf").exists() {
            assert!(begin.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(1));
        }
        std::fs::remove_file(node.bin.join("istio-cni")).unwrap();
        agent.logged("program written");
    }
    assert_eq!(restoring.end(), 1);
    assert_eq!(node.types("10-a-istio.conflist"), ["bridge", "istio-cni"]);
    let newer = SINGLE.replace("1.50e3", "9000");
    node.replace("10-a.conf", &newer);
    agent.logged("entry written again");
    assert!(node.read("10-a-istio.conflist").contains("9000"));
    agent.end();
    node.uninstall(&[]);
    assert_eq!((node.names(), node.read("10-a.conf")), (vec!["10-a.conf".to_owned()], newer));
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
    // Delays of 1, 2, 4 and 8 s each; of 1 s, where a busy machine takes 2 s to notice the other's write.
    // Without them there are hundreds.
    while begin.elapsed() < Duration::from_secs(10) {
        for agent in [&first, &second] {
            let lines = agent.log.try_iter();
            writes += lines.filter(|line| line["msg"].as_str().unwrap().contains("program written")).count();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(writes <= 24, "{writes} writes in 10 s");
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
