//! The agent's socket for log lines of the plugin.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

use super::agent::{Agent, LIMIT};
use super::node::{LIST, Node};

/// The next agent may start before the one before has ended.
#[test]
fn log_socket_is_taken_over_when_the_agent_that_has_it_ends() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let first = Agent::start(&node, &["--no-dry-add"]);
    first.readyz_is("HTTP/1.1 200 ");
    let second = Agent::start(&node, &["--no-dry-add"]);
    second.readyz_is("HTTP/1.1 200 ");
    first.end();
    let begin = Instant::now();
    loop {
        if let Ok(mut stream) = UnixStream::connect(node.run.join("log.sock")) {
            let body = r#"["{\"level\":\"info\",\"msg\":\"a line of the plugin\"}"]"#;
            let length = body.len();
            write!(stream, "POST /log HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
            break;
        }
        assert!(begin.elapsed() < LIMIT, "no agent listens");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(second.logged("a line of the plugin")["source"], "plugin");
    second.end();
}

/// A client of the log socket that sends a byte now and then, and never ends.
#[test]
fn slow_client_of_the_log_socket_delays_no_other() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &["--no-dry-add"]);
    agent.readyz_is("HTTP/1.1 200 ");
    let path = node.run.join("log.sock");
    let slow = UnixStream::connect(&path).unwrap();
    let (done, waits) = channel::<()>();
    let thread = std::thread::spawn(move || {
        // The agent closes it after some time.
        while waits.try_recv() == Err(TryRecvError::Empty) && (&slow).write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(500));
        }
    });
    for _ in 0..1000 {
        drop(UnixStream::connect(&path).unwrap());
    }
    let mut stream = UnixStream::connect(&path).unwrap();
    let body = r#"["a line of the plugin"]"#;
    let length = body.len();
    write!(stream, "POST /log HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    assert_eq!(agent.logged("a line of the plugin")["source"], "plugin");
    drop(done);
    thread.join().unwrap();
    agent.end();
}
