//! A node: the agent in directories of its own, and ADD by the plugin's code.

#![allow(dead_code, reason = "each test program uses a part")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use istio_cni::deadline::Deadline;
use istio_cni::environment;
use istio_cni::plugin::{self, Outcome};
use istio_iptables::kernel::process::SystemHost;
use netlab::process::under_test;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Far longer than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

const RESULT: &str = r#"{"cniVersion":"1.1.0"}"#;

/// A pod of the API server.
pub(crate) fn pod(name: &str, uid: &str, annotations: &Value) -> Value {
    let image = "localhost/image:1";
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "default", "name": name, "uid": uid, "annotations": annotations, "resourceVersion": "1"},
        "spec": {"containers": [
            {"name": "app", "image": image}, {"name": "istio-proxy", "image": image, "args": ["proxy", "sidecar"]}
        ]}
    })
}

/// One that was injected, to be captured.
pub(crate) fn injected(name: &str, uid: &str) -> Value {
    pod(name, uid, &json!({"sidecar.istio.io/status": "{}"}))
}

pub(crate) struct Node {
    folder: Arc<TempDir>,
    child: Child,
    address: String,
    log: Log,
}

/// The lines of the agent's log.
type Log = Arc<Mutex<Vec<Value>>>;

/// The plugin's program: the one that `ISTIO_CNI_PROGRAM` names, as it ships, or a new build, since cargo
/// builds none of another package for these tests.
static PLUGIN: LazyLock<PathBuf> = LazyLock::new(|| {
    const NAMED: &str = "ISTIO_CNI_PROGRAM";
    if std::env::var_os(NAMED).is_some() {
        return under_test(NAMED, "").into();
    }
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).unwrap();
    let build = ["build", "--locked", "--quiet", "-p", "istio-cni", "--bin", "istio-cni", "--target-dir"];
    let status = Command::new(env!("CARGO")).args(build).arg(target).status().unwrap();
    assert!(status.success(), "the plugin is not built");
    target.join("debug/istio-cni")
});

impl Node {
    /// Starts the agent by a command, which is made of the program's path. Directories and address are added
    /// to its arguments.
    pub(crate) fn start_by(command: impl FnOnce(&Path) -> Command) -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let path = |name: &str| folder.path().join(name);
        for name in ["net.d", "bin", "program", "netns", "results"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(
            path("net.d/10-a.conflist"),
            r#"{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"bridge"}]}"#,
        )
        .unwrap();
        std::fs::copy(&*PLUGIN, path("program/istio-cni")).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_install-cni"), path("program/install-cni")).unwrap();
        let log = Log::default();
        let (child, address) = run(&folder, command, &log);
        Self { folder, child, address, log }
    }

    /// Another agent in the same directories.
    pub(crate) fn beside_by(&self, command: impl FnOnce(&Path) -> Command) -> Self {
        let log = Log::default();
        let (child, address) = run(&self.folder, command, &log);
        Self { folder: Arc::clone(&self.folder), child, address, log }
    }

    pub(crate) fn restart_by(&mut self, command: impl FnOnce(&Path) -> Command) {
        (self.child, self.address) = run(&self.folder, command, &self.log);
    }

    /// Whether a line of the log contains a text.
    pub(crate) fn has_logged(&self, part: &str) -> bool {
        self.log.lock().unwrap().iter().any(|line| line.to_string().contains(part))
    }

