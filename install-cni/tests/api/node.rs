//! A node: the agent in directories of its own, and ADD by the plugin's code.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use istio_cni::environment;
use istio_cni::plugin::{self, Outcome};
use istio_cni::version::Version;
use istio_cni::watch::Watch;
use istio_iptables::config::CAPTURE_ANNOTATION;
use istio_iptables::kernel::process::SystemHost;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::Server;

/// Far longer than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

const RESULT: &str = r#"{"cniVersion":"1.1.0"}"#;

/// A pod of the API server.
pub(crate) fn pod(name: &str, uid: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "uid": uid, "annotations": annotations, "resourceVersion": "1"},
        "spec": {"containers": [{"name": "app"}, {"name": "istio-proxy", "args": ["proxy", "sidecar"]}]}
    })
}

/// One that was injected, to be captured.
pub(crate) fn injected(name: &str, uid: &str) -> Value {
    pod(name, uid, &json!({"sidecar.istio.io/status": "{}"}))
}

pub(crate) struct Node {
    folder: TempDir,
    child: Child,
    address: String,
}

impl Node {
    pub(crate) fn start(server: &Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["net.d", "bin", "program"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(
            path("net.d/10-a.conflist"),
            r#"{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"bridge"}]}"#,
        )
        .unwrap();
        // The plugin's code runs in this process: here it is enough that a program answers VERSION, and names the annotation by
        // which the agent tells it from Istio's.
        let versions = Version::ALL.map(Version::name);
        let answer = json!({"cniVersion": "1.1.0", "supportedVersions": versions});
        let plugin = path("program/istio-cni");
        std::fs::write(&plugin, format!("#!/bin/sh\n# {CAPTURE_ANNOTATION}\necho '{answer}'\n")).unwrap();
        std::fs::set_permissions(&plugin, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::copy(env!("CARGO_BIN_EXE_install-cni"), path("program/install-cni")).unwrap();
        let (child, address) = run(&folder, server);
        Self { folder, child, address }
    }

    pub(crate) fn restart(&mut self, server: &Server) {
        (self.child, self.address) = run(&self.folder, server);
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn readyz(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: agent\r\n\r\n").unwrap();
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

    /// ADD for a pod of which the runtime hands over no annotations.
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
        plugin::run(&request, input, &Watch::start(), &SystemHost::new(None))
    }

    #[track_caller]
    pub(crate) fn captured(&self, name: &str, uid: &str) {
        let error = self.add(name, uid, LIMIT).result.unwrap_err();
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
fn run(folder: &TempDir, server: &Server) -> (Child, String) {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": format!("http://{}", server.address)}}],
        "users": [{"name": "x", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}]
    });
    std::fs::write(path("kubeconfig"), kubeconfig.to_string()).unwrap();
    let mut child = Command::new(path("program/install-cni"))
        .args(["--node-name=node-1", "--listen=127.0.0.1:0", "--no-dry-add", "--log-level=debug"])
        .args(
            [("net-dir", "net.d"), ("bin-dir", "bin"), ("run-dir", "run"), ("kubeconfig", "kubeconfig")]
                .map(|(option, name)| format!("--{option}={}", path(name))),
        )
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines.by_ref().find_map(|line| {
        let line = line.unwrap();
        println!("{line}");
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"));
        (line["msg"] == "serving /healthz, /readyz and /metrics").then(|| line["address"].as_str().unwrap().to_owned())
    });
    // Whatever else it logs is read, so that it is not kept from logging.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("{line}")));
    (child, address.expect("the agent listens"))
}
