//! A node with an agent, and pods that the plugin has captured.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use netlab::process::run;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{INJECTED, Pod, plugin};

/// Longer than an audit, on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The directories of a node.
pub(crate) struct Node {
    folder: TempDir,
}

impl Node {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        for name in ["net", "bin", "run", "netns", "results"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A pod that the plugin has captured, with this key `capture`.
    pub(crate) fn pod_with(&self, name: &str, backend: &str, capture: &Value) -> Pod {
        let pod = Pod::new(name, &[INJECTED]);
        self.capture(&pod, backend, capture);
        pod
    }

    /// Has the plugin capture a pod, which the agent then guards.
    pub(crate) fn capture(&self, pod: &Pod, backend: &str, capture: &Value) {
        self.add(pod, backend, capture);
        symlink(pod.netns.path(), self.path("netns").join(&pod.container)).unwrap();
    }

    pub(crate) fn pod(&self, name: &str, backend: &str) -> Pod {
        self.pod_with(name, backend, &json!({"dual_stack": true}))
    }

    pub(crate) fn add(&self, pod: &Pod, backend: &str, capture: &Value) {
        pod.plugin("ADD", &self.conf(backend, capture)).printed();
    }

    fn conf(&self, backend: &str, capture: &Value) -> Value {
        json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "istio-cni", "prevResult": {"cniVersion": "1.0.0"},
            "cni_agent_run_dir": self.path("run"), "backend": backend, "capture": capture, "deadline_ms": 120_000
        })
    }

    /// The runtime's record of a pod that it has set up with a list, whether our plugin is in it or not: as
    /// libcni writes it, with the name of the namespace in the runtime's directory.
    pub(crate) fn record(&self, pod: &Pod) -> PathBuf {
        let link = self.path("netns").join(&pod.container);
        if !link.exists() {
            symlink(pod.netns.path(), link).unwrap();
        }
        let args: Vec<_> = pod.args.split(';').map(|arg| arg.split_once('=').unwrap()).collect();
        let sandbox = format!("/var/run/netns/{}", pod.container);
        let result = json!({
            "kind": "cniCacheV1", "containerId": pod.container, "ifName": "eth0", "networkName": "pods", "config": "",
            "cniArgs": args, "capabilityArgs": {"io.kubernetes.cri.pod-annotations": pod.annotations},
            "result": {"cniVersion": "1.0.0", "interfaces": [{"name": "veth0"}, {"name": "eth0", "sandbox": sandbox}]}
        });
        let file = self.path("results").join(format!("pods-{}-eth0", pod.container));
        std::fs::write(&file, result.to_string()).unwrap();
        file
    }

    /// A pod that the runtime has set up without our plugin.
    pub(crate) fn late_pod(&self, name: &str, annotations: &[(&str, &str)]) -> Pod {
        let pod = Pod::new(name, annotations);
        self.record(&pod);
        pod
    }

    /// Our entry in the network configuration.
    pub(crate) fn install_entry(&self, backend: &str) {
        let entry = json!({
            "type": "istio-cni", "capabilities": {"io.kubernetes.cri.pod-annotations": true}, "on_unknown": "fail",
            "cni_agent_run_dir": self.path("run"), "exclude_namespaces": ["kube-system"], "backend": backend,
            "capture": {"dual_stack": true}
        });
        let list = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge"}, entry]});
        std::fs::write(self.path("net").join("10-pods.conflist"), list.to_string()).unwrap();
    }

    pub(crate) fn delete(&self, pod: &Pod) {
        pod.plugin("DEL", &self.conf("auto", &json!({}))).printed();
    }

    /// Whether CHECK finds the rules of the pod as they should be.
    pub(crate) fn is_captured(&self, pod: &Pod) -> bool {
        pod.plugin("CHECK", &self.conf("auto", &json!({}))).success
    }

    #[track_caller]
    pub(crate) fn until_captured(&self, pod: &Pod) {
        let begin = Instant::now();
        while !self.is_captured(pod) {
            assert!(begin.elapsed() < PATIENCE, "{} is not repaired", pod.container);
        }
    }

    pub(crate) fn state_file(&self, pod: &Pod) -> PathBuf {
        self.path("run/state").join(format!("{}.eth0.json", pod.container))
    }

    /// A run of `audit`.
    pub(crate) fn audit(&self, options: &[&str]) -> Output {
        let mut command = Command::new(plugin());
        command.args(["audit", "--node"]).args(options).env_remove("CNI_COMMAND");
        for (option, name) in
            [("net-dir", "net"), ("run-dir", "run"), ("netns-dir", "netns"), ("results-dir", "results")]
        {
            command.arg(format!("--{option}={}", self.path(name).display()));
        }
        command.output().unwrap()
    }

    pub(crate) fn agent(&self, options: &[&str]) -> Agent {
        self.agent_by(&[], options)
    }

    /// Starts an agent by other programs, which start it.
    pub(crate) fn agent_by(&self, by: &[&str], options: &[&str]) -> Agent {
        let program = plugin().display().to_string();
        let words = [by, &[program.as_str(), "install"]].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(["--listen=127.0.0.1:0", "--no-dry-add"]).args(options);
        for (option, name) in [
            ("net-dir", "net"),
            ("bin-dir", "bin"),
            ("run-dir", "run"),
            ("netns-dir", "netns"),
            ("results-dir", "results"),
        ] {
            command.arg(format!("--{option}={}", self.path(name).display()));
        }
        Agent::start(command)
    }
}