    /// The text of a file in the directory of network configurations, if it is there.
    pub(crate) fn configuration(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join("net.d").join(name)).ok()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// The signals that each of the agent's threads blocks, as a mask.
    pub(crate) fn blocked_signals(&self) -> Vec<u64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let blocked = |status: String| {
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
            u64::from_str_radix(mask, 16).unwrap()
        };
        // A thread may end meanwhile.
        let statuses =
            tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("status")).ok());
        statuses.map(blocked).collect()
    }

    /// Ends the agent by SIGTERM.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
        self.child.wait().unwrap()
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

    #[track_caller]
    fn readyz_is(&self, part: &str) {
        let begin = Instant::now();
        loop {
            let response = self.readyz();
            if response.contains(part) {
                return;
            }
            assert!(begin.elapsed() < LIMIT, "{part}: {response}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    pub(crate) fn is_ready(&self) {
        self.readyz_is("HTTP/1.1 200 ");
    }

    #[track_caller]
    pub(crate) fn is_not_ready(&self, reason: &str) {
        self.readyz_is(reason);
    }

    /// A client of the agent's socket. While its queue is full, this waits.
    pub(crate) fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("run/agent.sock")).unwrap()
    }

    /// ADD for a pod of which the runtime passes no annotations.
    fn add(&self, name: &str, uid: &str, deadline: Duration) -> Outcome {
        let conf = json!({
            "cniVersion": "1.1.0", "name": "a", "type": "istio-cni", "cni_agent_run_dir": self.folder.path().join("run"),
            "prevResult": {"cniVersion": "1.1.0"}, "deadline_ms": deadline.as_millis(), "plugin_log_level": "none"
        });
        let args = format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID={uid}");
        let variables = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c1"),
            // A pod that is decided on as captured fails here, with code 4.
            ("CNI_NETNS", "/nonexistent/ns"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", &args),
        ];
        let request = environment::request(variables.map(|(key, value)| (key.into(), value.into()))).unwrap();
        let input = (conf.to_string().into_bytes(), Ok(()));
        plugin::run(&request, input, &Deadline::start(), &SystemHost::new(None))
    }

    /// ADD in a network namespace, where the runtime keeps it.
    pub(crate) fn capture(&self, name: &str, uid: &str, netns: &str) {
        std::os::unix::fs::symlink(netns, self.folder.path().join("netns").join(name)).unwrap();
        let injected = r#"{"initContainers":["istio-validation"],"containers":["istio-proxy"]}"#;
        let annotations = json!({"sidecar.istio.io/status": injected, "kubernetes.io/config.source": "api"});
        let conf = json!({
            "cniVersion": "1.1.0", "name": "a", "type": "istio-cni", "cni_agent_run_dir": self.folder.path().join("run"),
            "prevResult": {"cniVersion": "1.1.0"}, "plugin_log_level": "none", "backend": "nftables",
            "runtimeConfig": {"io.kubernetes.cri.pod-annotations": annotations},
            // The only user that is mapped in the user namespace of the control plane.
            "capture": {"uid": 0, "gid": 0}
        });
        let args = format!("K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID={uid}");
        let variables = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", name),
            ("CNI_NETNS", netns),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", &args),
        ];
        let request = environment::request(variables.map(|(key, value)| (key.into(), value.into()))).unwrap();
        let input = (conf.to_string().into_bytes(), Ok(()));
        let done = plugin::run(&request, input, &Deadline::start(), &SystemHost::new(None));
        assert_eq!(done.result.as_deref(), Ok(RESULT));
    }

    /// The runtime's record of a pod that it has set up without our plugin, without annotations: the agent
    /// knows the pod.
    pub(crate) fn record(&self, name: &str, uid: &str, netns: &str) {
        self.record_with(name, uid, netns, &json!({}));
    }

    /// With what the runtime passed to plugins.
    pub(crate) fn record_with(&self, name: &str, uid: &str, netns: &str, capabilities: &Value) {
        let path = |dir: &str| self.folder.path().join(dir);
        std::os::unix::fs::symlink(netns, path("netns").join(name)).unwrap();
        let result = json!({
            "kind": "cniCacheV1", "containerId": name, "ifName": "eth0", "networkName": "a", "netns": format!("/var/run/netns/{name}"),
            "capabilityArgs": capabilities,
            "cniArgs": [["K8S_POD_NAMESPACE", "default"], ["K8S_POD_NAME", name], ["K8S_POD_UID", uid]]
        });
        std::fs::write(path("results").join(format!("a-{name}-eth0")), result.to_string()).unwrap();
    }

    /// ADD, whatever becomes of it.
    pub(crate) fn attempt(&self, name: &str, uid: &str) {
        drop(self.add(name, uid, LIMIT));
    }

    pub(crate) fn is_captured(&self, name: &str, uid: &str) -> bool {
        self.add(name, uid, LIMIT).result.is_err_and(|error| error.msg.starts_with("CNI_NETNS: "))
    }

    #[track_caller]
    pub(crate) fn captured(&self, name: &str, uid: &str) {
        self.captured_within(LIMIT, name, uid);
    }

    #[track_caller]
    pub(crate) fn captured_within(&self, deadline: Duration, name: &str, uid: &str) {
        let error = self.add(name, uid, deadline).result.unwrap_err();
        assert!(error.code as u16 == 4 && error.msg.starts_with("CNI_NETNS: "), "{error:?}");
    }

    #[track_caller]
    pub(crate) fn passed(&self, name: &str, uid: &str) {
        assert_eq!(self.add(name, uid, LIMIT).result.as_deref(), Ok(RESULT));
    }

    #[track_caller]
    pub(crate) fn refused(&self, name: &str, uid: &str) -> String {
        self.refused_within(LIMIT, name, uid)
    }

    #[track_caller]
    pub(crate) fn refused_within(&self, deadline: Duration, name: &str, uid: &str) -> String {
        let error = self.add(name, uid, deadline).result.unwrap_err();
        assert_eq!(error.code as u16, 11, "{error:?}");
        assert!(error.msg.chars().count() <= 300, "{error:?}");
        format!("{}\n{}", error.msg, error.details)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the agent, and waits until it listens.
fn run(folder: &TempDir, command: impl FnOnce(&Path) -> Command, log: &Log) -> (Child, String) {
    let path = |name: &str| folder.path().join(name);
    let mut command = command(&path("program/install-cni"));
    command
        .args(["--listen=127.0.0.1:0", "--no-dry-add"])
        .args(
            [
                ("net-dir", "net.d"),
                ("bin-dir", "bin"),
                ("run-dir", "run"),
                ("netns-dir", "netns"),
                ("results-dir", "results"),
            ]
            .map(|(option, name)| format!("--{option}={}", path(name).display())),
        )
        .stderr(Stdio::piped());
    // A child that another thread has forked meanwhile holds the copy open for writing until it executes its
    // program.
    let mut child = loop {
        match command.spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            started => break started.unwrap(),
        }
    };
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(|line| {
        let line = line.unwrap();
        println!("{line}");
        serde_json::from_str::<Value>(&line).unwrap_or_else(|_| panic!("{line}"))
    });
    let address = lines.by_ref().find_map(|line| {
        let address =
            line["address"].as_str().filter(|_| line["msg"] == "serving /healthz, /readyz and /metrics");
        let address = address.map(str::to_owned);
        log.lock().unwrap().push(line);
        address
    });
    // Whatever else it logs is read, so that it is not kept from logging.
    let log = Arc::clone(log);
    std::thread::spawn(move || lines.for_each(|line| log.lock().unwrap().push(line)));
    (child, address.expect("the agent listens"))
}

/// Waits until something is so.
#[track_caller]
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
