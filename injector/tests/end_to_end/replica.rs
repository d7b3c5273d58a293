//! One process of the injector, with the arguments of the Deployment and the rights of its ServiceAccount.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::api::until;
use crate::control_plane::{Cluster, kubeconfig_of};
use crate::installation::Installation;

pub(crate) struct Replica<'c> {
    cluster: &'c Cluster,
    child: Child,
    log: Arc<Mutex<Vec<Value>>>,
    slice: Value,
    monitoring: SocketAddr,
    _kubeconfig: tempfile::NamedTempFile,
}

impl<'c> Replica<'c> {
    /// Started and ready, and an endpoint of the Service.
    pub(crate) fn start(installation: &Installation<'c>, number: u32) -> Self {
        let replica = Self::start_unready(installation, number);
        until("the injector is ready", || replica.is_ready());
        replica.cluster.api.apply(&replica.slice, "").expect("an EndpointSlice");
        replica
    }

    pub(crate) fn start_unready(installation: &Installation<'c>, number: u32) -> Self {
        let cluster = installation.cluster;
        let kubeconfig = tempfile::NamedTempFile::new().expect("a file");
        let token = kubeconfig_of(&cluster.server, &installation.token());
        std::fs::write(kubeconfig.path(), token.to_string()).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidecar-injector"));
        let arguments = installation.arguments();
        let listens = |argument: &&String| {
            argument.starts_with("--https-addr") || argument.starts_with("--monitoring-addr")
        };
        command.env_clear().args(arguments.iter().filter(|argument| !listens(argument)));
        command.arg(format!("--https-addr={}:0", cluster.address));
        command.args(["--monitoring-addr=127.0.0.1:0", "--kubeconfig"]).arg(kubeconfig.path());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the injector");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let log = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&log);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or_else(|_| json!({"msg": line}));
                collected.lock().expect("no panic").push(line);
            }
        });
        let mut listening = None;
        until("the injector listens", || {
            let lines = log.lock().expect("no panic");
            listening = lines.iter().find(|line| line["msg"] == "listening").cloned();
            listening.is_some()
        });
        let listening = listening.expect("the line");
        let address =
            |key: &str| -> SocketAddr { listening[key].as_str().expect(key).parse().expect("an address") };
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": format!("{}-test-{number}", installation.name()), "namespace": installation.namespace,
                "labels": {"kubernetes.io/service-name": installation.name()}},
            "addressType": if cluster.address.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{"addresses": [cluster.address], "conditions": {"ready": true}}],
            "ports": [{"name": "https-webhook", "port": address("https").port(), "protocol": "TCP"}],
        });
        let monitoring = address("monitoring");
        Self { cluster, child, log, slice, monitoring, _kubeconfig: kubeconfig }
    }

    /// The EndpointSlice.
    pub(crate) fn endpoints(&self) -> &Value {
        &self.slice
    }

    /// Status and body of a path of the monitoring port.
    pub(crate) fn monitoring(&self, path: &str) -> String {
        let mut response = String::new();
        let Ok(mut stream) = TcpStream::connect(self.monitoring) else { return response };
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut response));
        response
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.monitoring("/readyz").starts_with("HTTP/1.1 200")
    }

    /// Log lines whose message, or any value, contains a text.
    pub(crate) fn logged(&self, part: &str) -> Vec<Value> {
        let lines = self.log.lock().expect("no panic");
        lines.iter().filter(|line| line.to_string().contains(part)).cloned().collect()
    }

    /// The lines of reviews, once no more arrive: a line may follow the response.
    pub(crate) fn reviews(&self) -> Vec<Value> {
        loop {
            let before = self.logged("pod reviewed").len();
            std::thread::sleep(std::time::Duration::from_millis(500));
            let reviews = self.logged("pod reviewed");
            if reviews.len() == before {
                return reviews;
            }
        }
    }

    /// As a kubelet ends a pod: no endpoint any more, and SIGTERM, at the same time.
    pub(crate) fn stop(mut self) {
        self.cluster.api.delete(&self.slice);
        kill(Pid::from_raw(self.child.id().try_into().expect("a pid")), Signal::SIGTERM).expect("sent");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {:#?}", self.logged(""));
    }
}

impl Drop for Replica<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.cluster.api.delete(&self.slice);
    }
}
