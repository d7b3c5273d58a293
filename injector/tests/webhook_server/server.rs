//! Starts the program and reads its log.

use std::io::{self, BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

use super::client::Client;

/// How long anything may take before a test gives up.
const LONG: Duration = Duration::from_secs(60);

/// A CA that clients trust.
pub(crate) struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) der: CertificateDer<'static>,
}

/// A certificate and its key in PEM, and what clients see of it.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) cert: String,
    pub(crate) key: String,
    pub(crate) der: Vec<u8>,
}

impl Ca {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let der = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), der }
    }

    pub(crate) fn leaf(&self) -> Leaf {
        self.leaf_for(|_| {})
    }

    pub(crate) fn leaf_for(&self, change: impl FnOnce(&mut CertificateParams)) -> Leaf {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut params);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        Leaf { cert: cert.pem(), key: key.serialize_pem(), der: cert.der().to_vec() }
    }
}

/// A directory in the manner of Kubernetes' volumes: files are links into `..data`, a link that is swapped.
pub(crate) struct Volume {
    pub(crate) dir: TempDir,
    generation: u32,
}

impl Volume {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let mut volume = Self { dir: TempDir::new().unwrap(), generation: 0 };
        volume.swap(files);
        for (name, _) in files {
            std::os::unix::fs::symlink(format!("..data/{name}"), volume.dir.path().join(name)).unwrap();
        }
        volume
    }

    pub(crate) fn swap(&mut self, files: &[(&str, &str)]) {
        self.generation += 1;
        let (root, name) = (self.dir.path(), format!("..{}", self.generation));
        std::fs::create_dir(root.join(&name)).unwrap();
        for (file, text) in files {
            std::fs::write(root.join(&name).join(file), text).unwrap();
        }
        std::os::unix::fs::symlink(&name, root.join("..new")).unwrap();
        std::fs::rename(root.join("..new"), root.join("..data")).unwrap();
        if self.generation > 1 {
            std::fs::remove_dir_all(root.join(format!("..{}", self.generation - 1))).unwrap();
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }
}

pub(crate) fn pair_volume(leaf: &Leaf) -> Volume {
    Volume::new(&[("tls.crt", &leaf.cert), ("tls.key", &leaf.key)])
}

/// The program, running.
pub(crate) struct Server {
    child: Child,
    pub(crate) https: SocketAddr,
    pub(crate) monitoring: SocketAddr,
    pub(crate) ca: CertificateDer<'static>,
    output: Arc<Mutex<Vec<String>>>,
    _pair: Option<Volume>,
}

impl Server {
    /// With a certificate of its own, and these flags.
    pub(crate) fn start(flags: &[&str]) -> Self {
        let ca = Ca::new();
        let pair = pair_volume(&ca.leaf());
        let mut server = Self::start_with(&ca, &pair, flags);
        server._pair = Some(pair);
        server
    }

    pub(crate) fn start_with(ca: &Ca, pair: &Volume, flags: &[&str]) -> Self {
        let (child, output) = spawn(pair, flags, "json");
        let mut server = Self::of(child, output, ca);
        let listening = server.wait_for_line("listening");
        server.listens(&listening);
        server
    }

    /// Whose log is read until it listens, and no further; the pipe, the smallest one, stays open while the
    /// reader is kept.
    pub(crate) fn start_unread(
        ca: &Ca,
        pair: &Volume,
    ) -> (Self, impl Iterator<Item = io::Result<String>> + use<>) {
        let mut child = command(pair, &[], "json").spawn().unwrap();
        let log = child.stderr.take().unwrap();
        let _ = fcntl(&log, FcntlArg::F_SETPIPE_SZ(1));
        let mut lines = BufReader::new(log).lines();
        let mut server = Self::of(child, Arc::default(), ca);
        let listening = lines.find(|line| line.as_ref().unwrap().contains("listening")).unwrap().unwrap();
        server.listens(&serde_json::from_str(&listening).unwrap());
        (server, lines)
    }

    fn of(child: Child, output: Arc<Mutex<Vec<String>>>, ca: &Ca) -> Self {
        let unknown = ([127, 0, 0, 1], 0).into();
        Self { child, https: unknown, monitoring: unknown, ca: ca.der.clone(), output, _pair: None }
    }

