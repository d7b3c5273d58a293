//! The cluster under test: that of a kubeconfig, or a control plane that is started here.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{Api, until};

/// An address for documentation, which the network namespace has on its loopback interface: API servers
/// accept no endpoint in 127.0.0.0/8.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// Set in the network namespace.
const INSIDE: &str = "END_TO_END_NAMESPACE";
const TOKEN: &str = "admin-of-a-control-plane-for-one-test";
const SERVER: &str = "https://127.0.0.1:6443";

pub(crate) struct Cluster {
    pub(crate) api: Api,
    pub(crate) kubeconfig: PathBuf,
    /// The CA of the API server, base64, and its address.
    pub(crate) server: Value,
    /// Where the API server reaches this machine.
    pub(crate) address: IpAddr,
    /// `None` for a cluster of `KUBECONFIG`.
    own: Option<Own>,
}

struct Own {
    assets: PathBuf,
    directory: tempfile::TempDir,
    processes: Mutex<Vec<Child>>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The cluster that the environment names; else the exit code of the program.
pub(crate) fn of_environment() -> Result<Cluster, ExitCode> {
    match (variable("CLUSTER_CONTEXT"), variable("KUBECONFIG"), variable("KUBEBUILDER_ASSETS")) {
        (Some(context), Some(kubeconfig), _) => given(&context, Path::new(&kubeconfig)),
        (_, _, Some(assets)) if variable(INSIDE).is_some() => Ok(Cluster::start(Path::new(&assets))),
        (_, _, Some(_)) => Err(in_network_namespace()),
        _ => {
            eprintln!(
                "NOT CHECKED: no cluster: set KUBECONFIG and CLUSTER_CONTEXT (its current context), or KUBEBUILDER_ASSETS (a \
                 directory with kube-apiserver and etcd)"
            );
            Err(ExitCode::FAILURE)
        }
    }
}

/// Runs this program again in a network namespace of its own.
fn in_network_namespace() -> ExitCode {
    let setup = format!("ip link set lo up && ip address add {ADDRESS}/32 dev lo && exec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "sh", "-c", &setup]).args(std::env::args_os()).env(INSIDE, "1");
    match command.status().expect("unshare, of util-linux").code() {
        Some(0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn given(context: &str, kubeconfig: &Path) -> Result<Cluster, ExitCode> {
    let text = std::fs::read_to_string(kubeconfig).expect("KUBECONFIG");
    let config = sidecar_injector::yaml::read(&text).expect("a kubeconfig");
    let current = config["current-context"].as_str().unwrap_or_default();
    if current != context {
        eprintln!(
            "KUBECONFIG: the current context is {current:?}, and CLUSTER_CONTEXT is {context:?}: expected the same"
        );
        return Err(ExitCode::FAILURE);
    }
    let entry = |list: &str, name: &str, key: &str| {
        let all = config[list].as_array().cloned().unwrap_or_default();
        all.into_iter()
            .find(|entry| entry["name"] == name)
            .map(|entry| entry[key].clone())
            .unwrap_or_default()
    };
    let cluster = entry("contexts", current, "context")["cluster"].clone();
    let server = entry("clusters", cluster.as_str().unwrap_or_default(), "cluster");
    let url = server["server"].as_str().unwrap_or_default();
    let host = url.trim_start_matches("https://").split('/').next().unwrap_or_default();
    let target = if host.contains(':') { host.to_owned() } else { format!("{host}:443") };
    let socket = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect(target).map(|()| socket));
    let address = socket.and_then(|socket| socket.local_addr()).expect("a route to the API server").ip();
    Ok(Cluster { api: Api::new(kubeconfig), kubeconfig: kubeconfig.to_owned(), server, address, own: None })
}

impl Cluster {
    fn start(assets: &Path) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let key = rcgen::KeyPair::generate().expect("a key");
        std::fs::write(at("accounts.key"), key.serialize_pem()).expect("written");
        std::fs::write(at("accounts.pub"), key.public_key_pem()).expect("written");
        std::fs::write(at("tokens.csv"), format!("{TOKEN},admin,admin,system:masters\n")).expect("written");
        let audit = json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}]});
        std::fs::write(at("audit.yaml"), audit.to_string()).expect("written");
        let own = Own { assets: assets.to_owned(), directory, processes: Mutex::default() };
        own.spawn("etcd", &["--data-dir", "etcd", "--log-level", "error"]);
        own.start_api_server();
        let at = |name: &str| own.directory.path().join(name);
        until("kube-apiserver has a certificate", || at("apiserver.crt").exists());
        let authority = std::fs::read(at("apiserver.crt")).expect("a certificate");
        let authority = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, authority);
        let server = json!({"server": SERVER, "certificate-authority-data": authority});
        let kubeconfig = at("kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_of(&server, TOKEN).to_string()).expect("written");
        let api = Api::new(&kubeconfig);
        let cluster = Self { api, kubeconfig, server, address: ADDRESS.into(), own: Some(own) };
        cluster.wait();
        cluster
    }

    fn wait(&self) {
        for _ in 0..600 {
            if self.api.text("/readyz").is_ok_and(|text| text == "ok") {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let (state, log) = (self.api.text("/readyz"), self.server_log());
        panic!("a minute has passed, and kube-apiserver is not ready: {state:?}\n{log}");
    }

    /// The end of the log of our own API server: why it refuses what it should not.
    pub(crate) fn server_log(&self) -> String {
        self.own.as_ref().map(|own| own.log("kube-apiserver")).unwrap_or_default()
    }

    /// Whether the control plane is ours to restart, without controllers, and with an audit log.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// kubectl of the assets, or of the search path.
    pub(crate) fn kubectl(&self) -> Command {
        let assets = self.own.as_ref().map(|own| own.assets.join("kubectl")).filter(|path| path.exists());
        let mut command = Command::new(assets.unwrap_or_else(|| PathBuf::from("kubectl")));
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    /// Kills the API server and starts it again, with a pause in between.
    pub(crate) fn restart_api_server(&self, meanwhile: impl FnOnce()) {
        let own = self.own.as_ref().expect("a control plane of our own");
        let mut server = own.processes.lock().expect("no panic").pop().expect("the API server");
        server.kill().and_then(|()| server.wait()).expect("killed");
        meanwhile();
        own.start_api_server();
        self.wait();
    }

    /// The audit log's entries of a user.
    pub(crate) fn audited(&self, user: &str) -> Vec<Value> {
        let log = self.own.as_ref().expect("a control plane of our own").directory.path().join("audit.log");
        let text = std::fs::read_to_string(log).expect("the audit log");
        let entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        entries
            .filter(|entry| entry.pointer("/user/username").and_then(Value::as_str) == Some(user))
            .collect()
    }

    /// Ends what was started here.
    pub(crate) fn end(&self) {
        if let Some(own) = &self.own {
            own.end();
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.end();
    }
}

impl Own {
    fn end(&self) {
        while let Some(mut process) = self.processes.lock().expect("no panic").pop() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    fn spawn(&self, program: &str, arguments: &[&str]) {
        let directory = self.directory.path();
        let log = |mode: &str| File::create(directory.join(format!("{program}.{mode}.log"))).expect("a log");
        let mut command = Command::new(self.assets.join(program));
        command.args(arguments).current_dir(directory).env_clear().stdin(Stdio::null());
        let child = command.stdout(log("out")).stderr(log("err")).spawn();
        let child = child.unwrap_or_else(|error| panic!("{program} of KUBEBUILDER_ASSETS: {error}"));
        self.processes.lock().expect("no panic").push(child);
    }

    /// The end of a program's log.
    fn log(&self, program: &str) -> String {
        let text = std::fs::read_to_string(self.directory.path().join(format!("{program}.err.log")));
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn start_api_server(&self) {
        let advertise = format!("--advertise-address={ADDRESS}");
        self.spawn(
            "kube-apiserver",
            &[
                "--etcd-servers=http://127.0.0.1:2379",
                "--bind-address=127.0.0.1",
                &advertise,
                "--cert-dir=.",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-account-key-file=accounts.pub",
                "--service-account-signing-key-file=accounts.key",
                "--authorization-mode=RBAC",
                "--token-auth-file=tokens.csv",
                "--service-cluster-ip-range=10.96.0.0/24",
                "--endpoint-reconciler-type=none",
                // Services are reached by their EndpointSlices: there is no kube-proxy.
                "--enable-aggregator-routing=true",
                "--audit-policy-file=audit.yaml",
                "--audit-log-path=audit.log",
            ],
        );
    }
}

/// A kubeconfig for a token.
pub(crate) fn kubeconfig_of(server: &Value, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    })
}