/// A process that gets no processor.
pub(crate) struct Paused(Pid);

impl Drop for Paused {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

/// A running agent.
pub(crate) struct Agent {
    pub(crate) child: Child,
    log: Receiver<Value>,
    /// Lines from before it served: its threads begin in any order.
    early: RefCell<VecDeque<Value>>,
    address: String,
}

impl Agent {
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let (send, log) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if send.send(serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))).is_err() {
                    break;
                }
            }
        });
        let mut agent = Self { child, log, early: RefCell::default(), address: String::new() };
        loop {
            let line = agent.log.recv_timeout(PATIENCE).expect("the agent serves");
            if line["msg"]
                .as_str()
                .is_some_and(|text| text.contains("serving /healthz, /readyz and /metrics"))
            {
                line["address"].as_str().unwrap().clone_into(&mut agent.address);
                return agent;
            }
            agent.early.borrow_mut().push_back(line);
        }
    }

    /// Gives it no processor until the value is dropped.
    pub(crate) fn pause(&self) -> Paused {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap());
        kill(pid, Signal::SIGSTOP).unwrap();
        // Its threads stop some time after the signal.
        waitpid(pid, Some(WaitPidFlag::WUNTRACED)).unwrap();
        Paused(pid)
    }

    /// The next line of the log with this text.
    #[track_caller]
    pub(crate) fn logged(&self, part: &str) -> Value {
        self.logged_any(&[part])
    }

    /// The next line of the log with one of these texts.
    #[track_caller]
    pub(crate) fn logged_any(&self, parts: &[&str]) -> Value {
        let begin = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(begin.elapsed());
            let early = self.early.borrow_mut().pop_front();
            let line = early.unwrap_or_else(|| {
                self.log.recv_timeout(left).unwrap_or_else(|error| panic!("{parts:?}: {error}"))
            });
            println!("{line}");
            if line["msg"].as_str().is_some_and(|text| parts.iter().any(|part| text.contains(part))) {
                return line;
            }
        }
    }

    /// All lines so far.
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.log.try_iter().collect()
    }

    /// Nothing is logged about pods for this time.
    #[track_caller]
    pub(crate) fn is_silent(&self, time: Duration) {
        let begin = Instant::now();
        loop {
            match self.log.recv_timeout(time.saturating_sub(begin.elapsed())) {
                Ok(line) => assert!(line.get("pod").is_none() || line["source"] == "plugin", "{line}"),
                Err(RecvTimeoutError::Timeout) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    pub(crate) fn metric(&self, name: &str) -> f64 {
        self.find_metric(name).unwrap_or_else(|| panic!("no metric {name}"))
    }

    fn find_metric(&self, name: &str) -> Option<f64> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: agent\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map(|value| value.parse().unwrap())
    }

    #[track_caller]
    pub(crate) fn until_metric(&self, name: &str, wanted: f64) {
        let begin = Instant::now();
        while self.find_metric(name).is_none_or(|value| (value - wanted).abs() > 0.1) {
            assert!(begin.elapsed() < PATIENCE, "{name} is {:?}", self.find_metric(name));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The pods are guarded and were compared.
    #[track_caller]
    pub(crate) fn until_guarded(&self, pods: u32) {
        self.until_metric("istio_cni_guarded_pods", f64::from(pods));
    }

    /// The values of a file of `/proc` about the guard's thread.
    pub(crate) fn of_guard_thread(&self, file: &str) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let mut texts = tasks.filter_map(|task| {
            let path = task.unwrap().path();
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            (name.trim() == "istio-cni-guard").then(|| std::fs::read_to_string(path.join(file)).unwrap())
        });
        texts.next().expect("the guard's thread")
    }

    pub(crate) fn status(&self, key: &str) -> u64 {
        number(Path::new(&format!("/proc/{}/status", self.child.id())), key)
    }
}

fn number(path: &Path, key: &str) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').split_whitespace().next().unwrap().parse().unwrap()
}

impl Drop for Agent {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command in the pod's network.
pub(crate) fn in_pod(pod: &Pod, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    pod.netns.run(|| run(words[0], &words[1..]));
}