    fn listens(&mut self, listening: &serde_json::Value) {
        self.https = listening["https"].as_str().unwrap().parse().unwrap();
        self.monitoring = listening["monitoring"].as_str().unwrap().parse().unwrap();
    }

    pub(crate) fn lines(&self) -> Vec<serde_json::Value> {
        let output = self.output.lock().unwrap();
        output
            .iter()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}")))
            .collect()
    }

    /// The first line with this message, once it is there.
    pub(crate) fn wait_for_line(&mut self, message: &str) -> serde_json::Value {
        let until = Instant::now() + LONG;
        loop {
            if let Some(line) = self.lines().into_iter().find(|line| line["msg"] == message) {
                return line;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("ended with {status}: {:#?}", self.output.lock().unwrap());
            }
            assert!(Instant::now() < until, "no line {message:?} in {:#?}", self.output.lock().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for a line with this message and this problem.
    pub(crate) fn wait_for_problem(&mut self, message: &str, problem: &str) {
        let until = Instant::now() + LONG;
        while !self.lines().iter().any(|line| line["msg"] == message && line["problem"] == problem) {
            assert!(Instant::now() < until, "no {message:?} with {problem:?} in {:#?}", self.lines());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The last output, once the program has ended and all of it is collected.
    pub(crate) fn wait_for_last_line(&self, message: &str) {
        while Arc::strong_count(&self.output) > 1 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(self.lines().last().unwrap()["msg"], message);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// The most memory that it has had, in bytes.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix(" kB"));
        peak.unwrap().trim().parse::<u64>().unwrap() << 10
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let until = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end: {:#?}", self.output.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn http1(&self) -> Client {
        Client::connect(self.https, &self.ca, &[b"http/1.1"]).await.unwrap()
    }

    pub(crate) async fn http2(&self) -> Client {
        Client::connect(self.https, &self.ca, &[b"h2", b"http/1.1"]).await.unwrap()
    }

    /// What the monitoring port answers: status and text.
    pub(crate) async fn ask(&self, path: &str) -> (u16, String) {
        let (status, _, text) = super::client::plain(self.monitoring, "GET", path, "").await;
        (status, text)
    }

    /// The value of a metric, by its name with labels.
    pub(crate) async fn metric(&self, name: &str) -> Option<f64> {
        let (_, text) = self.ask("/metrics").await;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    }

    pub(crate) async fn wait_for_metric(&self, name: &str, good: impl Fn(f64) -> bool) {
        let until = Instant::now() + LONG;
        loop {
            let value = self.metric(name).await;
            if value.is_some_and(&good) {
                return;
            }
            assert!(Instant::now() < until, "{name} is {value:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The program; its standard error is a pipe.
pub(crate) fn command(pair: &Volume, flags: &[&str], format: &str) -> Command {
    let mut command = Command::new(Path::new(env!("CARGO_BIN_EXE_sidecar-injector")));
    command.arg("webhook").args(["--log-format", format]).env_clear();
    for (flag, default) in [
        ("--https-addr", "127.0.0.1:0".to_owned()),
        ("--monitoring-addr", "127.0.0.1:0".to_owned()),
        ("--watch-interval", "50ms".to_owned()),
        ("--tls-cert", pair.path("tls.crt")),
        ("--tls-key", pair.path("tls.key")),
    ] {
        if !flags.contains(&flag) {
            command.args([flag, &default]);
        }
    }
    command.args(flags).stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

/// Starts the program; its standard error grows line by line.
pub(crate) fn spawn(pair: &Volume, flags: &[&str], format: &str) -> (Child, Arc<Mutex<Vec<String>>>) {
    let mut child = command(pair, flags, format).spawn().unwrap();
    let output = Arc::new(Mutex::new(Vec::new()));
    let (lines, collected) = (BufReader::new(child.stderr.take().unwrap()).lines(), Arc::clone(&output));
    std::thread::spawn(move || lines.for_each(|line| collected.lock().unwrap().push(line.unwrap())));
    (child, output)
}

/// Runs the program until it ends by itself; its exit code and standard error.
pub(crate) fn run_to_end(pair: &Volume, flags: &[&str]) -> (Option<i32>, String) {
    let (mut child, output) = spawn(pair, flags, "text");
    let status = child.wait().unwrap();
    // The reader thread ends with the pipe: then its lines are complete.
    while Arc::strong_count(&output) > 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    (status.code(), output.lock().unwrap().join("\n"))
}
