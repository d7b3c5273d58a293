//! The whole program: started with a kubeconfig, called as an API server would call it.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::fake::{Fake, lock};
use super::replica::{NAME, NAMESPACE, ca_bundle, config_map, decoded, hooks, injector_config, until};
use super::state::node;

struct Program {
    child: Child,
    output: Arc<Mutex<Vec<String>>>,
    _kubeconfig: tempfile::NamedTempFile,
}

impl Program {
    fn start(fake: &Fake) -> Self {
        let kubeconfig = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(kubeconfig.path(), fake.kubeconfig()).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidecar-injector"));
        command.env_clear().args(["webhook", "--log-format", "json", "--self-signed"]);
        command.args(["--https-addr", "127.0.0.1:0", "--monitoring-addr", "127.0.0.1:0"]);
        command.args(["--service", NAME, "--namespace", NAMESPACE, "--webhook-config", NAME]);
        command.args(["--watch-configmap", &format!("{NAMESPACE}/{NAME}"), "--native-sidecars", "auto"]);
        command.arg("--kubeconfig").arg(kubeconfig.path());
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
        let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let output = Arc::new(Mutex::new(Vec::new()));
        let collected = Arc::clone(&output);
        std::thread::spawn(move || lines.for_each(|line| lock(&collected).push(line.unwrap_or_default())));
        Self { child, output, _kubeconfig: kubeconfig }
    }

    /// The ports, once it listens.
    async fn listening(&self) -> (SocketAddr, SocketAddr) {
        let line = || {
            let lines = lock(&self.output).clone();
            let mut lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| line["msg"] == "listening")
        };
        until("it listens", || line().is_some()).await;
        let line = line().expect("the line");
        let address = |key: &str| line[key].as_str().expect(key).parse().expect("an address");
        (address("https"), address("monitoring"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: String) -> (u16, String) {
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head.split(' ').nth(1).expect("a status").parse().expect("a number"), body.to_owned())
}

async fn ask(address: SocketAddr, path: &str) -> (u16, String) {
    let stream = TcpStream::connect(address).await.expect("connected");
    exchange(stream, format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await
}

/// Sends a pod as an API server does that has read this caBundle; the patch.
async fn inject(address: SocketAddr, bundle: &str) -> Value {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.expect("a certificate")).expect("a root");
    }
    let provider = Arc::new(sidecar_injector::certs::serving_cert::provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let host = ServerName::try_from(format!("{NAME}.{NAMESPACE}.svc")).expect("a name");
    let tcp = TcpStream::connect(address).await.expect("connected");
    let tls = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(host, tcp).await.expect("trusted");
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-", "namespace": "shop"},
        "spec": {"containers": [{"name": "web", "image": "web"}]}});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "shop", "object": pod}})
    .to_string();
    let head = format!(
        "POST /inject HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        review.len()
    );
    let (status, body) = exchange(tls, head + &review).await;
    assert_eq!(status, 200, "{body}");
    let review: Value = serde_json::from_str(&body).expect("a review");
    let patch = decoded(review["response"]["patch"].as_str().expect("a patch"));
    serde_json::from_str(&patch).expect("a patch")
}

/// Whether the proxy is an init container.
fn is_native(patch: &Value) -> bool {
    let operations = patch.as_array().expect("operations").iter();
    operations
        .filter(|operation| {
            operation["path"].as_str().is_some_and(|path| path.starts_with("/spec/initContainers"))
        })
        .any(|operation| operation["value"].to_string().contains("\"name\":\"istio-proxy\""))
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_injected_from_an_empty_cluster_on() {
    let fake = Fake::start().await;
    fake.put("kubelet", node("one", "v1.34.1"));
    let program = Program::start(&fake);
    let (https, monitoring) = program.listening().await;
    until("the Secret is made", || fake.count("POST", "/secrets", 201) == 1).await;
    let (status, why) = ask(monitoring, "/readyz").await;
    assert_eq!(status, 503);
    assert!(why.contains("config"), "{why}");
    assert_eq!(ask(monitoring, "/healthz").await.0, 200);

    fake.put("kubectl", injector_config());
    fake.put("kubectl", hooks());
    until("the caBundle is written", || !ca_bundle(&fake).is_empty()).await;
    ready(monitoring).await;
    assert!(is_native(&inject(https, &ca_bundle(&fake)).await));

    // An old node joins; then the config breaks; then the API server goes away.
    fake.put("kubelet", node("old", "v1.29.0"));
    let output = |part: &str| lock(&program.output).iter().any(|line| line.contains(part));
    until("logged", || output("node old runs Kubernetes")).await;
    assert!(!is_native(&inject(https, &ca_bundle(&fake)).await));
    fake.put("kubectl", config_map(NAME, json!({"config": "templates: [", "values": "{}"})));
    until("logged", || output("the last valid state stays active")).await;
    fake.stop().await;
    until("logged", || output("the API server is unreachable")).await;
    ready(monitoring).await;
    assert!(!is_native(&inject(https, &ca_bundle(&fake)).await));
    assert!(!output("failed with error"), "in the client's words as well: {:#?}", lock(&program.output));
}

async fn ready(monitoring: SocketAddr) {
    let mut answer = (0, String::new());
    for _ in 0..1500 {
        answer = ask(monitoring, "/readyz").await;
        if answer.0 == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("not ready: {answer:?}");
}
