//! The agent as a process: readiness, other writers, its end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::node::{LIST, Node, SINGLE, program};
use super::reader::{Reader, wanted};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Agent {
    child: Child,
    log: Receiver<Value>,
    address: String,
}

impl Agent {
    pub(crate) fn start(node: &Node, options: &[&str]) -> Self {
        Self::spawn(node.command("install", &[&["--listen=127.0.0.1:0"], options].concat()))
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (send, log) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
                if send.send(line).is_err() {
                    break;
                }
            }
        });
        let mut agent = Self { child, log, address: String::new() };
        let line = agent.logged("serving /healthz, /readyz and /metrics");
        line["address"].as_str().unwrap().clone_into(&mut agent.address);
        agent
    }

    /// Waits for a line of the log.
    #[track_caller]
    pub(crate) fn logged(&self, message: &str) -> Value {
        let begin = Instant::now();
        loop {
            let left = LIMIT.saturating_sub(begin.elapsed());
            let line = self.log.recv_timeout(left).unwrap_or_else(|error| panic!("{message}: {error}"));
            println!("{line}");
            if line["msg"].as_str().is_some_and(|text| text.contains(message)) {
                return line;
            }
        }
    }

    fn readyz(&self) -> String {
        self.get("/readyz")
    }

    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: agent\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    /// Waits until `/readyz` contains a text.
    #[track_caller]
    pub(crate) fn readyz_is(&self, expected: &str) {
        self.until("/readyz", expected);
    }

    #[track_caller]
    fn until(&self, path: &str, expected: &str) {
        let begin = Instant::now();
        loop {
            let response = self.get(path);
            if response.contains(expected) {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "{expected}: {response}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it by SIGTERM.
    #[track_caller]
    pub(crate) fn end(mut self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ready_only_after_installation_and_everything_stays_at_its_end() {
    let node = Node::new(&[]);
    let agent = Agent::start(&node, &[]);
    agent.readyz_is("HTTP/1.1 503 ");
    agent.readyz_is("no valid network configuration in");
    node.write("10-a.conflist", LIST);
    agent.logged("test run of ADD in a temporary network namespace succeeded");
    agent.readyz_is("HTTP/1.1 200 ");
    let text = node.read("10-a.conflist");
    agent.end();
    assert_eq!(node.read("10-a.conflist"), text);
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    assert!(node.bin.join("istio-cni").exists());
    // The next version finds it as it is.
    let inode = node.inode("10-a.conflist");
    let agent = Agent::start(&node, &["--uninstall"]);
    agent.readyz_is("HTTP/1.1 200 ");
    assert_eq!(node.inode("10-a.conflist"), inode);
    agent.end();
    assert_eq!(node.read("10-a.conflist"), LIST);
    assert!(node.bin.join("istio-cni").exists());
}

/// ADD by the installed program, for a pod with these annotations and no network namespace.
fn add(node: &Node, annotations: &Value) {
    let conf = json!({
        "cniVersion": "1.0.0", "name": "cluster", "type": "istio-cni", "cni_agent_run_dir": node.run,
        "prevResult": {"cniVersion": "1.0.0"}, "runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations}
    });
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/nonexistent/ns"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_ARGS", "K8S_POD_NAMESPACE=default;K8S_POD_NAME=web"),
    ];
    let mut call = Command::new(node.bin.join("istio-cni"));
    call.envs(variables).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = call.spawn().unwrap();
    child.stdin.take().unwrap().write_all(conf.to_string().as_bytes()).unwrap();
    child.wait().unwrap();
}

#[test]
fn installations_and_calls_of_the_runtime_are_counted() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &[]);
    agent.readyz_is("HTTP/1.1 200 ");
    agent.until("/metrics", "\nistio_cni_install_ready 1\n");
    agent.until("/metrics", "\nistio_cni_installs_total{result=\"SUCCESS\"} 1\n");
    // That of the test run is none of a pod.
    assert!(!agent.get("/metrics").contains("istio_cni_adds_total"), "{}", agent.get("/metrics"));
    let source = ("kubernetes.io/config.source", "api");
    add(&node, &json!({source.0: source.1}));
    agent.until("/metrics", "\nistio_cni_adds_total{outcome=\"not_captured\"} 1\n");
    let status = r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"]}"#;
    add(&node, &json!({source.0: source.1, "sidecar.istio.io/status": status}));
    agent.until("/metrics", "\nistio_cni_adds_total{outcome=\"failed\"} 1\n");
    agent.until("/metrics", "\nistio_cni_errors_total{command=\"ADD\",code=\"4\"} 1\n");
    agent.end();
}

/// The test run is not fooled by state that another one has left.
#[test]
fn test_run_that_captures_nothing_fails_whatever_is_left_of_an_earlier_one() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    std::fs::create_dir_all(node.run.join("state")).unwrap();
    std::fs::write(node.run.join("state/istio-cni-dry-add.eth0.json"), "{}").unwrap();
    let options = ["--once", "--exclude-namespaces=istio-cni-dry-add"];
    node.fails("install", &options, "the plugin captured nothing");
}

#[test]
fn program_that_vanishes_is_written_again() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let agent = Agent::start(&node, &[]);
    agent.readyz_is("HTTP/1.1 200 ");
    std::fs::remove_file(node.bin.join("istio-cni")).unwrap();
    agent.logged("program written");
    agent.logged("test run of ADD in a temporary network namespace succeeded");
    agent.end();
}

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

/// Nodes run out of inotify instances: 128 for each user by default, and the node's programs share them.
#[test]
fn agent_works_without_inotify() {
    let node = Node::new(&[("10-a.conflist", LIST)]);
    let inner = node.command("install", &["--listen=127.0.0.1:0", "--no-dry-add"]);
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c"]);
    command.args(["echo 0 > /proc/sys/user/max_inotify_instances && exec \"$@\"", "istio-cni"]);
    command.arg(inner.get_program()).args(inner.get_args());
    let agent = Agent::spawn(command);
    agent.readyz_is("HTTP/1.1 200 ");
    assert_eq!(node.types("10-a.conflist"), ["bridge", "portmap", "istio-cni"]);
    // What another program changes is found all the same.
    node.write("10-a.conflist", LIST);
    agent.logged("another program changed the configuration: entry written again");
    agent.readyz_is("HTTP/1.1 200 ");
    agent.end();
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
