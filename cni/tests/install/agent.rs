//! The agent as a process: readiness, metrics, its end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::node::{LIST, Node};

/// Far longer than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Agent {
    child: Child,
    pub(crate) log: Receiver<Value>,
    address: String,
}

impl Agent {
    pub(crate) fn start(node: &Node, options: &[&str]) -> Self {
        Self::spawn(node.command("install", &[&["--listen=127.0.0.1:0"], options].concat()))
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
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

    pub(crate) fn readyz(&self) -> String {
        self.get("/readyz")
    }

    pub(crate) fn get(&self, path: &str) -> String {
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
    pub(crate) fn until(&self, path: &str, expected: &str) {
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
